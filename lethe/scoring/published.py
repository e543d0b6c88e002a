"""Numbers of another tool's log beside Lethe's own numbers of the same model, which a finished run has measured.

The noise of a published number is its interval over questions: what other questions of the same kind would give. Two
programs that ask the same questions have not this noise between them, so *outside* is a difference that needs a reason (the
prompt, the precision, the tokens counted), and *inside* is no proof that there is none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lethe.errors import BadFile, BadValue
from lethe.results import table
from lethe.results.table import Numbers
from lethe.statistics.bound import Interval

METRICS = "metrics"  # the stage whose rows are read
UTILITY = "model_utility"
ITS_TERMS = "model_utility_terms"


@dataclass(frozen=True)
class Beside:
    """A published number with its interval, and Lethe's own; None where the run has no such number."""

    name: str
    published: Interval
    measured: float | None

    @property
    def inside(self) -> bool | None:
        """Whether Lethe's number lies within the interval of the published one; both ends count as within."""
        if self.measured is None:
            return None
        return self.published.lower <= self.measured <= self.published.upper

    @property
    def word(self) -> str:
        """inside, outside, or absent."""
        if self.inside is None:
            return "absent"
        return "inside" if self.inside else "outside"

    def as_json(self) -> dict[str, object]:
        return {
            "published": self.published.value,
            "lower": self.published.lower,
            "upper": self.published.upper,
            "measured": self.measured,
            "inside": self.inside,
        }


def beside(intervals: Mapping[str, Interval], model: str, n_terms: int) -> list[Beside]:
    """Each published number beside that of a ``model`` such as data:npo, in the order of ``intervals``.

    ``n_terms`` is the number of terms in the published model utility; a mean of fewer terms is another number, and absent.
    Raises `BadValue` for a name without a folder or a model that the folder lacks, `BadFile` for no folder.
    """
    numbers = _numbers(model)
    found = []
    for name, interval in intervals.items():
        measured = numbers.value(name)
        if name == UTILITY and numbers.value(ITS_TERMS) != n_terms:
            measured = None
        found.append(Beside(name, interval, measured))
    return found


def _numbers(model: str) -> Numbers:
    """The numbers of a model of a run."""
    folder, _, name = model.rpartition(":")
    if not folder or not name:
        raise BadValue("--beside", model, "a data folder and a model of it, such as data:npo")
    if not Path(folder).is_dir():
        raise BadFile(folder, "no such folder", "Name a pipeline's data folder.")
    place = table.place(Path(folder), METRICS, name)
    if not place.is_file():
        models = sorted(path.stem for path in place.parent.glob("*.parquet"))
        legal = f"a measured model: {', '.join(models) or 'none; run `lethe run` first'}"
        raise BadValue("--beside", model, legal)
    return table.read(Path(folder), [name]).model(name)
