"""LiveCodeBench rows to tests. The private tests are somebody else's pickle: unpacked here without running any of it.

Layout of a row: `public_test_cases` and `private_test_cases` are JSON lists of `{input, output, testtype}`; the
private list may instead be base64 of zlib of a pickled JSON string. `metadata` is JSON with `func_name` for functional
problems, whose inputs hold one JSON value per line.
"""

import base64
import binascii
import io
import json
import pickle
import re
import zlib
from collections.abc import Mapping
from typing import Any

from infuser_core.errors import DocumentError

MAX_UNPACKED = 256 << 20
"""Largest private test list, bytes unpacked; the benchmark's own stay below."""
SECONDS = 6.0
"""Wall clock per test."""
SETUP = """\
import bisect, collections, functools, heapq, itertools, math, operator, re, string, sys
from bisect import bisect, bisect_left, bisect_right, insort, insort_left, insort_right
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from functools import cache, cmp_to_key, lru_cache, partial, reduce
from heapq import heapify, heappop, heappush, heappushpop, heapreplace, merge, nlargest, nsmallest
from itertools import accumulate, chain, combinations, combinations_with_replacement, count, cycle, groupby, islice
from itertools import pairwise, permutations, product, repeat, starmap, takewhile, zip_longest
from math import ceil, comb, factorial, floor, gcd, inf, isqrt, lcm, log, log2, log10, perm, pi, prod, sqrt
from string import ascii_letters, ascii_lowercase, ascii_uppercase, digits
from typing import Any, Callable, DefaultDict, Deque, Dict, FrozenSet, Generator, Iterable, Iterator, List
from typing import NamedTuple, Optional, Sequence, Set, Tuple, TypeVar, Union
"""
"""Names that solutions written for the problems' own platforms find there; none of them hides a built-in."""
_HINT = "the row is not in the benchmark's layout, or damaged"
# A pickled text needs no other instruction: none of these builds, calls or repeats anything.
_TEXT_OPCODES = {"PROTO", "FRAME", "BINUNICODE8", "BINUNICODE", "SHORT_BINUNICODE", "UNICODE"}
_TEXT_OPCODES |= {"MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"}


def tests_from_livecode(row: Mapping[str, Any]) -> dict[str, Any]:
    """Tests of one row: the public cases, then the private ones. Raises DocumentError naming the question."""
    name = str(row.get("question_id", "?"))
    try:
        cases = [*_plain(row["public_test_cases"]), *unpack(row["private_test_cases"])]
        entry = _entry(row, cases)
        if not cases:
            raise ValueError("no test cases")
        read = _functional if entry else _stdin
        tests = [read(case) for case in cases]
    except KeyError as error:
        raise DocumentError(f"question {name}: no field {error}", hint=_HINT) from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise DocumentError(f"question {name}: {error!s:.200}", hint=_HINT) from error
    kind, entry = ("call", f"Solution.{entry}") if entry else ("stdin", "")
    common = {"setup": SETUP, "seconds": SECONDS, "tuples_equal_lists": True}
    return {"kind": kind, "entry": entry, "cases": tests, **common}


def _entry(row: Mapping[str, Any], cases: list[Any]) -> str:
    """The function that functional tests call: named by the metadata, else by the starter code; empty for programs."""
    named = str((_json_of(row.get("metadata") or "{}") or {}).get("func_name") or "")
    if named or not any(case.get("testtype") == "functional" for case in cases):
        return named
    started = re.findall(r"^\s+def\s+(\w+)\s*\(\s*self\b", str(row.get("starter_code") or ""), re.MULTILINE)
    if len(started) != 1:
        raise ValueError("functional tests, but neither metadata nor starter code name one function")
    return str(started[0])


def unpack(private: object) -> list[Any]:
    """The private cases: a plain JSON list, or base64(zlib(pickle(JSON text))). Raises ValueError for anything else."""
    if not isinstance(private, str) or private.lstrip()[:1] in ("[", ""):
        return _plain(private)
    try:
        packed = base64.b64decode(private, validate=True)
    except binascii.Error as error:
        raise ValueError(f"private tests are neither JSON nor base64: {error}") from error
    text = _unpickled(_inflated(packed))
    return _plain(text)


def _inflated(packed: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        content = inflater.decompress(packed, MAX_UNPACKED)
    except zlib.error as error:
        raise ValueError(f"private tests do not inflate: {error}") from error
    if inflater.unconsumed_tail or not inflater.eof:
        raise ValueError(f"private tests are cut off, or larger than {MAX_UNPACKED} bytes")
    return content


class _PlainUnpickler(pickle.Unpickler):
    """Refuses to look anything up: without classes and functions a pickle is data."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"private tests ask for {module[:40]}.{name[:40]}")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("private tests ask for a persistent object")


def _unpickled(content: bytes) -> str:
    """The text in a pickle that holds one text and nothing else."""
    import pickletools

    try:
        for opcode, _, _ in pickletools.genops(content):
            if opcode.name not in _TEXT_OPCODES:
                raise ValueError(f"private tests hold pickle instruction {opcode.name}, not a text")
        text = _PlainUnpickler(io.BytesIO(content)).load()
    except (pickle.UnpicklingError, EOFError, IndexError, OverflowError, MemoryError) as error:
        raise ValueError(f"private tests are no plain pickle: {error}") from error
    if type(text) is not str:
        raise ValueError(f"private tests unpickle to {type(text).__name__}, not a text")
    return text


def _plain(cases: object) -> list[Any]:
    found = _json_of(cases)
    if not isinstance(found, list):
        raise ValueError(f"test cases are {type(found).__name__}, not a list")
    return found


def _json_of(value: object) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _stdin(case: Mapping[str, Any]) -> dict[str, Any]:
    return {"stdin": str(case["input"]), "stdout": str(case["output"])}


def _functional(case: Mapping[str, Any]) -> dict[str, Any]:
    args = [json.loads(line) for line in str(case["input"]).split("\n") if line.strip()]
    return {"args": args, "expected": json.loads(str(case["output"]))}
