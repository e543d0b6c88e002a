"""Bounds from a person's labels. The first half of each question's draws decides which distinct answers are labelled, by
the mass that they cover until the target; the second half is counted, and a few random draws of it with other texts bound
the rest of the average. The choice depends on the draws, the target and that number, never on labels.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from lethe.errors import BadFile, BadRow, BadValue, check, plural, shortened
from lethe.io.artifacts import GREEDY, TURNS, read_references
from lethe.io.files import FIRST, KEY, SCHEMA_VERSION, read_artifact, read_jsonl, write_jsonl
from lethe.io.tables import file_line, numeric_column, read_table, sample_names
from lethe.results.licence import Source
from lethe.statistics import counts as count_bounds
from lethe.statistics.bound import Covers, both_ends, rounded, significant
from lethe.statistics.judge_error import Calibration
from lethe.statistics.leak_rates import Rate
from lethe.statistics.many_prompts import LARGEST_POOLED_ALPHA
from lethe.statistics.random_choice import REFUTED, blind_p_value, uniform_p_value

if TYPE_CHECKING:
    import pandas as pd

    from lethe.results.table import Rows

SEED = 0  # for the order in which draws of the rest are labelled
SMALLEST_SHOWN = 1e-12  # a smaller p-value tells a reader no more


class Answer(NamedTuple):
    prompt_id: str
    text: str


Part = Literal["mass", "rest"]


class Asked(NamedTuple):
    """The reason for a label: the mass or the rest, and the target (None where the file has none)."""

    part: Part
    target: float | None = None


class _Row(BaseModel, strict=True):
    prompt_id: str
    text: str
    label: int = Field(ge=0, le=1, description="0 (no leak) or 1 (leak)")
    part: Part = Field(description="mass or rest")
    target: float | None = Field(None, gt=0, le=1, description="a number above 0 and at most 1")


@dataclass
class Labels:
    """Labels by answer, in the order of labelling, each saved to ``path``: facts about a question and a text."""

    path: Path
    by_answer: dict[Answer, int] = field(default_factory=dict)
    asked: dict[Answer, Asked] = field(default_factory=dict)

    def add(self, answer: Answer, label: int, asked: Asked, questions: Mapping[str, str]) -> None:
        self.by_answer[answer], self.asked[answer] = label, asked
        self.write(questions)

    def undo(self, questions: Mapping[str, str]) -> bool:
        """Remove the last label; return whether there was one."""
        if not self.by_answer:
            return False
        del self.asked[self.by_answer.popitem()[0]]
        self.write(questions)
        return True

    def write(self, questions: Mapping[str, str]) -> None:
        rows: list[dict[str, object]] = []
        for (name, text), label in self.by_answer.items():
            part, target = self.asked[Answer(name, text)]
            row = {
                "prompt_id": name,
                "question": questions.get(name, name),
                "text": text,
                "label": label,
            }
            rows.append(
                row
                | {"part": part, KEY: SCHEMA_VERSION}
                | ({} if target is None else {"target": target})
            )
        write_jsonl(self.path, rows)


def read_labels(path: Path) -> Labels:
    """Read a person's labels; a missing file has no labels yet."""
    labels = Labels(path)
    for line, row in read_jsonl(path) if path.exists() else ():
        if (version := row.get(KEY, FIRST)) != SCHEMA_VERSION:
            problem = f"schema: got {shortened(version)}; must be {SCHEMA_VERSION}, which this release of Lethe reads"
            raise BadRow(path, line, problem, "Read the labels with the release that wrote them.")
        try:
            own = _Row.model_validate(row)
        except ValidationError as error:
            key = str(error.errors()[0]["loc"][0])
            legal = _Row.model_fields[key].description or "text"
            raise BadRow(
                path, line, f"{key}: got {shortened(row.get(key))}; must be {legal}"
            ) from None
        answer = Answer(own.prompt_id, own.text)
        if answer in labels.by_answer:
            raise BadRow(path, line, "labels an answer a second time", "Remove one of the rows.")
        labels.by_answer[answer], labels.asked[answer] = own.label, Asked(own.part, own.target)
    return labels


