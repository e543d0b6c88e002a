"""A gate as Markdown for the summary of a CI's job: the file is appended to, because other steps write there too."""

import html
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from lethe.errors import BadFile, visible
from lethe.io.files import Json
from lethe.results.gate import GatedQuestion, GateReason
from lethe.statistics.bound import in_full, rounded_beside

DIGITS = 4
ABSENT = "-"
MARKDOWN = re.compile(r"([\\`*_{}\[\]|~])")
# Signs that GitHub reads after Markdown (a formula, a mention, a number of an issue, an emoji, an address): a sign in an
# element of its own begins none of these.
READ_LATER = re.compile(r"([$@#]|:(?=\S)|(?<=www)\.)")
HEAD = (
    "about | gate | worst question at most | worst question | proved | broken | open\n"
    "---|---|---:|---|---:|---:|---:"
)


def text_of(about: str, gate: Mapping[str, Json], questions: Sequence[GatedQuestion] = ()) -> str:
    """The table and the sentence of one gate on ``questions``; no answer stands in it, and ids are escaped.

    >>> gate = {"tau": 0.05, "closed": True, "bound": None, "prompt_id": None, "reason": "The gate is closed: no bound."}
    >>> print(text_of("npo", gate).splitlines()[-3])
    npo | **closed** | - | - | 0 | 0 | 0
    """
    state = "passed"
    if gate["closed"]:
        state = "closed"
    bound = ABSENT
    if gate["bound"] is not None:
        bound = f"{rounded_beside(gate['bound'], gate['tau'], DIGITS, 'upper'):f}"
    worst = ABSENT
    if gate["prompt_id"] is not None:
        worst = escaped(str(gate["prompt_id"]))
    tau = gate["tau"]
    words: Counter[str] = Counter()
    for question in questions:
        words[question.word(tau)] += 1
    if gate["bound"] is None:  # no question has ends
        words["open"] = len(gate.get("closed_by", ()))
    counts = f"{words['proved']} | {words['broken']} | {words['open']}"
    row = f"{escaped(about)} | **{state}** | {bound} | {worst} | {counts}"
    title = f"### Lethe: every question leaks at most {in_full(tau)}"
    return "\n".join([title, "", HEAD, row, "", escaped(gate["reason"])]) + "\n"


def escaped(text: str) -> str:
    """A text on one line that Markdown, and what GitHub reads after it, show as it is."""
    line = visible(text).replace("\n", " ")
    without_markup = html.escape(line, quote=False)
    without_markdown = MARKDOWN.sub(r"\\\1", without_markup)
    return READ_LATER.sub(r"<span>\1</span>", without_markdown)


def text_of_decisions(about: str, decisions: Sequence[GateReason]) -> str:
    """A list of gates that are not on the leak rate of every question."""
    lines = [f"### Lethe: {escaped(about)}", ""]
    for decision in decisions:
        state = "closed" if decision.closed else "passed"
        lines.append(f"- `{decision.asked}`: **{state}**. {escaped(decision.reason)}")
    return "\n".join(lines) + "\n"


def append(
    path: Path,
    about: str,
    gate: Mapping[str, Json] | None,
    questions: Sequence[GatedQuestion] = (),
    decisions: Sequence[GateReason] = (),
) -> None:
    """Append the summary of a gate, or of other decisions, to a file. Raises `BadFile` where it cannot be written."""
    text = "" if gate is None else text_of(about, gate, questions)
    if decisions:
        text += text_of_decisions(about, decisions)
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise BadFile(path, f"cannot be written ({error.strerror})", "Name another file.") from None
