"""Results of `evaluate`, `bounds` and `exact` as files of Every Eval Ever."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lethe import __version__
from lethe.io.artifacts import GREEDY, joined_parts, read_items
from lethe.io.files import Json, read_artifact
from lethe.report.every_eval_ever import Export, Exported, Instance, export
from lethe.results import table
from lethe.results.licence import reasons_of

if TYPE_CHECKING:
    from lethe.api.bounding import Bounds
    from lethe.api.probabilities import ExactBounds

GENERATION = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "max_new_tokens": "max_tokens",
    "max_tokens": "max_tokens",
    "prompt": "prompt_template",
}
ENGINE = ("engine", "dtype", "seed", "stop")


def export_run(run: Path, model: str, data: str, folder: Path) -> Exported:
    """Write a model's results in the folder of one `lethe eval`, and its sampled answers.

    ``data`` is the name of the questions' file.
    """
    drawn = read_artifact(run / "generations" / model / "about.json")
    sha256_of_split = {}
    for split in sorted((run / "dataset").glob("*.jsonl")):
        sha256_of_split[split.stem] = hashlib.sha256(split.read_bytes()).hexdigest()
    results = table.read(run, [model])
    refused = reasons_of(results.model(model))
    engine: dict[str, str] = {}
    for key in ENGINE:
        if drawn.get(key) is not None:
            engine[key] = str(drawn[key])
    if refused:
        engine["refused"] = " ".join(refused)
    evaluated = Export(
        model=model,
        suite=Path(data).stem,
        rows=results.rows(model),
        time=int(time.time()),
        version=__version__,
        data_sha256=sha256_of_split.pop("forget"),
        sha256_of_split=sha256_of_split,
        is_served=bool(drawn.get("served")),
        generation=_generation({**drawn, "prompt": _template(run)}),
        engine=engine,
    )
    scorer = str(results.scorers(model).get("leak"))
    return export(folder, evaluated, _answers(run, model, scorer))


def _generation(settings: Mapping[str, Json]) -> dict[str, Json]:
    """The settings that the form has a key for; a log states some as texts or lists, which it has not."""
    found = {}
    for ours, theirs in GENERATION.items():
        value = settings.get(ours)
        kinds = (str,) if ours == "prompt" else (int, float)
        if isinstance(value, kinds):
            found[theirs] = value
    return found


def _template(run: Path) -> str | None:
    """The prompt template of a folder of `lethe eval`, or the word chat; None where the folder does not say."""
    path = run / "evaluated.json"
    if not path.is_file():
        return None
    template: str | None = read_artifact(path).get("prompt")
    return template


def _answers(run: Path, model: str, scorer: str) -> Iterator[Instance]:
    """The sampled answers of a run, never the greedy ones."""
    rows = read_items("forget", run)
    drawn = run / "generations" / model / "forget.parquet"
    scores = run / "scores" / model / "forget.parquet"
    for part in joined_parts(drawn, scores, ["text", "tokens", "finish_reason", scorer]):
        for answer in part.to_dict("records"):
            question = str(answer["prompt_id"])
            if answer["sample"] == GREEDY or scorer not in answer or question not in rows:
                continue
            row = rows[question]
            yield Instance(
                question=question,
                asked=row["question"],
                references=row.get("keywords") or [row["answer"]],
                sample=int(answer["sample"]),
                text=_present(answer["text"]),
                tokens=_whole(answer["tokens"]),
                finish_reason=_present(answer["finish_reason"]),
                scorer=scorer,
                score=_present(answer[scorer]),
            )


def _present(value: Json) -> Json:
    """The value of a cell; None for a missing one."""
    if value != value:  # NaN
        return None
    return value


def _whole(value: Json) -> int | None:
    """A count in a cell; None for a missing one."""
    present = _present(value)
    if present is None:
        return None
    return int(present)


def export_bounds(result: Bounds, scores: Path, folder: Path) -> Exported:
    """Write the bounds of a file of scores, whose model is that of the log, if it names one."""
    model, suite = None, None
    engine: dict[str, str] = {}
    generation: dict[str, Json] = {}
    if result.log is not None:
        log = result.log.log
        model, suite = log.model, log.task
        engine["tool"] = str(log.tool)
        generation = _generation(log.sampling)
    evaluated = Export(
        model=model or "unknown",
        suite=suite or scores.stem,
        rows=result.rows(),
        time=int(time.time()),
        version=__version__,
        data_sha256=_sha256(scores),
        generation=generation,
        engine=engine,
    )
    return export(folder, evaluated)


def export_trees(
    result: ExactBounds, model: Path, data: Path, folder: Path, prompt: str | None = None
) -> Exported:
    """Write the bounds of answer trees; ``prompt`` is the template that was asked for, None for that of the model."""
    from lethe.models.checkpoints import default_prompt
    from lethe.models.encoding import template_of

    if prompt is None and model.is_dir():
        prompt = default_prompt(model)
    template = None if prompt is None else template_of(prompt)
    how = result.certificates.how
    evaluated = Export(
        model=model.name,
        suite=data.stem,
        rows=result.rows(),
        time=int(time.time()),
        version=__version__,
        data_sha256=_sha256(data),
        generation=_generation({**vars(how), "prompt": template}),
        engine={"engine": "answer tree", "dtype": how.dtype, "leak": how.leak},
    )
    return export(folder, evaluated)


def _sha256(path: Path) -> str | None:
    if not path.is_file():
        return None
    return hashlib.sha256(path.read_bytes()).hexdigest()
