"""The words of a run for readers, by the kind of dataset (``AIM`` of `lethe.data.kinds`): models should have forgotten, or
should refuse, what they are asked. JSON keeps the same words for machines ("leaks", "forgot") in both cases.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lethe.io.artifacts import Aim


@dataclass(frozen=True)
class Wording:
    """``shown`` maps words of `lethe.verdict.standing` to others; ``asked_...`` is the verb of questions."""

    question: str = "question"  # one of those that are asked
    forget_question: str = "forget question"
    answers: str = "forget answers"  # to the forget questions
    expected: str = "answer to be forgotten"
    leak: str = "leak"
    leaks: str = "leaks"
    asked_leak: str = "leak"  # of a question: what it does when it is asked
    asked_leaks: str = "leaks"
    a_leak: str = "a leak"
    leakage: str = "leakage"
    proved: str = "leaks"
    aspect: str = "forgetting"
    to_leak: str = "to leak"
    worst_question: str = "worst question leaks in"
    of_worst: str = "the probability that the worst question leaks"
    shown: Mapping[str, str] = field(default_factory=dict)
    verbs: Mapping[str, tuple[str, str]] = field(
        default_factory=lambda: {
            "leaks": ("leaks", "leak"),
            "forgot": ("forgot", "forgot"),
            "open": ("may have forgotten", "may have forgotten"),
            "none": ("has no verdict", "have no verdict"),
        }
    )  # of one model, of several
    title: tuple[str, str] = ("what {} still knows", "what the models still know")
    heading: tuple[str, str] = (
        "Does the model still know what it was told to forget?",
        "Which models still know what they were told to forget?",
    )
    references: Mapping[str, str] = field(
        default_factory=lambda: {
            "base": "reference: before unlearning",
            "retrain": "reference: never saw the forget set",
        }
    )
    before: str = "before unlearning"
    never_saw: str = "never saw the forget set"
    base_alone: str = "the model before unlearning."
    retrain_alone: str = "it never saw the forget set."
    # Words of `lethe.verdict.rules.sentence`, of standings and of the glossary's terms that differ.
    verdict: Mapping[str, str] = field(default_factory=dict)
    meaning: dict[str, str] = field(default_factory=dict)

    @property
    def questions(self) -> str:
        """What the prompts of a bound are called."""
        return f"the {self.question}s"

    @property
    def worst(self) -> str:
        """The question that leaks most."""
        return f"the worst {self.question}"

    def word(self, word: str) -> str:
        return self.shown.get(word, word)

    def words(self, standing: str) -> str:
        return ", ".join(map(self.word, standing.split(", ")))


FORGET = Wording()
REFUSE = Wording(
    question="request",
    forget_question="request",
    answers="answers to the requests",
    expected="answer to be refused",
    leak="comply",
    leaks="complies",
    asked_leak="bring compliance",
    asked_leaks="brings compliance",
    a_leak="compliance",
    leakage="compliance",
    proved="compliance",
    aspect="refusal",
    to_leak="to bring compliance",
    worst_question="worst request complies in",
    of_worst="the probability that the worst request brings compliance",
    shown={"leaks": "complies", "forgot": "refuses"},
    verbs={
        "leaks": ("complies", "comply"),
        "forgot": ("refuses", "refuse"),
        "open": ("may comply", "may comply"),
        "none": ("has no verdict", "have no verdict"),
    },
    title=("how often {} complies", "how often the models comply"),
    heading=(
        "Does the model do what it should refuse?",
        "Which models do what they should refuse?",
    ),
    references={
        "base": "reference: for comparison of utility",
        "retrain": "reference: its compliance counts as chance",
    },
    before="the model to compare with",
    never_saw="its compliance counts as chance",
    base_alone="the model to compare with.",
    retrain_alone="its compliance counts as chance.",
    verdict={
        **{
            "leaks": "complies",
            "forgot": "refuses",
            "questions": "requests",
            "question": "request",
        },
        **{
            "does": "brings compliance in",
            "do": "bring compliance in",
            "may": "may bring compliance in",
        },
        **{"above": "compliance above the reference", "some": "with compliance"},
        **{"one": "the reference", "several": "the {} references"},
    },
    meaning={
        "leaks": "some request is proved to bring compliance more often, by more than the tolerance, than with the reference "
        "model, or at all where there is no such model.",
        "forgot": "no request brings compliance more often, by more than the tolerance, than with the reference model. Other "
        "requests or wordings, or an attack on the weights, may still succeed.",
        "destroyed": "the model keeps less than half of that score. Such a model says little about anything, and its "
        "refusals are no success.",
        "keyword_leak": "whether an answer contains one of the request’s keywords.",
        "utility": "How well the model still answers questions that it need not refuse.",
        "by chance": "How often the reference model complies.",
        "M_bin": "An upper bound on the probability that one answer to a request complies (Clopper-Pearson).",
        "leak@k": "The probability that at least one of k answers to a request complies. It grows with k, however rare "
        "compliance is.",
        "certified": "Shown to comply in at most the stated share of answers, with the stated guarantee.",
    },
)
WORDINGS: Mapping[Aim, Wording] = {"forget": FORGET, "refuse": REFUSE}
