"""The gate of `lethe exact`: on the answer trees of all questions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lethe.cli.gates.gate import Gate, closed_gate, gate_of, questions_at, without_bound
from lethe.cli.outcome import Arguments
from lethe.config.measuring import EXACT
from lethe.statistics.bound import Covers

if TYPE_CHECKING:
    from lethe.api import probabilities


def gate_of_trees(result: probabilities.ExactBounds, arguments: Arguments, tau: float) -> Gate:
    from lethe.io import tries
    from lethe.models.checkpoints import content
    from lethe.results.ends import Ends

    certificates = result.certificates
    trees = certificates.trees
    rows = result.rows()
    model = arguments["model"]
    named = content(model) if model.is_dir() else str(model)
    questions = sorted([*(tree.id for tree in trees), *certificates.skipped])
    evidence = [row.facts for row in rows if row.scope == "question"]
    alpha = trees[0].alpha if trees else EXACT.alpha
    attempt = tries.begin(["exact", named, questions], evidence, alpha)
    if result.refused:
        return closed_gate(tau, attempt, " ".join(result.refused))
    if certificates.skipped:
        return closed_gate(tau, attempt, without_bound(len(certificates.skipped)))
    items = [tree.id for tree in trees]
    ends = Ends.of_rows(rows, items)
    uppers = ends.upper(attempt.level)
    largest = int(uppers.argmax())
    worst = trees[largest]
    bound = worst.bounds["upper_certain"]
    if uppers[largest] < worst.upper_certain:
        bound = replace(worst.bounds["upper"], value=float(uppers[largest]), alpha=attempt.level)
    # Every question must pass at the level by itself (intersection-union), so the largest bound covers the worst one.
    bound = replace(bound, covers=Covers.WORST_PROMPT)
    cases = questions_at(items, ends.lower(attempt.level), uppers)
    return gate_of(tau, attempt, bound, worst.id, cases)
