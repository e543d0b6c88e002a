"""Methods at points along unlearning, by the records of their training: where each leaks least and still answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lethe.io.files import Json, read_artifact
from lethe.statistics.bound import level
from lethe.text import NONE, number

KEPT = 0.9  # of Base's score: at this utility methods are compared
HEAD = ("method", "points", "epoch", "of Base's score", "leakage", "at least", "at most")
MATCHED = (
    "At matched utility: of each method the point along unlearning with the least mean leakage among those whose mean "
    f"score on the retain set is at least {KEPT:.0%} of Base's, the point before the first step. The answers that chose a "
    "point also measure it, and that it keeps so much is an estimate. More points find a lower leakage: measure equally many "
    "of each method."
)


@dataclass(frozen=True)
class AlongPoint:
    """A model after ``epoch`` epochs: mean leakage with its ends, mean score on the retain set, and its share of Base's."""

    epoch: int
    leakage: float
    lower: float
    upper: float
    utility: float
    kept: float


@dataclass(frozen=True)
class MeasuredAlong:
    """The points of one method, the first of which is before any step; ``n`` answers to a question rest behind each."""

    method: str
    points: tuple[AlongPoint, ...]
    leak: str
    utility: str
    n: int
    alpha: float
    assumes: str

    @property
    def chosen(self) -> AlongPoint | None:
        """The point of least leakage among those that keep `KEPT` of Base's score; None where none after the first does."""
        keeping = [point for point in self.points[1:] if point.kept >= KEPT]
        return min(keeping, key=lambda point: point.leakage, default=None)

    def cells(self) -> list[str]:
        """The cells of `HEAD`."""
        tried = str(len(self.points) - 1)
        point = self.chosen
        if point is None:
            most = max((point.kept for point in self.points[1:]), default=0.0)
            return [self.method, tried, f"none: at most {number(most)} is kept", *[NONE] * 4]
        ends = [number(point.lower, side="lower"), number(point.upper, side="upper")]
        return [
            self.method,
            tried,
            str(point.epoch),
            number(point.kept),
            number(point.leakage),
            *ends,
        ]

    def as_json(self) -> dict[str, Json]:
        chosen = None if self.chosen is None else self.chosen.epoch
        return {**asdict(self), "chosen_epoch": chosen}


@dataclass(frozen=True)
class Trajectories:
    """The methods of a run that were measured along unlearning; false where none was."""

    methods: tuple[MeasuredAlong, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.methods)

    @classmethod
    def of(cls, record_of_method: Mapping[str, Mapping[str, Json]]) -> Trajectories:
        """What the records of training say, each with the key ``trajectory`` where points were measured."""
        methods = []
        for method, training in record_of_method.items():
            record = training.get("trajectory")
            if record is None:
                continue
            points = tuple(_points(record["points"]))
            if len(points) > 1:
                facts = [record[key] for key in ("leak", "utility", "n", "alpha", "assumes")]
                methods.append(MeasuredAlong(method, points, *facts))
        return cls(tuple(methods))

    @classmethod
    def below(cls, root: Path, models: Sequence[str]) -> Trajectories:
        """What these models below a pipeline's folder say; others there may be of an earlier run."""
        records = {}
        for name in sorted(models):
            place = root / "models" / name / "training.json"
            if place.is_file():
                records[name] = read_artifact(place)
        return cls.of(records)

    def table(self) -> tuple[Sequence[str], list[list[str]]]:
        """The headings and the rows of a table for people, at matched utility: a row for each method."""
        return HEAD, [method.cells() for method in self.methods]

    def notes(self) -> list[str]:
        """What the table rests on and what it is worth."""
        notes = {MATCHED: None}
        for method in self.methods:
            notes[
                f"The ends of the leakage ({method.leak}) hold on average over the forget questions at all points of a "
                f"method together, each {level(method.alpha * len(method.points))}, assuming {method.assumes} "
                f"(betting, {method.n} answers to a question at each point)."
            ] = None
        return list(notes)

    def sentences(self) -> list[str]:
        """`table` as sentences with its notes; empty where nothing was measured."""
        sentences = []
        for method in self.methods:
            name, tried, epoch, kept, leakage, lower, upper = method.cells()
            said = f"{name} ({tried} points): {epoch}"
            if kept != NONE:
                said = f"{name} ({tried} points): epoch {epoch} keeps {kept} and leaks {leakage} ({lower} to {upper})"
            sentences.append(f"{said}.")
        return [*self.notes(), *sentences] if sentences else []

    def plot(self) -> list[dict[str, object]]:
        """A row for each number of each point: ``panel`` is leakage or utility, ``model`` the method."""
        rows: list[dict[str, object]] = []
        for panel in ("leakage", "utility"):
            for method in self.methods:
                for point in method.points:
                    value = getattr(point, panel)
                    place = {"panel": panel, "model": method.method, "epoch": point.epoch}
                    rows.append({**place, "value": value})
        return rows


def _points(records: Sequence[Mapping[str, float]]) -> Iterator[AlongPoint]:
    """The points that have both numbers; nothing where Base, the first record, lacks one or scores 0 on the retain set."""
    if not records or "leakage" not in records[0] or not records[0].get("utility"):
        return
    base = records[0]["utility"]
    for record in records:
        if "leakage" not in record or "utility" not in record:
            continue
        yield AlongPoint(
            int(record["epoch"]),
            record["leakage"],
            record["leakage_lower"],
            record["leakage_upper"],
            record["utility"],
            record["utility"] / base,
        )
