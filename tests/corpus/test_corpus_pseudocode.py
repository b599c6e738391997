"""Algorithms of LaTeX books keep their statements, their order and their words."""

import re
from collections import Counter

import pytest
from book_tools import convert, written
from hypothesis import given
from hypothesis import strategies as st

from corpus.read.books.pseudocode import listed


def lines(text: str) -> list[str]:
    """The listing's lines."""
    return re.search(r"\\begin\{verbatim\}\n(.*?)\n\\end\{verbatim\}", listed(text), re.DOTALL)[1].split("\n")


def algorithmic(body: str) -> list[str]:
    return lines(f"\\begin{{algorithmic}}[1]\n{body}\n\\end{{algorithmic}}")


def algorithm2e(body: str) -> list[str]:
    return lines(f"\\begin{{algorithm}}[H]\n\\SetAlgoLined\n{body}\n\\end{{algorithm}}")


def test_a_book_shows_an_algorithm_as_a_listing_below_its_caption(tmp_path):
    text = (
        "\\begin{document}\nOne.\n\\begin{algorithm}[tb]\n\\caption{Sort of {\\bf all} $x_{\\text{all}}$}\\label{alg:s}\n"
        "\\begin{algorithmic}\n\\STATE $x = 1$\n\\end{algorithmic}\n\\end{algorithm}\nTwo.\n\\end{document}\n"
    )
    assert convert(written(tmp_path, "book.tex", text)).markdown == (
        "One.\n\nAlgorithm: Sort of **all** $x_{\\text{all}}$\n\n``` text\n$x = 1$\n```\n\nTwo.\n"
    )


def test_blocks_with_an_end_are_indented():
    body = """
        \\Procedure{Euclid}{$a,b$} \\Comment{The g.c.d.}
        \\State $r \\gets a \\bmod b$
        \\While{$r \\not= 0$}\\label{line} % for us
        \\If{$a > 3$} \\State $b \\gets r$ \\ElsIf{$a$} \\State stop \\Else \\State $b \\gets 1$ \\EndIf
        \\EndWhile
        \\State \\textbf{return} $b$
        \\EndProcedure"""
    assert algorithmic(body) == [
        "procedure Euclid($a,b$) // The g.c.d.",
        "  $r \\gets a \\bmod b$",
        "  while $r \\not= 0$ do",
        "    if $a > 3$ then",
        "      $b \\gets r$",
        "    else if $a$ then",
        "      stop",
        "    else",
        "      $b \\gets 1$",
        "    end if",
        "  end while",
        "  return $b$",
        "end procedure",
    ]


def test_commands_in_capitals_are_the_same_blocks():
    body = """
        \\REQUIRE $n \\geq 0$ \\\\ and even
        \\REPEAT
        \\FOR[each one]{$i=1$ \\TO $n$}
        \\IF{\\NOT $a$ \\AND $b$} \\RETURN \\TRUE \\PRINT ``5\\%'' \\ENDIF
        \\ENDFOR
        \\UNTIL{$n = 0$}"""
    assert algorithmic(body) == [
        "Require: $n \\geq 0$",
        "and even",
        "repeat",
        "  for $i=1$ to $n$ do // each one",
        "    if not $a$ and $b$ then",
        "      return true",
        "      print ``5%''",
        "    end if",
        "  end for",
        "until $n = 0$",
    ]


def test_a_block_that_a_book_defines_is_known_by_its_end():
    body = "\\Switch{$x$} \\Case{1} \\State one \\EndCase \\EndSwitch \\ParFor{$i$} \\State two \\EndParFor"
    assert algorithmic(body) == [
        "switch $x$",
        "  case 1",
        "    one",
        "  end case",
        "end switch",
        "par for $i$",
        "  two",
        "end par for",
    ]


def test_calls_have_their_arguments_in_parentheses():
    assert algorithmic("\\State \\Call{Visit}{$x$, \\Call{Next}{$\\{x\\}$}}") == ["Visit($x$, Next($\\{x\\}$))"]


