"""The table of a meta-evaluation: the command line shows some columns of the page, under shorter heads."""

from __future__ import annotations

from types import SimpleNamespace

from studies.meta_evaluation.estimates import Estimate
from studies.meta_evaluation.page import COLUMNS, TERMINAL, rows

NUMBERS = iter(range(1, 100))


def estimate() -> Estimate:
    value = next(NUMBERS) / 100
    return Estimate(value=value, low=value, high=value, alpha=0.05, method="m", n=9, assumes="models drawn alike")


def test_the_command_shows_the_page_s_cells():
    both = [SimpleNamespace(relearning=estimate(), quantisation=estimate(), both=estimate()) for _ in range(2)]
    one = SimpleNamespace(
        name="mean@16",
        larger=True,
        auc=estimate(),
        auc_each=estimate(),
        one_sided=both[0],
        symmetric=both[1],
        kept=7,
        prediction=estimate(),
        prediction_mean=estimate(),
        cost=SimpleNamespace(seconds=1.25, rows=640.0),
        missing=3,
    )
    whole, shown = (rows(SimpleNamespace(worth=[one]), columns)[0] for columns in (COLUMNS, TERMINAL))
    assert len({*whole}) == len(COLUMNS) == 14
    assert shown == [whole[place] for place in (0, 2, 3, 7, 9, 10, 11, 12)]
    heads = ["number", "AUC", "per question", "robustness", "leaks", "mean", "seconds", "rows"]
    assert [column.terminal for column in TERMINAL] == heads
