"""Rows of the store's tables, what their columns mean to a reader, and the closed vocabularies of their values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """Verdicts of a verifier on a response. "Could not verify" is never a wrong answer."""

    CORRECT = "correct"
    WRONG = "wrong"
    NO_ANSWER = "no_answer"
    UNVERIFIED = "unverified"


class Role(StrEnum):
    """The role that produced a rollout or owns a checkpoint."""

    SOLVER = "solver"
    GENERATOR = "generator"
    JUDGE = "judge"


class ScoreStatus(StrEnum):
    """Status of an influence score."""

    SCORED = "scored"
    ZERO_VARIANCE = "zero_variance"
    NO_DEV_SIGNAL = "no_dev_signal"
    NOT_PROBED = "not_probed"
    NOT_FINITE = "not_finite"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """Meaning of a column for a reader, in addition to its type.

    A column has the same label, unit and reference in every table.
    """

    label: str = ""
    """Heading; empty for the name itself."""
    unit: str = ""
    """Unit of the numbers, such as tokens or nats."""
    refers_to: str = ""
    """Table whose rows the identifiers name; `groups` for a question or a document, depending on the role."""
    is_text: bool = False
    """Whether it is a text to read: comes first in a row, and may have many lines."""
    is_detail: bool = False
    """Whether it is left out of tables with many rows and is only on the page of a row."""


def column(
    label: str = "", *, unit: str = "", refers_to: str = "", text: bool = False, detail: bool = False
) -> Mapping[str, Column]:
    """Metadata of a row's field: `name: type = field(metadata=column(...))`."""
    return {"column": Column(label=label, unit=unit, refers_to=refers_to, is_text=text, is_detail=detail)}


def columns(row_type: Any) -> dict[str, Column]:
    """The columns of a row type by name, in order."""
    return {each.name: each.metadata.get("column", Column()) for each in fields(row_type)}


def overview(row_type: Any) -> list[str]:
    """Default columns of a table with many rows: neither identifiers nor details."""
    return [name for name, column in columns(row_type).items() if not (column.refers_to or column.is_detail)]


