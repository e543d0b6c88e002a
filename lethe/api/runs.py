"""`lethe.load_run`: the artifacts of a run as tables and figures."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lethe.api.result import Result
from lethe.errors import BadFile, BadValue, MissingArtifact, plural

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from lethe.statistics.bound import Bound


@dataclass(frozen=True, repr=False)
class Run(Result):
    """An evaluated run: the pipeline's ``data``, or a folder of `lethe eval`.

    Attributes
    ----------
    folder : pathlib.Path
        The folder of the artifacts.
    metrics : pandas.DataFrame
        One row per model, one column per metric, as in ``metrics/MODEL.json`` and ``metrics/details/MODEL.json``.
    questions : pandas.DataFrame
        One row per model and forget question: estimates and bounds. The tail bounds are the columns ``m_gen_X``,
        ``m_gen_lower_X`` and ``exceedance_X``, X being the threshold.
    tails : pandas.DataFrame
        ``model, x, bound, empirical``: the share of answers that score above x, averaged over the questions.
    bounds : dict of dict of Bound
        The bounds among the metrics, by model and metric, each with its guarantee.
    """

    folder: Path
    metrics: pd.DataFrame
    questions: pd.DataFrame
    tails: pd.DataFrame
    bounds: Mapping[str, Mapping[str, Bound]]

    @property
    def models(self) -> list[str]:
        """The names of the models, in the order of params.yaml where the folder's parent has that file."""
        return list(self.metrics.index)

    @cached_property
    def answers(self) -> pd.DataFrame:
        """One row per answer: ``model, split, prompt_id, sample, text`` and one column per scorer; sample -1 is greedy.

        The first use reads the tables, which hold all answers of all models.
        """
        import pandas as pd

        tables = [table for name in self.models for table in _answers(self.folder, name)]
        return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame({"model": [], "split": []})

    def to_frame(self) -> pd.DataFrame:
        """`Run.metrics`."""
        return self.metrics

    def bound_at(self, row: str, column: str) -> Bound | None:
        """The bound among the metrics of a model."""
        return self.bounds[row].get(column)

    def sentences(self) -> list[str]:
        """Return the folder and the models in one sentence."""
        return [f"{self.folder}: {plural(len(self.models), 'model')}, {', '.join(self.models)}."]

    def plot_bounds(self, ax: Axes | None = None) -> Axes:
        """Draw every model's mean score over the sampled answers, and the upper bound of its worst question.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw. Without it a new figure is made.
        """
        from lethe.api import plots

        return plots.bounds(self.metrics, ax)

    def plot_questions(self, model: str | None = None, ax: Axes | None = None) -> Axes:
        """Draw each forget question's mean score with its bounds, the question with the highest bound first.

        Parameters
        ----------
        model : str, optional
            The name of the model; a run with a single model needs none.
        ax : matplotlib.axes.Axes, optional
            Where to draw. Without it a new figure is made.
        """
        from lethe.api import plots

        return plots.questions(self.questions[self.questions["model"] == self._named(model)], ax)

    def plot_tails(self, ax: Axes | None = None) -> Axes:
        """Draw the upper bound on the share of answers above each score, averaged over the questions, one line per model.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw. Without it a new figure is made.
        """
        from lethe.api import plots

        return plots.tails(self.tails, ax)

    def _named(self, model: str | None) -> str:
        if model is None and len(self.models) == 1:
            return self.models[0]
        if model not in self.models:
            raise BadValue("model", model, f"one of {', '.join(self.models)}")
        return model


