"""Everything that is claimed about the corpus, measured in one table: `make bench-corpus`.

    .venv/bin/python tests/bench/corpus_all.py [--json]                 # about two minutes of processor time
    .venv/bin/python tests/bench/corpus_all.py --records 143000         # whole shards of the size of the paper's data
    .venv/bin/python tests/bench/corpus_all.py BOOK.pdf...              # real books besides the printed ones

Ends with 1 where a target is missed. The two halves run alone as well: `corpus_text.py` and `corpus_audit.py`.
"""

import argparse
import sys
from collections.abc import Sequence
from itertools import chain

import corpus_audit
import corpus_text
from measure import shown


def main(arguments: Sequence[str]) -> int:
    """Run both halves; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    corpus_text.options(parser)
    corpus_audit.options(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object for each measure instead of a table")
    given = parser.parse_args(arguments)
    text = corpus_text.rows(given.books, given.big, corpus_text.said)
    audit = corpus_audit.rows(corpus_audit.plan_of(given), corpus_audit.said)
    return shown(chain(text, audit), as_json=given.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
