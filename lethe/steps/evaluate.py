"""The stages likelihood, sample, score, metrics, compare and report for one of the user's models, outside DVC.

`lethe eval` passes a model folder and files; `lethe.evaluate` may pass a model and rows in memory.
"""

import contextlib
import math
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lethe.config.evaluation import UNMARKED, EvaluationSettings
from lethe.config.measuring import Endpoint, ModelEntry, SampleSettings
from lethe.config.schema import EvaluationParams
from lethe.config.twins import Twins
from lethe.data.rows import check_splits
from lethe.data.secrets import secrets_of
from lethe.errors import BadFile, BadInput, LetheError, plural
from lethe.instruction_set import kernels_in_use
from lethe.io import processes, tries
from lethe.io.artifacts import Row, read_split, write_splits
from lethe.io.files import SCHEMA_VERSION, alone, read_artifact, write_json
from lethe.measure.answers import AnswerTables
from lethe.measure.run import RunModel, load_models
from lethe.models.checkpoints import InMemory, Origin, content, default_prompt
from lethe.report.page import write as write_page
from lethe.results import table
from lethe.results.table import Numbers, Result
from lethe.sampling.word_rule import Rule
from lethe.scoring.typography import RULE
from lethe.steps import compare, likelihood, metrics, sample, score, traces, twins
from lethe.steps.evaluation_draws import (
    begin_process,
    begin_try,
    counted,
    name_of_draws,
    prompt_text,
)
from lethe.steps.evaluation_params import (
    check_draws,
    check_files,
    marked_by_answers,
    params_of,
    parted,
    warn,
)
from lethe.steps.fitting import fitting, within
from lethe.steps.stated_secrets import stated_by
from lethe.verdict.evidence_path import paths
from lethe.verdict.finding import Finding, Findings
from lethe.verdict.found import found
from lethe.verdict.standing import Standing
from lethe.verdict.verdict import Verdict

BASE = "base"  # the folder of Base's answers, in that of the results
VERDICTS = "verdicts"  # the folder of a judge's, beside the answers
EVALUATED = "evaluated.json"  # names the model folder, and what `lethe compare` must find alike on two sides


@dataclass(frozen=True)
class Evaluated:
    """What an evaluation found: the words with their sentence, the verdict behind them, and the numbers that it rests on.

    ``skipped`` are the questions that the context of the model, or of Base, cannot hold; ``attempt`` is which set of draws of
    this model on these questions this is, and ``process`` everything that was ever drawn of them, None where the folder ends
    with this call or the model is in memory. ``stop`` says whether the draws went on until the word was certain; all numbers
    but the word rest on the ``first`` answers to each question.
    """

    standing: Standing
    verdict: Verdict
    stop: str
    first: int
    skipped: tuple[str, ...]
    numbers: Numbers
    attempt: tries.Try
    process: processes.Process | None


def checked(
    forget: Sequence[Row], retain: Sequence[Row] | None, source: Path
) -> dict[str, list[Row]]:
    """The rows of both splits; raises a sentence where there is no forget question, or an id stands twice."""
    if not forget:
        raise BadFile(source, "holds no question", "Give one row per question of the forget set.")
    splits = {"forget": list(forget), "retain": list(retain or [])}
    if retain is not None:
        check_splits(splits)
    return splits


