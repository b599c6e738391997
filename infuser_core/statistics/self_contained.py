"""Does a question stand alone? Rules for English: it may not point at a text that its reader never sees."""

import re

_TEXT = "text|passage|excerpt|document|chapter|article|paragraph|reading|textbook|lecture|lesson"
_SHOWN = "section|figure|diagram|graph|table|image|example|exercise|discussion|book|source|material|notes"
_WHICH = r"(?:the|this|that|these)\s+(?:\w+\s+)?"
_SAID = "mentioned|described|discussed|shown|stated|defined|given|noted|introduced|presented|illustrated|explained"
_RULES = tuple(
    re.compile(rule, re.IGNORECASE)
    for rule in (
        # "according to the passage", "as described in this section"
        rf"\b(?:according to|based on|(?:{_SAID})\s+(?:in|by|on))\s+{_WHICH}(?:{_TEXT}|{_SHOWN})s?\b",
        rf"\b(?:in|from|of|by|throughout)\s+{_WHICH}(?:{_TEXT})s?\b",
        # "the passage above", "the preceding figure"
        rf"\b(?:above|previous|preceding|aforementioned|provided)\s+(?:{_TEXT}|{_SHOWN})s?\b",
        rf"\b(?:{_TEXT}|{_SHOWN})s?\s+(?:above|below)\b",
        # "as mentioned earlier"; "described above" may mean the question's own first sentence
        rf"\b(?:{_SAID})\s+(?:earlier|previously)\b",
        # "Figure 3.2", "Theorem 4", "Eq. (7)"
        r"\b(?:figure|fig\.|table|equation|eq\.|theorem|lemma|chapter|section|example|exercise)\s*\(?\d+(?:\.\d+)*\b",
        # "what does the author conclude"
        r"\bthe\s+authors?(?:'s?)?\s+(?:\w+s|\w+ed|main|argument|view|conclusion|claim|state|argue|conclude|suggest)\b",
    )
)


def points_at(question: str) -> str:
    """The words by which a question points at something that is not there; empty when no rule finds any."""
    for rule in _RULES:
        found = rule.search(question)
        if found:
            return " ".join(found.group().split())
    return ""
