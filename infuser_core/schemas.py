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
    """Facts about a column for a reader, beyond its type.

    A label, a unit and a reference go with the name: they are the same in every table that has the column.
    """

    label: str = ""
    """Heading; empty where the name says it."""
    unit: str = ""
    """Unit of the numbers, such as tokens or nats."""
    refers_to: str = ""
    """Table whose rows the identifiers name; `groups` for a question or a document, depending on the role."""
    is_text: bool = False
    """Whether it is a text to read, which leads a row and may have many lines."""
    is_detail: bool = False
    """Whether tables of many questions leave it out. Its own row's page has it."""


def column(
    label: str = "", *, unit: str = "", refers_to: str = "", text: bool = False, detail: bool = False
) -> Mapping[str, Column]:
    """Metadata of a row's field: `name: type = field(metadata=column(...))`."""
    return {"column": Column(label=label, unit=unit, refers_to=refers_to, is_text=text, is_detail=detail)}


def columns(row_type: Any) -> dict[str, Column]:
    """The columns of a row type by name, in order."""
    return {one.name: one.metadata.get("column", Column()) for one in fields(row_type)}


def overview(row_type: Any) -> list[str]:
    """Columns that a table of many rows shows by default: neither identifiers nor details."""
    return [name for name, one in columns(row_type).items() if not (one.refers_to or one.is_detail)]


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
    """Value of the field that the budget goes by."""
    share: float
    """Share of the batch, 0 to 1."""
    count: int
    """Documents of the batch: the share, rounded up or down."""
    drawn: int
    """Documents drawn from the arm in earlier iterations."""
    documents: int
    """Documents that the pool has of it."""
    pulls: int
    """Documents drawn from it in the window whose questions have a measured influence."""
    mean: float | None
    """Mean influence of these documents; None where there are none."""
    bound: float | None
    """Upper confidence bound of the mean; None where there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkResponse:
    """One saved answer to a benchmark question: written before anything is scored, enough to score it again."""

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
    """The answer that was compared; empty when there was none."""
    reason: str
    """The rule that decided."""
    decided_by: str
    """verifier, or judge where a language model broke a tie."""


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
    """One question of one evaluation: the unit that intervals and paired comparisons are made of."""

    benchmark: str
    """Benchmark label, or `validation`."""
    question_id: str = field(metadata=QUESTION)
    """Question answered."""
    domain: str
    """Broad area, or empty."""
    num_samples: int = field(metadata=column("samples"))
    """Responses."""
    num_correct: int = field(metadata=column("correct"))
    """Responses found correct."""
    num_no_answer: int
    """Responses without an answer."""
    num_unverified: int
    """Responses that could not be verified."""
    num_cut: int
    """Responses that ended at the length limit."""
    too_long: bool
    """The question did not fit the prompt limit and was not asked."""
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
    """The chosen checkpoint."""

    selected_iteration: int
    """Iterations done when it was saved; 0 is the anchor."""
    checkpoint_id: str = field(metadata=CHECKPOINT)
    """The checkpoint."""
    accuracy: float
    """Validation accuracy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """Share of a benchmark that the validation set, which chooses the checkpoint, has already seen."""

    benchmark: str
    """Benchmark label."""
    num_questions: int = field(metadata=column("questions"))
    """Questions of the benchmark."""
    num_seen: int
    """Questions of it that the validation set contains, by normalised text."""
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
    """One textbook that was offered by a catalogue, admitted or not (appendix: source registry)."""

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
    """SPDX identifier, or empty when the catalogue names none."""
    licence_evidence: str
    """Field and value from which the licence was read."""
    source_url: str
    """Page that describes the resource."""
    download_url: str
    """Address the bytes came from, relative to the catalogue where the catalogue is local."""
    filename: str
    """Original file name."""
    description: str
    """Short description from the catalogue."""
    sha256: str
    """Digest of the downloaded bytes; empty when rejected."""
    num_bytes: int = field(metadata=column("size", unit="bytes"))
    """Size of the downloaded file, bytes."""
    status: str
    """admitted or rejected."""
    reason: str
    """Why it was rejected; empty when admitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Converted text of one source with the quality facts of its conversion."""

    source_id: str = field(metadata=SOURCE)
    """Source this text came from."""
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
    """Why this converter was taken for the source."""
    page_starts: list[int] = field(default_factory=list)
    """Offset in `markdown` at which each page's text begins, characters; empty where the converter does not know."""
    math_garbled: list[float] = field(default_factory=list)
    """Share of tokens that are debris of formulas, per page; empty where the converter does not know."""
    removed: list[str] = field(default_factory=list)
    """Pieces of the source that the converter left out of `markdown`."""
    removed_for: list[str] = field(default_factory=list)
    """One reason for each piece: running_head, page_number, navigation, licence, image, markup, unused, unreadable."""
    removed_pages: list[int] = field(default_factory=list)
    """Page index of each piece, 0-based; empty where the source has no pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A chunk of a textbook; the pool D_doc consists of the kept ones."""

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
    """Keep or drop, for every span of a source. Dropped spans stay, with their reason."""

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
    """Pool chunk, or `dev:ID` and `validation:ID` for a question that was looked for in the data."""
    shard: str
    """File of the data, or the set of questions."""
    record: int
    """Number of the record in its file, 0-based."""
    record_id: str
    """The record's own identifier, or empty."""
    part: str
    """Which text of the record: messages, question, question+answer, text, or fields."""
    num_common: int
    """Distinct n-grams in both."""
    containment_document: float
    """Share of the document's n-grams found in the record."""
    containment_reference: float
    """Share of the record's n-grams found in the document."""
    jaccard: float
    """Jaccard similarity of the two sets of word n-grams."""
    estimate: float
    """MinHash estimate of it, in the paper's mode; else 0."""
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
    """Why it matches: document or reference (which is contained), run, whole or jaccard; empty where it does not."""
    verdicts: str = ""
    """All rules that the pair passes, with a blank between; `shared` for an n-gram in common, of which `longest_run` is
    the length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question with its reference answer: (q, a_phi) when generated, (q, a*) when from a data set."""

    question_id: str = field(metadata=QUESTION)
    """Stable identifier."""
    text: str = field(metadata=TEXT)
    """Question without its choices."""
    choices: list[str] = field(metadata=TEXT)
    """Choice texts in the order shown; empty when free-form."""
    answer: str
    """Reference answer: the letter for multiple choice, the value otherwise."""
    verifier: str
    """Module name in `infuser_core/verifiers`; set by the route, never by model output."""
    domain: str = ""
    """Broad area, or empty."""
    subdomain: str = ""
    """Specialisation, or empty."""
    document_id: str = field(default="", metadata=DOCUMENT)
    """Document the question was written from; empty for data sets."""
    rollout_id: str = field(default="", metadata=ROLLOUT)
    """Generator rollout that wrote it; empty for data sets."""
    reasoning: str = field(default="", metadata=column("author's reasoning", text=True))
    """The author's own reasoning; empty for data sets."""
    grading: str = ""
    """How answers are compared beyond the verifier's defaults: JSON of `verifiers/parts/grading.py`, or empty."""


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
    """Estimate of how many of an iteration's generated keys are right. Watched: no phase reads it."""

    told_by: str
    """`labels` of the configured labeller, the `majority` of the solver's own answers, or a `strong solver`."""
    questions: int
    """Generated questions that could be told about."""
    accuracy: float
    """Share of them whose key is right, or is what most answers say."""
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
    """Checkpoint that sampled it."""
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
    """Why a generator's text is no question; empty otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InfluenceScore:
    """Optimizer-aware influence of one question (eq:estimated_influence_score)."""

    question_id: str = field(metadata=QUESTION)
    """Question scored."""
    status: str
    """See ScoreStatus; only `scored` rows carry a measured direction. `not_finite` rows keep what was found instead."""
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
    """Log-probabilities of a response by the trainer at the start of the iteration: the update's old policy."""

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
    """Its group."""
    reward: float
    """Influence score, or the invalid penalty rho_inv. A reward that is not finite takes part in nothing."""
    advantage: float
    """DuGRPO advantage (eq:gen_advantage); 0 where the rollout takes no part."""
    trained: bool
    """False where the group has zero variance and gives no gradient, and where reward or gradient is not finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """One AdamW step of a role."""

    role: str
    """solver or generator."""
    step: int
    """Optimizer steps taken since the anchor, this one included where it was taken: AdamW's own count."""
    num_groups: int = field(metadata=column("groups"))
    """Groups in the minibatch."""
    num_responses: int = field(metadata=column("responses"))
    """Responses in the minibatch."""
    num_tokens: int = field(metadata=column("tokens"))
    """Response tokens in the minibatch."""
    flat_share: float
    """Share of the phase's groups that were left out because their rewards are all the same."""
    loss: float
    """Negative objective."""
    gradient_norm: float
    """Global norm before clipping."""
    learning_rate: float
    """Step size."""
    clip_fraction: float
    """Share of response tokens where the clipped branch was active."""
    clip_fraction_high: float
    """Share of response tokens that were clipped above the range."""
    mean_ratio: float
    """Mean importance ratio pi / pi_old over response tokens."""
    mean_tis: float
    """Mean truncated importance weight, trainer over sampler."""
    truncated: float
    """Share of response tokens whose importance weight is cut at the cap."""
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
    """True where the minibatch's gradient has no finite norm although each of its groups' has: no step was taken."""


