"""A pool against data: copies are found at any length and in any disguise, offsets point at them, shards resume."""

import json
import os
import random
import signal
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from corpus_rows import document, question, writer
from datasketch import MinHash
from hypothesis import given
from hypothesis import strategies as st

from corpus.audit import index as gramindex
from corpus.audit import shingles
from corpus.audit.audit import MODES, PoolAudit, audit_pool, measure_recall
from corpus.audit.index import Matcher
from corpus.audit.lsh import minhash
from corpus.audit.ngrams import compare, grams, longest_run, places, words
from corpus.audit.planted_controls import CHARS, DISGUISES, LEAST_WORDS, LOOK_ALIKES, Plant, plant_controls
from corpus.audit.references import question_shards, shards_of, texts_of
from corpus.audit.scan import PoolText, Scan, Scanner, pool_texts
from corpus.audit.shingles import signatures, sizes
from corpus.pool import DOCUMENTS, write_table
from infuser_core.config.corpus import OverlapSettings
from infuser_core.errors import DocumentError, KilledProcessError, UsageError
from infuser_core.evaluation.benchmarks.parts.files import rows_of
from infuser_core.schemas import Document, Overlap
from infuser_core.store.tables import read_rows

prose = writer(11)
POOL = [document(f"d{number}", f"{prose(150)}. {prose(250)}!") for number in range(30)]


def chat(*turns: str) -> dict[str, object]:
    roles = ["system", "user", "assistant"]
    return {"id": "x", "messages": [{"role": r, "content": t} for r, t in zip(roles, turns, strict=True)]}


def planted() -> list[dict[str, object]]:
    rows = [chat("s", prose(60), prose(200)) for _ in range(40)]
    rows[3] = chat("s", "Read this:", f"{prose(300)} {POOL[4].text} {prose(300)}")
    rows[5] = chat("s", POOL[6].text[100:500], "ok")
    rows[7] = chat(POOL[8].text, prose(50), prose(100))
    rows[9] = chat("s", " ".join(POOL[10].text.split()[20:28]), "")
    return rows


def write_inputs(folder: Path) -> Path:
    """A pool, and two shards of data to compare it with."""
    write_table(folder / "pool" / DOCUMENTS, POOL, Document)
    (folder / "ref").mkdir()
    lines = "\n".join(json.dumps(row) for row in planted())
    (folder / "ref" / "train-0.jsonl").write_text(lines + "\n")
    (folder / "ref" / "train-1.jsonl").write_text(json.dumps(chat("s", prose(30), prose(30))) + "\n")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_inputs(tmp_path)


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PoolAudit]:
    """The folder and the result of one audit, for tests that only read them."""
    folder = write_inputs(tmp_path_factory.mktemp("audited"))
    return folder, run(folder)


def run(folder: Path, mode: str = "exact", **options):
    return audit_pool(folder / "pool", [folder / "ref"], mode, folder / "out", **options)


def test_copies_are_found_in_both_directions_with_their_places(audited: tuple[Path, PoolAudit]):
    folder, result = audited
    rows = {row.record: row for row in read_rows(folder / "out" / "overlaps.parquet", Overlap) if row.matched}
    # Record 7 has its copy in the system turn, which is not compared.
    assert {(n, row.document_id, row.rule) for n, row in rows.items()} == {
        (3, "d4", "document"),
        (5, "d6", "reference"),
        (9, "d10", "reference"),
    }
    assert rows[3].containment_document == 1.0 and rows[3].longest_run == 400
    run_text = POOL[6].text[rows[5].document_start : rows[5].document_end]
    (reference,) = texts_of(5, {"messages": [{"role": "user", "content": POOL[6].text[100:500]}]})
    record = reference.text
    assert record[rows[5].reference_start : rows[5].reference_end] == run_text and len(run_text) > 350
    assert result.counts["read"] == 41 and result.counts["short"] == 1 and result.counts["matches"] == 3


def test_thirteen_common_words_are_reported_with_their_length_and_are_no_match_alone(folder):
    words = POOL[12].text.split()
    rows = [
        chat("s", f"{prose(300)} {' '.join(words[40 : 40 + size])} {prose(300)}", "ok") for size in (12, 13, 30, 60)
    ]
    (folder / "ref" / "train-1.jsonl").write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    found = {row.record: row for row in run(folder).findings if row.shard == "train-1.jsonl"}
    assert {n: (row.longest_run, row.verdicts, row.matched) for n, row in found.items()} == {
        1: (13, "shared", False),
        2: (30, "shared", False),
        3: (60, "run shared", True),
    }
    report = (folder / "out" / "report.md").read_text()
    assert "| shared | 5 | 3 | 5 | 400 |" in report and "Shared passages that are no match" in report


