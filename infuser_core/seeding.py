"""Seeds derived from names, never from engine state: any process layout draws the same numbers."""

import hashlib


def seed_of(*names: int | str) -> int:
    """A 63-bit seed from a tuple of names, e.g. (run seed, iteration, phase, group id, sample index)."""
    joined = "\x1f".join(str(name) for name in names)
    return int.from_bytes(hashlib.sha256(joined.encode()).digest()[:8], "big") >> 1
