"""Stage `exact@MODEL` and `lethe exact`: bounds on P(leak) from next-token probabilities, question by question."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lethe.config.evaluating import EXACT, SAMPLE, Drawing, Exact, Exploring, Threshold
from lethe.config.fields import Direct
from lethe.errors import BadInput, plural

if TYPE_CHECKING:
    from lethe.config.evaluating import Endpoint, Model, Sample
    from lethe.io.artifacts import Row
    from lethe.models.in_memory import Source
    from lethe.sampling.answer_tree import Effort, Law, Question
    from lethe.sampling.answer_tree.asking import Asker
    from lethe.sampling.predictor import ModelPredictor
    from lethe.statistics.leak_trees import AnswerTree, Certificates, How

MIB = 1 << 20


class ExactSettings(Direct, Exact, Drawing):
    """The settings of exact bounds and of the answers that they are about.

    ``prompt`` is a template file or "chat"; None as in `lethe eval`.
    """

    scorer: str = EXACT.scorer  # `check_scorer` says more of a judge than the schema does
    adaptive_threshold: Threshold | None = None
    keyword_match: Literal["word", "substring"] = "word"
    prompt: str | None = None
    dtype: str = SAMPLE.dtype
    max_rows: int = SAMPLE.max_rows

    def effort(self) -> Effort:
        from lethe.sampling.answer_tree import Effort

        return Effort(**{name: getattr(self, name) for name in Exploring.model_fields})

    def law(self, end_ids: tuple[int, ...]) -> Law:
        from lethe.sampling.answer_tree import Law

        names = (*Drawing.model_fields, "adaptive_threshold")
        return Law(end_ids, **{name: getattr(self, name) for name in names})


class NothingToJudge(BadInput):
    def __init__(self, rows: int, scorer: str):
        why = ": none has keywords" if scorer == "keyword_leak" else ""
        super().__init__(
            f"None of {plural(rows, 'question')} can be judged by {scorer}{why}. Give keywords, or another scorer "
            "(exact_match, rouge_l)."
        )


class HasTurns(BadInput):
    def __init__(self, question: str):
        super().__init__(
            f"Exact bounds read one answer, and question {question!r} has follow-up questions: sample it (lethe eval), or "
            "leave out followups."
        )


class ThinksAloud(BadInput):
    def __init__(self) -> None:
        super().__init__(
            "Exact bounds cannot tell thinking from the answer, and this model's chat template has thinking: sample it "
            "(lethe eval), or name a prompt file."
        )


def run(
    name: str,
    exact: Exact | None,
    sample: Sample,
    model: Model,
    keyword_match: Literal["word", "substring"],
    root: Path = Path("data"),
) -> None:
    """Write ``root/results/exact/name.parquet``.

    If ``exact`` is None, no question can be judged, or the model has no key-value cache, the table has one row: the reason.
    """
    from lethe.io.artifacts import read_split
    from lethe.results import table
    from lethe.results.exact_bounds import rows_of
    from lethe.sampling.predictor import NoKeys
    from lethe.sampling.store import SCRATCH

    certificates, reason = None, "exact is null"
    if exact is not None and model.served:
        reason = "a served model has no weights here, and lethe exact --endpoint walks what its server states"
    elif exact is not None:
        rows = read_split("forget", root / "dataset")
        try:
            certificates = certify(
                name, Path(model.path), rows, of_params(exact, sample, model, keyword_match), SCRATCH
            )
        except (NothingToJudge, NoKeys, ThinksAloud, HasTurns) as refusal:
            reason = str(refusal)
    without = [table.result(name, "model", "queried", "exact", text=reason)]
    table.write(table.place(root, "exact", name), rows_of(certificates) if certificates else without)
    print(f"{name}: {' '.join(certificates.sentences()[:3]) if certificates else f'no exact bounds: {reason}'}")


def of_params(
    exact: Exact, sample: Sample, model: Model, keyword_match: Literal["word", "substring"]
) -> ExactSettings:
    names = (*Drawing.model_fields, "prompt", "dtype", "max_rows")
    return ExactSettings(
        **exact.model_dump(),
        **{name: getattr(sample, name) for name in names},
        adaptive_threshold=model.adaptive_threshold,
        keyword_match=keyword_match,
    )


def refuse_turns(rows: Sequence[Row]) -> None:
    if talking := next((row["id"] for row in rows if row.get("followups")), None):
        raise HasTurns(talking)


def certify(
    name: str, source: Source, rows: Sequence[Row], settings: ExactSettings, scratch: Path | None = None
) -> Certificates:
    from lethe.models.checkpoints import prepare_torch
    from lethe.models.encoding import CHAT
    from lethe.models.in_memory import default_prompt
    from lethe.sampling.answer_tree import enumerate_answers
    from lethe.sampling.answer_tree.asking import Asker, check_scorer, question_about
    from lethe.sampling.engine import Options
    from lethe.sampling.predictor import ModelPredictor
    from lethe.scoring import marks_of
    from lethe.statistics.leak_trees import Certificates

    refuse_turns(rows)
    effort = settings.effort()
    check_scorer(settings.scorer, settings.above)
    prepare_torch()
    options = Options(dtype=settings.dtype, max_rows=settings.max_rows)
    predictor = ModelPredictor(source, options, settings.memory * MIB)
    law = settings.law(predictor.checkpoint.end_ids)
    asker = Asker(predictor.checkpoint, settings.prompt or default_prompt(source), settings.keyword_match)
    if asker.encoder.template == CHAT and marks_of(asker.tokenizer):
        raise ThinksAloud
    asked = {row["id"]: question_about(asker, row, settings.scorer, settings.above) for row in rows}
    questions = [question for question in asked.values() if question is not None]
    skipped = tuple(key for key, question in asked.items() if question is None)
    if not questions:
        raise NothingToJudge(len(rows), settings.scorer)
    _check_lengths(questions, predictor, settings)
    how = _how(settings, predictor, questions)
    finished: MutableMapping[str, dict] = {}
    if scratch is not None:
        judged = [row for row in rows if row["id"] not in skipped]
        finished = _finished(
            scratch, source, settings, (law, effort, how, predictor.forward.device.type), asker, questions, judged
        )
    trees = tuple(
        enumerate_answers(questions, law, predictor, effort, how.logit_allowance, finished, label=f"exact {name}")
    )
    if scratch is not None:
        finished.clear()
    return Certificates(name, trees, how, settings.tau, skipped)


def certify_served(
    name: str, endpoint: Endpoint, rows: Sequence[Row], settings: ExactSettings, most: int
) -> Certificates:
    """The certain ends of each question of a served model, with at most ``most`` requests for one."""
    import time

    from lethe.models.encoding import CHAT
    from lethe.sampling.answer_tree.asking import check_scorer, leak_of
    from lethe.sampling.endpoint import time_of
    from lethe.sampling.endpoint_client import Client
    from lethe.sampling.endpoint_client import run as finish
    from lethe.sampling.endpoint_tree import TOP, Walker, asked_about
    from lethe.statistics.leak_trees import Certificates, How

    refuse_turns(rows)
    check_scorer(settings.scorer, settings.above)
    if (settings.temperature, settings.top_p, settings.top_k) != (1.0, 1.0, 0):
        raise BadInput(
            "A server states its probabilities at temperature 1 without cuts: leave out temperature, top_p, top_k."
        )
    questions = [
        asked
        for row in rows
        if (asked := asked_about(row, settings.scorer, settings.above, settings.keyword_match)) is not None
    ]
    if not questions:
        raise NothingToJudge(len(rows), settings.scorer)
    drawing = settings.max_new_tokens, settings.alpha, settings.queries

    async def walk() -> tuple[AnswerTree, ...]:
        async with Client(endpoint, chat=False) as client:
            await client.alive("the first", retries=0)
            walker = Walker(client, settings.prompt or CHAT)
            return tuple([await walker.tree(one, most, *drawing) for one in questions])

    began = time.time()
    trees = finish(walk())
    note = (
        f"Every end is as the server at {endpoint.endpoint} states its probabilities, served between {time_of(began)} and "
        f"{time_of(time.time())}: {sum(tree.rows for tree in trees):,} requests. It names at most {TOP} tokens a step, so an "
        "upper end is 1 minus the clean mass that was walked."
    )
    how = How(
        leak=leak_of(settings.scorer, settings.above),
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        adaptive_threshold=None,
        max_new_tokens=settings.max_new_tokens,
        dtype="as served",
        logit_allowance=0.0,
        note=note,
    )
    skipped = tuple({row["id"] for row in rows} - {one.row["id"] for one in questions})
    return Certificates(name, trees, how, settings.tau, tuple(sorted(skipped)))


def _check_lengths(questions: Sequence[Question], predictor: ModelPredictor, settings: ExactSettings) -> None:
    from lethe.sampling.engine import Prompt, Settings, check_prompts

    prompts = [Prompt(question.question_id, question.prompt) for question in questions]
    drawn = Settings(n=1, max_new_tokens=settings.max_new_tokens)
    check_prompts(prompts, drawn, predictor.checkpoint.context, predictor.vocabulary)


def _how(settings: ExactSettings, predictor: ModelPredictor, questions: Sequence[Question]) -> How:
    import numpy as np

    from lethe.sampling.answer_tree.asking import leak_of
    from lethe.sampling.predictor import measured_allowance
    from lethe.statistics.leak_trees import How

    prompts = [np.array(question.prompt) for question in questions]
    measured = measured_allowance(predictor, prompts, settings.max_new_tokens)
    note = ""
    if predictor.dtype != "float32":
        note = (
            f"The model computes in {predictor.dtype}: every bound is about the probabilities as computed here, whose logits "
            f"differ by up to {measured:.2g} between batches of other sizes."
        )
    drawing = {name: getattr(settings, name) for name in (*Drawing.model_fields, "adaptive_threshold")}
    allowance = 0.0 if note else measured
    leak = leak_of(settings.scorer, settings.above)
    return How(leak=leak, **drawing, dtype=predictor.dtype, logit_allowance=allowance, note=note)


def _finished(
    scratch: Path,
    source: Source,
    settings: ExactSettings,
    decisive: tuple[Any, ...],
    asker: Asker,
    questions: Sequence[Question],
    rows: Sequence[Mapping[str, Any]],
) -> MutableMapping[str, dict]:
    from lethe.io.cache import Kept, cache_key, module_of, versions
    from lethe.registry import SCORERS
    from lethe.sampling.store import LIBRARIES, model_digest

    key = cache_key(
        "lethe.sampling.answer_tree",
        "lethe.sampling.answer_tree.asking",
        "lethe.sampling.predictor",
        module_of(SCORERS[settings.scorer]),
        settings=list(decisive),
        model=model_digest(source),
        scorer=[settings.scorer, settings.above, asker.match],
        room=[settings.memory, settings.max_rows],
        questions=[[question.question_id, question.prompt, question.seeds] for question in questions],
        rows=[dict(row) for row in rows],
        libraries=versions(*LIBRARIES),
    )
    return Kept(scratch, key)