def test_every_report_has_controls_and_the_papers_recall_beside(audited: tuple[Path, PoolAudit]):
    folder, _ = audited
    summary = json.loads((folder / "out" / "summary.json").read_text())
    controls = {row["kind"]: row for row in summary["controls"]}
    hard = ("one word in ten changed", "verbatim 150 characters inside 2000", "verbatim 300 characters inside 2000")
    expected = [row for row in controls.values() if row["expected"] and row["kind"] not in hard]
    assert len(expected) == 18 and {row["exact"] for row in expected} == {1.0}
    assert controls["verbatim 300 characters"]["paper"] < 0.5
    assert controls["a whole document in an answer"]["paper"] == 0.0
    assert {controls["unrelated words"][mode] for mode in ("exact", "paper", "loose")} == {0.0}
    assert "found by paper" in (folder / "out" / "report.md").read_text()


def test_the_papers_mode_misses_the_document_in_a_long_record(folder):
    lines = (folder / "ref" / "train-0.jsonl").read_text() + json.dumps(chat("s", POOL[2].text, "")) + "\n"
    (folder / "ref" / "train-0.jsonl").write_text(lines)

    def matched(mode: str) -> set[str]:
        scanner = Scanner(pool_texts(folder / "pool"), OverlapSettings(mode=mode).with_defaults())
        findings = [row for shard in shards_of([folder / "ref"]) for row in scanner.scan(shard).findings]
        return {row.document_id for row in findings if row.matched}

    assert "d2" in matched("paper") and "d4" not in matched("paper")
    assert matched("loose") >= {"d2", "d4", "d6"}


def test_finished_shards_are_not_read_again_and_processes_agree(folder, launch):
    arguments = ["--reference", str(folder / "ref"), "--out", str(folder / "out"), "--workers", "1"]
    killed = launch(
        *("corpus", "audit", "--pool", str(folder / "pool"), *arguments),
        store=folder / "store",
        INFUSER_CRASH_AT="audit:shard",
    )
    assert killed.code == -signal.SIGKILL
    (kept,) = (folder / "out" / ".work").rglob("*.json")
    stamp = kept.stat().st_mtime_ns
    first = run(folder)
    assert kept.stat().st_mtime_ns == stamp
    # Another count under the seal of the first: the shard is read again.
    kept.write_text(kept.read_text().replace('"texts": ', '"texts": 1'))
    assert run(folder) == first and kept.stat().st_mtime_ns != stamp
    again = audit_pool(folder / "pool", [folder / "ref"], "exact", folder / "other", workers=2)
    assert again == first


def children() -> set[int]:
    """Processes that this one started."""
    files = Path("/proc/self/task").glob("*/children")
    return {int(child) for file in files for child in file.read_text().split()}


def test_a_killed_process_is_no_verdict_and_the_next_attempt_finds_the_same(folder):
    ended = threading.Event()
    others = children()

    def kill() -> None:
        while not ended.wait(0.01):
            # Each as soon as it is there: others are still being started.
            for child in children() - others:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        with pytest.raises(KilledProcessError, match=r"audit: train-\d.jsonl lost its worker: a process was killed"):
            run(folder, workers=2)
    finally:
        ended.set()
        killer.join()
    assert children() <= others
    assert not (folder / "out" / "overlaps.parquet").exists()
    assert run(folder, workers=2) == audit_pool(folder / "pool", [folder / "ref"], "exact", folder / "other")


def test_records_of_known_shapes_give_their_texts():
    question = {"question_id": "q", "question_text": "Why?", "choices": {"A": "x", "B": "y"}, "ground_truth": "x"}
    assert [(r.part, r.text, r.name) for r in texts_of(0, question)] == [
        ("question", "Why?", "q"),
        ("question+answer", "Why? x y x", "q"),
    ]
    turns = [{"from": "human", "value": "a"}, {"from": "tool", "value": "b"}, {"from": "model", "value": "c"}]
    assert texts_of(0, {"conversations": turns})[0].text == "a\nc"
    parts = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}]}]
    assert texts_of(0, {"messages": parts})[0].text == "a"
    assert texts_of(0, {"content": "t"})[0].part == "text"
    assert texts_of(0, {"prompt": "p", "n": 3, "response": "r"})[0].text == "p\nr"


