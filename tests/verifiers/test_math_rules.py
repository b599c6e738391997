"""Rules for notations that a value alone does not decide, by case, and how often they accept altered formulas."""

import time
from fractions import Fraction

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from infuser_core.schemas import Verdict
from infuser_core.verifiers import bbeh, choice, exact, integer, literal
from infuser_core.verifiers.math import _Budget
from infuser_core.verifiers.parts import algebra, compare
from infuser_core.verifiers.parts.algebra import value_of
from infuser_core.verifiers.parts.compare import decide
from infuser_core.verifiers.parts.grading import Finding, Stage, unverified
from infuser_core.verifiers.parts.tokens import is_too_big, tokenize
from infuser_core.verifiers.parts.values import Rules

TIMES = r"""
9\text{ a.m.} | 9\text{ p.m.} | wrong
9\text{ a.m. on Monday} | 9\text{ p.m. on Monday} | wrong
9\text{ AM} | \text{9 a.m.} | correct
7:05 | 14:10 | wrong
07:05 | 7:05 | correct
7:05:00 | 7:05 | correct
4:30 p.m. | 4:30\text{ p.m.} | correct
4:30 PM | 4:30~\mathrm{p.m.} | correct
16:30 | 4:30\text{ p.m.} | correct
4:30 | 4:30\text{ p.m.} | correct
4:30 | 16:30 | wrong
4\text{ p.m.} | 4:00\text{ PM} | correct
12:00\text{ a.m.} | 12:00\text{ p.m.} | wrong
12\text{ noon} | 12:00\text{ p.m.} | correct
0:30 | 12:30\text{ a.m.} | correct
10:15 | 20:30 | wrong
10:15 | 2:3 | correct
1:2 | 2:4 | correct
9 | 9\text{ a.m.} | correct
21 | 9\text{ a.m.} | wrong
"""
INDICES = r"""
7_{1} | 7 | wrong
7_1+1 | 8 | wrong
(7)_{1} | 7 | wrong
7 | 7_{1} | unverified
7_{1} | 7_1 | correct
7_{10} | 7 | correct
12_{8} | 10 | correct
x_{1} | x | wrong
"""
WIDE = """
４２ | 42 | correct
４３ | 42 | wrong
ｘ＋１ | x+1 | correct
１／２ | \\frac{1}{2} | correct
１，２５０ | 1250 | correct
－３．５ | -3.5 | correct
２^１０ | 1024 | correct
"""
RELATIONS = r"""
b>a | a<b | correct
a \le b | b \ge a | correct
a<b | a \le b | wrong
b<a | a<b | wrong
c>b>a | a<b<c | correct
a<c<b | a<b<c | wrong
3<x+y | x+y>3 | correct
-2x-2y<-6 | x+y>3 | correct
x+y \ge 3 | x+y>3 | wrong
x+y<3 | x+y>3 | wrong
x+2y>3 | x+y>3 | wrong
1 \ge x^2+y^2 | x^2+y^2 \le 1 | correct
x^2>4 | x^2+2x>4+2x | correct
x^2+y^2>1 | x+y>1 | unverified
x^2>4 | x>2 | wrong
d>c, b>a | a<b, c<d | correct
2<1 | x<1 | wrong
"""
NOTHING = r"""
\text{no solution} | \emptyset | correct
\{\} | \text{No solutions.} | correct
\text{There is no real solution} | \text{no solution} | correct
the empty set | \varnothing | correct
x \in \emptyset | \text{no solution} | correct
\{\emptyset\} | \emptyset | wrong
\text{one solution} | \text{no solution} | wrong
\text{infinitely many solutions} | \text{no solution} | wrong
0 | \text{no solution} | wrong
\text{no} | \text{no solution} | wrong
DNE | \text{does not exist} | correct
\text{The limit does not exist.} | DNE | correct
\text{undefined} | \text{DNE} | correct
D \cdot N \cdot E | DNE | wrong
\infty | \text{DNE} | wrong
0 | \text{undefined} | wrong
\text{does not exist} | \emptyset | wrong
"""
SETS = r"""
(2,\infty)\cup(-\infty,1) | (-\infty,1)\cup(2,\infty) | correct
(-\infty,1),(2,\infty) | (-\infty,1)\cup(2,\infty) | correct
(0,2]\cup[1,3) | (0,3) | correct
(0,3) | (0,\sqrt{2}]\cup(\frac{\pi}{3},3) | correct
[0,1)\cup(1,2] | [0,2] | wrong
[0,1)\cup[1,2] | [0,2] | correct
(1,2)\cup\{2\} | (1,2] | correct
\{1\}\cup\{2\} | \{2,1\} | correct
(1,2)\cup(3,4) | (1,2)\cup(3,5) | wrong
(\sqrt{2},2)\cup(2,3) | (\sqrt{2},3) | wrong
(a,b)\cup(c,d) | (c,d)\cup(a,b) | correct
(-\infty,a)\cup(a,\infty) | x \ne a | correct
(a,b]\cup[b,c) | (a,c) | wrong
x<1, x>2 | (-\infty,1)\cup(2,\infty) | wrong
x>1, x \ne 3 | (1,3)\cup(3,\infty) | correct
x \ne 3, x>1 | (1,3)\cup(3,\infty) | correct
x \ne 3, x>1 | (-\infty,1] | wrong
x \in [0,1]\setminus\{\frac12\}, x \ne 1 | x \ne \frac12, 1 | wrong
x>1, y \ne 3 | (1,3)\cup(3,\infty) | wrong
x>1, x<3 | (1,3) | correct
x>3 \text{ and } x<5 | 3<x<5 | correct
1<x<3 | x<3, x>1 | correct
x>1, y<3 | (1,3) | wrong
x>1 \text{ or } x \in \{0\} | \{0\}\cup(1,\infty) | correct
(0,1)\cap(\frac12,2) | (\frac12,1) | correct
(0,1)\cap(2,3) | (0,1)\cap(2,4) | wrong
x<1, x>2 | \emptyset | wrong
\mathbb{R}\setminus[0,1] | (-\infty,0)\cup(1,\infty) | correct
\mathbb{R}\setminus(0,1) | (-\infty,0)\cup(1,\infty) | wrong
x \notin \{2,3\} | x \ne 2, 3 | correct
x \notin \{2\} | x \ne 3 | wrong
\{1,2\}\cap\{2,3\} | \{2\} | correct
\{1,2\}\cap\{2,3\} | \{1\} | wrong
x \ge 1, x \le 1 | \{1\} | correct
P(A \cap B) = \frac12 | \frac12 | correct
P(A \mid B) = \frac12 | \frac13 | wrong
x>1 | (1,3)\cup(3,\infty) | wrong
2 \ne x | x \neq 2 | correct
x \not= 2 | x \ne 2 | correct
x \ne 3 | x \ne 2 | wrong
x = 2 | x \ne 2 | wrong
2 | x \ne 2 | wrong
b \ne a | a \ne b | correct
x < 2 \text{ or } x > 2 | x \ne 2 | correct
(-\infty,\infty) | x \ne 2 | wrong
\mathbb{R} \setminus \{2\} | x \ne 2 | correct
x \in \mathbb{R} - \{2\} | (-\infty,2)\cup(2,\infty) | correct
\{x : x \ne 2\} | (-\infty,2)\cup(2,\infty) | correct
\text{all real numbers except } 2 | x \ne 2 | correct
x \ne \pm 2 | x \ne -2, 2 | correct
x \ne -2 \text{ and } x \ne 2 | \mathbb{R}\setminus\{-2,2\} | correct
x \ne -2 \text{ or } x \ne 2 | \mathbb{R}\setminus\{-2,2\} | wrong
x \ne 2, 3 | x \ne 2 | wrong
y \ne 2 | x \ne 2 | wrong
"""
CASES = r"""
[[ 0 & x \le 0 \\ 1+x & 0<x ]] | [[ x+1 & x>0 \\ 0 & x \le 0 ]] | correct
[[ x+1, & \text{if } x>0, \\ 0, & \text{if } x \le 0. ]] | [[ x+1 & x>0 \\ 0 & x \le 0 ]] | correct
f(x)=[[ x+1 \text{ for } x>0 \\ 0 \text{ else} ]] | [[ x+1 & x>0 \\ 0 & \text{otherwise} ]] | correct
[[ 0 & x>0 \\ x+1 & x \le 0 ]] | [[ x+1 & x>0 \\ 0 & x \le 0 ]] | wrong
[[ x+1 & x \ge 0 \\ 0 & x < 0 ]] | [[ x+1 & x>0 \\ 0 & x \le 0 ]] | wrong
[[ x+1 & x>0 ]] | [[ x+1 & x>0 \\ 0 & x \le 0 ]] | wrong
[[ x+1 & x>0 \\ 0 & \text{otherwise} ]] | [[ x+1 & x>0 \\ 0 & x \le 0 ]] | unverified
[[ 1 & n \text{ even} \\ 0 & n \text{ odd} ]] | [[ 0, & n \text{ is odd} \\ 1, & n \text{ is even} ]] | correct
[[ 1 & n \text{ even} \\ 0 & n \text{ odd} ]] | [[ 1 & n \text{ odd} \\ 0 & n \text{ even} ]] | unverified
[[ y=2 \\ x=1 ]] | x=1, y=2 | correct
"""
VECTORS = r"""
\langle 1,2,3 \rangle | (1,2,3) | correct
<1,2,3> | \left\langle 1,2,3 \right\rangle | correct
(1,2,3) | \begin{pmatrix} 1 \\ 2 \\ 3 \end{pmatrix} | correct
\begin{pmatrix} 1 & 2 & 3 \end{pmatrix} | \begin{pmatrix} 1 \\ 2 \\ 3 \end{pmatrix} | wrong
2\mathbf{j}+\mathbf{i}-3\mathbf{k} | \langle 1,2,-3 \rangle | correct
\langle 1,2,3 \rangle | \hat{\imath}+2\hat{\jmath}+3\hat{k} | correct
\frac{\vec{i}+\vec{j}}{\sqrt{2}} | (\frac{\sqrt{2}}{2},\frac{1}{\sqrt{2}}) | correct
2t\mathbf{i}+t^2\mathbf{j} | \begin{pmatrix} 2t \\ t^2 \end{pmatrix} | correct
\mathbf{i}-\mathbf{k} | (1,0,-1) | correct
3\mathbf{i}+4\mathbf{j} | (3,4,0) | correct
3\mathbf{i}+4\mathbf{j} | (4,3) | wrong
\mathbf{i}+\mathbf{j}+2\mathbf{k} | (1,1,3) | wrong
3i+4 | (3,4) | wrong
4i | (4,0) | wrong
\langle 2,1 \rangle | \langle 1,2 \rangle | wrong
0 | \langle 0,0 \rangle | wrong
"""
AMOUNTS = r"""
2\text{ hours }30\text{ minutes} | 2.5\text{ hours} | correct
150\text{ minutes} | \text{2 hours 30 minutes} | correct
2 h 30 min | 2\text{ hours and }30\text{ minutes} | correct
2 hours, 30 minutes | 150\text{ minutes} | correct
2\text{ hours }30\text{ minutes} | 150 | correct
2\text{ hours }30\text{ minutes} | 2.5 | correct
2\text{ hours }31\text{ minutes} | 2\text{ hours }30\text{ minutes} | wrong
2\text{ hours} | 2\text{ hours }30\text{ minutes} | wrong
30\text{ minutes }2\text{ hours} | 2\text{ hours }30\text{ minutes} | wrong
5\text{ ft }6\text{ in} | 66\text{ inches} | correct
3\text{ dollars and }50\text{ cents} | \$3.50 | correct
1 week, 2 days and 12 hours | 9.5\text{ days} | correct
30^\circ 15' 36'' | 30.26^\circ | correct
5\text{ feet }6\text{ kg} | 5\text{ feet} | wrong
2\text{ hours }5\text{ apples} | 2\text{ hours} | wrong
2:30 | 2\text{ hours }30\text{ minutes} | wrong
3\text{ m}, 50\text{ cm} | 50\text{ cm}, 3\text{ m} | correct
"""
NAMES = r"""
(x,y)=(1,2) | (1,2) | correct
(1,2) | (x,y)=(1,2) | correct
(x,y,z)=(1,2,3) | \langle 1,2,3 \rangle | correct
y=2, x=1 | (x,y)=(1,2) | correct
(x,y)=(1,2) | x=1, y=2 | correct
(y,x)=(2,1) | (x,y)=(1,2) | correct
(y,x)=(1,2) | (x,y)=(1,2) | wrong
(a,b)=(1,2) | (x,y)=(1,2) | wrong
x=2, y=1 | (x,y)=(1,2) | wrong
(x,y)=(1,2,3) | (x,y)=(1,2) | wrong
(x,y)=(1,2) \text{ or } (3,4) | (3,4),(1,2) | correct
(x,y) \in \{(1,2),(3,4)\} | (3,4),(1,2) | correct
x=y=1 | y=1, x=1 | correct
x=y=1 | x=1, y=2 | wrong
x=y=1 | x=1 | unverified
"""
TABLES = TIMES + INDICES + WIDE + RELATIONS + NOTHING + SETS + CASES + VECTORS + AMOUNTS + NAMES


