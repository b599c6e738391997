"""Record of an evaluation: the model, its benchmarks, and the identity, all that determines its answers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from infuser_core.errors import ConfigError, DamagedArtifactError, UsageError
from infuser_core.evaluation.plan import Sheet
from infuser_core.store import runs
from infuser_core.system import sealed


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRecord:
    """Model, benchmarks and identity of an evaluation; its journal names the artifacts with the answers."""

    model: str
    """Name of the model as the user wrote it."""
    identity: Mapping[str, Any]
    """Everything that determines the answers."""
    sheets: Sequence[Sheet]
    """Benchmarks in order."""
    notes: Sequence[str] = ()
    """Warnings of the benchmarks' loaders."""

    def write(self, folder: Path) -> None:
        """Write the record into a folder, atomically."""
        sealed.write(folder / runs.EVALUATION, asdict(self))

    @staticmethod
    def read(path: Path) -> "EvaluationRecord":
        """Read the record in a file. Raises DamagedArtifactError if the file holds anything else."""
        try:
            values = sealed.read(path)
            sheets = [Sheet(**sheet) for sheet in values.pop("sheets")]
            return EvaluationRecord(sheets=sheets, **values)
        except (ValueError, KeyError, TypeError) as error:
            hint = "move the folder away and run `infuser eval` again"
            raise DamagedArtifactError(f"{path} is damaged: {error}", hint=hint) from error


def record_folder(root: Path, name: str) -> Path:
    """Folder of an evaluation's record, with its journal and its human-readable tables."""
    return root / runs.EVALUATIONS / name


def read_record(root: Path, name: str) -> EvaluationRecord:
    """Read the record of an evaluation in the store. Raises UsageError if there is none."""
    path = record_folder(root, name) / runs.EVALUATION
    if not path.is_file():
        raise UsageError(f"{name}: there is no such evaluation", hint="`infuser eval` makes one")
    return EvaluationRecord.read(path)


def refuse_other(out: Path, identity: Mapping[str, Any]) -> None:
    """Refuse an export into a folder that holds anything other than the evaluation with this identity.

    Raises ConfigError naming both values of what differs, UsageError for a folder with other files.
    """
    if (out / runs.EVALUATION).is_file():
        request = json.loads(json.dumps(dict(identity)))
        differing = runs.list_differences(EvaluationRecord.read(out / runs.EVALUATION).identity, request)
        changed = [f"{key} is {old!r}, asked {new!r}" for key, old, new in differing]
        if changed:
            raise ConfigError(
                f"{out} holds answers under other settings: {'; '.join(changed[:3])}",
                hint="choose another --out, or leave it out: every combination has a separate record",
            )
    elif out.is_dir() and any(out.iterdir()):
        what = ", ".join(sorted(path.name for path in out.iterdir())[:3])
        raise UsageError(f"{out} holds something else: {what}", hint="choose another --out")
