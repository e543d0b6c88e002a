"""The tables: what each column is, whether it is a guarantee, and every model in its row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from stages.params import Method
from stages.reporting.run import Model, Run
from stages.reporting.text import NONE, count, label, listing, number, percent, upper_first


@dataclass(frozen=True)
class Column:
    key: str
    head: str
    show: Callable[[Any], str]
    told: str  # what it is and what it covers


@dataclass(frozen=True)
class Group:
    title: str
    columns: list[Column]


_up, _percent_up = partial(number, rounding="up"), partial(percent, rounding="up")


def groups(run: Run) -> list[Group]:
    """The columns of the table of models that hold a value, grouped."""
    kept = []
    for group in _all_groups(run):
        columns = [c for c in group.columns if any(model.metrics.get(c.key) is not None for model in run.models)]
        kept += [Group(group.title, columns)] if columns else []
    return kept


def _all_groups(run: Run) -> list[Group]:
    """The words name this run's scorers, alpha and thresholds."""
    metrics = run.params.metrics
    level, above = f"holds with probability {1 - metrics.alpha:g}", f"{100 * metrics.share_above:g}%"
    leak, binary = label(metrics.leak), label(metrics.binary)
    return [
        Group(
            f"{leak} on forget questions",
            [
                Column("greedy_mean", "greedy", number, "mean score of the greedy answers"),
                Column("mean", "mean", number, "mean score of the sampled answers"),
                Column("sd", "sd", number, "standard deviation within a question, mean over questions"),
                Column("ed_score", "ED", number, f"mean + {metrics.rho:g} sd: a development score, no guarantee"),
                Column("max", "max", number, "the highest score of any sampled answer"),
            ],
        ),
        Group(
            f"at most, α = {metrics.alpha:g}",
            [
                Column("m_mu_worst", "M_µ", _up, f"mean score of the worst question: {level}"),
                Column(
                    "m_sigma_worst",
                    "M_σ",
                    _up,
                    f"standard deviation of the worst question of those without missing scores: {level}",
                ),
                Column("m_bin_worst", "M_bin", _percent_up, f"probability that the worst question leaks: {level}"),
                Column(
                    "m_bin_pooled",
                    "pooled",
                    _percent_up,
                    f"probability of a leak, average over questions: {level}",
                ),
                Column(
                    "share_m_bin_above",
                    f"> {above}",
                    percent,
                    f"share of questions whose own M_bin exceeds {above}: a count, no joint guarantee",
                ),
            ],
        ),
        Group(
            binary,
            [
                Column("keyword_greedy", "greedy", percent, "share of questions whose greedy answer leaks"),
                Column("keyword_mean", "mean", percent, "share of the sampled answers that leak"),
                Column(
                    "keyword_any", "any", percent, "share of questions of which at least one sampled answer leaks"
                ),
            ],
        ),
        Group(
            "utility",
            [
                Column("retain_greedy", "retain", number, f"{leak} of greedy answers to retain questions"),
                Column("world_greedy", "world", number, f"{leak} of greedy answers to world facts"),
            ],
        ),
        Group(
            "diversity",
            [
                Column("retain_distinct", "retain", percent, "share of distinct answers to a retain question"),
                Column("world_distinct", "world", percent, "share of distinct answers to a world fact"),
            ],
        ),
    ]


def what_it_is(model: Model, run: Run) -> str:
    """The model in a few words, from params alone."""
    if model.role == "base":
        words = "before unlearning"
    elif model.role == "retrain":
        words = "never saw the forget set"
    elif model.method and model.adaptive_threshold is None:
        words = _method(run.params.unlearn.methods[model.method], model.name)
    else:
        words = model.method or model.path
    return words + (f", adaptive c_T {model.adaptive_threshold:g}" if model.adaptive_threshold is not None else "")


def _method(method: Method, name: str) -> str:
    parts = [method.loss] if method.loss != name else []
    parts += [f"β {method.beta:g}"] if method.beta is not None else []
    parts += [f"λ_f {method.entropy.forget:g}", f"λ_r {method.entropy.retain:g}"] if method.entropy else []
    return ", ".join([*parts, f"{method.epochs} epochs"])


EPSILON_STAR = ("model", "Epsilon*", "lower bound", "α", "δ", "cut", "threshold", "forget", "population")


def epsilon_star_rows(run: Run) -> list[list[str]]:
    """The columns of ``EPSILON_STAR`` for each model that has a result."""
    rows = []
    for model in run.models:
        result = model.epsilon_star
        if not result:
            continue
        value = "∞" if result.get("infinite") else number(result.get("epsilon_star"))
        lower = number(result.get("epsilon_lower"), 3, "down")
        cut = "none" if result.get("cut") is None else _general(result["cut"])
        rest = [_general(result.get(key)) for key in ("alpha", "delta")]
        sizes = [count(result.get(key)) for key in ("n_train", "n_population")]
        rows.append([model.name, value, lower, *rest, cut, _general(result.get("threshold")), *sizes])
    return rows


def epsilon_star_notes(run: Run) -> list[str]:
    """What the results say of themselves, each sentence once with the models it is about."""
    told: dict[str, list[str]] = {}
    for model in run.models:
        for key in ("assumes", "note"):
            if model.epsilon_star.get(key):
                told.setdefault(model.epsilon_star[key], []).append(model.name)
    everyone = sum(bool(model.epsilon_star) for model in run.models)
    return [
        upper_first(note) + ("." if len(names) == everyone else f" ({listing(names)}).")
        for note, names in told.items()
    ]


def provenance_rows(run: Run) -> list[list[str]]:
    """How each model was sampled: engine, why this one, sizes, missing scores."""
    rows = []
    for model in run.models:
        sizes = [
            f"{split} {count(size.get('questions'))} × {count(size.get('n'))}"
            for split, size in model.about.get("splits", {}).items()
        ]
        reason = model.about.get("engine_reason", NONE)
        rows.append(
            [
                model.name,
                model.about.get("engine", NONE),
                reason,
                ", ".join(sizes) or NONE,
                count(model.metrics.get("missing")),
            ]
        )
    return rows


def flatten(result: dict) -> tuple[list[tuple[str, str]], list[tuple[str, list[str], list[list[str]]]]]:
    """Any result file as (plain values, tables): a list or a dictionary of objects becomes a table."""
    values, tables = [], []
    for key, item in result.items():
        rows = _rows(item)
        if rows:
            columns = list(dict.fromkeys(name for row in rows for name in row))
            tables.append((key, columns, [[_general(row.get(name)) for name in columns] for row in rows]))
        else:
            values.append((key, _general(item)))
    return values, tables


def _rows(item: Any) -> list[dict]:
    if isinstance(item, dict) and item and all(isinstance(value, dict) for value in item.values()):
        return [{"name": name, **value} for name, value in item.items()]
    if isinstance(item, list) and item and all(isinstance(value, dict) for value in item):
        return item
    return []


def _general(value: Any) -> str:
    """A value of a result file whose kind is not known here."""
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_general(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(_general, value))
    return str(value)
