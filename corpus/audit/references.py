"""Read the reference data with which an audit compares a pool, such as evaluation questions: files of records.

A file is called a shard; each of its records has one or several texts.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from infuser_core.errors import UsageError
from infuser_core.schemas import Question
from infuser_core.system import durable, sealed
from infuser_core.system.sealed import digest_of_file

SUFFIXES = (".parquet", ".jsonl", ".ndjson", ".json")
OTHER_ROLES = frozenset({"system", "developer", "environment", "tool", "function", "ipython", "observation"})
"""Roles in conversations whose turns are skipped: boilerplate and tool output. Turns of a user or an assistant, under
any name, can contain a book's text (appendix: deduplication check)."""
_MESSAGES = ("messages", "conversations", "conversation")
_NAMES = ("question_id", "doc_id", "document_id", "id", "uuid")
_QUESTIONS = ("question_text", "question", "problem")
_ANSWERS = ("ground_truth", "answer", "solution")
_TEXTS = ("text", "content", "page_content")
_PROMPTS = ("prompt", "instruction", "query", "problem_statement")
_CONTEXT = ("input", "context")
_REPLIES = ("response", "completion", "output", "chosen")
_IGNORED = frozenset({"infos.json", "dataset_info.json", "dataset_infos.json", "state.json"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceShard:
    """One file of reference data."""

    name: str
    """Path below the reference's folder, or the file's name."""
    path: Path
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A text of a reference record."""

    record: int
    """Number of the record in its shard, 0-based."""
    name: str
    """The record's identifier, or empty."""
    part: str
    """Kind of text: messages, question, question+answer, text, or fields."""
    text: str


def digests_of(shards: Sequence[ReferenceShard], cache: Path) -> list[str]:
    """sha256 of each shard; files whose path, size and modification time are in the file `cache` are not read again."""
    try:
        cached = sealed.read(cache)
    except (FileNotFoundError, ValueError):
        cached = {}
    status = [(shard.path.absolute(), shard.path.stat()) for shard in shards]
    names = [f"{path}|{stat.st_size}|{stat.st_mtime_ns}" for path, stat in status]
    fresh = {name: digest_of_file(shard.path) for name, shard in zip(names, shards, strict=True) if name not in cached}
    if fresh:
        sealed.write(cache, {**cached, **fresh})
    return [(cached | fresh)[name] for name in names]


def shards_of(paths: Sequence[Path]) -> list[ReferenceShard]:
    """List the files of all references (files or folders). Raises UsageError for a reference without readable files."""
    shards: list[ReferenceShard] = []
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
            shards.append(ReferenceShard(name=name, path=file, num_bytes=file.stat().st_size))
    return with_unique_names(shards)


def _is_data(path: Path, folder: Path) -> bool:
    hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
    return path.suffix in SUFFIXES and path.is_file() and not hidden and path.name not in _IGNORED


def serialise(question: Question) -> str:
    """Join text, choices and reference answer of a question into one string."""
    return " ".join([question.text, *question.choices, question.answer])


def question_shards(sets: Mapping[str, Sequence[Question]], folder: Path) -> list[ReferenceShard]:
    """Write each question set to a file in `folder`; a record has a question with its choices and answer."""
    shards = []
    for name, rows in sets.items():
        lines = [
            json.dumps({"question_id": q.question_id, "question": q.text, "choices": q.choices, "answer": q.answer})
            for q in rows
        ]
        path = folder / f"{name.replace('/', '_')}.jsonl"
        durable.write(path, "".join(f"{line}\n" for line in lines))
        shards.append(ReferenceShard(name=path.name, path=path, num_bytes=path.stat().st_size))
    return shards


def with_unique_names(shards: list[ReferenceShard]) -> list[ReferenceShard]:
    """Replace names that several shards share by the full paths of the shards."""
    names = [shard.name for shard in shards]
    return [shard if names.count(shard.name) == 1 else replace(shard, name=str(shard.path)) for shard in shards]


def texts_of(number: int, row: Mapping[str, Any]) -> list[Reference]:
    """Extract the texts of reference record `number` that are compared with the pool.

    These are: the user and assistant turns of a conversation or of a prompt with its response; a question alone, and
    the question with its choices and answer; a text; or, for an unknown shape, all strings of the record.
    """
    name = next((str(row[key]) for key in _NAMES if row.get(key) is not None), "")

    def reference(part: str, text: str) -> Reference:
        return Reference(record=number, name=name, part=part, text=text)

    for key in _MESSAGES:
        if isinstance(row.get(key), list):
            return [reference("messages", _turns_text(row[key]))]
    prompt, context, reply = (
        next((row[name] for name in names if row.get(name)), None) for names in (_PROMPTS, _CONTEXT, _REPLIES)
    )
    if prompt and reply:
        turns: list[Any] = []
        for value in (prompt, context, reply):
            if isinstance(value, str):
                turns.append({"role": "user", "content": value})
            elif isinstance(value, list):
                turns += value
        return [reference("messages", _turns_text(turns))]
    question = _first(row, _QUESTIONS)
    if question:
        choices = row.get("choices") or row.get("options")
        if isinstance(choices, dict):
            choices = choices["text"] if isinstance(choices.get("text"), list) else list(choices.values())
        choices = [str(choice) for choice in choices] if isinstance(choices, list) else []
        whole = " ".join([question, *choices, _first(row, _ANSWERS)]).strip()
        parts = [reference("question", question)]
        return parts if whole == question else [*parts, reference("question+answer", whole)]
    text = _first(row, _TEXTS)
    if text:
        return [reference("text", text)]
    return [reference("fields", "\n".join(value for value in row.values() if isinstance(value, str)))]


def _turns_text(turns: Sequence[Any]) -> str:
    """Join the texts of all turns except those of OTHER_ROLES; the content of a turn may be a list of parts."""
    texts: list[str] = []
    for turn in turns:
        if not isinstance(turn, dict) or (turn.get("role") or turn.get("from")) in OTHER_ROLES:
            continue
        content = turn.get("content") or turn.get("value")
        if isinstance(content, list) and content:
            parts = [part.get("text") for part in content if isinstance(part, dict)]
            texts.append("\n".join(part for part in parts if isinstance(part, str)))
        elif content:
            texts.append(content if isinstance(content, str) else "")
    return "\n".join(texts)


def _first(row: Mapping[str, Any], keys: Sequence[str]) -> str:
    values = (row.get(key) for key in keys)
    return next((str(value) for value in values if isinstance(value, str | int | float) and value != ""), "")
