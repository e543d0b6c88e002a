"""The tables other than those of models: Epsilon*, provenance, and any result file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lethe.config.schema import MethodParams
from lethe.evaluation.run import Model, Run
from lethe.statistics.epsilon_star.parametric import rejected_fit
from lethe.text import NONE, count, listing, number, upper_first


def what_it_is(model: Model, run: Run) -> str:
    """The model in a few words, from params alone."""
    if model.role == "base":
        words = "before unlearning"
    elif model.role == "retrain":
        words = "never saw the forget set"
    elif model.method and model.adaptive_threshold is None:
        words = _method(run.methods[model.method], model.name)
    else:
        words = model.method or model.path
    return words + (f", adaptive c_T {model.adaptive_threshold:g}" if model.adaptive_threshold is not None else "")


def _method(method: MethodParams, name: str) -> str:
    parts = [method.loss] if method.loss != name else []
    own = [key for key in type(method).model_fields if key not in MethodParams.model_fields]
    parts += [f"{'β' if key == 'beta' else key} {_general(getattr(method, key))}" for key in own]
    parts += [f"λ_f {method.entropy.forget:g}", f"λ_r {method.entropy.retain:g}"] if method.entropy else []
    parts += (
        [f"own {method.entropy.prefix} prefixes"] if method.entropy and method.entropy.prefix != "true" else []
    )
    return ", ".join([*parts, f"{method.epochs} epochs"])


EPSILON_STAR = ("model", "Epsilon* at least", "estimate", "α", "δ", "cut", "threshold", "forget", "population")


def epsilon_star_rows(run: Run) -> list[list[str]]:
    """The columns of ``EPSILON_STAR`` for each model that has a result."""
    rows = []
    for model in run.models:
        result = model.epsilon_star
        if not result:
            continue
        value = rejected(result) or ("∞" if result.get("infinite") else number(result.get("epsilon_star")))
        lower = number(result.get("epsilon_lower"), 3, "down")
        cut = "none" if result.get("cut") is None else _general(result["cut"])
        rest = [_general(result.get(key)) for key in ("alpha", "delta")]
        sizes = [count(result.get(key)) for key in ("n_train", "n_population")]
        rows.append([model.name, lower, value, *rest, cut, _general(result.get("threshold")), *sizes])
    return rows


def rejected(result: Mapping[str, object]) -> str | None:
    """The words instead of an estimate that means nothing."""
    known: dict[str, Any] = dict(result)
    return rejected_fit(known.get("epsilon_star"), (known.get("fit") or {}).get("ks_p_values"))


def epsilon_star_notes(run: Run) -> list[str]:
    """The notes of the results, each sentence once, with the models that it is about."""
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
    """How each model was sampled: the engine and the reason for it, sizes, missing scores."""
    rows = []
    for model in run.models:
        sizes = [
            f"{split} {count(size.get('questions'))} × {_up_to(model, split)}{count(size.get('n'))}"
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


def _up_to(model: Model, split: str) -> str:
    """ "up to" where questions may stop early, with fewer than n answers."""
    return "up to " if split == "forget" and model.about.get("stop") == "sequential" else ""


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


def _rows(item: object) -> list[dict]:
    if isinstance(item, dict) and item and all(isinstance(value, dict) for value in item.values()):
        return [{"name": name, **value} for name, value in item.items()]
    if isinstance(item, list) and item and all(isinstance(value, dict) for value in item):
        return item
    return []


def _general(value: object) -> str:
    """A value of a result file of unknown kind, as text."""
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
