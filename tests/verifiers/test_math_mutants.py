"""What a changed number, sign, bracket or order does to an answer: it is never accepted. A rewriting always is."""

from fractions import Fraction

from hypothesis import assume, example, given
from hypothesis import strategies as st

from infuser_core.schemas import Verdict
from infuser_core.verifiers.parts import algebra
from infuser_core.verifiers.parts.algebra import value_of
from infuser_core.verifiers.parts.compare import decide
from infuser_core.verifiers.parts.grading import Finding, Stage, unverified
from infuser_core.verifiers.parts.tokens import is_too_big, tokenize
from infuser_core.verifiers.parts.values import Rules

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
