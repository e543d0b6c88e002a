"""The section on a language of prompts: every end of the share of prompts, and the table of productions."""

from __future__ import annotations

from types import SimpleNamespace

from lethe.evaluation.run import Model
from lethe.evaluation.wording import FORGET
from lethe.report.tables import language_views
from lethe.results.table import Numbers, Rows
from lethe.statistics.bound import Bound, Covers


def test_both_ends_of_the_share_of_prompts_are_said():
    rows, rest = Rows("m"), (0.05, Covers.PROMPTS_OF_LANGUAGE, "random prompts")
    facts = {"path": "l.yaml", "scorer": "keyword_leak", "binary": True, "tau": 0.2}
    rows.add("model", "language", "language", evidence=facts)
    rows.add("model", "worst_production", "language", text="plain")
    # two methods, so two rows
    ends = Bound(0.1, "lower", *rest, "detected"), Bound(0.4, "upper", *rest, "certified")
    rows.add("model", "share_above", "language", None, *ends)
    evidence = {"probability": 0.5, "choices": {"prefix": "plain"}}
    rows.add("model", "production", "language", 0.25, item="plain", n=8, missing=0, evidence=evidence)
    model = Model("m", "subject", "m", numbers=Numbers(rows.rows))
    (view,) = language_views(SimpleNamespace(models=[model], forget={"q": {}}, words=FORGET))
    said = " ".join(view.sentences)
    assert "25% of its 8 answers" in said
    assert "at most 40.0%" in said
    assert "at least 10.0%" in said
    assert view.rows == [["plain", "50%", "8", "25%", "–", "–"]]