def _cases(table: str) -> list[list[str]]:
    table = table.replace("[[", r"\begin{cases}").replace("]]", r"\end{cases}")
    return [[part.strip() for part in line.split(" | ")] for line in table.splitlines() if line]


@pytest.mark.parametrize(("answer", "reference", "verdict"), _cases(TABLES))
def test_a_notation_is_judged_by_its_rule(answer: str, reference: str, verdict: str):
    assert compare.decide(answer, reference, Rules(), _Budget()).verdict == Verdict(verdict)


def test_wide_letters_and_digits_are_read_as_choices_texts_and_integers():
    for wide, plain in (("Ｂ", "B"), ("（Ｂ）", "B"), ("Ｂ．", "B")):
        reading = choice._read_letter(wide)
        assert reading is not None and reading[0] == plain
    assert exact.agreement("１，０００", "1000") and not exact.agreement("１，００１", "1000")
    assert integer.parse_integer("０４２") == 42
    for wide, plain in (
        ("２５", "25"),
        ("（Ａ）", "A"),
        ("Ｙｅｓ．", "yes"),
        ("１，０００", "1000"),
        ("ａ，ｂ", "a, b"),
    ):
        assert bbeh.agreement(wide, plain)
    assert bbeh.agreement("25", "２５")
    assert not bbeh.agreement("（Ａ）", "A", as_float=True)


