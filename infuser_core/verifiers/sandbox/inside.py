"""The program's side of the sandbox: sets limits, then runs untrusted code. Its text is sent in with `literals.py`.

Nothing here is a defence against the code it runs, which shares its interpreter: containment is the kernel's work, and
what comes out is taken as a claim. It imports only what is compiled into the interpreter, for the start-up time.

The descriptors of requests and answers are the process's arguments. A request is its length (8 bytes) and a
marshalled value; an answer is the request's nonce (16 bytes), a length (8 bytes) and tagged JSON. No exception is
caught: a program that fails ends the process, and a case without an answer is a failed case.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from infuser_core.verifiers.sandbox.literals import encode


class Line:
    """The way out and in."""

    def __init__(self, requests: int, answers: int) -> None:
        self.requests = requests
        self.answers = answers

    def receive(self) -> "Any":
        """The next request; ends the process when there is none."""
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
        """Sends one value."""
        import posix

        text = encode(value).encode()
        frame = memoryview(nonce + len(text).to_bytes(8, "little") + text)
        while frame:
            frame = frame[posix.write(self.answers, frame) :]

    def close(self) -> None:
        """No descriptor is left to the program."""
        import posix

        posix.close(self.requests)
        posix.close(self.answers)


def main() -> None:
    """Entry of the sandboxed process."""
    import builtins
    import sys

    line = Line(int(sys.argv[1]), int(sys.argv[2]))
    order = line.receive()
    limit(order["limits"])
    # What the `site` module would add; programs for online judges end with them.
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
    """Resource limits by name; soft and hard alike, so that nothing below can raise them."""
    import resource

    for name, value in limits:
        number = getattr(resource, name)
        hard = resource.getrlimit(number)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (value, value))


def run_program(line: Line, order: "dict[str, Any]") -> None:
    """A whole program as `__main__`, with the pipes of its case as standard input and output."""
    import posix
    import sys

    line.close()
    module = type(sys)("__main__")
    sys.modules["__main__"] = module
    module.__dict__["__file__"] = "program.py"
    # pathlib would be an import; a program that replaces `open` comes later.
    with open("program.py", "w", encoding="utf-8", errors="surrogatepass") as file:  # noqa: PTH123
        file.write(order["source"])
    sys.path.insert(0, posix.getcwd())
    try:
        execute(order, module)
    except SystemExit as end:
        # An ending that the program chose is no failure; text given to it is for people.
        if isinstance(end.code, str):
            sys.stderr.write(end.code + "\n")


def run_calls(line: Line, order: "dict[str, Any]") -> None:
    """One function, called with every case's arguments; an answer before the first says that the program is loaded."""
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
    """Setup, then the program, in the module's name space."""
    if order["setup"]:
        exec(compile(order["setup"], "<setup>", "exec", dont_inherit=True), module.__dict__)
    exec(compile(order["source"], "program.py", "exec", dont_inherit=True), module.__dict__)


if __name__ == "__main__":
    main()
