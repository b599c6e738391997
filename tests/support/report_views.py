"""The views that reports query, in memory: empty, or with the rows of a whole run."""

import math
from typing import Any

import duckdb

from infuser_core.results.report import outline
from infuser_core.results.report.content import Query, Report
from infuser_core.results.report.queries import ReportRun
from infuser_core.store import views

LINEAGE = "run VARCHAR, iteration BIGINT, phase VARCHAR, artifact_key VARCHAR"
VIEWS = {
    "sources": "source_id VARCHAR, title VARCHAR, status VARCHAR, reason VARCHAR",
    "downloads": "source_id VARCHAR",
    "pages": "source_id VARCHAR, status VARCHAR, reason VARCHAR",
    "documents": "document_id VARCHAR, source_id VARCHAR, domain VARCHAR, num_tokens BIGINT",
    "judgements": "document_id VARCHAR, keep BOOLEAN, reason VARCHAR, decided_by VARCHAR",
    "overlaps": "document_id VARCHAR, shard VARCHAR, jaccard DOUBLE, longest_run BIGINT, matched BOOLEAN",
    "questions": "question_id VARCHAR, text VARCHAR, choices VARCHAR[], answer VARCHAR, subdomain VARCHAR, "
    "document_id VARCHAR, reasoning VARCHAR, rollout_id VARCHAR, domain VARCHAR",
    "key_accuracies": "told_by VARCHAR, accuracy DOUBLE, low DOUBLE, high DOUBLE",
    "question_labels": "question_id VARCHAR, topic VARCHAR, key VARCHAR",
    "rollouts": "rollout_id VARCHAR, group_id VARCHAR, sample_index BIGINT, role VARCHAR, token_ids BIGINT[], "
    "text VARCHAR, finish_reason VARCHAR, verdict VARCHAR, reward DOUBLE, malformed_reason VARCHAR",
    "scores": "question_id VARCHAR, status VARCHAR, score DOUBLE, reference_norm DOUBLE, solver_accuracy DOUBLE",
    "allocations": "arm VARCHAR, share DOUBLE, count BIGINT, drawn BIGINT, documents BIGINT, pulls BIGINT, "
    "mean DOUBLE, bound DOUBLE",
    "generator_scores": "rollout_id VARCHAR, document_id VARCHAR, reward DOUBLE, advantage DOUBLE",
    "question_scores": "benchmark VARCHAR, question_id VARCHAR, domain VARCHAR, num_samples BIGINT, num_correct BIGINT",
    "reference_questions": "question_id VARCHAR, text VARCHAR, choices VARCHAR[]",
    "asked_questions": "question_id VARCHAR, text VARCHAR, choices VARCHAR[]",
    "artifact_inputs": "input VARCHAR, input_key VARCHAR",
    "updates": "role VARCHAR, step BIGINT, gradient_norm DOUBLE, clip_fraction DOUBLE, mean_ratio DOUBLE, "
    "mean_tis DOUBLE, sampler_kl DOUBLE, policy_kl DOUBLE, entropy DOUBLE, skipped BOOLEAN, "
    "cut BIGINT, num_responses BIGINT, flat_share DOUBLE, below_epsilon DOUBLE",
    "step_costs": "role VARCHAR, work VARCHAR, computed_tokens BIGINT, seconds DOUBLE, flops DOUBLE, mfu DOUBLE, "
    "idle_share DOUBLE, peak_memory DOUBLE, device VARCHAR",
    "not_finite": "group_id VARCHAR, quantity VARCHAR, value DOUBLE, tensor VARCHAR",
    "benchmark_scores": "benchmark VARCHAR, num_questions BIGINT, num_samples BIGINT, accuracy DOUBLE, low DOUBLE, "
    "high DOUBLE, answered DOUBLE, unverified BIGINT, mean_response_tokens DOUBLE",
    "benchmark_answers": "question_id VARCHAR, finish_reason VARCHAR, response_tokens BIGINT, response VARCHAR",
    "topics": "domain VARCHAR",
    "run_artifacts": "digest VARCHAR, rows BIGINT, seconds DOUBLE, state VARCHAR",
    "artifacts": "seconds DOUBLE",
    "candidates": "at_iteration BIGINT, accuracy DOUBLE, behind DOUBLE, behind_error DOUBLE, selected BOOLEAN",
    "leaks": "benchmark VARCHAR, num_questions BIGINT, num_seen BIGINT, share DOUBLE",
    "selections": "selected_iteration BIGINT, accuracy DOUBLE",
    "audit_summary": "name VARCHAR, value DOUBLE",
}


def database(rows: dict[str, list[tuple[object, ...]]]) -> Query:
    connection = duckdb.connect(":memory:")
    for view, columns in VIEWS.items():
        connection.execute(f'CREATE TABLE "{view}" ({LINEAGE}, {columns})')
        for row in rows.get(view, []):
            connection.execute(f'INSERT INTO "{view}" VALUES ({", ".join("?" for _ in row)})', row)
    connection.execute(f"CREATE VIEW question_gauges AS {views.VIEWS['question_gauges']}")

    def query(sql: str) -> list[dict[str, object]]:
        result = connection.execute(sql)
        names = [column[0] for column in result.description or []]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]

    return query


