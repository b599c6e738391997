"""Code that runs inside the sandbox: sets resource limits, then runs the untrusted program.

Its text is sent into the sandbox after that of `literals.py`. Nothing here defends against the untrusted program, which
shares the interpreter: the kernel contains it, and its answers are only claims. For a fast start this imports only
modules that are compiled into the interpreter.

The process's arguments are the descriptors of requests and answers. A request is its length (8 bytes) and a marshalled
value; an answer is the request's nonce (16 bytes), a length (8 bytes) and tagged JSON. No exception is caught: a
program that fails ends the process, and a case without an answer has failed.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from infuser_core.verifiers.sandbox.literals import encode


class RequestPipes:
    """The pipes for requests and answers."""

    def __init__(self, requests: int, answers: int) -> None:
        self.requests = requests
        self.answers = answers

    def receive(self) -> "Any":
        """The next request; ends the process if there is none."""
        import marshal

        return marshal.loads(self.read(int.from_bytes(self.read(8), "little")))

    def read(self, size: int) -> bytes:
        """Exactly `size` bytes."""
        import posix

        parts = []
        while size:
            part = posix.read(self.requests, min(size, 1 << 20))
            if not part:
                posix._exit(0)
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def answer(self, nonce: bytes, value: object) -> None:
        """Send a value as the answer to the request with this nonce."""
        import posix

        text = encode(value).encode()
        frame = memoryview(nonce + len(text).to_bytes(8, "little") + text)
        while frame:
            frame = frame[posix.write(self.answers, frame) :]

    def close(self) -> None:
        """Close both pipes, so that the program cannot use them."""
        import posix

        posix.close(self.requests)
        posix.close(self.answers)


def main() -> None:
    """Set limits, then run the program of the first request."""
    import builtins
    import sys

    line = RequestPipes(int(sys.argv[1]), int(sys.argv[2]))
    order = line.receive()
    limit(order["limits"])
    # The `site` module would add these; programs for online judges call them.
    builtins.exit = builtins.quit = sys.exit  # type: ignore[assignment]
    sys.setrecursionlimit(order["recursion"])
    sys.argv[:] = ["program.py"]
    sys.path[:] = [entry for entry in [*sys.path, order["packages"]] if entry]
    line.answer(order["nonce"], None)
    if order["kind"] == "stdin":
        run_program(line, order)
    else:
        run_calls(line, order)


def limit(limits: "list[tuple[str, int]]") -> None:
    """Set resource limits by name, soft and hard, so that the program cannot raise them."""
    import resource

    for name, value in limits:
        number = getattr(resource, name)
        hard = resource.getrlimit(number)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (value, value))


def run_program(line: RequestPipes, order: "dict[str, Any]") -> None:
    """Run a whole program as `__main__`, with the pipes of its case as standard input and output."""
    import posix
    import sys

    line.close()
    module = type(sys)("__main__")
    sys.modules["__main__"] = module
    module.__dict__["__file__"] = "program.py"
    # pathlib would be an import; the program, which may replace `open`, runs later.
    with open("program.py", "w", encoding="utf-8", errors="surrogatepass") as file:  # noqa: PTH123
        file.write(order["source"])
    sys.path.insert(0, posix.getcwd())
    try:
        execute(order, module)
    except SystemExit as end:
        # `exit()` is not a failure, and its text goes to standard error.
        if isinstance(end.code, str):
            sys.stderr.write(end.code + "\n")


def run_calls(line: RequestPipes, order: "dict[str, Any]") -> None:
    """Call one function with the arguments of each case. A first answer reports that the program is loaded."""
    import sys

    module = type(sys)("solution")
    sys.modules["solution"] = module
    execute(order, module)
    holder, _, method = order["entry"].rpartition(".")
    line.answer(line.receive(), None)
    while True:
        nonce, arguments = line.receive()
        scope = getattr(module, holder)() if holder and hasattr(module, holder) else module
        line.answer(nonce, getattr(scope, method)(*arguments))


def execute(order: "dict[str, Any]", module: "Any") -> None:
    """Run the setup, then the program, in the module's namespace."""
    if order["setup"]:
        exec(compile(order["setup"], "<setup>", "exec", dont_inherit=True), module.__dict__)
    exec(compile(order["source"], "program.py", "exec", dont_inherit=True), module.__dict__)


if __name__ == "__main__":
    main()
