"""What the tables of docs/ share: options, Markdown, and the text between ``<!-- NAME -->`` and ``<!-- end NAME -->``."""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from lethe.errors import BadFile
from lethe.io.files import read_text


def parser_of(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--folder", type=Path, default=Path(), help="the pipeline folder of the run"
    )
    parser.add_argument("--write", type=Path, help="the page between whose marks the text goes")
    return parser


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table without outer rules, which no reader sees."""
    return "\n".join([" | ".join(head), "|".join(["---"] * len(head)), *map(" | ".join, rows)])


def put(page: Path | None, name: str, text: str) -> None:
    """Print a text and replace what stands between the marks ``name``; raise `BadFile` where the page lacks them."""
    print(text)
    if page is None:
        return
    marks = re.compile(
        rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end {re.escape(name)} -->)", re.DOTALL
    )
    whole = read_text(page)
    if not marks.search(whole):
        raise BadFile(
            page,
            f"holds no <!-- {name} --> and <!-- end {name} -->",
            "Write both marks where the text goes.",
        )
    page.write_text(
        marks.sub(lambda found: f"{found[1]}{text}\n{found[2]}", whole), encoding="utf-8"
    )
