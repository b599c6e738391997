"""A chunk enters the pool only by a JSON boolean; every other reply is undecided and not kept."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from corpus_rows import book_page, by_words

from corpus.chunk.chunk import chunk_page
from corpus.chunk.form import fault_of
from corpus.chunk.judge import UNDECIDED, judge_by_model, judge_by_rules, ruled_out
from infuser_core.config.corpus import ChunkSettings
from infuser_core.prompts.templates import Template, load_template
from infuser_core.protocols import ChatModel, Messages, Progress, no_progress
from infuser_core.schemas import Document, Judgement
from infuser_core.system.worker_pool import LocalPool

TEMPLATE = Template(name="test/judge", system="", user="judge: {text}")


class Scripted:
    """Replies by the first word of the prompt's text."""

    name = "rule-based: scripted"

    def __init__(self, replies: dict[str, str]) -> None:
        self.replies, self.asked = replies, []

    def complete(self, prompts: Sequence[Messages], *, max_tokens: int, progress: Progress = no_progress) -> list[str]:
        self.asked.append([prompt[-1]["content"] for prompt in prompts])
        return [self.replies[" ".join(prompt[-1]["content"].split()[:2])] for prompt in prompts]


def rows(text: str, bounds: tuple[int, int] = (1, 50)):
    page = book_page(text)
    config = ChunkSettings(min_tokens=bounds[0], max_tokens=bounds[1], small_sections="drop")
    return chunk_page(page, by_words, config, "d")


DOCUMENTS = [row.document for row in rows("good text\n\n# x\n\ny\n\n# z\n\ny\n")]


def judged(documents: Sequence[Document], model: ChatModel, **options: object) -> list[Judgement]:
    usual = {"batch": 9, "finished": [], "keep": lambda rows: None}
    return judge_by_model(documents, model, TEMPLATE, 50, **(usual | options))


@pytest.mark.parametrize(
    ("reply", "keep"),
    [
        ('{"keep": true, "reason": "fine"}', True),
        ('<think>{"keep": true}</think>\n```json\n{"keep": false, "reason": "index"}\n```', False),
        ('Sure {ok}: {"keep": true, "reason": "a\\nb"} done', True),
        ('{"sure": 1} {"keep": true}', True),
        ('{"keep": "false"}', None),
        ('{"keep": 1}', None),
        ('{"reason": "no"}', None),
        ("keep it", None),
        ("", None),
        ("[" * 100000 + "{" * 1000, None),
    ],
)
def test_only_a_json_boolean_decides(reply, keep):
    (found,) = judged(DOCUMENTS[:1], Scripted({"judge: good": reply}))
    assert (found.keep, found.reason == UNDECIDED) == (bool(keep), keep is None)


def test_undecided_is_not_kept_and_keeps_its_reply():
    model = Scripted({"judge: good": '{"keep": true, "reason": "r"}', "judge: #": "hm"})
    result = judged(DOCUMENTS, model)
    assert [row.keep for row in result] == [True, False, False]
    assert result[1].reason.startswith("undecided") and result[1].response == "hm" and len(model.asked) == 3
    assert [row.document_id for row in result] == [d.document_id for d in DOCUMENTS]


def test_rule_discards_become_rows():
    result = ruled_out(rows("good text\n\n# x\n\ny\n", bounds=(3, 50)))
    assert [(row.keep, row.reason, row.decided_by) for row in result] == [(False, "too_short", "size")]


def test_the_shipped_rubric_has_one_slot():
    text = load_template("judge_chunk", profile="paper").messages(text="THE CHUNK")[-1]["content"]
    assert "THE CHUNK" in text and '{"keep": true or false, "reason": "..."}' in text and "{text}" not in text


def test_each_retry_asks_differently_and_the_first_decision_counts():
    model = Scripted({"judge: good": '{"keep": false}', "judge: #": '{"keep": "true"}'})
    judged(DOCUMENTS, model)
    asked = [batch[-1] for batch in model.asked]
    assert len({*asked}) == 3 and all(text.startswith("judge: # z") for text in asked)