TEXT = column(text=True)
DETAIL = column(detail=True)
TOKENS = column(unit="tokens")
NATS = column(unit="nats")
QUESTION = column(refers_to="questions")
DOCUMENT = column(refers_to="documents")
SOURCE = column(refers_to="sources")
ROLLOUT = column(refers_to="rollouts")
CHECKPOINT = column(refers_to="checkpoints")
GROUP = column(refers_to="groups")


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """One arm of an adaptive budget in one iteration."""

    arm: str
    """Value of the field by which the budget is divided."""
    share: float
    """Share of the batch, 0 to 1."""
    count: int
    """Documents of the batch: the share, rounded up or down."""
    drawn: int
    """Documents drawn from the arm in earlier iterations."""
    documents: int
    """Documents of the arm in the pool."""
    pulls: int
    """Documents of the arm within the window whose questions have a measured influence."""
    mean: float | None
    """Mean influence of these documents; None without any."""
    bound: float | None
    """Upper confidence bound of the mean; None without any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkResponse:
    """One saved response to a benchmark question, from which scores can be computed again."""

    benchmark: str
    """Benchmark label."""
    question_id: str = field(metadata=QUESTION)
    """Question answered."""
    sample_index: int
    """Position among the question's samples, 0-based."""
    response: str = field(metadata=TEXT)
    """Whole model output without special tokens; empty when the prompt did not fit."""
    finish_reason: str
    """stop, length or prompt_too_long."""
    prompt_tokens: int = field(metadata=TOKENS)
    """Length of the prompt, tokens."""
    response_tokens: int = field(metadata=TOKENS)
    """Length of the response, tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkVerdict:
    """Verdict of one preset's verifier on one saved response."""

    benchmark: str
    """Benchmark label."""
    question_id: str = field(metadata=QUESTION)
    """Question answered."""
    sample_index: int
    """Position among the question's samples, 0-based."""
    preset: str
    """paper, official, strict-last or phrase."""
    verdict: str
    """correct, wrong, no_answer or unverified."""
    extracted: str
    """The answer that was compared; empty if the response has none."""
    reason: str
    """The rule that decided."""
    decided_by: str
    """verifier, or judge if a language model decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkScore:
    """Accuracy of one checkpoint on one benchmark."""

    benchmark: str
    """Benchmark module name."""
    checkpoint_id: str = field(metadata=CHECKPOINT)
    """Checkpoint evaluated."""
    num_questions: int = field(metadata=column("questions"))
    """Questions in the denominator."""
    num_samples: int = field(metadata=column("samples"))
    """Responses per question."""
    accuracy: float
    """Mean over questions of the share of correct responses; unverified and unanswered count as wrong."""
    low: float
    """Lower end of the 95% interval (Wilson, over questions)."""
    high: float
    """Upper end of the 95% interval (Wilson, over questions)."""
    answered: float
    """Share of responses with an extractable answer."""
    unverified: int
    """Responses that could not be verified."""
    mean_response_tokens: float = field(metadata=TOKENS)
    """Mean response length, tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionScore:
    """One question of one evaluation: the unit of intervals and paired comparisons."""

    benchmark: str
    """Benchmark label, or `validation`."""
    question_id: str = field(metadata=QUESTION)
    """Question answered."""
    domain: str
    """Broad area, or empty."""
    num_samples: int = field(metadata=column("samples"))
    """Responses."""
    num_correct: int = field(metadata=column("correct"))
    """Correct responses."""
    num_no_answer: int
    """Responses without an answer."""
    num_unverified: int
    """Responses that could not be verified."""
    num_cut: int
    """Responses that ended at the length limit."""
    too_long: bool
    """Whether the question exceeded the prompt limit and got no responses."""
    mean_response_tokens: float = field(metadata=TOKENS)
    """Mean response length, tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A validated checkpoint (appendix: checkpoint selection)."""

    at_iteration: int
    """Iterations done when it was saved; 0 is the anchor."""
    checkpoint_id: str = field(metadata=CHECKPOINT)
    """The checkpoint."""
    accuracy: float
    """Validation accuracy."""
    selected: bool
    """True for exactly one row of a selection."""
    behind: float = 0.0
    """Accuracy of the best checkpoint minus this one's, over the same questions."""
    behind_error: float = 0.0
    """Standard error of `behind`, paired by question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The selected checkpoint."""

    selected_iteration: int
    """Iterations done when it was saved; 0 is the anchor."""
    checkpoint_id: str = field(metadata=CHECKPOINT)
    """The checkpoint."""
    accuracy: float
    """Validation accuracy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """Share of a benchmark's questions that are also in the validation set, which selects the checkpoint."""

    benchmark: str
    """Benchmark label."""
    num_questions: int = field(metadata=column("questions"))
    """Questions of the benchmark."""
    num_seen: int
    """Questions of the benchmark in the validation set, by normalised text."""
    share: float
    """num_seen / num_questions."""


