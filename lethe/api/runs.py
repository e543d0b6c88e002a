"""`lethe.load_run` and `lethe.compare`: the artifacts of a run as tables and figures, and two runs question by question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lethe.api.result import Place, TableWithSentences, View, documented
from lethe.errors import BadFile, BadValue, MissingArtifact, plural
from lethe.evaluation import compared
from lethe.results import quantities

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from matplotlib.axes import Axes

    from lethe.results.quantities import Scope
    from lethe.results.table import Numbers
    from lethe.statistics.bound import Bound


@dataclass(frozen=True, repr=False)
class Run(TableWithSentences):
    """An evaluated run: the pipeline's ``data``, or a folder of `lethe eval`.

    ``results`` is the table of results: one row per quantity of a model, a question or an audit, with its estimate, both ends
    of its interval, the guarantee and the evidence. The other tables are views of it. ``metrics`` has one row per model and
    one column per number. ``questions`` has one row per model and forget question: ``m_gen_X``, ``m_gen_lower_X`` and
    ``exceedance_X`` bound the share of answers above the threshold X; ``leak_at_K_lower``, ``leak_at_K`` and
    ``leak_at_K_estimate`` are the probability of a leak among K answers. ``tails`` has the share of answers that score above
    x, averaged over the questions. ``bounds`` are the bounds among the metrics by model and metric.
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

    def views(self) -> list[View]:
        rows = [
            [model, *(self.bounds[model].get(name) or value for name, value in own.items())]
            for model, own in self.metrics.iterrows()
        ]
        return [View("", ["model", *self.metrics.columns], rows, self.sentences())]

    def sentences(self) -> list[str]:
        return [f"{self.folder}: {plural(len(self.models), 'model')}, {', '.join(self.models)}."]

    def plot_bounds(self, ax: Axes | None = None) -> Axes:
        """Draw a row per model, on new axes by default: greedy and mean score, and the bound of the worst question."""
        ax, metrics = ax or _new(), self.metrics
        places, worst = list(range(len(metrics))), _column(metrics, *_bounds("model", "score_worst"))
        greedy, mean = _scores("model")
        alphas = metrics["alpha"].unique() if "alpha" in metrics else []
        level = f" (α = {alphas[0]:g})" if len(alphas) == 1 else ""
        ax.hlines(places, 0, worst, color="0.85", linewidth=4)
        ax.plot(metrics[greedy], places, "D", mfc="none", color="tab:orange", label="greedy answer, mean score")
        ax.plot(metrics[mean], places, "o", color="tab:blue", label="sampled answers, mean score")
        label = f"worst question, upper bound{level}"
        ax.plot(worst, places, "|", markersize=14, color="tab:blue", label=label)
        ax.set_yticks(places, self.models)
        ax.invert_yaxis()
        ax.set(xlim=(0, 1.02), xlabel="score")
        ax.legend(frameon=False, fontsize="small", loc="lower left", bbox_to_anchor=(0, 1), ncols=3)
        return ax

    def plot_questions(self, model: str | None = None, ax: Axes | None = None) -> Axes:
        """Draw each forget question's mean score with its bound, the highest first; a run of one model needs no name."""
        if model is None and len(self.models) == 1:
            model = self.models[0]
        if model not in self.models:
            raise BadValue("model", model, f"one of {', '.join(self.models)}")
        ax, rows = ax or _new(), self.questions[self.questions["model"] == model]
        high, scores = _column(rows, *_bounds("question", "score")), _scores("question")
        order = (-high).argsort(kind="stable")
        greedy, mean = (_column(rows, name)[order] for name in scores)
        places = list(range(1, len(rows) + 1))
        ax.vlines(
            places, mean, high[order], color="tab:blue", alpha=0.35, linewidth=3, label="up to the upper bound"
        )
        ax.plot(places, mean, "o", markersize=3, color="tab:blue", label="mean of the sampled answers")
        ax.plot(places, greedy, "D", markersize=4, mfc="none", color="tab:orange", label="greedy answer")
        ax.set(ylim=(0, 1.02), xlabel="forget questions, sorted by bound", ylabel="score")
        ax.legend(frameon=False, fontsize="small")
        return ax

    def plot_tails(self, ax: Axes | None = None) -> Axes:
        """Draw the share of answers above each score, a line per model: the bound solid, the drawn answers dashed."""
        ax = ax or _new()
        for model, rows in self.tails.groupby("model", sort=False):
            (line,) = ax.plot(rows["x"], rows["bound"], drawstyle="steps-post", label=f"{model}, upper bound")
            ax.plot(rows["x"], rows["empirical"], drawstyle="steps-post", color=line.get_color(), linestyle="--")
        ax.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="score x", ylabel="share of answers above x")
        if len(self.tails):
            ax.legend(frameon=False, fontsize="small")
        return ax