@dataclass(frozen=True)
class Draws:
    """The answers of a run by question, in sampling order, with the texts of the questions and the judge's verdicts (1, 0 or
    NaN) where there are any.
    """

    answers: Mapping[str, Sequence[Answer]]
    questions: Mapping[str, str]
    verdicts: Mapping[str, np.ndarray] = field(default_factory=dict)

    def half(self, prompt_id: str) -> int:
        return len(self.answers[prompt_id]) // 2

    def first(self, prompt_id: str) -> Sequence[Answer]:
        """The half that decides which answers are labelled; the bounds count the `second`."""
        return self.answers[prompt_id][: self.half(prompt_id)]

    def second(self, prompt_id: str) -> Sequence[Answer]:
        return self.answers[prompt_id][self.half(prompt_id) :]


def read_draws(
    path: Path, dataset: Path | None, verdicts: Path | None, column: str | None
) -> Draws:
    """Read a run: a folder of ``data/generations``, or a table with ``prompt_id``, ``text`` and optionally ``sample``."""
    file = path
    if path.is_dir():
        file, about = path / "forget.parquet", path / "about.json"
        if about.is_file() and read_artifact(about).get("stop") == "sequential":
            problem = "holds a run with early stopping, and these bounds need a number of answers fixed beforehand"
            raise BadFile(path, problem, "Sample with `sample.stop: fixed`.")
        refuse_references(path)
    table = read_table(file, required=["prompt_id", "text"], text=["text"], ids=["prompt_id"])
    if "sample" in table:
        table = table.assign(sample=numeric_column(table, "sample", file))
        # A table may be sorted by content; then its two halves would not be alike.
        table = table[table["sample"] != GREEDY].sort_values("sample", kind="stable")
    if table.empty:
        raise BadFile(file, "holds no sampled answers")
    table = table.reset_index(drop=True)
    if verdicts is not None:
        table["verdict"] = _verdicts(table, file, verdicts, column)
    return draws_of(table, _questions(dataset) if dataset is not None else {})


def refuse_references(generations: Path) -> None:
    """Refuse wordings that ask for other answers, and follow-up questions: a label is of a question and an answer."""
    if Path(generations, TURNS).is_file():
        problem = "holds answers to follow-up questions, and a label belongs to one answer"
        raise BadFile(generations, problem, "Leave out followups (and turns of the language).")
    references = read_references(generations).values()
    if wordings := sorted({own.wording for of_prompt in references for own in of_prompt.values()}):
        own = (
            f"holds answers to wordings that ask for an answer of their own ({', '.join(wordings)})"
        )
        remedy = "Leave out these wordings of the language."
        raise BadFile(generations, f"{own}, and a label belongs to one question", remedy)


def draws_of(table: pd.DataFrame, questions: Mapping[str, str]) -> Draws:
    """The draws of a table with ``prompt_id``, ``text`` and optionally ``verdict``, in sampling order within a question."""
    answers, judged = {}, {}
    for name, rows in table.groupby("prompt_id", sort=False):
        texts = [text if isinstance(text, str) else "" for text in rows["text"]]
        answers[str(name)] = [Answer(str(name), text) for text in texts]
        if "verdict" in rows:
            judged[str(name)] = rows["verdict"].to_numpy(dtype=np.float64)
    return Draws(answers, questions, judged)


def _questions(dataset: Path) -> dict[str, str]:
    """The questions of a dataset by id; a row without a question is shown by its id."""
    questions: dict[str, object] = {}
    for line, row in read_jsonl(dataset):
        name = row.get("id")
        if not isinstance(name, str):
            raise BadRow(dataset, line, f"id: got {name!r}; must be text")
        if name in questions:
            problem = f"has the id {name!r} of an earlier row"
            raise BadRow(dataset, line, problem, "Give each question a unique id.")
        questions[name] = row.get("question")
    return {name: text for name, text in questions.items() if isinstance(text, str)}


def _verdicts(table: pd.DataFrame, file: Path, place: Path, column: str | None) -> np.ndarray:
    verdicts = read_table(place, required=["prompt_id", "sample"], ids=["prompt_id"])
    if "sample" not in table:
        raise BadFile(file, "has no column sample, which assigns verdicts to answers")
    names = [name for name in verdicts.columns if name not in ("prompt_id", "sample")]
    if not names or column not in (None, *names):
        raise BadValue(
            "--column", column, f"one of {', '.join(names)}" if names else "a column of verdicts"
        )
    name = column or names[0]
    values = numeric_column(verdicts, name, place)
    wrong = ~np.isin(values, (0, 1)) & ~np.isnan(values)
    if wrong.any():
        line = file_line(place, int(np.argmax(wrong)))
        raise BadRow(
            place,
            line,
            f"{name}: got {values[wrong][0]:g}; must be 0 (no leak), 1 (leak) or missing",
        )
    own = verdicts[["prompt_id"]].assign(
        sample=numeric_column(verdicts, "sample", place), verdict=values
    )
    return table.merge(own, on=["prompt_id", "sample"], how="left")["verdict"].to_numpy(
        dtype=np.float64
    )


