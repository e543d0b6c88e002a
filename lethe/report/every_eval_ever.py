"""Results as files of Every Eval Ever 0.3.0: an aggregate file a model, and a file with a line a sampled answer.

A row has both ends of its interval there, since the form requires them: an end that does not exist is the least or largest
value, and ``details`` says which ends exist. Where that value is infinite the form holds no interval, and the end that exists
stands in ``details``. A row without a direction, and one without a finite number, is left out and
counted.
"""

import hashlib
import json
import math
import re
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lethe.certificates.envelope import canonical
from lethe.io.files import Json, atomic_file, write_json
from lethe.results.table import Result

VERSION = "0.3.0"
COLLECTION = "lethe"
FORGET = "forget"
ENDLESS = ("-Infinity", "Infinity")
RANGE_OF_UNIT: Mapping[str, tuple[float | str, float | str]] = {
    "probability": (0.0, 1.0),
    "score": (0.0, 1.0),
    "0 or 1": (0.0, 1.0),
    "count": (0.0, ENDLESS[1]),
    "deviation": (0.0, ENDLESS[1]),
}


@dataclass(frozen=True)
class Export:
    """What is exported: the rows of a model, its name, and what is known of the data and of how the answers were drawn.

    ``generation`` are the arguments of a generation by the names of that form, ``engine`` further facts. ``data_sha256`` is
    of the forget set's file, and ``sha256_of_split`` of those of the other splits. ``time`` is in seconds since 1970,
    ``version`` that of Lethe.
    """

    model: str
    suite: str
    rows: Sequence[Result]
    time: int
    version: str
    developer: str = "local"
    data_sha256: str | None = None
    sha256_of_split: Mapping[str, str] = field(default_factory=dict)
    is_served: bool = False
    generation: Mapping[str, Json] = field(default_factory=dict)
    engine: Mapping[str, str] = field(default_factory=dict)

    @property
    def model_id(self) -> str:
        return f"{self.developer}/{self.model}"

    @property
    def evaluation_id(self) -> str:
        return f"lethe-{self.suite}/{self.model_id}/{self.time}"


@dataclass(frozen=True)
class Instance:
    """A sampled answer: the question's id, text and references, the answer with its score (None: without one)."""

    question: str
    asked: str
    references: Sequence[str]
    sample: int
    text: str | None
    tokens: int | None
    finish_reason: str | None
    scorer: str
    score: float | None


@dataclass(frozen=True)
class Exported:
    """The files that were written, and how many rows they have not."""

    aggregate: Path
    instances: Path | None
    left_out: int


def export(folder: Path, evaluated: Export, instances: Iterable[Instance] = ()) -> Exported:
    """Write ``data/lethe/DEVELOPER/MODEL/UUID4.json`` below ``folder``, and the answers beside it where there are any."""
    results = []
    left_out = 0
    for row in evaluated.rows:
        entry = _result(row, evaluated)
        if entry is None:
            left_out += 1
        else:
            results.append(entry)
    _tell_apart(results)
    name = str(uuid.uuid4())
    below = Path("data", COLLECTION, _folded(evaluated.developer), _folded(evaluated.model))
    document = _document(evaluated, results)
    lines = below / f"{name}_samples.jsonl"
    written = _write_lines(folder / lines, evaluated, instances)
    if written is not None:
        document["detailed_evaluation_results"] = {
            "format": "jsonl",
            "file_path": lines.as_posix(),
            "hash_algorithm": "sha256",
            "checksum": written.sha256,
            "total_rows": written.rows,
        }
    aggregate = folder / below / f"{name}.json"
    write_json(aggregate, document)
    return Exported(aggregate, None if written is None else folder / lines, left_out)


