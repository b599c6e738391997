"""Row types of the store's tables, with the meaning of each column, and enumerations of their values.

The anchor is the pre-trained base model that both roles start from. The solver answers questions, the generator writes
them. `eq:` and `appendix:` name equations and appendices of the paper.

Names of row classes and fields are part of the file format and must not be renamed: a parquet file has the class name
in its metadata and the field names as column names, and an unfinished stage has folders named after row classes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum
from typing import Any, Literal


class Verdict(StrEnum):
    """Result of checking a response against the reference answer.

    `unverified` means that correctness could not be decided, which does not make an answer wrong.
    """

    CORRECT = "correct"
    WRONG = "wrong"
    NO_ANSWER = "no_answer"
    UNVERIFIED = "unverified"


Box = Literal["paper", "official", "strict-last", "phrase"]
"""Rule that selects the answer in a response: the first boxed text (`paper`), the authors' extractors (`official`), the
last closed box (`strict-last`), or that box and without one an answer phrase (`phrase`)."""


class Role(StrEnum):
    """Role of a model in a run: solver, generator or judge."""

    SOLVER = "solver"
    GENERATOR = "generator"
    JUDGE = "judge"


class ScoreStatus(StrEnum):
    """Whether an influence score was measured; if not, the reason."""

    SCORED = "scored"
    ZERO_VARIANCE = "zero_variance"
    NO_DEV_SIGNAL = "no_dev_signal"
    NOT_PROBED = "not_probed"
    NOT_FINITE = "not_finite"


MEANINGS: Mapping[str, str] = {
    Verdict.CORRECT: "the answer equals the key",
    Verdict.WRONG: "the answer differs from the key",
    Verdict.NO_ANSWER: "the response has no answer in the form that the prompt asks for",
    Verdict.UNVERIFIED: "the verifier could not decide whether the answer is right",
    ScoreStatus.SCORED: "the influence was measured",
    ScoreStatus.ZERO_VARIANCE: "all answers had the same reward, so the question has no gradient",
    ScoreStatus.NO_DEV_SIGNAL: "all answers to the dev set had the same reward, so there is no dev direction",
    ScoreStatus.NOT_PROBED: "left out of the measurement by the configuration",
    ScoreStatus.NOT_FINITE: "a number of the measurement is infinite or NaN",
    "sound": "the key is right, by the configured labeller",
    "unsound": "the key is wrong, by the configured labeller",
    "valid": "the text is a question in the required format",
    "invalid": "the text is not a question in the required format",
    "length": "cut off at the length limit",
    "stop": "ended by the model",
}
"""Meaning of values of verdicts, statuses and labels, for readers of tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """Description of a column for display, in addition to its type.

    A column has the same label, unit and reference in every table.
    """

    label: str = ""
    """Heading; empty to use the column's name."""
    unit: str = ""
    """Unit of the numbers, such as tokens or nats."""
    refers_to: str = ""
    """Table that the column's identifiers refer to; `groups` for questions or documents, depending on the role."""
    is_text: bool = False
    """Whether the value is a text to read: displayed first in a row, and may have many lines."""
    is_detail: bool = False
    """Whether the column is only displayed on the page of a single row, not in tables of many rows."""
    is_share: bool = False
    """Whether the number is a share from 0 to 1, displayed as a percentage."""


def column(
    label: str = "",
    *,
    unit: str = "",
    refers_to: str = "",
    text: bool = False,
    detail: bool = False,
    share: bool = False,
) -> Mapping[str, Column]:
    """Describe a column in the metadata of its field: `name: type = field(metadata=column(...))`."""
    return {
        "column": Column(label=label, unit=unit, refers_to=refers_to, is_text=text, is_detail=detail, is_share=share)
    }


def columns(row_type: Any) -> dict[str, Column]:
    """Descriptions of a row type's columns by name, in field order."""
    return {each.name: each.metadata.get("column", Column()) for each in fields(row_type)}


def overview(row_type: Any) -> list[str]:
    """Names of the columns displayed in a table of many rows: all but identifiers and details."""
    return [name for name, column in columns(row_type).items() if not (column.refers_to or column.is_detail)]


