"""Whether the order of scores refutes that they are independent draws, and the bounds that an order excludes."""

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import bdtrc

from lethe.measure.by_length import by_length
from lethe.measure.scores import PromptScores, plain_statistics
from lethe.results.licence import ROUNDING, containing, excluded, without_ends
from lethe.results.table import Result
from lethe.statistics import betting

# The levels at which an order refutes independent draws; lower ones refute less. A betting bound at the level 0.01 lay below
# the mean of its own 150 independent draws of Bernoulli(0.1) in 5 of 20,000 questions, and all questions share the level.
CHANCE = 0.01
CHANCE_OF_MANY = 0.001
IN_ORDER = ("score_betting", "sd_betting")  # whose ends need the order of the draws


def in_plausible_order(
    rows: list[list[Result]], prompts: Sequence[PromptScores], alpha: float
) -> list[list[Result]]:
    """The rows of each prompt, of which no bound excludes the mean or the spread of its own scores, but where this tells.

    A bound by betting depends on the order of the draws. Independent draws bring, rarely, an order in which it excludes the
    mean of the same draws: where chance explains that, the bound moves outward to the mean. Where chance does not, an upper
    bound below the mean stays, for `lethe.results.licence.below_own_mean` to find; after any other order, such as that of
    a sorted file, the bounds that need the order are left out.

    Chance is refused if a bound at the level `CHANCE`, shared by all prompts, excludes the mean too; or if so many of the
    prompts are excluded at alpha that this has at most the probability `CHANCE_OF_MANY`, by the upper tail of a binomial
    distribution.
    """
    suspects = [place for place, row in enumerate(rows) if excluded(row)]
    if not suspects:
        return rows
    chance_of_as_many = float(bdtrc(len(suspects) - 1, len(prompts), alpha))
    too_many = alpha <= 0.1 and chance_of_as_many <= CHANCE_OF_MANY
    level = min(alpha, CHANCE / len(prompts))

    plausible = list(rows)
    for place in suspects:
        is_by_chance = not too_many and not _refutes_its_order(prompts[place].scores, level)
        if is_by_chance:
            plausible[place] = _moved_outward(rows[place])
            continue
        below_the_mean = [found for found in excluded(rows[place]) if found.is_below_the_mean]
        if not below_the_mean:
            plausible[place] = _without_ends_in_order(rows[place])
    return plausible


def _without_ends_in_order(rows: Sequence[Result]) -> list[Result]:
    """The rows, of which those whose ends need the order of the draws have none."""
    kept = []
    for row in rows:
        if row.quantity in IN_ORDER:
            row = without_ends(row)
        kept.append(row)
    return kept


def _refutes_its_order(scores: np.ndarray, level: float) -> bool:
    """Whether bounds at ``level`` exclude the mean or the standard deviation of the scores of a prompt."""
    table = scores[None, :]
    high = np.nan_to_num(table, nan=1.0)
    low = np.nan_to_num(table, nan=0.0)
    ends = betting.all_ends(low, high, level, betting.predictable_squares(table))
    least, most, largest_variance = [float(end[0]) for end in ends]
    plain = plain_statistics(scores, rho=0.0)
    is_mean_within = least - ROUNDING <= plain["score"] <= most + ROUNDING
    is_sd_within = plain["sd"] <= math.sqrt(largest_variance) + ROUNDING
    return not is_mean_within or not is_sd_within


def _moved_outward(rows: Sequence[Result]) -> list[Result]:
    """The rows, of which those that exclude a value of their own scores contain it."""
    value_of_row = {id(found.row): found.value for found in excluded(rows)}
    moved = []
    for row in rows:
        value = value_of_row.get(id(row))
        if value is not None:
            row = containing(row, value)
        moved.append(row)
    return moved


def refuted_by_order(prompts: Sequence[PromptScores]) -> tuple[str, ...]:
    """The prompts whose mean lies above its own upper bound at the level `CHANCE`, shared by all of them.

    A missing score counts as 1 in the bound, so that what is missing refutes nothing.
    """
    level = CHANCE / max(1, len(prompts))
    filled = [np.nan_to_num(prompt.scores, nan=1.0) for prompt in prompts]
    uppers = by_length(filled, lambda rows: betting.mean_upper(rows, level).tolist())
    refuted = []
    for prompt, upper in zip(prompts, uppers, strict=True):
        plain = plain_statistics(prompt.scores, rho=0.0)
        if plain["score"] > upper + ROUNDING:
            refuted.append(prompt.prompt_id)
    return tuple(refuted)