@dataclass(frozen=True)
class Ahead:
    """The next answer to label: the reason, the number of draws of its question with its text, and the labelled mass."""

    asked: Asked
    answer: Answer
    count: int
    draws: int
    covered: float


class Queue:
    """The order of labelling: by mass until the target is covered, then random draws of the rest."""

    def __init__(self, draws: Draws, target: float, rest: int):
        check(0 < target <= 1, "--mass", target, "a number above 0 and at most 1")
        self.draws, self.target, self.rest = draws, target, rest
        self.counts = Counter(answer for name in draws.answers for answer in draws.first(name))
        self.total = self.counts.total()
        by_mass = [
            answer for answer, _ in self.counts.most_common()
        ]  # stable: ties in the order of the file
        covered = np.cumsum([self.counts[answer] for answer in by_mass])
        self.chosen = by_mass[: int((covered < target * self.total).sum()) + 1]
        counted = [
            (answer, place)
            for name in draws.answers
            for place, answer in enumerate(draws.second(name))
        ]
        shuffled = (
            counted[place] for place in np.random.default_rng(SEED).permutation(len(counted))
        )
        inside = set(self.chosen)
        self.sampled = list(islice((one for one in shuffled if one[0] not in inside), rest))

    def covered(self, labels: Labels) -> float:
        """The share of the first half's draws whose text was chosen and is labelled."""
        labelled = sum(self.counts[answer] for answer in self.chosen if answer in labels.by_answer)
        return labelled / self.total if self.total else 1.0

    def ahead(self, labels: Labels) -> Ahead | None:
        """The next answer; None if all requested answers are labelled."""
        draws, target, covered = self.draws, self.target, self.covered(labels)
        for answer in self.chosen:
            if answer not in labels.by_answer:
                n = len(draws.first(answer.prompt_id))
                return Ahead(Asked("mass", target), answer, self.counts[answer], n, covered)
        for answer, _ in self.sampled:
            if answer not in labels.by_answer:
                return Ahead(
                    Asked("rest", target), answer, 1, len(draws.second(answer.prompt_id)), covered
                )
        return None

    def unused(self, labels: Labels) -> int:
        """The number of labels that this choice does not request: labels for another target or another run."""
        return len(
            labels.by_answer.keys() - {*self.chosen, *(answer for answer, _ in self.sampled)}
        )


def measure(
    rows: Rows, draws: Draws, queue: Queue, labels: Labels, alpha: float
) -> dict[str, object]:
    """Add the bounds of each question, from the counted half by labels, and of all questions.

    The average rests on the labelled draws of the rest too. Return what was to be labelled, and the judge's error on the
    rest, on which no bound rests.
    """
    finished, targets = (
        queue.ahead(labels) is None,
        dict.fromkeys(one.target for one in labels.asked.values()),
    )
    own = {
        answer: labels.by_answer[answer] for answer in queue.chosen if answer in labels.by_answer
    }
    table = np.array([_counted(draws, name, own) for name in draws.answers], dtype=np.int64)
    leaks, rest, n = table.T.astype(np.float64)
    of_rest = None
    if queue.rest > 0:
        drawn = [labels.by_answer[answer] for answer, _ in queue.sampled] if finished else []
        of_rest = sum(drawn), len(drawn)
    rates = Rate.of(leaks, n, missing=rest).each(alpha)
    lower, upper = rates.lower[:, 0], rates.upper[:, 0]
    how = (count_bounds.LABELLED, count_bounds.LABELLED_METHOD)
    for place, (name, counts) in enumerate(zip(draws.answers, table.tolist(), strict=True)):
        ends = both_ends(lower[place], upper[place], alpha, Covers.ONE_PROMPT, *how, counts[2])
        evidence = dict(zip(("leaks", "missing", "n"), counts, strict=True))
        rows.add(
            "question",
            "leak",
            "labelled",
            None,
            *ends,
            item=name,
            split="forget",
            evidence=evidence,
        )
        rows.add(
            "question", "mass", "labelled", 1 - counts[1] / counts[2], item=name, split="forget"
        )
    pool = None
    if (n == n[0]).all() and alpha <= LARGEST_POOLED_ALPHA:
        average = count_bounds.labelled_average(leaks, rest, n, of_rest, alpha)
        assumes = how if of_rest is None else (count_bounds.WITH_REST, count_bounds.METHOD_REST)
        pool = both_ends(*average, alpha, Covers.AVERAGE, *assumes, int(n.sum()))
    place, mass = int(np.argmax(upper)), float(1 - rest.sum() / n.sum())
    # The largest of several lower bounds has no valid level, so the lower bound of the worst is that of the average.
    least = pool and replace(pool[0], covers=Covers.WORST_PROMPT)
    most = both_ends(0.0, upper[place], alpha, Covers.WORST_PROMPT, *how, int(n[place]))[1]
    add = partial(rows.add, "model", split="forget")
    add(
        "leak_worst",
        "labelled",
        None,
        least,
        most,
        evidence={"prompt_id": list(draws.answers)[place]},
    )
    if pool:
        add("leak", "labelled", None, *pool)
    calibration = _calibration(draws, queue, labels) if draws.verdicts and finished else None
    add("mass", "labelled", mass)
    add(
        "labels",
        "labelled",
        len(own) + len({answer for answer, _ in queue.sampled} & labels.by_answer.keys()),
    )
    each = (answer for answers in draws.answers.values() for answer in answers)
    add("leaks", "labelled", sum(labels.by_answer.get(answer, 0) for answer in each))
    add("judge", "labelled", calibration is not None)
    return {
        "target": queue.target,
        "earlier_targets": [target for target in targets if target not in (None, queue.target)],
        "finished": finished,
        "alpha": alpha,
        "said": _source(mass, of_rest),
        "calibration": calibration
        and {
            **{
                name: getattr(calibration, name)
                for name in ("leaks", "leaks_called", "clean", "clean_called")
            },
            **{
                name: list(getattr(calibration.error(alpha), name))
                for name in ("sensitivity", "false_positive")
            },
        },
    }


