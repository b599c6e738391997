"""Writes the fixtures of the benchmark tests: invented rows in the columns and file layouts of the real data sets.

Run it after changing a row: `.venv/bin/python tests/data/benchmarks/make.py`.
"""

import base64
import csv
import json
import pickle
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).parent
Rows = list[dict[str, Any]]


def parquet(path: str, rows: Rows) -> None:
    (HERE / path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), HERE / path)


def jsonl(path: str, rows: Rows) -> None:
    (HERE / path).parent.mkdir(parents=True, exist_ok=True)
    (HERE / path).write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def mmlu_pro() -> None:
    def row(number: int, question: str, options: list[str], index: int, category: str) -> dict[str, Any]:
        letter = "ABCDEFGHIJ"[index]
        known = {"question_id": number, "question": question, "options": options, "answer": letter}
        return {**known, "answer_index": index, "cot_content": "", "category": category, "src": f"made-{category}"}

    planets = ["Mercury", "Venus", "Mars", "Jupiter", "Saturn", "Uranus", "Neptune", "Ceres", "Pluto", "Eris"]
    rows = [
        row(70, "Which body of the list has the shortest year?", planets, 0, "physics"),
        row(71, "How many sides has a dodecagon?", ["10", "11", "12", "N/A", "N/A"], 2, "math"),
        row(72, "Which colour do you get from blue and yellow paint?", ["red", "N/A", "green", "grey"], 2, "other"),
        row(73, "What does a form ask for that does not apply?", ["blank", "zero", "N/A"], 2, "business"),
        row(74, "Which gas do green leaves take in by day?", ["oxygen", "carbon dioxide", "argon"], 1, "biology"),
    ]
    parquet("mmlu_pro/data/test-00000-of-00001.parquet", rows)
    parquet("mmlu_pro/data/validation-00000-of-00001.parquet", [row(0, "Is this an example?", ["a", "b", "c"], 0, "x")])


