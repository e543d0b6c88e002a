"""`lethe.load_run` and `lethe.compare`: the artifacts of a run as tables and figures, and two runs question by question."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from lethe.api.parameters import InPython, Place, documented
from lethe.api.result import Measurement, TableWithSentences, View, frame
from lethe.comparison import comparison as compared
from lethe.comparison import ranking as ranked
from lethe.comparison.read_side import read_side
from lethe.comparison.sides import Side, check_alike, check_independent, digest_of_draws
from lethe.comparison.within import sides_of_folder
from lethe.errors import BadFile, MissingArtifact, check, plural
from lethe.io.artifacts import read_items
from lethe.io.tables import read_table
from lethe.io.yaml import read_yaml
from lethe.measure.stated import check_leak_is
from lethe.results import quantities, table, views
from lethe.results.quantities import Scope
from lethe.statistics.bound import Bound

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from lethe.io.artifacts import Row


@dataclass(frozen=True, repr=False)
class ShownRun(TableWithSentences):
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

        tables = []
        for model in self.models:
            for path in sorted((self.folder / "generations" / model).glob("*.parquet")):
                answers = self._answers_of(model, path)
                answers.insert(0, "model", model)
                answers.insert(1, "split", path.stem)
                tables.append(answers)
        if not tables:
            return pd.DataFrame({"model": [], "split": []})
        return pd.concat(tables, ignore_index=True)

    def _answers_of(self, model: str, path: Path) -> pd.DataFrame:
        """The answers of one split, with their scores where they are scored."""
        from lethe.measure.answers import AnswerTables

        scores = self.folder / "scores" / model / path.name
        if not scores.is_file():
            return read_table(path)
        return AnswerTables({path.stem: (path, scores)})[path.stem]

    def to_frame(self) -> pd.DataFrame:
        return self.metrics

    def views(self) -> list[View]:
        rows = []
        for name, metrics in self.metrics.iterrows():
            bounds = self.bounds[name]
            rows.append([name, *(bounds.get(key) or value for key, value in metrics.items())])
        return [View("", ["model", *self.metrics.columns], rows, self.sentences())]

    def sentences(self) -> list[str]:
        return [f"{self.folder}: {plural(len(self.models), 'model')}, {', '.join(self.models)}."]

    def plot_bounds(self, ax: Axes | None = None) -> Axes:
        """Draw a row per model, on new axes by default: greedy and mean score, and the bound of the worst question."""
        ax = ax or _new()
        metrics = self.metrics
        worst = _column(metrics, *_bounds("model", "score_worst"))
        greedy, mean = _scores("model")
        rows = list(range(len(metrics)))
        alphas = metrics["alpha"].unique() if "alpha" in metrics else []
        level = f" (α = {alphas[0]:g})" if len(alphas) == 1 else ""

        ax.hlines(rows, 0, worst, color="0.85", linewidth=4)
        label = "greedy answer, mean score"
        ax.plot(
            metrics[greedy],
            rows,
            "D",
            mfc="none",
            color="tab:orange",
            label=label,
        )
        ax.plot(metrics[mean], rows, "o", color="tab:blue", label="sampled answers, mean score")
        label = f"worst question, upper bound{level}"
        ax.plot(
            worst,
            rows,
            "|",
            markersize=14,
            color="tab:blue",
            label=label,
        )

        ax.set_yticks(rows, self.models)
        ax.invert_yaxis()
        ax.set(xlim=(0, 1.02), xlabel="score")
        ax.legend(frameon=False, fontsize="small", loc="lower left", bbox_to_anchor=(0, 1), ncols=3)
        return ax

    def plot_questions(self, model: str | None = None, ax: Axes | None = None) -> Axes:
        """Draw each forget question's mean score with its bound, the highest first; a run of one model needs no name."""
        if model is None and len(self.models) == 1:
            model = self.models[0]
        check(model in self.models, "model", model, f"one of {', '.join(self.models)}")
        ax = ax or _new()
        rows = self.questions[self.questions["model"] == model]
        upper = _column(rows, *_bounds("question", "score"))
        order = (-upper).argsort(kind="stable")
        greedy_name, mean_name = _scores("question")
        greedy = _column(rows, greedy_name)[order]
        mean = _column(rows, mean_name)[order]
        places = list(range(1, len(rows) + 1))

        label = "up to the upper bound"
        ax.vlines(
            places,
            mean,
            upper[order],
            color="tab:blue",
            alpha=0.35,
            linewidth=3,
            label=label,
        )
        label = "mean of the sampled answers"
        ax.plot(
            places,
            mean,
            "o",
            markersize=3,
            color="tab:blue",
            label=label,
        )
        label = "greedy answer"
        ax.plot(
            places,
            greedy,
            "D",
            markersize=4,
            mfc="none",
            color="tab:orange",
            label=label,
        )

        ax.set(ylim=(0, 1.02), xlabel="forget questions, sorted by bound", ylabel="score")
        ax.legend(frameon=False, fontsize="small")
        return ax

    def plot_tails(self, ax: Axes | None = None) -> Axes:
        """Draw the share of answers above each score, a line per model: the bound solid, the drawn answers dashed."""
        ax = ax or _new()
        for model, rows in self.tails.groupby("model", sort=False):
            name = f"{model}, upper bound"
            (line,) = ax.plot(rows["x"], rows["bound"], drawstyle="steps-post", label=name)
            color = line.get_color()
            drawn = rows["empirical"]
            ax.plot(rows["x"], drawn, drawstyle="steps-post", color=color, linestyle="--")
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


