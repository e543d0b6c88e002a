"""Which tries the words and the attacks of a run are."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from flows.record import DATA, FORGET, StageEnd, drawn_from, is_up_to_date
from lethe import config
from lethe.config.measuring import SampleSettings, columns_of
from lethe.config.schema import Params, Population
from lethe.identity import content_digest
from lethe.io import tries
from lethe.io.files import Json, read_artifact, restored
from lethe.io.tries import Declared
from lethe.results import table
from lethe.results.population import PopulationResult
from lethe.verdict.finding import FORGETTING, Findings
from lethe.verdict.standing import REFERENCE


def read_populations(
    root: Path, stages: Mapping[str, StageEnd]
) -> dict[str, PopulationResult | None]:
    """The declared populations of attacks by their names; None for one that did not end among the stages of a run."""
    entries = config.load(root / config.FILE).attacks
    results: dict[str, PopulationResult | None] = {}
    for name, entry in entries.items():
        stage = f"attack@{name}"
        if not isinstance(entry, Population):
            continue
        results[name] = None
        if is_up_to_date(stages, stage):
            record = read_artifact(root / DATA / "attacks" / name / "result.json")
            results[name] = restored(PopulationResult, record)
    return results


def try_of(root: Path, name: str, result: PopulationResult) -> Declared:
    """Which try of a population this is: each seed after a result is another, on the same model, questions and recipe."""
    entry = config.load(root / config.FILE).attacks[name]
    questions = content_digest(root / DATA / "dataset/forget.jsonl")
    model = content_digest(root / entry.path)
    tested = ["attack", model, questions, result.scorer, dict(result.recipe)]
    return tries.declare(tested, dataclasses.asdict(result), result.alpha, root / tries.FOLDER)


def tries_of_words(
    root: Path, stages: Mapping[str, StageEnd], params: Params
) -> dict[str, Declared]:
    """Which try of the word on each model under test this run is; empty where the words are not this run's.

    The same weights, tokenizer, drawing law, forget questions and scorer are one test. Another seed of the answers, and
    another Retrain beside them, is another try; more answers of a seed are the same one, since the word holds at any time. A
    try counts whether or not a gate asked for it: whoever read the word has tried it.
    """
    if not is_up_to_date(stages, "compare"):
        return {}
    questions = ""
    if (root / DATA / FORGET).is_file():
        questions = content_digest(root / DATA / FORGET)
    scorer = params.metrics.binary or params.metrics.leak
    attempts: dict[str, Declared] = {}
    for finding in Findings.of(table.compared(root / DATA)).asked(FORGETTING):
        if finding.outcome == REFERENCE:
            continue
        name = finding.model
        model = drawn_from(root, [name])[name] or params.models[name].model_dump(mode="json")
        tested = ["forgot", model, questions, scorer, _judging(params, scorer)]
        draws: list[Json] = []
        for drawn in (name, *params.report.retrains):
            draws.append(_draws_of(root, drawn, params.sample))
        verdict = finding.details["verdict"]
        if verdict is not None and not verdict["anytime"]:  # each look at more evidence is a try
            draws.append([verdict["drawn"], verdict["log_e_forgot"], verdict["log_e_leaks"]])
        alpha = params.metrics.alpha
        attempts[name] = tries.declare(tested, draws, alpha, root / tries.FOLDER)
    return attempts


def _judging(params: Params, scorer: str) -> Json:
    """How the column of a scorer judges an answer: the parameters of the scorer, or of its entry of judges."""
    for name, judge in params.judges.items():
        if scorer in [name + ending for ending in judge.endings]:
            return judge.model_dump(mode="json", exclude={"labelled"})
    for name, parameters in params.score.params.items():
        if scorer in columns_of(name):
            return parameters.model_dump(mode="json")
    return None


def _draws_of(root: Path, name: str, sample: SampleSettings) -> Json:
    """What makes a model's answers other draws: seed, weights and law, the answers that share a stream, and where an engine's
    numbers are its own, the engine, device and rows of a call.

    A server without seeds draws again whenever it is asked: its draws are named by the time of their first.
    """
    from lethe.sampling.tasks import drawn_as

    path = root / DATA / "generations" / name / "about.json"
    if not path.is_file():
        return None
    about = read_artifact(path)
    served = about.get("served")
    if served is not None:
        first = None if served.get("seeded") else served["first"]
        return [about["seed"], about["stream"], "served", first]
    drawn = sample.model_copy(update={"seed": about["seed"]})
    return [drawn_as(about["engine"], drawn), about["stream"], sample.batch]
