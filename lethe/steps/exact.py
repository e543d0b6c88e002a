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
    ModelEntry,
    SampleSettings,
    Threshold,
)
from lethe.errors import BadInput, plural
from lethe.identity import module_of
from lethe.io import tries
from lethe.io.artifacts import Row, read_split, version_of_questions
from lethe.models.checkpoints import (
    Source,
    check,
    check_unchanged,
    content,
    default_prompt,
    prepare_torch,
)
from lethe.models.encoding import CHAT
from lethe.models.endpoint_client import Client
from lethe.models.endpoint_client import run as finish
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
from lethe.sampling.endpoint_probes import Probe, identity, probe
from lethe.sampling.endpoint_tree import TOP, Walker
from lethe.scoring.parts import marks_of
from lethe.scoring.typography import RULE
from lethe.statistics.leak_trees import AnswerTree, Certificates, How, Version

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
    """The refusal of ``rows`` questions of which the scorer can judge none."""
    why = ""
    if scorer == "keyword_leak":
        why = ": none has keywords"
    return NoBounds(
        f"None of {plural(rows, 'question')} can be judged by {scorer}{why}. Give keywords, or another scorer "
        "(exact_match, rouge_l)."
    )


def run(
    name: str,
    exact: Exact | None,
    sample: SampleSettings,
    model: ModelEntry,
    keyword_match: Literal["word", "substring"],
    root: Path = Path("data"),
) -> None:
    """Write ``root/results/exact/name.parquet``; where there are no bounds it has one row, the reason."""
    certificates = None
    reason = "exact is null"
    before = ""
    if exact is not None and model.served:
        reason = "a served model has no weights here, and lethe exact --endpoint walks what its server states"
    elif exact is not None:
        rows = read_split("forget", root / "dataset")
        settings = of_params(exact, sample, model, keyword_match)
        before = content(check(model.path))
        try:
            certificates = certify(name, Path(model.path), rows, settings, engine.SCRATCH)
        except (NoBounds, engine.NoKeys) as refusal:
            reason = str(refusal)

    place = table.place(root, "exact", name)
    if certificates is None:
        table.write(place, [table.result(name, "model", "queried", "exact", text=reason)])
        print(f"{name}: no exact bounds: {reason}")
        return
    check_unchanged(Path(model.path), before)
    of = Version(before, version_of_questions(root / "dataset"))
    table.write(place, rows_of(replace(certificates, of=of, repeat=_repeat(certificates, of))))
    print(f"{name}: {' '.join(certificates.sentences()[:3])}")


def _repeat(certificates: Certificates, of: Version) -> int | None:
    """Which sample of these weights and questions the trees have, as the folder counts them; None without a sample.

    More rows, another seed or another law make another sample. Equal trees are the sample that they were. Where the folder
    cannot count, a printed sentence says so, and the sample counts as the first.
    """
    sampled = [asdict(tree.remainder) for tree in certificates.trees if tree.remainder.rho > 0]
    if not sampled:
        return None
    tested = ["sample of an answer tree", of.model, of.questions]
    masses = [asdict(tree.masses) for tree in certificates.trees]
    attempt = tries.begin(tested, [sampled, masses], certificates.trees[0].alpha)
    if not attempt.kept:
        print(f"{certificates.name}: {attempt.sentence()}")
    return attempt.number


def of_params(
    exact: Exact,
    sample: SampleSettings,
    model: ModelEntry,
    keyword_match: Literal["word", "substring"],
) -> ExactSettings:
    """The settings of exact bounds of a pipeline's model, which draws as its samples are drawn."""
    names = (*Drawing.model_fields, "prompt", "dtype", "max_rows")
    drawn_as = {name: getattr(sample, name) for name in names}  # no other setting is read
    return ExactSettings(
        **exact.model_dump(),
        **drawn_as,
        adaptive_threshold=model.adaptive_threshold,
        keyword_match=keyword_match,
    )


def refuse_turns(rows: Sequence[Row]) -> None:
    """Raises `NoBounds` where a question has follow-up questions."""
    for row in rows:
        if row.get("followups"):
            raise NoBounds(
                f"Exact bounds read one answer, and question {row['id']!r} has follow-up questions: sample it "
                "(lethe eval), or leave out followups."
            )