SCHEMA_VERSION = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A (domain, subdomain) pair that the document pool must cover (appendix: taxonomy extraction)."""

    domain: str
    """Broad area of study."""
    subdomain: str
    """Specialisation within the domain."""
    num_questions: int = field(metadata=column("questions"))
    """Dev questions that carry this pair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One textbook of a catalogue, admitted or not (appendix: source registry)."""

    source_id: str = field(metadata=SOURCE)
    """Canonical identifier: `doi:`, `isbn:`, `arxiv:`, `url:` or `sha256:` and its value."""
    title: str
    """Title as the catalogue gives it."""
    author: str
    """Authors, joined by "; "."""
    discipline: str
    """Domain of the pair that the search was for."""
    category: str
    """textbook, reference, tutorial or notes."""
    licence: str
    """SPDX identifier; empty if the catalogue has none."""
    licence_evidence: str
    """Field and value from which the licence was read."""
    source_url: str
    """Page that describes the resource."""
    download_url: str
    """Address of the file, relative to the catalogue if that is local."""
    filename: str
    """Original file name."""
    description: str
    """Short description from the catalogue."""
    sha256: str
    """Digest of the file; empty if rejected."""
    num_bytes: int = field(metadata=column("size", unit="bytes"))
    """Size of the file, bytes."""
    status: str
    """admitted or rejected."""
    reason: str
    """Why it was rejected; empty when admitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Converted text of one source, with measures of the conversion's quality."""

    source_id: str = field(metadata=SOURCE)
    """Source of the text."""
    markdown: str = field(metadata=TEXT)
    """The whole source as Markdown; empty in a run on a built pool, whose folder has it."""
    sha256: str
    """Digest of `markdown` in UTF-8."""
    num_pages: int
    """Pages of the original file."""
    converter: str
    """Converter name and version."""
    status: str
    """converted or rejected."""
    reason: str
    """Why it was rejected; empty when converted."""
    chosen: str = ""
    """Why this converter was used for the source."""
    page_starts: list[int] = field(default_factory=list)
    """Offset in `markdown` at which each page's text begins, characters; empty if the converter does not know."""
    math_garbled: list[float] = field(default_factory=list)
    """Share of tokens that are broken pieces of formulas, per page; empty if the converter does not know."""
    removed: list[str] = field(default_factory=list)
    """Pieces of the source that the converter left out of `markdown`."""
    removed_for: list[str] = field(default_factory=list)
    """One reason for each piece: running_head, page_number, navigation, licence, image, markup, unused, unreadable."""
    removed_pages: list[int] = field(default_factory=list)
    """Page index of each piece, 0-based; empty if the source has no pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A chunk of a textbook; the retained ones are the pool D_doc."""

    document_id: str = field(metadata=DOCUMENT)
    """`<source digest prefix>-<start>`: stable for an unchanged source."""
    source_id: str = field(metadata=SOURCE)
    """Source of the chunk."""
    header_path: str = field(metadata=column("headings"))
    """Ancestor headings, joined by " > "."""
    start: int
    """First character in the source's Markdown."""
    end: int
    """One past the last character in the source's Markdown."""
    text: str = field(metadata=TEXT)
    """Exactly `markdown[start:end]`."""
    num_tokens: int = field(metadata=column("tokens"))
    """Tokens of `text` under the chunker's token counter."""
    domain: str
    """Domain of the source."""
    prompt_type: str
    """Generator route, a file in `infuser_core/cotrain/routes`: mcq, free_form, direct."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Decision to keep or drop a span of a source, with its reason."""

    document_id: str = field(metadata=DOCUMENT)
    """The chunk judged."""
    keep: bool
    """Whether the chunk enters the pool."""
    reason: str
    """One line: the judge's own, or the rule that decided."""
    decided_by: str
    """judge, structure or size."""
    response: str = field(metadata=TEXT)
    """Raw text of the judging model; empty when a rule decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """A text and a record of other data that share n-grams (appendix: deduplication check).

    Offsets count characters and span the longest common run.
    """

    document_id: str = field(metadata=DOCUMENT)
    """Pool chunk, or `dev:ID` or `validation:ID` for a question that was compared with the data."""
    shard: str
    """File of the data, or the set of questions."""
    record: int
    """Number of the record in its file, 0-based."""
    record_id: str
    """The record's own identifier, or empty."""
    part: str
    """Text of the record: messages, question, question+answer, text, or fields."""
    num_common: int
    """Distinct n-grams in both."""
    containment_document: float
    """Share of the document's n-grams that the record has."""
    containment_reference: float
    """Share of the record's n-grams that the document has."""
    jaccard: float
    """Jaccard similarity of the two sets of word n-grams."""
    estimate: float
    """MinHash estimate of the Jaccard similarity, in the paper's mode; else 0."""
    longest_run: int = field(metadata=column(unit="words"))
    """Longest common run, words."""
    document_start: int
    """First character of the run in the document."""
    document_end: int
    """One past its last character in the document."""
    reference_start: int
    """First character of the run in the record's text."""
    reference_end: int
    """One past its last character in the record's text."""
    matched: bool
    """Whether the pair passes the match rule."""
    rule: str
    """Why it matches: document or reference (the contained one), run, whole or jaccard; empty without a match."""
    verdicts: str = ""
    """All rules that the pair passes, separated by blanks; `shared` for a common n-gram of length `longest_run`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question with its reference answer: (q, a_phi) when generated, (q, a*) when from a data set."""

    question_id: str = field(metadata=QUESTION)
    """Stable identifier."""
    text: str = field(metadata=TEXT)
    """Question without its choices."""
    choices: list[str] = field(metadata=TEXT)
    """Choices in the order of the prompt; empty for a free-form question."""
    answer: str
    """Reference answer: the letter for multiple choice, the value otherwise."""
    verifier: str
    """Module name in `infuser_core/verifiers`; set by the route, never by model output."""
    domain: str = ""
    """Broad area, or empty."""
    subdomain: str = ""
    """Specialisation, or empty."""
    document_id: str = field(default="", metadata=DOCUMENT)
    """Source document of the question; empty for data sets."""
    rollout_id: str = field(default="", metadata=ROLLOUT)
    """Generator rollout that wrote it; empty for data sets."""
    reasoning: str = field(default="", metadata=column("author's reasoning", text=True))
    """The author's own reasoning; empty for data sets."""
    grading: str = ""
    """Settings of the comparison other than the verifier's defaults: JSON of `verifiers/parts/grading.py`, or empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionLabel:
    """An oracle's label of a generated question. For reports and controls: no phase reads it."""

    question_id: str = field(metadata=QUESTION)
    """Question labelled."""
    topic: str
    """Topic, or "unknown"."""
    key: str
    """sound, unsound or unknown: whether the reference answer is right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyAccuracy:
    """Estimated share of right keys among an iteration's generated questions. For monitoring: no phase reads it."""

    told_by: str
    """`labels` of the configured labeller, the `majority` of the solver's own answers, or a `strong solver`."""
    questions: int
    """Generated questions with an estimate."""
    accuracy: float
    """Share of them whose key is right, or equals the majority answer."""
    low: float
    """Lower end of the 95% Wilson interval over questions."""
    high: float
    """Upper end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One sampled sequence with the sampler's log-probabilities (pi_old in eq:unified_obj)."""

    rollout_id: str = field(metadata=ROLLOUT)
    """`<group_id>/<sample index>`."""
    group_id: str = field(metadata=GROUP)
    """Question id (solver) or document id (generator)."""
    sample_index: int
    """Position in the group, 0-based."""
    role: str
    """solver or generator."""
    checkpoint_id: str = field(metadata=CHECKPOINT)
    """Checkpoint of the sampler."""
    prompt_token_ids: Sequence[int] = field(metadata=column("prompt tokens"))
    """Prompt tokens."""
    token_ids: Sequence[int] = field(metadata=column("tokens"))
    """Response tokens, the end-of-sequence token included when sampled."""
    sampler_logprobs: Sequence[float] = field(metadata=column("mean log-probability", unit="nats"))
    """Log-probability of each response token under the sampling temperature, nats."""
    text: str = field(metadata=TEXT)
    """Decoded response without special tokens."""
    finish_reason: str
    """stop or length."""
    verdict: str
    """Verdict of the verifier (solver) or valid / invalid (generator)."""
    reward: float
    """1.0 for correct, else 0.0 (solver); 0.0 until scored (generator)."""
    malformed_reason: str
    """Why a generator's text is not a question; empty otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InfluenceScore:
    """Optimizer-aware influence of one question (eq:estimated_influence_score)."""

    question_id: str = field(metadata=QUESTION)
    """Question scored."""
    status: str
    """See ScoreStatus; only `scored` rows have a measured direction, `not_finite` rows hold the numbers at fault."""
    score: float = field(metadata=column("influence"))
    """The configured score: the generator's reward."""
    cosine: float = field(metadata=DETAIL)
    """cos(g_dev, Gamma)."""
    dot: float = field(metadata=DETAIL)
    """<g_dev, Gamma>."""
    raw_cosine: float = field(metadata=DETAIL)
    """cos(g_dev, g), without the preconditioner."""
    direction_norm: float = field(metadata=DETAIL)
    """||Gamma||."""
    gradient_norm: float = field(metadata=DETAIL)
    """||g||."""
    reference_norm: float = field(metadata=DETAIL)
    """||g_dev||."""
    solver_accuracy: float
    """Mean reward of the question's rollouts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerLogprobs:
    """The trainer's log-probabilities of a response at the start of the iteration: the update's old policy."""

    rollout_id: str = field(metadata=ROLLOUT)
    """Solver rollout."""
    logprobs: Sequence[float] = field(metadata=column("mean log-probability", unit="nats"))
    """Log-probability of each response token under the sampling temperature, nats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorScore:
    """Reward and advantage of one generator rollout (Phase 4)."""

    rollout_id: str = field(metadata=ROLLOUT)
    """Generator rollout."""
    document_id: str = field(metadata=DOCUMENT)
    """Document of the rollout's group."""
    reward: float
    """Influence score, or the invalid penalty rho_inv. A reward that is not finite is not used."""
    advantage: float
    """DuGRPO advantage (eq:gen_advantage); 0 for a rollout that is not trained on."""
    trained: bool
    """False if the group has zero variance, which gives no gradient, or if a reward or gradient is not finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """One AdamW step of a role."""

    role: str
    """solver or generator."""
    step: int
    """AdamW's count of optimizer steps since the anchor, including this one unless it was skipped."""
    num_groups: int = field(metadata=column("groups"))
    """Groups in the minibatch."""
    num_responses: int = field(metadata=column("responses"))
    """Responses in the minibatch."""
    num_tokens: int = field(metadata=column("tokens"))
    """Response tokens in the minibatch."""
    flat_share: float
    """Share of the phase's groups that were left out because all their rewards are equal."""
    loss: float
    """Negative objective."""
    gradient_norm: float
    """Global norm before clipping."""
    learning_rate: float
    """Step size."""
    clip_fraction: float
    """Share of response tokens for which the clipped branch was active."""
    clip_fraction_high: float
    """Share of response tokens clipped above the range."""
    mean_ratio: float
    """Mean importance ratio pi / pi_old over response tokens."""
    mean_tis: float
    """Mean truncated importance weight, trainer over sampler."""
    truncated: float
    """Share of response tokens whose importance weight is truncated."""
    sampler_kl: float = field(metadata=NATS)
    """Estimate (k3) of KL(sampler || policy before the update) per token, nats."""
    policy_kl: float = field(metadata=NATS)
    """Estimate (k3) of KL(policy before the update || current) per token, nats."""
    anchor_kl: float = field(metadata=NATS)
    """Estimate (k3) of KL(current || anchor) per token, nats; 0 without `cotrain.loss.kl`."""
    entropy: float = field(metadata=NATS)
    """Estimate of the policy's entropy per token, nats: mean -log pi of the sampled tokens."""
    cut: int
    """Responses of the minibatch that ended at the length limit."""
    below_epsilon: float
    """Share of parameters whose second moment's root, bias corrected, is below AdamW's epsilon after the step."""
    skipped: bool
    """True if no step was taken: the minibatch's gradient norm is not finite although that of each group is."""