def _bounds(scope: Scope, key: str) -> list[str]:
    """The columns of an upper bound: for a fixed number of answers, and for one that a rule could stop."""
    return quantities.upper_bounds(scope, (key,), ("sampled", "anytime"))


def _scores(scope: Scope) -> list[str]:
    """The columns of the greedy and of the mean score."""
    return [quantities.of(scope, "score", basis).names[0] for basis in ("greedy", "sampled")]


def _column(table: pd.DataFrame, *names: str) -> np.ndarray:
    """Return, row by row, the first value among the named columns."""
    columns = table.reindex(columns=list(names)).astype(float)
    values: np.ndarray = columns.bfill(axis=1).iloc[:, 0].to_numpy()
    return values


def _new() -> Axes:
    import matplotlib.pyplot as plt

    return plt.subplots(layout="constrained")[1]


def load_run(folder: Place = "data") -> Run:
    """Read the artifacts of a run as tables, without the models that the ``params.yaml`` beside it no longer lists.

    Parameters
    ----------
    folder : The pipeline's ``data``, or the folder of one `lethe eval` (``data/eval/NAME``).

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
    results, whole = table.read(folder, names), table.frame(folder)
    models = {name: results.model(name) for name in names}
    points = [(name, point.x, point.bound, point.empirical) for name in names for point in tails(models[name])]
    return Run(
        folder=folder,
        results=whole[whole["model"].isin(names) | ~whole["model"].isin(measured)].reset_index(drop=True),
        metrics=pd.DataFrame([numbers.values for numbers in models.values()], index=pd.Index(names, name="model")),
        questions=_questions(folder, {name: results.questions(name) for name in names}),
        tails=pd.DataFrame(points, columns=["model", "x", "bound", "empirical"]),
        bounds={name: numbers.bounds for name, numbers in models.items()},
    )


def _questions(folder: Path, models: Mapping[str, Mapping[str, Numbers]]) -> pd.DataFrame:
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
    from lethe.config.yaml import read_yaml

    params = folder.resolve().parent / "params.yaml"
    models = read_yaml(params).get("models") if params.is_file() else None
    return list(models) if isinstance(models, dict) else []


def _answers(folder: Path, model: str) -> list[pd.DataFrame]:
    from lethe.evaluation.answers import AnswerTables
    from lethe.io.tables import read_table

    tables = []
    for path in sorted((folder / "generations" / model).glob("*.parquet")):
        scores = folder / "scores" / model / path.name
        table = AnswerTables({path.stem: (path, scores)})[path.stem] if scores.is_file() else read_table(path)
        table.insert(0, "model", model)
        table.insert(1, "split", path.stem)
        tables.append(table)
    return tables


@dataclass(frozen=True, repr=False)
class Comparison(compared.Comparison, TableWithSentences):
    """The result of `compare`: ``per_question``, the average (``pooled``), and whether B is ``worse``."""

    def to_frame(self) -> pd.DataFrame:
        """Return one row per question, with the effect and its interval."""
        import pandas as pd

        return pd.DataFrame([one.row() for one in self.per_question])

    def views(self) -> list[View]:
        columns, rows = self.table()
        notes = self.sentences()
        if more := len(self.per_question) - len(rows):
            notes.append(f"{plural(more, 'more question')}: see --json, --page or to_frame().")
        return [View(f"{self.a} and {self.b}", columns, rows, notes)]


@dataclass(frozen=True, repr=False)
class Ranking(compared.Ranking, TableWithSentences):
    """The result of `compare` for several runs: the ``ranges`` of ranks and the pairs that differ, ``pooled`` over these
    questions and over questions like these (``population``).
    """

    def to_frame(self) -> pd.DataFrame:
        """Return one row per run: its mean and its ranks."""
        import pandas as pd

        columns, rows = self.table()
        return pd.DataFrame(rows, columns=columns)

    def views(self) -> list[View]:
        title = f"{plural(len(self.runs), 'run')}, {self.metric}"
        return [View("pairs", *self.pair_table()), View(title, *self.table(), self.sentences())]


@documented
def compare(
    a: Place,
    b: Place,
    *more: Place,
    alpha: float = 0.05,
    score: str | None = None,
    filter: str | None = None,
    model: str | Sequence[str] | None = None,
    by: float | None = None,
    on: Literal["questions", "average"] = "questions",
    stopped: Literal["a", "b", "both"] | None = None,
    worst: bool = False,
) -> Comparison | Ranking:
    """Compare two runs question by question: which leak more or less in B than in A, with effect and interval.

    Several runs are ranked: which pairs differ on average, and the range of ranks that each run may have.

    Parameters
    ----------
    a : The earlier side: a log, a table of scores, a data folder, or a git revision or experiment.
    b : The later side, of any of these kinds.
    more : Further sides on the same questions: all are ranked.
    alpha : The list of differences has a false entry with at most this probability.
    score : The score. [default: the 0/1 scorer, or the first of a log]
    model : A model of data folders; repeatable. [default: all]
    by : Bound by how much B is worse, and say whether that is at most this.
    on : Whether `by` is about every question or about their average.
    stopped : The sides whose draws a rule could stop; logs and data folders record it. A table may have a column `stopped`.
    worst : Also bound the largest score of a question in B.

    Notes
    -----
    A difference holds after Holm's correction over all questions. Each interval holds at alpha by itself. ``worse`` is wrong
    with probability at most alpha. Higher scores are worse. Questions with another text, prompt or scorer are named and not
    compared. Sides that record different seeds are independent, sides with one seed are compared by pairs of answers, and for
    others neither is assumed. With one answer to each question, the average is tested over the questions.
    ``population`` is the average over questions like these, of which these are taken as a random sample.

    Of several runs, no pair that differs and no range of ranks is false with probability 1 - alpha (Holm over the pairs).

    Examples
    --------
    >>> import lethe
    >>> results = lethe.compare("scores.csv", "scores.csv", score="score")
    >>> results.worse, len(results.to_frame())
    (False, 1)
    """
    from lethe.evaluation.sides import read_side

    models = [model] if isinstance(model, str) else list(model or ())
    sides = [read_side(str(given), score, filter, models) for given in (a, b, *more)]
    kinds = {side.kind for side in sides}
    if filter is not None and "log" not in kinds:
        raise BadValue("filter", filter, "left out: no side is an lm-eval log")
    if models and kinds <= {"log", "table"}:
        raise BadValue("model", ", ".join(models), "left out: no side is a data folder or a revision")
    if by is not None and not 0 <= by < 1:
        raise BadValue("by", by, "a number of at least 0 and below 1")
    if by is None and on != "questions":
        raise BadValue("on", on, "left out without by")
    if more:
        for name, value in (("by", by), ("stopped", stopped), ("worst", worst or None)):
            if value is not None:
                raise BadValue(name, value, "left out for more than two sides")
        return Ranking(**vars(compared.rank(sides, alpha)))
    first, second = (
        replace(side, stopped=side.stopped or stopped in (name, "both"))
        for side, name in zip(sides, ("a", "b"), strict=True)
    )
    return Comparison(**vars(compared.compare(first, second, alpha, by, on, worst)))