def test_references_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(UsageError, match="no such"):
        shards_of([tmp_path / "none"])
    with pytest.raises(UsageError, match="no parquet"):
        shards_of([tmp_path])
    (tmp_path / "a.jsonl").write_text('{"a": 1}\nnot json\n')
    with pytest.raises(DocumentError, match="line 2"):
        list(rows_of(tmp_path / "a.jsonl"))


essay = writer(7)
ESSAYS = [document(f"d{n}", essay(400)) for n in range(12)]


@pytest.fixture
def scan(tmp_path):
    """The scan of a set of questions against documents."""

    def scanned(documents, questions, config=OverlapSettings().with_defaults()) -> Scan:
        texts = [PoolText(document_id=row.document_id, text=row.text) for row in documents]
        (shard,) = question_shards({"asked": questions}, tmp_path)
        return Scanner(texts, config).scan(shard)

    return scanned


@pytest.fixture
def matches(scan):
    """By document and question, the pairs that match."""

    def matched(*arguments):
        return {(row.document_id, row.record_id): row for row in scan(*arguments).findings if row.matched}

    return matched


def test_normalisation_and_short_texts():
    assert words("The \ufb01rst,  (Second)\nTHIRD.") == ["the", "first", "second", "third"]
    assert grams(["a", "b"], 3) == ["a b"] and grams([], 3) == [] and grams(list("abcd"), 3) == ["a b c", "b c d"]


def test_numbers_of_a_known_pair():
    shared = compare(["x", "a", "b", "c", "d", "y", "e", "f"], ["a", "b", "c", "d", "e", "f"], 3)
    assert (shared.num_common, shared.run.length, shared.run.first, shared.run.second) == (2, 4, 1, 0)
    assert (shared.containment_second, shared.containment_first) == (2 / 4, 2 / 6)
    assert shared.jaccard == 2 / 8


def test_a_question_inside_a_long_document_is_found(matches):
    text = essay(20)
    pool = [*ESSAYS, document("leak", f"{essay(200)} {text} {essay(200)}")]
    found = matches(pool, [question("q1", text, ["one", "two"]), question("q2", essay(20))])
    assert list(found) == [("leak", "q1")]
    assert found["leak", "q1"].containment_reference >= 0.8


def test_a_document_inside_a_long_question_is_found(matches):
    found = matches([document("small", text := essay(40))], [question("q", f"{essay(300)} {text} {essay(300)}")])
    assert found["small", "q"].containment_document == 1.0


def test_a_long_quotation_in_two_long_texts_is_found_by_its_run(matches):
    run = essay(60)
    found = matches([document("d", f"{essay(300)} {run} {essay(300)}")], [question("q", f"{run} {essay(300)}")])
    row = found["d", "q"]
    assert row.longest_run == 60 and max(row.containment_document, row.containment_reference) < 0.8


def test_short_questions_are_found_at_their_own_length_and_counted(scan):
    pool = [document("d", f"{essay(50)} how many legs has one wug {essay(50)}")]
    found = scan(pool, [question("short", "How many legs has one wug?"), question("tiny", "legs?")])
    assert {row.record_id for row in found.findings if row.matched} == {"short"}
    assert (found.counts["read"], found.counts["short"], found.counts["tiny"]) == (2, 4, 2)


def test_the_papers_mode_finds_copies_and_misses_quotations(matches):
    text = essay(30)
    pool = [*ESSAYS, document("leak", f"{essay(200)} {text} {essay(200)}")]
    questions = [question("copy", ESSAYS[0].text), question("quoted", text)]
    assert list(matches(pool, questions, OverlapSettings(mode="paper").with_defaults())) == [("d0", "copy")]


@pytest.mark.parametrize("mode", ["exact", "paper"])
@pytest.mark.parametrize("documents", [[], [document("empty", "...")]])
def test_empty_sides_are_no_match(scan, documents, mode):
    assert scan(documents, [question("q", essay(20))], OverlapSettings(mode=mode).with_defaults()).findings == []


chapter = writer(3)
CHAPTERS = [chapter(400) for _ in range(12)]
LONG = st.lists(st.text("ab\u65e5.", min_size=1, max_size=9), min_size=20, max_size=120).map(" ".join)
PLANTED_TEXTS = LONG | st.text("ab \u65e5.", max_size=80)


def kinds(rows: list[Plant]) -> dict[str, list[Plant]]:
    return {kind: [row for row in rows if row.kind == kind] for kind in dict.fromkeys(row.kind for row in rows)}


