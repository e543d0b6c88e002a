"""What changed between two runs and matters: words on models, alarms, and the evidence behind them."""

import dataclasses
import math

from lethe.comparison.changes import Changes
from lethe.errors import one_line, plural
from lethe.io.files import Json
from lethe.results.trace import BESIDE
from lethe.statistics.bound import Side, as_percent, exact, significant

# The words that make a change worse or better.
WORSE = ("leaks",)
BETTER = ("forgot", "intact")
LARGEST = 1e300  # stands for an infinite ln e in JSON


@dataclasses.dataclass(frozen=True)
class ModelWords:
    """The words on one model; ``trace`` is the record of its twin test, empty where no secret of the model was drawn."""

    forgetting: str
    utility: str
    sentence: str
    trace: dict[str, Json] = dataclasses.field(default_factory=dict)

    @property
    def sentences(self) -> list[str]:
        """The verdict, the word on a trace, and what both mean together."""
        traced = str(self.trace.get("sentence", ""))
        together = BESIDE.get((self.forgetting, str(self.trace.get("word"))), "")
        sentences = (self.sentence, f"{traced} {together}".strip())
        return [sentence for sentence in sentences if sentence]


@dataclasses.dataclass(frozen=True)
class Alarm:
    """A change of a model that matters.

    Kind "scorer": another scorer judged the model, so that nothing else of it is compared. Kind "verdict": the word on
    ``metric`` ("forgetting" or "utility") was ``before`` and is ``after``. Kind "bound": it is ``proved`` that ``questions``
    questions leak more or less (0: that some question of these models does), with ln of the mean e-value over all questions
    as ``log_e``; ``before`` and ``after`` are the shares of leaks of ``question``, which has the most evidence, or with
    ``by_ends`` the ends that prove the change. ``worse`` closes the gate; both may be false. A word is worse or better only
    beside a proved change of its model: other draws of the same probabilities turn *open* into *leaks* too. ``drawn_anew``:
    the same weights answered in the same way, so that they cannot have changed.
    """

    model: str
    metric: str
    kind: str
    before: float | str
    after: float | str
    worse: bool = False
    better: bool = False
    question: str | None = None
    questions: int = 0
    proved: bool = False
    log_e: float | None = None
    by_ends: bool = False
    drawn_anew: bool = False

    def sentence(self) -> str:
        if isinstance(self.before, str) or isinstance(self.after, str):
            metric = "verdict" if self.metric == "forgetting" else self.metric
            return f"{self.model}: {metric} {self.before} -> {self.after}{self._unshown()}"
        before = self._number(self.before)
        after = self._number(self.after)
        rose = self.after > self.before
        if self.by_ends:
            before = self._end(self.before, rose)
            after = self._end(self.after, not rose)
        does = "leaks in" if self.metric == "leak" else "scores"
        sentence = f"{self.model}: {one_line(str(self.question))} {does} {after}, before {before}"
        direction = "more" if rose else "less"
        if self.questions > 1:
            sentence += f"; {self.questions} questions proved to leak {direction}"
        elif not self.questions:
            sentence += f"; of all questions together some are proved to leak {direction}"
        return sentence

    def _unshown(self) -> str:
        """That a changed word shows no change of the model; empty where one is proved, or where the words are no proof."""
        if self.kind != "verdict" or self.worse or self.better:
            return ""
        if self.after in (*WORSE, *BETTER):
            proved = "now proved" if self.drawn_anew else self.after
            return f" ({proved}, no change shown)"
        if self.before in BETTER:
            return " (not yet proved again)"
        return " (not proved now, no change shown)"

    def _number(self, value: float) -> str:
        if self.metric == "leak":
            return as_percent(significant(exact(value) * 100, 2))
        return f"{significant(exact(value), 2)}"

    def _end(self, value: float, upper: bool) -> str:
        words: str = "at least"
        side: Side = "lower"
        if upper:
            words = "at most"
            side = "upper"
        if self.metric == "leak":
            return f"{words} {as_percent(significant(exact(value) * 100, 2, side))}"
        return f"{words} {significant(exact(value), 2, side)}"

    def line(self) -> str:
        direction = "Changed"
        if self.worse:
            direction = "Worse"
        elif self.better:
            direction = "Better"
        return f"{direction}: {self.sentence()}"


@dataclasses.dataclass(frozen=True)
class Since:
    """A run compared with the run before it.

    ``alarms`` has the changes that matter, changed verdicts first. ``changes`` is the evidence on the models under test, None
    where no table differs, and ``unchanged`` names the models whose weights and drawing law are those of the run before.
    """

    alarms: list[Alarm]
    alpha: float
    changes: Changes | None = None
    unchanged: tuple[str, ...] = ()

    def tries(self) -> dict[str, Json] | None:
        """The level of the comparison under the keys of a gate's tries; a pair of runs has one comparison."""
        if self.changes is None:
            return None
        return {"count": 1, "alpha": self.alpha, "kept": True, "sentence": self.sentence()}

    def sentence(self) -> str:
        if self.changes is None or not self.changes.questions:
            if self.unchanged:
                return "No question was compared: no weights changed."
            return ""
        return (
            f"Without a true increase the gate closes with probability at most {self.alpha:g} for this pair of runs "
            f"({plural(self.changes.questions, 'question')} together)."
        )

    def evidence(self) -> dict[str, Json] | None:
        if self.changes is None:
            return None
        return {
            "alpha": self.alpha,
            "questions": self.changes.questions,
            "log_goal": self.changes.log_goal,
            "log_e_worse": finite(self.changes.log_e_worse),
            "log_e_better": finite(self.changes.log_e_better),
            "unchanged": list(self.unchanged),
        }


def finite(log_e: float | None) -> float | None:
    """ln of an e-value for JSON, which has no infinity: certain ends refute beyond any number."""
    if log_e is None or math.isfinite(log_e):
        return log_e
    return math.copysign(LARGEST, log_e)
