r"""Which text of a response is the program, under each preset."""

from collections.abc import Callable

import pytest

from infuser_core.prompts.templates import load_template
from infuser_core.verifiers.code import extract_program
from infuser_core.verifiers.parts.extract import PRESETS

FENCE = "```"


def fenced(code: str, language: str = "python") -> str:
    return f"{FENCE}{language}\n{code}\n{FENCE}"


def boxed(code: str) -> str:
    return f"\\boxed{{\n{fenced(code)}\n}}"


def test_the_official_preset_keeps_definitions_where_a_function_is_asked_for():
    source = """import math
LIMIT: int = 3
x = {
    "a": 1,
}

@decorated
def f(n):
    if n == 1:
        return math.pi

    return LIMIT

print(f(3))
assert f(1) == 2
if __name__ == "__main__":
    f(2)
# done
class A:
    pass
x += 1
f(4)"""
    found = extract_program(fenced(source), preset="official", entry="f")
    assert found is not None
    kept = [line for line in found.splitlines() if line.strip()]
    dropped = {"print(f(3))", "assert f(1) == 2", 'if __name__ == "__main__":', "    f(2)", "# done", "x += 1", "f(4)"}
    assert kept == [line for line in source.splitlines() if line.strip() and line not in dropped]
    assert extract_program(fenced(source), preset="official") == source + "\n"


def test_the_official_preset_keeps_strings_of_several_lines():
    source = 'VOWELS = """aeiou\nAEIOU"""\nTABLE = (\n    1,\n)\n\ndef f(s):\n    return [c for c in s if c in VOWELS]'
    assert extract_program(fenced(f"{source}\n\nprint(f('ab'))"), preset="official", entry="f") == source.replace(
        "\n\n", "\n"
    )


@pytest.mark.parametrize("preset", ["official", "strict-last", "phrase"])
@pytest.mark.parametrize("language", ["", "python", "text"])
def test_an_example_of_use_after_the_program_is_not_the_program(preset: str, language: str):
    usage = fenced("print(f(3))  # 9", language)
    response = f"{fenced('def f(n):' + chr(10) + '    return n * n')}\n\nExample usage:\n\n{usage}\n"
    found = extract_program(response, preset=preset, entry="f")
    assert found is not None and "def f(n)" in found and "print" not in found


@pytest.mark.parametrize("preset", ["official", "strict-last", "phrase"])
def test_a_sample_output_after_a_whole_program_is_not_the_program(preset: str):
    response = f"{fenced('print(int(input()) ** 2)')}\n\nFor 3 it prints\n\n{fenced('9', '')}\n"
    assert (extract_program(response, preset=preset) or "").strip() == "print(int(input()) ** 2)"


SQUARE = "def f(n):\n    return n * n"


def indented(text: str, by: str) -> str:
    return "".join(by + line for line in text.splitlines(keepends=True))


@pytest.mark.parametrize(
    "response",
    [
        f"1. Write it:\n\n{indented(fenced(SQUARE), '   ')}\n\n2. Try it.",
        f"- a\n  - b:\n\n{indented(fenced(SQUARE), '    ')}\n",
        f"1. Write it:\n   ```python\n{SQUARE}\n   ```\n2. Try it.",
        indented(fenced(SQUARE), "> "),
        indented(fenced(SQUARE), "  "),
        fenced(SQUARE, "{.python}"),
        fenced(SQUARE, 'python title="a.py"'),
        fenced(SQUARE).replace("`", "~"),
        fenced(SQUARE).replace("\n", "\r\n"),
        f"<details>\n{fenced(SQUARE)}\n</details>",
        f"```python\ndef g(): pass\n\nNo:\n\n{fenced(SQUARE)}\n",
        f"{fenced(SQUARE)}\n\n{fenced('class T:' + chr(10) + '    def test_f(self): f(2)')}",
        fenced("def f(n):\n    \'\'\'\n    ```\n    f(2)\n    ```\n    \'\'\'\n    return n * n"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("preset", ["official", "strict-last", "phrase"])
def test_a_block_of_markdown_is_the_program_wherever_it_stands(preset: str, response: str):
    scope: dict[str, Callable[[int], int]] = {}
    exec(extract_program(response, preset=preset, entry="f") or "", scope)
    assert scope["f"](3) == 9


@pytest.mark.parametrize("preset", PRESETS)
def test_an_answer_in_the_form_that_the_prompt_asks_for(preset: str):
    template = load_template("solve_code", profile="paper")
    user = template.messages(question="Add {two} numbers.")[-1]["content"]
    assert "Add {two} numbers." in user
    form = user[user.index("\\boxed{\n") :].partition("\n}\n")[0] + "\n}"
    answer = "First I think.\n\n" + form.replace("PROGRAM", "print({1: 'a}'})")
    assert extract_program(answer, preset=preset) == "print({1: 'a}'})\n"


@pytest.mark.parametrize(
    "piece",
    ["\\boxed{```\n", "```\n", "```python\n", "\\boxed{", "\\boxed{```\n```", "~~~\n```\n", "\\begin{verbatim}{",
    "{" * 50, " \t", "\\boxed{ "],
)  # fmt: skip
@pytest.mark.parametrize("preset", PRESETS)
def test_long_hostile_responses_are_read_once(piece: str, preset: str):
    found = extract_program(piece * (200_000 // len(piece)), preset=preset, entry="f")
    assert found is None or len(found) <= 200_000