def test_finished_batches_are_kept_and_not_judged_again():
    model = Scripted({"judge: good": '{"keep": true}', "judge: #": '{"keep": false, "reason": "r"}'})
    kept = []
    rows = judged(DOCUMENTS, model, batch=2, keep=kept.append)
    assert [len(batch) for batch in kept] == [2, 1] and [row for batch in kept for row in batch] == rows
    again = Scripted({"judge: #": '{"keep": false, "reason": "r"}'})
    shown = []
    options = {"batch": 2, "finished": kept[0], "progress": lambda *at: shown.append(at)}
    assert judged(DOCUMENTS, again, **options) == rows
    assert len(again.asked) == 1 and len(again.asked[0]) == 1 and shown[-1][:2] == (3, 3)


CONTENTS = "\n".join(f"{n}.1 Waves and their measure . . . . . . . {n * 7}" for n in range(1, 12))
INDEX = "\n\n".join(f"term {word}, {n}, {n + 9}" for n, word in enumerate("abcdefghijk", 1))
CITED = "\n\n".join(f"[{n}] A. Author and B. Writer, A title, Some Press, 19{n + 60}, pp. 1-{n}." for n in range(8))
NUMBERS = "\n".join("12.5 88.1 (3) 7.25 [4] 19.0 3:45" for _ in range(12))
PROSE = "The moon pulls at the sea, and the sea answers twice a day. See Figure 3 and page 12.\n" * 8
TABLE = "| year | height, m |\n|---|---|\n" + "\n".join(f"| 19{n} | {n} |" for n in range(10, 40)) + "\n\n" + PROSE
CODE = "```\n" + "x[1] = 3; y[2] = 4;\n" * 20 + "```\n"
NAMES = "The ways to measure a wave are these.\n\n" + "\n\n".join(
    f"wave_height_{n}, wave_length_{n}" for n in range(20)
)
TERMS = "draw-wall, 142 draw-wave, 9, 12 :height, 30 *left-gauge*, 151 water<=, 27 openTide, 44 tide-of, 3\n" * 12
FLATTENED = "faces 1 1 14 -5 -13 tension t0 // side 2 2 15 -6 -14 density d_1 " * 6
SPLIT = "T h e  t i d e  c o m e s  t w i c e  a  d a y  a n d  g o e s .\n\n" * 6
CHANGES = "## Release 3.2.1\n\n" + "\n".join(
    f"- {entry}"
    for entry in (
        "452802 Handle sand",
        "Fix a leak of the pond",
        "Added frogs",
        "v3.2",
        "Removes old nets",
        "n-i-bz Dry",
    )
)
NUMBERED = "# 4: Waves\n\n## 4.1: Water that comes and goes\n\n" + "\n\n".join(
    f"4.1.{n}: Waves on a wall" for n in range(9)
)
OPENED = "The tide comes twice a day, and then it goes.\n\n```\n\n" + "a[1] = b[2];\n" * 20 + "```\n\nIt goes again."
LISTING = "\n".join(f"{' ' * (n % 3 * 2)}tide_{n}(wall[{n}], &gauge);" for n in range(40))
CUT = (
    "a b = 1 + x\n```\n\n"
    + "The tide comes twice a day, and then it goes.\n\n" * 9
    + "```\n"
    + "c d = 2 * y [ 3 ]\n" * 9
)
WORKED = "The fence Osta rounds 12 by 9 metres. The train Mira left at 22 and rode 22 hours. Wall Tamo takes 16. " * 4
HEADS = "".join(f"void wave_add_{n}(wave_t A, const wave_t B, slong len)\n\nSet A to B + c{n}.\n\n" for n in range(9))
PHRASES = "\n\n".join(f"## WAVE height{n}(PLACE);\n\nthe height of a wave at its {n}th hour" for n in range(9))
FORMULAS = "The energy of a wave is found thus.\n\n" + "E_{k}(x,t)=\\frac{1}{2}m_{k}v^{2}+U(x_{k},t)=const.\n\n" * 20
GERMAN = "Der Mond zieht das Wasser der Meere an, und die Flut folgt ihm in jedem Hafen der K\u00fcste. " * 6
CHINESE = "\u6708\u4eae\u5438\u5f15\u6d77\u6c34\uff0c\u6bcf\u5929\u4e24\u6b21\u6f6e\u6c50\u3002\n\n" * 9
SUMS = "\n\n".join(f"{n}. A force of {n} N moves a cart by {n + 3} m. Its work is {n * 37 % 11}" for n in range(1, 9))

