"""Every guess released and independent of the others: a binomial count (Xiang et al. 2025, arXiv 2501.17750)."""

from __future__ import annotations

import numpy as np

from lethe.errors import BadValue
from lethe.statistics.one_run.binomial import log_cdf
from lethe.statistics.one_run.channel import Channel
from lethe.statistics.one_run.counts import Counts

ASSUMES = ("product_channel", "family", "iid_bits")
NOTE = "for independent guesses that are all released"
FAMILY_FREE = False
CONSERVATIVE = True


def refusal(counts: Counts) -> BadValue | None:
    """The error for filtered guesses; None if the method applies."""
    if counts.r == counts.n:
        return None
    return BadValue(
        "r", counts.r, f"n = {counts.n} for the method independent", "Filtering makes guesses dependent."
    )


def log_p_value(counts: Counts, channel: Channel) -> float:
    """ln P(at most the observed errors), where each of the n guesses errs independently."""
    return float(log_cdf(counts.errors, counts.n, channel.error_mass(np.array(1.0))))
