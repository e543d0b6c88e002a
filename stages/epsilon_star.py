"""Stage `epsilon_star@MODEL`: the losses on the forget set against the losses on authors that no model trained on.

The members are the forget set. An Epsilon* near 0 says that the losses no longer distinguish the set from unseen authors.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from lethe.config import Params
from lethe.config.measuring import SERVED, ModelEntry
from lethe.config.schema import EpsilonStarSettings
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
    """Measure the Epsilon* of one entry of ``models``."""
    prompt = settings.asked(name).prompt
    measure(name, settings.models[name], settings.epsilon_star, prompt, root)


def measure(
    name: str,
    model: ModelEntry,
    settings: EpsilonStarSettings,
    prompt: str,
    root: Path,
) -> None:
    """Write the losses and the result of one model; without enough losses on a side, the reason why there is none."""
    dataset = root / "dataset"
    rows = {"forget": read_split("forget", dataset), "heldout": []}
    if (dataset / "heldout.jsonl").is_file():  # the held-out split is optional
        rows["heldout"] = read_split("heldout", dataset)
    n_forget = len(rows["forget"])
    n_heldout = len(rows["heldout"])
    if model.path == SERVED or min(n_forget, n_heldout) < LEAST:
        values = _not_computed(n_forget, n_heldout, model.path == SERVED)
        write(name, root, values, None)
        with atomic_folder(root / "epsilon_star" / name):
            pass
        print(f"{name}: {values['note']}")
        return
    prepare_torch()
    language_model, tokenizer = load(model.path)
    losses: dict[str, np.ndarray] = {}
    tables: list[pd.DataFrame] = []
    for side, rows_of_side in rows.items():
        label = f"{name} {side}"
        losses[side] = mean_losses(language_model, tokenizer, prompt, rows_of_side, label)
        tables.append(pd.DataFrame({"split": side, "loss": losses[side]}))
    result = measured(losses["forget"], losses["heldout"], settings)
    with atomic_folder(root / "epsilon_star" / name) as folder:
        write_parquet(folder / "losses.parquet", pd.concat(tables))
    write(name, root, result.facts(), result.bound)
    print(f"{name}: {_sentence(result)}")


def _sentence(result: EpsilonStarAudit) -> str:
    bound = result.bound
    p_values = result.fit.ks_p_values if result.fit else None
    estimate = rejected_fit(result.epsilon_star, p_values)
    return (
        f"Epsilon* {bound.relation} {bound.number()} {bound.guarantee()} "
        f"(delta {result.delta:.3g}, cut {result.cut or 'none'}); estimate "
        f"{estimate or format(result.epsilon_star, '.4g')} ({result.method})"
    )


def write(name: str, root: Path, values: dict[str, object], bound: Bound | None) -> None:
    """Write Epsilon* of a model as a row of results, with ``values`` as its evidence."""
    rows = table.Rows(name)
    estimate = values.get("epsilon_star")
    number = float(estimate) if isinstance(estimate, (int, float)) else None
    rows.add(
        "model",
        "epsilon_star",
        "given answers",
        number,
        bound,
        evidence=values,
    )
    table.write(table.place(root, "epsilon_star", name), rows.rows)


def _not_computed(forget: int, heldout: int, served: bool) -> dict[str, object]:
    """The evidence of a model without Epsilon*: the numbers of rows, and a note why."""
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


def measured(
    train: np.ndarray, population: np.ndarray, settings: EpsilonStarSettings
) -> EpsilonStarAudit:
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
