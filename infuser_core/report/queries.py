"""SQL of the reports: the runs of a report, their settings, and one query per table."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from infuser_core.report.content import Query, Section

Row = dict[str, object]

PHASES = (
    "taxonomy", "search", "choose", "download", "sources", "given_pool", "convert", "structure", "chunk", "judge",
    "audit", "training_pool", "anchor",
    "rollout_dev", "dev_gradient", "allocate", "generate_questions", "rollout_questions", "score_influence",
    "update_generator", "update_solver", "respond", "validate", "select", "leakage", "evaluate",
)  # fmt: skip


def literal(value: str) -> str:
    """A string as an SQL literal."""
    return "'" + value.replace("'", "''") + "'"


def listed(values: Sequence[str]) -> str:
    """Strings as an SQL list for `in`; one that matches nothing where there are none."""
    return f"({', '.join(map(literal, values)) or 'null'})"


def selected_iteration(query: Query, run: str) -> int | None:
    """Iteration that the selection chose; None before the run has selected."""
    rows = query(f"SELECT selected_iteration FROM selections WHERE run = {literal(run)} ORDER BY ALL LIMIT 1")
    value = rows[0]["selected_iteration"] if rows else None
    return int(value) if isinstance(value, int) else None


def evaluations(query: Query, run: str) -> list[Row]:
    """Final benchmark scores of the anchor (iteration 0) and of the selected checkpoint."""
    return query(f"""
        SELECT benchmark, iteration, num_questions, num_samples, accuracy, low, high, answered, unverified
        FROM benchmark_scores WHERE run = {literal(run)} AND phase = 'evaluate' ORDER BY ALL""")


def leakage(query: Query, run: str) -> list[Row]:
    """Benchmark questions that the validation set has seen."""
    return query(f"""
        SELECT benchmark, num_questions, num_seen, share FROM leaks WHERE run = {literal(run)} ORDER BY ALL""")


def candidates(query: Query, run: str) -> list[Row]:
    """Validated checkpoints with what they are behind the best."""
    return query(f"""
        SELECT at_iteration, accuracy, behind, behind_error, selected
        FROM candidates WHERE run = {literal(run)} ORDER BY at_iteration""")


def validations(query: Query, run: str) -> list[Row]:
    """The validation curve; iteration 0 is the anchor."""
    return query(f"""
        SELECT iteration, avg(accuracy) AS accuracy, avg(low) AS low, avg(high) AS high
        FROM benchmark_scores WHERE run = {literal(run)} AND phase = 'validate'
        GROUP BY iteration ORDER BY iteration""")


def influence(query: Query, run: str) -> list[Row]:
    """Influence per iteration: mean over scored questions, shares, and whether there was a dev gradient."""
    return query(f"""
        SELECT iteration, count(*) AS questions,
            avg(score) FILTER (WHERE status = 'scored' AND isfinite(score)) AS score,
            avg((status = 'scored')::INT) AS scored,
            avg((status = 'zero_variance')::INT) AS zero_variance,
            avg((status = 'no_dev_signal')::INT) AS no_dev_signal,
            avg((status = 'not_probed')::INT) AS not_probed,
            max(reference_norm) FILTER (WHERE isfinite(reference_norm)) AS reference_norm,
            avg(solver_accuracy) FILTER (WHERE isfinite(solver_accuracy)) AS solver_accuracy
        FROM scores WHERE run = {literal(run)} GROUP BY iteration ORDER BY iteration""")


def validity(query: Query, run: str) -> list[Row]:
    """Share of generator rollouts that are questions, per iteration."""
    return query(f"""
        SELECT iteration, count(*) AS rollouts, avg((malformed_reason = '')::INT) AS valid
        FROM rollouts WHERE run = {literal(run)} AND role = 'generator' GROUP BY iteration ORDER BY iteration""")


def malformed(query: Query, run: str) -> list[Row]:
    """Why generator rollouts are no questions, most frequent reason first."""
    return query(f"""
        SELECT malformed_reason AS reason, count(*) AS rollouts, min(iteration) AS first, max(iteration) AS last
        FROM rollouts WHERE run = {literal(run)} AND role = 'generator' AND malformed_reason <> ''
        GROUP BY malformed_reason ORDER BY rollouts DESC, reason""")


def topics(query: Query, run: str) -> list[Row]:
    """Generated questions per iteration and topic: an oracle's label, else the question's own subdomain."""
    return query(f"""
        SELECT q.iteration, coalesce(l.topic, nullif(trim(q.subdomain), ''), 'unknown') AS topic, count(*) AS questions
        FROM questions q LEFT JOIN question_labels l USING (run, iteration, question_id)
        WHERE q.run = {literal(run)} AND q.rollout_id <> '' GROUP BY ALL ORDER BY iteration, topic""")


def key_correctness(query: Query, run: str) -> list[Row]:
    """Share of generated answer keys that are right, where an oracle could tell."""
    return query(f"""
        SELECT iteration, count(*) AS checked, avg((key = 'sound')::INT) AS correct
        FROM question_labels WHERE run = {literal(run)} AND key <> 'unknown'
        GROUP BY iteration ORDER BY iteration""")


def lengths(query: Query, run: str) -> list[Row]:
    """Response length, share cut off, and reward per iteration and phase."""
    return query(f"""
        SELECT iteration, phase, count(*) AS rollouts, avg(len(token_ids)) AS tokens,
            avg((finish_reason = 'length')::INT) AS cut, avg((verdict = 'no_answer')::INT) AS no_answer,
            avg((verdict = 'unverified')::INT) AS unverified,
            avg(reward) FILTER (WHERE role = 'solver') AS reward
        FROM rollouts WHERE run = {literal(run)} GROUP BY ALL ORDER BY iteration, phase""")


def updates(query: Query, run: str) -> list[Row]:
    """AdamW steps per role and iteration."""
    return query(f"""
        SELECT role, iteration, count(*) AS steps, avg(gradient_norm) AS gradient_norm, avg(clip_fraction) AS clipped,
            avg(mean_ratio) AS ratio, avg(mean_tis) AS tis, sum(skipped::INT)::BIGINT AS skipped
        FROM updates WHERE run = {literal(run)} GROUP BY ALL ORDER BY role, iteration""")


def seconds(query: Query, run: str, *, per_iteration: bool) -> list[Row]:
    """Time per phase (and iteration), in the order in which a run goes through its phases."""
    iteration = "iteration, " if per_iteration else ""
    order = ", ".join(literal(phase) for phase in PHASES)
    return query(f"""
        WITH spent AS (
            SELECT r.run, r.iteration, r.phase, r.state, coalesce(m.seconds, r.seconds) AS seconds
            FROM run_artifacts r LEFT JOIN artifacts m ON m.artifact_key = r.artifact_key)
        SELECT {iteration}phase, count(*) AS stages, count(*) FILTER (WHERE state = 'cached') AS cached,
            sum(seconds) AS seconds, coalesce(sum(seconds) FILTER (WHERE state = 'cached'), 0) AS reused
        FROM spent WHERE run = {literal(run)} GROUP BY {iteration}phase
        ORDER BY {iteration}coalesce(list_position([{order}], phase), 999), phase""")


def funnel(query: Query, run: str) -> list[Row]:
    """What each corpus stage kept and dropped, and why; the most frequent reasons first within a stage."""
    name = literal(run)
    return query(f"""
        SELECT stage, kept, reason, items FROM (
            SELECT 1 AS n, 'textbooks offered' AS stage, status = 'admitted' AS kept, reason, count(*) AS items
            FROM sources WHERE run = {name} GROUP BY status, reason
            UNION ALL
            SELECT 2, 'textbooks converted', status = 'converted', reason, count(*)
            FROM pages WHERE run = {name} GROUP BY status, reason
            UNION ALL
            SELECT 3, 'chunks judged by ' || decided_by, keep, CASE WHEN keep THEN '' ELSE reason END, count(*)
            FROM judgements WHERE run = {name} GROUP BY ALL
        ) ORDER BY n, stage, kept DESC, items DESC, reason""")


def pool(query: Query, run: str) -> list[Row]:
    """The document pool by domain."""
    return query(f"""
        SELECT domain, count(*) AS chunks, count(DISTINCT source_id) AS sources, sum(num_tokens)::BIGINT AS tokens
        FROM documents WHERE run = {literal(run)} AND phase <> 'training_pool' GROUP BY domain ORDER BY domain""")


def overlaps(query: Query, run: str) -> list[Row]:
    """The overlap audit: real pairs, and planted controls by kind (their matched share is the audit's recall)."""
    # OVERLAPS is an SQL keyword: the view's name needs its quotes.
    return query(f"""
        SELECT CASE WHEN reference_id LIKE 'control:%' THEN 'planted: ' || split_part(reference_id, ':', 2)
            ELSE 'pool against questions' END AS pairs,
            count(*) AS compared, sum(matched::INT)::BIGINT AS matched, max(jaccard) AS jaccard,
            max(longest_run) AS longest_run
        FROM "overlaps" WHERE run = {literal(run)} GROUP BY 1 ORDER BY 1""")


def samples(query: Query, run: str, *, per_iteration: int = 3) -> list[Row]:
    """Questions of the first and the last iteration, drawn by a hash of their id, not by how good they look."""
    name = literal(run)
    return query(f"""
        WITH mine AS (SELECT * FROM questions WHERE run = {name}),
        drawn AS (
            SELECT * FROM mine
            WHERE iteration IN ((SELECT min(iteration) FROM mine), (SELECT max(iteration) FROM mine))
            QUALIFY row_number() OVER (PARTITION BY iteration ORDER BY md5(question_id), question_id) <= {per_iteration}
        ), answered AS (
            SELECT iteration, group_id, min_by(text, sample_index) AS response, min_by(verdict, sample_index) AS verdict
            FROM rollouts WHERE run = {name} AND role = 'solver' GROUP BY iteration, group_id
        )
        SELECT q.iteration, q.question_id, q.document_id, q.text, q.choices, q.answer, q.reasoning,
            s.status, s.score, s.solver_accuracy, a.response, a.verdict
        FROM drawn q
        LEFT JOIN scores s ON s.run = {name} AND s.iteration = q.iteration AND s.question_id = q.question_id
        LEFT JOIN answered a ON a.iteration = q.iteration AND a.group_id = q.question_id
        ORDER BY q.iteration, md5(q.question_id), q.question_id""")


NAMING = ("seed", "name", "variant")
"""Leaves that name a run and set nothing but its chance."""
ANCHOR = "anchor"
LONGEST = 24
"""Characters of a setting's value inside a label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """One run of a report."""

    run: str
    """Name."""
    variant: str
    """What it has in common with its other seeds."""
    seed: int
    """Run seed."""
    leaves: Mapping[str, Any]
    """Settings by dotted name."""
    anchor: str = ""
    """Model that it started from."""


def choose(configs: Mapping[str, Mapping[str, Any]]) -> tuple[Chosen, ...]:
    """The runs by name; runs of one variant whose settings differ become variants of their own, named by these."""
    found = tuple(_one(name, config) for name, config in configs.items())
    return tuple(replace(one, variant=_told_apart(one, found)) for one in found)


def _one(name: str, config: Mapping[str, Any]) -> Chosen:
    leaves = flat(config)
    variant = "-".join(part for part in (str(config.get("name", "")), str(config.get("variant") or "")) if part)
    model = leaves.get("anchor.model") or leaves.get("anchor.path") or leaves.get("anchor.type") or ""
    return Chosen(run=name, variant=variant or name, seed=int(config.get("seed", 0)), leaves=leaves, anchor=str(model))


def _told_apart(one: Chosen, found: Sequence[Chosen]) -> str:
    alike = [other for other in found if other.variant == one.variant]
    parts = [f"{leaf}={short(one.leaves.get(leaf))}" for leaf in differing(alike)]
    return " ".join([one.variant, *parts])


def flat(config: Any, *, within: str = "") -> dict[str, Any]:
    """Leaves of nested settings by dotted name; an empty mapping or list is a leaf."""
    if isinstance(config, Mapping) and config:
        items = [(str(key), value) for key, value in config.items()]
    elif isinstance(config, list) and config and any(isinstance(part, Mapping) for part in config):
        items = [(str(at), value) for at, value in enumerate(config)]
    else:
        return {within: config}
    return {
        name: leaf
        for key, value in items
        for name, leaf in flat(value, within=f"{within}.{key}" if within else key).items()
    }


def differing(found: Sequence[Chosen]) -> list[str]:
    """Leaves that are not the same in all runs, in the order of the settings; names and seeds aside."""
    names = dict.fromkeys(leaf for one in found for leaf in one.leaves)
    return [leaf for leaf in names if leaf not in NAMING and len({repr(one.leaves.get(leaf)) for one in found}) > 1]


def short(value: Any) -> str:
    """A setting's value as part of a label."""
    shown = f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "\u2026"


def variants(found: Sequence[Chosen]) -> list[str]:
    """Variants in order of appearance."""
    return list(dict.fromkeys(one.variant for one in found))


def anchor_sql(found: Sequence[Chosen]) -> str:
    """`variant` for SQL where anchors have a bar of their own: one where all runs started from the same model."""
    same = len({tuple((k, repr(v)) for k, v in one.leaves.items() if k.startswith("anchor.")) for one in found}) == 1
    anchor = literal(ANCHOR) if same else f"{literal(ANCHOR + ' of ')} || variant"
    return f"CASE WHEN checkpoint = 'anchor' THEN {anchor} ELSE variant END AS variant"


def chosen_sql(found: Sequence[Chosen]) -> str:
    """The runs as the first table of a statement: `WITH chosen(run, variant, seed) AS (...)`."""
    rows = ",\n    ".join(f"({literal(one.run)}, {literal(one.variant)}, {one.seed})" for one in found)
    return f"WITH chosen(run, variant, seed) AS (VALUES\n    {rows})"


class Recorder:
    """Runs statements and keeps them, so that every section of a report can show its own."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self.statements: list[str] = []

    def __call__(self, sql: str) -> list[dict[str, object]]:
        if sql not in self.statements:
            self.statements.append(sql)
        return self._query(sql)


def with_sql(query: Query, build: Callable[[Query], Section]) -> Section:
    """A section with the statements that it was made from."""
    recorder = Recorder(query)
    section = build(recorder)
    return replace(section, sql=recorder.statements)
