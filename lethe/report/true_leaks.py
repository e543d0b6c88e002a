"""What is said of true leaks: by a judge's verdicts with the judge's measured error, and by a person's labels."""

from __future__ import annotations

from lethe.evaluation import labelled
from lethe.evaluation.judged import POOLED, WORST
from lethe.evaluation.run import Model, Run
from lethe.text import count, label, percent, upper_first

QUESTIONS = "the questions"


def by_verdicts(model: Model, run: Run) -> str:
    """What the judge's measured error makes of its verdicts, where the error was measured; begins with a space."""
    worst, pooled, metrics = model.bounds.get(WORST), model.bounds.get(POOLED), model.metrics
    if worst is None:
        return ""
    name = label(run.params.metrics.binary)
    mean = f"{pooled.relation} {pooled.percent()} {pooled.on(QUESTIONS)} and " if pooled else ""
    misfit = (
        ""
        if metrics["judge_fits"]
        else " The verdicts do not fit the labelled answers, so this bound means nothing."
    )
    return (
        f" These are verdicts of {name}, which called {percent(metrics['judge_sensitivity'])} of the leaks and "
        f"{percent(metrics['judge_false_positive'])} of the clean ones among {count(metrics['judge_labelled'])} labelled "
        f"answers a leak. With this error included, the true probability of a leak is {mean}{worst.relation} "
        f"{worst.percent()} {worst.on(QUESTIONS)}, each {worst.level()}, assuming {worst.assumes} ({worst.method}).{misfit}"
    )


def by_labels(model: Model, full: bool = False) -> str:
    """What a person's labels of the model's own answers say, where there are some.

    In full with the guarantee, after a space.
    """
    worst, pooled = model.bounds.get(labelled.WORST), model.bounds.get(labelled.POOLED)
    mass = model.value(labelled.MASS)
    if worst is None or mass is None:
        return ""
    mean = f"{pooled.relation} {pooled.percent()} {pooled.on(QUESTIONS)} and " if pooled else ""
    read = labelled.source(mass, bool(model.metrics.get(labelled.JUDGE)))
    claim = f"the true probability of a leak is {mean}{worst.relation} {worst.percent()} {worst.on(QUESTIONS)}"
    said = f"{upper_first(read)}, {claim}"
    return f" {said}, each {worst.level()}, assuming {worst.assumes} ({worst.method})." if full else f"{said}."