def test_wide_signs_of_a_literal_are_read_and_its_strings_stay_as_they_are():
    for wide, plain in (
        ("［１，２］", [1, 2]), ("（１．５，－３）", (1.5, -3)), ("｛１：＇ａ＇｝", {1: "a"}), ("Ｔｒｕｅ", True),
        ("['ａ'， \"ｂ\\\"，\"]", ["ａ", 'ｂ"，']),
    ):  # fmt: skip
        assert literal.value_of(wide) == plain
    assert literal.value_of("'ａ'") != literal.value_of("'a'")
    began = time.perf_counter()
    assert literal.value_of("'" + "\\'" * 4990 + "，") is None
    assert time.perf_counter() - began < 0.5


def test_a_ratio_that_looks_like_a_time_is_a_ratio_where_the_question_asks_for_one():
    assert compare.decide("6:40", "3:20", Rules(ratio=True), _Budget()).verdict == Verdict.CORRECT
    assert compare.decide("6:40", "3:20", Rules(), _Budget()).verdict == Verdict.WRONG


# What a changed number, sign, bracket or order does to an answer: it is never accepted. A rewriting always is


integers = st.integers(-9999, 9999)
fractions = st.fractions(min_value=-50, max_value=50, max_denominator=60)


def undecided(request: dict[str, object]) -> Finding:
    """Nobody to ask."""
    return unverified(Stage.TIME)