TEXT = column(text=True)
DETAIL = column(detail=True)
TOKENS = column(unit="tokens")
SHARE = column(share=True)
SHARE_DETAIL = column(share=True, detail=True)
NATS = column(unit="nats")
QUESTION = column(refers_to="questions")
DOCUMENT = column(refers_to="documents")
SOURCE = column(refers_to="sources")
ROLLOUT = column(refers_to="rollouts")
CHECKPOINT = column(refers_to="checkpoints")
GROUP = column(refers_to="groups")


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Share of one arm in an iteration's documents, with statistics of the arm.

    An arm is a value of one field of Document, such as a domain.
    """

    arm: str
    """Value of the document field by which the batch is divided."""
    share: float = field(metadata=SHARE)
    """Share of the batch, 0 to 1."""
    count: int
    """Number of documents in the batch: the share, rounded up or down."""
    drawn: int
    """Number of documents drawn from the arm in earlier iterations."""
    documents: int
    """Number of the arm's documents in the pool."""
    pulls: int
    """Number of the arm's documents within the window whose questions have a measured influence."""
    mean: float | None
    """Mean influence of the documents counted in `pulls`; None if there are none."""
    bound: float | None
    """Upper confidence bound of the mean; None if `pulls` is 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkResponse:
    """One saved response to a benchmark question; scores can be recomputed from saved responses."""

    benchmark: str
    """Benchmark label."""
    question_id: str = field(metadata=QUESTION)
    """Question answered."""
    sample_index: int
    """Position among the question's samples, 0-based."""
    response: str = field(metadata=TEXT)
    """Complete model output without special tokens; empty if the prompt was too long."""
    finish_reason: str
    """stop, length or prompt_too_long."""
    prompt_tokens: int = field(metadata=TOKENS)
    """Length of the prompt, tokens."""
    response_tokens: int = field(metadata=TOKENS)
    """Length of the response, tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkVerdict:
    """Result of checking one saved response with the verifier of one scoring preset."""

    benchmark: str
    """Benchmark label."""
    question_id: str = field(metadata=QUESTION)
    """Question answered."""
    sample_index: int
    """Position among the question's samples, 0-based."""
    preset: str
    """Scoring preset: paper, official, strict-last or phrase."""
    verdict: str
    """correct, wrong, no_answer or unverified."""
    extracted: str
    """Answer extracted from the response; empty if there is none."""
    reason: str
    """Rule that decided the verdict."""
    decided_by: str
    """verifier, or judge if a language model decided the verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkScore:
    """Accuracy of one checkpoint on one benchmark."""

    benchmark: str
    """Benchmark module name."""
    checkpoint_id: str = field(metadata=CHECKPOINT)
    """Checkpoint evaluated."""
    num_questions: int = field(metadata=column("questions"))
    """Number of questions in the denominator."""
    num_samples: int = field(metadata=column("samples"))
    """Responses per question."""
    accuracy: float = field(metadata=SHARE)
    """Share of correct responses per question, averaged over questions; unverified and missing answers count as
    wrong."""
    low: float = field(metadata=SHARE)
    """Lower end of the 95% interval (Wilson, over questions)."""
    high: float = field(metadata=SHARE)
    """Upper end of the 95% interval (Wilson, over questions)."""
    answered: float = field(metadata=SHARE)
    """Share of responses from which an answer could be extracted."""
    unverified: int
    """Number of responses that could not be verified."""
    mean_response_tokens: float = field(metadata=TOKENS)
    """Mean response length, tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionScore:
    """Counts of one question's responses in one evaluation. Intervals and paired comparisons are over questions."""

    benchmark: str
    """Benchmark label, or `validation`."""
    question_id: str = field(metadata=QUESTION)
    """Question answered."""
    domain: str
    """Broad area, or empty."""
    num_samples: int = field(metadata=column("samples"))
    """Number of responses."""
    num_correct: int = field(metadata=column("correct"))
    """Number of correct responses."""
    num_no_answer: int
    """Number of responses without an answer."""
    num_unverified: int
    """Number of responses that could not be verified."""
    num_cut: int
    """Number of responses cut off at the length limit."""
    too_long: bool
    """Whether the question was longer than the prompt limit and so has no responses."""
    mean_response_tokens: float = field(metadata=TOKENS)
    """Mean response length, tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A checkpoint evaluated on the validation set as a candidate for selection (appendix: checkpoint selection)."""

    at_iteration: int
    """Number of iterations finished when it was saved; 0 is the anchor."""
    checkpoint_id: str = field(metadata=CHECKPOINT)
    """The checkpoint evaluated."""
    accuracy: float = field(metadata=SHARE)
    """Validation accuracy."""
    selected: bool
    """Whether this checkpoint was selected; true for exactly one row of a selection."""
    behind: float = 0.0
    """Accuracy of the best checkpoint minus that of this one, on the same questions."""
    behind_error: float = 0.0
    """Standard error of `behind`, paired by question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The checkpoint of a run that was selected by validation accuracy."""

    selected_iteration: int
    """Number of iterations finished when it was saved; 0 is the anchor."""
    checkpoint_id: str = field(metadata=CHECKPOINT)
    """The selected checkpoint."""
    accuracy: float = field(metadata=SHARE)
    """Its validation accuracy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """Share of a benchmark's questions that are also in the validation set, which is used to select the checkpoint."""

    benchmark: str
    """Benchmark label."""
    num_questions: int = field(metadata=column("questions"))
    """Number of questions in the benchmark."""
    num_seen: int
    """Number of these that are also in the validation set, compared by normalised text."""
    share: float = field(metadata=SHARE)
    """num_seen / num_questions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """Continuation of a text that begins as a benchmark question or its control does, by greedy decoding."""

    question_id: str = field(metadata=QUESTION)
    """Question of the benchmark; a control has the id of its question."""
    is_control: bool = field(metadata=column("control"))
    """Whether the text is the control, which the model cannot have seen."""
    share: float
    """Share of the text's tokens that the model read."""
    completed: bool
    """Whether the continuation equals the rest of the text."""
    matched: int
    """Number of tokens of the rest that precede the first difference from the continuation."""
    rest_tokens: int = field(metadata=TOKENS)
    """Number of tokens of the rest, and of the continuation unless the model ended it."""
    beginning: str = field(metadata=TEXT)
    """The part that the model read."""
    rest: str = field(metadata=TEXT)
    """The rest of the text."""
    continuation: str = field(metadata=TEXT)
    """The model's continuation."""