def gpqa_diamond() -> None:
    def row(name: str, question: str, right: str, wrong: list[str], domain: str, sub: str) -> dict[str, Any]:
        answers = {f"Incorrect Answer {number}": text for number, text in enumerate(wrong, 1)}
        known = {"Pre-Revision Question": "an older wording", "Question": question, "Correct Answer": right, **answers}
        return {**known, "Explanation": "", "Record ID": name, "High-level domain": domain, "Subdomain": sub}

    rows = [
        row(
            "recA1",
            "  A ball is dropped.\nWhat grows? ",
            " speed [title]of fall",
            ["mass", "charge", "age"],
            "Physics",
            "Mechanics",
        ),
        row("recB2", "Which ion does table salt give in water?", "Na+", ["K+", "Ca2+", "Na+"], "Chemistry", "Ions"),
        row(
            "recC3",
            "What carries oxygen, in red blood cells?",
            "haemoglobin",
            ["keratin", "amylase", "insulin"],
            "Biology",
            "Cells",
        ),
        row("recD4", "Which unit has force?", "newton", ["joule", "watt", "pascal"], "Physics", "Units"),
    ]
    path = HERE / "gpqa_diamond/gpqa_diamond.csv"
    path.parent.mkdir(exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def supergpqa() -> None:
    def row(name: str, question: str, options: list[str], index: int, discipline: str, field: str) -> dict[str, Any]:
        known = {"uuid": name, "question": question, "options": options, "answer": options[index]}
        where = {"discipline": discipline, "field": field, "subfield": f"{field} in general"}
        return {**known, "answer_letter": "ABCDEFGHIJ"[index], **where, "difficulty": "easy", "is_calculation": False}

    rows = [
        row(
            "5c0e-01",
            "What is the derivative of the square of x?",
            ["x", "2x", "x/2", "2"],
            1,
            "Science",
            "Mathematics",
        ),
        row(
            "5c0e-02",
            "Which particle carries negative charge?",
            ["proton", "neutron", "electron", "photon"],
            2,
            "Science",
            "Physics",
        ),
        row(
            "5c0e-03", "Which acid is in vinegar?", ["acetic", "citric", "lactic", "formic"], 0, "Science", "Chemistry"
        ),
        row(
            "e9a1-04",
            "What holds a suspension bridge's deck?",
            ["piers", "cables", "arches", "rafts"],
            1,
            "Engineering",
            "Civil Engineering",
        ),
        row(
            "a77f-05",
            "Which verse form has fourteen lines?",
            ["ode", "haiku", "ballad", "sonnet"],
            3,
            "Literature and Arts",
            "Literature",
        ),
        row(
            "a77f-05",
            "Which verse form has fourteen lines?",
            ["ode", "haiku", "ballad", "sonnet"],
            3,
            "Literature and Arts",
            "Literature",
        ),
    ]
    jsonl("supergpqa/SuperGPQA-all.jsonl", rows)


def bbeh() -> None:
    tasks = {
        "bbeh_boolean_expressions": [
            ("Exactly one line is true. (A) two is odd (B) three is odd (C) four is odd. Which?", "(B)"),
            ("Exactly one line is true. (A) ice is cold (B) fire is cold (C) steam is cold. Which?", "(A)"),
        ],
        "bbeh_hyperbaton": [("Name the letters of the lines in natural order: (A) big red car (B) red big car.", "A")],
        "bbeh_object_counting": [
            ("I own two cups, a plate and three cups more. How many cups?", "5"),
            ("Sort these words and join them with commas: pear, fig, apple.", "apple, fig, pear"),
        ],
        "bbeh_long_text": [("Count the word stone. " + "stone and water " * 1200, "1201")],
    }
    for name, examples in tasks.items():
        (HERE / "bbeh" / name).mkdir(parents=True, exist_ok=True)
        held = {"canary": "none", "examples": [{"input": text, "target": target} for text, target in examples]}
        (HERE / "bbeh" / name / "task.json").write_text(json.dumps(held, indent=1) + "\n", encoding="utf-8")


def math500() -> None:
    def row(name: str, problem: str, answer: str, subject: str, level: int) -> dict[str, Any]:
        known = {"problem": problem, "solution": f"It is $\\boxed{{{answer}}}$.", "answer": answer}
        return {**known, "subject": subject, "level": level, "unique_id": f"test/{name}.json"}

    rows = [
        row("algebra/1", "Four pens cost \\$75.60. What is the price of one?", "\\$18.90", "Algebra", 1),
        row("number_theory/2", "Write 950 in base eight.", "1666_8", "Number Theory", 3),
        row("counting_and_probability/3", "What is $7!\\cdot 2$?", "10,\\!080", "Counting & Probability", 2),
        row(
            "precalculus/4",
            "Give the identity of size two.",
            "\\begin{pmatrix} 1 & 0 \\\\ 0 & 1 \\end{pmatrix}",
            "Precalculus",
            4,
        ),
        row("algebra/5", "Which weekday follows Monday?", "\\text{Tuesday}", "Algebra", 1),
        row("prealgebra/6", "What share is three of four?", "75\\%", "Prealgebra", 2),
    ]
    jsonl("math500/test.jsonl", rows)


def aime() -> None:
    def row(number: int, problem: str, answer: str, year: str) -> dict[str, Any]:
        known = {"id": number, "problem": problem, "solution": "see above", "answer": answer}
        return {**known, "url": f"https://example.org/{year}_AIME_I_Problems/Problem_{number}", "year": year}

    rows = [
        row(60, "Find the sum of the first eight odd numbers, less 31.", "033", "2024"),
        row(61, "Find the number of seconds in five minutes.", "300", "2024"),
        row(62, "Find the remainder of 2007 divided by 1000.", "007", "2024"),
        row(63, "This one belongs to another year: find 1 + 1.", "2", "2023"),
    ]
    parquet("aime2024/data/train-00000-of-00001.parquet", rows)
    jsonl(
        "aime2025/aime2025-I.jsonl",
        [
            {"question": "Find the number of days in ten weeks.", "answer": "70"},
            {"question": "Find six times eighty.", "answer": 480},
        ],
    )
    jsonl(
        "aime2025/aime2025-II.jsonl",
        [
            {"question": "Find the sum in degrees of the angles 100, 200 and 36.", "answer": "336^\\circ"},
        ],
    )


def amc23() -> None:
    problems = {
        "Find the number of minutes in two days and 279 more.": 3159.0,
        "Find 2 less 3.": -1.0,
        "Find 3 cubed.": 27.0,
    }
    rows = [{"id": place, "question": text, "answer": key} for place, (text, key) in enumerate(problems.items())]
    parquet("amc23/data/test-00000-of-00001.parquet", rows)


def minerva_math() -> None:
    courses = ("Introduction to Astronomy (8.282J Spring 2006)", "Differential Equations (18.03 Spring 2010)")
    answers = {
        "How many kilometers does light travel in a microsecond?": ".3",
        "Solve $y' = y$ with $y(0) = 2$.": "y = 2 e^x",
        "Give a mole's particles to two digits.": "6.0e23",
    }
    rows = [
        {
            "problem": text,
            "solution": f"It is \\[\\boxed{{{key}}}\\] as said.",
            "type": courses[place % 2],
            "idx": place,
        }
        for place, (text, key) in enumerate(answers.items())
    ]
    jsonl("minerva_math/test.jsonl", rows)


def gsm8k() -> None:
    worked = {
        "Ann has 3 bags of 4 nuts. How many nuts?": "She has 3*4 = <<3*4=12>>12.\n#### 12",
        "A house costs 2 times $57,100. How much is it?": "2*57100 = <<2*57100=114200>>114200\n#### 114,200",
        "It was 2 degrees and fell by 5. How cold is it?": "2-5 = <<2-5=-3>>-3\n#### -3",
    }
    jsonl("gsm8k/test.jsonl", [{"question": text, "answer": solution} for text, solution in worked.items()])


def hmmt() -> None:
    contests = {
        "hmmt_feb_2025": [
            (1, "Find the number of edges of a cube times 9.", "108", ["Geometry"]),
            (
                2,
                "Find all real $x$ with $x^2 - x = 4$.",
                "\\frac{1+\\sqrt{17}}{2}, \\frac{1-\\sqrt{17}}{2}",
                ["Algebra"],
            ),
        ],
        "hmmt_nov_2025": [(1, "Find the product of 1250 and 2.", "2,500", ["Number Theory"])],
        "hmmt_feb_2026": [(1, "In how many ways can you seat three people?", "6", ["Combinatorics", "Algebra"])],
    }
    for name, problems in contests.items():
        keys = ("problem_idx", "problem", "answer", "problem_type")
        rows = [dict(zip(keys, problem, strict=True)) for problem in problems]
        parquet(f"hmmt/{name}/data/train-00000-of-00001.parquet", rows)


def olympiadbench() -> None:
    def row(number: int, field: str, question: str, answer: str, kind: str, **more: Any) -> dict[str, Any]:
        known = {"id": number, "question": question, "solution": ["worked out"], "final_answer": [answer]}
        facts = {"context": None, "is_multiple_answer": False, "unit": None, "answer_type": kind, "error": None}
        where = {"subfield": field, "subject": "Math", "language": "English", "modality": "Text-only"}
        return {**known, **facts, **where, **more}

    maths = [
        row(
            2001,
            "Number Theory",
            "Which numbers are twice and thrice 13 squared, plus one?",
            "$339,$508$",
            "Numerical",
            is_multiple_answer=True,
        ),
        row(2002, "Algebra", "Give the point on both axes.", "$(0,0)$", "Tuple"),
        row(2003, "Algebra", "Where is $1-x$ positive and $x$ not negative?", "$[0,1)$", "Interval"),
        row(2004, "Combinatorics", "How many orders have $n$ books?", "$n!$", "Expression"),
        row(
            2005,
            "Geometry",
            "Give the area and the corner of the unit square.",
            "$1,(1,1)$",
            "Numerical,Tuple",
            is_multiple_answer=True,
        ),
    ]
    physics = [
        row(
            901,
            "Mechanics",
            "How far is that?",
            "$4.9$",
            "Numerical",
            unit="m",
            error="1e-1",
            context="A stone falls for one second.",
        ),
        row(
            902,
            "Optics",
            "Give both angles.",
            "$30$, $60$",
            "Numerical",
            unit="$^{\\circ}$",
            error=".5,1",
            is_multiple_answer=True,
        ),
        row(903, "Thermodynamics", "Give the law of the ideal gas.", "$pV=nRT$", "Equation"),
        row(904, "Electromagnetism", "Give the current.", "$2$", "Numerical", unit="A", error="a little"),
    ]
    for half, rows in (("maths", maths), ("physics", physics)):
        short = {"maths": "math", "physics": "phys"}[half]
        config = f"OE_TO_{half}_en_COMP"
        parquet(f"olympiadbench_{short}/OlympiadBench/{config}/{config}.parquet", rows)


def medqa() -> None:
    def row(question: str, options: list[str], index: int, step: str) -> dict[str, Any]:
        lettered = dict(zip("ABCD", options, strict=True))
        known = {"question": question, "answer": options[index], "options": lettered, "meta_info": step}
        return {**known, "answer_idx": "ABCD"[index], "metamap_phrases": ["a phrase"]}

    rows = [
        row(
            "A sailor without fruit has bleeding gums. What is lacking?",
            ["iron", "vitamin C", "iodine", "zinc"],
            1,
            "step1",
        ),
        row("Which organ filters blood into urine?", ["liver", "spleen", "lung", "kidney"], 3, "step1"),
        row(
            "Which vessel leaves the left ventricle?", ["aorta", "vena cava", "pulmonary vein", "carotid"], 0, "step2&3"
        ),
    ]
    jsonl("medqa/phrases_no_exclude_test.jsonl", rows)
    jsonl(
        "medqa/phrases_no_exclude_train.jsonl",
        [row("Is this for training?", ["yes", "no", "both", "none"], 0, "step1")],
    )


def medxpertqa() -> None:
    def row(number: int, question: str, options: Any, label: str, task: str, system: str) -> dict[str, Any]:
        known = {"id": f"Text-{number}", "question": question, "options": options, "label": label}
        return {**known, "medical_task": task, "body_system": system, "question_type": "Reasoning"}

    ten = dict(
        zip(
            "ABCDEFGHIJ",
            ["gout", "flu", "mumps", "croup", "acne", "tics", "ulcer", "asthma", "colic", "stroke"],
            strict=True,
        )
    )
    listed = " ".join(f"({letter}) {text}" for letter, text in ten.items())
    few = {**dict.fromkeys("ABCDEFGHIJ"), "A": "rest", "B": "ice", "C": "splint", "D": "surgery", "E": "none"}
    pairs = [
        {"letter": letter, "content": text}
        for letter, text in zip("ABC", ["sodium", "potassium", "calcium"], strict=True)
    ]
    rows = [
        row(
            0, f"A swollen toe after a feast. What is it?\nAnswer Choices: {listed}", ten, "A", "Diagnosis", "Skeletal"
        ),
        row(1, "An ankle is twisted and not broken. What first?", few, "B", "Treatment", "Skeletal"),
        row(2, "Which ion starts the contraction of muscle?", pairs, "C", "Basic Science", "Muscular"),
    ]
    jsonl("medxpertqa/Text/test.jsonl", rows)
    jsonl("medxpertqa/Text/dev.jsonl", [row(9, "Is this an example?", few, "A", "Diagnosis", "Other")])
    jsonl("medxpertqa/MM/test.jsonl", [row(8, "What does the picture show?", few, "A", "Diagnosis", "Other")])


def humaneval_plus() -> None:
    def row(number: int, prompt: str, solution: str, entry: str, inputs: str, results: str) -> dict[str, Any]:
        test = (
            "def assertion(out, exp, atol):\n    assert out == exp\n\n\ndef check(candidate):\n"
            f"    inputs = {inputs}\n    results = {results}\n"
            "    for i, (inp, exp) in enumerate(zip(inputs, results)):\n        assertion(candidate(*inp), exp, 0)\n"
        )
        known = {"task_id": f"HumanEval/{number}", "prompt": prompt, "canonical_solution": solution}
        return {**known, "entry_point": entry, "test": test}

    double = ('def double(x: int) -> int:\n    """Twice x."""\n', "    return 2 * x\n", "double")
    prompt = 'from typing import List\n\n\ndef longest(words: List[str]) -> str:\n    """The first longest word."""\n'
    longest = (prompt, '    return max(words, key=len, default="")\n', "longest")
    halves = ('def halves(n: int) -> tuple:\n    """n in two parts."""\n', "    return n // 2, n - n // 2\n", "halves")
    rows = [
        row(900, *double, "[[3], [0], [-7]]", "[6, 0, -14]"),
        row(901, *longest, "[[['a', 'bcd', 'efg']], [[]]]", "['bcd', '']"),
        row(902, *halves, "[[7], [8]]", "[(3, 4), (4, 4)]"),
    ]
    parquet("humaneval_plus/data/test-00000-of-00001-5f.parquet", rows)
    jsonl("humaneval_plus/test.jsonl", rows)
    facts = {"contract": "", "base_input": [[3], [0]], "plus_input": [[-7]], "atol": 0}
    old = [{key: value for key, value in row.items() if key != "test"} for row in rows[:1]]
    jsonl("evalplus_layout/HumanEvalPlus-v0.1.10.jsonl", [{**old[0], **facts}])


def livecodebench() -> None:
    def row(name: str, text: str, day: str, public: Rows, private: Any, **more: Any) -> dict[str, Any]:
        known = {"question_title": name, "question_content": text, "platform": "atcoder", "question_id": name}
        dated = {"contest_id": "made1", "contest_date": f"{day}T00:00:00", "starter_code": "", "difficulty": "easy"}
        tests = {"public_test_cases": json.dumps(public), "private_test_cases": private}
        return {**known, **dated, **tests, "metadata": "{}", **more}

    def case(given: str, wanted: str, kind: str = "stdin") -> dict[str, Any]:
        return {"input": given, "output": wanted, "testtype": kind}

    def packed(cases: Rows) -> str:
        return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(cases)))).decode()

    function = {
        "platform": "leetcode",
        "starter_code": "class Solution:\n    def largest(self, numbers: List[int]) -> int:\n        ",
        "metadata": json.dumps({"func_name": "largest"}),
        "difficulty": "medium",
    }
    called = [case("[3, 1, 4]", "4", "functional")]
    jsonl(
        "livecodebench/test.jsonl",
        [
            row(
                "add_a",
                "Two numbers stand on a line. Print their sum.",
                "2023-05-01",
                [case("1 2\n", "3\n")],
                packed([case("5 -9\n", "-4\n")]),
            ),
            row(
                "largest",
                "Find the largest number.",
                "2023-08-21",
                called,
                packed([case("[7]", "7", "functional")]),
                **function,
            ),
        ],
    )
    rows = [
        row(
            "echo_b",
            "Print the line that you read, reversed.",
            "2025-01-31",
            [case("abc\n", "cba\n")],
            json.dumps([case("x\n", "x\n")]),
        ),
        row("late_c", "Print 1.", "2025-02-01", [case("\n", "1\n")], "[]"),
    ]
    jsonl("livecodebench/test5.jsonl", rows)
    jsonl("livecodebench/test6.jsonl", [row("newer_d", "Print 2.", "2025-01-12", [case("\n", "2\n")], "[]")])
    solutions = {
        "add_a": "a, b = map(int, input().split())\nprint(a + b)\n",
        "largest": "class Solution:\n    def largest(self, numbers: List[int]) -> int:\n        return max(numbers)\n",
        "echo_b": "print(input()[::-1])\n",
    }
    (HERE / "livecodebench_solutions.json").write_text(json.dumps(solutions, indent=1) + "\n")


