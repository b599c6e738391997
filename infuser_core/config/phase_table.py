"""Table of the pipeline's phases: one row per phase, with all facts about it that the program uses.

A phase is a kind of stage; its name identifies artifacts in stores, positions in a run (`PHASE@ITERATION`) and queries.
A member equals its name, so `record.phase == Phase.SELECT` compares strings; a misspelt member raises.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum

MOMENTS, WEIGHTS, GRADIENT = "moments", "weights", "gradient"
"""Large data of artifacts: weights and the optimizer's moments in checkpoints, and a gradient for later phases."""


class PipelinePart(Enum):
    """Parts of the pipeline, in order."""

    CORPUS = "textbooks, and the documents made from them"
    START = "inputs of every iteration"
    TEST = "tests of one checkpoint; their iteration counts the iterations that it has seen"
    LOOP = "an iteration of co-training"
    END = "comparison of all checkpoints"
    STUDY = "studies of a run that is over"


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A number of a phase that is drawn as a curve over iterations."""

    title: str
    """Title of the chart."""
    value: str
    """Entry of the artifact's summary that is drawn."""
    over: str = ""
    """Entry by which `value` is divided; empty for none, `rollouts` for the number of rollouts."""
    unit: str = "%"
    """Unit of the numbers; `%` for shares from 0 to 1."""
    low: str = ""
    """Entry with the lower end of the 95% interval; empty for none."""
    high: str = ""
    """Entry with the upper end of the 95% interval; empty for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseFacts:
    """One row of the table: facts about a phase."""

    name: str
    """Name in stores, journals and on the command line: never changed."""
    words: str = ""
    """Human-readable name of its product; empty if the phase's name says it."""
    part: PipelinePart
    """Part of the pipeline."""
    reads: tuple[str, ...] = ()
    """Those of MOMENTS, WEIGHTS and GRADIENT that its stages read from their inputs."""
    makes: tuple[str, ...] = ()
    """Those of MOMENTS, WEIGHTS and GRADIENT that its artifacts contain."""
    responses: str = ""
    """Name of the responses in its artifacts whose form `report habits` can describe; empty for none."""
    curves: tuple[Curve, ...] = ()
    """Numbers that are drawn over iterations."""
    headline: str = ""
    """Metric in the line that the terminal prints per iteration; empty for none."""


_STATE = (MOMENTS, WEIGHTS)


