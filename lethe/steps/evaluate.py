"""The stages likelihood, sample, score, metrics and report for one of the user's models, outside DVC.

`lethe eval` passes a model folder and files; `lethe.evaluate` may pass a model and rows in memory.
"""

import contextlib
import secrets
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from lethe.config import evaluation_params
from lethe.config.evaluation import UNMARKED, EvaluationSettings
from lethe.config.measuring import (
    SAMPLE,
    SERVED,
    Endpoint,
    LabelsByAPerson,
    Metrics,
    Parts,
    Sample,
    is_binary,
)
from lethe.config.schema import EvaluationParams
from lethe.data.prompt_language import as_json, read_language
from lethe.data.rows import check_splits
from lethe.errors import BadFile, BadInput, BadParam, BadValue, LetheError, check, plural
from lethe.io import tries
from lethe.io.artifacts import Asked, Row, read_parts, write_splits
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
from lethe.measure.run import load
from lethe.models.checkpoints import InMemory, Origin, content, default_prompt, tokenizer_of
from lethe.models.encoding import CHAT, Encoder
from lethe.models.model import Model
from lethe.progress import tell
from lethe.results.table import Numbers
from lethe.sampling.forecast import rows_within
from lethe.scoring.parts import MARKS, marks_of
from lethe.scoring.text import rouge
from lethe.scoring.typography import RULE
from lethe.statistics.bounds import binary_lower, binary_upper
from lethe.steps import likelihood, metrics, report, sample, score
from lethe.verdict.claims import findings
from lethe.verdict.rules import level_of
from lethe.verdict.standing import doubt, standings

DRAWS = "draws.txt"  # names the draws of a server, beside its answers
# Settings of the machine, and those by which draws of one law differ.
MACHINE = {"max_rows", "utility_n", "utility_questions", "row_budget", "vllm_from"}
MACHINE |= {"tensor_parallel", "data_parallel"}
COUNTED = {"n", "seed", "engine", "dtype"}
EVALUATED = "evaluated.json"  # names the model folder, and what `lethe compare` must find alike on two sides

ABOVE = "above"  # the 0/1 scorer made of a graded one


@dataclass(frozen=True)
class Evaluated:
    """What an evaluation found: the words and the sentence of the verdict, and the numbers that it rests on.

    ``skipped`` are the questions that the model's context cannot hold; where there is a reason in ``refused``, nothing is
    claimed; ``attempt`` is which set of draws of this model on these questions this is.
    """

    verdict: str
    forgetting: str
    utility: str
    tau: float
    skipped: tuple[str, ...]
    refused: tuple[str, ...]
    numbers: Numbers
    attempt: tries.Try


def checked(
    forget: Sequence[Row], retain: Sequence[Row] | None, source: Path
) -> dict[str, list[Row]]:
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
) -> Evaluated:
    """Sample, score and measure a model, with its artifacts in ``root`` and finished questions in ``scratch``.

    ``named`` is the name of the data on the ``page``, which is written where it is wanted.
    """
    prompt = settings.prompt or default_prompt(source)
    params = params_of(settings, name, source, splits["forget"], prompt)
    if isinstance(source, (Path, InMemory)) and settings.thinking != UNMARKED:
        params = _parted(params, source)
    _check_draws(params)
    _check_files(settings, name, splits["forget"], params)
    splits, skipped = _fitting(source, splits, params.sample, settings.skip_too_long)
    _warn(splits["forget"], params)
    params = _within(settings.memory, params, source, splits)
    with _place(root, scratch):
        if not isinstance(source, InMemory):
            write_json(root / EVALUATED, _about(source, params))
        write_splits(splits, named, root / "dataset")
        attempt = tries.Try(1, params.metrics.alpha)
        if page:  # a folder that ends with this call keeps no count
            attempt = _begin(params, source, splits["forget"], scratch)
        # The stages' messages are for people; standard output is reserved for the result.
        with contextlib.redirect_stdout(sys.stderr):
            answers = plural(params.sample.most, "answer")
            questions = plural(len(splits["forget"]), "forget question")
            print(f"{name}: {answers} to each of {questions}; finished ones are in {scratch}")
            likelihood.run(name, params.sample, params.models[name], root, source=source)
            sample.run(
                name,
                params.sample,
                params.models[name],
                root,
                scratch=scratch,
                source=source,
                estimate=True,
                parts=params.score.parts,
            )
            if isinstance(source, Endpoint) and settings.thinking is None:
                params = _marked(params, root)
            verdicts = scratch / "verdicts"
            score.run(name, params.score, root, verdicts=verdicts, warned=["forget"])
            metrics.run(name, params.metrics, root, truncated=params.sample.truncated)
            report_params = params.report.model_copy(update={"look": attempt.number})
            params = params.model_copy(update={"report": report_params})
            if page:
                report.run(params, root)
        run = load(params, root, {})
    (model,) = run.models
    (standing,) = standings(run, findings(run))
    tau = params.report.tau if standing.verdict is None else standing.verdict.tau
    return Evaluated(
        verdict=standing.sentence,
        forgetting=standing.word,
        utility=standing.utility.word,
        tau=tau,
        skipped=skipped,
        refused=model.refused,
        numbers=model.numbers,
        attempt=attempt,
    )


