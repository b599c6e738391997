"""Tables of an evaluation's results: for a terminal, Markdown, CSV, the leaderboard layout, and exported files."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import stdev
from typing import Any

from infuser_core.evaluation.plan import AskedQuestion, ExamPlan
from infuser_core.evaluation.record import EvaluationRecord
from infuser_core.evaluation.saved import SavedAnswers, ScoredAnswers
from infuser_core.evaluation.scores import SheetScore
from infuser_core.evaluation.statistics.averages import as_fraction, format_decimal
from infuser_core.results.report.page import escape, grid
from infuser_core.schemas import BenchmarkResponse, BenchmarkScore, BenchmarkVerdict, QuestionScore
from infuser_core.store.store import Store
from infuser_core.store.tables import save_rows
from infuser_core.system import durable
from infuser_core.terminal import format_rows

JSON = dict[str, Any]
SHOWN = 12
"""Kinds of verdict changes that a terminal shows; JSON has all."""


def result_rows(results: JSON) -> list[dict[str, str]]:
    """Rows of the result table, percentages with two decimals, averages last."""
    rows = [
        {
            "benchmark": label,
            **{name: str(facts[name]) for name in ("category", "questions", "samples")},
            "accuracy": percent(facts["accuracy"]),
            "95% interval": f"{percent(facts['low'])} - {percent(facts['high'])}",
            "answered": percent(facts["answered"], 1),
            "unverified": str(facts["unverified"]),
            "too long": str(facts["prompt_too_long"]),
            "tokens": format_decimal(facts["mean_response_tokens"], 1),
            "cut": percent(facts["cut"], 1),
        }
        for label, facts in results["benchmarks"].items()
    ]
    means = means_to_show(results["categories"]).items()
    blank = dict.fromkeys(rows[0], "") if rows else {}
    return [*rows, *({**blank, "benchmark": f"mean: {name}", "accuracy": percent(value)} for name, value in means)]


def means_to_show(means: Mapping[str, float]) -> dict[str, float]:
    """Averages to show: only the overall one if there is a single category."""
    return dict(means) if len(means) > 2 else dict(list(means.items())[-1:])


def percent(share: float, digits: int = 2) -> str:
    """Format a share as a percentage; ties are rounded away from zero."""
    return format_decimal(as_fraction(share) * 100, digits)


def results_text(results: JSON) -> str:
    """The results as text for a terminal."""
    head = f"model {results['model']}, preset {results['preset']}, seed {results['seed']}; percentages"
    return "\n".join([head, format_rows(result_rows(results)), *(f"note: {note}" for note in results["notes"])])


def probe_text(results: JSON) -> str:
    """Results of a contamination probe as text for a terminal, one line per benchmark and share."""
    rows = [
        {
            "benchmark": label,
            "shown": percent(row["share"], 0),
            "questions": row["questions"],
            **{name: percent(row[name], 1) for name in ("completed", "control")},
            "difference": f"{100 * row['difference']:+.1f}",
            "95% interval": f"{100 * row['low']:+.1f} to {100 * row['high']:+.1f}",
            "equal": percent(row["match"], 1),
            "equal, control": percent(row["control_match"], 1),
        }
        for label, facts in results["benchmarks"].items()
        for row in facts["shares"]
    ]
    head = f"model {results['model']}; percentages; differences are points, paired by question"
    lines = [facts["said"] for facts in results["benchmarks"].values()]
    lines += [
        f"{label}: {left_out:,} of {facts['asked']:,} questions are left out: without a control, or too long"
        for label, facts in results["benchmarks"].items()
        if (left_out := facts["asked"] - facts["shares"][0]["questions"])
    ]
    return "\n".join([head, format_rows(rows), *lines])


def results_markdown(results: JSON) -> str:
    """The results as a Markdown page."""
    rows = result_rows(results)
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


def results_csv(results: JSON) -> str:
    """The results as CSV, one line per benchmark, with full precision."""
    names = ["benchmark", *next(iter(results["benchmarks"].values()))]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*names, "preset"])
    for label, facts in results["benchmarks"].items():
        writer.writerow([label, *(facts[name] for name in names[1:]), results["preset"]])
    return out.getvalue()


def comparison_text(comparison: JSON) -> str:
    """The comparison of grading presets as text for a terminal."""
    rows = [
        {
            **{name: row[name] for name in ("benchmark", "preset")},
            "accuracy": percent(row["accuracy"]),
            "95% interval": f"{percent(row['low'])} - {percent(row['high'])}",
            "answered": percent(row["answered"], 1),
            **{name: row[name] for name in ("unverified", "responses", "differing")},
        }
        for row in comparison["scores"]
    ]
    for preset, means in comparison["averages"].items():
        blank = dict.fromkeys(rows[0], "") | {"preset": preset}
        rows += [
            blank | {"benchmark": f"mean: {name}", "accuracy": percent(value)}
            for name, value in means_to_show(means).items()
        ]
    lines = [f"{comparison['answers']}: {comparison['responses']:,} responses; percentages", format_rows(rows)]
    lines.append(f"{comparison['changed']:,} responses change their verdict between presets")
    kinds = [
        {
            "benchmark": row["benchmark"],
            "from": row["before"],
            "to": row["after"],
            **{f"{what}s": f"{row[f'before_{what}']} -> {row[f'after_{what}']}" for what in ("verdict", "reason")},
            "responses": row["rows"],
        }
        for row in comparison["changes"]
    ]
    lines += [format_rows(kinds[:SHOWN], width=120)] if kinds else []
    hidden = sum(row["responses"] for row in kinds[SHOWN:])
    return "\n".join([*lines, f"and {hidden:,} more in {len(kinds) - SHOWN} kinds (--json)"] if hidden else lines)


def curves_text(curves: JSON) -> str:
    """The pass@k curves as text for a terminal, one line per point."""
    rows = [
        {
            "benchmark": label,
            "k": point["k"],
            "pass@k": percent(point["value"]),
            "95% interval": f"{percent(point['low'])} - {percent(point['high'])}",
            "questions": point["questions"],
        }
        for label, curve in curves["curves"].items()
        for point in curve
    ]
    head = f"{curves['answers']}, preset {curves['preset']}; percentages, 95% intervals over resampled questions"
    return f"{head}\n{format_rows(rows)}"


def leaderboard(results: JSON, plan: ExamPlan, questions: Sequence[QuestionScore]) -> JSON:
    """The results in the JSON layout that leaderboards import: results by task, configuration, sample counts."""
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
        # lm-eval's readers need these.
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


def export_tables(
    folder: Path,
    record: EvaluationRecord,
    results: JSON,
    answers: SavedAnswers,
    scores: Sequence[SheetScore],
    questions: Sequence[QuestionScore],
) -> None:
    """Write the tables of an evaluation into a folder, as parquet, JSON, CSV and Markdown."""
    record.write(folder)
    save_rows(folder / "questions.parquet", answers.plan.question_rows(), AskedQuestion)
    save_rows(folder / "results.parquet", [row.score for row in scores], BenchmarkScore)
    save_rows(folder / "question_scores.parquet", questions, QuestionScore)
    durable.write_json(folder / "leaderboard.json", leaderboard(results, answers.plan, questions))
    durable.write(folder / "results.csv", results_csv(results))
    durable.write(folder / "results.md", results_markdown(results))
    # Written last: once it exists, all other files are complete.
    durable.write_json(folder / "results.json", results)


def export_answers(folder: Path, store: Store, answers: SavedAnswers) -> None:
    """Write the responses as one parquet file, so that they can be scored elsewhere."""
    rows = [
        replace(row, benchmark=label)
        for label, ref in answers.parts.items()
        for row in store.rows(ref, "responses", BenchmarkResponse)
    ]
    save_rows(folder / "responses.parquet", rows, BenchmarkResponse)


def export_verdicts(folder: Path, scored: Sequence[ScoredAnswers], *, has_judge: bool = False) -> None:
    """Write the verdicts as one parquet file per preset, named `...+judge` if a judge broke ties."""
    for one in scored:
        save_rows(folder / f"{one.preset}{'+judge' if has_judge else ''}.parquet", one.verdicts, BenchmarkVerdict)
