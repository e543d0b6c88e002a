"""The report: one self-contained HTML page, a summary for machines and the rows that `dvc plots` draws."""

from __future__ import annotations

from stages.reporting.page import Page, render
from stages.reporting.run import Run, load

__all__ = ["Page", "Run", "load", "render"]
