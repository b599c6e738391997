"""The notebooks of examples/ as pages of the site, with their stored outputs."""

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat

FOLDER = Path(__file__).parent.parent / "examples" / "notebooks"
FRAME = re.compile(r"<style.*?</style>| border=\"1\" class=\"dataframe\"| style=\"[^\"]*\"|\n\s*", re.DOTALL)
"""What pandas adds to a table for notebooks, and line breaks."""


def pages() -> Iterator[tuple[str, str | bytes]]:
    """Paths under docs/ and contents of every notebook's page and pictures."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        parts = []
        for number, cell in enumerate(nbformat.read(path, as_version=4).cells):
            if cell.cell_type == "markdown":
                parts.append(cell.source.replace("](../../docs/", "](../").replace(".ipynb)", ".md)"))
                continue
            parts.append(f"```python\n{cell.source}\n```")
            for output in cell.outputs:
                data = output.get("data", {})
                if "image/png" in data:
                    picture = f"{path.stem}-{number}.png"
                    yield f"notebooks/{picture}", base64.b64decode(data["image/png"])
                    parts.append(f"![The figure that this cell draws]({picture})")
                else:
                    parts.append(_text(output, data))
        yield f"notebooks/{path.stem}.md", "\n\n".join(parts)


def _text(output: Any, data: dict[str, str]) -> str:
    """A table, or printed lines."""
    if "text/html" in data:
        return FRAME.sub("", data["text/html"])
    return f"```text\n{output.get('text') or data['text/plain']}\n```"