def load_run(folder: Place = "data") -> ShownRun:
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
        remedy = "Name a pipeline's data folder, or one of data/eval."
        raise BadFile(folder, "no such folder", remedy)
    place = table.place(folder, "metrics", "").parent
    measured = sorted(path.stem for path in place.glob("*.parquet"))
    names = [name for name in _listed(folder) or measured if name in measured]
    if not names:
        raise MissingArtifact(place, "stage metrics")

    results = table.read(folder, names)
    numbers_of = {name: results.model(name) for name in names}
    metrics = [numbers.values for numbers in numbers_of.values()]
    points = []
    for name, numbers in numbers_of.items():
        for point in tails(numbers):
            points.append((name, point.x, point.bound, point.empirical))

    rows = table.frame(folder)
    kept = rows["model"].isin(names) | ~rows["model"].isin(measured)
    return ShownRun(
        folder=folder,
        results=rows[kept].reset_index(drop=True),
        metrics=pd.DataFrame(metrics, index=pd.Index(names, name="model")),
        questions=_questions(folder, results, names),
        tails=pd.DataFrame(points, columns=["model", "x", "bound", "empirical"]),
        bounds={name: numbers.bounds for name, numbers in numbers_of.items()},
    )


def _questions(folder: Path, results: table.Results, names: Sequence[str]) -> pd.DataFrame:
    """A row per model and forget question, with its text where the dataset is there."""
    asked: Mapping[str, Row] = {}
    if (folder / "dataset/forget.jsonl").is_file():
        asked = read_items("forget", folder)
    questions = []
    for name in names:
        for item, numbers in results.questions(name).items():
            text = asked[item]["question"] if item in asked else None
            row = {"model": name, "prompt_id": item, "question": text}
            questions.append({**row, **numbers.columns})
    return frame(questions)


def _listed(folder: Path) -> list[str]:
    """The models in the order of the params.yaml beside the folder; none where there is no such file."""
    params = folder.resolve().parent / "params.yaml"
    if not params.is_file():
        return []
    models = read_yaml(params).get("models")
    return list(models) if isinstance(models, dict) else []


@dataclass(frozen=True, repr=False)
class ShownComparison(compared.Comparison, Measurement):
    """The result of `compare`: the rows ``per_question``, whether B is ``worse``, and the digest of the ``draws``."""

    draws: str

    def as_json(self) -> views.Document:
        return views.compare(self.rows())

    def to_frame(self) -> pd.DataFrame:
        """Return one row per question, with the effect and its interval."""
        return frame(self.as_json()["per_question"])

    def views(self) -> list[View]:
        columns, rows = self.table()
        notes = self.sentences()
        more = len(self.per_question) - len(rows)
        if more:
            notes.append(f"{plural(more, 'more question')}: see --json, --page or to_frame().")
        return [View("{a} and {b}".format_map(self.record), columns, rows, notes)]