TOKEN_MEANS = (
    "clip_fraction", "clip_fraction_high", "mean_ratio", "mean_tis", "truncated",
    "sampler_kl", "policy_kl", "anchor_kl", "entropy",
)  # fmt: skip
"""Columns of an update that are means over its response tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Weights with AdamW's m, v and step: the training state of a role."""

    checkpoint_id: str = field(metadata=CHECKPOINT)
    """Artifact id of the checkpoint."""
    role: str
    """solver or generator; the anchor serves both."""
    path: str
    """Folder in Hugging Face layout, with the weights and `optimizer.safetensors`."""
    step: int
    """Optimizer steps taken since the anchor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient:
    """Facts about the dev reference direction g_dev (eq:hat_g_dev); the tensor is another file of the artifact."""

    norm: float
    """||g_dev||; 0 if none of its dev groups had variance."""
    num_groups: int = field(metadata=column("groups"))
    """Dev questions."""
    num_varied: int
    """Dev questions whose responses differ in reward: only these have a gradient."""
    averaged: int
    """Gradients in the direction: always 1. Older stores may have running means over several iterations."""
    accuracy: float
    """Mean dev reward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotFinite:
    """A group left out of a batch because a number is not finite; only such batches have the table `not_finite`."""

    group_id: str = field(metadata=GROUP)
    """Question (solver) or document (generator); the rollout for a reward."""
    quantity: str
    """The first number that is not finite: loss, gradient, score, reward or change."""
    value: float
    """The number; for a gradient, its norm."""
    tensor: str
    """First parameter by name whose gradient is not finite; empty if all are finite."""

    def __str__(self) -> str:
        tensor = f", its gradient not finite in {self.tensor}" if self.tensor else ""
        return f"{self.quantity} of {self.group_id} is {self.value}{tensor}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFact:
    """One number of the overlap audit's summary."""

    name: str
    """Name of the count or measurement."""
    value: float
    """The number."""


_ARTIFACT = Column(refers_to="artifacts")
COLUMNS: Mapping[str, Column] = {
    "artifact": _ARTIFACT,
    "artifact_key": _ARTIFACT,
    "input_key": _ARTIFACT,
    "parent_key": _ARTIFACT,
    "checkpoint": Column(refers_to="checkpoints"),
    **{
        name: each
        for row_type in list(vars().values())
        if is_dataclass(row_type)
        for name, each in columns(row_type).items()
    },
}
"""Every column of the rows of this module and of commit records, by name."""


def heading(name: str) -> str:
    """Heading of a column for a reader, with its unit."""
    column = COLUMNS.get(name, Column())
    label = column.label or name.replace("_", " ")
    return label if not column.unit or column.unit in label else f"{label}, {column.unit}"