def shared(row: Plant, n: int) -> float:
    """Larger of the two containments, the plain way."""
    ours, theirs = set(grams(words(CHAPTERS[row.document]), n)), set(grams(words(row.record), n))
    return len(ours & theirs) / min(len(ours), len(theirs))


def test_every_kind_is_planted_and_shares_what_it_says():
    found = kinds(plant_controls(CHAPTERS, per_kind=4))
    assert [kind for kind, rows in found.items() if not rows[0].expected] == ["unrelated words"]
    assert {f"verbatim {n} characters" for n in CHARS} < set(found)
    for kind in ("verbatim 300 characters", "a whole document in an answer"):
        assert {shared(row, 13) for row in found[kind]} == {1.0}
    assert all(0.5 < shared(row, 13) < 1 for row in found["200 words, one word changed"])
    assert {shared(row, 13) for row in found["unrelated words"]} == {0.0}


def test_the_texts_alone_decide():
    assert plant_controls(CHAPTERS) == plant_controls(CHAPTERS) != plant_controls(CHAPTERS[1:])


@given(st.lists(PLANTED_TEXTS, max_size=4))
def test_any_texts_give_plants_of_their_own_or_none(documents):
    for row in plant_controls(documents, per_kind=2):
        assert len(words(row.record)) >= LEAST_WORDS and 0 <= row.document < len(documents)


@pytest.mark.parametrize("mode", MODES)
def test_recall_stands_beside_every_mode(mode):
    pool = [PoolText(document_id=str(number), text=text) for number, text in enumerate(CHAPTERS)]
    rows = measure_recall(pool, OverlapSettings(mode="exact").with_defaults(), per_kind=3)
    assert [row.planted for row in rows if row.kind == "verbatim 300 characters"] == [3]
    hard = ("one word in ten changed", *(f"verbatim {n} characters inside 2000" for n in (150, 300)))
    expected = [row.shares[mode] for row in rows if row.expected and row.kind not in hard]
    assert (min(expected) == 1.0) == (mode != "paper") and {r.shares[mode] for r in rows if not r.expected} == {0.0}


# A passage as a textbook prints it, with a contraction, a compound, formulas and a quotation.
PASSAGE = (
    "The well-known theorem doesn't hold for every continuous function. Suppose that $f(x)=a_1+b^2$ is given, and let "
    '\\(g(x,y)=[x+y]^n\\) be its "natural" extension; then, for example, the polynomial approximation converges.'
)
SAME = ("other case and punctuation", "look-alike letters", "invisible characters", "hyphenated anew", "LaTeX spacing")


@pytest.mark.parametrize("kind", SAME)
def test_the_words_survive_every_disguise(kind):
    changed = {DISGUISES[kind](PASSAGE, random.Random(seed)) for seed in range(20)}
    assert len(changed) > 1 and {tuple(words(text)) for text in changed} == {tuple(words(PASSAGE))}


@pytest.mark.parametrize("kind", ["one word in ten changed", "paraphrased by rules"])
def test_other_words_are_other_words(kind):
    assert words(DISGUISES[kind](PASSAGE, random.Random(1))) != words(PASSAGE)


def test_a_text_without_a_formula_has_no_other_spacing():
    assert DISGUISES["LaTeX spacing"]("Costs are 5 + 3 dollars.", random.Random(0)) == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x\u00b2 + y\u2081", "x 2 y 1"),
        ("x^{2}+y_1", "x 2 y 1"),
        ("a-b a - b", "a b a b"),
        ("a sub-\n  set of sub\u2010sets", "a subset of subsets"),
        ("\u201cIt\u2019s\u201d \u2014 U.S. 3.14", "its us 314"),
        ("\\left( a \\right) \\quad \\leftarrow", "a leftarrow"),
        ("\u0441\u043e\u0440\u0443", "copy"),
        ("na\u00adive \u200bword\ufeff", "naive word"),
        ("\ufb01nite \uff21\uff22", "finite ab"),
        ("It&#39;s&nbsp;caf&eacute; &#x4D; a &= b & c; &lt;1", "its caf\xe9 m a b c 1"),
    ],
)
def test_normal_words(text, expected):
    assert words(text) == expected.split()


@given(st.text("".join(LOOK_ALIKES) + "".join(LOOK_ALIKES.values()) + " -\u00ad\u00b2.$\\(\n", max_size=60))
def test_words_of_words_are_the_words(text):
    found = words(text)
    assert words(" ".join(found)) == found and len(places(text)) == len(found)