def test_words_that_a_book_defines_stand_for_its_commands():
    text = (
        "\\renewcommand{\\algorithmicrequire}{\\textbf{Given:}}\n\\newcommand{\\INPUT}{\\item[\\textbf{Input:}]}\n"
        "\\algnewcommand{\\Note}[1]{\\State \\(\\triangleright\\) \\textsc{#1}}\n\\begin{algorithmic}\n"
        "\\Require $x$\n\\INPUT $y$\n\\Note{Go on}\n\\end{algorithmic}\n"
    )
    assert lines(text) == ["Given: $x$", "Input: $y$", "\\(\\triangleright\\) Go on"]


def test_blocks_in_braces_are_indented():
    body = """
        \\KwIn{$x$}\\KwOut{$y$}
        $y \\leftarrow 0;\\; z \\leftarrow 1$\\;
        \\While{(!convergency)} {
            Evaluate $g_{k_{1}}$ \\\\
            \\If{$\\|g\\| < \\{\\epsilon\\}$}{ return $x$\\; }
            \\eIf{$a$}{ $b$\\; }{ \\ForEach{$i$ \\KwTo $n$}{ $c$\\; } }
            \\Repeat{$s = 2$}{ go\\; }
        }
        \\KwRet{$y$}"""
    assert algorithm2e(body) == [
        "Input: $x$",
        "Output: $y$",
        "$y \\leftarrow 0;\\; z \\leftarrow 1$",
        "while (!convergency) do",
        "  Evaluate $g_{k_{1}}$",
        "  if $\\|g\\| < \\{\\epsilon\\}$ then",
        "    return $x$",
        "  if $a$ then",
        "    $b$",
        "  else",
        "    for each $i$ to $n$ do",
        "      $c$",
        "  repeat",
        "    go",
        "  until $s = 2$",
        "return $y$",
    ]


def test_blocks_without_an_end_or_on_one_line_are_blocks():
    body = "\\uIf(\\tcp*[f]{first}){$a$ (or b)}{x\\;} \\uElseIf(second){$c$}{y\\;} \\Else{z\\;} \\lIf{$d$}{w}"
    assert algorithm2e(body) == [
        "if $a$ (or b) then // first",
        "  x",
        "else if $c$ then // second",
        "  y",
        "else",
        "  z",
        "if $d$ then",
        "  w",
    ]


def test_a_comment_ends_its_line():
    assert algorithm2e("\\tcc{All}\n$s$ += 1\\tcp*[r]{up} t\\; \\tcp*[h]{now} u\\;") == [
        "// All",
        "$s$ += 1 // up",
        "t",
        "// now u",
    ]


def test_keywords_that_a_book_defines_are_words():
    text = (
        "\\SetKwProg{Fn}{Function}{:}{end}\\SetKwFunction{FSum}{Sum}\\SetKw{Break}{break}\\SetKwComment{Note}{/* }{ */}\n"
        "\\SetKwFor{ParFor}{for}{do in parallel}{end}\\SetKwInOut{Input}{input}\n\\begin{algorithm2e}\n\\Input{$n$}\n"
        "\\Fn{\\FSum{$a$, $b$}}{ \\ParFor{$i$}{\\Break \\Note*[r]{ok}} \\FSum is $a$\\; }\n\\end{algorithm2e}\n"
    )
    assert lines(text) == [
        "input: $n$",
        "Function Sum($a$, $b$):",
        "  for $i$ do in parallel",
        "    break // ok",
        "  Sum is $a$",
    ]


def test_unknown_commands_stay():
    assert algorithmic("\\State find \\vec{\\theta} {by \\mine{$x$}} \\other") == [
        "find \\vec{\\theta} by \\mine{$x$} \\other"
    ]


@pytest.mark.parametrize("body", ["\\State {a", "\\State a}", "\\State $a", "\\begin{x} \\State a"])
def test_an_algorithm_without_matching_braces_stays(body):
    text = f"\\begin{{algorithmic}}\n{body}\n\\end{{algorithmic}}\n"
    assert listed(text) == text


