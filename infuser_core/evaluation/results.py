"""Results of an evaluation: one JSON object, the same numbers as tables and in the leaderboard layout, exports."""

import csv
import io
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import stdev
from types import MappingProxyType
from typing import Any

from infuser_core import durable
from infuser_core.evaluation.plan import AskedQuestion, Plan
from infuser_core.evaluation.record import Record
from infuser_core.evaluation.saved import Answers, Scored
from infuser_core.evaluation.scores import SheetScore
from infuser_core.report.page import escape, grid
from infuser_core.schemas import BenchmarkResponse, BenchmarkScore, BenchmarkVerdict, QuestionScore
from infuser_core.statistics.averages import exactly, mean_of, printed
from infuser_core.store.store import Store
from infuser_core.store.tables import save_rows
from infuser_core.terminal import table

JSON = dict[str, Any]


def judged_by(name: str, verdicts: Sequence[BenchmarkVerdict]) -> JSON:
    """The judging model, and by benchmark label the responses whose verdict is its own: options of `results_of`."""
    return {"judge": name, "judged": Counter(row.benchmark for row in verdicts if row.decided_by == "judge")}


def results_of(
    record: Record,
    scores: Sequence[SheetScore],
    *,
    preset: str,
    too_long: str,
    judge: str = "",
    judged: Mapping[str, int] = MappingProxyType({}),
) -> JSON:
    """Everything that is known of the evaluation, without times or places: equal answers give equal text."""
    identity = record.identity
    notes = notes_of(scores, limit=identity["limit"], seed=identity["seed"]) + _phrased(identity)
    notes += [f"{label}: {count:,} verdicts are the judge's ({judge})" for label, count in judged.items()]
    shots = _shots(identity)
    return {
        "model": record.model,
        "model_digest": identity["model"],
        "preset": preset,
        "too_long": too_long,
        "judge": judge,
        "seed": identity["seed"],
        "sampling": identity["sampling"],
        "prompt_tokens": identity["prompt_tokens"],
        "limit": identity["limit"],
        "benchmarks": {
            each.sheet.label: _facts(each)
            | {"judged": judged.get(each.sheet.label, 0)}
            | shots.get(each.sheet.label, {})
            for each in scores
        },
        "categories": averages(scores),
        "notes": [*notes, *record.notes],
    }


def _phrased(identity: Mapping[str, Any]) -> list[str]:
    """Notes on worked examples, system turn and chat template, where they are not the prompt profile's."""
    notes = [
        f"{label}: {count} worked examples" for label, shots in _shots(identity).items() if (count := shots["shots"])
    ]
    if identity.get("system") is not None:
        notes.append(f"system turn: {identity['system'] or 'none'}")
    return notes + ([f"chat template: {identity['chat']}"] if identity.get("chat", "own") != "own" else [])


def _shots(identity: Mapping[str, Any]) -> dict[str, JSON]:
    """Worked examples by label; nothing where the prompt profile alone was used."""
    return {label: {"shots": facts["shots"]} for label, facts in identity["benchmarks"].items() if "shots" in facts}


def _facts(found: SheetScore) -> JSON:
    sheet, score = found.sheet, found.score
    return {
        "name": sheet.name,
        "title": sheet.title,
        "category": sheet.category,
        "questions": score.num_questions,
        "available": sheet.num_available,
        "expected": sheet.expected,
        "samples": score.num_samples,
        "accuracy": score.accuracy,
        "low": score.low,
        "high": score.high,
        "answered": score.answered,
        "unverified": score.unverified,
        "prompt_too_long": found.num_too_long,
        "mean_response_tokens": score.mean_response_tokens,
        "cut": found.cut,
        "max_tokens": sheet.max_tokens,
    }


def averages(scores: Sequence[SheetScore]) -> dict[str, float]:
    """Unweighted means of the benchmarks of each category and, last, of all; nothing for a single benchmark."""
    if len(scores) < 2:
        return {}
    groups: dict[str, list[float]] = {}
    for found in scores:
        groups.setdefault(found.sheet.category or "other", []).append(found.score.accuracy)
    means = {name: float(mean_of(values)) for name, values in groups.items()}
    return means | {"overall": float(mean_of([found.score.accuracy for found in scores]))}


def notes_of(scores: Sequence[SheetScore], *, limit: int | None, seed: int) -> list[str]:
    """Caveats before numbers are compared."""
    notes = []
    for found in scores:
        sheet = found.sheet
        if limit is not None and limit < sheet.num_available:
            part = f"{limit:,} of {sheet.num_available:,} questions"
            notes.append(f"{sheet.label}: limited to {part}, stratified by domain, seed {seed}")
        if found.num_too_long:
            notes.append(f"{sheet.label}: {found.num_too_long:,} questions did not fit the prompt limit")
        if found.score.unverified:
            notes.append(
                f"{sheet.label}: {found.score.unverified:,} responses could not be verified; they count as wrong"
            )
    return notes