def whole_run(text: str = "Why?") -> dict[str, list[tuple[object, ...]]]:
    rows: dict[str, list[tuple[object, ...]]] = {name: [] for name in VIEWS}
    corpus = ("r", -1, "chunk", "k")
    rows["sources"] = [(*corpus, "s1", "A", "admitted", ""), (*corpus, "s2", "B", "rejected", "no free licence")]
    rows["pages"] = [(*corpus, "s1", "converted", "")]
    rows["documents"] = [(*corpus, "d1", "s1", "Physics", 100)]
    rows["judgements"] = [(*corpus, "d1", True, "teaches", "judge"), (*corpus, "d2", False, text, "judge")]
    rows["judgements"] += [(*corpus, f"x{n}", False, f"reason {n:02}", "size") for n in range(20)]
    rows["overlaps"] = [(*corpus, "d1", "dev.jsonl", 0.9, 60, n < 3) for n in range(4)]
    rows["audit_summary"] = [(*corpus, "pairs_compared", 1200.0), (*corpus, "threshold", 0.125)]
    for run, gain in (("r", 0.1), ("other", 0.05)):
        rows["benchmark_scores"] += [
            (run, n, "validate", "k", "validation", 50, 1, 0.3 + gain * n, 0.2, 0.7, 1.0, 0, 8.0 + n) for n in range(3)
        ]
    rows["benchmark_scores"] += [
        ("r", n, "evaluate", "k", "gpqa_diamond", 198, 5, 0.25 + 0.1 * n, 0.2, 0.5, 0.9, 3, 8.0) for n in (0, 2)
    ]
    rows["selections"] = [("r", -1, "select", "k", 2, 0.5)]
    rows["candidates"] = [("r", -1, "select", "k", n, 0.3 + 0.1 * n, 0.2 - 0.1 * n, 0.03, n == 2) for n in range(3)]
    rows["leaks"] = [("r", -1, "leakage", "k", "gpqa_diamond", 198, 198, 1.0)]
    for n in (1, 2):
        rows["allocations"] += [
            ("r", n, "allocate", "k", arm, 0.5, 2, 2 * n, 9, n - 1, mean, mean)
            for arm, mean in (("Physics", 0.25), (text, None))
        ]
        rows["questions"] += [
            ("r", n, "generate_questions", "k", f"q{n}{m}", text, ["a", text], "A", text if m else "", "d1", text,
             "d1/0", "Physics") for m in range(5)
        ]  # fmt: skip
        rows["scores"] += [
            ("r", n, "score_influence", "k", f"q{n}{m}", "scored", 0.01 * m, 1.5, 0.5) if n == 1
            else ("r", n, "score_influence", "k", f"q{n}{m}", "no_dev_signal", 0.0, 0.0, 0.5) for m in range(5)
        ]  # fmt: skip
        rows["rollouts"] += [
            ("r", n, "rollout_questions", "k", f"q{n}{m}/0", f"q{n}{m}", 0, "solver", [1, 2, 3], text, "stop",
             "correct", 1.0, "") for m in range(5)
        ]  # fmt: skip
        rows["rollouts"] += [
            ("r", n, "generate_questions", "k", f"d1/{m}", "d1", m, "generator", [1] * 9, text, "length",
             "valid" if m else "invalid", 0.0, "" if m else "truncated_json") for m in range(4)
        ]  # fmt: skip
        rows["updates"] += [
            ("r", n, "update_solver", "k", "solver", n, 0.5, 0.01, 1.0, 1.0, 1e-6, 1e-4, 0.4, False, 1, 8, 0.5, 0.25)
        ]
        rows["step_costs"] += [
            ("r", n, "update_solver", "k", "solver", "step", 100, 2.0, 5e9, None, 0.25, 1.5, "cpu"),
            ("r", n, "update_solver", "k", "solver", "step", 300, 2.0, 7e9, None, 0.75, 2.5, "cpu"),
        ]
        rows["not_finite"] += [("r", n, "score_influence", "k", f"q{n}9", "gradient", math.nan, "lm_head.weight")]
        rows["run_artifacts"] += [
            ("r", n, "update_solver", "k", "x", 1, 2.5, "ran"),
            ("r", n, "p", "k", "x", 1, 1.0, "ran"),
        ]
    rows["run_artifacts"] += [("r", -1, "chunk", "k", "x", 1, 4.0, "cached")]
    return rows


def reported(query: Query, *, run: str = "r", **options: Any) -> Report:
    """The details of one run over these views, as a report."""
    details = outline.details(query, ReportRun(run=run, variant=run, seed=0, leaves={}), **options)
    return Report(title=f"Run {run}", sections=details)
