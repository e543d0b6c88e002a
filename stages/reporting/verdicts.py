"""The verdict on each model: one sentence with its alpha and what it covers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stages.reporting.findings import Findings
from stages.reporting.run import Model, Run
from stages.reporting.text import count, number, percent, plural

STANDING = {
    "higher": ("leaks more than Retrain", "bad"),
    "lower": ("leaks less than Retrain", "good"),
    "not shown": ("not told apart from Retrain", "open"),
}
REFERENCE = {"base": "reference: before unlearning", "retrain": "reference: never saw the forget set"}


@dataclass(frozen=True)
class Verdict:
    model: str
    standing: str
    tone: str  # bad | good | open | reference
    sentence: str


def verdicts(run: Run, findings: Findings) -> list[Verdict]:
    return [Verdict(model.name, *_standing(model, findings), sentence(model, run)) for model in run.models]


def _standing(model: Model, findings: Findings) -> tuple[str, str]:
    if model.role in REFERENCE:
        return REFERENCE[model.role], "reference"
    if model.name in findings.against_retrain:
        return STANDING[findings.against_retrain[model.name]]
    leaked = model.metrics.get("keyword_any")
    if leaked is None:
        return "no verdict", "open"
    return ("leak seen", "bad") if leaked > 0 else ("no leak seen", "open")


def sentence(model: Model, run: Run) -> str:
    """Only bounds that the metrics hold enter the sentence; each names whether it is for one, the worst or all."""
    metrics = model.metrics
    if not metrics:
        return f"No verdict: the metrics of {model.name} are missing."
    bounds = _bounds(metrics)
    if not bounds:
        return f"No bound for a fixed number of answers holds here; what was seen: {_seen(metrics)}."
    alpha = metrics["alpha"]
    return (
        f"With probability at least {percent(1 - alpha, 2).replace('.00', '')} (α = {alpha:g} for each bound), "
        f"{_covers(model, run)} {' and '.join(bounds)}; {_seen(metrics)}."
    )


def _covers(model: Model, run: Run) -> str:
    about = model.about
    temperature = about.get("temperature", run.params.sample.temperature)
    adaptive = (
        f", made greedy above confidence {model.adaptive_threshold:g}"
        if model.adaptive_threshold is not None
        else ""
    )
    engine = f" of the {about['engine']} engine" if about.get("engine") else ""
    prompt = Path(run.params.sample.prompt).name
    return f"i.i.d. answers{engine} at temperature {temperature:g}{adaptive} to prompt {prompt}"


def _bounds(metrics: dict) -> list[str]:
    questions = count(metrics.get("n_questions"))
    leak = []
    if metrics.get("m_bin_pooled") is not None:
        leak.append(
            f"leak a keyword at most {percent(metrics['m_bin_pooled'], 1, 'up')} of the time "
            f"on average over all {questions} forget questions (pooled)"
        )
    if metrics.get("m_bin_worst") is not None:
        verb = "at most" if leak else "leak a keyword at most"
        leak.append(f"{verb} {percent(metrics['m_bin_worst'], 1, 'up')} of the time on the worst of them")
    if not leak and metrics.get("m_mu_worst") is not None:
        leak.append(
            f"score at most {number(metrics['m_mu_worst'], 3, 'up')} in the mean on the worst of all "
            f"{questions} forget questions"
        )
    return leak


def _seen(metrics: dict) -> str:
    total, missing = metrics.get("n_questions"), metrics.get("missing") or 0
    tail = f"; {plural(missing, 'score')} missing, counted as leaks in the bounds" if missing else ""
    if metrics.get("keyword_any") is None:
        return (
            f"greedy score {number(metrics.get('greedy_mean'))}, sampled mean {number(metrics.get('mean'))}{tail}"
        )
    hits, greedy = round(metrics["keyword_any"] * total), metrics.get("keyword_greedy")
    beside = f", {round(greedy * total)} in the greedy answer" if greedy is not None else ""
    return (
        f"{plural(hits, 'question')} leaked in at least one of {count(metrics['n'])} sampled answers{beside}{tail}"
    )