def test_a_command_that_calls_itself_leaves_the_algorithm(tmp_path):
    text = "\\newcommand{\\a}{\\a\\a}\\begin{algorithmic}\\State \\a \\end{algorithmic}"
    assert listed(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "% \\begin{algorithm}\n\\State \\end{algorithm}",
        "\\begin{verbatim}\n\\begin{algorithmic} \\State x \\end{algorithmic}\n\\end{verbatim}",
        "Write \\verb|\\begin{algorithm}| and \\verb|\\end{algorithm}|.",
        "\\newtheorem{algorithm}[thm]{Algorithm}\n\\begin{algorithm}\\label{a} Take $a\\;b$.\\; Then stop. \\end{algorithm}",
        "\\begin{algorithm} Take $a\\;b$ and \\[ b\\;c \\] \\end{algorithm}",
    ],
)
def test_what_only_looks_like_an_algorithm_stays(text):
    assert listed(text) == text


def test_a_float_around_other_text_keeps_it_below_its_caption():
    text = "\\begin{algorithm}\n\\caption{Plain}\\begin{enumerate}\\item $a\\;b$ \\end{enumerate}\n\\end{algorithm}"
    assert " ".join(listed(text).split()) == "Algorithm: Plain \\begin{enumerate}\\item $a\\;b$ \\end{enumerate}"


WORD = st.from_regex(r"[a-z]{3,8}", fullmatch=True)
FORMULA = st.builds(lambda a, b: f"${a}_{{{b}}} \\text{{if ${b}$}} \\{{$", WORD, WORD)
PHRASE = st.lists(WORD | FORMULA, min_size=1, max_size=4).map(" ".join)


def in_braces(draw: st.DrawFn, depth: int = 3) -> str:
    name = draw(st.sampled_from(["If", "lForEach", "uElseIf", "Repeat", "unknown", "eIf", "tcp", "", "", ""]))
    if not depth or not name:
        return f"{draw(PHRASE)}\\;\n{draw(PHRASE)} \\\\"
    if name == "tcp":
        return f"\\tcp*[f]{{{draw(PHRASE)}}} {{\\bf {draw(PHRASE)}}}"
    body = f"{{{in_braces(draw, depth - 1)}}}"
    if name == "eIf":
        return f"\\eIf({draw(PHRASE)}){{{draw(PHRASE)}}}\n {body} {{{in_braces(draw, depth - 1)}}}"
    return f"\\{name}{{{draw(PHRASE)}}}{body} {in_braces(draw, depth - 1)}"


def with_ends(draw: st.DrawFn, depth: int = 3) -> str:
    name = draw(st.sampled_from(["If", "WHILE", "ForAll", "Mine", "Procedure", "", "", ""]))
    if not depth or not name:
        return f"\\State {draw(PHRASE)}\n\\State\\emph{{{draw(PHRASE)}}} \\Comment{{{draw(PHRASE)}}}"
    more = f"{{{draw(PHRASE)}}} \\Comment{{{draw(PHRASE)}}}" if name == "Procedure" else ""
    end = f"\\{'END' if name.isupper() else 'End'}{name} {with_ends(draw, depth - 1)}"
    return f"\\{name}{{{draw(PHRASE)}}}{more}\n{with_ends(draw, depth - 1)}\n{end}"


def words_and_formulas(text: str) -> Counter[str]:
    """Each with the times that it stands there; names of commands are no words."""
    formulas = re.findall(r"\$(?:[^{}$]|\{(?:[^{}]|\{[^{}]*\})*\})*\\\{\$", text)
    for each in formulas:
        text = text.replace(each, " ")
    return Counter([*formulas, *re.findall(r"(?<![\\a-zA-Z])[a-z]{3,8}\b", text)])


@given(st.data(), st.sampled_from([(in_braces, algorithm2e), (with_ends, algorithmic)]))
def test_no_word_and_no_formula_is_lost(data, kind):
    write, read = kind
    text = write(data.draw)
    assert words_and_formulas(text) <= words_and_formulas(" ".join(read(text)))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("opened", ["\\begin{algorithm} ", "\\begin{verbatim} ", "\\verb|\n"])
def test_thousands_of_beginnings_without_an_end_are_passed_over(opened):
    text = "\\begin{algorithm}a\\end{algorithm}" + opened * 20_000
    assert listed(text).endswith(opened * 20_000)
