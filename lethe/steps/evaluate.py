"""The stages likelihood, sample, score, metrics, compare and report for one of the user's models, outside DVC.

`lethe eval` passes a model folder and files; `lethe.evaluate` may pass a model and rows in memory.
"""

import contextlib
import math
import secrets
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple

from lethe.config import evaluation_params
from lethe.config.evaluation import (
    FIRST_ANSWERS,
    MOST_ANSWERS,
    UNMARKED,
    EvaluationSettings,
)
from lethe.config.measuring import (
    METRICS,
    SAMPLE,
    SERVED,
    Endpoint,
    LabelsByAPerson,
    Metrics,
    ModelEntry,
    Parts,
    SampleSettings,
    is_binary,
)
from lethe.config.schema import EvaluationParams
from lethe.config.twins import Twins
from lethe.data.rows import check_splits
from lethe.data.secrets import secrets_of
from lethe.errors import BadFile, BadInput, BadParam, BadValue, LetheError, check, plural
from lethe.instruction_set import kernels_in_use
from lethe.io import processes, tries
from lethe.io.artifacts import Asked, Row, read_parts, read_split, write_splits
from lethe.io.files import (
    SCHEMA_VERSION,
    alone,
    read_artifact,
    read_text,
    write_json,
    write_text,
)
from lethe.io.judged_answers import read_calibration
from lethe.labels.labels import read_labels
from lethe.measure.answers import AnswerTables
from lethe.measure.run import RunModel, load_models
from lethe.models.checkpoints import InMemory, Origin, content, default_prompt, tokenizer_of
from lethe.models.encoding import CHAT, Encoder
from lethe.models.model import Model
from lethe.progress import tell
from lethe.report.page import write as write_page
from lethe.results import table
from lethe.results.ends import counted_rows
from lethe.results.licence import reasons_of
from lethe.results.table import Numbers, Result
from lethe.sampling.forecast import rows_within
from lethe.sampling.prompt_language import as_json, place_of, read_language
from lethe.sampling.tasks import drawn_as, stream_of
from lethe.sampling.word_rule import Rule
from lethe.scoring.parts import MARKS, marks_of
from lethe.scoring.text import rouge
from lethe.scoring.typography import RULE
from lethe.statistics.anytime import is_reached, log_above, log_below
from lethe.steps import compare, likelihood, metrics, sample, score, traces, twins
from lethe.steps.stated_secrets import stated_by
from lethe.verdict.deciding import doubt
from lethe.verdict.evidence_path import paths
from lethe.verdict.finding import Finding, Findings
from lethe.verdict.found import found
from lethe.verdict.standing import Standing
from lethe.verdict.verdict import Verdict

BASE = "base"  # the folder of Base's answers, in that of the results
VERDICTS = "verdicts"  # the folder of a judge's, beside the answers
DRAWS = "draws.txt"  # names the draws of a server, beside its answers
# Settings of the machine.
MACHINE = {
    "max_rows",
    "utility_n",
    "utility_questions",
    "row_budget",
    "vllm_from",
    "tensor_parallel",
    "data_parallel",
    "gpu_memory",
}
# Settings by which draws of the same law differ.
COUNTED = {
    "n",
    "first",
    "stop",
    "batch",
    "stream",
    "seed",
    "engine",
    "dtype",
}
EVALUATED = "evaluated.json"  # names the model folder, and what `lethe compare` must find alike on two sides

