"""Stage `exact@MODEL` and `lethe exact`: bounds on P(leak) from next-token probabilities, question by question."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from lethe.config.fields import Direct
from lethe.config.measuring import (
    EXACT,
    SAMPLE,
    Drawing,
    Endpoint,
    Exact,
    Exploring,
    Model,
    Sample,
    Threshold,
)
from lethe.errors import BadInput, plural
from lethe.identity import module_of
from lethe.io.artifacts import Row, read_split
from lethe.models.checkpoints import Source, default_prompt, prepare_torch
from lethe.models.encoding import CHAT
from lethe.progress import duration, tell
from lethe.registry import SCORERS
from lethe.results import table
from lethe.results.exact_bounds import rows_of
from lethe.results.licence import Source as Known
from lethe.results.licence import failed_of, refusals
from lethe.sampling import engine
from lethe.sampling.answer_tree import Effort, Law, TreeQuestion, enumerate_answers
from lethe.sampling.answer_tree.asking import Asker, check_scorer, leak_of, rule_of
from lethe.sampling.endpoint import show_probes, time_of
from lethe.sampling.endpoint_client import Client
from lethe.sampling.endpoint_client import run as finish
from lethe.sampling.endpoint_probes import Probe, identity, probe
from lethe.sampling.endpoint_tree import TOP, Walker
from lethe.scoring.parts import marks_of
from lethe.scoring.typography import RULE
from lethe.statistics.leak_trees import AnswerTree, Certificates, How

if TYPE_CHECKING:
    from lethe.sampling.predictor import ModelPredictor

MIB = 1 << 20
STEP_SECONDS = 20.0  # of a request for one token
PILOT = 64  # rows whose time gives that of all
WORTH = 1 << 14  # rows; less work ends before an estimate helps
READ = (
    "lethe.sampling.answer_tree",
    "lethe.sampling.answer_tree.asking",
    "lethe.sampling.predictor",
)
LAW = (*Drawing.model_fields, "adaptive_threshold")  # what decides the probability of an answer


class ExactSettings(Direct, Exact, Drawing):
    """The settings of exact bounds and of the answers; ``prompt``: a template file or "chat", None as in `lethe eval`."""

    scorer: str = EXACT.scorer  # `check_scorer` says more of a judge than the schema does
    adaptive_threshold: Threshold | None = None
    keyword_match: Literal["word", "substring"] = "word"
    prompt: str | None = None
    dtype: str = SAMPLE.dtype
    max_rows: int = SAMPLE.max_rows


class NoBounds(BadInput):
    """Why a model or its questions have no exact bounds."""


def nothing_to_judge(rows: int, scorer: str) -> NoBounds:
    why = ": none has keywords" if scorer == "keyword_leak" else ""
    return NoBounds(
        f"None of {plural(rows, 'question')} can be judged by {scorer}{why}. Give keywords, or another scorer "
        "(exact_match, rouge_l)."
    )


def run(
    name: str,
    exact: Exact | None,
    sample: Sample,
    model: Model,
    keyword_match: Literal["word", "substring"],
    root: Path = Path("data"),
) -> None:
    """Write ``root/results/exact/name.parquet``; where there are no bounds it has one row, the reason."""
    certificates, reason = None, "exact is null"
    if exact is not None and model.served:
        reason = "a served model has no weights here, and lethe exact --endpoint walks what its server states"
    elif exact is not None:
        rows = read_split("forget", root / "dataset")
        try:
            settings = of_params(exact, sample, model, keyword_match)
            certificates = certify(name, Path(model.path), rows, settings, engine.SCRATCH)
        except (NoBounds, engine.NoKeys) as refusal:
            reason = str(refusal)
    without = [table.result(name, "model", "queried", "exact", text=reason)]
    table.write(
        table.place(root, "exact", name), rows_of(certificates) if certificates else without
    )
    print(
        f"{name}: {' '.join(certificates.sentences()[:3]) if certificates else f'no exact bounds: {reason}'}"
    )


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
        raise NoBounds(
            f"Exact bounds read one answer, and question {talking!r} has follow-up questions: sample it (lethe eval), or "
            "leave out followups."
        )


def certify(
    name: str,
    source: Source,
    rows: Sequence[Row],
    settings: ExactSettings,
    scratch: Path | None = None,
    estimate: bool = False,
) -> Certificates:
    """The answer tree of each question; ``estimate`` prints time and memory beforehand, from a pilot."""
    from lethe.sampling.predictor import ModelPredictor, measured_allowance

    refuse_turns(rows)
    effort = Effort(**{name: getattr(settings, name) for name in Exploring.model_fields})
    check_scorer(settings.scorer, settings.above)
    prepare_torch()
    options = engine.Options(dtype=settings.dtype, max_rows=settings.max_rows)
    predictor = ModelPredictor(source, options, settings.memory * MIB)
    law = Law(predictor.checkpoint.end_ids, **{name: getattr(settings, name) for name in LAW})
    asker = Asker(
        predictor.checkpoint, settings.prompt or default_prompt(source), settings.keyword_match
    )
    if asker.encoder.template == CHAT and marks_of(asker.tokenizer):
        raise NoBounds(
            "Exact bounds cannot tell thinking from the answer, and this model's chat template has thinking: sample it "
            "(lethe eval), or name a prompt file."
        )
    if ends := predictor.checkpoint.end_texts:
        raise NoBounds(
            f"Exact bounds read an answer up to a single token that ends it, and this model ends a turn with {ends[0]!r}, "
            "which is several tokens: sample it (lethe eval)."
        )
    asked = {row["id"]: asker.ask(row, settings.scorer, settings.above) for row in rows}
    questions = [question for question in asked.values() if question is not None]
    if not questions:
        raise nothing_to_judge(len(rows), settings.scorer)
    prompts = [engine.Prompt(question.question_id, question.prompt) for question in questions]
    drawn = engine.Settings(n=1, max_new_tokens=settings.max_new_tokens)
    engine.check_prompts(prompts, drawn, predictor.checkpoint.context, predictor.vocabulary)
    starts = [np.array(question.prompt) for question in questions]
    how = _how(
        settings, predictor.dtype, measured_allowance(predictor, starts, settings.max_new_tokens)
    )
    finished = engine.finished_of(
        scratch,
        source,
        *READ,
        module_of(SCORERS[settings.scorer]),
        settings=[law, effort, how, predictor.forward.device.type],
        scorer=[settings.scorer, settings.above, settings.keyword_match, RULE],
        room=[settings.memory, settings.max_rows],
        questions=[
            [question.question_id, question.prompt, question.seeds] for question in questions
        ],
        rows=[dict(row) for row in rows if asked[row["id"]] is not None],
    )
    if estimate and settings.rows * len(questions) >= WORTH:
        _announce(predictor, questions, settings)
    trees = tuple(
        enumerate_answers(
            questions, law, predictor, effort, how.logit_allowance, finished, label=f"exact {name}"
        )
    )
    finished.clear()
    skipped = tuple(key for key, question in asked.items() if question is None)
    return Certificates(name, trees, how, settings.tau, skipped)


def certify_served(
    name: str, endpoint: Endpoint, rows: Sequence[Row], settings: ExactSettings, most: int
) -> Certificates:
    """The certain ends of each question of a served model, with at most ``most`` requests for one.

    The ends are about a server whose answers come as often as it states, so it is probed before the walk as it is before
    draws, and its first steps are read again after it; a failed probe refuses every end.
    """
    refuse_turns(rows)
    check_scorer(settings.scorer, settings.above)
    if (settings.temperature, settings.top_p, settings.top_k) != (1.0, 1.0, 0):
        raise BadInput(
            "A server states its probabilities at temperature 1 without cuts: leave out temperature, top_p, top_k."
        )
    rules = [rule_of(row, settings.scorer, settings.above, settings.keyword_match) for row in rows]
    questions = [(row, rule) for row, rule in zip(rows, rules, strict=True) if rule is not None]
    if not questions:
        raise nothing_to_judge(len(rows), settings.scorer)
    drawing = settings.max_new_tokens, settings.alpha, settings.queries
    prompt = settings.prompt or CHAT
    hasty = endpoint.model_copy(update={"timeout": min(endpoint.timeout, STEP_SECONDS)})

    async def walk() -> tuple[tuple[AnswerTree, ...], tuple[Probe, ...]]:
        async with Client(hasty, chat=False) as client:
            await client.alive("the first", retries=0)
            walker = Walker(client, prompt)
            await walker.ids(rows[0])  # a server that cannot be walked says so before the probes
            probes = await probe(Client(hasty, chat=prompt == CHAT))
            trees = [await walker.tree(row, rule, most, *drawing) for row, rule in questions]
            drift = await walker.drift()
            walker.models.update(probes.models)
            return tuple(trees), (*probes.tried, identity(walker.models), drift)

    began = time.time()
    trees, probes = finish(walk())
    show_probes(probes)
    failed = failed_of(asdict(one) for one in probes)
    note = (
        f"Every end is as the server at {endpoint.endpoint} states its probabilities, served between {time_of(began)} and "
        f"{time_of(time.time())}: {sum(tree.rows for tree in trees):,} requests. It names at most {TOP} tokens a step, so an "
        "upper end is 1 minus the clean mass that was walked."
    )
    how = replace(_how(settings, "as served", 0.0), adaptive_threshold=None, note=note)
    skipped = tuple(
        sorted(row["id"] for row, rule in zip(rows, rules, strict=True) if rule is None)
    )
    refused = refusals(Known(failed_probes_of_walk=failed))
    return Certificates(name, trees, how, settings.tau, skipped, tuple(refused))


def _announce(
    predictor: ModelPredictor, questions: Sequence[TreeQuestion], settings: ExactSettings
) -> None:
    prompt = np.tile(np.array(questions[len(questions) // 2].prompt), (PILOT, 1))
    predictor.begin(prompt, prompt.shape[1] + settings.max_new_tokens)
    begun = time.perf_counter()
    predictor.step(prompt[:, -1])
    seconds = (time.perf_counter() - begun) / PILOT * settings.rows * len(questions)
    tell(
        f"{plural(len(questions), 'question')} of about {settings.rows:,} rows take about {duration(seconds)} and beside "
        f"the model at most {settings.memory:,} MiB of memory (a pilot of {PILOT} rows)."
    )


def _how(settings: ExactSettings, dtype: str, measured: float) -> How:
    note = ""
    if dtype != "float32":
        note = (
            f"The model computes in {dtype}: every bound is about the probabilities as computed here, whose logits "
            f"differ by up to {measured:.2g} between batches of other sizes."
        )
    drawing = {name: getattr(settings, name) for name in LAW}
    leak, allowance = leak_of(settings.scorer, settings.above), 0.0 if note else measured
    return How(leak=leak, **drawing, dtype=dtype, logit_allowance=allowance, note=note)
