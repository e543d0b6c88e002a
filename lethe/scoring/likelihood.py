"""Measures of the log-probabilities of given answers, without sampling.

A measure is a function of an `Item`; a value that cannot be computed (no answer tokens, no perturbed answers, ...) is NaN.
How well the model knows an answer:

- ``probability``: exp(-loss), the geometric mean over the answer's tokens (TOFU).
- ``choice_probability``: p / (p + sum of p_wrong), TOFU's probability on real authors and world facts.
- ``truth_ratio``: R = exp(-mean loss of the wrong answers) / exp(-loss of the right one), a geometric mean as in TOFU's own
  logs; below 1 if the model prefers the correct answer.
- ``extraction_strength``: 1 - k / T, where k is the length of the shortest prefix of the T tokens after which every further
  token is the most likely one. A match at each step given the true prefix is a match of the greedy continuation, so one pass
  with the true tokens suffices. Source: Carlini et al. (2021), in the form of Wang et al., "Towards Effective Evaluations and
  Comparisons for LLM Unlearning Methods" (2025), section 3.
- ``exact_memorisation``: the share of the answer's tokens that are the most likely next token (Tirumala et al., 2022).

Membership inference, where a higher score means that the row looks more like training data
(`lethe.statistics.two_sample.auc_interval` makes the scores an AUC):

- ``mia_loss``: members have a smaller loss (Yeom et al., 2018).
- ``mia_zlib``: the loss per compressed byte, because simple text has a low loss anyway (Carlini et al., 2021).
- ``mia_min_k``: the mean log-probability of the least likely tokens; members have few surprising tokens (Shi et al., 2024).
- ``mia_min_k_plus_plus``: the same of log-probabilities standardised by the vocabulary: (ln p(token) - mu) / sigma, where mu
  and sigma are the mean and standard deviation of ln p(v) over v ~ p at each position (Zhang et al., 2024).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lethe.errors import BadInput
from lethe.io.artifacts import Row
from lethe.models.likelihood import AnswerTokens
from lethe.registry import LIKELIHOODS, MEASURES

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Item:
    """One row of a data set under one model: its answers, token by token; ``text`` is the answer as written."""

    text: str
    answer: AnswerTokens
    paraphrased: AnswerTokens | None = None
    perturbed: tuple[AnswerTokens, ...] = ()


def score_likelihoods(answers: pd.DataFrame, rows: Mapping[str, Row]) -> pd.DataFrame:
    """``prompt_id`` and one float64 column per measure, one row per prompt in the order of ``answers``; NaN is missing.

    ``answers`` has a row per given answer, with its log-probabilities. Raises `BadInput` for a prompt that the dataset lacks.
    """
    import pandas as pd

    scored = []
    for prompt_id, of_prompt in answers.groupby("prompt_id", sort=False):
        if prompt_id not in rows:
            raise BadInput(
                f"Likelihoods of prompt {prompt_id!r}: the dataset has no such id. Run `dvc repro` again."
            )
        item = _item(rows[prompt_id]["answer"], of_prompt)
        scores = {name: measure(item) for name, measure in LIKELIHOODS.items()}
        scored.append({"prompt_id": prompt_id, **scores})
    return pd.DataFrame(scored)


def _item(text: str, answers: pd.DataFrame) -> Item:
    """The answers of a prompt, of which each row of the table is one."""

    def of(kind: str) -> list[AnswerTokens]:
        rows = answers[answers["kind"] == kind].sort_values("number")
        tokens = []
        for row in rows.itertuples(index=False):
            tokens.append(AnswerTokens(row.log_probs, row.expected, row.spread, row.greedy))
        return tokens

    (answer,) = of("answer")
    paraphrases = of("paraphrased")
    paraphrased = paraphrases[0] if paraphrases else None
    return Item(text, answer, paraphrased, tuple(of("perturbed")))


def probability(item: Item) -> float:
    """exp(-loss), the geometric mean of the probabilities of the tokens, in [0, 1]."""
    return math.exp(-item.answer.nll)


def choice_probability(item: Item) -> float:
    """The answer's probability relative to the wrong ones, in [0, 1]; NaN without a wrong answer."""
    if not item.perturbed:
        return float("nan")
    wrong = np.array([answer.nll for answer in item.perturbed])
    return among(item.answer.nll, wrong)


def truth_ratio(item: Item) -> float:
    """The correct answer is the paraphrased answer if the row has one (forget and retain), else the answer itself."""
    if not item.perturbed:
        return float("nan")
    correct = item.answer if item.paraphrased is None else item.paraphrased
    wrong = np.mean([answer.nll for answer in item.perturbed])
    return float(ratio(np.asarray(correct.nll), wrong))


def extraction_strength(item: Item) -> float:
    """1 if the question alone yields the answer, 0 if the answer's last token is not predicted."""
    greedy = item.answer.greedy
    if not len(greedy):
        return float("nan")
    wrong = np.flatnonzero(~np.asarray(greedy, dtype=bool))
    prefix = wrong[-1] + 1 if len(wrong) else 0
    return float(1 - prefix / len(greedy))


def exact_memorisation(item: Item) -> float:
    """The share of tokens that are the most likely ones, in [0, 1]; NaN without tokens."""
    return float(item.answer.greedy.mean()) if len(item.answer.greedy) else float("nan")


def among(correct: float, wrong: np.ndarray) -> float:
    """p / (p + sum of p_wrong) from the losses of the answers; NaN if one of them is NaN."""
    losses = np.append(correct, wrong)
    # Relative to the likeliest answer, so at least one does not underflow.
    weights = np.exp(losses.min() - losses)
    return float(weights[0] / weights.sum())


def ratio(correct: np.ndarray, wrong: np.ndarray | np.floating) -> np.ndarray:
    """R from the loss of the correct answer and the mean loss of the wrong ones."""
    with np.errstate(over="ignore"):
        return np.exp(correct - wrong)


SHARE = 0.2  # of the tokens, the authors' choice


def mia_loss(item: Item) -> float:
    """Minus the loss, in nats per token."""
    return -item.answer.nll


def mia_zlib(item: Item) -> float:
    """Minus the loss per compressed byte."""
    # A text may contain lone surrogates, which UTF-8 cannot encode.
    content = item.text.encode("utf-8", "surrogatepass")
    return -item.answer.nll / len(zlib.compress(content))


def mia_min_k(item: Item) -> float:
    """The mean log-probability of the least likely tokens, in nats."""
    return _mean_of_lowest(item.answer.log_probs)


def mia_min_k_plus_plus(item: Item) -> float:
    """The mean standardised log-probability of the least likely tokens."""
    return _mean_of_lowest(item.answer.standardised)


def _mean_of_lowest(values: np.ndarray) -> float:
    """Mean of the lowest ``SHARE`` of the values, rounded down, at least one; NaN without values."""
    if not len(values):
        return float("nan")
    n = max(1, int(SHARE * len(values)))
    lowest = np.sort(values)[:n]
    return float(lowest.mean())


MEMBERS = {name: globals()[name] for name in MEASURES}
