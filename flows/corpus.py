"""The document pool, from the dev set's topics to kept chunks (appendix: document pool construction)."""

from dataclasses import dataclass

from infuser_core.store.recipe import ArtifactRef
from tasks import audits, documents, given_pool, mixture, pool, textbooks
from tasks.run import current
from tasks.stage import subflow


@subflow("build-corpus", "build-corpus")
def build_corpus(run: str, dev: ArtifactRef, validation: ArtifactRef) -> ArtifactRef:
    """The pool as a sub-flow."""
    return document_pool(run, dev, validation)


def document_pool(run: str, dev: ArtifactRef, validation: ArtifactRef) -> ArtifactRef:
    """The documents of the textbooks, or of a pool that is given, without what the audit takes away."""
    place = pool.given(run)
    if place:
        given = given_pool.read_pool(run, place)
        return _audited(run, _Groups(sources=None, pages=[], chunks=[given], judgements=[given]), dev, validation)
    return _audited(run, _textbooks(run, dev), dev, validation)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Groups:
    """Textbooks, group by group."""

    sources: ArtifactRef | None
    """Their registry."""
    pages: list[ArtifactRef]
    """Their Markdown."""
    chunks: list[ArtifactRef]
    """Candidates for the pool."""
    judgements: list[ArtifactRef]
    """Which of them are kept."""


def _textbooks(run: str, dev: ArtifactRef) -> _Groups:
    """Taxonomy, search, download, conversion, structure, chunking, judging."""
    nano = current(run).config.corpus.catalogue.type == "nano"
    topics = textbooks.extract_taxonomy(run, dev)
    books = documents.print_textbooks(run) if nano else None
    searches = [textbooks.search_textbooks(run, topics, books, n) for n in textbooks.topic_groups(run, topics)]
    chosen = textbooks.choose_textbooks(run, topics, searches)
    downloads = [textbooks.download_textbooks(run, chosen, books, n) for n in textbooks.source_groups(run, chosen)]
    sources = textbooks.shelve_textbooks(run, chosen, downloads)
    pages = [documents.convert_textbooks(run, sources, download) for download in downloads]
    chunks = [_chunks(run, sources, *group) for group in zip(downloads, pages, strict=True)]
    judgements = [documents.judge_chunks(run, group) for group in chunks]
    return _Groups(sources=sources, pages=pages, chunks=chunks, judgements=judgements)


def _chunks(run: str, sources: ArtifactRef, download: ArtifactRef, pages: ArtifactRef) -> ArtifactRef:
    """One group's chunks, between the bounds that a model found where the settings ask for one."""
    bounds = documents.find_structure(run, pages) if documents.has_structure_model(run) else None
    return documents.chunk_textbooks(run, sources, download, pages, bounds)


def _audited(run: str, groups: _Groups, dev: ArtifactRef, validation: ArtifactRef) -> ArtifactRef:
    """The overlap audit of each group against questions, of all against other data, and the pool."""
    chunks, judgements = groups.chunks, groups.judgements
    asked = documents.benchmark_questions(run)
    pairs = zip(chunks, judgements, strict=True)
    audited = [audits.audit_overlap(run, *pair, dev, validation, asked) for pair in pairs]
    compared = [audits.audit_reference(run, chunks, judgements, dev, path) for path in audits.references(run)]
    for path in mixture.mixtures(run):
        found = mixture.audit_mixture(run, chunks, judgements, dev, validation, path)
        if mixture.stops(run):
            mixture.refuse_matches(run, found, path)
    return pool.fill_pool(run, groups.sources, groups.pages, chunks, judgements, audited, compared)
