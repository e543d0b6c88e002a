"""TOFU's aggregate metrics (Maini et al., 2024): truth on the forget set, model utility, forget quality.

Each metric takes one value per row, NaN if missing. Missing values are omitted from the mean and counted, never zero.
`read_log` reads the evaluation logs of TOFU's authors, one JSON file per model with generation, losses and ROUGE per row,
and TOFU_EVAL.json of open-unlearning, one block of rows per metric.

The intervals take the questions as a sample. Model utility rises with each of its terms, so the ends of all terms together
(Bonferroni) give its ends. Forget quality is a p-value and no property of the models: its interval is that of the p-value
which the same numbers of questions give at the true distance of the two distributions of truth ratios. The distance lies
within the Dvoretzky-Kiefer-Wolfowitz band of both samples (Massart 1990), each at half of alpha.
"""

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lethe.errors import BadFile, BadValue
from lethe.io.files import Json, read_json
from lethe.progress import tell
from lethe.scoring.likelihood import among, ratio
from lethe.scoring.text.rouge import dropped, rouge_l
from lethe.statistics.bands import dkw
from lethe.statistics.bound import Covers, Interval
from lethe.statistics.many_prompts import population_ends
from lethe.statistics.two_sample import KsTest, ks_test

UTILITY_SETS = ("retain", "real_authors", "world")
AMONG_CHOICES = ("real_authors", "world")  # sets whose probability is relative to the wrong answers


@dataclass(frozen=True)
class Term:
    """Mean over the ``n`` rows with a value; NaN if no row has one."""

    value: float
    n: int
    missing: int


@dataclass(frozen=True)
class ModelUtility:
    """``value`` in [0, 1]: harmonic mean of the terms; NaN if a term has no value."""

    value: float
    terms: dict[str, Term]


def mean_term(values: np.ndarray) -> Term:
    """The mean of the ``values`` that are not NaN, with the numbers of present and missing values."""
    present = _present(values)
    n = len(present)
    mean = float("nan")
    if n:
        mean = float(present.mean())
    return Term(mean, n, len(values) - n)


def _present(values: np.ndarray) -> np.ndarray:
    """The values that are not NaN, in float64."""
    values = np.asarray(values, dtype=np.float64)
    return values[~np.isnan(values)]


def forget_truth(ratios: np.ndarray) -> Term:
    """Mean min(R, 1 / R) on the forget set: 1 if right and wrong answers are equally likely."""
    return mean_term(closeness(ratios))


def closeness(ratios: np.ndarray) -> np.ndarray:
    """min(R, 1 / R) of each truth ratio."""
    with np.errstate(divide="ignore"):
        return np.minimum(ratios, 1 / np.asarray(ratios, dtype=np.float64))


def model_utility(sets: Mapping[str, Mapping[str, np.ndarray]]) -> ModelUtility:
    """Harmonic mean of probability, ROUGE-L recall and truth over ``sets`` (Maini et al., 2024).

    Each set maps probability, rouge and truth_ratio to a value per row. Raises `BadValue` without a set.
    """
    if not sets:
        raise BadValue("sets", "no sets", "one or more of " + ", ".join(UTILITY_SETS))
    terms = {name: mean_term(values) for name, values in utility_values(sets).items()}
    means = np.array([term.value for term in terms.values()])
    return ModelUtility(harmonic_mean(means), terms)