def _source(mass: float, of_rest: tuple[int, int] | None) -> str:
    """The basis of the bounds, as the end of a sentence; ``of_rest``: leaks among labelled draws of the rest, and these."""
    read = f"by a person's reading of {float(rounded(100 * mass, 1, 'lower')):g}% of the mass"
    drawn = of_rest and of_rest[1]
    rest = f" and of {drawn:,} random draws of the rest, which otherwise" if drawn else ", the rest"
    return f"{read}{rest} counts as leaks in upper bounds and as clean in lower ones"


def _counted(draws: Draws, name: str, own: Mapping[Answer, int]) -> tuple[int, int, int]:
    """Of one question's second half: labelled leaks, draws without a label, and all draws."""
    answers = draws.second(name)
    if not answers:
        raise BadValue(
            f"answers to {name}",
            len(draws.answers[name]),
            "at least 2: one half chooses, one counts",
        )
    return (
        sum(own.get(one, 0) for one in answers),
        sum(one not in own for one in answers),
        len(answers),
    )


def _calibration(draws: Draws, queue: Queue, labels: Labels) -> Calibration | None:
    """The judge's error on the labelled draws of the rest; None if one of the labels does not occur."""
    values = [labels.by_answer[answer] for answer, _ in queue.sampled]
    if len(set(values)) < 2:
        return None
    sampled = [
        (answer.prompt_id, draws.half(answer.prompt_id) + place) for answer, place in queue.sampled
    ]
    verdicts = [float(draws.verdicts[name][place]) for name, place in sampled]
    return Calibration.of(values, verdicts, of_this_run=True)


@dataclass(frozen=True)
class Drawn:
    """The answers of one prompt that labels may be of: their number, and with 0/1 verdicts that of each sample's name."""

    n: int
    verdict_of_sample: Mapping[str, float] | None = None


