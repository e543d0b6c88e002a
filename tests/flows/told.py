"""Findings as the stage `compare` writes them, for flows that read no more than the words."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lethe.results import table
from lethe.verdict.finding import FORGETTING, TRACE, UTILITY, Finding


def write_words(data: Path, models: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the words on these models below ``data``: what the summary of a run says of each."""
    rows = []
    for name, told in models.items():
        details = {"title": told.get("standing", ""), "attention": False, "verdict": None}
        word = told["forgetting"]["word"]
        sentence = told["verdict"]
        rows.append(Finding(name, FORGETTING, word, sentence, details=details).row())
        rows.append(Finding(name, UTILITY, told["utility"]["word"]).row())
        trace = told.get("trace")
        if trace:
            rows.append(Finding(name, TRACE, trace["word"], trace["sentence"], details=trace).row())
    table.write(table.place(data, "compare", "models"), rows)