ABOVE = "above"  # the 0/1 scorer made of a graded one


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
        params = _parted(params, source)
    _check_draws(params)
    _check_files(settings, name, splits["forget"], params)
    splits, skipped = _fitting_both(source, base, splits, params.sample, settings.skip_too_long)
    _warn(splits["forget"], params)
    params = _within(settings.memory, params, source, splits)
    with _place(root, scratch):
        if not isinstance(source, InMemory):
            write_json(root / EVALUATED, _about(source, params, base))
        write_splits(splits, named, root / "dataset")
        attempt = tries.Try(1, params.metrics.alpha)
        process = None
        seed = _seed(params.sample, source, scratch)
        if page:  # a folder that ends with this call keeps no count
            attempt = _begin(params, source, splits["forget"], seed)
            if not isinstance(source, InMemory):
                process = _process(params, name, source, splits["forget"], seed)
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
                marked = _marked(params, root)
                if marked is not params and params.sample.stop == "word":
                    _draw(name, source, marked, root, scratch)  # the answers alone say what leaks
                params = marked
            verdicts = scratch / VERDICTS
            score.run(name, params.score, root, verdicts=verdicts, warned=["forget"])
            metrics.run(name, params.metrics, root, truncated=params.sample.truncated)
            if process is not None:
                process = _counted(
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


def _seed(sample: SampleSettings, source: Origin, scratch: Path) -> str:
    """What names the draws of this call before any is drawn: equal names are the same draws.

    A server draws other answers wherever those of an earlier call are gone, so its draws are named by a text beside them too.
    """
    if not isinstance(source, Endpoint):
        return f"{sample.seed} {sample.engine}"
    named = scratch / DRAWS
    if not named.is_file():
        write_text(named, secrets.token_hex(16))
    return f"{sample.seed} {read_text(named)}"


def _drawn_as(
    root: Path,
    name: str,
    sample: SampleSettings,
    source: Origin,
    seed: str,
) -> str:
    """What names the draws of this call once they are drawn."""
    engine = read_artifact(root / "generations" / name / "about.json")["engine"]
    if isinstance(source, Endpoint):
        return seed
    return drawn_as(engine, sample)


def _begin(params: EvaluationParams, source: Origin, forget: Sequence[Row], seed: str) -> tries.Try:
    """The try of these draws, written before any answer is drawn; draws of another seed or number are another try.

    A model in memory is always new.
    """
    alpha = params.metrics.alpha
    if isinstance(source, InMemory):
        return tries.Try(1, alpha)
    settings = params.sample.model_dump(mode="json", exclude=MACHINE)
    law = {name: value for name, value in settings.items() if name not in COUNTED}
    # An edited file of prompts is another test, and a moved one is the same.
    language = law.pop("language")
    if language is not None:
        language = place_of(language)
    law["prompt"] = _prompt_text(params.sample.prompt)
    model = content(source, language=language)
    questions = [dict(row) for row in forget]
    tested = ["eval", model, questions, law]
    draws: list[object] = [settings]
    if isinstance(source, Endpoint):
        draws.append(seed)
    return tries.begin(tested, draws, alpha)


def _process(
    params: EvaluationParams,
    name: str,
    source: Origin,
    forget: Sequence[Row],
    seed: str,
) -> processes.Process:
    """The process of this model, tokenizer, drawing law, questions and scorer, in which this call's draws are now begun.

    A server may answer with other weights under the same name, so its process ends with the answers that the folder keeps.
    """
    independent = params.sample.model_copy(update={"stream": "independent"})
    drawn_from = stream_of(source, independent, params.models[name])
    scoring = params.score.model_dump(mode="json", include={"scorers", "keyword_match", "parts"})
    questions = [dict(row) for row in forget]
    model = content(source)  # the template of a chat is the tokenizer's
    tested: list[object] = [
        "eval",
        model,
        drawn_from,
        questions,
        params.metrics.binary,
        scoring,
        RULE,
    ]
    if isinstance(source, Endpoint):
        _, _, server = seed.partition(" ")
        tested.append(server)
    return processes.begin(tested, seed, params.sample.most, rule=_stopping(params))


def _stopping(params: EvaluationParams) -> str:
    """What may stop the draws of a question before the largest number of answers; empty where nothing does."""
    if params.sample.stop == "fixed":
        return ""
    return f"word at tau {params.report.tau}, alpha {params.metrics.alpha}"


def _counted(
    process: processes.Process,
    params: EvaluationParams,
    name: str,
    source: Origin,
    seed: str,
    root: Path,
) -> processes.Process:
    """The process with the counts of this call. Draws of which nothing may be claimed stay out, in later calls too."""
    counts: dict[str, processes.QuestionCounts] = {}
    if not reasons_of(table.read(root, [name]).model(name)):
        counts = _counts(root, name)
    draws = _drawn_as(root, name, params.sample, source, seed)
    return process.with_counts(seed, counts, params.sample.most, _stopping(params), draws)


def _counts(root: Path, name: str) -> dict[str, processes.QuestionCounts]:
    """The leaks that the 0/1 scorer found in all sampled answers to each question."""
    counts = {}
    rows = table.read(root, [name]).rows(name)
    for item, row in counted_rows(rows, ("anytime", "sampled")).items():
        facts = row.facts
        counts[item] = processes.QuestionCounts(
            facts["leaks"], facts["n"], facts.get("missing") or 0
        )
    return counts


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
        "prompt": _prompt_text(params.sample.prompt),
        "kernels": None if isinstance(source, Endpoint) else kernels_in_use(),
        "score": score,
        "normalisation": RULE,
    }


