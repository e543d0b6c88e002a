"""What the page shows beside the tables of models: Epsilon*, languages, provenance, audits, and any result file."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace

from markupsafe import Markup

from lethe.config.schema import MethodParams
from lethe.evaluation.run import Model, OneRunRecord, Record, Run
from lethe.io.files import Json
from lethe.report import svg
from lethe.results.table import Numbers, Result
from lethe.statistics.bound import coverage, level, significant
from lethe.statistics.bounds import BELOW_1
from lethe.statistics.leak_trees import Certificates
from lethe.statistics.one_run.audit import ASSUMPTIONS, OneRunAudit, load_method
from lethe.text import (
    NONE,
    count,
    epsilon_statement,
    label,
    listing,
    number,
    plural,
    share,
    upper_first,
)


def method_of(method: MethodParams, name: str) -> str:
    """The settings of a method under a name; its own name is left out where it is that."""
    parts = [method.loss] if method.loss != name else []
    own = [key for key in type(method).model_fields if key not in MethodParams.model_fields]
    parts += [f"{'β' if key == 'beta' else key} {general(getattr(method, key))}" for key in own]
    if entropy := method.entropy:
        parts += [f"λ_f {entropy.forget:g}", f"λ_r {entropy.retain:g}"]
        parts += [f"own {entropy.prefix} prefixes"] if entropy.prefix != "true" else []
    return ", ".join([*parts, f"{method.epochs} epochs"])


LIKELIEST = 5  # leaking texts of a model


def likeliest(exact: Certificates) -> list[tuple[str, str, str]]:
    """Question, text and least probability of the likeliest leaking texts."""
    every = [(tree.id, leak) for tree in exact.trees for leak in tree.heaviest_leaks]
    first = sorted(every, key=lambda pair: -pair[1].probability)[:LIKELIEST]
    return [
        (name, leak.text, f"{significant(leak.probability, 3, 'lower')}") for name, leak in first
    ]


def band(low: float, high: float) -> str:
    """Leak@k from its lower to its upper end, each rounded outward; a lower end that only rounding takes to 1 is below it."""
    return f"{number(min(low, BELOW_1), 3, 'lower')} to {number(high, 3, 'upper')}"


def epsilon_star_most(run: Run) -> str:
    """The largest lower bound of the models under test, in words."""
    subjects = [model for model in with_epsilon_star(run) if model.role == "subject"]
    bounds = [
        (bound, one.name)
        for one in subjects
        if (bound := one.bounds.get("epsilon_lower")) and bound.value
    ]
    if not bounds:
        return "0 for every model under test"
    most, name = max(bounds, key=lambda one: (one[0].value, one[1]))
    return f"{most.number()} for {name}" + (
        ", the largest of the models under test" if len(subjects) > 1 else ""
    )


def with_epsilon_star(run: Run) -> list[Model]:
    models = [model for model in run.models if model.epsilon_star]
    if run.aim == "refuse" and not any(
        one.epsilon_star and one.epsilon_star.lower for one in models
    ):
        return []  # nothing was to be forgotten, so there is nothing to explain either
    return models


def epsilon_star_notes(run: Run) -> list[str]:
    """The notes of the results, each sentence once, with the models that it is about."""
    notes: dict[str, list[str]] = {}
    results = {model.name: model.epsilon_star.facts for model in run.models if model.epsilon_star}
    for name, record in results.items():
        for text in filter(None, (record.get("assumes"), record.get("note"))):
            notes.setdefault(text, []).append(name)
    return [
        upper_first(note) + ("." if len(names) == len(results) else f" ({listing(names)}).")
        for note, names in notes.items()
    ]


def provenance_rows(run: Run) -> list[list[str]]:
    """How the models were sampled: the engine and the reason for it, sizes, missing scores; equal rows are one."""
    names: dict[tuple[str, ...], list[str]] = {}
    for model in run.models:
        sizes, engine, drawing = [], (NONE, NONE), model.drawing
        if drawing:
            engine = (drawing.engine or NONE, drawing.engine_reason or NONE)
            for split, size in drawing.splits.items():
                # A rule may stop a question before n answers.
                early = "up to " * (split == "forget" and drawing.stop == "sequential")
                sizes.append(
                    f"{split} {count(size.get('questions'))} × {early}{count(size.get('n'))}"
                )
        drawn = (*engine, ", ".join(sizes) or NONE, count(model.value("missing")))
        names.setdefault(drawn, []).append(model.name)
    return [[listing(models), *drawn] for drawn, models in names.items()]


def flatten(
    result: Mapping[str, object],
) -> tuple[list[tuple[str, str]], list[tuple[str, list[str], list[list[str]]]]]:
    """Any result file as (plain values, tables): a list or a dictionary of objects becomes a table."""
    values, tables = [], []
    for key, item in result.items():
        rows = _rows(item)
        if rows:
            columns = list(dict.fromkeys(name for row in rows for name in row))
            tables.append(
                (key, columns, [[general(row.get(name)) for name in columns] for row in rows])
            )
        else:
            values.append((key, general(item)))
    return values, tables


def _rows(item: object) -> list[dict]:
    if isinstance(item, dict) and item and all(isinstance(value, dict) for value in item.values()):
        return [{"name": name, **value} for name, value in item.items()]
    if isinstance(item, list) and item and all(isinstance(value, dict) for value in item):
        return item
    return []


def general(value: object) -> str:
    """A value of a result file of unknown kind, as text."""
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {general(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(general, value))
    return str(value)


SHOWN = 20  # productions per model


def language_views(run: Run) -> list[SimpleNamespace]:
    views = []
    for model in run.models:
        if not (facts := model.numbers.facts("language", "language")):
            continue
        mean: Callable[[float | None], str] = share if facts["binary"] else number
        every, choices = (model.numbers.series(one, "language") for one in ("production", "choice"))
        views.append(
            SimpleNamespace(
                name=model.name,
                sentences=list(_sentences(model.numbers, every, facts, mean, run)),
                rows=[_production(one, mean) for one in every[:SHOWN]],
                rest=len(every) - SHOWN,
                choices=[
                    [*one.facts.values(), count(one.n), mean(one.estimate)] for one in choices
                ],
            )
        )
    return views


def _production(one: Result, mean: Callable[[float | None], str]) -> list[str]:
    sides = [
        share(end.value, end.side) if end else NONE for end in (one.lower_bound, one.upper_bound)
    ]
    probability = share(one.facts["probability"])
    return [str(one.item), probability, count(one.n), mean(one.estimate), *sides]


def _sentences(
    numbers: Numbers,
    productions: Sequence[Result],
    facts: Mapping[str, Json],
    mean: Callable[[float | None], str],
    run: Run,
) -> Iterator[str]:
    if worst := numbers.row("worst_production", "language"):
        one = next(row for row in productions if row.item == worst.text)
        score, answers, own = (
            label(facts["scorer"]),
            plural(one.n or 0, "answer"),
            mean(one.estimate),
        )
        many, graded = (
            f"{own} of its {answers} have {score}",
            f"the mean {score} of its {answers} is {own}",
        )
        yield f"Worst production found, not bounded: {worst.text} ({many if facts['binary'] else graded})."
    unjudged = len(run.models[0].unjudged) if run.models else 0
    of = f"the {plural(len(run.forget) - unjudged, run.words.forget_question)}"
    if unjudged:
        of += " that were judged"
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


COLOURS = {"exact": svg.ACCENT, "chernoff": svg.WARM, "steinke": svg.MUTED, "mahloujifar": svg.INK}


def audits(run: Run) -> dict[str, OneRunRecord]:
    """The one-run audits with a result; the page lists the others as missing, or shows their results unformatted."""
    return {name: one for name, one in run.audits.items() if isinstance(one, OneRunRecord)}


def other_audits(run: Run) -> dict[str, Record]:
    """The results by name of audits whose kind has no section on this page; they are shown unformatted."""
    return {
        name: {key: shown for key, shown in value.items() if key != "schema"}
        for name, value in run.audits.items()
        if value and not isinstance(value, OneRunRecord)
    }


def assumptions(run: Run) -> list[str]:
    named = {
        flag for one in audits(run).values() for row in one.audit.results for flag in row.assumes
    }
    return [f"{unlined(flag)}: {text}." for flag, text in ASSUMPTIONS.items() if flag in named]


def unlined(flag: str) -> str:
    return flag.replace("_", " ")


def sentence(audit: OneRunAudit) -> str:
    verdict = audit.verdict
    if verdict is None:
        return ""
    if verdict.contradicted is None:
        claimed = f"{verdict.claimed_epsilon:.4g} at delta {audit.delta:g}"
        return f"No word on the claimed epsilon of {claimed}: {' '.join(verdict.refused)}"
    row = next(row for row in audit.results if row.method == verdict.method)
    ends = "contradicts" if verdict.contradicted else "does not contradict"
    promise = level(audit.alpha)
    if not load_method(verdict.method).CONSERVATIVE:
        promise = (
            f"at a nominal {coverage(audit.alpha)} that this published bound does not always keep"
        )
    return (
        f"The run {ends} the claimed epsilon of {verdict.claimed_epsilon:.4g} at delta {audit.delta:g}: "
        f"by the method {verdict.method}, {epsilon_statement(audit, row)}, {promise}, "
        f"assuming {', '.join(map(unlined, row.assumes))}."
    )


def curve(name: str, audit: OneRunAudit) -> Markup | None:
    if not audit.curve:
        return None
    points, methods = audit.curve, [row.method for row in audit.results]
    with svg.style(f"audit-{name}"):
        figure, axes = svg.canvas(4.6, 2.2, 0.5)
        for method in methods:
            if method in COLOURS:
                line = [(point["epsilon"], max(point[method], 1e-6)) for point in points]
                axes.plot(*zip(*line, strict=True), color=COLOURS[method], label=method)
        axes.axhline(audit.alpha, color=svg.MUTED, linestyle="--", linewidth=0.8)
        if audit.verdict:
            axes.axvline(audit.verdict.claimed_epsilon, color=svg.MUTED, linewidth=0.8)
        axes.set_yscale("log")
        axes.set_ylim(1e-6, 1.5)
        axes.set_xlabel("epsilon (vertical line: claimed)" if audit.verdict else "epsilon")
        axes.legend(frameon=False, fontsize=7)
        return svg.inline(figure, f"audit-{name}", "p-value of each method by epsilon")
