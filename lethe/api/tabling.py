"""`lethe.table`: chosen numbers of models as a table for a paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lethe.api.parameters import Place
from lethe.api.result import TableWithSentences, View, frame
from lethe.errors import BadFile, MissingArtifact, check
from lethe.io.artifacts import record_of_draws
from lethe.io.files import Json, read_artifact
from lethe.report.methods_table import MethodsTable
from lethe.report.paper_table import PaperTable
from lethe.results.licence import reasons_of
from lethe.results.quantities import access_of
from lethe.results.table import Numbers

if TYPE_CHECKING:
    import pandas as pd

Form = Literal["markdown", "latex", "csv"]
By = Literal["model", "method"]
DIGITS = 3
LAW = ("temperature", "top_p", "top_k", "max_new_tokens", "adaptive_threshold")


@dataclass(frozen=True, repr=False)
class Tabled(TableWithSentences):
    """The result of `table`: the ``numbers``, and their ``text`` in the form that was asked for."""

    numbers: PaperTable
    form: Form

    @property
    def text(self) -> str:
        return _written(self.numbers, self.form)

    def to_frame(self) -> pd.DataFrame:
        """One row per model and one column per number, unrounded."""
        rows = []
        for model in self.numbers.numbers_of_model:
            rows.append([self.numbers.value(model, column) for column in self.numbers.columns])
        return frame(rows, self.numbers.columns, list(self.numbers.numbers_of_model))

    def sentences(self) -> list[str]:
        return self.numbers.notes()

    def as_json(self) -> dict[str, Json]:
        models = {}
        for model in self.numbers.numbers_of_model:
            cells = {}
            for column in self.numbers.columns:
                bound = self.numbers.bound(model, column)
                value = self.numbers.value(model, column)
                guarantee = None if bound is None else bound.guarantee_dict()
                access = self.numbers.access_of(model, column)
                cells[column] = {"value": value, "guarantee": guarantee, "access": access}
            models[model] = cells
        return {"columns": list(self.numbers.columns), "models": models, "text": self.text}

    def views(self) -> list[View]:
        return [View("", notes=self.text.rstrip("\n").split("\n"))]


@dataclass(frozen=True, repr=False)
class TabledMethods(TableWithSentences):
    """The result of `table` by method: the ``numbers`` over seeds, and their ``text`` in the form that was asked for."""

    numbers: MethodsTable
    form: Form

    @property
    def text(self) -> str:
        return _written(self.numbers, self.form)

    def to_frame(self) -> pd.DataFrame:
        """One row per method: mean, standard deviation and interval of each number, unrounded."""
        import io

        import pandas as pd

        return pd.read_csv(io.StringIO(self.numbers.csv()), index_col="method")

    def sentences(self) -> list[str]:
        return self.numbers.notes()

    def as_json(self) -> dict[str, Json]:
        return {
            "columns": list(self.numbers.columns),
            "runs": self.numbers.as_json(),
            "text": self.text,
        }

    def views(self) -> list[View]:
        return [View("", notes=self.text.rstrip("\n").split("\n"))]


def _written(numbers: PaperTable | MethodsTable, form: Form) -> str:
    """The text of a table in this form."""
    writers = {"csv": numbers.csv, "latex": numbers.latex, "markdown": numbers.markdown}
    return writers[form]()


def table(
    *runs: Place,
    column: Sequence[str] = (),
    to: Form = "markdown",
    digits: int = DIGITS,
    by: By = "model",
) -> Tabled | TabledMethods:
    """Print chosen numbers as a table for a paper, a model or a method a row, ends rounded outward with their guarantee.

    Parameters
    ----------
    runs : The pipeline's data, or folders of `lethe eval` (data/eval/NAME).
    column : A number by its exported name, such as m_bin_worst; repeatable. [default: the headlines]
    to : markdown, latex (for the package booktabs) or csv, which keeps every digit.
    digits : The decimals of markdown and latex.
    by : model, or method: a row for each method of the pipeline with its seeds (docs/methods.md).

    Notes
    -----
    A column holds estimates or ends, never both. Rows of other questions, another law of the draws or other scorers are named
    below the table. An end with another guarantee than its column gets a footnote. By method,
    an estimate has mean ± standard deviation over the seeds and an interval of the mean, and an end mean and range.

    Examples
    --------
    >>> import lethe
    >>> print(lethe.table("data", column=["m_bin_worst"], to="latex").text.splitlines()[0])
    \\begin{table}
    """
    from lethe.api.runs import load_run
    from lethe.results import table as results

    check(runs, "runs", [], "at least one folder of a run")
    check(0 <= digits <= 12, "digits", digits, "a whole number from 0 to 12")
    if by == "method":
        return _by_method(runs, column, to, digits)
    numbers_of_model: dict[str, Numbers] = {}
    refused = {}
    asked: dict[str, set[str]] = {}
    for run in runs:
        root = Path(run)
        names = load_run(root).models
        read = results.read(root, names)
        for name in names:
            label = name
            if name in numbers_of_model:
                label = f"{root}: {name}"
            numbers_of_model[label] = read.model(name)
            reasons = reasons_of(numbers_of_model[label])
            if reasons:
                refused[label] = reasons
            for fact, value in _how_asked(root, name).items():
                if value is not None:
                    asked.setdefault(fact, set()).add(repr(value))
    made = PaperTable.of(numbers_of_model, column, digits, refused)
    differing = tuple(fact for fact, values in asked.items() if len(values) > 1)
    return Tabled(replace(made, differing=differing), to)


def _how_asked(root: Path, name: str) -> dict[str, Json]:
    """What two models must share for a comparison: questions, law of the draws, scorers of `lethe eval`."""
    about = record_of_draws(root / "scores" / name / "forget.parquet")
    facts = {fact: about.get(fact) for fact in ("questions", *LAW)}
    evaluated = root / "evaluated.json"
    if evaluated.is_file():
        facts["scorers"] = read_artifact(evaluated).get("score")
    return facts


def _by_method(
    runs: Sequence[Place], column: Sequence[str], to: Form, digits: int
) -> TabledMethods:
    from lethe.comparison.over_seeds import OverSeeds
    from lethe.measure.trajectories import Trajectories
    from lethe.results import table as results

    found_of_run = {}
    along_of_run = {}
    for run in runs:
        place = results.place(Path(run), "compare", "models")
        if not place.is_file():
            raise MissingArtifact(place, "stage compare")
        found = OverSeeds(results.read_rows(place))
        if not found:
            remedy = (
                "Give a method several, such as lethe run -S unlearn.methods.npo.seeds=[2,12,22]."
            )
            raise BadFile(place, "holds no method with several seeds", remedy)
        found_of_run[str(run)] = found
        along_of_run[str(run)] = Trajectories.below(Path(run), found.models)
    made = MethodsTable.of(found_of_run, column, digits, along_of_run)
    kinds = []
    for run, found in found_of_run.items():
        read = results.read(Path(run), found.models)
        for model in found.models:
            numbers = read.model(model)
            kinds += [numbers.kind_of(name) for name in made.columns if name in numbers.columns]
    return TabledMethods(replace(made, access=access_of(kinds)), to)
