"""The one-run audits on the page: facts and methods as a table, the verdict as a sentence, p-values as a curve."""

from __future__ import annotations

from types import SimpleNamespace

from markupsafe import Markup

from lethe.evaluation.run import OneRunRecord, Record, Run
from lethe.report import svg
from lethe.statistics.bound import coverage, level
from lethe.statistics.one_run.audit import ASSUMPTIONS, MethodBound, OneRunAudit, load_method
from lethe.text import NONE, count, epsilon_found, number

COLOURS = {"exact": svg.ACCENT, "chernoff": svg.WARM, "steinke": svg.MUTED, "mahloujifar": svg.INK}
HEAD = ("method", "ε at least", "p-value at the claim", "rests on")


def views(run: Run) -> list[SimpleNamespace]:
    return [
        SimpleNamespace(
            name=name,
            sentence=sentence(one.audit),
            counted=counted(one.audit, one.mechanism),
            rows=[_row(one.audit, row) for row in one.audit.results],
            notes=[f"{row.method}: {row.note}." for row in one.audit.results],
            curve=curve(name, one.audit),
        )
        for name, one in _audits(run).items()
    ]


def _audits(run: Run) -> dict[str, OneRunRecord]:
    """The one-run audits with a result; the page lists the others as missing, or shows their results unformatted."""
    return {name: value for name, value in run.audits.items() if isinstance(value, OneRunRecord)}


def others(run: Run) -> dict[str, Record]:
    """The results by name of audits whose kind has no section on this page; they are shown unformatted."""
    return {
        name: {key: shown for key, shown in value.items() if key != "schema"}
        for name, value in run.audits.items()
        if value and not isinstance(value, OneRunRecord)
    }


def glossary(run: Run) -> list[str]:
    named = {flag for one in _audits(run).values() for row in one.audit.results for flag in row.assumes}
    return [f"{_words(flag)}: {text}." for flag, text in ASSUMPTIONS.items() if flag in named]


def counted(audit: OneRunAudit, mechanism: str) -> str:
    errors = "error" if audit.errors == 1 else "errors"
    return (
        f"{_numbers(audit.errors)} {errors} among the {_numbers(audit.r)} most confident guesses of {count(audit.n)} secret "
        f"bits; family {mechanism}, δ {audit.delta:g}, α {audit.alpha:g}."
    )


def _numbers(value: int | list[int]) -> str:
    return " / ".join(map(count, value)) if isinstance(value, list) else count(value)


def _row(audit: OneRunAudit, row: MethodBound) -> list[str]:
    bound = audit.bound(row)
    return [
        row.method,
        bound.number() if bound else "family rejected",
        NONE if row.p_value is None else f"{row.p_value:.3g}",
        ", ".join(map(_words, row.assumes)),
    ]


def _words(flag: str) -> str:
    return flag.replace("_", " ")


def sentence(audit: OneRunAudit) -> str:
    verdict = audit.verdict
    if verdict is None:
        return ""
    row = next(row for row in audit.results if row.method == verdict.method)
    ends = "contradicts" if verdict.contradicted else "does not contradict"
    promise = level(audit.alpha)
    if not load_method(verdict.method).CONSERVATIVE:
        promise = f"at a nominal {coverage(audit.alpha)} that this published bound does not always keep"
    return (
        f"The run {ends} the claimed epsilon of {number(verdict.claimed_epsilon, 3, 'up')} at delta "
        f"{audit.delta:g}: by {verdict.method} {epsilon_found(audit, row)}, {promise}, "
        f"assuming {', '.join(map(_words, row.assumes))}."
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
