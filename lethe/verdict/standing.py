"""The two words on a model, on forgetting and on utility, as the findings of the stage `compare` have them.

`lethe.verdict.deciding` makes them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from lethe.io.files import Json, restored
from lethe.statistics.bound import Interval
from lethe.verdict.finding import FORGETTING, UTILITY, Finding, Findings
from lethe.verdict.sentence import worst_ends
from lethe.verdict.verdict import DESTROYED, INTACT, UtilityWord, Verdict

REFERENCE = "reference"
Tone = Literal["bad", "good", "open", "reference"]
TONE: dict[str, Tone] = {
    "leaks": "bad",
    "forgot": "good",
    "intact": "good",
    "damaged": "bad",
    "destroyed": "bad",
    "open": "open",
    "none": "open",
    "reference": "reference",
}
MEANING = {
    "leaks": "some question is proved to leak more often, by more than the tolerance, than in the model of this run that "
    "never saw the forget set (or than never, where there is none). Another such model may leak more.",
    "forgot": "no question leaks more often, by more than the tolerance, than in the model of this run that never saw the "
    "forget set. Other questions, or an attack on the weights, may still bring out what the model knows.",
    "intact": f"the model keeps at least {100 * INTACT:g}% of its score on questions that it should still answer.",
    "damaged": f"the model’s score on those questions fell, and is not shown to stay at {100 * INTACT:g}%.",
    "destroyed": f"the model keeps less than {100 * DESTROYED:g}% of that score. Such a model says little about anything, "
    "and its silence on the forget set is no success of unlearning.",
    "open": "neither a leak nor its absence is proved; the sentence beside the word says what would decide it.",
}


@dataclass(frozen=True)
class Aspect:
    """The word on utility; ``quantity`` says what was measured, and ``shown`` words the model's interval.

    Both intervals are of the mean score, in [0, 1]: that of the model, and that of Base, which it is compared with.
    """

    word: UtilityWord | Literal["reference"]
    quantity: str | None = None
    interval: Interval | None = None
    reference: Interval | None = None
    shown: str = ""

    @property
    def tone(self) -> Tone:
        return TONE[self.word]

    def described(self, is_staged: bool, is_refused: bool = False) -> str:
        """The word as a sentence has it: an open one with what is missing, if that is why.

        ``is_staged``: in a pipeline, where no option gives it; ``is_refused``: nothing is claimed of the model's answers, so
        that its utility is not measured whatever was given.
        """
        if self.interval is None:
            if is_staged or is_refused:
                return "not measured"
            return "not measured (give --retain and --base)"
        if self.word == "open" and self.reference is None:
            return "open (no earlier model to compare with)" if is_staged else "open (give --base)"
        return self.word

    def as_dict(self) -> dict[str, object]:
        """Word and intervals for JSON; each end is a bound with its guarantee."""
        return {
            "word": self.word,
            "quantity": self.quantity,
            "interval": _ends_as_dicts(self.interval),
            "reference": _ends_as_dicts(self.reference),
        }


def _ends_as_dicts(interval: Interval | None) -> list[dict[str, object]] | None:
    if interval is None:
        return None
    return [end.as_dict() for end in interval.bounds()]


@dataclass(frozen=True)
class Standing:
    """One model: the word on forgetting, the word on utility, and the one sentence of both.

    ``measured`` is the verdict, or for a reference what a verdict would say of its worst question; None without results.
    ``attention``: a reader must see the sentence, because there is no decision or it says more than the decision. ``ends``
    are those of the worst question in words. ``title`` has both words, or the role of a reference, in the words of the run.
    """

    model: str
    word: str
    utility: Aspect
    sentence: str
    measured: Verdict | None = None
    attention: bool = False
    title: str = ""

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on a model under test; None for a reference."""
        if self.word == REFERENCE:
            return None
        return self.measured

    @property
    def tone(self) -> Tone:
        """The tone of the word on forgetting; the silence of a destroyed model is no success."""
        is_silent = self.utility.word == "destroyed" and self.word == "forgot"
        if is_silent:
            return "open"
        return TONE[self.word]

    @property
    def words(self) -> str:
        """Both words, the same word once."""
        if self.word == self.utility.word:
            return self.word
        return f"{self.word}, {self.utility.word}"

    @property
    def ends(self) -> str:
        """Both ends of the worst question in words; empty without a question."""
        if self.measured is None:
            return ""
        return worst_ends(self.measured)

    def findings(self) -> list[Finding]:
        """The findings of both words."""
        return [self._on_forgetting(), self._on_utility()]

    def _on_forgetting(self) -> Finding:
        verdict: Json = None
        level = None
        if self.measured is not None:
            verdict = asdict(self.measured)
            level = self.measured.level
        return Finding(
            self.model,
            FORGETTING,
            self.word,
            self.sentence,
            alpha=level,
            details={"verdict": verdict, "attention": self.attention, "title": self.title},
        )

    def _on_utility(self) -> Finding:
        aspect = self.utility
        alpha = None
        if aspect.interval is not None:
            alpha = aspect.interval.alpha
        return Finding(
            self.model,
            UTILITY,
            aspect.word,
            aspect.shown,
            alpha=alpha,
            interval=aspect.interval,
            reference=aspect.reference,
            details={"quantity": aspect.quantity},
        )

    @classmethod
    def of(cls, findings: Findings, model: str) -> Standing:
        """The words on a model as they were found; "none" and "open" where nothing was."""
        forgetting = findings.about(model, FORGETTING)
        utility = findings.about(model, UTILITY)
        if forgetting is None or utility is None:
            said = f"No verdict: the findings on {model} are missing."
            return cls(model, "none", Aspect("open"), said, attention=True)
        record = forgetting.details["verdict"]
        verdict = None
        if record is not None:
            verdict = restored(Verdict, record)
        aspect = Aspect(
            word=restored(Aspect, {"word": utility.outcome}).word,
            quantity=utility.details["quantity"],
            interval=utility.interval,
            reference=utility.reference,
            shown=utility.sentence,
        )
        return cls(
            model=model,
            word=forgetting.outcome,
            utility=aspect,
            sentence=forgetting.sentence,
            measured=verdict,
            attention=forgetting.details["attention"],
            title=forgetting.details["title"],
        )
