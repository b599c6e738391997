"""Data that a pool is compared with: folders of shards, each a stream of records, each record one or several texts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from infuser_core import durable, sealed
from infuser_core.errors import UsageError
from infuser_core.schemas import Question
from infuser_core.sealed import digest_of_file

SUFFIXES = (".parquet", ".jsonl", ".ndjson", ".json")
OTHER_ROLES = frozenset({"system", "developer", "environment", "tool", "function", "ipython", "observation"})
"""Roles whose turns are left out: boilerplate and tool output. What a user or an assistant says, under whatever name,
can be a book's text (appendix: deduplication check)."""
_MESSAGES = ("messages", "conversations", "conversation")
_NAMES = ("question_id", "doc_id", "document_id", "id", "uuid")
_QUESTIONS = ("question_text", "question", "problem")
_ANSWERS = ("ground_truth", "answer", "solution")
_TEXTS = ("text", "content", "page_content")
_ASKED = ("prompt", "instruction", "query", "problem_statement")
_CONTEXT = ("input", "context")
_REPLIED = ("response", "completion", "output", "chosen")
_IGNORED = frozenset({"infos.json", "dataset_info.json", "dataset_infos.json", "state.json"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One file of a reference."""

    name: str
    """Path below the folder that was named, or the file's name."""
    path: Path
    """The file."""
    num_bytes: int
    """Its size, bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One text of a record."""

    record: int
    """Number of the record in its shard, 0-based."""
    name: str
    """The record's own identifier, or empty."""
    part: str
    """Kind of text: messages, question, question+answer, text, or fields."""
    text: str
    """The text."""


def digests_of(shards: Sequence[Shard], record: Path) -> list[str]:
    """sha256 of the shards. A file whose size and time of change are in the record is not read again."""
    try:
        known = sealed.read(record)
    except (FileNotFoundError, ValueError):
        known = {}
    status = [(shard.path.absolute(), shard.path.stat()) for shard in shards]
    names = [f"{path}|{found.st_size}|{found.st_mtime_ns}" for path, found in status]
    fresh = {name: digest_of_file(shard.path) for name, shard in zip(names, shards, strict=True) if name not in known}
    if fresh:
        sealed.write(record, {**known, **fresh})
    return [(known | fresh)[name] for name in names]


def shards_of(paths: Sequence[Path]) -> list[Shard]:
    """The files of all references in order. Raises UsageError when one has none that can be read."""
    found: list[Shard] = []
    for path in paths:
        files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if _is_data(p, path))
        if path.is_dir() and not files:
            has_arrow = any(path.rglob("*.arrow"))
            arrow = " (it has .arrow files: load the data set and write it as parquet)" if has_arrow else ""
            raise UsageError(f"{path}: no parquet, jsonl or json file there{arrow}", hint="name a data set's folder")
        if not path.exists():
            raise UsageError(f"{path}: no such file or folder", hint="--reference names parquet, jsonl or json data")
        if path.is_file() and path.suffix not in SUFFIXES:
            raise UsageError(f"{path}: not one of {', '.join(SUFFIXES)}", hint="convert it to jsonl or parquet")
        for file in files:
            name = file.relative_to(path).as_posix() if path.is_dir() else file.name
            found.append(Shard(name=name, path=file, num_bytes=file.stat().st_size))
    return told_apart(found)


def _is_data(path: Path, folder: Path) -> bool:
    hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
    return path.suffix in SUFFIXES and path.is_file() and not hidden and path.name not in _IGNORED


def serialise(question: Question) -> str:
    """Question, choices and reference answer in one string."""
    return " ".join([question.text, *question.choices, question.answer])


def question_shards(sets: Mapping[str, Sequence[Question]], folder: Path) -> list[Shard]:
    """Question sets by name as files in `folder`: each question alone, and with its choices and answer."""
    shards = []
    for name, rows in sets.items():
        lines = [
            json.dumps({"question_id": q.question_id, "question": q.text, "choices": q.choices, "answer": q.answer})
            for q in rows
        ]
        path = folder / f"{name.replace('/', '_')}.jsonl"
        durable.write(path, "".join(f"{line}\n" for line in lines))
        shards.append(Shard(name=path.name, path=path, num_bytes=path.stat().st_size))
    return shards


def told_apart(shards: list[Shard]) -> list[Shard]:
    """Names that several references use are written out in full."""
    names = [shard.name for shard in shards]
    return [shard if names.count(shard.name) == 1 else replace(shard, name=str(shard.path)) for shard in shards]


def texts_of(number: int, row: Mapping[str, Any]) -> list[Reference]:
    """The texts of a record: a conversation's user and assistant turns, also as a prompt with its response, a question
    alone and with its choices and answer, a text; of an unknown shape all its strings."""
    name = next((str(row[key]) for key in _NAMES if row.get(key) is not None), "")

    def made(part: str, text: str) -> Reference:
        return Reference(record=number, name=name, part=part, text=text)

    for key in _MESSAGES:
        if isinstance(row.get(key), list):
            return [made("messages", _turns(row[key]))]
    asked, context, replied = (_value(row, names) for names in (_ASKED, _CONTEXT, _REPLIED))
    if asked and replied:
        return [made("messages", _turns([*_as_turns(asked), *_as_turns(context), *_as_turns(replied)]))]
    question = _first(row, _QUESTIONS)
    if question:
        whole = " ".join([question, *_choices(row.get("choices") or row.get("options")), _first(row, _ANSWERS)]).strip()
        parts = [made("question", question)]
        return parts if whole == question else [*parts, made("question+answer", whole)]
    text = _first(row, _TEXTS)
    if text:
        return [made("text", text)]
    return [made("fields", "\n".join(value for value in row.values() if isinstance(value, str)))]


def _value(row: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((row[name] for name in names if row.get(name)), None)


def _as_turns(said: Any) -> list[Any]:
    """A text as a turn; turns as they are."""
    if isinstance(said, str):
        return [{"role": "user", "content": said}]
    return list(said) if isinstance(said, list) else []


def _turns(messages: Sequence[Any]) -> str:
    turns = [turn for turn in messages if isinstance(turn, dict)]
    said = [
        turn.get("content") or turn.get("value")
        for turn in turns
        if (turn.get("role") or turn.get("from")) not in OTHER_ROLES
    ]
    return "\n".join(_said(content) for content in said if content)


def _said(content: Any) -> str:
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _first(row: Mapping[str, Any], keys: Sequence[str]) -> str:
    values = (row.get(key) for key in keys)
    return next((str(value) for value in values if isinstance(value, str | int | float) and value != ""), "")


def _choices(value: Any) -> list[str]:
    if isinstance(value, dict):
        value = value.get("text") if isinstance(value.get("text"), list) else list(value.values())
    return [str(choice) for choice in value] if isinstance(value, list) else []
