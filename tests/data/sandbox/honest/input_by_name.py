# Shows: standard input and output opened by their names
# Kind: stdin
# Test: {"stdin": "3\n4\n", "stdout": "7\n"}
with open("/dev/stdin") as first, open("/dev/stdout", "w") as out:
    print(sum(map(int, first)), file=out)
