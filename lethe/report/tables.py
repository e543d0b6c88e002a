"""The tables other than those of models: Epsilon*, provenance, and any result file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from lethe.config.schema import MethodParams
from lethe.evaluation.run import Drawing, Model, Run
from lethe.results.table import Numbers, Result
from lethe.text import NONE, count, label, listing, number, plural, share, upper_first


def what_it_is(model: Model, run: Run) -> str:
    if model.role == "base":
        words = run.words.before
    elif model.role == "retrain":
        words = run.words.never_saw
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


EPSILON_STAR = ("model", "Epsilon* at least", "α", "δ", "forget", "population")


def epsilon_star_rows(run: Run) -> list[list[str]]:
    """The columns of ``EPSILON_STAR`` for each model that has a result."""
    rows = []
    for model in _with_epsilon_star(run):
        record = model.epsilon_star.evidence or {} if model.epsilon_star else {}
        lower = model.epsilon_star.lower_bound if model.epsilon_star else None
        levels = [_general(record.get(key)) for key in ("alpha", "delta")]
        sizes = [count(record.get(key)) for key in ("n_train", "n_population")]
        rows.append([model.name, lower.number() if lower else NONE, *levels, *sizes])
    return rows


def epsilon_star_most(run: Run) -> str:
    """The largest lower bound of the models under test, in words."""
    subjects = [model for model in _with_epsilon_star(run) if model.role == "subject"]
    most = max(
        (
            (bound.value, bound.number(), model.name)
            for model in subjects
            if (bound := model.bounds.get("epsilon_lower"))
        ),
        default=None,
    )
    if most is None or not most[0]:
        return "0 for every model under test"
    return f"{most[1]} for {most[2]}" + (", the largest of the models under test" if len(subjects) > 1 else "")


def _with_epsilon_star(run: Run) -> list[Model]:
    found = [model for model in run.models if model.epsilon_star]
    if run.aim == "refuse" and not any(one.epsilon_star and one.epsilon_star.lower for one in found):
        return []  # nothing was to be forgotten, so there is nothing to explain either
    return found


def epsilon_star_notes(run: Run) -> list[str]:
    """The notes of the results, each sentence once, with the models that it is about."""
    told: dict[str, list[str]] = {}
    for model in run.models:
        result = model.epsilon_star
        record = (result.evidence if result else None) or {}
        for said in (record.get("assumes"), record.get("note")):
            if said:
                told.setdefault(said, []).append(model.name)
    everyone = sum(model.epsilon_star is not None for model in run.models)
    return [
        upper_first(note) + ("." if len(names) == everyone else f" ({listing(names)}).")
        for note, names in told.items()
    ]


def provenance_rows(run: Run) -> list[list[str]]:
    """How the models were sampled: the engine and the reason for it, sizes, missing scores; equal rows are one."""
    names: dict[tuple[str, ...], list[str]] = {}
    for model in run.models:
        drawing = model.drawing
        sizes = [
            f"{split} {count(size.get('questions'))} × {_up_to(drawing, split)}{count(size.get('n'))}"
            for split, size in (drawing.splits.items() if drawing else ())
        ]
        engine, reason = (drawing.engine, drawing.engine_reason) if drawing else (None, None)
        drawn = (engine or NONE, reason or NONE, ", ".join(sizes) or NONE, count(model.value("missing")))
        names.setdefault(drawn, []).append(model.name)
    return [[listing(models), *drawn] for drawn, models in names.items()]


def _up_to(drawing: Drawing | None, split: str) -> str:
    """ "up to" where questions may stop early, with fewer than n answers."""
    return "up to " if split == "forget" and drawing and drawing.stop == "sequential" else ""


def flatten(
    result: Mapping[str, object],
) -> tuple[list[tuple[str, str]], list[tuple[str, list[str], list[list[str]]]]]:
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


SHOWN = 20  # productions per model
LANGUAGE_HEAD = ["production", "probability", "draws", "mean found", "at least", "at most"]
CHOICES = ["part", "choice", "draws", "mean found"]


def language_views(run: Run) -> list[SimpleNamespace]:
    asked = [(model, model.numbers.row("language", "language")) for model in run.models]
    return [_language_view(model, facts.evidence or {}, run) for model, facts in asked if facts]


def _language_view(model: Model, facts: Mapping[str, Any], run: Run) -> SimpleNamespace:
    binary = facts["binary"]
    every, choices = (model.numbers.series(one, "language") for one in ("production", "choice"))
    rest = len(every) - SHOWN
    return SimpleNamespace(
        name=model.name,
        sentences=list(_sentences(model.numbers, every, facts, run)),
        rows=[_production(one, binary) for one in every[:SHOWN]],
        more=f"{plural(rest, 'production')} with a lower mean, or without a draw, not shown." if rest > 0 else "",
        choices=[[*(one.evidence or {}).values(), count(one.n), _mean(one.estimate, binary)] for one in choices],
    )


def _production(one: Result, binary: bool) -> list[str]:
    sides = [share(end.value, end.side) if end else NONE for end in (one.lower_bound, one.upper_bound)]
    probability = share((one.evidence or {})["probability"])
    return [str(one.item), probability, count(one.n), _mean(one.estimate, binary), *sides]


def _mean(mean: float | None, binary: bool) -> str:
    return share(mean) if binary else number(mean)


def _sentences(
    numbers: Numbers, productions: Sequence[Result], facts: Mapping[str, Any], run: Run
) -> Iterator[str]:
    if worst := numbers.row("worst_production", "language"):
        one = next(row for row in productions if row.item == worst.text)
        score, answers = label(facts["scorer"]), plural(one.n or 0, "answer")
        mean = _mean(one.estimate, facts["binary"])
        many, graded = f"{mean} of its {answers} have {score}", f"the mean {score} of its {answers} is {mean}"
        yield f"Worst production found, not bounded: {worst.text} ({many if facts['binary'] else graded})."
    of = f"the {plural(len(run.forget), run.words.forget_question)}"
    for basis, leak, judge in (
        ("language", "leak", ""),
        ("judged", "truly leak", ", the judge's error included,"),
    ):
        for row in numbers.series("share_above", basis):  # an end each: their methods differ
            if bound := row.upper_bound or row.lower_bound:
                quantity = f"the share of prompts that {leak} with probability above {facts['tau']:g}{judge}"
                yield bound.sentence(quantity, of, percent=True)
    bound = next((end for row in productions if (end := row.upper_bound)), None)
    if bound:
        yield f"The bounds on either side of the table hold {bound.guarantee()} ({bound.method})."
