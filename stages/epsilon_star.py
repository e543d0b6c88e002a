"""Stage `epsilon_star@MODEL`: the losses on the forget set against the losses on authors that no model trained on.

The members are the forget set. An Epsilon* near 0 says that the losses no longer distinguish the set from unseen authors.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lethe.config import Params
from lethe.config.evaluating import SERVED
from lethe.io.artifacts import read_split
from lethe.io.atomic import atomic_folder
from lethe.io.tables import write_parquet
from stages import entry

if TYPE_CHECKING:
    import numpy as np

    from lethe.config.evaluating import Model
    from lethe.config.schema import EpsilonStar
    from lethe.statistics.bound import Bound
    from lethe.statistics.epsilon_star import EpsilonStarAudit

LEAST = 2  # losses per side


def run(settings: Params, root: Path, name: str) -> None:
    """Write the losses of one entry of ``models`` to ``root/epsilon_star/name``, and Epsilon* to the table of results."""
    measure(name, settings.models[name], settings.epsilon_star, settings.sample.prompt, root)


def measure(name: str, model: Model, settings: EpsilonStar, prompt: str, root: Path) -> None:
    """Measure one model; Epsilon* is null for too few rows."""
    import pandas as pd

    from lethe.models.checkpoints import load, prepare_torch
    from lethe.models.likelihood import mean_losses
    from lethe.statistics.epsilon_star.parametric import rejected_fit

    dataset = root / "dataset"
    there = (dataset / "heldout.jsonl").is_file()  # the held-out split is optional
    rows = {"forget": read_split("forget", dataset), "heldout": read_split("heldout", dataset) if there else []}
    forget, heldout = map(len, rows.values())
    if model.path == SERVED or min(forget, heldout) < LEAST:
        values = _untold(forget, heldout, model.path == SERVED)
        write(name, root, values, None)
        with atomic_folder(root / "epsilon_star" / name):
            pass
        print(f"{name}: {values['note']}")
        return
    prepare_torch()
    language_model, tokenizer = load(model.path)
    losses = {
        side: mean_losses(language_model, tokenizer, prompt, some, f"{name} {side}") for side, some in rows.items()
    }
    result = measured(losses["forget"], losses["heldout"], settings)
    with atomic_folder(root / "epsilon_star" / name) as folder:
        table = pd.concat([pd.DataFrame({"split": side, "loss": values}) for side, values in losses.items()])
        write_parquet(folder / "losses.parquet", table)
    bound = result.bound
    write(name, root, result.as_json(), bound)
    estimate = rejected_fit(result.epsilon_star, result.fit.ks_p_values if result.fit else None)
    print(
        f"{name}: Epsilon* {bound.relation} {bound.number()} {bound.guarantee()} "
        f"(delta {result.delta:.3g}, cut {result.cut or 'none'}); estimate "
        f"{estimate or format(result.epsilon_star, '.4g')} ({result.method})"
    )


def write(name: str, root: Path, values: dict[str, object], bound: Bound | None) -> None:
    """Write the table: the estimate with its lower bound, and everything else of the audit as evidence."""
    from lethe.results import table

    rows, estimate = table.Rows(name), values.get("epsilon_star")
    number = float(estimate) if isinstance(estimate, (int, float)) else None
    rows.add("model", "epsilon_star", "given answers", number, bound, evidence=values)
    table.write(table.place(root, "epsilon_star", name), rows.rows)


def _untold(forget: int, heldout: int, served: bool) -> dict[str, object]:
    why = (
        f"at least {LEAST} forget and {LEAST} held-out rows are needed, but the dataset has {forget} and {heldout}"
    )
    if served:
        why = "a server does not state the likelihood of a given answer"
    note = f"Epsilon* not computed: {why}"
    return {"epsilon_star": None, "epsilon_lower": None, "n_train": forget, "n_population": heldout, "note": note}


def measured(train: np.ndarray, population: np.ndarray, settings: EpsilonStar) -> EpsilonStarAudit:
    """Return Epsilon* and its lower bound, as `lethe audit epsilon-star` does.

    The forget set counts as a sample, not as the complete set of members. With a complete set, every ratio beyond the
    largest loss of such a small set would be infinite, whatever the model.
    """
    from lethe.statistics.epsilon_star import audit
    from lethe.statistics.epsilon_star.ratios import recommended_delta

    delta = recommended_delta(len(train)) if settings.delta is None else settings.delta
    return audit(train, population, delta=delta, method=settings.method, cut=settings.cut, alpha=settings.alpha)


main = entry(run, __name__)