SCHEMA_VERSION = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A (domain, subdomain) pair that the document pool must cover (appendix: taxonomy extraction)."""

    domain: str
    """Broad area of study."""
    subdomain: str
    """Specialisation within the domain."""
    num_questions: int = field(metadata=column("questions"))
    """Number of dev questions with this pair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A textbook from a catalogue, admitted to the corpus or rejected (appendix: source registry)."""

    source_id: str = field(metadata=SOURCE)
    """Canonical identifier: `doi:`, `isbn:`, `arxiv:`, `url:` or `sha256:` and its value."""
    title: str
    """Title in the catalogue."""
    author: str
    """Authors, joined by "; "."""
    discipline: str
    """Domain of the topic for which the textbook was found."""
    category: str
    """textbook, reference, tutorial or notes."""
    licence: str
    """SPDX identifier of the licence; empty if the catalogue has none."""
    licence_evidence: str
    """Catalogue field and value from which the licence was read."""
    source_url: str
    """Page that describes the resource."""
    download_url: str
    """URL of the file; a path relative to the catalogue if the catalogue is local."""
    filename: str
    """Original file name."""
    description: str
    """Short description from the catalogue."""
    sha256: str
    """sha256 of the file, hex; empty if rejected."""
    num_bytes: int = field(metadata=column("size", unit="bytes"))
    """Size of the file, bytes."""
    status: str
    """admitted or rejected."""
    reason: str
    """Why it was rejected; empty when admitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A source's complete text, converted to Markdown, with indicators of the conversion's quality."""

    source_id: str = field(metadata=SOURCE)
    """Source of the text."""
    markdown: str = field(metadata=TEXT)
    """The source's complete text as Markdown; empty in a run on a built pool, which has it in its own folder."""
    sha256: str
    """sha256 of `markdown` in UTF-8, hex."""
    num_pages: int
    """Number of pages in the original file."""
    converter: str
    """Converter name and version."""
    status: str
    """converted or rejected."""
    reason: str
    """Why it was rejected; empty when converted."""
    chosen: str = ""
    """Why this converter was used."""
    page_starts: list[int] = field(default_factory=list)
    """Offset of each page's text in `markdown`, characters; empty if the converter does not report pages."""
    removed: list[str] = field(default_factory=list)
    """Pieces of the source's text that the converter left out of `markdown`."""
    removed_for: list[str] = field(default_factory=list)
    """Reason for each removed piece: running_head, page_number, navigation, licence, image, markup, unused,
    unreadable."""
    removed_pages: list[int] = field(default_factory=list)
    """Page index of each removed piece, 0-based; empty if the source has no pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubtShares:
    """Doubt about a chunk: shares of its characters in paragraphs that may read differently than the book, 0 to 1.

    The shares by reason add up to `doubt`: a paragraph counts for one reason.
    """

    doubt: float = field(default=0.0, metadata=SHARE)
    """Share for any reason; above `corpus.chunk.max_doubt` the chunk is dropped."""
    garbled_formula: float = field(default=0.0, metadata=SHARE_DETAIL)
    """Share with a formula that the converter marked as unreadable, or that lost an operand or a base."""
    torn_table: float = field(default=0.0, metadata=SHARE_DETAIL)
    """Share with cells of a table whose rows or columns the converter could not tell apart."""
    unmapped_sign: float = field(default=0.0, metadata=SHARE_DETAIL)
    """Share with a sign that has no Unicode value."""
    stray_markup: float = field(default=0.0, metadata=SHARE_DETAIL)
    """Share with tags of HTML, or LaTeX outside formulas."""
    lost_words: float = field(default=0.0, metadata=SHARE_DETAIL)
    """Share with a gap in a sentence, such as a full stop after a space."""
    no_language: float = field(default=0.0, metadata=SHARE_DETAIL)
    """Share with words of no language, because of a wrong font map or encoding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document(DoubtShares):
    """A chunk of a textbook. The retained chunks are the document pool (the paper's D_doc)."""

    document_id: str = field(metadata=DOCUMENT)
    """`<source digest prefix>-<start>`: stays the same as long as the source does."""
    source_id: str = field(metadata=SOURCE)
    """Source of the chunk."""
    header_path: str = field(metadata=column("headings"))
    """Ancestor headings, joined by " > "."""
    start: int
    """Offset of the chunk's first character in the source's Markdown."""
    end: int
    """Offset one past its last character."""
    text: str = field(metadata=TEXT)
    """Exactly `markdown[start:end]`."""
    num_tokens: int = field(metadata=column("tokens"))
    """Number of tokens in `text`, by the chunker's token counter."""
    domain: str
    """Domain of the source."""
    prompt_type: str
    """Route by which a question is made from the document, a module in `infuser_core/cotrain/routes`: mcq, free_form,
    direct."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Decision to keep a chunk in the document pool or to drop it, with its reason."""

    document_id: str = field(metadata=DOCUMENT)
    """The chunk judged."""
    keep: bool
    """Whether the chunk enters the pool."""
    reason: str
    """One line: the judge's reason, or the rule that decided."""
    decided_by: str
    """judge (a language model), structure or size."""
    response: str = field(metadata=TEXT)
    """Raw response of the judge; empty when a rule decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """A pool document or question that shares n-grams with a record of reference data (appendix: deduplication check).

    The offsets, in characters, are those of the longest common run of words.
    """

    document_id: str = field(metadata=DOCUMENT)
    """Document of the pool, or `dev:ID` or `validation:ID` for a question compared with the reference data."""
    shard: str
    """File of the reference data, or the name of a question set."""
    record: int
    """Number of the record in its file, 0-based."""
    record_id: str
    """The record's own identifier, or empty."""
    part: str
    """Part of the record that was compared: messages, question, question+answer, text, or fields."""
    num_common: int
    """Number of distinct n-grams that both have."""
    containment_document: float = field(metadata=SHARE)
    """Share of the document's n-grams that are also in the record."""
    containment_reference: float = field(metadata=SHARE)
    """Share of the record's n-grams that are also in the document."""
    jaccard: float = field(metadata=SHARE)
    """Jaccard similarity of the two sets of word n-grams."""
    estimate: float
    """MinHash estimate of the Jaccard similarity in the paper's mode; otherwise 0."""
    longest_run: int = field(metadata=column(unit="words"))
    """Longest common run, words."""
    document_start: int
    """Offset of the run's first character in the document."""
    document_end: int
    """Offset one past the run's last character in the document."""
    reference_start: int
    """Offset of the run's first character in the record's text."""
    reference_end: int
    """Offset one past the run's last character in the record's text."""
    matched: bool
    """Whether the pair counts as a match."""
    rule: str
    """First rule by which the pair matches: document or reference (the one whose n-grams the other contains), run,
    whole or jaccard; empty without a match."""
    verdicts: str = ""
    """All rules that apply to the pair, separated by blanks. `shared`, a common n-gram, is not a match by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question with its reference answer: (q, a_phi) if generated, (q, a*) if from a data set."""

    question_id: str = field(metadata=QUESTION)
    """Identifier of the question."""
    text: str = field(metadata=TEXT)
    """Text of the question, without its choices."""
    choices: list[str] = field(metadata=TEXT)
    """Choices in the order of the prompt; empty for a free-form question."""
    answer: str
    """Reference answer: the letter for multiple choice, the value otherwise."""
    verifier: str
    """Verifier that checks answers, a module in `infuser_core/verifiers`; set by the route, never by model output."""
    domain: str = ""
    """Broad area, or empty."""
    subdomain: str = ""
    """Specialisation, or empty."""
    document_id: str = field(default="", metadata=DOCUMENT)
    """Source document of the question; empty for data sets."""
    rollout_id: str = field(default="", metadata=ROLLOUT)
    """Generator rollout that contains it; empty for data sets."""
    reasoning: str = field(default="", metadata=column("author's reasoning", text=True))
    """The generator's reasoning about the reference answer; empty for data sets."""
    grading: str = ""
    """Settings that differ from the verifier's defaults, as JSON (see `verifiers/parts/grading.py`); empty for
    none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionLabel:
    """Topic of a generated question and correctness of its reference answer, from an oracle such as the nano lab's.

    Only for reports and controls: no phase reads it.
    """

    question_id: str = field(metadata=QUESTION)
    """Question labelled."""
    topic: str
    """Topic, or "unknown"."""
    key: str
    """Whether the reference answer is correct: sound, unsound or unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyAccuracy:
    """Estimated share of an iteration's generated questions whose reference answer (key) is correct.

    Only for monitoring: no phase reads it.
    """

    told_by: str
    """Source of the estimate: `labels` of the configured labeller, the `majority` of the solver's answers, or a
    `strong solver`."""
    questions: int
    """Number of generated questions with an estimate."""
    accuracy: float = field(metadata=SHARE)
    """Share of these whose key is correct by the source of the estimate."""
    low: float = field(metadata=SHARE)
    """Lower end of the 95% interval (Wilson, over questions)."""
    high: float = field(metadata=SHARE)
    """Upper end of the 95% interval (Wilson, over questions)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One response sampled from a model, with the sampler's log-probabilities (pi_old in eq:unified_obj)."""

    rollout_id: str = field(metadata=ROLLOUT)
    """`<group_id>/<sample index>`."""
    group_id: str = field(metadata=GROUP)
    """Question id (solver) or document id (generator)."""
    sample_index: int
    """Position among the group's responses, 0-based."""
    role: str
    """solver or generator."""
    checkpoint_id: str = field(metadata=CHECKPOINT)
    """Checkpoint from which the response was sampled."""
    prompt_token_ids: Sequence[int] = field(metadata=column("prompt tokens"))
    """Prompt tokens."""
    token_ids: Sequence[int] = field(metadata=column("tokens"))
    """Response tokens, including the end-of-sequence token if it was sampled."""
    sampler_logprobs: Sequence[float] = field(metadata=column("mean log-probability", unit="nats"))
    """Log-probability of each response token at the sampling temperature, nats."""
    text: str = field(metadata=TEXT)
    """Decoded response without special tokens."""
    finish_reason: str
    """stop or length."""
    verdict: str
    """The verifier's verdict (solver), or valid or invalid (generator)."""
    reward: float
    """Solver: 1.0 if correct, else 0.0. Generator: 0.0, as rewards are in GeneratorScore."""
    malformed_reason: str
    """Why the generator's response is not a valid question; empty otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InfluenceScore:
    """Optimizer-aware influence of one question on the dev set (eq:estimated_influence_score).

    g is the question's gradient, Gamma its AdamW-preconditioned direction, g_dev the dev reference direction.
    """

    question_id: str = field(metadata=QUESTION)
    """Question scored."""
    status: str
    """A value of ScoreStatus. Only `scored` rows have a direction, unless real steps measured the score; `not_finite`
    rows have the numbers that are not finite."""
    score: float = field(metadata=column("influence"))
    """The influence score configured for the run, which is the generator's reward."""
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
    solver_accuracy: float = field(metadata=SHARE)
    """Mean reward of the solver's responses to the question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerLogprobs:
    """A response's log-probabilities under the trainer at the start of the iteration: the update's old policy."""

    rollout_id: str = field(metadata=ROLLOUT)
    """Solver rollout."""
    logprobs: Sequence[float] = field(metadata=column("mean log-probability", unit="nats"))
    """Log-probability of each response token at the sampling temperature, nats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorScore:
    """Reward and advantage of one generator rollout (the paper's Phase 4)."""

    rollout_id: str = field(metadata=ROLLOUT)
    """Generator rollout."""
    document_id: str = field(metadata=DOCUMENT)
    """Document from which the question was generated."""
    reward: float
    """Influence score of the question, or the penalty rho_inv for an invalid one. A reward that is not finite is not
    used."""
    advantage: float
    """DuGRPO advantage (eq:gen_advantage); 0 if the rollout is not trained on."""
    trained: bool
    """Whether the rollout is trained on: false if its group's rewards are all equal, which gives no gradient, or if a
    reward or gradient is not finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """One AdamW step on a role's weights, with diagnostics of its minibatch."""

    role: str
    """solver or generator."""
    step: int
    """AdamW's step count since the anchor, including this step unless it was skipped."""
    num_groups: int = field(metadata=column("groups"))
    """Number of groups in the minibatch."""
    num_responses: int = field(metadata=column("responses"))
    """Number of responses in the minibatch."""
    num_tokens: int = field(metadata=column("tokens"))
    """Number of response tokens in the minibatch."""
    flat_share: float = field(metadata=column("groups without variance", share=True))
    """Share of the phase's groups that were left out because all their rewards are equal."""
    loss: float
    """Loss of the minibatch: the negative objective."""
    gradient_norm: float
    """Global norm of the gradient before clipping."""
    learning_rate: float
    """Learning rate of the step."""
    clip_fraction: float = field(metadata=column("clipped tokens", share=True))
    """Share of response tokens for which the clipped branch of the objective was active."""
    clip_fraction_high: float = field(metadata=column("clipped at the upper end", share=True))
    """Share of response tokens clipped at the upper end of the range."""
    mean_ratio: float
    """Mean importance ratio pi / pi_old over response tokens."""
    mean_tis: float
    """Mean truncated importance weight (trainer probability over sampler probability) over response tokens."""
    truncated: float = field(metadata=column("truncated weights", share=True))
    """Share of response tokens whose importance weight was truncated."""
    sampler_kl: float = field(metadata=column("KL to the sampler", unit="nats"))
    """Estimate (k3) of KL(sampler || policy before the update) per token, nats."""
    policy_kl: float = field(metadata=column("KL of the update", unit="nats"))
    """Estimate (k3) of KL(policy before the update || current) per token, nats."""
    anchor_kl: float = field(metadata=column("KL to the anchor", unit="nats"))
    """Estimate (k3) of KL(current || anchor) per token, nats; 0 without `cotrain.loss.kl`."""
    entropy: float = field(metadata=NATS)
    """Estimate of the policy's entropy per token, nats: mean -log pi of the sampled tokens."""
    cut: int
    """Number of responses in the minibatch that were cut off at the length limit."""
    below_epsilon: float = field(metadata=SHARE)
    """Share of parameters for which the root of AdamW's bias-corrected second moment is below epsilon after the
    step."""
    skipped: bool
    """Whether no step was taken because the minibatch's gradient norm is not finite, although that of each group is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """Time, arithmetic and memory of one pass of a trainer.

    These depend on the machine and its load: the table is no part of an artifact's digest.
    """

    role: str
    """solver or generator."""
    work: str
    """`step`, a gradient with an optimizer step; `trial`, one whose step was undone; `gradient`, one without a step;
    `scoring`; or `logprobs`."""
    step: int
    """The optimizer's step count since the anchor, after the pass."""
    num_tokens: int = field(metadata=column("tokens"))
    """Number of response tokens in the pass's groups."""
    computed_tokens: int
    """Number of tokens computed: each group's prompt once, and its responses without those of advantage 0."""
    seconds: float = field(metadata=column(unit="s"))
    """Wall time since the previous pass ended, or since the phase received the trainer."""
    tokens_per_second: float = field(metadata=column("tokens/s"))
    """computed_tokens / seconds."""
    flops: float | None = field(metadata=DETAIL)
    """FLOPs of the model, of which recomputed activations are no part; null for a model whose shape is unknown."""
    flops_per_second: float | None = field(metadata=column("FLOP/s"))
    """flops / seconds."""
    mfu: float | None = field(metadata=column("MFU", share=True))
    """Share of the accelerators' dense bf16 rate; null on a CPU, and for a card that is not in the table of cards."""
    idle_share: float | None = field(metadata=column("idle", share=True))
    """Share of `seconds` in which no forward pass, backward pass or optimizer step was in progress: data preparation,
    files, waiting. Mean over ranks; null for a trainer of another package."""
    peak_memory: float | None = field(metadata=column("peak memory", unit="GB"))
    """Most memory of tensors during the pass on an accelerator, of the fullest rank; on a CPU that of the process since
    its start; null for a trainer of another package."""
    device: str = field(metadata=DETAIL)
    """The driver's name of the accelerator, or `cpu` with its threads."""


