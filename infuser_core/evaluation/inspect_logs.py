"""Export results as logs of the framework Inspect: a JSON file per benchmark with every sample and its verdict."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from infuser_core.evaluation.evaluate import Key
from infuser_core.evaluation.plan import Sheet
from infuser_core.evaluation.saved import SavedAnswers
from infuser_core.prompts.templates import render_question
from infuser_core.schemas import BenchmarkResponse, BenchmarkVerdict, Question
from infuser_core.store.store import Store
from infuser_core.system import durable

JSON = dict[str, Any]
VERSION = 2
"""Version of Inspect's log format."""
SCORER = "infuser"
_VALUES = {"correct": "C", "wrong": "I", "no_answer": "N", "unverified": "N"}
"""Inspect's letters: correct, incorrect, no answer."""


def export_logs(
    folder: Path, store: Store, answers: SavedAnswers, verdicts: Sequence[BenchmarkVerdict], results: Mapping[str, Any]
) -> None:
    """Write an Inspect log `LABEL.json` per benchmark into the folder."""
    verdict_of = {(row.benchmark, row.question_id, row.sample_index): row for row in verdicts}
    created = datetime.now(UTC).isoformat(timespec="seconds")
    for sheet in answers.plan.sheets:
        rows = store.rows(answers.parts[sheet.label], "responses", BenchmarkResponse)
        samples = list(_samples(sheet, rows, answers.plan.by_key(), verdict_of, model=results["model"]))
        durable.write_json(folder / f"{sheet.label}.json", _log(sheet, samples, results, created))


def _log(sheet: Sheet, samples: list[JSON], results: Mapping[str, Any], created: str) -> JSON:
    facts = results["benchmarks"][sheet.label]
    metrics = {"accuracy": {"name": "accuracy", "value": facts["accuracy"]}}
    dataset = {"name": sheet.name, "samples": facts["questions"], "shuffled": False}
    return {
        "version": VERSION,
        "status": "success",
        "eval": {
            "created": created,
            "task": sheet.label,
            "task_id": sheet.label,
            "dataset": dataset,
            "model": results["model"],
            "model_generate_config": {"seed": results["seed"], **results["sampling"]},
            "config": {"limit": results["limit"], "epochs": sheet.samples},
            "metadata": {"preset": results["preset"], "notes": results["notes"]},
        },
        "results": {
            "total_samples": len(samples),
            "completed_samples": len(samples),
            "scores": [{"name": SCORER, "scorer": SCORER, "params": {"preset": results["preset"]}, "metrics": metrics}],
        },
        "stats": {"started_at": created, "completed_at": created},
        "samples": samples,
    }


def _samples(
    sheet: Sheet,
    rows: Sequence[BenchmarkResponse],
    questions: Mapping[Key, Question],
    verdict_of: Mapping[tuple[str, str, int], BenchmarkVerdict],
    *,
    model: str,
) -> Iterator[JSON]:
    for row in rows:
        question = questions[sheet.label, row.question_id]
        verdict = verdict_of[sheet.label, row.question_id, row.sample_index]
        prompt = render_question(question.text, question.choices)
        reply = {"role": "assistant", "content": row.response, "source": "generate", "model": model}
        usage = {"input_tokens": row.prompt_tokens, "output_tokens": row.response_tokens}
        usage["total_tokens"] = sum(usage.values())
        # Inspect's names for a natural end and for the length limit.
        reason = {"length": "max_tokens"}.get(row.finish_reason, "stop")
        yield {
            "id": row.question_id,
            "epoch": row.sample_index + 1,
            "input": prompt,
            "choices": question.choices or None,
            "target": question.answer,
            "messages": [{"role": "user", "content": prompt}, reply],
            "output": {"model": model, "choices": [{"message": reply, "stop_reason": reason}], "usage": usage},
            "scores": {
                SCORER: {
                    "value": _VALUES[verdict.verdict],
                    "answer": verdict.extracted,
                    "explanation": f"{verdict.verdict}: {verdict.reason}",
                    "metadata": {"preset": verdict.preset, "decided_by": verdict.decided_by},
                }
            },
            "metadata": {"domain": question.domain, "subdomain": question.subdomain, "finish": row.finish_reason},
        }
