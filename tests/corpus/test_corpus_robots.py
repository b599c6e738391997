"""robots.txt: the group that names us, the longest rule, wildcards, and the standard library where it is right."""

import re
from urllib.robotparser import RobotFileParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.find.polite_http import EVERYTHING, NOTHING, Robots, Rule, parse

PRESS = "User-agent: *\nDisallow: /*/wp-json/\nCrawl-delay: 2.5\n"


def test_a_wildcard_forbids_the_books_own_interface_and_not_the_networks():
    robots = parse(PRESS, "infuser-corpus")
    assert not robots.allows("/algebra/wp-json/pressbooks/v2/metadata")
    assert robots.allows("/wp-json/pressbooks/v2/books?page=2")
    assert robots.delay == 2.5


@pytest.mark.parametrize(
    ("text", "path", "allowed"),
    [
        ("User-agent: *\nDisallow: /\nAllow: /pdf/", "/pdf/a.pdf", True),
        ("User-agent: *\nAllow: /pdf\nDisallow: /pdf", "/pdf", True),
        ("User-agent: *\nDisallow: /*.pdf$", "/a/b.pdf", False),
        ("User-agent: *\nDisallow: /*.pdf$", "/a/b.pdf?x=1", True),
        ("User-agent: *\nDisallow: /a%3cd.html", "/a%3Cd.html", False),
        ("User-agent: *\nDisallow:", "/x", True),
        ("User-agent: *\nDisallow: /\n\nUser-agent: infuser-corpus\nDisallow: /private", "/x", True),
        ("User-agent: Infuser-Corpus/0.1\nDisallow: /x", "/x", False),
        ("User-agent: a\nUser-agent: infuser-corpus\nDisallow: /x", "/x", False),
        ("Disallow: /x", "/x", True),
        ("\ufeffUser-agent: * # all\nDisallow: /x # no", "/x/y", False),
        ("<html>a login page</html>", "/x", True),
        ("User-agent: *\nDisallow: /", "/robots.txt", True),
        ("", "", True),
    ],
)
def test_rules(text, path, allowed):
    assert parse(text, "infuser-corpus").allows(path) == allowed


def test_two_groups_with_our_name_are_one():
    robots = parse("User-agent: infuser\nDisallow: /a\n\nUser-agent: infuser\nDisallow: /b\n", "infuser")
    assert not robots.allows("/a") and not robots.allows("/b") and robots.allows("/c")


def test_the_two_extremes():
    assert EVERYTHING.allows("/x") and not NOTHING.allows("/x")


def test_a_delay_of_days_is_not_obeyed_to_the_letter():
    assert parse("User-agent: *\nCrawl-delay: 86400", "infuser").delay == 60.0


PATHS = st.lists(st.text(alphabet="ab", min_size=1, max_size=2), min_size=1, max_size=3).map(
    lambda p: "/" + "/".join(p)
)


@given(st.lists(PATHS, max_size=4), PATHS)
def test_plain_prefixes_agree_with_the_standard_library(forbidden, path):
    text = "User-agent: *\n" + "\n".join(f"Disallow: {prefix}" for prefix in forbidden)
    reference = RobotFileParser()
    reference.parse(text.splitlines())
    assert parse(text, "infuser").allows(path) == reference.can_fetch("infuser", path)


@given(st.text(alphabet="/ab*", max_size=8), st.booleans(), st.text(alphabet="/ab", max_size=10))
def test_patterns_agree_with_a_regular_expression(pattern, anchored, rest):
    expression = ".*".join(re.escape(piece) for piece in ("/" + pattern).split("*")) + ("$" if anchored else "")
    rule = Rule(allow=False, pattern="/" + pattern + ("$" if anchored else ""))
    assert Robots(rules=(rule,), delay=0.0).allows("/" + rest) == (re.match(expression, "/" + rest) is None)