def evaluate(
    name: str,
    source: Origin,
    splits: Mapping[str, list[Row]],
    settings: EvaluationSettings,
    root: Path,
    *,
    scratch: Path,
    page: bool,
    named: str,
    key: Path | None = None,
    base: Path | None = None,
) -> Evaluated:
    """Sample, score and measure a model, with its artifacts in ``root``.

    Parameters
    ----------
    name
        What the model is called on the page and in the rows.
    source
        A folder, a model in memory, or a server.
    splits
        The rows of the forget set, and of the retain set where there is one.
    settings
        All settings of an evaluation.
    root
        The folder of the artifacts, which this call holds alone.
    scratch
        The folder of finished questions, which are not drawn again.
    page
        Whether the page is wanted, and the tries and processes of the model are counted.
    named
        The name of the data on the page.
    key
        The opened key of drawn secrets, with the public record beside it.
    base
        The folder of the model before unlearning, whose utility the model's is compared with.

    Raises
    ------
    BadInput
        If settings, rows or files are unusable, before any answer is drawn.
    """
    prompt = settings.prompt or default_prompt(source)
    params = params_of(settings, name, source, splits["forget"], prompt)
    if isinstance(source, (Path, InMemory)) and settings.thinking != UNMARKED:
        params = parted(params, source)
    check_draws(params)
    check_files(settings, name, splits["forget"], params)
    splits, skipped = fitting(source, base, splits, params.sample, settings.skip_too_long)
    warn(splits["forget"], params)
    params = within(settings.memory, params, source, splits)
    with _place(root, scratch):
        if not isinstance(source, InMemory):
            write_json(root / EVALUATED, _about(source, params, base))
        write_splits(splits, named, root / "dataset")
        attempt = tries.Try(1, params.metrics.alpha)
        process = None
        seed = name_of_draws(params.sample, source, scratch)
        if page:  # a folder that ends with this call keeps no count
            attempt = begin_try(params, source, splits["forget"], seed)
            if not isinstance(source, InMemory):
                process = begin_process(params, name, source, splits["forget"], seed)
        # The stages' messages are for people; standard output is reserved for the result.
        with contextlib.redirect_stdout(sys.stderr):
            answers = _announced(params.sample)
            questions = plural(len(splits["forget"]), "forget question")
            print(f"{name}: {answers} to each of {questions}; finished ones are in {scratch}")
            source = _test_secrets(name, source, params, _twins(key, settings), root, scratch)
            likelihood.run(name, params.sample, params.models[name], root, source=source)
            _draw(name, source, params, root, scratch)
            on_traces = _word_on_traces(name, params, _twins(key, settings), root)
            if isinstance(source, Endpoint) and settings.thinking is None:
                marked = marked_by_answers(params, root)
                if marked is not params and params.sample.stop == "word":
                    _draw(name, source, marked, root, scratch)  # the answers alone say what leaks
                params = marked
            verdicts = scratch / VERDICTS
            score.run(name, params.score, root, verdicts=verdicts, warned=["forget"])
            metrics.run(name, params.metrics, root, truncated=params.sample.truncated)
            if process is not None:
                process = counted(
                    process,
                    params,
                    name,
                    source,
                    seed,
                    root,
                )
            findings = _found(
                params, root, on_traces, _base(base, splits, params, root / BASE, scratch)
            )
            if page:
                write_page(params, root)
        numbers = table.read(root, [name]).model(name)
    standing = Standing.of(Findings(tuple(findings)), name)
    assert standing.verdict is not None  # the model is under test
    return Evaluated(
        standing=standing,
        verdict=standing.verdict,
        stop=params.sample.stop,
        first=params.sample.at_first,
        skipped=skipped,
        numbers=numbers,
        attempt=attempt,
        process=process,
    )


def _found(
    params: EvaluationParams,
    root: Path,
    on_traces: Sequence[Result],
    base: RunModel | None,
) -> list[Finding]:
    """Write and return the findings on the model, beside Base where it was asked; ``on_traces`` are the rows of its word on a
    trace.
    """
    artifacts = load_models(params, root)
    if base is not None:
        artifacts = replace(artifacts, models=[*artifacts.models, base])
    findings = found(artifacts, on_traces)
    compare.write(root, [*on_traces, *paths(artifacts, root)], findings)
    return findings


def _base(
    base: Path | None,
    splits: Mapping[str, list[Row]],
    params: EvaluationParams,
    root: Path,
    scratch: Path,
) -> RunModel | None:
    """Base with its answers to the retain questions, drawn and scored in ``root`` as those of the model; None without Base.

    It gets one answer to each forget question as it is worded, of which nothing is said.
    """
    if base is None:
        return None
    write_splits(splits, BASE, root / "dataset")
    entry = ModelEntry(path=str(base))
    drawing = params.sample.model_copy(update={"stop": "fixed", "n": 1, "language": None})
    likelihood.run(BASE, drawing, entry, root)
    sample.run(BASE, drawing, entry, root, scratch=scratch / BASE, parts=params.score.parts)
    score.run(BASE, params.score, root, verdicts=scratch / VERDICTS, warned=splits)
    drawn = root / f"generations/{BASE}/retain.parquet"
    scores = root / f"scores/{BASE}/retain.parquet"
    return RunModel(BASE, "base", entry.path, answers=AnswerTables({"retain": (drawn, scores)}))


def _test_secrets(
    name: str,
    source: Origin,
    params: EvaluationParams,
    settings: Twins,
    root: Path,
    scratch: Path,
) -> Origin:
    """Write the twin test of the model where rows have twins; else remove an earlier one.

    Returns the source; a server has less to spend by what this test took. Words of an earlier call are removed. A seal that
    does not open is refused before any answer is drawn.
    """
    drawn = secrets_of(read_split("forget", root / "dataset"))
    table.place(root, "compare", "models").unlink(missing_ok=True)
    if not drawn:
        earlier = (table.place(root, "twins", name), root / "twins" / f"{name}.parquet")
        for path in earlier:
            path.unlink(missing_ok=True)
        return source
    traces.design_of(settings, drawn, root)
    stated = None
    if isinstance(source, Endpoint):
        stated = stated_by(source, drawn, params.sample.prompt, scratch)
    twins.run(
        name,
        settings,
        params.metrics.alpha,
        params.sample.prompt,
        params.models[name],
        root,
        source,
        stated,
    )
    if not isinstance(source, Endpoint) or stated is None or source.max_tokens_total is None:
        return source
    left = max(1, source.max_tokens_total - stated.spent)
    return source.model_copy(update={"max_tokens_total": left})


