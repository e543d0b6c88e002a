"""`lethe.label`: bounds from a person's labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from lethe.api.bounding import QUANTITY, SHOWN
from lethe.api.parameters import InPython, Place, documented
from lethe.api.result import Measurement, View, frame
from lethe.config.measuring import METRICS
from lethe.errors import BadInput, check, plural
from lethe.io.artifacts import record_of_draws
from lethe.io.files import Json
from lethe.labels.bounds import measure_labels
from lethe.labels.draws import of_missing, read_draws
from lethe.labels.labels import Labels, read_labels
from lethe.labels.plan import DIGITS, LabelPlan
from lethe.measure.prompts import Worst
from lethe.measure.stated import Stated
from lethe.results import views
from lethe.results.licence import licensed, of_drawing, reasons_of, refusals
from lethe.results.table import Numbers, Result, Rows, result
from lethe.statistics.bound import Bound

if TYPE_CHECKING:
    import pandas as pd

LABELS, DATASET = Path("data/labels"), Path("data/dataset/forget.jsonl")  # in a pipeline folder


@dataclass(frozen=True, repr=False)
class LabelledBounds(Measurement):
    """The result of `label`: the rows of the labels so far, and the ``settings`` of the labelling."""

    name: str
    settings: Mapping[str, Json]
    results: tuple[Result, ...]

    @property
    def finished(self) -> bool:
        """Whether every answer that was to be labelled has a label."""
        return bool(self.settings["finished"])

    def rows(self) -> list[Result]:
        return list(self.results)

    @property
    def refused(self) -> tuple[str, ...]:
        """Why nothing may be claimed of the answers (`lethe.results.licence`); empty where it may."""
        rows = [row for row in self.results if row.scope == "model"]
        return reasons_of(Numbers(rows))

    def worst(self) -> Worst:
        """Return the question with the largest upper bound, which covers the worst question; an error where there is none."""
        if self.refused:
            raise BadInput(f"{self.name}: no bound is stated. {' '.join(self.refused)}")
        worst = [row for row in self.results if row.quantity == "leak_worst" and row.upper_bound]
        row = worst[0]
        return Worst(row.facts["prompt_id"], row.ends[-1])

    def as_json(self) -> views.Document:
        return views.label(self.rows())

    def to_frame(self) -> pd.DataFrame:
        """Return one row per question: the labelled mass and both ends."""
        rows = []
        for item, mass, lower, upper in self._questions():
            rows.append((item, mass, lower and lower.value, upper and upper.value))
        return frame(rows, columns=["prompt_id", "mass", "lower", "upper"])

    def _questions(self) -> list[tuple[str | None, float | None, Bound | None, Bound | None]]:
        """Each question with its labelled mass and both ends, which are None where nothing may be claimed."""
        of_questions = [row for row in self.results if row.scope == "question"]
        leak_of_item = {row.item: row for row in of_questions if row.quantity == "leak"}
        questions: list[tuple[str | None, float | None, Bound | None, Bound | None]] = []
        for row in of_questions:
            if row.quantity != "mass":
                continue
            leak = leak_of_item.get(row.item)
            lower, upper = None, None
            if leak is not None:
                lower, upper = leak.lower_bound, leak.upper_bound
            questions.append((row.item, row.estimate, lower, upper))
        return questions

    def sentences(self, of: str = "the prompts") -> list[str]:
        lines = []
        for reason in self.refused:
            lines.append(f"No bound is stated. {reason}")
        if not self.refused:
            worst = self.worst()
            lines.append(f"{self._said(worst.bound, of)} The bound is that of {worst.prompt_id}.")
        for row in self.results:
            if row.scope == "model" and row.quantity == "leak" and row.ends:
                lines.append(self._said(row.ends[1], of))
        return lines + self._of_the_labels()

    def _said(self, bound: Bound, of: str) -> str:
        """The sentence of a bound, with how the labels that it rests on were drawn."""
        sentence = bound.sentence(QUANTITY["m_bin"], of).removesuffix(".")
        return f"{sentence}, {self.settings['said']}."

    def _of_the_labels(self) -> list[str]:
        """What is not labelled yet, or how the judge did; and targets under which labels were asked before."""
        settings, lines = self.settings, []
        target = f"{100 * settings['target']:g}%"
        judge = settings["calibration"]
        if not self.finished and settings["settled"]:
            lines.append(f"Further labels change no bound in its first {DIGITS} digits.")
        elif not self.finished:
            some = f"some of the answers that cover {target} of the mass"
            lines.append(
                f"Labelling is not finished: {some}, or some of the random draws of the rest, have no label. "
                f"{settings['plan']}"
            )
        elif judge:
            lines.append(
                f"On the random draws of the rest the judge called {judge['leaks_called']} of {judge['leaks']} leaks a leak "
                f"and {judge['clean_called']} of {judge['clean']} clean answers; no bound rests on the judge."
            )
        if self.finished or settings["settled"]:  # otherwise the plan says it
            lines += filter(None, [of_missing(settings["missing"])])
        others = settings["n_of_no_answer"]
        if others:
            are = "is" if others == 1 else "are"
            count = "counts" if others == 1 else "count"
            lines.append(
                f"{plural(others, 'label')} {are} of no answer of this run, and {count} for nothing."
            )
        earlier = [f"{100 * share:g}%" for share in settings["earlier_targets"]]
        if earlier:
            lines.append(
                f"Labels were also requested under the target {', '.join(earlier)}; the target is now {target}. "
                "So the average counts all labels, and no draw as a random one."
            )
        rests = settings["earlier_rests"]
        if rests:
            lines.append(
                f"Labels were also requested with --rest {', '.join(map(str, rests))}; it is now {settings['rest']}. "
                "So the average counts all labels, and no draw as a random one."
            )
        return lines

    def views(self) -> list[View]:
        rows = self._questions()
        notes = self.sentences("the questions")
        more = len(rows) - SHOWN
        if more > 0:
            notes.append(f"{plural(more, 'more question')}: see --json or to_frame().")
        columns = ["question", "labelled mass", "leak >=", "leak <="]
        return [View(self.name, columns, rows[:SHOWN], notes)]


@documented
def label(
    answers: Place,
    *,
    labels: Place | None = None,
    mass: float = METRICS.labels.mass,
    rest: int = METRICS.labels.rest,
    dataset: Place | None = None,
    verdicts: Place | None = None,
    column: str | None = None,
    alpha: float = METRICS.alpha,
    ask: Annotated[Callable[[LabelPlan, Labels], None] | None, InPython()] = None,
) -> LabelledBounds:
    """Label the distinct answers of a run, the most frequent first, and bound its leaks.

    Parameters
    ----------
    answers : A folder of data/generations, or a table with `prompt_id`, `text`, optional `sample`.
    labels : The file of labels, kept after each key. [default: data/labels/NAME.jsonl]
    mass : Label repeated answers until this share of the mass is covered.
    rest : Then label this many random draws of the rest, for the average.
    dataset : JSON lines with `id`, `question`, optional `answer`, `keywords`. [default: data/dataset/forget.jsonl]
    verdicts : The judge's verdicts: data/judged/JUDGE/MODEL/forget.parquet.
    column : The column of verdicts in that file. [default: the first]
    ask : A function of the plan (a queue of answers) and of the labels, which adds labels (``labels.add``) until
        ``plan.ahead(labels)`` is None or it stops; by default nothing is asked.

    Notes
    -----
    Keys: y (a leak), n (no leak), u (undo), q (stop; the next call continues). The screen states both bounds that follow if
    all answers that are left are clean. Answers that came more than once are read first, then random draws of the rest,
    which bound the average; without random draws (`--rest 0`) each answer counts by its mass. A question's leaks are at
    most its labelled leaks and its draws without a label, so all draws and all labels count. Labelling ends where further
    labels change no digit. With verdicts the random draws also show the judge's error there, on which no bound rests.
    `--json` asks nothing and prints the bounds of the labels so far. `metrics.labels` of params.yaml brings the labels into
    the metrics and the report.

    Examples
    --------
    >>> import lethe
    >>> result = lethe.label("data/generations/mine", labels="none.jsonl", dataset="forget.jsonl")
    >>> result.finished, result.worst().bound.value
    (False, 1.0)
    """
    check(column is None or verdicts is not None, "column", column, "left out without verdicts")
    check(rest >= 0, "rest", rest, "0 or more")
    place = Path(answers)
    name = place.name if place.is_dir() else place.stem
    judged = Path(verdicts) if verdicts else None
    draws = read_draws(place, _dataset(dataset), judged, column)
    about = record_of_draws(place / "forget.parquet" if place.is_dir() else place)
    stated = Stated("", draws.stated, leak_is="high")  # a label of 1 is a leak
    source = of_drawing(about, ()).joined(stated.source())
    plan = LabelPlan(draws, mass, rest, alpha, tuple(refusals(source)))
    file = Path(labels) if labels else LABELS / f"{name}.jsonl"
    known = read_labels(file)
    if ask is not None:
        ask(plan, known)
    rows = Rows(name)
    settings = measure_labels(rows, draws, plan, known, alpha)
    settings["left"] = len(plan.left(known))
    settings["settled"] = plan.is_settled(known)
    settings["plan"] = plan.sentence(known)
    record = result(name, "model", "settings", "labelled", evidence=settings)
    licensed_rows = licensed(name, rows.rows, source)
    return LabelledBounds(name, settings, (record, *licensed_rows))


def _dataset(dataset: Place | None) -> Path | None:
    """The file of the questions: by default that of a pipeline folder, where this is one."""
    if dataset:
        return Path(dataset)
    return DATASET if DATASET.is_file() else None
