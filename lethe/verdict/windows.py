"""The verdict on a text under a model, with its windows as questions."""

from collections.abc import Sequence

from lethe.results.ends import Ends
from lethe.verdict.rules import decide
from lethe.verdict.verdict import Verdict

# Words of `lethe.verdict.rules.sentence` for windows.
WORDS = {
    "does": "comes out in",
    "do": "come out in",
    "may": "may come out in",
    "some": "above 0",
    "question": "window",
    "questions": "windows",
    "leaks": "extractable",
    "forgot": "not extractable",
}


def verdict_of(
    subject: Ends,
    references: Sequence[Ends],
    alpha: float,
    tau: float,
    models: int = 1,
) -> Verdict:
    """The word on a text: whether some window comes out more often than tau beyond the reference models."""
    return decide(subject, references, alpha=alpha, tau=tau, models=models, planned=False)
