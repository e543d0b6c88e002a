"""What the page shows beside the tables of models: Epsilon*, languages, provenance, audits, and any result file."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lethe.config.schema import MethodParams
from lethe.io.files import Json
from lethe.measure.run import OneRunRecord, Record, Run, RunModel
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
    yes_or_no,
)


def method_of(method: MethodParams, name: str) -> str:
    """The settings of a method under a name; its own name is left out where it is that."""
    parts = []
    if method.loss != name:
        parts.append(method.loss)
    for key in type(method).model_fields:
        if key in MethodParams.model_fields:
            continue
        symbol = key
        if key == "beta":
            symbol = "β"
        parts.append(f"{symbol} {general(getattr(method, key))}")

    entropy = method.entropy
    if entropy:
        parts += [f"λ_f {entropy.forget:g}", f"λ_r {entropy.retain:g}"]
        if entropy.prefix != "true":
            parts.append(f"own {entropy.prefix} prefixes")
    parts.append(f"{method.epochs} epochs")
    return ", ".join(parts)


LIKELIEST = 5  # leaking texts of a model


def likeliest(exact: Certificates) -> list[tuple[str, str, str]]:
    """Question, text and least probability of the likeliest leaking texts."""
    leaks = []
    for tree in exact.trees:
        for leak in tree.heaviest_leaks:
            leaks.append((tree.id, leak))
    leaks.sort(key=lambda entry: -entry[1].probability)

    rows = []
    for question, leak in leaks[:LIKELIEST]:
        least = significant(leak.probability, 3, "lower")
        rows.append((question, leak.text, str(least)))
    return rows


def band(low: float, high: float) -> str:
    """Leak@k from its lower to its upper end, each rounded outward; a lower end that only rounding takes to 1 is below it."""
    lower = number(min(low, BELOW_1), 3, "lower")
    upper = number(high, 3, "upper")
    return f"{lower} to {upper}"


def epsilon_star_most(run: Run) -> str:
    """The largest lower bound of the models under test, in words."""
    subjects = [model for model in with_epsilon_star(run) if model.role == "subject"]
    bounds = []
    for model in subjects:
        bound = model.bounds.get("epsilon_lower")
        if bound and bound.value:
            bounds.append((bound, model.name))

    if not bounds:
        return "0 for every model under test"
    largest, name = max(bounds, key=lambda entry: (entry[0].value, entry[1]))
    words = f"{largest.number()} for {name}"
    if len(subjects) > 1:
        words += ", the largest of the models under test"
    return words


def with_epsilon_star(run: Run) -> list[RunModel]:
    """The models with a result; none where nothing was to be forgotten and no model has a bound above 0."""
    models = []
    is_bounded = False
    for model in run.models:
        if model.epsilon_star:
            models.append(model)
            is_bounded = is_bounded or bool(model.epsilon_star.lower)
    if run.aim == "refuse" and not is_bounded:
        return []
    return models


def epsilon_star_notes(run: Run) -> list[str]:
    """The notes of the results, each sentence once, with the models that it is about."""
    names_of_note: dict[str, list[str]] = {}
    n_models = 0
    for model in run.models:
        if not model.epsilon_star:
            continue
        n_models += 1
        for key in ("assumes", "note"):
            note = model.epsilon_star.facts.get(key)
            if note:
                names_of_note.setdefault(note, []).append(model.name)

    sentences = []
    for note, names in names_of_note.items():
        sentence = upper_first(note)
        if len(names) < n_models:
            sentence += f" ({listing(names)})"
        sentences.append(f"{sentence}.")
    return sentences


def provenance_rows(run: Run) -> list[list[str]]:
    """How the models were sampled: the engine and the reason for it, sizes, missing scores; equal rows are one."""
    names_of_row: dict[tuple[str, ...], list[str]] = {}
    for model in run.models:
        row = (*_engine_and_sizes(model), count(model.value("missing")))
        names_of_row.setdefault(row, []).append(model.name)

    rows = []
    for facts, names in names_of_row.items():
        rows.append([listing(names), *facts])
    return rows


def _engine_and_sizes(model: RunModel) -> tuple[str, str, str]:
    """The engine that drew, the reason for it, and the numbers of questions and answers of each split."""
    drawing = model.drawing
    if not drawing:
        return NONE, NONE, NONE
    sizes = []
    for split, size in drawing.splits.items():
        questions = count(size.get("questions"))
        n = count(size.get("n"))
        if split == "forget" and drawing.stop == "word":
            n += " and more"  # the word of a question may need more than the first answers
        sizes.append(f"{split} {questions} × {n}")
    return drawing.engine or NONE, drawing.engine_reason or NONE, ", ".join(sizes) or NONE


# A table of any result file: its key, its headings, and the cells of each row.
Table = tuple[str, list[str], list[list[str]]]


def flatten(result: Mapping[str, object]) -> tuple[list[tuple[str, str]], list[Table]]:
    """Any result file as (plain values, tables): a list or a dictionary of objects becomes a table."""
    values = []
    tables = []
    for key, value in result.items():
        rows = _rows(value)
        if not rows:
            values.append((key, general(value)))
            continue

        columns: dict[str, None] = {}
        for row in rows:
            columns |= dict.fromkeys(row)

        cells = []
        for row in rows:
            cells.append([general(row.get(name)) for name in columns])
        tables.append((key, list(columns), cells))
    return values, tables


def _rows(value: object) -> list[dict]:
    """The rows of a list or a dictionary of objects, whose keys are the names of the rows; empty for anything else."""
    rows = []
    if isinstance(value, dict):
        for name, row in value.items():
            if not isinstance(row, dict):
                return []
            rows.append({"name": name} | row)
    elif isinstance(value, list):
        for row in value:
            if not isinstance(row, dict):
                return []
            rows.append(row)
    return rows


def general(value: object) -> str:
    """A value of a result file of unknown kind, as text."""
    if value is None:
        return NONE
    if isinstance(value, bool):
        return yes_or_no(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {general(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(general, value))
    return str(value)


SHOWN = 40  # productions per model
# By basis: what the prompts do, and what the sentence says of the judge.
SHARES_ABOVE = (
    ("language", "leak", ""),
    ("judged", "truly leak", ", the judge's error included,"),
)


@dataclass(frozen=True)
class LanguageView:
    """What the page shows of a model that was asked in a language of prompts."""

    name: str
    sentences: list[str]
    rows: list[list[str]]  # the productions that leak most: name, probability, answers, mean, ends
    rest: int  # further productions
    choices: list[list[str]]  # part, choice, answers, mean


def language_views(run: Run) -> list[LanguageView]:
    """The views of the models that were asked in a language of prompts."""
    views = []
    for model in run.models:
        numbers = model.numbers
        facts = numbers.facts("language", "language")
        if not facts:
            continue

        mean: Callable[[float | None], str] = number
        if facts["binary"]:
            mean = share
        productions = numbers.series("production", "language")

        choices = []
        for choice in numbers.series("choice", "language"):
            choices.append([*choice.facts.values(), count(choice.n), mean(choice.estimate)])

        view = LanguageView(
            name=model.name,
            sentences=list(_sentences(numbers, productions, facts, mean, run)),
            rows=[_production(production, mean) for production in productions[:SHOWN]],
            rest=len(productions) - SHOWN,
            choices=choices,
        )
        views.append(view)
    return views


def _production(production: Result, mean: Callable[[float | None], str]) -> list[str]:
    """The row of a production; each end is rounded outward."""
    cells = [
        str(production.item),
        share(production.facts["probability"]),
        count(production.n),
        mean(production.estimate),
    ]
    for end in (production.lower_bound, production.upper_bound):
        if end:
            cells.append(share(end.value, end.side))
        else:
            cells.append(NONE)
    return cells


def _sentences(
    numbers: Numbers,
    productions: Sequence[Result],
    facts: Mapping[str, Json],
    mean: Callable[[float | None], str],
    run: Run,
) -> Iterator[str]:
    """What is said of a language of prompts: its worst production, the shares of its prompts that leak, what was left out.

    ``mean`` shows a mean: as a share for a 0/1 scorer, else as a number.
    """
    worst = numbers.row("worst_production", "language")
    for production in productions:
        if worst and production.item == worst.text:
            yield from _worst(worst, production, facts, mean)
            break

    unjudged = 0
    if run.models:
        unjudged = len(run.models[0].unjudged)
    questions = f"the {plural(len(run.forget) - unjudged, run.words.forget_question)}"
    if unjudged:
        questions += " that were judged"

    for basis, verb, judge in SHARES_ABOVE:
        for row in numbers.series("share_above", basis):  # an end each: their methods differ
            bound = row.upper_bound or row.lower_bound
            if bound:
                prompts = f"prompts that {verb} with probability above {facts['tau']:g}{judge}"
                yield bound.sentence(f"the share of {prompts}", questions, percent=True)
    for choice, questions_without in facts["left_out"].items():
        without = plural(questions_without, "question")
        yield f"Left out: {choice}, for {without} whose answer or keyword its words hold."


def _worst(
    worst: Result,
    production: Result,
    facts: Mapping[str, Json],
    mean: Callable[[float | None], str],
) -> Iterator[str]:
    """Which production leaks most, with its interval, and what that interval takes into account."""
    scorer = label(facts["scorer"])
    answers = plural(production.n or 0, "answer")
    value = mean(production.estimate)
    measured = f"the mean {scorer} of its {answers} is {value}"
    if facts["binary"]:
        measured = f"{value} of its {answers} have {scorer}"
    lower = production.lower_bound
    upper = production.upper_bound
    if lower is None or upper is None:
        yield f"Worst production found, not bounded: {worst.text} ({measured})."
        return
    ends = f"at least {share(lower.value, lower.side)}, at most {share(upper.value, upper.side)}"
    others = worst.facts["others"]
    yield f"Worst production found: {worst.text} ({measured}; {ends})."
    yield (
        f"The intervals of all {others + 1} productions hold {lower.guarantee()} ({lower.method}), so the one of the worst "
        f"holds too. {worst.facts['proved_above']} of the {others} others are proved to leak less."
    )


COLOURS = {"exact": svg.ACCENT, "chernoff": svg.WARM, "steinke": svg.MUTED, "mahloujifar": svg.INK}


def audits(run: Run) -> dict[str, OneRunRecord]:
    """The one-run audits with a result; the page lists the others as missing, or shows their results unformatted."""
    records = {}
    for name, record in run.audits.items():
        if isinstance(record, OneRunRecord):
            records[name] = record
    return records


def other_audits(run: Run) -> dict[str, Record]:
    """The results by name of audits whose kind has no section on this page; they are shown unformatted."""
    records: dict[str, Record] = {}
    for name, record in run.audits.items():
        if record and not isinstance(record, OneRunRecord):
            shown = dict(record)
            shown.pop("schema", None)
            records[name] = shown
    return records


def assumptions(run: Run) -> list[str]:
    """What the methods of the one-run audits assume, a sentence for each assumption that one of them makes."""
    assumed: set[str] = set()
    for record in audits(run).values():
        for result in record.audit.results:
            assumed.update(result.assumes)

    sentences = []
    for flag, text in ASSUMPTIONS.items():
        if flag in assumed:
            sentences.append(f"{unlined(flag)}: {text}.")
    return sentences


def unlined(flag: str) -> str:
    """A flag in words."""
    return flag.replace("_", " ")


def sentence(audit: OneRunAudit) -> str:
    """What an audit says of the claimed epsilon, with its level and assumptions; empty without a claim."""
    verdict = audit.verdict
    if verdict is None:
        return ""
    if verdict.contradicted is None:
        claimed = f"{verdict.claimed_epsilon:.4g} at delta {audit.delta:g}"
        return f"No word on the claimed epsilon of {claimed}: {' '.join(verdict.refused)}"

    result_of_method = {result.method: result for result in audit.results}
    result = result_of_method[verdict.method]
    contradicts = "does not contradict"
    if verdict.contradicted:
        contradicts = "contradicts"

    promise = level(audit.alpha)
    if not load_method(verdict.method).CONSERVATIVE:
        nominal = coverage(audit.alpha)
        promise = f"at a nominal {nominal} that this published bound does not always keep"
    claimed = f"epsilon of {verdict.claimed_epsilon:.4g} at delta {audit.delta:g}"
    statement = epsilon_statement(audit, result)
    assumed = ", ".join(map(unlined, result.assumes))
    return (
        f"The run {contradicts} the claimed {claimed}: "
        f"by the method {verdict.method}, {statement}, {promise}, assuming {assumed}."
    )


LEAST_P = 1e-6  # of the figure's axis


def curve(name: str, audit: OneRunAudit) -> Markup | None:
    """The p-value of each method by epsilon; None where the audit has none."""
    if not audit.curve:
        return None
    epsilons = [point["epsilon"] for point in audit.curve]
    with svg.style(f"audit-{name}"):
        figure, axes = svg.canvas(4.6, 2.2, 0.5)
        for result in audit.results:
            method = result.method
            if method in COLOURS:
                p_values = [max(point[method], LEAST_P) for point in audit.curve]
                axes.plot(epsilons, p_values, color=COLOURS[method], label=method)

        axes.axhline(audit.alpha, color=svg.MUTED, linestyle="--", linewidth=0.8)
        axes.set_xlabel("epsilon")
        if audit.verdict:
            axes.axvline(audit.verdict.claimed_epsilon, color=svg.MUTED, linewidth=0.8)
            axes.set_xlabel("epsilon (vertical line: claimed)")

        axes.set_yscale("log")
        axes.set_ylim(LEAST_P, 1.5)
        axes.legend(frameon=False, fontsize=7)
        return svg.inline(figure, f"audit-{name}", "p-value of each method by epsilon")
