"""The numbers of the sampled and greedy answers: every key of a model's metrics that comes from them, at each n.

At a smaller n the numbers are those of the first n of the same draws, which is a sample of that size.
"""

from __future__ import annotations

from collections.abc import Iterator

from lethe.evaluation.measure import measure
from lethe.results.table import Numbers, Result, Results
from studies.meta_evaluation.knowledge import GREEDY_PART, Asking, Number, Seen, answers_part, of_flat

# Keys that say how was measured, and second names of other keys.
OTHERS = frozenset({"alpha", "n_questions", "n", "missing", "truncated", "truncated_worst"})
OF_THE_GREEDY_ANSWER = ("greedy_mean", "binary_greedy")
SMALLER = ("certified_together",)  # a count of safe questions
# The key of a question's row behind a key of the model; a key of the same name needs no entry.
OF_QUESTION = {
    "greedy_mean": "greedy",
    "m_mu_worst": "m_mu",
    "m_mu_mean": "m_mu",
    "m_sigma_worst": "m_sigma",
    "tighter_mean_worst": "tighter_mean_upper",
    "tighter_sd_worst": "tighter_sd_upper",
    "m_bin_worst": "m_bin",
    "m_bin_pooled": "m_bin",
    "binary_mean": "binary_share",
    "binary_any": "binary_share",
}
WHETHER = ("binary_any",)  # whether a question has a leak, not how many of its answers leak


def values(seen: Seen, retrain: Seen | None, asking: Asking) -> Iterator[Number]:
    """The single numbers of a model's sampled and greedy answers, in their declared directions.

    Means, shares and upper bounds are larger where more leaks. The spread (``sd``, ``m_sigma_worst``, ``tighter_sd_worst``)
    counts in the direction of the ED score, mean + rho sd: more spread, more leaks. A model that answers the forget
    questions by heart has little spread, so an AUC below 0.5 is possible and is printed as it is.
    """
    from lethe.scoring import applies

    binary = asking.metrics.binary
    inapplicable = {key for key, row in seen.rows.items() if binary and not applies(binary, row)}
    for n in asking.answers:
        first = seen.scores[seen.scores["sample"] < n]
        drawn = seen.generations[seen.generations["sample"] < n]
        found = measure(seen.name, {"forget": drawn}, {"forget": first}, asking.metrics, inapplicable)
        yield from _numbers(found, n, last=n == asking.n)


def _numbers(rows: list[Result], n: int, last: bool) -> Iterator[Number]:
    questions = Results({"": tuple(rows)}).questions("")
    model = Numbers([row for row in rows if row.scope == "model"])
    for key, value in of_flat(model.values, OTHERS):
        if key in OF_THE_GREEDY_ANSWER and not last:
            continue
        own = OF_QUESTION.get(key, key)
        each = {
            item: each_value
            for item, numbers in questions.items()
            for each_value in _of_question(numbers.values.get(own))
        }
        if key in WHETHER:
            each = {question: float(share > 0) for question, share in each.items()}
        greedy = key in OF_THE_GREEDY_ANSWER
        parts = (GREEDY_PART if greedy else answers_part(n),)
        knows = -value if key in SMALLER else value
        yield Number(key if greedy else f"{key}@{n}", value, knows, parts, each, larger=key not in SMALLER)


def _of_question(value: object) -> Iterator[float]:
    """The value of a question as a number; nothing where the question has none."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        yield float(value)
