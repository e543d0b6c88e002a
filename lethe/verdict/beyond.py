"""The rows of what each question leaks beyond Retrain, with ends that hold at any time and the evidence of the word."""

from collections.abc import Mapping

from lethe.io.files import Json
from lethe.measure.run import Run, RunModel
from lethe.results.table import Result, Rows
from lethe.statistics.anytime import Counts
from lethe.statistics.bound import Assumes, Covers, both_ends
from lethe.verdict.compared import Compared, finite
from lethe.verdict.deciding import compared

METHOD = "product of two beta-binomial mixtures over the largest likelihood, at every n at once"
ASSUMES = f"{Assumes.DRAWS}; model and Retrain drawn from independent random numbers"


def beyond_chance(run: Run) -> list[Result]:
    """A row for each question of each model under test that was compared with a Retrain, in the order of the run.

    Each end holds at the level of the word. A question passes for *forgot* if and only if its upper end is at most tau.
    """
    rows: list[Result] = []
    for model, sides in compared(run):
        if sides.retrains and sides.has_draws.any() and sides.scores is None:
            names = [retrain.name for retrain in run.retrains]
            rows += _rows(model.name, sides, names, _answers_when_named(model))
    return rows


def _answers_when_named(model: RunModel) -> dict[str, int]:
    """The answers to each question that the rule of draws named, when it did."""
    answers = {}
    for question in model.questions:
        row = question.numbers.row("leak", "anytime")
        if row is not None and row.facts.get("reached", {}).get("named_at") is not None:
            answers[question.prompt_id] = row.facts["reached"]["named_at"]
    return answers


def _rows(
    name: str, sides: Compared, retrains: list[str], named_at: Mapping[str, int]
) -> list[Result]:
    """The rows of one model.

    Parameters
    ----------
    name
        The name of the model.
    sides
        The counts and e-values of the model beside the Retrains.
    retrains
        The names of the Retrains, in the order of ``sides``.
    named_at
        The answers to each question when the rule of draws named it.
    """
    rows = Rows(name)
    leaking = sides.leaking(sides.tau)
    is_named = sides.listed(sides.tau).names
    for place, item in enumerate(sides.subject.items):
        counts = sides.counts[place]
        beside: list[Json] = []
        for retrain, chance in zip(retrains, sides.chances[place], strict=True):
            beside.append({"name": retrain, **_facts(chance)})

        evidence: dict[str, Json] = {**_facts(counts), "retrains": beside}
        evidence["log_e_forgot"] = finite(float(sides.forgotten[place]))
        evidence["log_e_leaks"] = finite(float(leaking[place]))
        evidence["named"] = bool(is_named[place])
        if sides.kept is not None:
            evidence["log_e_forgot_max"] = finite(float(sides.kept.forgot[place]))
            evidence["named_at"] = named_at.get(item)

        guarantee = (sides.level, Covers.ONE_PROMPT, ASSUMES, METHOD, counts.n)
        lower = min(sides.at_least(place), sides.excess(place))
        ends = both_ends(lower, sides.excess(place), *guarantee)
        rows.add(
            "question",
            "beyond_chance",
            "anytime",
            None,
            *ends,
            item=item,
            split="forget",
            missing=counts.missing,
            evidence=evidence,
        )
    return rows.rows


def _facts(counts: Counts) -> dict[str, Json]:
    """Counts as evidence."""
    return {"leaks": counts.leaks, "n": counts.n, "missing": counts.missing}
