"""Photograph the viewer and the report for the README and the tutorial. Needs the quickstart's store, and Chromium.

Run `.venv/bin/python docs/pictures.py` in the checkout.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from PIL import Image

RUN = "nano-s42"
DOCS = Path(__file__).parent
INFUSER = Path(sys.prefix) / "bin" / "infuser"
BEST = "select question_id from scores where iteration = 0 order by score desc limit 1"
COLOURS = 32
"""A page has few colours: a palette makes the files a tenth as large."""


def main() -> None:
    """Write the pictures of a run's page, of a question's, and of the report."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    assert browser, "chromium is not on the PATH"
    rows = subprocess.run([INFUSER, "sql", "--run", RUN, "--json", BEST], check=True, capture_output=True, text=True)
    question = json.loads(rows.stdout)[0]["question_id"]
    viewer = subprocess.Popen([INFUSER, "view", "--no-browser"], stdout=subprocess.PIPE, text=True)
    try:
        assert viewer.stdout is not None
        address = next(word for line in viewer.stdout for word in line.split() if word.startswith("http"))
        # The token of the address works for every page.
        run, why = (urlsplit(address)._replace(path=f"/runs/{RUN}{end}").geturl() for end in ("", f"/why/{question}"))
        _photograph(browser, run, DOCS / "figures" / "view-run.png", 900)
        _photograph(browser, why, DOCS / "figures" / "view-question.png", 1100)
    finally:
        viewer.terminate()
        viewer.wait()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.html"
        subprocess.run([INFUSER, "report", RUN, "--html", report], check=True, capture_output=True)
        _photograph(browser, report.as_uri(), DOCS / "report.png", 900)


def _photograph(browser: str, page: str, file: Path, height: int) -> None:
    """Photograph the top of one page."""
    with tempfile.TemporaryDirectory() as profile:
        command = [browser, "--headless", "--no-sandbox", "--hide-scrollbars", f"--user-data-dir={profile}"]
        command += [f"--window-size=1100,{height}", "--virtual-time-budget=6000", f"--screenshot={file}", page]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    Image.open(file).convert("RGB").quantize(COLOURS).save(file, optimize=True)
    print(f"{file}: {file.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
