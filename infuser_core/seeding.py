"""Random seeds computed from names, not from engine state: they are the same however work is split over processes."""

import hashlib


def seed_of(*names: int | str) -> int:
    """Hash names, e.g. (run seed, iteration, phase, group id, sample index), to a 63-bit seed."""
    joined = "\x1f".join(str(name) for name in names)
    return int.from_bytes(hashlib.sha256(joined.encode()).digest()[:8], "big") >> 1
