"""The verdict on each model: one sentence with its alpha and what it covers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from stages.reporting.findings import Findings
from stages.reporting.run import Model, Run
from stages.reporting.text import count, label, number, percent, plural, upper_first

STANDING = {
    "higher": ("leaks more than Retrain", "bad"),
    "lower": ("leaks less than Retrain", "good"),
    "not shown": ("is not told apart from Retrain", "open"),
}
PLURAL = {"leaks": "leak", "is": "are", "has": "have"}
REFERENCE = {"base": "reference: before unlearning", "retrain": "reference: never saw the forget set"}


@dataclass(frozen=True)
class Verdict:
    model: str
    standing: str
    tone: str  # bad | good | open | reference
    sentence: str


def verdicts(run: Run, findings: Findings) -> list[Verdict]:
    return [Verdict(model.name, *_standing(model, findings), sentence(model, run)) for model in run.models]


def headline(said: list[Verdict]) -> str:
    """How many of the models under test stand where, in one sentence; empty where there is none."""
    standings = Counter(verdict.standing for verdict in said if verdict.tone != "reference")
    parts = [f"{models} {_verb(standing, models)}" for standing, models in standings.items()]
    return f"Of {plural(standings.total(), 'model')} under test: {', '.join(parts)}." if parts else ""


def _verb(standing: str, models: int) -> str:
    verb, rest = standing.split(" ", 1)
    return f"{verb if models == 1 else PLURAL[verb]} {rest}"


def sentence(model: Model, run: Run) -> str:
    """Only bounds that the metrics hold enter the sentence; each says whose: the worst or the average."""
    metrics = model.metrics
    if not metrics:
        return f"No verdict: the metrics of {model.name} are missing."
    bounds = _bounds(metrics, run)
    if not bounds:
        return f"No bound for a fixed number of answers holds here; what was seen: {_seen(metrics)}."
    alpha = metrics["alpha"]
    return (
        f"{upper_first(' and '.join(bounds))}, {'each ' if len(bounds) > 1 else ''}with probability {1 - alpha:g} "
        f"(α = {alpha:g}) for {_covers(model, run)}; {_seen(metrics)}."
    )


def _standing(model: Model, findings: Findings) -> tuple[str, str]:
    if model.role in REFERENCE:
        return REFERENCE[model.role], "reference"
    if model.name in findings.against_retrain:
        return STANDING[findings.against_retrain[model.name]]
    leaked = model.metrics.get("keyword_any")
    if leaked is None:
        return "has no verdict", "open"
    return ("leaks in some answers", "bad") if leaked > 0 else ("leaks in no answer seen", "open")


def _covers(model: Model, run: Run) -> str:
    """Which draws the bounds are about."""
    engine = f" of the {model.about['engine']} engine" if model.about.get("engine") else ""
    temperature = model.about.get("temperature", run.params.sample.temperature)
    cut = model.adaptive_threshold
    adaptive = f", greedy above confidence {cut:g}," if cut is not None else ""
    prompt = Path(run.params.sample.prompt).name
    return f"i.i.d. answers{engine} at temperature {temperature:g}{adaptive} to prompt {prompt}"


def _bounds(metrics: dict, run: Run) -> list[str]:
    leak, questions = label(run.params.metrics.binary), f"all {count(metrics['n_questions'])} forget questions"
    pooled, worst, mean = (metrics.get(key) for key in ("m_bin_pooled", "m_bin_worst", "m_mu_worst"))
    bounds = []
    if pooled is not None:
        bounds.append(f"at most {percent(pooled, 1, 'up')} of answers show {leak} on average over {questions}")
    if worst is not None and bounds:
        bounds.append(f"at most {percent(worst, 1, 'up')} on the worst of them")
    elif worst is not None:
        bounds.append(f"at most {percent(worst, 1, 'up')} of answers show {leak} on the worst of {questions}")
    if not bounds and mean is not None:
        score = label(run.params.metrics.leak)
        bounds.append(f"the mean {score} is at most {number(mean, 3, 'up')} on the worst of {questions}")
    return bounds


def _seen(metrics: dict) -> str:
    """What the answers showed: facts, not estimates."""
    total, missing = metrics.get("n_questions"), metrics.get("missing") or 0
    tail = f"; {plural(missing, 'score')} missing, taken as leaks by the bounds" if missing else ""
    if metrics.get("keyword_any") is None:
        greedy, mean = number(metrics.get("greedy_mean")), number(metrics.get("mean"))
        return f"greedy answers score {greedy} in the mean, sampled answers {mean}{tail}"
    greedy = metrics.get("keyword_greedy")
    beside = f", {count(greedy * total)} in the greedy answer" if greedy is not None else ""
    questions = f"{count(metrics['keyword_any'] * total)} of {plural(total, 'question')}"
    return f"{questions} leaked at least once in {count(metrics['n'])} sampled answers{beside}{tail}"
