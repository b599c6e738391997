"""The exact audit beside AllenAI's decon on the same records: questions of a benchmark planted in chunks of real books.

    .venv/bin/python tests/bench/corpus_decon.py DECON EVALS.jsonl[.gz] POOL

DECON is its executable (https://github.com/allenai/decon), EVALS one of its evaluation files (fields `question` and
`answer`), POOL a folder made by `infuser corpus build`. Each planted record is a chunk with one question in its middle,
as it is, without its answer, or disguised; a chunk without any is a negative. Either tool runs with its own settings.
"""

import gzip
import json
import random
import resource
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from corpus.audit.planted_controls import DISGUISES
from corpus.audit.references import shards_of
from corpus.audit.scan import PoolText, Scanner, pool_texts
from infuser_core.config.corpus import OverlapSettings

PER_KIND = 100
"""Planted records of each kind."""
SEED = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record that both tools see."""

    kind: str
    """Kind of plant, or `negative`."""
    text: str
    """The record."""
    question: int
    """Place of the planted question; -1 without any."""


def questions_of(path: Path) -> list[Mapping[str, str]]:
    """Rows of an evaluation file."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in data.decode().splitlines()]


def planted(questions: Sequence[Mapping[str, str]], chunks: Sequence[str]) -> Iterator[Record]:
    """Every kind of plant, and all chunks as they are."""
    draw = random.Random(SEED)
    kinds: dict[str, Callable[[str], str]] = {"question and answer": str, "question alone": str}
    kinds |= {name: lambda text, change=change: change(text, draw) for name, change in DISGUISES.items()}
    for kind, change in kinds.items():
        for place in draw.sample(range(len(questions)), PER_KIND):
            row = questions[place]
            copied = row["question"] if kind == "question alone" else f"{row['question']} {row['answer']}"
            chunk, changed = draw.choice(chunks), change(copied)
            middle = chunk.find("\n", len(chunk) // 2)
            if changed:
                text = f"{chunk[:middle]}\n\n{changed}\n\n{chunk[middle:]}"
                yield Record(kind=kind, text=text, question=place)
    yield from (Record(kind="negative", text=chunk, question=-1) for chunk in chunks)


def seconds() -> float:
    """Processor seconds of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def by_decon(executable: Path, evals: Path, records: Sequence[Record], folder: Path) -> set[int]:
    """Records that decon reports, by place."""
    training, wanted, report = folder / "training", folder / "evals", folder / "report"
    for each in (training, wanted):
        each.mkdir()
    lines = [json.dumps({"id": str(place), "text": record.text}) for place, record in enumerate(records)]
    (training / "records.jsonl").write_text("\n".join(lines) + "\n")
    (wanted / evals.name).write_bytes(evals.read_bytes())
    named = {"--training-dir": training, "--evals-dir": wanted, "--report-output-dir": report}
    command = [str(executable), "detect", "--worker-threads", "1"]
    subprocess.run([*command, *(str(x) for pair in named.items() for x in pair)], check=True, capture_output=True)
    found = [json.loads(line) for file in report.rglob("*.jsonl") for line in file.read_text().splitlines()]
    return {int(row["training_line"]) for row in found}


def by_exact(evals: Path, records: Sequence[Record]) -> tuple[set[int], set[int]]:
    """Records that the exact audit matches, and those that it reports at all, by place."""
    pool = [PoolText(document_id=str(place), text=record.text) for place, record in enumerate(records)]
    (shard,) = shards_of([evals])
    found = Scanner(pool, OverlapSettings().resolved()).scan(shard).findings
    return {int(row.document_id) for row in found if row.matched}, {int(row.document_id) for row in found}


def main() -> None:
    """Print a Markdown table of the shares found."""
    executable, evals, pool = map(Path, sys.argv[1:])
    questions, chunks = questions_of(evals), [row.text for row in pool_texts(pool)]
    records = list(planted(questions, chunks))
    began = seconds()
    with tempfile.TemporaryDirectory() as place:
        plain = Path(place) / "questions.jsonl"
        plain.write_text("\n".join(json.dumps(row) for row in questions) + "\n")
        theirs = by_decon(executable, plain, records, Path(place))
        middle = seconds()
        matched, reported = by_exact(plain, records)
    ours, kinds = seconds() - middle, defaultdict(list)
    for place, record in enumerate(records):
        kinds[record.kind].append(place)
    print("| records | number | decon | exact, matched | exact, reported |\n|---|---|---|---|---|")
    for kind, places in kinds.items():
        shares = (sum(place in found for place in places) / len(places) for found in (theirs, matched, reported))
        print(f"| {kind} | {len(places)} | " + " | ".join(f"{share:.2f}" for share in shares) + " |")
    print(f"\n{len(questions)} questions; processor seconds: decon {middle - began:.1f}, exact {ours:.1f}")


if __name__ == "__main__":
    main()