def load_run(folder: str | os.PathLike[str] = "data") -> Run:
    """Read the artifacts of a run as tables.

    Parameters
    ----------
    folder : str or path
        The pipeline's ``data``, or the folder of one `lethe eval` (``data/eval/NAME``).

    Returns
    -------
    Run
        The metrics, questions, tails and answers, with `Run.plot_bounds`, `Run.plot_questions` and `Run.plot_tails`.

    Raises
    ------
    BadFile
        If there is no such folder.
    MissingArtifact
        If the folder holds no metrics.

    Notes
    -----
    The function leaves out models that the ``params.yaml`` next to the folder no longer lists.

    Examples
    --------
    >>> import lethe
    >>> run = lethe.load_run("data")
    >>> run.models
    ['mine']
    >>> row = run.metrics.loc["mine"]
    >>> bool(row["mean"] <= row["m_mu_worst"])
    True
    >>> run.bounds["mine"]["m_mu_worst"].level()
    'with probability 0.99 (α = 0.01)'
    >>> run.answers.groupby("split")["text"].count().to_dict()
    {'forget': 18}
    >>> run.plot_questions().get_ylabel()
    'score'
    """
    import pandas as pd

    from lethe.io.artifacts import measured, read_metrics

    folder = Path(folder)
    if not folder.is_dir():
        raise BadFile(folder, "no such folder", "Name a pipeline's data folder, or one of data/eval.")
    found = measured(folder)
    names = [name for name in _listed(folder) or found if name in found]
    if not names:
        raise MissingArtifact(folder / "metrics", "stage metrics")
    rows = [{**read_metrics(folder, name), "model": name} for name in names]
    metrics = pd.DataFrame(rows).set_index("model", drop=True)
    questions = [{"model": name, **_flat(row)} for name in names for row in _curve(folder, name, "per_question")]
    tails = [row for name in names for row in _curve(folder, name, "m_gen")]
    return Run(
        folder,
        metrics,
        pd.DataFrame(questions),
        pd.DataFrame(tails, columns=["model", "x", "bound", "empirical"]),
        {name: _bounds(folder, name, metrics.loc[name].to_dict()) for name in names},
    )


def _bounds(folder: Path, model: str, values: Mapping[str, Any]) -> dict[str, Bound]:
    """Return the metrics of a model that have a guarantee, as bounds."""
    from lethe.io.schema import read_artifact
    from lethe.statistics.bound import Bound

    path = folder / "curves" / model / "bounds.json"
    guarantees = read_artifact(path).get("metrics", {}) if path.is_file() else {}
    return {
        key: Bound.from_dict({"value": values[key], **guarantee})
        for key, guarantee in guarantees.items()
        if isinstance(values.get(key), float) and not math.isnan(values[key])
    }


def _listed(folder: Path) -> list[str]:
    """Return the models that the params.yaml next to the folder lists; without that file the list is empty."""
    from lethe.config.yaml import read_yaml

    params = folder.resolve().parent / "params.yaml"
    models = read_yaml(params).get("models") if params.is_file() else None
    return list(models) if isinstance(models, dict) else []


def _curve(folder: Path, model: str, name: str) -> list[dict[str, Any]]:
    from lethe.io.schema import read_artifact

    path = folder / "curves" / model / f"{name}.json"
    return read_artifact(path) if path.is_file() else []


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a question's row with the tail bounds as columns instead of a list of points."""
    flat = {key: value for key, value in row.items() if key != "m_gen"}
    for point in row.get("m_gen") or ():
        columns = {"m_gen": "bound", "m_gen_lower": "lower", "exceedance": "tighter"}
        flat |= {f"{column}_{point['x']:g}": point[key] for column, key in columns.items()}
    return flat


def _answers(folder: Path, model: str) -> list[pd.DataFrame]:
    import pandas as pd

    from lethe.io.parts import joined_parts
    from lethe.io.tables import read_table

    tables = []
    for path in sorted((folder / "generations" / model).glob("*.parquet")):
        scores = folder / "scores" / model / path.name
        table = pd.concat(joined_parts(path, scores), ignore_index=True) if scores.is_file() else read_table(path)
        table.insert(0, "model", model)
        table.insert(1, "split", path.stem)
        tables.append(table)
    return tables