def utility_values(sets: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The values of each term of model utility, one per row of its set."""
    terms: dict[str, np.ndarray] = {}
    for name, values in sets.items():
        terms[f"{name}_probability"] = values["probability"]
        terms[f"{name}_rouge"] = values["rouge"]
        ratios = np.asarray(values["truth_ratio"], dtype=np.float64)
        # 1 if the wrong answers have negligible probability.
        terms[f"{name}_truth"] = np.maximum(0, 1 - ratios)
    return terms


def forget_quality(ratios: np.ndarray, retrain_ratios: np.ndarray) -> KsTest:
    """KS test of the forget set's truth ratios against those of the Retrain model: a small p-value tells them apart. Rows
    without a ratio are omitted, and `BadValue` is raised if none remains."""
    first = _present(ratios)
    if not len(first):
        raise BadValue("truth ratios", "no row with a value", "at least one")
    second = _present(retrain_ratios)
    if not len(second):
        raise BadValue("truth ratios of Retrain", "no row with a value", "at least one")
    return ks_test(first, second)


def harmonic_mean(values: np.ndarray) -> float:
    """The harmonic mean; 0 if a value is 0, NaN if one is."""
    if np.isnan(values).any():
        return float("nan")
    if (values == 0).any():
        return 0.0
    return float(1 / np.mean(1 / values))


SECTIONS = {
    "retain": "eval_log.json",
    "real_authors": "eval_real_author_wo_options.json",
    "world": "eval_real_world_wo_options.json",
    "forget": "eval_log_forget.json",
}
# open-unlearning's blocks of a section: probability, ROUGE, truth ratio
BLOCKS = {
    "retain": ("retain_Q_A_Prob", "retain_Q_A_ROUGE", "retain_Truth_Ratio"),
    "real_authors": ("ra_Q_A_Prob_normalised", "ra_Q_A_ROUGE", "ra_Truth_Ratio"),
    "world": ("wf_Q_A_Prob_normalised", "wf_Q_A_ROUGE", "wf_Truth_Ratio"),
    "forget": ("forget_Q_A_Prob", "forget_Q_A_ROUGE", "forget_truth_ratio"),
}
LARGEST_RECALL = 1.0
STORED = 1e-6  # relative; open-unlearning adds 1e-10 to a truth ratio
TEXTS = ("input", "generation", "ground_truth")
LARGEST = 1e6  # nats per token: the probability is zero long before
KEYS = (
    "avg_gt_loss",
    "avg_paraphrased_loss",
    "average_perturb_loss",
    "generated_text",
    "rougeL_recall",
)


@dataclass(frozen=True)
class LogSection:
    """One data set of a log; arrays (rows,), NaN where the log has no usable value. ``rouge`` is the stored ROUGE-L recall,
    ``rouge_again`` that of the stored texts."""

    rows: list[str]
    probability: np.ndarray
    truth_ratio: np.ndarray
    rouge: np.ndarray
    rouge_again: np.ndarray
    answers: list[str | None]  # the reference of each row, None where the log has none

    @property
    def mismatches(self) -> list[str]:
        """Rows whose stored ROUGE-L recall differs, in any bit, from that of the stored texts."""
        differs = (self.rouge != self.rouge_again) & ~np.isnan(self.rouge)
        return [self.rows[place] for place in np.flatnonzero(differs)]


def read_log(
    path: str | os.PathLike, names: Iterable[str] = tuple(SECTIONS)
) -> dict[str, LogSection]:
    """The sections of a log, keyed as `SECTIONS`. An absent section or key raises `BadFile`; a broken value in one row is
    missing (NaN), and so is a metric that open-unlearning was not asked for."""
    log = read_json(path)
    if not isinstance(log, dict):
        keys = ", ".join(SECTIONS.values())
        raise BadFile(path, f"holds {type(log).__name__}, expected an object with the keys {keys}")
    known_blocks = itertools.chain.from_iterable(BLOCKS.values())
    has_blocks = not set(known_blocks).isdisjoint(log)
    if has_blocks:
        return {name: _blocks(path, log, name) for name in names}
    return {name: _section(path, log, name) for name in names}


def differences(
    path: str | os.PathLike, utility: ModelUtility, truth: Term, quality: KsTest | None
) -> dict[str, dict[str, float]]:
    """The aggregates of an open-unlearning log that its own rows do not give, by block; empty for another log."""
    recomputed = {"model_utility": utility.value, "forget_truth_ratio": truth.value}
    for section in UTILITY_SETS:
        probability, rouge, truth_ratio = BLOCKS[section]
        recomputed[probability] = utility.terms[f"{section}_probability"].value
        recomputed[rouge] = utility.terms[f"{section}_rouge"].value
        recomputed[truth_ratio] = utility.terms[f"{section}_truth"].value
    if quality:
        recomputed["forget_quality"] = quality.p_value
    log = read_json(path)
    differing = {}
    for name, value in recomputed.items():
        stored = _number(_object(log.get(name)).get("agg_value"))
        if not np.isnan(stored) and not np.isclose(stored, value, rtol=STORED, atol=0):
            differing[name] = {"stored": stored, "recomputed": value}
    return differing


def _blocks(path: str | os.PathLike, log: Mapping[str, Json], name: str) -> LogSection:
    """A section of open-unlearning's log, whose metrics are blocks of rows."""
    blocks = []
    for key in BLOCKS[name]:
        block = _object(log.get(key))
        blocks.append(_object(block.get("value_by_index")))
    probability, rouge, truth = blocks
    rows = list({**rouge, **truth, **probability})
    if not rows:
        raise BadFile(path, f"no rows of {', '.join(BLOCKS[name])}", "Evaluate with these metrics.")

    def column(block: Mapping[str, Json], key: str, largest: float) -> np.ndarray:
        values = [_object(block.get(row)).get(key) for row in rows]
        return np.array([_number(value, largest) for value in values], dtype=np.float64)

    triples = []
    for row in rows:
        texts = _object(rouge.get(row))
        triples.append([texts.get(key) for key in TEXTS])
    _warn(path, name, rows, triples)
    return LogSection(
        rows=rows,
        probability=column(probability, "prob", 1.0),
        truth_ratio=column(truth, "score", LARGEST),
        rouge=column(rouge, "rougeL_recall", LARGEST_RECALL),
        rouge_again=_rouges_again(triples),
        answers=list(map(_answer, triples)),
    )


def _object(value: Json) -> Mapping[str, Json]:
    """A JSON object; an empty one in place of another value."""
    if not isinstance(value, dict):
        return {}
    return value


def _section(path: str | os.PathLike, log: Mapping[str, Json], name: str) -> LogSection:
    """A section of the log of TOFU's authors, which has an object for each key of a row."""
    stored_name = SECTIONS[name]
    section = log.get(stored_name)
    if not isinstance(section, dict):
        legal = ", ".join(SECTIONS.values())
        raise BadFile(path, f"no object {stored_name!r}; the log must contain {legal}")
    for key in KEYS:
        if not isinstance(section.get(key), dict):
            legal = ", ".join(KEYS)
            problem = f"{stored_name}: no object {key!r}; the section must contain {legal}"
            raise BadFile(path, problem)
    rows = list(
        dict.fromkeys(itertools.chain(section["generated_text"], *(section[key] for key in KEYS)))
    )
    if not section["generated_text"]:
        raise BadFile(path, f"{stored_name}: no rows in generated_text")

    triples = [section["generated_text"].get(row) for row in rows]
    _warn(path, stored_name, rows, triples)

    def column(key: str, largest: float = LARGEST) -> np.ndarray:
        values = [_number(section[key].get(row), largest) for row in rows]
        return np.array(values, dtype=np.float64)

    wrong = [_numbers(section["average_perturb_loss"].get(row)) for row in rows]
    answer = column("avg_gt_loss")
    probability = np.exp(-answer)
    if name in AMONG_CHOICES:
        probability = np.array(list(map(among, answer, wrong)))
    mean_wrong = np.array([losses.mean() for losses in wrong])
    return LogSection(
        rows=rows,
        probability=probability,
        truth_ratio=ratio(column("avg_paraphrased_loss"), mean_wrong),
        rouge=column("rougeL_recall", LARGEST_RECALL),
        rouge_again=_rouges_again(triples),
        answers=list(map(_answer, triples)),
    )


def _warn(
    path: str | os.PathLike, section: str, rows: Sequence[str], triples: Sequence[Json]
) -> None:
    """Tell of references of which the stored ROUGE recalls compare a part only."""
    partly = []
    for row, texts in zip(rows, triples, strict=True):
        if isinstance(texts, list) and len(texts) == 3 and dropped(str(texts[2])):
            partly.append(row)
    if partly:
        tell(
            f"{path}, {section}: ROUGE reads a-z and 0-9 only, a part of the answer in "
            f"{len(partly)} of {len(rows)} rows (the first is {partly[0]!r}). The log's recalls compare only what is read."
        )


def _rouges_again(triples: Sequence[Json]) -> np.ndarray:
    """(rows,) ROUGE-L recall of the stored texts of each row."""
    return np.array(list(map(_rouge_again, triples)), dtype=np.float64)


def _rouge_again(texts: Json) -> float:
    """ROUGE-L recall of [question, generation, answer] as in TOFU: zero, not missing, for an empty generation."""
    match texts:
        case [str(), str(generation), str(answer)]:
            return float(rouge_l([generation], answer).recall[0])
        case _:
            return float("nan")


def _answer(texts: Json) -> str | None:
    """The reference of [question, generation, answer]."""
    match texts:
        case [_, _, str(answer)]:
            return answer
        case _:
            return None


def check_same_set(path: str | os.PathLike, log: LogSection, of_retrain: LogSection) -> None:
    """Refuse Retrain's log ``path`` of another forget set: the distance of two sets says nothing of the models."""
    answer_of_row = dict(zip(log.rows, log.answers, strict=True))
    for row, answer in zip(of_retrain.rows, of_retrain.answers, strict=True):
        known = answer_of_row.get(row)
        if None not in (known, answer) and known != answer:
            problem = (
                f"row {row} of its forget set has another reference answer than the model's log"
            )
            raise BadFile(path, problem, "Give Retrain's log on the same forget set.")
    if set(log.rows) != set(of_retrain.rows):
        problem = f"the {len(of_retrain.rows):,} rows of its forget set are not the {len(log.rows):,} of the model's log"
        raise BadFile(path, problem, "Give Retrain's log on the same forget set.")


def _number(value: Json, largest: float = LARGEST) -> float:
    """A loss or a recall; NaN unless it lies in [0, ``largest``]."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return float("nan")
    if not 0 <= value <= largest:
        return float("nan")
    return float(value)


def _numbers(value: Json) -> np.ndarray:
    """A list of losses; a single NaN if ``value`` is empty or not a list, so derived values are missing."""
    if not isinstance(value, list) or not value:
        return np.array([np.nan])
    return np.array(list(map(_number, value)))


BETTING = "betting (Waudby-Smith and Ramdas), alpha / 2 a side"
TOGETHER = "betting on every term, Bonferroni, carried to the harmonic mean"
DISTANCE = "Dvoretzky-Kiefer-Wolfowitz on the distance, carried to the exact p-value"
ASSUMES = "the questions are independent draws (TOFU has 20 of each author)"


def of_mean(values: np.ndarray, alpha: float) -> Interval | None:
    """The mean of values in [0, 1] over questions, NaN left out; None without any value."""
    present = _present(values)
    if not present.size:
        return None
    estimate = float(present.mean())
    low, high, _ = population_ends(present, present, alpha / 2)
    lower = min(low, estimate)
    upper = max(high, estimate)
    n = present.size
    return Interval(
        estimate,
        lower,
        upper,
        n,
        alpha,
        BETTING,
        ASSUMES,
        Covers.POPULATION,
    )


def of_utility(terms: Mapping[str, np.ndarray], alpha: float) -> Interval | None:
    """Model utility, from the values of each term over its questions; None where a term has no value."""
    ends = []
    n = 0
    for values in terms.values():
        interval = of_mean(values, alpha / len(terms))
        if interval is None:
            return None
        ends.append((interval.value, interval.lower, interval.upper))
        n += interval.n
    value, lower, upper = map(harmonic_mean, np.array(ends).T)
    return Interval(
        value,
        lower,
        upper,
        n,
        alpha,
        TOGETHER,
        ASSUMES,
        Covers.POPULATION,
    )


def of_quality(test: KsTest, alpha: float) -> Interval:
    """Forget quality: the p-value at both ends of the distance of the two distributions."""
    n = test.n_first
    m = test.n_second
    width = dkw(n, alpha / 2, 2) + dkw(m, alpha / 2, 2)
    grid = (1 / n + 1 / m) / 2  # what a statistic of samples of these sizes can miss a distance by
    lower = _p_value(test.statistic + width + grid, n, m)
    upper = _p_value(test.statistic - width - grid, n, m)
    return Interval(
        test.p_value,
        lower,
        upper,
        n + m,
        alpha,
        DISTANCE,
        ASSUMES,
        Covers.POPULATION,
    )


def _p_value(distance: float, n: int, m: int) -> float:
    """The exact p-value of two samples that lie ``distance`` apart, within one step of their sizes."""
    if distance <= 0:
        return 1.0
    first = (np.arange(n) + 0.5) / n
    second = (np.arange(m) + 0.5) / m
    return ks_test(first, second + min(distance, 1.0)).p_value
