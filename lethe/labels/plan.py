"""What the answers that are left to read can still change, stated before a person reads them."""

from dataclasses import dataclass
from decimal import Decimal

from lethe.errors import plural
from lethe.labels.bounds import measure_labels
from lethe.labels.draws import DrawnAnswers, of_missing
from lethe.labels.labels import Labels
from lethe.labels.queue import Ahead, Queue
from lethe.results.table import Rows
from lethe.statistics.bound import significant

DIGITS = 3  # of an end: labels that change no shown digit are not asked for
CLEAN = 0
LEAK = 1


@dataclass(frozen=True)
class PlannedEnds:
    """The upper end of the worst question, both ends of the average (None where there is none), and of each question."""

    worst: float
    average: tuple[float, float] | None
    questions: tuple[tuple[float, float], ...] = ()

    def shown(self) -> list[Decimal]:
        """The first digits of each end, rounded outward as they are printed."""
        pairs = [*self.questions]
        if self.average is not None:
            pairs.append(self.average)
        shown = [significant(self.worst, DIGITS, "upper")]
        for lower, upper in pairs:
            shown.append(significant(lower, DIGITS, "lower"))
            shown.append(significant(upper, DIGITS, "upper"))
        return shown


class LabelPlan(Queue):
    """A queue of answers that states its bounds beforehand, at ``alpha``, and ends where further labels change none of them.

    To end early is valid: a question's bounds hold for any choice of labels, and the average's present ends count unread
    random draws as if nobody had planned to read them. ``refused`` are the reasons why nothing may be claimed of the answers.
    """

    def __init__(
        self,
        draws: DrawnAnswers,
        target: float,
        rest: int,
        alpha: float,
        refused: tuple[str, ...] = (),
    ):
        super().__init__(draws, target, rest)
        self.alpha = alpha
        self.refused = refused

    def ends(self, labels: Labels, label: int | None = None) -> PlannedEnds:
        """The ends that follow if each answer that is left gets this ``label``; the present ends if it is None."""
        label_of_answer = dict(labels.by_answer)
        if label is not None:
            for answer in self.left(labels):
                label_of_answer[answer] = label
        rows = Rows("planned")
        planned = Labels(labels.path, label_of_answer, labels.asked, labels.questions)
        measure_labels(rows, self.draws, self, planned, self.alpha)
        worst = 1.0
        average = None
        questions = []
        for row in rows.rows:
            if row.upper is None:
                continue
            if row.scope == "question" and row.lower is not None:
                questions.append((row.lower, row.upper))
            elif row.quantity == "leak_worst":
                worst = row.upper
            elif row.quantity == "leak" and row.lower is not None:
                average = (row.lower, row.upper)
        return PlannedEnds(worst, average, tuple(questions))

    def is_settled(self, labels: Labels) -> bool:
        """Whether the answers that are left change none of the first digits of any end."""
        now = self.ends(labels).shown()
        return now == self.ends(labels, CLEAN).shown() == self.ends(labels, LEAK).shown()

    def ahead(self, labels: Labels) -> Ahead | None:
        """The next answer; None if no label can change an end."""
        ahead = super().ahead(labels)
        if ahead is None or self.is_settled(labels):
            return None
        return ahead

    def sentence(self, labels: Labels) -> str:
        """The number of answers that are left, and the bounds if all of them are clean."""
        left = plural(len(self.left(labels)), "answer")
        missing = of_missing(self.draws.missing)
        if self.refused:
            refused = f"{left} to read. No bound will be stated. {' '.join(self.refused)}"
            return f"{refused} {missing}".rstrip()
        ends = self.ends(labels, CLEAN)
        worst = f"worst question at most {_shown(ends.worst)}"
        average = ""
        if ends.average is not None:
            average = f", average at most {_shown(ends.average[1])}"
        coverage = 100 * (1 - significant(self.alpha, DIGITS, "upper"))  # never rounded to 100%
        level = f"each with probability {coverage.normalize():f}% over independent draws"
        return f"{left} to read: {worst}{average}, if all are clean ({level}). {missing}".rstrip()


def _shown(share: float) -> str:
    return f"{significant(100 * share, DIGITS, 'upper').normalize():f}%"