TOKEN_MEANS = (
    "clip_fraction", "clip_fraction_high", "mean_ratio", "mean_tis", "truncated",
    "sampler_kl", "policy_kl", "anchor_kl", "entropy",
)  # fmt: skip
"""Columns of an update that are means over its response tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Weights with AdamW's m, v and step: everything a role's training state consists of."""

    checkpoint_id: str = field(metadata=CHECKPOINT)
    """Artifact id of the checkpoint."""
    role: str
    """solver or generator; the anchor serves both."""
    path: str
    """Folder in Hugging Face layout, with `optimizer.safetensors` beside the weights."""
    step: int
    """Optimizer steps taken since the anchor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient:
    """Facts about the dev reference direction g_dev (eq:hat_g_dev); the tensor lies beside them."""

    norm: float
    """||g_dev||; 0 where no dev group that is in it had variance."""
    num_groups: int = field(metadata=column("groups"))
    """Dev questions."""
    num_varied: int
    """Dev questions whose answers differ in reward: the only ones with a gradient."""
    averaged: int
    """Gradients in the direction: always 1. Older stores may have running means over several iterations."""
    accuracy: float
    """Mean dev reward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotFinite:
    """A group that left a phase's batch, and why: a row of `not_finite`, a table that only such batches have."""

    group_id: str = field(metadata=GROUP)
    """Question (solver) or document (generator); of a reward, the rollout."""
    quantity: str
    """loss, gradient, score, reward or change: the first of them that is not finite."""
    value: float
    """The number itself; of a gradient, its norm."""
    tensor: str
    """First parameter by name whose gradient is not finite; empty where there is none."""

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
        name: one
        for row_type in list(vars().values())
        if is_dataclass(row_type)
        for name, one in columns(row_type).items()
    },
}
"""Every column of the rows of this module, and of what is read from commit records, by name."""


def heading(name: str) -> str:
    """Heading of a column for a reader, with its unit."""
    known = COLUMNS.get(name, Column())
    label = known.label or name.replace("_", " ")
    return label if not known.unit or known.unit in label else f"{label}, {known.unit}"