def _prompt_text(prompt: str) -> str:
    """The content of a prompt file, or the word that stands for a template."""
    place = Path(prompt)
    if not place.is_file():
        return prompt
    return place.read_text(encoding="utf-8")


def evaluated_model(root: Path) -> str | None:
    """The model of which a folder has the evaluation; None where the folder does not say."""
    path = root / EVALUATED
    if not path.is_file():
        return None
    model: str = read_artifact(path)["model"]
    return model


def _check_files(
    settings: EvaluationSettings, name: str, forget: Sequence[Row], params: EvaluationParams
) -> None:
    """Raises a sentence where a file that the evaluation reads late is unusable: prompts, calibration, labels."""
    if params.sample.language is not None:
        described = as_json(read_language(params.sample.language), forget)
        wordings = plural(len(described["productions"]), "wording")
        tell(
            f"{params.sample.language}: each answer is to a random one of {wordings}. Bounds and word cover this "
            "distribution of wordings, and no single wording."
        )
        for choice, count in described["left_out"].items():
            without = plural(count, "question")
            tell(f"Left out: {choice}, for {without} whose answer or keyword its words hold.")
    if settings.calibration is not None:
        needed = "left out where no forget question has keywords"
        check(params.metrics.binary is not None, "calibration", settings.calibration, needed)
        read_calibration(settings.calibration, missing="worst")
    folder = params.metrics.labels.folder
    if folder is not None:
        place = Path(folder, f"{name}.jsonl")
        if not place.is_file():
            raise BadFile(
                place, "is no file", f"`lethe label data/eval/{name}/generations/{name}` writes it."
            )
        read_labels(place)


def _fitting_both(
    source: Origin,
    base: Path | None,
    splits: Mapping[str, list[Row]],
    sample: SampleSettings,
    skip: bool,
) -> tuple[dict[str, list[Row]], tuple[str, ...]]:
    """The rows whose prompts the contexts of the model and of Base hold, and the ids of the others, as of `_fitting`."""
    asked, skipped = _fitting(source, splits, sample, skip)
    if base is None:
        return asked, skipped
    asked, long_for_base = _fitting(base, asked, sample, skip, holder="Base")
    return asked, skipped + long_for_base


