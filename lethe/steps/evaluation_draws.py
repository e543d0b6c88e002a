"""Which draws those of an evaluation are: their name, the try of a gate that they are, and the process that they are of."""

import secrets
from collections.abc import Sequence
from pathlib import Path

from lethe.config.measuring import Endpoint, SampleSettings
from lethe.config.schema import EvaluationParams
from lethe.io import processes, tries
from lethe.io.artifacts import Row
from lethe.io.files import read_artifact, read_text, write_text
from lethe.models.checkpoints import InMemory, Origin, content
from lethe.results import table
from lethe.results.ends import counted_rows
from lethe.results.licence import reasons_of
from lethe.sampling.prompt_language import place_of
from lethe.sampling.tasks import drawn_as, stream_of
from lethe.scoring.typography import RULE

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


def begin_try(
    params: EvaluationParams, source: Origin, forget: Sequence[Row], seed: str
) -> tries.Try:
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
    law["prompt"] = prompt_text(params.sample.prompt)
    model = content(source, language=language)
    questions = [dict(row) for row in forget]
    tested = ["eval", model, questions, law]
    draws: list[object] = [settings]
    if isinstance(source, Endpoint):
        draws.append(seed)
    return tries.begin(tested, draws, alpha)


def begin_process(
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


def counted(
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
    draws = seed
    if not isinstance(source, Endpoint):
        engine = read_artifact(root / "generations" / name / "about.json")["engine"]
        draws = drawn_as(engine, params.sample)
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


def name_of_draws(sample: SampleSettings, source: Origin, scratch: Path) -> str:
    """What names the draws of this call before any is drawn: equal names are the same draws.

    A server draws other answers wherever those of an earlier call are gone, so its draws are named by a text beside them too.
    """
    if not isinstance(source, Endpoint):
        return f"{sample.seed} {sample.engine}"
    named = scratch / DRAWS
    if not named.is_file():
        write_text(named, secrets.token_hex(16))
    return f"{sample.seed} {read_text(named)}"


def _stopping(params: EvaluationParams) -> str:
    """What may stop the draws of a question before the largest number of answers; empty where nothing does."""
    if params.sample.stop == "fixed":
        return ""
    return f"word at tau {params.report.tau}, alpha {params.metrics.alpha}"


def prompt_text(prompt: str) -> str:
    """The content of a prompt file, or the word that stands for a template."""
    place = Path(prompt)
    if not place.is_file():
        return prompt
    return place.read_text(encoding="utf-8")