LINKED = "".join(
    f"Data from the Office of Tides, {n}. Available online at http://tides.example/{n}\n\n" for n in range(9)
)
OUTLINE = "".join(f"## Measuring waves of {n} metres\n\n```\nrun()\n```\n\nSoon.\n\n" for n in range(9))
OFFERED = "You can buy this book on our website. Send us an email about errata. Our workshops teach its readers more."
DUE = "Well done! You have finished this unit. Please submit the homework before the exam.\n\nIn the next unit we meet waves."
EXAMINED = f"{PROSE}The students of a school measured it for an exam; the next chapter shows the gauge of that year."


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (DUE, "notices of a course"),
        (OFFERED, "notices of a course"),
        (LINKED, "a list of references"),
        (OUTLINE, "an outline"),
        (EXAMINED, ""),
        (CONTENTS, "a list of contents"),
        (INDEX, "an index"),
        (CITED, "a list of references"),
        (NUMBERS, "says nothing"),
        (NUMBERED, "a list of contents"),
        (CHANGES, "a list of changes"),
        (NAMES, "says nothing"),
        (TERMS, "says nothing"),
        (FLATTENED, "says nothing"),
        (SPLIT, "says nothing"),
        (PROSE, ""),
        (TABLE, ""),
        (CODE, ""),
        (SUMS, ""),
        (CUT, ""),
        (LISTING, ""),
        (f"{PROSE}\n\n{NUMBERED}", ""),
        (OPENED, ""),
        (WORKED, ""),
        (HEADS, ""),
        (PHRASES, ""),
        (FORMULAS, ""),
        (GERMAN, ""),
        (CHINESE, ""),
    ],
)
def test_rules_drop_what_teaches_nothing_by_its_form(text, said):
    assert fault_of(text).partition(":")[0] == said


def test_the_rule_judge_gives_every_document_a_row_in_order():
    documents = [replace(DOCUMENTS[0], document_id=str(n), text=text) for n, text in enumerate([PROSE, CONTENTS])]
    assert [(row.document_id, row.keep) for row in judge_by_rules(documents, LocalPool(1))] == [
        ("0", True),
        ("1", False),
    ]


def test_a_licence_and_the_lives_of_authors_teach_nothing_and_a_chapter_that_names_them_may():
    licence = (
        "You may copy and distribute such a system under the terms of the license, provided that you include the "
        "copyright notice. This license gives permission to modify it without any warranty. "
    )
    life = "Ann Lee received her Ph.D. degree in physics. She is an associate professor; her research interests are waves. "
    prose = "The package is distributed as one file. A wave that meets a wall comes back with the other sign of its height. "
    assert fault_of(licence * 5).startswith("a licence")
    assert fault_of(prose * 3 + life).startswith("biographies")
    assert fault_of(prose * 8) == ""
    subject = "The normal distribution has a mean; a uniform distribution and its modifications have two bounds. "
    assert fault_of(subject * 8) == ""
    share = (
        "You may convey a covered work under the terms of section 4, provided that the recipients of copies get them. "
    )
    cover = "The Cover Texts and Invariant Sections are those that the notice of this License names for the Document. "
    assert all(fault_of(part * 5).startswith("a licence") for part in (share, cover))


def test_a_notice_beside_one_sentence_is_a_licence_and_a_list_without_a_title_is_one_of_sources():
    notice = (
        "The tool is free software; you can redistribute it and/or modify it under the terms of its licence.\n\n"
        "It is distributed in the hope that it will be useful, but without the warranty of merchantability.\n\n"
    )
    entry = "- Lee, A. and Wood, B. (19{}). The height of waves at a wall. Waves, 12:{}-{}.\n"
    entries = "".join(entry.format(60 + n, n, n + 9) for n in range(6))
    assert fault_of(f"A tool for waves.\n\n{notice}").startswith("a licence")
    assert fault_of(f"{notice}{PROSE}") == ""
    assert fault_of(f"Waves come back.\n\n{entries}").startswith("a list of references")


def test_words_without_blanks_teach_nothing_and_long_names_within_prose_may():
    run = "Outputman.output.manifest.enabledman.output.manifest.filenameman.output.quietlyman.output.encoding"
    name = "org.example.rivers.measurements.AbstractDailyWaterLevelReaderFactoryBean"
    assert fault_of(f"{run} Otherman.table {run} and {run}").startswith("says nothing")
    assert fault_of(f"{PROSE}\n\nThe class {name} reads them.") == ""
