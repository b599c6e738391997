"""Import and export document pools in other formats: documents.json and chunk files of the paper, JSONL and parquet.

Fields for which a document has no column are stored next to the pool, in `extra.jsonl`, and restored on export.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from corpus.audit.references import SUFFIXES
from corpus.chunk.chunk import PATH_JOINT
from corpus.chunk.split import count_tokens
from corpus.pool import DOCUMENTS, IMPORTED, SOURCES, pool_file, typed_rows, write_errors, write_json, write_table
from infuser_core.errors import DocumentError, UsageError, quantity
from infuser_core.evaluation.benchmarks.parts.files import rows_of
from infuser_core.plugins import MAIN_ROUTE, ROUTES
from infuser_core.schemas import Document
from infuser_core.system import durable
from infuser_core.system.sealed import digest_of_file

EXTRA = "extra.jsonl"
_OURS = [field.name for field in fields(Document)]
# Fields of documents.json to fields of Document. The text is in `content` or `text`.
_AUTHORS = {"doc_id": "document_id", "field": "domain", "source_pdf": "source_id", "token_count": "num_tokens"}
_HEADERS = tuple(f"Header {level}" for level in range(1, 7))


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """An imported document and its row of `extra.jsonl`."""

    document: Document
    extra: dict[str, Any]
    """Fields for which a document has no column, and the original values of the others."""
    is_counted: bool
    """Whether its tokens were counted during the import, because the file has no count."""


def import_pool(path: Path, out: Path) -> dict[str, Any]:
    """Import a file of documents as a pool into the folder `out`; returns its counts.

    Raises DocumentError if the file has no documents, UsageError for other kinds of files or if `out` has a built pool.
    """
    if (out / SOURCES).is_file():
        raise UsageError(f"{out} holds a pool that was built from sources", hint="name another folder with --out")
    imports = _import_file(path)
    with write_errors(out):
        write_table(out / DOCUMENTS, [row.document for row in imports], Document)
        lines = [json.dumps(row.extra, ensure_ascii=False) for row in imports]
        durable.write(out / EXTRA, "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass"))
        facts = {
            "kind": "documents",
            "documents": len(imports),
            "kept_beside": sorted({name for row in imports for name in row.extra["fields"]}),
            "counted_here": sum(row.is_counted for row in imports),
        }
        write_json(out / IMPORTED, facts)
    return facts


def read_documents(path: Path) -> list[Document]:
    """Read documents, from the folder of a pool or from a file that can be imported.

    Raises DocumentError or UsageError for anything else.
    """
    if path.is_dir():
        return list(typed_rows(pool_file(path), Document))
    return [row.document for row in _import_file(path)]


def pool_digest(path: Path) -> str:
    """Digest of a pool's file of documents. Raises DocumentError if there is no such file."""
    file = pool_file(path)
    try:
        return f"{file.suffix}:{digest_of_file(file)}"
    except OSError as error:
        raise DocumentError(f"corpus.pool = {path}: {error.strerror}", hint="name a pool that can be read") from error


def _import_file(path: Path) -> list[Imported]:
    if path.is_dir():
        raise UsageError(f"{path} is a folder", hint="name one file: documents.json, JSONL or parquet")
    if not path.is_file():
        raise DocumentError(f"{path}: no such file", hint="name documents.json, a chunk file, JSONL or parquet")
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{path}: not one of {', '.join(SUFFIXES)}", hint="books are built: `infuser corpus build`")
    rows: list[Mapping[str, Any]] = list(rows_of(path))
    if not rows:
        raise DocumentError(f"{path}: no rows in it", hint="a list of documents")
    if "question_text" in rows[0] and "ground_truth" in rows[0]:
        raise DocumentError(f"{path}: questions, and no documents", hint="a run reads question sets as they are")
    imports = [_import_row(row, place, path) for place, row in enumerate(rows)]
    counts = Counter(row.document.document_id for row in imports)
    twice = next((name for name, count in counts.items() if count > 1), None)
    if twice is not None:
        raise DocumentError(f"{path}: two rows have the id {twice!r}", hint="make identifiers unique")
    empty = next((row.document.document_id for row in imports if not row.document.text.strip()), None)
    if empty is not None:
        raise DocumentError(f"{path}: the document {empty!r} has no text", hint="leave it out")
    return imports


def _import_row(row: Mapping[str, Any], place: int, path: Path) -> Imported:
    """Convert a row of documents.json or a similar file, or of a chunk file, whose rows have `page_content`."""
    if "page_content" in row:
        metadata = row["metadata"] if isinstance(row.get("metadata"), dict) else {}
        titles = [str(metadata[name]) for name in _HEADERS if metadata.get(name)]
        source = str(metadata.get("source_pdf") or path.name.partition(".")[0])
        values = {"document_id": f"{source}-{place}", "source_id": source, "header_path": PATH_JOINT.join(titles)}
        if isinstance(metadata.get("token_count"), int):
            values["num_tokens"] = metadata["token_count"]
        return _build_import(str(row["page_content"]), values, row, "page_content", path, place)
    key = next((name for name in ("content", "text") if isinstance(row.get(name), str)), None)
    if key is None:
        raise DocumentError(
            f"{path}: row {place} has no content and no text", hint="documents.json needs doc_id, content"
        )
    name = next((row[key] for key in ("doc_id", "document_id", "id") if row.get(key) is not None), None)
    if name is None:
        raise DocumentError(f"{path}: row {place} has no doc_id", hint="documents.json needs doc_id and content")
    values = {ours: row[theirs] for theirs, ours in _AUTHORS.items() if row.get(theirs) is not None}
    values |= {name: row[name] for name in _OURS if row.get(name) is not None}
    return _build_import(row[key], {**values, "document_id": str(name)}, row, key, path, place)


