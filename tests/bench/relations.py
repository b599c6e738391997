"""Question files from a public collection of relations (https://github.com/evandez/relations, MIT): dev, held-out, pool.

A clone of it is the first argument, the folder to write the second. The target is the native language of persons; the
pool holds other persons and, as many again, rows of three other relations.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

TARGET = "factual/person_native_language"
OTHERS = {"factual/person_plays_pro_sport": 16, "factual/landmark_on_continent": 8, "linguistic/adj_antonym": 8}
DEV, HELD_OUT, POOL = 12, 20, 32
EXAMPLES = ("Mount Fuji", "Pelé", "Goethe", "Johann Wolfgang von Goethe")
"""Subjects of the prompt's worked examples."""


def questions(clone: Path, relation: str, seed: str) -> Iterator[dict[str, str]]:
    """Rows of a relation in a seeded order, each once."""
    found = json.loads((clone / "data" / f"{relation}.json").read_text(encoding="utf-8"))
    rows = {row["subject"]: row["object"] for row in found["samples"] if row["subject"] not in EXAMPLES}
    for subject in Random(relation + seed).sample(sorted(rows), len(rows)):
        text = found["prompt_templates"][0].format(subject)
        name = f"{relation.split('/')[1]}: {subject}"
        yield {"question_id": name, "question_text": text, "ground_truth": rows[subject], "verifier": "exact"}


def draw(clone: Path, seed: str = "") -> dict[str, list[dict[str, str]]]:
    """Questions by part."""
    target = list(questions(clone, TARGET, seed))
    parts = {"dev": target[:DEV], "held_out": target[DEV:][:HELD_OUT], "pool": target[DEV + HELD_OUT :][:POOL]}
    for relation, count in OTHERS.items():
        parts["pool"] += list(questions(clone, relation, seed))[:count]
    return parts


def main() -> None:
    """Write the three files."""
    clone, out = map(Path, sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    for name, rows in draw(clone).items():
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (out / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
