"""In a real browser, in both themes: the page loads nothing else, complains of nothing, and prints.

`INFUSER_SCREENSHOTS=FOLDER` keeps the photographs.
"""

import base64
import os
from collections.abc import Iterator
from pathlib import Path

import pypdfium2
import pytest
from browser import COMPLAINTS, Watched, chromium, watched
from report_runs import HOSTILE, three_runs

from flows import deployment
from infuser_core.results.report.build import write_report, write_several

pytestmark = pytest.mark.skipif(chromium() is None, reason="no Chromium here: apt-get install chromium")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    names = three_runs(folder / "store")
    write_several(folder / "store", names, html=folder / "several.html")
    return {"several": folder / "several.html", "single": write_report(folder / "store", names[0])}


@pytest.fixture
def tab(tmp_path: Path) -> Iterator[Watched]:
    with watched(tmp_path / "profile", deployment.free_port()) as found:
        yield found


def opened(tab: Watched, path: Path, theme: str) -> None:
    tab.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
    tab.open(path.as_uri())
    tab.until("document.readyState == 'complete'")
    tab.value("document.querySelectorAll('details').forEach(each => { each.open = true })")


@pytest.mark.parametrize("kind", ["several", "single"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_asks_for_nothing_and_complains_of_nothing(
    tab: Watched, pages: dict[str, Path], theme: str, kind: str, tmp_path: Path
):
    opened(tab, pages[kind], theme)
    shots = Path(os.environ.get("INFUSER_SCREENSHOTS") or tmp_path)
    tab.photograph(shots / f"{kind}-{theme}.png")
    asked = [e["params"]["request"]["url"] for e in tab.events if e.get("method") == "Network.requestWillBeSent"]
    assert asked == [pages[kind].as_uri()]
    assert [event for event in tab.events if event.get("method") in COMPLAINTS] == []
    assert tab.value("performance.getEntriesByType('resource').length") == 0


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("kind", ["several", "single"])
def test_details_come_after_six_screens_at_most_and_nothing_overflows(
    tab: Watched, pages: dict[str, Path], kind: str, width: int
):
    tab.ask("Emulation.setDeviceMetricsOverride", width=width, height=1000, deviceScaleFactor=1, mobile=False)
    tab.open(pages[kind].as_uri())
    tab.until("document.readyState == 'complete'")
    assert tab.value("[...document.querySelectorAll('h2')].at(-1).textContent") == "Details"
    assert tab.value("[...document.querySelectorAll('h2')].at(-1).getBoundingClientRect().top") < 6000
    assert tab.value("document.documentElement.scrollWidth") <= width


def test_hostile_text_of_questions_does_nothing_and_is_found(tab: Watched, pages: dict[str, Path]):
    opened(tab, pages["single"], "light")
    assert HOSTILE in tab.value("document.querySelector('#questions').textContent")
    shown = "[...document.querySelectorAll('#questions tbody tr')].filter(each => !each.hidden).length"
    assert tab.value(shown) == 24
    tab.value("document.querySelector('[data-filter]').value = 'No Such Text'")
    tab.value("document.querySelector('[data-filter]').dispatchEvent(new Event('input', {bubbles: true}))")
    assert tab.value(shown) == 0
    assert [event for event in tab.events if event.get("method") in COMPLAINTS] == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_figures_can_be_read_in_both_themes(tab: Watched, pages: dict[str, Path], theme: str):
    opened(tab, pages["several"], theme)
    paper = tab.value("getComputedStyle(document.body).backgroundColor")
    assert contrast(tab.value("getComputedStyle(document.querySelector('figure svg text')).fill"), paper) > 7
    for index in range(12):
        shade = f"getComputedStyle(document.documentElement).getPropertyValue('--c{index}').trim()"
        colour = tab.value(shade)
        assert contrast(colour, paper) >= 3, f"--c{index} {colour} on {paper}"


@pytest.mark.parametrize("kind", ["several", "single"])
def test_no_text_of_a_chart_leaves_it_or_lies_on_another(tab: Watched, pages: dict[str, Path], kind: str):
    opened(tab, pages[kind], "light")
    problems = tab.value("""
        [...document.querySelectorAll('figure svg')].flatMap(svg => {
            const frame = svg.getBoundingClientRect();
            const boxes = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
            const out = boxes.filter(([, b]) => b.left < frame.left - 1 || b.right > frame.right + 1
                || b.top < frame.top - 1 || b.bottom > frame.bottom + 1).map(([t]) => 'outside: ' + t);
            const upright = boxes.filter(([, b]) => b.height < 16);
            const on = upright.flatMap(([t, a], i) => upright.slice(i + 1).filter(([, b]) =>
                Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2 &&
                Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3).map(([u]) => t + ' on ' + u));
            return [...out, ...on];
        })""")
    assert problems == []


def test_the_page_prints_whole(tab: Watched, pages: dict[str, Path], tmp_path: Path):
    opened(tab, pages["several"], "dark")
    printed = base64.b64decode(tab.ask("Page.printToPDF", printBackground=True)["data"])
    Path(os.environ.get("INFUSER_SCREENSHOTS") or tmp_path, "several.pdf").write_bytes(printed)
    assert printed.startswith(b"%PDF")
    tab.ask("Emulation.setEmulatedMedia", media="print")
    assert tab.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.value("[...document.querySelectorAll('.scroll')].every(e => e.scrollHeight <= e.clientHeight + 1)")


def test_the_report_of_a_run_prints_on_two_pages(tab: Watched, pages: dict[str, Path], tmp_path: Path):
    tab.open(pages["single"].as_uri())
    tab.until("document.readyState == 'complete'")
    printed = base64.b64decode(tab.ask("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"])
    Path(os.environ.get("INFUSER_SCREENSHOTS") or tmp_path, "single.pdf").write_bytes(printed)
    document = pypdfium2.PdfDocument(printed)
    assert len(document) <= 2
    text = "".join(page.get_textpage().get_text_range() for page in document)
    for heading in ("Result", "Curves", "What the generator wrote", "Limits", "Reproduce"):
        assert heading in text
    assert "Details" not in text


def contrast(first: str, second: str) -> float:
    """The ratio that accessibility guidelines ask about, between two colours of CSS."""
    light, dark = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    if colour.startswith("#"):
        parts = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    else:
        parts = [int(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [p / 255 / 12.92 if p <= 10 else ((p / 255 + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
