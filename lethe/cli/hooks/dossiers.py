"""What `lethe dossier` adds: the file of the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.cli.files import fresh
from lethe.cli.outcome import Arguments, Outcome
from lethe.io.files import write_text

if TYPE_CHECKING:
    from lethe.api import dossiers


def dossier(
    call: Callable[..., dossiers.ErasureDossier],
    arguments: Arguments,
    out: Path = Path("dossier.html"),
) -> Outcome:
    """Write the page.

    Parameters
    ----------
    out : The page, which a browser prints on A4.
    """

    fresh("out", out, (".html", ".htm"))
    made = call(**arguments)
    write_text(out, made.page)
    return Outcome(made, {"file": str(out)}, [f"The dossier is {out}."])