def label_rows(
    rows: Rows, path: str | os.PathLike[str], drawn: Mapping[str, Drawn], alpha: float
) -> Source:
    """Add the ends of the leak probability of each labelled prompt, and of the average over all prompts.

    ``path`` is a table ``prompt_id, sample, label`` (0 or 1) of random draws, and ``drawn`` holds the answers of each prompt.
    Returns what is known of the labels. The average has no ends where the labels cannot have been chosen at random.

    Raises `BadFile` without a label, and `BadRow` for a label of another prompt, of the greedy answer, or given twice.
    """
    table = _random_labels(path, drawn)
    labels = numeric_column(table, "label", path)
    names = table["prompt_id"].astype(str).to_numpy()
    how = (count_bounds.AT_RANDOM, count_bounds.METHOD_AT_RANDOM)
    for name in dict.fromkeys(names.tolist()):
        of_prompt = labels[names == name]
        (lower,), (upper,) = count_bounds.rate_bounds([of_prompt.sum()], [len(of_prompt)], alpha)
        ends = both_ends(lower, upper, alpha, Covers.ONE_PROMPT, *how, len(of_prompt))
        rows.add("question", "leak", "labelled", None, *ends, item=name, split="forget")

    problem = _not_random(table, drawn, Path(path))
    if problem is None:
        both = count_bounds.random_labels(int(labels.sum()), len(labels), alpha)
        ends = both_ends(*both, alpha, Covers.AVERAGE, *how, len(labels))
        rows.add("model", "leak", "labelled", None, *ends, split="forget")
    else:
        rows.add("model", "leak", "labelled", None, split="forget")
    return Source(labels_not_random=problem)


def _random_labels(path: str | os.PathLike[str], drawn: Mapping[str, Drawn]) -> pd.DataFrame:
    """The checked table of labels."""
    table = read_table(path, required=["prompt_id", "sample", "label"], ids=["prompt_id"])
    if table.empty:
        raise BadFile(path, "holds no labels")
    table = table.assign(sample=sample_names(table["sample"]))
    labels, names = numeric_column(table, "label", path), table["prompt_id"].astype(str).to_numpy()
    n_of_prompt = {name: answers.n for name, answers in drawn.items()}
    for wrong, problem in (
        (~np.isin(labels, (0, 1)), "label must be 0 (no leak) or 1 (leak)"),
        (~np.isin(names, list(drawn)), "prompt_id must be a prompt of the scores"),
        (table.duplicated(["prompt_id", "sample"]).to_numpy(), "labels a draw a second time"),
        (
            (table["sample"] == str(GREEDY)).to_numpy(),
            "labels the greedy answer, no random draw",
        ),
        (
            (
                table.groupby("prompt_id").cumcount() >= table["prompt_id"].map(n_of_prompt)
            ).to_numpy(),
            "labels more draws of the prompt than have scores",
        ),
    ):
        if wrong.any():
            place = int(np.argmax(wrong))
            row = ", ".join(
                f"{name} {table[name][place]}" for name in ("prompt_id", "sample", "label")
            )
            raise BadRow(path, file_line(path, place), f"{problem}; got {row}")
    return table


def _not_random(table: pd.DataFrame, drawn: Mapping[str, Drawn], path: Path) -> str | None:
    """Why the labels cannot be of draws chosen at random; None where nothing refutes it.

    The two tests share `REFUTED`, so that one honest file in a million is refused at most.
    """
    n_of_prompt = Counter(table["prompt_id"].astype(str))
    labels_of_prompt = [n_of_prompt[name] for name in drawn]
    p_value = uniform_p_value(labels_of_prompt)
    if p_value < REFUTED / 2:
        most = max(labels_of_prompt)
        labelled = sum(count > 0 for count in labels_of_prompt)
        return (
            f"{path.name} has {len(table):,} labels, of {labelled} of {plural(len(drawn), 'prompt')} and up to {most:,} of "
            f"one, which a uniform choice of the prompt brings with probability {_at_most(p_value)}"
        )
    p_value = _blind(table, drawn)
    if p_value < REFUTED / 2:
        return (
            f"The labelled answers of {path.name} have other verdicts than all answers, which a choice without sight of the "
            f"verdicts brings with probability {_at_most(p_value)}"
        )
    return None


def _at_most(p_value: float) -> str:
    return f"at most {significant(max(p_value, SMALLEST_SHOWN), 2, 'upper')}"


def _blind(table: pd.DataFrame, drawn: Mapping[str, Drawn]) -> float:
    """The p-value of labels without sight of the verdicts; 1 where a labelled answer has no known verdict."""
    called = 0
    labelled: list[int] = []
    verdicts: list[int] = []
    n: list[int] = []
    for name, rows in table.groupby(table["prompt_id"].astype(str), sort=False):
        verdict_of_sample = drawn[str(name)].verdict_of_sample or {}
        samples = [str(sample) for sample in rows["sample"]]
        if not all(sample in verdict_of_sample for sample in samples):
            return 1.0
        called += int(sum(verdict_of_sample[sample] for sample in samples))
        labelled.append(len(samples))
        verdicts.append(int(sum(verdict_of_sample.values())))
        n.append(len(verdict_of_sample))
    return blind_p_value(called, labelled, verdicts, n)
