"""The parameters of an evaluation, which its settings, its model and its questions decide, and what is refused of them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lethe.config import evaluation_params
from lethe.config.evaluation import FIRST_ANSWERS, MOST_ANSWERS, EvaluationSettings
from lethe.config.measuring import (
    METRICS,
    SAMPLE,
    SERVED,
    Endpoint,
    LabelsByAPerson,
    Metrics,
    Parts,
    SampleSettings,
    is_binary,
)
from lethe.config.schema import EvaluationParams
from lethe.errors import BadFile, BadInput, BadParam, BadValue, check, plural
from lethe.io.artifacts import Row, read_parts
from lethe.io.judged_answers import read_calibration
from lethe.labels.labels import read_labels
from lethe.models.checkpoints import InMemory, Origin, tokenizer_of
from lethe.models.encoding import CHAT, Encoder
from lethe.progress import tell
from lethe.sampling.prompt_language import as_json, read_language
from lethe.scoring.parts import MARKS, marks_of
from lethe.scoring.text import rouge
from lethe.statistics.anytime import is_reached, log_above, log_below
from lethe.verdict.deciding import doubt

ABOVE = "above"  # the 0/1 scorer made of a graded one


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


def parted(params: EvaluationParams, source: Path | InMemory) -> EvaluationParams:
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


def marked_by_answers(params: EvaluationParams, root: Path) -> EvaluationParams:
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


def check_draws(params: EvaluationParams) -> None:
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


def check_files(
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


def warn(forget: Sequence[Mapping], params: EvaluationParams) -> None:
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
