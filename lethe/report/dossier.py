"""The dossier of an erasure request: one page that a privacy officer prints, without a script."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from lethe.report.templates import policy, templates
from lethe.verdict.record import RecordFinding

STYLE = "dossier.css"


@dataclass(frozen=True)
class Examined:
    """A model of section 2: its role, its name, the digest of its files (None: not known), and how it was examined."""

    role: str
    name: str
    digest: str | None
    how: str


@dataclass(frozen=True)
class AskedQuestion:
    """A row of section 3 as text; ``text`` is the id where the page is public."""

    text: str
    leaks: str
    answers: str
    at_least: str
    at_most: str


@dataclass(frozen=True)
class Dossier:
    """Everything that the page says, section by section; texts are escaped by the template."""

    request: str
    record: str
    model: str
    date: str
    responsible: str
    finding: RecordFinding
    sentences: Sequence[str]
    models: Sequence[Examined]
    questions: Sequence[AskedQuestion]
    access: Sequence[tuple[str, str]]
    limits: Sequence[str]
    command: str
    facts: Sequence[tuple[str, str]]

    def html(self) -> str:
        """The page: A4 in print, no script, no request to anywhere."""
        style = Path(__file__).with_name(STYLE).read_text(encoding="utf-8")
        page = templates().get_template("dossier.html")
        return page.render(dossier=self, style=Markup(style), policy=policy(style, ""))
