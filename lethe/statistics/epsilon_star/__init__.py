"""Epsilon*: the privacy of one trained model from its losses (Negoescu et al. 2024), and valid lower bounds."""

from lethe.statistics.epsilon_star.lower import band_lower_bound, split_lower_bound
from lethe.statistics.epsilon_star.mechanism import Mechanism, mechanism_epsilon
from lethe.statistics.epsilon_star.parametric import parametric_epsilon_star
from lethe.statistics.epsilon_star.ratios import (
    EpsilonStar,
    LowerBound,
    empirical_epsilon_star,
    from_rates,
    recommended_delta,
)
from lethe.statistics.epsilon_star.summary import EpsilonStarAudit, audit

__all__ = [
    "EpsilonStar",
    "EpsilonStarAudit",
    "LowerBound",
    "Mechanism",
    "audit",
    "band_lower_bound",
    "empirical_epsilon_star",
    "from_rates",
    "mechanism_epsilon",
    "parametric_epsilon_star",
    "recommended_delta",
    "split_lower_bound",
]