def certify(
    name: str,
    source: Source,
    rows: Sequence[Row],
    settings: ExactSettings,
    scratch: Path | None = None,
    estimate: bool = False,
) -> Certificates:
    """The answer tree of each question.

    Parameters
    ----------
    name
        The model, as the rows call it.
    source
        The folder of the model, or the model in memory.
    rows
        The questions; those that the scorer cannot judge are skipped.
    settings
        The drawing law, the scorer, and how much is explored and sampled.
    scratch
        A folder for finished questions, which are not computed again; None keeps none.
    estimate
        Whether to print time and memory beforehand, from a pilot.

    Raises
    ------
    NoBounds
        If the model or its questions have no exact bounds.
    """
    from lethe.sampling.predictor import ModelPredictor, measured_allowance

    refuse_turns(rows)
    check_scorer(settings.scorer, settings.above)
    prepare_torch()
    options = engine.Options(dtype=settings.dtype, max_rows=settings.max_rows)
    predictor = ModelPredictor(source, options, settings.memory * MIB)
    checkpoint = predictor.checkpoint
    prompt = settings.prompt or default_prompt(source)
    asker = Asker(checkpoint, prompt, settings.keyword_match)
    _check_ends(asker, checkpoint.end_texts)

    questions: list[TreeQuestion] = []
    judged: list[Row] = []
    skipped: list[str] = []
    for row in rows:
        question = asker.ask(row, settings.scorer, settings.above)
        if question is None:
            skipped.append(row["id"])
            continue
        questions.append(question)
        judged.append(row)
    if not questions:
        raise nothing_to_judge(len(rows), settings.scorer)
    prompts = [engine.Prompt(question.question_id, question.prompt) for question in questions]
    drawn = engine.Settings(n=1, max_new_tokens=settings.max_new_tokens)
    engine.check_prompts(prompts, drawn, checkpoint.context, predictor.vocabulary)

    effort = Effort(**settings.model_dump(include=set(Exploring.model_fields)))
    law = Law(checkpoint.end_ids, **settings.model_dump(include=set(LAW)))
    starts = [np.array(question.prompt) for question in questions]
    allowance = measured_allowance(predictor, starts, settings.max_new_tokens)
    how = _how(settings, predictor.dtype, allowance)
    keys = [[question.question_id, question.prompt, question.seeds] for question in questions]
    finished = engine.finished_of(
        scratch,
        source,
        *READ,
        module_of(SCORERS[settings.scorer]),
        settings=[law, effort, how, predictor.forward.device.type],
        scorer=[settings.scorer, settings.above, settings.keyword_match, RULE],
        room=[settings.memory, settings.max_rows],
        questions=keys,
        rows=[dict(row) for row in judged],
    )
    if estimate and settings.rows * len(questions) >= WORTH:
        _announce(predictor, questions, settings)
    trees = enumerate_answers(
        questions,
        law,
        predictor,
        effort,
        how.logit_allowance,
        finished,
        label=f"exact {name}",
    )
    certificates = Certificates(name, tuple(trees), how, settings.tau, tuple(skipped))
    finished.clear()
    return certificates


def _check_ends(asker: Asker, end_texts: Sequence[str]) -> None:
    """Raises `NoBounds` where an answer does not begin with the first token, or does not end with a single one."""
    if asker.encoder.template == CHAT and marks_of(asker.tokenizer):
        raise NoBounds(
            "Exact bounds cannot tell thinking from the answer, and this model's chat template has thinking: sample it "
            "(lethe eval), or name a prompt file."
        )
    if end_texts:
        raise NoBounds(
            "Exact bounds read an answer up to a single token that ends it, and this model ends a turn with "
            f"{end_texts[0]!r}, which is several tokens: sample it (lethe eval)."
        )