def _build_import(
    text: str, values: Mapping[str, Any], row: Mapping[str, Any], key: str, path: Path, place: int
) -> Imported:
    """Make a document of the values of a row: count tokens if there is no count, leave other missing values empty."""
    prompt_type = str(values.get("prompt_type") or MAIN_ROUTE)
    if prompt_type != MAIN_ROUTE and prompt_type not in (routes := ROUTES.names()):
        raise DocumentError(f"{path}: row {place} has prompt_type {prompt_type!r}", hint=", ".join(routes))
    tokens = values.get("num_tokens")
    document = Document(
        document_id=str(values["document_id"]),
        source_id=str(values.get("source_id", "")),
        header_path=str(values.get("header_path", "")),
        start=int(values.get("start", 0)),
        end=int(values.get("end", len(text))),
        text=text,
        num_tokens=int(tokens) if isinstance(tokens, int | float) else count_tokens(text),
        domain=str(values.get("domain", "")),
        prompt_type=prompt_type,
    )
    columns = {key, *_OURS, *_AUTHORS}
    extra = {name: value for name, value in row.items() if name not in columns}
    # Keep the original values for export: some were converted to text, and some columns were missing.
    origin = {name: value for name, value in row.items() if name in columns and name != key}
    return Imported(
        document=document,
        extra={"document_id": document.document_id, "fields": extra, "origin": origin, "key": key},
        is_counted="num_tokens" not in values,
    )


def export_pool(pool: Path, format_: str, out: Path) -> dict[str, Any]:
    """Export a pool's documents as documents.json, JSONL or parquet; all but parquet get the fields of `extra.jsonl`.

    Raises DocumentError if there is no pool, UsageError for a target that is a folder or the pool's file.
    """
    if out.is_dir():
        raise UsageError(f"{out} is a folder", hint="name the file to write with --out")
    path = pool_file(pool)
    if out.exists() and out.samefile(path):
        raise UsageError(f"{out} is the pool itself", hint="name another file with --out")
    extra_file = path.parent / EXTRA
    extra_lines = extra_file.read_bytes().decode("utf-8", "surrogatepass").split("\n") if extra_file.is_file() else []
    extra_rows: Iterator[dict[str, Any]] = (json.loads(line) for line in extra_lines if line)
    extras = {row["document_id"]: row for row in extra_rows if "document_id" in row}
    documents = list(typed_rows(path, Document))
    with write_errors(out):
        if format_ == "parquet":
            write_table(out, documents, Document)
            names = sorted({name for extra in extras.values() for name in extra["fields"]})
            return {"format": format_, "documents": len(documents), "left_out": names}
        rows = [(row, place, extras.get(row.document_id)) for place, row in enumerate(documents)]
        if format_ == "documents-json":
            data = json.dumps([_authors_row(*row) for row in rows], ensure_ascii=False, indent=1) + "\n"
        else:
            lines = [
                {**(extra["fields"] if extra else {}), **{name: getattr(row, name) for name in _OURS}}
                for row, _, extra in rows
            ]
            data = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        durable.write(out, data.encode("utf-8", "surrogatepass"))
    return {"format": format_, "documents": len(documents), "left_out": []}


def _authors_row(document: Document, place: int, extra: Mapping[str, Any] | None) -> dict[str, Any]:
    """Make a row of documents.json; a document that was imported from such a file gets its original row."""
    if extra and extra["key"] in ("content", "text") and "doc_id" in extra["origin"]:
        return {**extra["origin"], extra["key"]: document.text, **extra["fields"]}
    row = {
        "doc_id": document.document_id,
        "content": document.text,
        "field": document.domain,
        "source_pdf": document.source_id,
        "token_count": document.num_tokens,
        "original_doc_idx": place,
        "chunk_idx": place,
        "prompt_type": document.prompt_type,
        "header_path": document.header_path,
        "start": document.start,
        "end": document.end,
    }
    return {**row, **(extra["fields"] if extra else {})}


def describe(facts: Mapping[str, Any], out: Path) -> str:
    """Describe an import or export for the terminal, in one or two lines."""
    lines = [f"{quantity(facts['documents'], 'document')}: {out}"]
    if facts.get("kept_beside"):
        lines.append(f"kept in {EXTRA}: {', '.join(facts['kept_beside'])}")
    if facts.get("left_out"):
        lines.append(f"no column in this format for: {', '.join(facts['left_out'])}")
    return "\n".join(lines)