def verdict(answer: str, reference: str, rules: Rules = Rules()) -> Verdict:
    return decide(answer, reference, rules, undecided).verdict


def written(value: Fraction, style: int) -> str:
    """A rational number in one of the ways people write it."""
    sign, top, bottom = "-" if value < 0 else "", abs(value.numerator), value.denominator
    if bottom == 1:
        return [f"{sign}{top}", f"{sign}{top}.0", f"{sign}{top:,}", rf"{sign}\frac{{{2 * top}}}{{2}}"][style % 4]
    whole, rest = divmod(top, bottom)
    mixed = rf"{sign}{whole}\frac{{{rest}}}{{{bottom}}}" if whole else rf"{sign}\dfrac{{{top}}}{{{bottom}}}"
    return [
        rf"{sign}\frac{{{top}}}{{{bottom}}}", rf"\frac{{{sign}{top}}}{{{bottom}}}", f"{sign}{top}/{bottom}", mixed,
    ][style % 4]  # fmt: skip


@given(fractions, st.integers(0, 3), st.integers(0, 3))
def test_two_spellings_of_a_number_are_equal(value: Fraction, left: int, right: int):
    assert verdict(written(value, left), written(value, right)) == Verdict.CORRECT


@given(fractions, fractions, st.integers(0, 3), st.integers(0, 3))
@example(Fraction(12), Fraction(1), 0, 0)
def test_another_number_is_wrong_in_every_spelling(value: Fraction, other: Fraction, left: int, right: int):
    assume(value != other)
    assert verdict(written(other, left), written(value, right)) == Verdict.WRONG


