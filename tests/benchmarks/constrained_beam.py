"""Constrained beam search for near-verbatim mass as published (arXiv 2603.24917), written from its description."""

import heapq
from collections.abc import Callable, Sequence

import numpy as np

from lethe.statistics.extraction import Distance

Continuations = Callable[[list[tuple[int, ...]]], np.ndarray]  # prefixes -> next-token probabilities (rows, V)


def beam_mass(
    chances: Continuations, near: Distance, length: int, width: int, end_ids: Sequence[int] = ()
) -> tuple[float, int]:
    """The summed probability of the continuations of ``length`` tokens that the beam ends with inside the distance, and the
    rows it read."""
    beams, rows = [(1.0, (), near.start[None])], 0
    for _ in range(length):
        candidates = []
        rows += len(beams)
        for (mass, tokens, edits), row in zip(beams, chances([each[1] for each in beams]), strict=True):
            for token in np.flatnonzero(row):
                after = near.step(edits, np.array([token]))
                if token not in end_ids and near.alive(after)[0]:
                    candidates.append((mass * row[token], (*tokens, int(token)), after))
        beams = heapq.nlargest(width, candidates, key=lambda each: each[0])
        if not beams:
            break
    return sum(mass for mass, _, edits in beams if near.final(edits)[0] <= near.most), rows
