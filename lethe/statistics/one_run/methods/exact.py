"""The exact probability of at most the observed errors, for independent channels per bit (the default).

Given the largest loss that is not released, the released guesses err independently with probability G(S) / S, where the
mass S above that loss is Beta(r + 1, n - r). P(U <= u) is therefore one integral of a binomial tail. Theorem 3 and
Proposition 1 of Xiang et al. ("Tight Privacy Audit in One Run") bound this probability from above under the assumption of
independent errors, which does not hold.
"""

from __future__ import annotations

import numpy as np

from lethe.statistics.one_run.binomial import log_cdf
from lethe.statistics.one_run.channel import Channel
from lethe.statistics.one_run.counts import Counts
from lethe.statistics.one_run.integral import log_beta_average

ASSUMES = ("product_channel", "family", "r_fixed", "iid_bits")
NOTE = "exact when each bit passes its own independent channel; can reject a private mechanism when bits share randomness"
FAMILY_FREE = False
CONSERVATIVE = True


def log_p_value(counts: Counts, channel: Channel) -> float:
    """ln P(at most the observed errors) under the product of ``channel``."""
    n, r, u = counts.n, counts.r, counts.errors
    if u == r:
        return 0.0
    if r == n:
        return float(log_cdf(u, n, channel.error_mass(np.array(1.0))))
    return min(0.0, log_beta_average(lambda s: log_cdf(u, r, channel.error_mass(s) / s), n, r, channel.breaks))
