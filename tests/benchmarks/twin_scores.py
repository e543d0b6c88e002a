"""Which score finds most with the twin test: every score that `twins.scores` may declare, on the models of a run.

``python -m tests.benchmarks twin-scores [--data data]`` prints an exact p-value for each model and score, and as power the
share of 400 random subsets of ten secrets that reject at .01. The ranks of the control must not reject by any score.
``--write docs/twins.md`` puts the table there. ``--small`` first trains Base, Retrain and three methods for two minutes.
"""

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

import numpy as np

from lethe import config
from lethe.config.twins import REFERENCE, Score
from lethe.data.rows import load_splits, with_twins
from lethe.data.secrets import secrets_of
from lethe.io.artifacts import read_split, write_splits
from lethe.results.trace import p_text
from lethe.statistics.twins import WAYS, TwinTest, ranks_of, score_table, threshold, twin_test
from lethe.steps.twins import KnownRows, ScoredCandidates, candidate_scores
from tests.benchmarks.marks import put

WHOLE = "whole answer"
SCORES = (WHOLE, *get_args(Score))
LEVEL = 0.01
SUBSETS = 400
SECRETS = 10
MARK = "twin scores"
METHODS = ("grad_diff", "npo", "npo_matched")  # of the small run
EPOCHS = 12  # of the small run, for Base and Retrain; methods keep those of params.yaml


def main(arguments: Sequence[str] | None = None) -> int:
    asked = argparse.ArgumentParser(
        prog="python -m tests.benchmarks twin-scores", description=__doc__
    )
    asked.add_argument("--data", type=Path, default=Path("data"), help="the artifacts of a run")
    asked.add_argument("--small", action="store_true", help="train five small models first")
    asked.add_argument("--write", type=Path, help="the page to put the table into")
    options = asked.parse_args(arguments)
    with _root(options.data, options.small) as root:
        lines = table_of(root)
    put(options.write, MARK, "\n".join(lines))
    return 0


@contextlib.contextmanager
def _root(data: Path, small: bool) -> Iterator[Path]:
    if not small:
        yield data
        return
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "data"
        train_small(root)
        yield root


def train_small(root: Path) -> None:
    """Train Base and Retrain on the demonstration's data for fewer epochs, and unlearn by three methods."""
    from stages import train, unlearn

    params = config.load()
    assert params.twins is not None
    splits = with_twins(params.data, load_splits(params.data), params.twins.k)
    write_splits(splits, params.data.kind, root / "dataset", generated_twins=True)
    recipe = params.train.recipe.model_copy(update={"epochs": EPOCHS})
    train.train("base", recipe, "all", root, secrets_are_drawn=True)
    train.train("retrain", recipe, "retain", root, secrets_are_drawn=True)
    learned = {"start_from": str(root / "models/base")}
    unlearned = params.unlearn.recipe.model_copy(update=learned)
    for name in METHODS:
        unlearn.forget(name, unlearned, params.unlearn.methods[name], recipe.prompt, root)


def table_of(root: Path) -> list[str]:
    """The lines of the table: a row for each model with weights of its own, a column for each score."""
    params = config.load()
    secrets = secrets_of(read_split("forget", root / "dataset"))
    declared = tuple(name for name in get_args(Score) if name != REFERENCE)
    folders = sorted(path.parent for path in (root / "models").glob("*/config.json"))
    folders += sorted(path.parent for path in (root / "models").glob("*/adapter_config.json"))
    known = KnownRows.of(root)
    scored = {}
    for folder in folders:
        scored[folder.name] = candidate_scores(
            folder, secrets, params.sample.prompt, f"twins {folder.name}", declared, known
        )
    assert params.twins is not None
    control = str(params.twins.control)
    lines = [
        f"{len(secrets)} secrets; p, and in brackets the share of subsets of {SECRETS} secrets that reject at {LEVEL:g}.",
        "",
        f"model|{'|'.join(SCORES)}",
        "|".join(["---"] * (1 + len(SCORES))),
    ]
    rng = np.random.default_rng(47)
    subsets = np.array([rng.permutation(len(secrets))[:SECRETS] for _ in range(SUBSETS)])
    for name, of_model in scored.items():
        cells = []
        for score in SCORES:
            if score == REFERENCE and name == control:
                cells.append("")
                continue
            test = test_by(score, of_model, scored[control])
            cells.append(f"{p_text(test.p, test.log_p)} ({_power(test, subsets):.2f})")
        lines.append(f"{name}|{'|'.join(cells)}")
    return lines


def test_by(
    score: str, of_model: Sequence[ScoredCandidates], of_control: Sequence[ScoredCandidates]
) -> TwinTest:
    """The twin test of a model by a score; *reference* is the whole answer's less the control's."""
    ranks = []
    sizes = []
    for mine, reference in zip(of_model, of_control, strict=True):
        values: np.ndarray = mine.log_probs
        if score == REFERENCE:
            values = values - reference.log_probs
        elif score != WHOLE:
            values = mine.further[score]
        ranks.append(int(ranks_of([values], [0], [mine.secret.order()])[0]))
        sizes.append(len(values))
    return twin_test(ranks, sizes)


def _power(test: TwinTest, subsets: np.ndarray) -> float:
    """The share of the ``subsets`` (n, s) of the secrets, which have one number of candidates, that reject."""
    k = test.candidates[0]
    ranks = np.array(test.ranks)[subsets]
    found = np.zeros(len(subsets), dtype=bool)
    for way in WAYS:
        totals = score_table(k, way)[ranks - 1].sum(axis=1)
        found |= totals >= threshold([k] * subsets.shape[1], LEVEL / 3, way)
    return float(found.mean())


if __name__ == "__main__":
    sys.exit(main())
