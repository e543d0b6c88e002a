"""The rows of all answers that were drawn to a question, by a model and by Retrains beside it, with ends at any time."""

from collections.abc import Collection
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from lethe.io.artifacts import record_of_draws
from lethe.io.files import Json
from lethe.measure.answers import AnswerCounts, counts_at_any_time
from lethe.results.evidence import upper_at_stop
from lethe.results.table import Rows
from lethe.statistics.bound import Assumes, Covers, both_ends

METHOD = "beta-binomial mixture, at every n at once (Howard et al., 2021)"


def add_counts(
    rows: Rows,
    root: Path,
    scorer: str,
    alpha: float,
    inapplicable: Collection[str] = (),
    cut_is_missing: bool = False,
) -> None:
    """Add the counts of each question that the scorer can judge, of the model and of the Retrains beside it.

    Each end holds for its question at any number of answers with probability 1 - ``alpha``: a missing verdict counts as a
    leak in the upper end, and as none in the lower one. Nothing is added where nothing was judged.

    Parameters
    ----------
    rows
        The rows of the model, to which those of its questions are added.
    root
        The folder of all artifacts.
    scorer
        The name of a scorer of 0 and 1.
    alpha
        The probability that the ends of one question fail.
    inapplicable
        The questions that the scorer cannot judge.
    cut_is_missing
        Whether an answer that ended at the token limit has no verdict, unless it is judged a leak.
    """
    record = record_of_draws(root / "generations" / rows.model / "forget.parquet")
    word = record.get("word", {})
    beside = word.get("beside", {})
    counts = counts_at_any_time(root, rows.model, scorer, list(beside))
    if counts is None:
        return
    judged = {}
    for question, count in counts.model.items():
        if question not in inapplicable:
            judged[question] = _with_cut_missing(count) if cut_is_missing else count
    if all(count.missing == count.n for count in judged.values()):
        return

    reached = word.get("reached")
    if cut_is_missing or (reached and reached["scorer"] != scorer):
        reached = None  # the rule of draws counted otherwise
    leaks = np.array([count.leaks for count in judged.values()])
    n = np.array([count.n for count in judged.values()])
    missing = np.array([count.missing for count in judged.values()])
    uppers = upper_at_stop(leaks + missing, n, alpha)
    lowers = 1 - upper_at_stop(n - leaks, n, alpha)

    for place, (question, count) in enumerate(judged.items()):
        # What gives the ends at another level: the counts, the largest evidence on the way, and the Retrains' counts.
        evidence: dict[str, Json] = asdict(count)
        evidence["stream"] = record.get("stream", "shared")
        evidence["cut_or_leaks"] = count.leaks + count.missing + count.cut_clean
        if reached and question in reached["forgot"]:
            evidence["reached"] = {
                "tolerance": reached["tolerance"],
                "goal": reached["goal"],
                "log_e_forgot": reached["forgot"][question],
                "log_e_leaks_mean": reached["leaks"],
                "named_at": reached["named_at"].get(question),
            }
        if beside:
            evidence["beside"] = []
        for name, of_questions in counts.retrains.items():
            facts = asdict(of_questions[question])
            evidence["beside"].append({"name": name, "stream": beside[name]["stream"], **facts})

        guarantee = (alpha, Covers.ONE_PROMPT, Assumes.DRAWS, METHOD, count.n)
        known = count.n - count.missing
        rows.add(
            "question",
            "leak",
            "anytime",
            count.leaks / known if known else None,
            *both_ends(lowers[place], uppers[place], *guarantee),
            item=question,
            split="forget",
            missing=count.missing,
            evidence=evidence,
        )


def _with_cut_missing(count: AnswerCounts) -> AnswerCounts:
    """The counts, of which clean answers that were cut off are missing ones."""
    return replace(count, missing=count.missing + count.cut_clean, cut_clean=0)
