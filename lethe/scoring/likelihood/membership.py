"""Membership inference: a higher score means that the row looks more like training data.

- ``mia_loss``: members have a smaller loss (Yeom et al., 2018).
- ``mia_zlib``: the loss per compressed byte, because simple text has a low loss anyway (Carlini et al., 2021).
- ``mia_min_k``: the mean log-probability of the least likely tokens; members have few surprising tokens (Shi et al., 2024).
- ``mia_min_k_plus_plus``: the same of log-probabilities standardised by the vocabulary: (ln p(token) - mu) / sigma, where mu
  and sigma are the mean and standard deviation of ln p(v) over v ~ p at each position (Zhang et al., 2024).
"""

from __future__ import annotations

import zlib

import numpy as np

from lethe.scoring.likelihood import Item, loss

SHARE = 0.2  # of the tokens, the authors' choice


def mia_loss(item: Item) -> float:
    return -loss(item.answer)


def mia_zlib(item: Item) -> float:
    # A text may contain lone surrogates, which UTF-8 cannot encode.
    return -loss(item.answer) / len(zlib.compress(item.text.encode("utf-8", "surrogatepass")))


def mia_min_k(item: Item) -> float:
    return _mean_of_lowest(item.answer.log_probs)


def mia_min_k_plus_plus(item: Item) -> float:
    tokens = item.answer
    excess = tokens.log_probs - tokens.expected
    # Where the model is certain, sigma is 0 and ln p(token) equals mu, so the value is 0.
    return _mean_of_lowest(np.divide(excess, tokens.spread, out=np.zeros_like(excess), where=tokens.spread > 0))


def _mean_of_lowest(values: np.ndarray) -> float:
    """Mean of the lowest ``SHARE`` of the values, rounded down, at least one; NaN without values."""
    if not len(values):
        return float("nan")
    return float(np.sort(values)[: max(1, int(SHARE * len(values)))].mean())


MEMBERS = {one.__name__: one for one in (mia_loss, mia_zlib, mia_min_k, mia_min_k_plus_plus)}