def released() -> None:
    def row(name: str, text: str, truth: Any, source: str, **more: Any) -> dict[str, Any]:
        known = {"question_id": name, "question_text": text, "ground_truth": truth, "data_source": source}
        return {**known, "choices": [], "domain": "", "answer_type": "", "unit": "", **more}

    four = {"choices": ["a metre", "a second", "a kilogram", "an ampere"], "domain": "Physics"}
    rows = [
        row("m0", "Which is a unit of time?", "a second", "mmlu_pro", **four),
        row("q0", "Which is a unit of length?", "a metre", "gpqa_diamond", **four),
        row("a0", "Find 6 times 7.", 42, "aime"),
        row("b0", "Is water dry?", "no", "bbeh"),
        row("o0", "Give both roots of x squared less one.", "1; -1", "", domain="OlympiadBench_Math"),
        row(
            "o1", "How far?", "3.5", "", domain="OlympiadBench_Physics", answer_type="Numerical", unit="m", error="1e-1"
        ),
    ]
    (HERE / "released.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for write in (
        mmlu_pro,
        gpqa_diamond,
        supergpqa,
        bbeh,
        math500,
        aime,
        amc23,
        minerva_math,
        gsm8k,
        hmmt,
        olympiadbench,
        medqa,
        medxpertqa,
    ):
        write()
    humaneval_plus()
    livecodebench()
    released()