def test_places_reach_over_a_line_that_breaks_a_word():
    text = "one exam-\nple, f(x) two"
    assert [text[start:end] for start, end in places(text)] == ["one", "exam-\nple,", "f", "x", "two"]


ALPHABET = "abAB .,-(^\\\\!\u00ad\u2010\u00b2\u0430\n\t\x1c\x85\u00a0\u2003\u0301\u00e9\ufb01\u0130\u65e5\u672c\u304b\u3099\u1fef\ud800\U00020000\xff"
TEXTS = st.lists(st.text(ALPHABET, max_size=40), max_size=6)
WORDS = st.lists(st.sampled_from("abc"), max_size=12)


def hashes(text: str, n: int) -> list[int]:
    return sorted({shingles.hash64(gram.encode("utf-8", "surrogatepass")) for gram in grams(words(text), n)})


@given(TEXTS, st.integers(1, 4))
def test_keys_are_the_hashes_of_the_plain_n_grams(texts, n):
    found = [keys.tolist() for keys in shingles.gram_keys(shingles.batch_of(texts), n)]
    assert found == [hashes(text, n) for text in texts]
    assert sizes(texts, n).tolist() == [len(hashes(text, n)) for text in texts]


def test_long_texts_and_long_words_hash_like_short_ones():
    draw = random.Random(1)
    long = " ".join("".join(draw.choices("abcdef", k=draw.randint(1, 30))) for _ in range(30_000))
    for text in (long, f"x {'y' * 200_000} z {'y' * 200_000} w", "e\u0301" * 3000):
        (found,) = shingles.gram_keys(shingles.batch_of([text]), 3)
        assert found.tolist() == hashes(text, 3)


@given(TEXTS, st.integers(1, 4))
def test_signatures_are_datasketchs_bit_for_bit(texts, n):
    ours = signatures(texts, n)
    for text, values in zip(texts, ours, strict=True):
        theirs = MinHash(num_perm=128, seed=1, scheme="affine32", hashfunc=shingles.hash32)
        theirs.update_batch([gram.encode("utf-8", "surrogatepass") for gram in grams(words(text), n)])
        assert np.array_equal(values, theirs.hashvalues) and values.dtype == theirs.hashvalues.dtype
        assert minhash(values).jaccard(theirs) == 1.0


@given(WORDS, WORDS, st.integers(1, 3))
def test_the_longest_run_is_the_longest(first, second, least):
    span = longest_run(first, second, least)
    common = [
        (size, i, j)
        for size in range(least, 13)
        for i in range(len(first) - size + 1)
        for j in range(len(second) - size + 1)
        if first[i : i + size] == second[j : j + size]
    ]
    assert span.length == max((size for size, _, _ in common), default=0)
    if span.length:
        assert (span.length, span.first, span.second) in common


@given(st.lists(st.text("ab ", max_size=30), max_size=5), st.lists(st.text("ab ", max_size=30), max_size=5))
def test_the_index_finds_every_pair_that_shares_an_n_gram(indexed, scanned):
    rule = OverlapSettings(n=3, containment=0.5, run_words=5, min_words=1)
    found = {(p.scanned, p.item): p.shared for p in Matcher(indexed, rule).pairs(scanned, every=True)}
    for i, text in enumerate(scanned):
        for j, other in enumerate(indexed):
            shared = compare(words(text), words(other), 3)
            # Short texts inside longer ones are looked for from the other side: see short_pairs.
            if shared.num_common and len(words(text)) >= min(3, len(words(other))):
                assert found.pop((i, j)) == shared
    assert not found


def test_a_saved_index_answers_like_the_one_in_memory(tmp_path):
    draw = random.Random(2)
    texts = [" ".join(draw.choices("abcdefgh", k=50)) for _ in range(40)] + ["a b", ""]
    index = gramindex.build_index(texts, 4)
    index.save(tmp_path)
    batch = shingles.batch_of(texts[::-1])
    both = [list(one.scan(batch)) for one in (index, gramindex.load_index(tmp_path, 4))]
    shown = [[(h.text, h.num_grams, h.items.tolist(), h.counts.tolist()) for h in hits] for hits in both]
    assert shown[0] == shown[1] and shown[0]


@pytest.mark.parametrize("text", ["Hello,  (World)! -- x", "\u65e5\u672c\u8a9e ok.", "\n e\u0301 b \ufb01 ", "a&amp;"])
def test_places_point_at_the_words(text):
    spans = places(text)
    assert [words(text[start:end]) for start, end in spans] == [[word] for word in words(text)]