class Phase(StrEnum):
    """Every phase, in the order of the pipeline."""

    facts: PhaseFacts

    def __new__(cls, facts: PhaseFacts) -> "Phase":
        """Make a member that equals the phase's name."""
        member = str.__new__(cls, facts.name)
        member._value_ = facts.name
        member.facts = facts
        return member

    TAXONOMY = PhaseFacts(name="taxonomy", words="topics", part=PipelinePart.CORPUS)
    TEXTBOOKS = PhaseFacts(name="textbooks", words="shelf of textbooks", part=PipelinePart.CORPUS)
    SEARCH = PhaseFacts(name="search", words="offers of catalogues", part=PipelinePart.CORPUS)
    CHOOSE = PhaseFacts(name="choose", words="chosen textbooks", part=PipelinePart.CORPUS)
    DOWNLOAD = PhaseFacts(name="download", words="fetched textbooks", part=PipelinePart.CORPUS)
    SOURCES = PhaseFacts(name="sources", words="textbooks", part=PipelinePart.CORPUS)
    CONVERT = PhaseFacts(name="convert", words="pages of textbooks", part=PipelinePart.CORPUS)
    STRUCTURE = PhaseFacts(name="structure", part=PipelinePart.CORPUS)
    CHUNK = PhaseFacts(name="chunk", words="chunks of textbooks", part=PipelinePart.CORPUS)
    JUDGE = PhaseFacts(name="judge", words="judged chunks", part=PipelinePart.CORPUS)
    AUDIT = PhaseFacts(name="audit", words="overlap audit", part=PipelinePart.CORPUS)
    POOL = PhaseFacts(name="pool", words="document pool", part=PipelinePart.CORPUS)
    BUILT_POOL = PhaseFacts(name="built_pool", part=PipelinePart.CORPUS)
    GIVEN_POOL = PhaseFacts(name="given_pool", part=PipelinePart.CORPUS)

    QUESTIONS = PhaseFacts(name="questions", words="given questions", part=PipelinePart.START)
    TRAINING_POOL = PhaseFacts(name="training_pool", part=PipelinePart.START)
    BASE = PhaseFacts(name="base", part=PipelinePart.START)
    ANCHOR = PhaseFacts(name="anchor", words="anchor model", part=PipelinePart.START, makes=_STATE)

    RESPOND = PhaseFacts(name="respond", words="answers to an exam", part=PipelinePart.TEST, reads=(WEIGHTS,))
    VALIDATE = PhaseFacts(
        name="validate",
        words="validation accuracy",
        part=PipelinePart.TEST,
        responses="answers to the validation set",
        curves=(Curve(title="Validation accuracy", value="accuracy", low="low", high="high"),),
        headline="accuracy",
    )
    EVALUATE = PhaseFacts(name="evaluate", words="benchmark accuracy", part=PipelinePart.TEST)

    ROLLOUT_DEV = PhaseFacts(
        name="rollout_dev",
        words="answers to the dev set",
        part=PipelinePart.LOOP,
        reads=(WEIGHTS,),
        responses="answers to the dev set, before each update",
    )
    DEV_GRADIENT = PhaseFacts(
        name="dev_gradient",
        part=PipelinePart.LOOP,
        reads=_STATE,
        makes=(GRADIENT,),
        curves=(Curve(title="Norm of the dev gradient", value="norm", unit=""),),
    )
    ALLOCATE = PhaseFacts(name="allocate", words="shares of documents", part=PipelinePart.LOOP)
    GENERATE_QUESTIONS = PhaseFacts(
        name="generate_questions",
        words="generated questions",
        part=PipelinePart.LOOP,
        reads=(WEIGHTS,),
        curves=(Curve(title="Texts that became questions", value="valid", over="written"),),
        headline="valid_share",
    )
    ROLLOUT_QUESTIONS = PhaseFacts(
        name="rollout_questions",
        words="answers to generated questions",
        part=PipelinePart.LOOP,
        reads=(WEIGHTS,),
        responses="answers to generated questions",
        curves=(
            Curve(title="Right answers (reward)", value="accuracy"),
            Curve(title="Questions with a right key", value="key_accuracy", low="key_low", high="key_high"),
            Curve(title="Length of the answers", value="tokens", over="rollouts", unit="tokens"),
        ),
        headline="accuracy",
    )
    CHECK_KEYS = PhaseFacts(
        name="check_keys",
        words="strong solver's answers to generated questions",
        part=PipelinePart.LOOP,
        responses="strong solver's answers to generated questions",
    )
    SCORE_INFLUENCE = PhaseFacts(
        name="score_influence",
        words="influence scores",
        part=PipelinePart.LOOP,
        reads=(*_STATE, GRADIENT),
        curves=(Curve(title="Mean influence of the questions", value="mean_score", unit=""),),
        headline="mean_score",
    )
    UPDATE_GENERATOR = PhaseFacts(
        name="update_generator", words="generator after update", part=PipelinePart.LOOP, reads=_STATE, makes=_STATE
    )
    UPDATE_SOLVER = PhaseFacts(
        name="update_solver",
        words="solver after update",
        part=PipelinePart.LOOP,
        reads=_STATE,
        makes=_STATE,
    )

    SELECT = PhaseFacts(name="select", words="selected checkpoint", part=PipelinePart.END)
    LEAKAGE = PhaseFacts(name="leakage", words="leakage check", part=PipelinePart.END)

    CONTAMINATION = PhaseFacts(
        name="contamination", words="contamination probe", part=PipelinePart.STUDY, reads=(WEIGHTS,)
    )
    GIVEN_QUESTIONS = PhaseFacts(name="given_questions", part=PipelinePart.STUDY)
    SCORE_GIVEN = PhaseFacts(name="score_given", part=PipelinePart.STUDY, reads=(*_STATE, GRADIENT))
    JUDGE_QUESTIONS = PhaseFacts(name="judge_questions", part=PipelinePart.STUDY)
    QUALITY = PhaseFacts(name="quality", part=PipelinePart.STUDY)
    NAMED_SCORES = PhaseFacts(name="named_scores", part=PipelinePart.STUDY, reads=(*_STATE, GRADIENT))
    PREDICTION_STUDY = PhaseFacts(name="prediction_study", part=PipelinePart.STUDY, reads=_STATE)
    GRADIENT_STUDY = PhaseFacts(name="gradient_study", part=PipelinePart.STUDY, reads=_STATE)
    SELECTION_STUDY = PhaseFacts(name="selection_study", part=PipelinePart.STUDY, reads=_STATE)


FACTS: Mapping[str, PhaseFacts] = {phase: phase.facts for phase in Phase}
"""Facts about phases by name, for look-ups of names that this version may not have."""


def phases(rule: Callable[[PhaseFacts], object]) -> tuple[Phase, ...]:
    """Phases whose facts satisfy a rule, in the order of the pipeline."""
    return tuple(phase for phase in Phase if rule(phase.facts))


LOOP = phases(lambda row: row.part is PipelinePart.LOOP)
"""Phases of an iteration."""
TESTS = phases(lambda row: row.part is PipelinePart.TEST)
"""Phases that test one checkpoint."""
MEASUREMENTS = phases(lambda row: row.part in (PipelinePart.TEST, PipelinePart.END))
"""Phases that test and compare checkpoints, always with the latest settings of a run."""
GRADINGS = phases(lambda row: row.part is PipelinePart.TEST and not row.reads)
"""Phases whose artifacts have the verdicts and scores of a checkpoint's responses."""
CHECKPOINTS = phases(lambda row: WEIGHTS in row.makes)
"""Phases whose artifacts are checkpoints."""
UPDATES = phases(lambda row: WEIGHTS in row.makes and row.reads)
"""Phases that make a checkpoint from another."""
GRADIENTS = phases(lambda row: GRADIENT in row.makes)
"""Phases whose artifacts have a gradient for a later phase."""