@given(integers, integers)
def test_a_chain_with_a_wrong_member_is_wrong(right: int, wrong: int):
    assume(right != wrong)
    chains = ("{1}={0}", "{0}={1}", r"{1} \to {0}", r"{0} \to {1}", r"{1} \approx {0}", "x={1}={0}", "{1} = x = {0}")
    for chain in chains:
        assert verdict(chain.format(right, wrong), str(right)) == Verdict.WRONG


@given(st.lists(integers, min_size=2, max_size=6), st.randoms(use_true_random=False))
def test_lists_and_sets_have_no_order_and_tuples_have(values: list[int], random):
    shuffled = list(values)
    random.shuffle(shuffled)
    left, right = ", ".join(map(str, shuffled)), ", ".join(map(str, values))
    assert verdict(left, right) == Verdict.CORRECT
    assert verdict(rf"\{{{left}\}}", rf"\{{{right}\}}") == Verdict.CORRECT
    assert verdict(f"({left})", f"({right})") == (Verdict.CORRECT if shuffled == values else Verdict.WRONG)


@given(st.lists(integers, min_size=2, max_size=6, unique=True), st.integers(0, 5), integers)
def test_a_list_with_one_other_member_is_wrong(values: list[int], place: int, other: int):
    assume(other not in values)
    changed = [*values[: place % len(values)], other, *values[place % len(values) + 1 :]]
    reference = ", ".join(map(str, values))
    for answer in (changed, values[:-1], [*values, other]):
        assert verdict(", ".join(map(str, answer)), reference) == Verdict.WRONG


@given(integers, integers, st.sampled_from(["()", "(]", "[)", "[]"]), st.sampled_from(["()", "(]", "[)", "[]"]))
def test_kinds_of_brackets_must_match(low: int, high: int, mine: str, theirs: str):
    answer, reference = (f"{kind[0]}{low}, {high}{kind[1]}" for kind in (mine, theirs))
    assert verdict(answer, reference) == (Verdict.CORRECT if mine == theirs else Verdict.WRONG)
    assert verdict(rf"\{{{low},{high}\}}", reference) == Verdict.WRONG


