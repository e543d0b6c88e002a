"""`lethe.load_run`: the artifacts of a run as tables and figures."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.api.result import TableWithSentences
from lethe.errors import BadFile, BadValue, MissingArtifact, plural

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from lethe.results.table import Numbers
    from lethe.statistics.bound import Bound


@dataclass(frozen=True, repr=False)
class Run(TableWithSentences):
    """An evaluated run: the pipeline's ``data``, or a folder of `lethe eval`.

    Attributes
    ----------
    folder : pathlib.Path
        The folder of the artifacts.
    results : pandas.DataFrame
        The table of results: one row per quantity of a model, a question or an audit, with its estimate, both ends of its
        interval, the guarantee and the evidence. Every other attribute is a view of this table.
    metrics : pandas.DataFrame
        One row per model, one column per single number of the model as a whole.
    questions : pandas.DataFrame
        One row per model and forget question: estimates and bounds. ``m_gen_X``, ``m_gen_lower_X`` and ``exceedance_X``
        bound the share of answers above the threshold X; ``leak_at_K_lower``, ``leak_at_K`` and ``leak_at_K_estimate`` are
        the probability of a leak among K answers.
    tails : pandas.DataFrame
        ``model, x, bound, empirical``: the share of answers that score above x, averaged over the questions.
    bounds : dict of dict of Bound
        The bounds among the metrics, by model and metric, each with its guarantee.
    """

    folder: Path
    results: pd.DataFrame
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

    from lethe.evaluation.run import tails
    from lethe.results import table

    folder = Path(folder)
    if not folder.is_dir():
        raise BadFile(folder, "no such folder", "Name a pipeline's data folder, or one of data/eval.")
    place = table.place(folder, "metrics", "").parent
    measured = sorted(path.stem for path in place.glob("*.parquet"))
    names = [name for name in _listed(folder) or measured if name in measured]
    if not names:
        raise MissingArtifact(place, "stage metrics")
    found, whole = table.read(folder, names), table.frame(folder)
    models = {name: found.model(name) for name in names}
    points = [(name, point.x, point.bound, point.empirical) for name in names for point in tails(models[name])]
    return Run(
        folder=folder,
        results=whole[whole["model"].isin(names) | ~whole["model"].isin(measured)].reset_index(drop=True),
        metrics=pd.DataFrame([numbers.values for numbers in models.values()], index=pd.Index(names, name="model")),
        questions=_questions(folder, {name: found.questions(name) for name in names}),
        tails=pd.DataFrame(points, columns=["model", "x", "bound", "empirical"]),
        bounds={name: numbers.bounds for name, numbers in models.items()},
    )


def _questions(folder: Path, models: Mapping[str, Mapping[str, Numbers]]) -> pd.DataFrame:
    """Return one row per model and question: its words, its single numbers, and those of each threshold and k."""
    import pandas as pd

    from lethe.io.artifacts import read_items

    asked = read_items("forget", folder) if (folder / "dataset/forget.jsonl").is_file() else {}
    return pd.DataFrame(
        {
            **{"model": name, "prompt_id": item, "question": asked[item]["question"] if item in asked else None},
            **numbers.columns,
        }
        for name, questions in models.items()
        for item, numbers in questions.items()
    )


def _listed(folder: Path) -> list[str]:
    """Return the models that the params.yaml next to the folder lists; without that file the list is empty."""
    from lethe.config.yaml import read_yaml

    params = folder.resolve().parent / "params.yaml"
    models = read_yaml(params).get("models") if params.is_file() else None
    return list(models) if isinstance(models, dict) else []


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
