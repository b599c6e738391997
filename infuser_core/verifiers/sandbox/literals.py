"""Encode plain Python data as tagged JSON and decode it: the format of answers from a sandbox and of stored tests.

The text of this file also runs inside of the sandbox, so it imports nothing: `json` alone would double the start-up
time. `encode` runs next to hostile code: it uses the methods of the base type, so an overridden `__iter__` or `__eq__`
of a subclass is never called. `decode` gets hostile input.

None, booleans, small integers and printable ASCII strings are plain JSON; a numpy scalar is written as the Python value
that it equals. Everything else is a list that starts with its tag: i integer (hexadecimal), f float (hexadecimal, nan,
inf), c complex, u other strings and b bytes (hexadecimal), l list, t tuple, s set, z frozenset, d dict (pairs).
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

EXACT = 1 << 53
"""Smallest integer that is written in hexadecimal: many JSON parsers round larger ones."""
CONTAINERS = {"l": list, "t": tuple, "s": set, "z": frozenset}


def encode(value: object) -> str:
    """Encode a value as one line of JSON. Raises TypeError, naming the type, for anything that is not plain data."""
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        whole = int.__add__(value, 0)
        return int.__repr__(whole) if -EXACT < whole < EXACT else f'["i","{int.__format__(whole, "x")}"]'
    if isinstance(value, float):
        return f'["f","{float.hex(value)}"]'
    if isinstance(value, str):
        text = str.__str__(value)
        if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
            return f'"{text}"'
        return f'["u","{text.encode("utf-8", "surrogatepass").hex()}"]'
    if isinstance(value, (bytes, bytearray)):
        return f'["b","{bytes(memoryview(value)).hex()}"]'
    if isinstance(value, complex):
        return f'["c","{float.hex(value.real)}","{float.hex(value.imag)}"]'
    if isinstance(value, dict):
        pairs = [f"[{encode(key)},{encode(item)}]" for key, item in dict.items(value)]
        return "[" + ",".join(['"d"', *pairs]) + "]"
    for tag, kind in CONTAINERS.items():
        if isinstance(value, kind):
            return "[" + ",".join([f'"{tag}"', *[encode(item) for item in kind.__iter__(value)]]) + "]"
    if any((base.__module__, base.__name__) == ("numpy", "generic") for base in type(value).__mro__):
        plain = value.item()  # type: ignore[attr-defined]
        # A long double has no plain number: its `item()` is a long double again.
        if type(plain) is not type(value):
            return encode(plain)
    raise TypeError(f"no plain data: {type(value).__name__}")


def decode(tagged: "Any") -> "Any":
    """Decode parsed tagged JSON into its value. Raises ValueError for anything that `encode` does not write."""
    if not isinstance(tagged, list):
        if tagged is None or type(tagged) in (bool, int, str):
            return tagged
        raise ValueError(f"no tagged literal: {type(tagged).__name__}")
    if not tagged or type(tagged[0]) is not str:
        raise ValueError("a list without a tag")
    tag, parts = tagged[0], tagged[1:]
    if tag in CONTAINERS:
        return _hashable(lambda: CONTAINERS[tag]([decode(part) for part in parts]))
    if tag == "d":
        return _hashable(lambda: {decode(key): decode(item) for key, item in parts})
    if any(type(part) is not str for part in parts) or len(parts) != (2 if tag == "c" else 1):
        raise ValueError(f"tag {tag!r} with other parts")
    return _scalar(tag, parts)


def _scalar(tag: str, parts: "list[str]") -> object:
    try:
        if tag == "i":
            return int(parts[0], 16)
        if tag == "f":
            return float.fromhex(parts[0])
        if tag == "c":
            return complex(float.fromhex(parts[0]), float.fromhex(parts[1]))
        if tag == "u":
            return bytes.fromhex(parts[0]).decode("utf-8", "surrogatepass")
        if tag == "b":
            return bytes.fromhex(parts[0])
    except OverflowError as error:
        raise ValueError(str(error)) from error
    raise ValueError(f"unknown tag {tag[:20]!r}")


def _hashable(make: "Any") -> object:
    try:
        return make()
    except TypeError as error:
        raise ValueError(str(error)) from error