@given(integers, integers, st.sampled_from(["()", "(]", "[)", "[]"]), st.sampled_from("xyt"))
def test_an_inequality_is_the_interval_it_describes(low: int, high: int, kind: str, name: str):
    assume(low < high)
    left, right = (r"\le" if kind[0] == "[" else "<"), (r"\leq" if kind[1] == "]" else "<")
    written_out = rf"{low} {left} {name} {right} {high}"
    for other in ("()", "(]", "[)", "[]"):
        reference = f"{other[0]}{low},{high}{other[1]}"
        assert verdict(written_out, reference) == (Verdict.CORRECT if other == kind else Verdict.WRONG)
        assert verdict(reference, written_out) == (Verdict.CORRECT if other == kind else Verdict.WRONG)


@given(fractions, st.fractions(min_value=0, max_value=5, max_denominator=20), fractions)
def test_a_tolerance_is_as_wide_as_declared(value: Fraction, tolerance: Fraction, answer: Fraction):
    rules = Rules(tolerances=(tolerance,))
    within = abs(value - answer) <= tolerance
    assert verdict(written(answer, 0), written(value, 0), rules) == (Verdict.CORRECT if within else Verdict.WRONG)


sums = st.recursive(
    st.one_of(fractions.map(lambda value: (f"({written(value, 0)})", value))),
    lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*", "/", r"\cdot "]), inner).map(
        lambda parts: (
            f"({parts[0][0]} {parts[1]} {parts[2][0]})",
            computed(parts[0][1], parts[1], parts[2][1]),
        )
    ),
    max_leaves=8,
)


def computed(left: Fraction | None, sign: str, right: Fraction | None) -> Fraction | None:
    if left is None or right is None or (sign == "/" and right == 0):
        return None
    return {"+": left + right, "-": left - right, "/": left / (right or 1)}.get(sign, left * right)


@given(sums)
def test_arithmetic_is_that_of_fractions(expression: tuple[str, Fraction | None]):
    text, value = expression
    assume(not is_too_big(text))
    try:
        found = value_of(tokenize(text))
    except ZeroDivisionError:
        assert value is None
        return
    assert found is not None
    assert algebra.rational(found) == value


@given(st.integers(1, 400), st.integers(1, 400), integers)
def test_square_roots_multiply_and_add_exactly(left: int, right: int, shift: int):
    product = rf"\sqrt{{{left}}}\sqrt{{{right}}}+{abs(shift)}"
    assert verdict(product, rf"{abs(shift)}+\sqrt{{{left * right}}}") == Verdict.CORRECT
    assert verdict(product, rf"{abs(shift)}+\sqrt{{{left * right + 1}}}") == Verdict.WRONG


@given(st.integers(-9, 9), st.integers(-9, 9), st.integers(-9, 9), st.integers(-9, 9))
def test_a_product_of_binomials_is_its_expansion(a: int, b: int, c: int, d: int):
    factors = f"({a}x+({b}))({c}x+({d}))"
    expanded = f"({a * c})x^2+({a * d + b * c})x+({b * d})"
    assert verdict(factors, expanded) == Verdict.CORRECT
    assert verdict(factors, expanded + "+1") == Verdict.WRONG


PIECES = [
    *"0123456789+-*/^_!%(){}[]|<>=,.;:'\\ xyie", r"\frac", r"\sqrt", r"\{", r"\}", r"\pm", r"\text{", r"\to", r"\cup",
    r"\le", r"\infty", r"\pi", r"\sin", "12", "{1}", r"\begin{pmatrix}", r"\end{pmatrix}", "&", "\\\\", r"\overline",
    r"\binom", "^{", "°", r"\approx", r"\in", "and", "kg", r"\$", "e5",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=24).map("".join), st.lists(st.sampled_from(PIECES), max_size=12))
def test_no_text_makes_it_raise(answer: str, reference: list[str]):
    for gold in ("".join(reference), "5", "(1,2)", r"\frac{1}{2}", "x"):
        assert verdict(answer, gold) in Verdict