def _folded(name: str) -> str:
    """A name as a folder: characters that no folder should have become dashes."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.") or "unnamed"


def _document(evaluated: Export, results: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    served = evaluated.is_served
    return {
        "schema_version": VERSION,
        "evaluation_id": evaluated.evaluation_id,
        "retrieved_timestamp": str(evaluated.time),
        "source_metadata": {
            "source_type": "evaluation_run",
            "source_organization_name": "unknown",
            "evaluator_relationship": "other",
        },
        "eval_library": {"name": "lethe", "version": evaluated.version},
        "model_info": {
            "name": evaluated.model,
            "id": evaluated.model_id,
            "additional_details": {
                "deployment_type": "externally_managed" if served else "self_deployed",
                "model_availability": "unknown",
            },
        },
        "evaluation_results": list(results),
    }


def result_id(row: Result) -> str:
    """The name of a row: quantity, basis, a split that is not the forget set, the question or part it is about, and the
    threshold or number of answers.
    """
    parts = [row.quantity, row.basis]
    if _is_of_another_split(row):
        parts.append(str(row.split))
    if row.item is not None:
        parts.append(row.item)
    if row.at is not None:
        parts.append(f"{row.at:.10g}")
    return "/".join(parts)


def _is_of_another_split(row: Result) -> bool:
    return row.split not in (None, FORGET)


def _tell_apart(results: Sequence[dict[str, Json]]) -> None:
    """Make the names of results unique: an end of another guarantee is named by its side, then results are numbered."""
    counts = Counter(entry["evaluation_result_id"] for entry in results)
    for entry in results:
        side = entry["score_details"]["details"].get("side")
        if counts[entry["evaluation_result_id"]] > 1 and side is not None:
            entry["evaluation_result_id"] += f"/{side}"
    taken = {entry["evaluation_result_id"] for entry in results}
    last: dict[str, int] = {}  # the number of the last result of a name
    for entry in results:
        name = entry["evaluation_result_id"]
        if name not in last:
            last[name] = 1
            continue
        while f"{name}/{last[name]}" in taken or last[name] == 1:
            last[name] += 1
        entry["evaluation_result_id"] = f"{name}/{last[name]}"
        taken.add(entry["evaluation_result_id"])


def _source(row: Result, evaluated: Export) -> dict[str, Json]:
    """The file of questions that a row is about."""
    name, sha256 = evaluated.suite, evaluated.data_sha256
    if _is_of_another_split(row):
        name = str(row.split)
        sha256 = evaluated.sha256_of_split.get(name)
    source: dict[str, Json] = {"dataset_name": name, "source_type": "other"}
    if sha256 is not None:
        source["additional_details"] = {"sha256": sha256}
    return source


def _result(row: Result, evaluated: Export) -> dict[str, Json] | None:
    """A row as an entry of the form; None where the form cannot hold it."""
    if not row.kind.more:
        return None
    least, largest = RANGE_OF_UNIT.get(row.kind.unit, ENDLESS)
    score = _score(row, least, largest)
    if score is None:
        return None
    return {
        "evaluation_result_id": result_id(row),
        "evaluation_name": evaluated.suite,
        "source_data": _source(row, evaluated),
        "metric_config": {
            "metric_id": f"lethe.{row.quantity}.{row.basis}",
            "metric_name": row.quantity,
            "lower_is_better": row.kind.more == "leaks",
            "score_type": "continuous",
            "min_score": least,
            "max_score": largest,
        },
        "score_details": score,
        "generation_config": {
            "generation_args": dict(evaluated.generation),
            "additional_details": dict(evaluated.engine),
        },
    }


def _score(row: Result, least: float | str, largest: float | str) -> dict[str, Json] | None:
    """Estimate, interval and details of a row; without an estimate the upper, else the lower end stands for it."""
    values: dict[str, float] = {}
    for name in ("estimate", "upper", "lower"):
        value = getattr(row, name)
        if value is not None and math.isfinite(value):
            values[name] = float(value)
    if not values:
        return None
    stands = next(iter(values))
    details = _details(row, values)
    if stands != "estimate":
        details["score_is"] = f"the {stands} end; there is no estimate"
    score: dict[str, Json] = {"score": values[stands], "details": details}
    interval = {"lower": values.get("lower", least), "upper": values.get("upper", largest)}
    uncertainty: dict[str, Json] = {}
    is_finite = all(isinstance(end, float) for end in interval.values())
    if row.ends and is_finite:
        alphas = [end.alpha for end in row.ends]
        interval["confidence_level"] = max(0.0, 1 - sum(alphas))
        interval["method"] = row.method or "certain"
        uncertainty["confidence_interval"] = interval
    if row.ends and row.n is not None:
        uncertainty["num_samples"] = row.n
    if uncertainty:
        score["uncertainty"] = uncertainty
    return score


def _details(row: Result, values: Mapping[str, float]) -> dict[str, str]:
    """What the form has no key for, as texts: which ends exist, their exact values and their guarantee."""
    details = {"scope": row.scope, "basis": row.basis, "access": row.kind.access}
    for name in ("item", "covers", "assumes", "method"):
        text = getattr(row, name)
        if text:
            details[name] = str(text)
    if row.at is not None:
        details["at"] = repr(row.at)
    sides = []
    for end in row.ends:
        if end.side in values:
            sides.append(end.side)
            details[end.side] = repr(values[end.side])
            details[f"alpha_{end.side}"] = repr(end.alpha)
    if sides:
        details["side"] = "both" if len(sides) == 2 else sides[0]
    return details


@dataclass(frozen=True)
class _Lines:
    rows: int
    sha256: str


def _write_lines(path: Path, evaluated: Export, instances: Iterable[Instance]) -> _Lines | None:
    """Write a line an answer, one at a time; nothing where there is none."""
    lines = _lines(evaluated, instances)
    first = next(lines, None)
    if first is None:
        return None
    sha256 = hashlib.sha256(first)
    rows = 1
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        file.write(first)
        for line in lines:
            file.write(line)
            sha256.update(line)
            rows += 1
    return _Lines(rows, sha256.hexdigest())


def _lines(evaluated: Export, instances: Iterable[Instance]) -> Iterator[bytes]:
    for instance in instances:
        text = json.dumps(_instance(instance, evaluated), ensure_ascii=False, allow_nan=False)
        yield f"{text}\n".encode()


def _instance(instance: Instance, evaluated: Export) -> dict[str, Json]:
    asked: dict[str, Json] = {"raw": instance.asked, "reference": list(instance.references)}
    text = instance.text or ""
    attribution = {
        "turn_idx": 0,
        "source": "output.raw",
        "extracted_value": text,
        "extraction_method": instance.scorer,
        "is_terminal": True,
    }
    metadata = {"lethe.sample": str(instance.sample), "lethe.score": instance.scorer}
    if instance.tokens is not None:
        metadata["lethe.tokens"] = str(instance.tokens)
    if instance.finish_reason is not None:
        metadata["lethe.finish_reason"] = instance.finish_reason
    line: dict[str, Json] = {
        "schema_version": VERSION,
        "evaluation_id": evaluated.evaluation_id,
        "model_id": evaluated.model_id,
        "evaluation_name": evaluated.suite,
        "evaluation_result_id": f"leak/sampled/{instance.question}",
        "sample_id": instance.question,
        "sample_hash": hashlib.sha256(canonical(asked)).hexdigest(),
        "interaction_type": "single_turn",
        "input": asked,
        "output": {"raw": [text]},
        "messages": None,
        "answer_attribution": [attribution],
        "evaluation": {"score": instance.score or 0.0, "is_correct": instance.score == 1},
        "metadata": metadata,
    }
    if instance.score is None:
        line["error"] = "the scorer gave no score"
    return line
