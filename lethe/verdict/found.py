"""Every finding of a run, made from its results and answers: what the stage `compare` writes."""

from collections.abc import Callable, Sequence

from lethe.config.schema import Params
from lethe.errors import plural
from lethe.measure.run import Run, RunModel
from lethe.results.ends import Ends
from lethe.results.extraction import Extraction
from lethe.results.table import Numbers, Result
from lethe.results.trace import GIVEN, basis_of, record_of
from lethe.verdict.claims import findings as claims_of
from lethe.verdict.claims import judged_by
from lethe.verdict.deciding import standings
from lethe.verdict.finding import EXTRACTION, EXTRACTION_NEAR, LEAKAGE, TRACE, Finding
from lethe.verdict.sentence import sentence
from lethe.verdict.verdict import Verdict
from lethe.verdict.windows import WORDS, verdict_of


def found(run: Run, on_traces: Sequence[Result]) -> list[Finding]:
    """The words on every model, what each leaks on average, the claims, and the words on texts that come out and on traces.

    ``on_traces`` are the rows of the words on traces.
    """
    if not run.models:
        return []
    claims = claims_of(run)
    findings: list[Finding] = []
    for standing in standings(run, claims):
        findings += standing.findings()
    for model in run.models:
        findings += _leakage(model, run, claims.level)
    findings += [*claims.findings(), *_extractions(run)]
    return findings + found_traces(run.models, on_traces)


def found_traces(models: Sequence[RunModel], words: Sequence[Result]) -> list[Finding]:
    """The word on a trace of each model that has one among the rows ``words``; its numbers have the ranks behind it."""
    findings = []
    for model in models:
        rows = [row for row in words if row.model == model.name]
        numbers = Numbers([*model.numbers.rows, *rows])
        word = numbers.row("trace", basis_of(numbers)) or numbers.row("trace", GIVEN)
        if rows and word is not None:
            record = record_of(numbers, model.name)
            level = word.facts.get("level")
            said = record["sentence"]
            findings.append(Finding(model.name, TRACE, str(word.text), said, level, details=record))
    return findings


def _leakage(model: RunModel, run: Run, level: float) -> list[Finding]:
    """What a model leaks on average, beside all others, at ``level``; empty where its answers do not allow it."""
    quantity, _ = judged_by(run)
    interval = quantity.measure(model, level)
    if interval is None:
        return []
    shown = quantity.worded(interval)
    details = {"quantity": quantity.words}
    return [Finding(model.name, LEAKAGE, "measured", shown, level, interval, details=details)]


def _extractions(run: Run) -> list[Finding]:
    """The words on the text that each model under test was asked to continue, to the letter and near it."""
    if not isinstance(run.params, Params) or run.params.extract is None:
        return []
    extract = run.params.extract
    near = plural(extract.distance, f"{extract.unit[:-1]} edit")
    findings = []
    for model in run.subjects:
        text = model.extraction
        if text is None:
            continue
        verdict = _verdict_on(text, run, extract.tau, Extraction.verbatim_ends)
        findings.append(_extraction(EXTRACTION, model.name, model.name, verdict))
        if text.searched:
            verdict = _verdict_on(text, run, extract.tau, Extraction.near_ends)
            name = f"{model.name}, within {near}"
            findings.append(_extraction(EXTRACTION_NEAR, model.name, name, verdict))
    return findings


def _verdict_on(
    text: Extraction, run: Run, tau: float, ends_of: Callable[[Extraction], Ends]
) -> Verdict:
    """The verdict on one text beside the Retrains that were asked to continue it."""
    retrains = []
    for retrain in run.retrains:
        if retrain.extraction:
            retrains.append(ends_of(retrain.extraction))
    alpha = run.params.metrics.alpha
    return verdict_of(ends_of(text), retrains, alpha, tau, run.sharing)


def _extraction(claim: str, model: str, name: str, verdict: Verdict) -> Finding:
    """The finding; ``name`` begins its sentence."""
    said = sentence(verdict, name, words=WORDS)
    return Finding(model, claim, verdict.word, said, verdict.level)