@dataclass(frozen=True, repr=False)
class ShownRanking(ranked.Ranking, Measurement):
    """The result of `compare` for several runs: ranks and pairs that differ, over these questions and others like these."""

    def as_json(self) -> views.Document:
        return views.compare(self.rows())

    def to_frame(self) -> pd.DataFrame:
        """Return one row per run: its mean and its ranks."""
        columns, rows = self.table()
        return frame(rows, columns=columns)

    def views(self) -> list[View]:
        title = f"{plural(len(self.record['runs']), 'run')}, {self.record['metric']}"
        columns, pairs = self.pair_table()
        shown = pairs[: compared.SHOWN]
        notes = self.sentences()
        if len(pairs) > len(shown):
            notes.append(f"{plural(len(pairs), 'row')} of pairs in all: see --json or --page.")
        return [View("pairs", columns, shown), View(title, *self.table(), notes)]


@documented
def compare(
    a: Place,
    b: Place | None = None,
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
    independent: bool = False,
    leak_is: Literal["high", "low"] | None = None,
) -> ShownComparison | ShownRanking:
    """Compare two runs question by question: which leak more or less in B than in A, with effect and interval.

    Several runs are ranked: which pairs differ on average, and the range of ranks that each run may have. A data folder
    alone stands for its models under test, which are ranked.

    Parameters
    ----------
    a : The earlier side: a log, a table of scores, a data folder, a model of one (data:npo), or a git revision or
        experiment.
    b : The later side, of any of these kinds. [default: the models under test of the data folder A are ranked]
    more : Further sides on the same questions: all are ranked.
    alpha : The list of differences has a false entry with at most this probability.
    score : The score. [default: the 0/1 scorer, or the first of a log]
    model : A model of data folders; repeatable. [default: all]
    by : Bound by how much B is worse, and say whether that is at most this.
    on : Whether `by` is about every question or about their average.
    stopped : The sides whose draws a rule could stop; logs and data folders record it. A table may have a column `stopped`.
    worst : Also bound the largest score of a question in B.
    despite_settings : Compare sides of two engines whose recorded settings differ all the same, and note it.
    independent : Declare that the sides share no random numbers, where no record says so. A gate rests on this too.

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
    sides = _sides([a, b, *more], score, filter, models, leak_is)
    if not despite_settings:
        check_alike(sides)
    if independent:
        check_independent(sides)
    _check_kinds({side.kind for side in sides}, leak_is, filter, models)
    check(by is None or 0 <= by < 1, "by", by, "a number of at least 0 and below 1")
    check(by is not None or on == "questions", "on", on, "left out without by")
    if b is None or more:
        of_two = "left out unless two sides are named"
        check(by is None, "by", by, of_two)
        check(stopped is None, "stopped", stopped, of_two)
        check(not worst, "worst", worst, of_two)
        return ShownRanking(ranked.rank(sides, alpha, independent).results)
    first, second = sides
    first = replace(first, stopped=first.stopped or stopped in ("a", "both"))
    second = replace(second, stopped=second.stopped or stopped in ("b", "both"))
    found = compared.compare(
        first,
        second,
        alpha,
        by,
        on,
        worst,
        independent,
    )
    return ShownComparison(found.results, digest_of_draws(sides))


def _sides(
    places: Sequence[Place | None],
    score: str | None,
    filter: str | None,
    models: Sequence[str],
    leak_is: Literal["high", "low"] | None,
) -> list[Side]:
    """The sides at these places; the models under test of the first, if it is a data folder and alone."""
    named = [os.fspath(place) for place in places if place is not None]
    if len(named) > 1:
        return [read_side(place, score, filter, models, leak_is) for place in named]
    folder = Path(named[0])
    if not folder.is_dir():
        remedy = "Name a second side, or a data folder, whose models under test are compared."
        raise BadFile(folder, "is one side alone", remedy)
    return sides_of_folder(folder, score, models)


def _check_kinds(
    kinds: set[str], leak_is: str | None, filter: str | None, models: Sequence[str]
) -> None:
    """Refuse what no side of these kinds (log, table, data, revision) has a use for."""
    files = kinds & {"log", "table"}
    legal = "left out: the scores of a data folder are of leaks"
    check(leak_is is None or files, "leak_is", leak_is, legal)
    check(filter is None or "log" in kinds, "filter", filter, "left out: no side is an lm-eval log")
    folders = kinds - {"log", "table"}
    legal = "left out: no side is a data folder or a revision"
    check(folders or not models, "model", ", ".join(models), legal)
