"""Stage `epsilon_star@MODEL`: the losses on the forget set against the losses on authors that no model trained on.

The members are the forget set. An Epsilon* near 0 says that the losses no longer distinguish the set from unseen authors.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from lethe.config import Params
from lethe.config.measuring import SERVED, Model
from lethe.config.schema import EpsilonStar
from lethe.io.artifacts import read_split
from lethe.io.files import atomic_folder
from lethe.io.tables import write_parquet
from lethe.models.checkpoints import load, prepare_torch
from lethe.models.likelihood import mean_losses
from lethe.results import table
from lethe.statistics.bound import Bound
from lethe.statistics.epsilon_star import EpsilonStarAudit, audit
from lethe.statistics.epsilon_star.parametric import rejected_fit
from lethe.statistics.epsilon_star.ratios import recommended_delta
from stages import entry

LEAST = 2  # losses per side


def run(settings: Params, root: Path, name: str) -> None:
    measure(name, settings.models[name], settings.epsilon_star, settings.sample.prompt, root)


def measure(name: str, model: Model, settings: EpsilonStar, prompt: str, root: Path) -> None:
    dataset = root / "dataset"
    there = (dataset / "heldout.jsonl").is_file()  # the held-out split is optional
    rows = {
        "forget": read_split("forget", dataset),
        "heldout": read_split("heldout", dataset) if there else [],
    }
    forget, heldout = map(len, rows.values())
    if model.path == SERVED or min(forget, heldout) < LEAST:
        values = _not_computed(forget, heldout, model.path == SERVED)
        write(name, root, values, None)
        with atomic_folder(root / "epsilon_star" / name):
            pass
        print(f"{name}: {values['note']}")
        return
    prepare_torch()
    language_model, tokenizer = load(model.path)
    losses = {
        side: mean_losses(language_model, tokenizer, prompt, some, f"{name} {side}")
        for side, some in rows.items()
    }
    result = measured(losses["forget"], losses["heldout"], settings)
    with atomic_folder(root / "epsilon_star" / name) as folder:
        table = pd.concat(
            [pd.DataFrame({"split": side, "loss": values}) for side, values in losses.items()]
        )
        write_parquet(folder / "losses.parquet", table)
    bound = result.bound
    write(name, root, result.facts(), bound)
    estimate = rejected_fit(result.epsilon_star, result.fit.ks_p_values if result.fit else None)
    print(
        f"{name}: Epsilon* {bound.relation} {bound.number()} {bound.guarantee()} "
        f"(delta {result.delta:.3g}, cut {result.cut or 'none'}); estimate "
        f"{estimate or format(result.epsilon_star, '.4g')} ({result.method})"
    )


def write(name: str, root: Path, values: dict[str, object], bound: Bound | None) -> None:
    rows, estimate = table.Rows(name), values.get("epsilon_star")
    number = float(estimate) if isinstance(estimate, (int, float)) else None
    rows.add("model", "epsilon_star", "given answers", number, bound, evidence=values)
    table.write(table.place(root, "epsilon_star", name), rows.rows)


def _not_computed(forget: int, heldout: int, served: bool) -> dict[str, object]:
    why = f"at least {LEAST} forget and {LEAST} held-out rows are needed, but the dataset has {forget} and {heldout}"
    if served:
        why = "a server does not state the likelihood of a given answer"
    note = f"Epsilon* not computed: {why}"
    return {
        "epsilon_star": None,
        "epsilon_lower": None,
        "n_train": forget,
        "n_population": heldout,
        "note": note,
    }


def measured(train: np.ndarray, population: np.ndarray, settings: EpsilonStar) -> EpsilonStarAudit:
    """Return Epsilon* and its lower bound; the forget set counts as a sample of members, not as all of them."""
    delta = recommended_delta(len(train)) if settings.delta is None else settings.delta
    return audit(
        train,
        population,
        delta=delta,
        method=settings.method,
        cut=settings.cut,
        alpha=settings.alpha,
    )


main = entry(run, __name__)