def _begin(
    params: EvaluationParams, source: Origin, forget: Sequence[Row], scratch: Path
) -> tries.Try:
    """The try of these draws, written before any answer is drawn; draws of another seed or number are another try.

    A model in memory is always new. A server draws other answers wherever those of an earlier call are gone, so the draws of
    a server are named by a text beside its answers.
    """
    alpha = params.metrics.alpha
    if isinstance(source, InMemory):
        return tries.Try(1, alpha)
    settings = params.sample.model_dump(mode="json", exclude=MACHINE)
    law = {name: value for name, value in settings.items() if name not in COUNTED}
    # An edited file of prompts is another test, and a moved one is the same.
    language = law.pop("language")
    law["prompt"] = _prompt_text(params.sample.prompt)
    model = content(source, language=None if language is None else Path(language))
    tested = ["eval", model, [dict(row) for row in forget], law]
    draws: list[object] = [settings]
    if isinstance(source, Endpoint):
        named = scratch / DRAWS
        if not named.is_file():
            write_text(named, secrets.token_hex(16))
        draws.append(read_text(named))
    return tries.begin(tested, draws, alpha)


class Interrupted(LetheError):
    exit_status = 130  # 128 and the number of SIGINT

    def __init__(self, answers: Path):
        finished = len(list(answers.rglob("*.json")))
        super().__init__(
            f"Stopped; {plural(finished, 'finished question')} kept. The same command draws the others."
        )


@contextlib.contextmanager
def _place(root: Path, scratch: Path) -> Iterator[None]:
    """Hold the folder ``root``; refused input leaves no new folder behind."""
    new, remedy = not root.exists(), "Wait for it, or give this one a name of its own (--name)."
    try:
        with alone(
            root / ".lock",
            lambda pid: LetheError(f"Another evaluation (process {pid}) works in {root}. {remedy}"),
        ):
            yield
    except BadInput:
        if new and not any(scratch.rglob("*.json")):
            shutil.rmtree(root, ignore_errors=True)
        raise


def _about(source: Path | Endpoint, params: EvaluationParams) -> dict[str, object]:
    """The model folder, the content of the prompt template (or the word "chat"), and how answers are scored."""
    return {
        "schema": SCHEMA_VERSION,
        "model": str(source if isinstance(source, Endpoint) else source.resolve()),
        "prompt": _prompt_text(params.sample.prompt),
        "score": params.score.model_dump(mode="json", include={"scorers", "keyword_match"})
        | ({} if params.score.parts is None else {"thinking": params.score.parts.thinking}),
        "normalisation": RULE,
    }


def _prompt_text(prompt: str) -> str:
    place = Path(prompt)
    return place.read_text(encoding="utf-8") if place.is_file() else prompt


def evaluated_model(root: Path) -> str | None:
    path = root / EVALUATED
    return read_artifact(path)["model"] if path.is_file() else None


def _check_files(
    settings: EvaluationSettings, name: str, forget: Sequence[Row], params: EvaluationParams
) -> None:
    if params.sample.language is not None:
        as_json(read_language(params.sample.language), forget)
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


def _fitting(
    source: Origin, splits: Mapping[str, list[Row]], sample: Sample, skip: bool
) -> tuple[dict[str, list[Row]], tuple[str, ...]]:
    """The rows whose prompts the model's context holds, and the ids of the others; without ``skip`` these are refused.

    An unusable model, and answers that the context cannot hold, are refused here too, before anything is written.
    """
    if isinstance(source, Endpoint):
        return dict(splits), ()
    described = Model.of(source)
    encoder, context = Encoder(described.tokenizer, sample.prompt), described.context
    if context is None:
        return dict(splits), ()
    turns = defaultdict(list, {row["id"]: row.get("followups") or [] for row in splits["forget"]})
    lengths = {
        row["id"]: len(_last_prompt(encoder, row, turns[row["id"]]))
        for row in chain(*splits.values())
    }
    long = tuple(name for name, length in lengths.items() if length >= context)
    if long and not skip:
        more = f" and {len(long) - 1} more" if len(long) > 1 else ""
        raise BadInput(
            f"Question {long[0]!r}{more}: got {lengths[long[0]]} tokens, the model's context is {context}. Shorten the text, "
            "or leave such questions out (--skip-too-long)."
        )
    asked = {
        split: [row for row in rows if row["id"] not in long] for split, rows in splits.items()
    }
    if not asked["forget"]:
        raise BadInput(
            f"Every forget question has more tokens than the model's context of {context}: none is left."
        )
    if long:
        tell(f"Left out as too long for the model: {', '.join(map(repr, long))}.")
    rooms = {
        name: (context - lengths[name]) // (1 + len(turns[name]))
        for name in lengths
        if name not in long
    }
    longest = min(rooms, key=rooms.__getitem__)
    if (room := rooms[longest]) < sample.longest:
        legal = f"at most {room}: the model's context is {context} tokens and question {longest!r} has {lengths[longest]}"
        raise BadValue("max_new_tokens", sample.longest, legal)
    return asked, long


