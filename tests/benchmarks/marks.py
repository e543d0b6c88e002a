"""Text that a command prints, put between two marks of a page of docs/: ``<!-- NAME -->`` and ``<!-- end NAME -->``."""

from __future__ import annotations

import re
from pathlib import Path

from lethe.errors import BadFile
from lethe.io.json_files import read_text


def write(page: Path, name: str, text: str) -> None:
    """Replace what stands between the marks ``name``; raise `BadFile` where the page lacks them."""
    marks = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end {re.escape(name)} -->)", re.DOTALL)
    whole = read_text(page)
    if not marks.search(whole):
        raise BadFile(
            page, f"holds no <!-- {name} --> and <!-- end {name} -->", "Write both marks where the text goes."
        )
    page.write_text(marks.sub(lambda found: f"{found[1]}{text}\n{found[2]}", whole), encoding="utf-8")
