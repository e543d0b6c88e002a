"""`lethe.load_run` and `lethe.compare`: the artifacts of a run as tables and figures, and two runs question by question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from lethe.api.parameters import InPython, Place, documented
from lethe.api.result import Measurement, TableWithSentences, View, frame
from lethe.comparison import comparison as compared
from lethe.comparison.sides import check_alike, read_side
from lethe.errors import BadFile, BadValue, MissingArtifact, check, plural
from lethe.io.artifacts import read_items
from lethe.io.tables import read_table
from lethe.io.yaml import read_yaml
from lethe.measure.stated import check_leak_is
from lethe.results import quantities, table
from lethe.results.quantities import Scope
from lethe.statistics.bound import Bound

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


@dataclass(frozen=True, repr=False)
class Run(TableWithSentences):
    """An evaluated run: the pipeline's ``data``, or a folder of `lethe eval`. ``results`` has one row per quantity, with
    estimate, both ends, guarantee and evidence; the other tables are views of it: ``metrics`` has a row per model,
    ``questions`` one per model and forget question (``m_gen_X``: the share of answers above X; ``leak_at_K``: a leak among
    K answers), ``tails`` the share of answers above x.
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
        """One row per answer: ``model, split, prompt_id, sample, text`` and one column per scorer; sample -1 is greedy."""
        import pandas as pd

        from lethe.measure.answers import AnswerTables

        tables = []
        for model in self.models:
            for path in sorted((self.folder / "generations" / model).glob("*.parquet")):
                name, scores = path.stem, self.folder / "scores" / model / path.name
                table = (
                    AnswerTables({name: (path, scores)})[name]
                    if scores.is_file()
                    else read_table(path)
                )
                table.insert(0, "model", model)
                table.insert(1, "split", name)
                tables.append(table)
        return (
            pd.concat(tables, ignore_index=True)
            if tables
            else pd.DataFrame({"model": [], "split": []})
        )

    def to_frame(self) -> pd.DataFrame:
        return self.metrics

    def views(self) -> list[View]:
        each = self.metrics.iterrows()
        rows = [
            [name, *(self.bounds[name].get(key) or value for key, value in own.items())]
            for name, own in each
        ]
        return [View("", ["model", *self.metrics.columns], rows, self.sentences())]

    def sentences(self) -> list[str]:
        return [f"{self.folder}: {plural(len(self.models), 'model')}, {', '.join(self.models)}."]

    def plot_bounds(self, ax: Axes | None = None) -> Axes:
        """Draw a row per model, on new axes by default: greedy and mean score, and the bound of the worst question."""
        ax, metrics = ax or _new(), self.metrics
        places, worst = (
            list(range(len(metrics))),
            _column(metrics, *_bounds("model", "score_worst")),
        )
        greedy, mean = _scores("model")
        alphas = metrics["alpha"].unique() if "alpha" in metrics else []
        level = f" (α = {alphas[0]:g})" if len(alphas) == 1 else ""
        ax.hlines(places, 0, worst, color="0.85", linewidth=4)
        ax.plot(
            metrics[greedy],
            places,
            "D",
            mfc="none",
            color="tab:orange",
            label="greedy answer, mean score",
        )
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
        check(model in self.models, "model", model, f"one of {', '.join(self.models)}")
        ax, rows = ax or _new(), self.questions[self.questions["model"] == model]
        high, scores = _column(rows, *_bounds("question", "score")), _scores("question")
        order = (-high).argsort(kind="stable")
        greedy, mean = (_column(rows, name)[order] for name in scores)
        places = list(range(1, len(rows) + 1))
        label = "up to the upper bound"
        ax.vlines(places, mean, high[order], color="tab:blue", alpha=0.35, linewidth=3, label=label)
        ax.plot(
            places, mean, "o", markersize=3, color="tab:blue", label="mean of the sampled answers"
        )
        ax.plot(
            places, greedy, "D", markersize=4, mfc="none", color="tab:orange", label="greedy answer"
        )
        ax.set(ylim=(0, 1.02), xlabel="forget questions, sorted by bound", ylabel="score")
        ax.legend(frameon=False, fontsize="small")
        return ax

    def plot_tails(self, ax: Axes | None = None) -> Axes:
        """Draw the share of answers above each score, a line per model: the bound solid, the drawn answers dashed."""
        ax = ax or _new()
        for model, rows in self.tails.groupby("model", sort=False):
            (line,) = ax.plot(
                rows["x"], rows["bound"], drawstyle="steps-post", label=f"{model}, upper bound"
            )
            ax.plot(
                rows["x"],
                rows["empirical"],
                drawstyle="steps-post",
                color=line.get_color(),
                linestyle="--",
            )
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
    >>> run.models, run.bounds["mine"]["m_mu_worst"].level()
    (['mine'], 'with probability 0.99 (α = 0.01)')
    >>> run.answers.groupby("split")["text"].count().to_dict(), run.plot_questions().get_ylabel()
    ({'forget': 18}, 'score')
    """
    import pandas as pd

    from lethe.measure.run import tails

    folder = Path(folder)
    if not folder.is_dir():
        raise BadFile(
            folder, "no such folder", "Name a pipeline's data folder, or one of data/eval."
        )
    place = table.place(folder, "metrics", "").parent
    measured = sorted(path.stem for path in place.glob("*.parquet"))
    names = [name for name in _listed(folder) or measured if name in measured]
    if not names:
        raise MissingArtifact(place, "stage metrics")
    results, whole = table.read(folder, names), table.frame(folder)
    models = {name: results.model(name) for name in names}
    points = [
        (name, point.x, point.bound, point.empirical)
        for name in names
        for point in tails(models[name])
    ]
    asked = read_items("forget", folder) if (folder / "dataset/forget.jsonl").is_file() else {}
    texts = {item: row["question"] for item, row in asked.items()}
    questions = (
        {"model": name, "prompt_id": item, "question": texts.get(item), **numbers.columns}
        for name in names
        for item, numbers in results.questions(name).items()
    )
    return Run(
        folder=folder,
        results=whole[whole["model"].isin(names) | ~whole["model"].isin(measured)].reset_index(
            drop=True
        ),
        metrics=pd.DataFrame(
            [numbers.values for numbers in models.values()], index=pd.Index(names, name="model")
        ),
        questions=frame(questions),
        tails=pd.DataFrame(points, columns=["model", "x", "bound", "empirical"]),
        bounds={name: numbers.bounds for name, numbers in models.items()},
    )


def _listed(folder: Path) -> list[str]:
    params = folder.resolve().parent / "params.yaml"
    models = read_yaml(params).get("models") if params.is_file() else None
    return list(models) if isinstance(models, dict) else []


@dataclass(frozen=True, repr=False)
class Comparison(compared.Comparison, Measurement):
    """The result of `compare`: the rows ``per_question``, and whether B is ``worse``."""

    VIEW = "compare"

    def to_frame(self) -> pd.DataFrame:
        """Return one row per question, with the effect and its interval."""
        return frame(self.as_json()["per_question"])

    def views(self) -> list[View]:
        columns, rows = self.table()
        notes = self.sentences()
        if more := len(self.per_question) - len(rows):
            notes.append(f"{plural(more, 'more question')}: see --json, --page or to_frame().")
        return [View("{a} and {b}".format_map(self.record), columns, rows, notes)]


@dataclass(frozen=True, repr=False)
class Ranking(compared.Ranking, Measurement):
    """The result of `compare` for several runs: ranks and pairs that differ, over these questions and others like these."""

    VIEW = "compare"

    def to_frame(self) -> pd.DataFrame:
        """Return one row per run: its mean and its ranks."""
        columns, rows = self.table()
        return frame(rows, columns=columns)

    def views(self) -> list[View]:
        title = f"{plural(len(self.record['runs']), 'run')}, {self.record['metric']}"
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
    worst: Annotated[bool, InPython()] = False,
    despite_settings: bool = False,
    leak_is: Literal["high", "low"] | None = None,
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
    despite_settings : Compare sides of two engines whose recorded settings differ all the same, and note it.

    Notes
    -----
    A difference holds after Holm's correction over all questions. Each interval holds at alpha by itself. ``worse`` is wrong
    with probability at most alpha. Higher scores are worse. Sides of two engines whose recorded settings differ are refused;
    with one engine the settings that differ are noted. Questions with another text, reference, prompt or scorer are named and
    not compared. Sides that record different seeds are independent, sides with one seed are compared by pairs of answers, and
    for others neither is assumed. With one answer to each question, the average is tested over the questions. ``population``
    is the average over questions like these, as if these were a random sample of them.

    Of several runs, no pair that differs and no range of ranks is false with probability 1 - alpha (Holm over the pairs).

    Examples
    --------
    >>> import lethe
    >>> results = lethe.compare("scores.csv", "scores.csv", score="score")
    >>> results.worse, len(results.to_frame())
    (False, 1)
    """
    models = [model] if isinstance(model, str) else list(model or ())
    check_leak_is(leak_is)
    sides = [read_side(str(given), score, filter, models, leak_is) for given in (a, b, *more)]
    if not despite_settings:
        check_alike(sides)
    kinds = {side.kind for side in sides}
    files = kinds & {"log", "table"}
    check(
        leak_is is None or files,
        "leak_is",
        leak_is,
        "left out: the scores of a data folder are of leaks",
    )
    folders = not kinds <= {"log", "table"}
    check(filter is None or "log" in kinds, "filter", filter, "left out: no side is an lm-eval log")
    check(
        folders or not models,
        "model",
        ", ".join(models),
        "left out: no side is a data folder or a revision",
    )
    check(by is None or 0 <= by < 1, "by", by, "a number of at least 0 and below 1")
    check(by is not None or on == "questions", "on", on, "left out without by")
    if more:
        given = {"by": by, "stopped": stopped, "worst": worst or None}
        if wrong := [name for name, value in given.items() if value is not None]:
            raise BadValue(wrong[0], given[wrong[0]], "left out for more than two sides")
        return Ranking(**vars(compared.rank(sides, alpha)))
    first, second = (
        replace(side, stopped=side.stopped or stopped in (name, "both"))
        for side, name in zip(sides, ("a", "b"), strict=True)
    )
    return Comparison(**vars(compared.compare(first, second, alpha, by, on, worst)))