def _last_prompt(encoder: Encoder, row: Row, followups: Sequence[str]) -> tuple[int, ...]:
    questions: list[Asked] = [row, *(Asked(question=text) for text in followups)]
    return encoder.conversation(
        questions[-1], before=[(question, "") for question in questions[:-1]]
    )


def _parted(params: EvaluationParams, source: Path | InMemory) -> EvaluationParams:
    """The params with the marks of thinking: those given, else those of the chat template."""
    tokenizer, score = tokenizer_of(source), params.score
    parts = score.parts or (marks_of(tokenizer) if params.sample.prompt == CHAT else None)
    if parts is None:
        return params
    if lost := set(parts.thinking) & set(tokenizer.all_special_tokens):
        raise BadInput(
            f"The tokenizer drops {', '.join(sorted(lost))} from texts, so thinking cannot be told from answers."
        )
    prompt = Encoder(tokenizer, params.sample.prompt).text({"question": "?"})
    parts = parts.model_copy(update={"opened": prompt.rstrip().endswith(parts.thinking[0])})
    return params.model_copy(update={"score": score.model_copy(update={"parts": parts})})


def _marked(params: EvaluationParams, root: Path) -> EvaluationParams:
    """The params with the marks of thinking that a server's answers have."""
    for table in sorted((root / "generations").glob("*/forget.parquet")):
        texts = [
            text
            for part in read_parts(table, ["prompt_id", "text"])
            for text in part["text"].dropna()
        ]
        marks = next((marks for marks in MARKS if any(marks[1] in text for text in texts)), None)
        if marks:  # where no text has the first one, the prompt opens each thinking
            opened = not any(marks[0] in text for text in texts if marks[1] in text)
            score = params.score.model_copy(update={"parts": Parts(thinking=marks, opened=opened)})
            return params.model_copy(update={"score": score})
    return params


def _within(
    memory: int, params: EvaluationParams, source: Origin, splits: Mapping[str, list[Row]]
) -> EvaluationParams:
    """The params with as many rows in flight as the memory holds, if the longest question is asked in each."""
    if not isinstance(source, (Path, InMemory)):
        return params
    encoder, sample = Encoder(tokenizer_of(source), params.sample.prompt), params.sample
    longest = max(
        len(_last_prompt(encoder, row, turns)) + (1 + len(turns)) * sample.longest
        for row in chain(*splits.values())
        for turns in [row.get("followups") or []]
    )
    rows = rows_within(memory, source, longest, sample.dtype)
    return params.model_copy(
        update={"sample": sample.model_copy(update={"max_rows": min(rows, sample.max_rows)})}
    )


def _check_draws(params: EvaluationParams) -> None:
    most, tau, level = params.sample.most, params.report.tau, level_of(params.metrics.alpha)
    if params.metrics.binary and binary_lower(most, most, level) <= tau < binary_upper(
        0, most, level
    ):
        least = next(n for n in range(most + 1, most + 1000) if binary_lower(n, n, level) > tau)
        raise BadValue(
            "n", most, f"at least {least}: with fewer answers each model stays open at tau {tau:g}"
        )


def _warn(forget: Sequence[Mapping], params: EvaluationParams) -> None:
    for sentence in rouge.doubts(forget):
        tell(sentence)
    if warning := doubt(params):
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
    settings: EvaluationSettings, name: str, source: Origin, forget: Sequence[Row], prompt: str
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

    model: dict[str, object] = {"path": str(source)}
    if isinstance(source, Endpoint):
        model = {"path": SERVED, "served": source}
    drawing = Sample(
        temperature=settings.temperature,
        top_p=settings.top_p,
        top_k=settings.top_k,
        max_new_tokens=settings.max_new_tokens,
        max_thinking_tokens=settings.max_thinking_tokens,
        engine=settings.engine,
        prompt=prompt,
        seed=settings.seed,
        language=settings.language,
        n=settings.n,
        utility_n=min(settings.n, SAMPLE.utility_n),
        dtype=settings.dtype,
    )
    measuring = Metrics(
        alpha=settings.alpha,
        binary=binary,
        calibration=settings.calibration if binary else None,
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