def rows_of(results: JSON) -> list[dict[str, str]]:
    """The table for people: percentages with two decimals, averages last."""
    rows = [
        {
            "benchmark": label,
            **{name: str(facts[name]) for name in ("category", "questions", "samples")},
            "accuracy": percent(facts["accuracy"]),
            "95% interval": f"{percent(facts['low'])} - {percent(facts['high'])}",
            "answered": percent(facts["answered"], 1),
            "unverified": str(facts["unverified"]),
            "too long": str(facts["prompt_too_long"]),
            "tokens": printed(facts["mean_response_tokens"], 1),
            "cut": percent(facts["cut"], 1),
        }
        for label, facts in results["benchmarks"].items()
    ]
    means = shown_means(results["categories"]).items()
    blank = dict.fromkeys(rows[0], "") if rows else {}
    return [*rows, *({**blank, "benchmark": f"mean: {name}", "accuracy": percent(value)} for name, value in means)]


def shown_means(means: Mapping[str, float]) -> dict[str, float]:
    """The averages that a table shows: with one category its mean is the overall one."""
    return dict(means) if len(means) > 2 else dict(list(means.items())[-1:])


def percent(share: float, digits: int = 2) -> str:
    """A share as a percentage, ties away from zero."""
    return printed(exactly(share) * 100, digits)


def terminal(results: JSON) -> str:
    """The results as lines for a terminal."""
    head = f"model {results['model']}, preset {results['preset']}, seed {results['seed']}; percentages"
    return "\n".join([head, table(rows_of(results)), *(f"note: {note}" for note in results["notes"])])


def markdown(results: JSON) -> str:
    """The results as a Markdown page."""
    rows = rows_of(results)
    lines = grid(list(rows[0]), [[escape(cell) for cell in row.values()] for row in rows], text_columns=2)
    sampling = ", ".join(f"{name} {value}" for name, value in results["sampling"].items())
    return "\n".join(
        [
            f"# Evaluation of {escape(results['model'])}",
            "",
            f"Preset {results['preset']}, seed {results['seed']}, {sampling}. Percentages; intervals are Wilson's over "
            "questions. Unanswered and unverified responses count as wrong.",
            "",
            *lines,
            "",
            *(f"- {escape(note)}" for note in results["notes"]),
        ]
    ).rstrip() + "\n"  # fmt: skip


def as_csv(results: JSON) -> str:
    """One line per benchmark with full precision."""
    names = ["benchmark", *next(iter(results["benchmarks"].values()))]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*names, "preset"])
    for label, facts in results["benchmarks"].items():
        writer.writerow([label, *(facts[name] for name in names[1:]), results["preset"]])
    return out.getvalue()


def leaderboard(results: JSON, plan: Plan, questions: Sequence[QuestionScore]) -> JSON:
    """One JSON object per run in the layout that leaderboards import: results by task, configuration, sample counts."""
    tasks = {}
    for sheet in plan.sheets:
        shares = [q.num_correct / q.num_samples for q in questions if q.benchmark == sheet.label and q.num_samples]
        tasks[sheet.label] = {
            "alias": sheet.title,
            "acc,none": results["benchmarks"][sheet.label]["accuracy"],
            "acc_stderr,none": stdev(shares) / math.sqrt(len(shares)) if len(shares) > 1 else 0.0,
        }
    return {
        "results": tasks,
        "model_name": results["model"],
        "config": {
            "model": results["model"],
            "model_sha": results["model_digest"],
            "random_seed": results["seed"],
            "limit": results["limit"],
            "gen_kwargs": results["sampling"],
            "filter": results["preset"],
        },
        "n-shot": {sheet.label: results["benchmarks"][sheet.label].get("shots", 0) for sheet in plan.sheets},
        # lm-eval's own readers need these.
        "versions": {sheet.label: results["preset"] for sheet in plan.sheets},
        "higher_is_better": {sheet.label: {"acc": True} for sheet in plan.sheets},
        "n-samples": {
            sheet.label: {
                "original": sheet.num_available,
                "effective": results["benchmarks"][sheet.label]["questions"],
            }
            for sheet in plan.sheets
        },
        "repeats": {sheet.label: results["benchmarks"][sheet.label]["samples"] for sheet in plan.sheets},
    }


def export(
    folder: Path,
    record: Record,
    results: JSON,
    answers: Answers,
    scores: Sequence[SheetScore],
    questions: Sequence[QuestionScore],
) -> None:
    """Write every table of an evaluation into a folder."""
    record.write(folder)
    save_rows(folder / "questions.parquet", answers.plan.labelled(), AskedQuestion)
    save_rows(folder / "results.parquet", [row.score for row in scores], BenchmarkScore)
    save_rows(folder / "question_scores.parquet", questions, QuestionScore)
    durable.write_json(folder / "leaderboard.json", leaderboard(results, answers.plan, questions))
    durable.write(folder / "results.csv", as_csv(results))
    durable.write(folder / "results.md", markdown(results))
    # Last: whoever sees it may take the other files for complete.
    durable.write_json(folder / "results.json", results)


def export_answers(folder: Path, store: Store, answers: Answers) -> None:
    """Write the responses beside the tables, so that they can be scored elsewhere."""
    rows = [
        replace(row, benchmark=label)
        for label, ref in answers.parts.items()
        for row in store.rows(ref, "responses", BenchmarkResponse)
    ]
    save_rows(folder / "responses.parquet", rows, BenchmarkResponse)


def export_verdicts(folder: Path, scored: Sequence[Scored], *, judged: bool = False) -> None:
    """One parquet file per preset; where a judge had a hand in the verdicts, the name says so."""
    for one in scored:
        save_rows(folder / f"{one.preset}{'+judge' if judged else ''}.parquet", one.verdicts, BenchmarkVerdict)