TOKEN_MEANS = (
    "clip_fraction", "clip_fraction_high", "mean_ratio", "mean_tis", "truncated",
    "sampler_kl", "policy_kl", "anchor_kl", "entropy",
)  # fmt: skip
"""Columns of Update that are means over response tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Training state of a role: a folder with the weights and AdamW's moments m and v, and the step count."""

    checkpoint_id: str = field(metadata=CHECKPOINT)
    """Artifact id of the checkpoint."""
    role: str
    """solver or generator; the anchor serves both."""
    path: str
    """Folder in Hugging Face layout, with weights and `optimizer.safetensors`."""
    step: int
    """Number of optimizer steps taken since the anchor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient:
    """Norm and counts of the dev reference direction g_dev (eq:hat_g_dev); its tensors are in another file."""

    norm: float
    """||g_dev||; 0 if no dev question has responses that differ in reward."""
    num_groups: int = field(metadata=column("groups"))
    """Number of dev questions."""
    num_varied: int
    """Number of dev questions whose responses differ in reward; only these have a gradient."""
    averaged: int
    """Number of gradients averaged: always 1, except in older stores, which may have means over several iterations."""
    accuracy: float = field(metadata=SHARE)
    """Mean reward of the responses to dev questions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotFinite:
    """A group left out of a batch because a number is infinite or NaN.

    Only artifacts with such a group have the table `not_finite`.
    """

    group_id: str = field(metadata=GROUP)
    """Question id (solver) or document id (generator); rollout id if a reward is not finite."""
    quantity: str
    """First quantity that is not finite: loss, gradient, score, reward or change."""
    value: float
    """Its value; for a gradient, the norm."""
    tensor: str
    """First parameter, by name, whose gradient is not finite; empty if all are finite."""

    def __str__(self) -> str:
        tensor = f", its gradient not finite in {self.tensor}" if self.tensor else ""
        return f"{self.quantity} of {self.group_id} is {self.value}{tensor}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFact:
    """A named number in the overlap audit's summary."""

    name: str
    """Name of the number."""
    value: float
    """Its value."""


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
"""Description by name of every column of this module's row types and of tables made from commit records."""


def heading(name: str) -> str:
    """Human-readable heading of a column, with its unit."""
    column = COLUMNS.get(name, Column())
    label = column.label or name.replace("_", " ")
    return label if not column.unit or column.unit in label else f"{label}, {column.unit}"