def _fitting(
    source: Origin,
    splits: Mapping[str, list[Row]],
    sample: SampleSettings,
    skip: bool,
    holder: str = "the model",
) -> tuple[dict[str, list[Row]], tuple[str, ...]]:
    """The rows whose prompts the context of ``source`` holds, and the ids of the others; without ``skip`` these are refused.

    An unusable model or prompt, and answers that the context cannot hold, are refused here too, before anything is written;
    the ``holder`` of the context is what errors call the source.
    """
    if isinstance(source, Endpoint):
        return dict(splits), ()
    described = Model.of(source)
    encoder = Encoder(described.tokenizer, sample.prompt)
    context = described.context
    if context is None:
        return dict(splits), ()
    asked: dict[str, list[Row]] = {}
    long: dict[str, int] = {}  # tokens of the questions that the context cannot hold
    least: _Room | None = None
    for split, rows in splits.items():
        asked[split] = []
        for row in rows:
            turns = _followups(row) if split == "forget" else ()
            tokens = len(_last_prompt(encoder, row, turns))
            if tokens >= context:
                long[row["id"]] = tokens
                continue
            asked[split].append(row)
            room = _Room((context - tokens) // (1 + len(turns)), row["id"], tokens)
            if least is None or room.answer < least.answer:
                least = room

    if long and not skip:
        first = next(iter(long))
        more = ""
        if len(long) > 1:
            more = f" and {len(long) - 1} more"
        raise BadInput(
            f"Question {first!r}{more}: got {long[first]} tokens, {holder}'s context is {context}. Shorten the text, "
            "or leave such questions out (--skip-too-long)."
        )
    _check_some_left(splits, asked, f"{holder}'s context of {context}")
    if long:
        tell(f"Left out as too long for {holder}: {', '.join(map(repr, long))}.")
    if least is not None and least.answer < sample.longest:
        legal = (
            f"at most {least.answer}: {holder}'s context is {context} tokens and question {least.question!r} has "
            f"{least.tokens}"
        )
        raise BadValue("max_new_tokens", sample.longest, legal)
    return asked, tuple(long)


def _check_some_left(
    splits: Mapping[str, list[Row]], asked: Mapping[str, list[Row]], context: str
) -> None:
    """Raises a sentence where a split has questions, and none of them is ``asked``."""
    for split, rows in splits.items():
        if rows and not asked[split]:
            raise BadInput(f"Every {split} question has more tokens than {context}: none is left.")


class _Room(NamedTuple):
    """How many tokens an answer to a question may have, so that the last prompt and its answer fit."""

    answer: int
    question: str
    tokens: int  # of the last prompt, without the answers before it


def _followups(row: Row) -> Sequence[str]:
    return row.get("followups") or []


def _last_prompt(encoder: Encoder, row: Row, followups: Sequence[str]) -> tuple[int, ...]:
    """The tokens of the last prompt of a conversation, whose answers are empty."""
    questions: list[Asked] = [row]
    for text in followups:
        questions.append(Asked(question=text))
    *earlier, last = questions
    return encoder.conversation(last, before=[(question, "") for question in earlier])


def _parted(params: EvaluationParams, source: Path | InMemory) -> EvaluationParams:
    """The params with the marks of thinking: those given, else those of the chat template."""
    tokenizer = tokenizer_of(source)
    parts = params.score.parts
    if parts is None and params.sample.prompt == CHAT:
        parts = marks_of(tokenizer)
    if parts is None:
        return params
    lost = set(parts.thinking) & set(tokenizer.all_special_tokens)
    if lost:
        raise BadInput(
            f"The tokenizer drops {', '.join(sorted(lost))} from texts, so thinking cannot be told from answers."
        )
    prompt = Encoder(tokenizer, params.sample.prompt).text({"question": "?"})
    opening, _ = parts.thinking
    opened = prompt.rstrip().endswith(opening)
    return _with_parts(params, parts.model_copy(update={"opened": opened}))


def _with_parts(params: EvaluationParams, parts: Parts) -> EvaluationParams:
    score = params.score.model_copy(update={"parts": parts})
    return params.model_copy(update={"score": score})


def _marked(params: EvaluationParams, root: Path) -> EvaluationParams:
    """The params with the marks of thinking that a server's answers have."""
    for path in sorted((root / "generations").glob("*/forget.parquet")):
        texts: list[str] = []
        for part in read_parts(path, ["prompt_id", "text"]):
            texts.extend(part["text"].dropna())
        for marks in MARKS:
            opening, ending = marks
            thinking = [text for text in texts if ending in text]
            if thinking:
                # where no text has the first mark, the prompt opens each thinking
                opened = not any(opening in text for text in thinking)
                return _with_parts(params, Parts(thinking=marks, opened=opened))
    return params


def _within(
    memory: int, params: EvaluationParams, source: Origin, splits: Mapping[str, list[Row]]
) -> EvaluationParams:
    """The params with as many rows in flight as the memory holds, if the longest question is asked in each."""
    if not isinstance(source, (Path, InMemory)):
        return params
    sample = params.sample
    encoder = Encoder(tokenizer_of(source), sample.prompt)
    longest = 0
    for row in chain(*splits.values()):
        turns = _followups(row)
        tokens = len(_last_prompt(encoder, row, turns)) + (1 + len(turns)) * sample.longest
        longest = max(longest, tokens)
    rows = rows_within(memory, source, longest, sample.dtype)
    sample = sample.model_copy(update={"max_rows": min(rows, sample.max_rows)})
    return params.model_copy(update={"sample": sample})


def _check_draws(params: EvaluationParams) -> None:
    """Refuse a number of answers with which no answers at all would earn a word."""
    if params.metrics.binary is None:
        return
    most = params.sample.most
    tau = params.report.tau
    goal = math.log(1 / params.metrics.alpha)
    if is_reached(float(log_below(0, most, tau)), goal):
        return
    least = 1
    while not is_reached(float(log_above(least, least, tau)), goal):
        least += 1
    if most < least:
        name = "n" if params.sample.stop == "fixed" else "answers_at_most"
        legal = f"at least {least}: with fewer answers each model stays open at tau {tau:g}"
        raise BadValue(name, most, legal)


def _warn(forget: Sequence[Mapping], params: EvaluationParams) -> None:
    """Say what of the questions no number will be about."""
    for sentence in rouge.doubts(forget):
        tell(sentence)
    warning = doubt(params)
    if warning:
        tell(warning)
    without = [row["id"] for row in forget if not row.get("keywords")]
    if without and params.metrics.binary == "keyword_leak":
        tell(
            f"Without keywords: {len(without)} of {plural(len(forget), 'forget question')} (the first is "
            f"{without[0]!r}): keyword leak judges the others only."
        )
    if params.sample.language is None and any(row.get("paraphrased_question") for row in forget):
        tell("paraphrased_question is not asked: only a language of prompts reads it (--language).")


def params_of(
    settings: EvaluationSettings,
    name: str,
    source: Origin,
    forget: Sequence[Row],
    prompt: str,
) -> EvaluationParams:
    """All parameters of an evaluation: the settings, and what model and questions decide where a setting is None."""
    scorer = settings.scorer
    if scorer is None and any(row.get("keywords") for row in forget):
        scorer = "keyword_leak"
    scorers: list[object] = ["rouge_l"]
    binary = scorer
    if scorer is not None and is_binary(scorer):
        scorers.append(scorer)
    elif scorer is not None:
        binary = ABOVE
        scorers.append({ABOVE: {"scorer": scorer, "above": settings.above}})

    leak = METRICS.leak
    if settings.judge is not None:
        judge, judging = settings.judge
        scorers.append({judge: judging})
        if is_binary(judge, {judge: judging}):
            binary = judge
        else:
            leak = judge
            binary = None

    model: dict[str, object] = {"path": str(source)}
    if isinstance(source, Endpoint):
        model = {"path": SERVED, "served": source}
    has_followups = any(row.get("followups") for row in forget)
    number = _number_of_answers(settings, binary, has_followups)
    drawing = SampleSettings(
        temperature=settings.temperature,
        top_p=settings.top_p,
        top_k=settings.top_k,
        max_new_tokens=settings.max_new_tokens,
        max_thinking_tokens=settings.max_thinking_tokens,
        engine=settings.engine,
        prompt=prompt,
        seed=settings.seed,
        language=settings.language,
        stop=number.stop,
        first=number.first,
        n=number.most,
        utility_n=min(number.first, SAMPLE.utility_n),
        dtype=settings.dtype,
    )
    calibration = settings.calibration if binary else None
    measuring = Metrics(
        alpha=settings.alpha,
        leak=leak,
        binary=binary,
        calibration=calibration,
        labels=LabelsByAPerson(folder=settings.labels),
    )
    try:
        return evaluation_params(
            models={name: model},
            sample=drawing,
            score={"scorers": scorers, "parts": settings.parts},
            metrics=measuring,
            report=settings.report,
        )
    except BadParam as error:
        if error.key != f"models.{name}":
            raise
        remedy = "The default is the name of the model folder; --name gives another."
        raise BadValue("name", error.got, error.legal, remedy) from None


@dataclass(frozen=True)
class _Number:
    """How many answers a forget question gets: ``first`` in any case, and up to ``most`` until the word is certain."""

    stop: Literal["fixed", "word"]
    first: int
    most: int


def _number_of_answers(
    settings: EvaluationSettings, binary: str | None, has_followups: bool
) -> _Number:
    """As many as the word takes, unless a number was given or no sequence of answers decides it."""
    most = settings.answers_at_most
    why = _why_fixed(settings, binary, has_followups)
    if why is None:
        cap = MOST_ANSWERS if most is None else most
        return _Number("word", first=min(FIRST_ANSWERS, cap), most=cap)
    legal = f"left out: {why}, and the number of answers is fixed"
    check(most is None, "answers_at_most", most, legal)
    n = SAMPLE.most if settings.n is None else settings.n
    return _Number("fixed", first=n, most=n)


def _why_fixed(settings: EvaluationSettings, binary: str | None, has_followups: bool) -> str | None:
    """Why the number of answers is fixed before they are drawn; None where the word may decide it."""
    if settings.n is not None:
        return "n is given"
    if settings.judge is not None:
        return "a judge's verdicts earn no word without a person's labels"
    if binary is None:
        return "no question has keywords, so that an answer is neither a leak nor none"
    if settings.language is not None:
        return "a language of prompts is asked"
    if has_followups:
        return "a question has followups"
    if settings.calibration is not None:
        return "a calibration corrects the word"
    return None