def _twins(key: Path | None, settings: EvaluationSettings) -> Twins:
    """The settings of the twin test of a single model, which has no control; a score that stands twice is declared once."""
    opened_key = None
    if key is not None:
        opened_key = str(key)
    scores = tuple(dict.fromkeys(settings.twin_scores))
    return Twins(control=None, key=opened_key, scores=scores)


def _word_on_traces(
    name: str, params: EvaluationParams, settings: Twins, root: Path
) -> list[Result]:
    """Return the word on a trace where rows have twins: by likelihoods, or by the answers of a server that states none."""
    if not secrets_of(read_split("forget", root / "dataset")):
        return []
    results = table.read(root, [name])
    return traces.words(
        results,
        [name],
        settings,
        params.metrics.alpha,
        models=1,
        root=root,
    )


def _draw(
    name: str,
    source: Origin,
    params: EvaluationParams,
    root: Path,
    scratch: Path,
) -> None:
    """Draw the answers that are not in ``scratch`` yet."""
    sample.run(
        name,
        params.sample,
        params.models[name],
        root,
        scratch=scratch,
        source=source,
        estimate=True,
        parts=params.score.parts,
        rule=_rule(params),
    )


def _announced(sample: SampleSettings) -> str:
    """How many answers a question gets, in words."""
    if sample.stop == "fixed":
        return plural(sample.most, "answer")
    return f"{plural(sample.at_first, 'answer')}, then up to {sample.most:,} until the word is certain,"


def _rule(params: EvaluationParams) -> Rule | None:
    """When the draws end: *forgot* or *leaks* is proved at alpha, by the scorer that says what a leak is."""
    binary = params.metrics.binary
    if params.sample.stop == "fixed" or binary is None:
        return None
    goal = math.log(1 / params.metrics.alpha)
    return Rule(params.report.tau, goal, binary, params.score.params.get(binary))


class Interrupted(LetheError):
    """Somebody stopped the evaluation; ``answers`` is the folder of the finished questions."""

    exit_status = 130  # 128 and the number of SIGINT

    def __init__(self, answers: Path):
        kept = [place for place in answers.rglob("*.json") if VERDICTS not in place.parts]
        finished = plural(len(kept), "finished question")
        super().__init__(f"Stopped; {finished} kept. The same command draws the others.")


@contextlib.contextmanager
def _place(root: Path, scratch: Path) -> Iterator[None]:
    """Hold the folder ``root``; refused input leaves no new folder behind."""
    is_new = not root.exists()

    def occupied(pid: str) -> LetheError:
        remedy = "Wait for it, or give this one a name of its own (--name)."
        return LetheError(f"Another evaluation (process {pid}) works in {root}. {remedy}")

    try:
        with alone(root / ".lock", occupied):
            yield
    except BadInput:
        has_answers = any(scratch.rglob("*.json"))
        if is_new and not has_answers:
            shutil.rmtree(root, ignore_errors=True)
        raise


def _about(
    source: Path | Endpoint, params: EvaluationParams, base: Path | None
) -> dict[str, object]:
    """The model folder, that of Base and the digest of its weights and tokenizer, the content of the prompt template (or the
    word "chat"), the kernels of the processor, and how answers are scored.
    """
    place = str(source) if isinstance(source, Endpoint) else str(source.resolve())
    score = params.score.model_dump(mode="json", include={"scorers", "keyword_match"})
    if params.score.parts is not None:
        score["thinking"] = params.score.parts.thinking
    return {
        "schema": SCHEMA_VERSION,
        "model": place,
        "base": None if base is None else {"path": str(base.resolve()), "digest": content(base)},
        "prompt": prompt_text(params.sample.prompt),
        "kernels": None if isinstance(source, Endpoint) else kernels_in_use(),
        "score": score,
        "normalisation": RULE,
    }


def evaluated_model(root: Path) -> str | None:
    """The model of which a folder has the evaluation; None where the folder does not say."""
    path = root / EVALUATED
    if not path.is_file():
        return None
    model: str = read_artifact(path)["model"]
    return model