def certify_served(
    name: str,
    endpoint: Endpoint,
    rows: Sequence[Row],
    settings: ExactSettings,
    most: int,
) -> Certificates:
    """The certain ends of each question of a served model.

    The ends are about a server whose answers come as often as it states, so it is probed before the walk as it is before
    draws, and its first steps are read again after it; a failed probe refuses every end.

    Parameters
    ----------
    name
        The model, as the rows call it.
    endpoint
        The server and its limits.
    rows
        The questions; those that the scorer cannot judge are skipped.
    settings
        The scorer and the level; the drawing law must be that of the server.
    most
        The largest number of requests for a question.

    Raises
    ------
    BadInput
        If the settings are none that a server states.
    NoBounds
        If the questions have no exact bounds.
    """
    refuse_turns(rows)
    check_scorer(settings.scorer, settings.above)
    if (settings.temperature, settings.top_p, settings.top_k) != (1.0, 1.0, 0):
        raise BadInput(
            "A server states its probabilities at temperature 1 without cuts: leave out temperature, top_p, top_k."
        )
    questions = []
    skipped = []
    for row in rows:
        rule = rule_of(row, settings.scorer, settings.above, settings.keyword_match)
        if rule is None:
            skipped.append(row["id"])
        else:
            questions.append((row, rule))
    if not questions:
        raise nothing_to_judge(len(rows), settings.scorer)
    drawing = (settings.max_new_tokens, settings.alpha, settings.queries)
    prompt = settings.prompt or CHAT
    hasty = endpoint.model_copy(update={"timeout": min(endpoint.timeout, STEP_SECONDS)})

    async def walk() -> tuple[tuple[AnswerTree, ...], tuple[Probe, ...]]:
        async with Client(hasty, chat=False) as client:
            await client.alive("the first", retries=0)
            walker = Walker(client, prompt)
            await walker.ids(rows[0])  # a server that cannot be walked says so before the probes
            probes = await probe(Client(hasty, chat=prompt == CHAT))
            trees = []
            for row, rule in questions:
                tree = await walker.tree(row, rule, most, *drawing)
                trees.append(tree)
            drift = await walker.drift()
            walker.models.update(probes.models)
            return tuple(trees), (*probes.tried, identity(walker.models, endpoint.name), drift)

    began = time.time()
    trees, probes = finish(walk())
    show_probes(probes)
    requests = sum(tree.rows for tree in trees)
    note = (
        f"Every end is as the server at {endpoint.endpoint} states its probabilities, served between {time_of(began)} and "
        f"{time_of(time.time())}: {requests:,} requests. It names at most {TOP} tokens a step, so an "
        "upper end is 1 minus the clean mass that was walked."
    )
    how = replace(_how(settings, "as served", 0.0), adaptive_threshold=None, note=note)
    failed = failed_of(map(asdict, probes))
    refused = refusals(Known(failed_probes_of_walk=failed))
    return Certificates(
        name,
        trees,
        how,
        settings.tau,
        tuple(sorted(skipped)),
        tuple(refused),
    )


def _announce(
    predictor: ModelPredictor, questions: Sequence[TreeQuestion], settings: ExactSettings
) -> None:
    """Say what the trees will take, by the time of `PILOT` rows of the question in the middle."""
    middle = questions[len(questions) // 2]
    prompt = np.tile(np.array(middle.prompt), (PILOT, 1))
    predictor.begin(prompt, prompt.shape[1] + settings.max_new_tokens)
    begun = time.perf_counter()
    predictor.step(prompt[:, -1])
    seconds_a_row = (time.perf_counter() - begun) / PILOT
    seconds = seconds_a_row * settings.rows * len(questions)
    tell(
        f"{plural(len(questions), 'question')} of about {settings.rows:,} rows take about {duration(seconds)} and beside "
        f"the model at most {settings.memory:,} MiB of memory (a pilot of {PILOT} rows)."
    )


def _how(settings: ExactSettings, dtype: str, measured: float) -> How:
    """How the trees are asked for; ``measured`` is the largest error of a logit, which bounds in float32 allow for."""
    note = ""
    allowance = measured
    if dtype != "float32":
        allowance = 0.0
        note = (
            f"The model computes in {dtype}: every bound is about the probabilities as computed here, whose logits "
            f"differ by up to {measured:.2g} between batches of other sizes."
        )
    return How(
        leak=leak_of(settings.scorer, settings.above),
        **settings.model_dump(include=set(LAW)),
        dtype=dtype,
        logit_allowance=allowance,
        note=note,
    )
