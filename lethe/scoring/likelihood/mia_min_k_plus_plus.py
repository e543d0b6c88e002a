"""Min-k%++: min-k% of the log-probabilities standardised by the vocabulary's own mean and spread (Zhang et al., 2024).

The standardised value at each position is (ln p(token) - mu) / sigma, where mu and sigma are the mean and standard
deviation of ln p(v) over v ~ p.
"""

from __future__ import annotations

import numpy as np

from lethe.scoring.likelihood import Item
from lethe.scoring.likelihood.mia_min_k import mean_of_lowest


def measure(item: Item) -> float:
    """Mean over the lowest fifth of the answer's tokens, at least one; dimensionless."""
    tokens = item.answer
    excess = tokens.log_probs - tokens.expected
    # Where the model is certain, sigma is 0 and ln p(token) equals mu, so the value is 0.
    return mean_of_lowest(np.divide(excess, tokens.spread, out=np.zeros_like(excess), where=tokens.spread > 0))
