"""Licences are read from every spelling catalogues use, and what is not understood is not allowed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.find.licences import agree, covers, is_allowed, read, spdx_of

ELEMENTS = ["BY", "BY-SA", "BY-ND", "BY-NC", "BY-NC-SA", "BY-NC-ND"]
VERSIONS = ["1.0", "2.0", "2.5", "3.0", "4.0"]


@pytest.mark.parametrize(
    ("text", "spdx"),
    [
        ("https://creativecommons.org/licenses/by/4.0/", "CC-BY-4.0"),
        ("http://www.creativecommons.org/licenses/by-sa/3.0", "CC-BY-SA-3.0"),
        ("//creativecommons.org/licenses/by-nc-nd/4.0/legalcode", "CC-BY-NC-ND-4.0"),
        ("https://creativecommons.org/licenses/by/3.0/us/", "CC-BY-3.0-US"),
        ("https://creativecommons.org/licenses/by/3.0/nz/deed.en", "CC-BY-3.0"),
        ("https://creativecommons.org/licenses/by-sa/3.0/igo/", "CC-BY-SA-3.0-IGO"),
        ("https://creativecommons.org/licenses/by/", "CC-BY"),
        ("https://creativecommons.org/publicdomain/zero/1.0/", "CC0-1.0"),
        ("https://creativecommons.org/publicdomain/mark/1.0/", "CC-PDM-1.0"),
        ("https://creativecommons.org/licenses/publicdomain/", "CC-PDDC"),
        ("This work is under https://creativecommons.org/licenses/by/4.0/.", "CC-BY-4.0"),
        ("http://arxiv.org/licenses/nonexclusive-distrib/1.0/", "LicenseRef-arXiv-nonexclusive-distrib-1.0"),
        ("https://www.gnu.org/licenses/fdl-1.3.html", "GFDL-1.3-or-later"),
        ("https://www.gnu.org/copyleft/fdl.html", "GFDL"),
        ("CC BY", "CC-BY"),
        ("CC-BY-NC-4.0", "CC-BY-NC-4.0"),
        ("CC BY-NC-SA 4.0", "CC-BY-NC-SA-4.0"),
        ("cc by 4", "CC-BY-4.0"),
        ("ccbyncsa", "CC-BY-NC-SA"),
        ("ccby", "CC-BY"),
        ("cc-by-nc-nd", "CC-BY-NC-ND"),
        ("Attribution", "CC-BY"),
        ("Attribution-ShareAlike", "CC-BY-SA"),
        ("Attribution-NonCommercial-NoDerivs", "CC-BY-NC-ND"),
        ("Creative Commons Attribution License 4.0", "CC-BY-4.0"),
        ("Creative Commons Attribution-NonCommercial-ShareAlike 4.0 International License", "CC-BY-NC-SA-4.0"),
        ("Attribution-NonCommercial 3.0 Unported (CC BY-NC 3.0)", ""),
        ("Free Documentation License (GNU)", "GFDL"),
        ("gnufdl", "GFDL"),
        ("GFDL-1.3-or-later", "GFDL-1.3-or-later"),
        ("CC0", "CC0-1.0"),
        ("CC0 1.0 Universal", "CC0-1.0"),
        ("Public Domain", "LicenseRef-public-domain"),
        ("publicdomain", "LicenseRef-public-domain"),
        ("All Rights Reserved", "LicenseRef-all-rights-reserved"),
        ("arr", "LicenseRef-all-rights-reserved"),
    ],
)
def test_spellings(text, spdx):
    assert spdx_of(text) == spdx


@pytest.mark.parametrize(
    "text",
    [
        "",
        "open access",
        "free to read online",
        "https://creativecommons.org/licenses/by-/4.0/",
        "https://creativecommons.org/licenses/sa/4.0/",
        "https://creativecommons.org/licenses/by-nd-sa/4.0/",
        "https://creativecommons.org/licenses/by/9.9/",
        "https://creativecommons.org.example.net/licenses/by/4.0/",
        "https://example.org/licenses/by/4.0/",
        "https://creativecommons.org/about",
        "not CC BY",
        "CC BY except chapter 3",
        "fairuse",
        "ck12",
        "MIT",
    ],
)
def test_what_is_not_a_known_licence_is_none(text):
    assert spdx_of(text) == ""
    assert not is_allowed(spdx_of(text), ["CC-BY", "CC-BY-SA", "CC0-1.0"])


@given(st.sampled_from(ELEMENTS), st.sampled_from(VERSIONS), st.sampled_from(["", "deed.de", "legalcode", "xx/"]))
def test_every_creative_commons_address_keeps_its_elements(elements, version, tail):
    address = f"https://creativecommons.org/licenses/{elements.lower()}/{version}/{tail}"
    assert spdx_of(address) == f"CC-{elements}-{version}"
    assert spdx_of(f"CC {elements} {version}") == f"CC-{elements}-{version}"


@given(st.sampled_from(ELEMENTS), st.sampled_from(ELEMENTS), st.sampled_from(VERSIONS))
def test_an_entry_never_covers_other_elements(entry, other, version):
    assert covers(f"CC-{entry}", f"CC-{other}-{version}") == (entry == other)


def test_an_entry_with_a_version_covers_that_version_and_its_ports_alone():
    assert covers("CC-BY-3.0", "CC-BY-3.0-US") and covers("CC-BY", "CC-BY-3.0-US") and covers("CC-BY", "CC-BY")
    assert (
        not covers("CC-BY-4.0", "CC-BY-3.0")
        and not covers("CC-BY-4.0", "CC-BY")
        and not covers("CC-BY-3.0-US", "CC-BY-3.0")
    )
    assert covers("GFDL", "GFDL-1.3-or-later") and not covers("GFDL-1.2-only", "GFDL-1.3-or-later")


def test_noncommercial_and_no_derivatives_are_for_the_allow_list_to_admit():
    assert not is_allowed("CC-BY-NC-4.0", ["CC-BY", "CC-BY-SA"])
    assert is_allowed("CC-BY-NC-4.0", ["CC-BY", "CC-BY-NC"])


def test_evidence_names_field_and_value():
    licence = read("license", "CC BY")
    assert (licence.spdx, licence.evidence) == ("CC-BY", "license=CC BY")
    assert read("license", None).evidence == "license=None" and read("license", None).spdx == ""


def test_fields_that_agree_give_the_most_precise_and_others_none():
    same = agree([read("rights", "CC-BY"), read("rightsuri", "https://creativecommons.org/licenses/by/4.0/")])
    assert same.spdx == "CC-BY-4.0" and "rights=CC-BY; rightsuri=" in same.evidence
    torn = agree([read("a", "CC BY"), read("b", "CC BY-NC")])
    assert torn.spdx == "" and "contradicting" in torn.evidence
    assert agree([]).spdx == ""
