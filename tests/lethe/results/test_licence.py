"""The licence of a claim: each fact that refutes an assumption stops it, and nothing else does."""

import dataclasses

import pytest

from lethe.results.licence import Source, below_own_mean, licensed, of_drawing, refusals
from lethe.results.table import Rows
from lethe.statistics.bound import Assumes, Bound, Covers

FACTS = {
    "failed_probes": ("draws",),
    "failed_probes_of_walk": ("walk",),
    "repeated_answers": "8 of 8 rows are cached",
    "deterministic": "do_sample is false",
    "below_own_mean": ("ada",),
    "ids_not_understood": "The column question_id repeats",
    "score_means": "unknown",
    "unlabelled_judge": "The judge harmbench has no labels",
    "labels_not_random": "All 200 labels are of one question",
    "unfinished": "The run says that it did not end",
    "unchecked_engine": "The engine prefix disagreed with whole passes",
    "mixed": "Prompt 'a' has answers of 2 models ('x' and 'y')",
    "refused": ("The log states greedy decoding. Draw the answers again.",),
}


def upper(value: float, alpha: float = 0.01) -> Bound:
    return Bound(value, "upper", alpha, Covers.ONE_PROMPT, Assumes.DRAWS_IN_ORDER, "betting", 8)


def test_the_cases_hold_every_fact_of_a_source():
    assert FACTS.keys() == {field.name for field in dataclasses.fields(Source)}


def test_a_source_of_which_nothing_is_refuted_has_a_licence():
    assert refusals(Source()) == []


@pytest.mark.parametrize("fact", FACTS)
def test_each_fact_alone_refuses_the_licence_in_two_sentences_the_last_of_which_is_an_order(fact):
    (reason,) = refusals(Source(**{fact: FACTS[fact]}))

    assert reason.count(". ") == 1
    assert reason.split(". ")[1].split()[0] in (
        "Draw",
        "Give",
        "Name",
        "Say",
        "Label",
        "Let",
        "Walk",
    )


def test_each_of_several_facts_has_a_reason_of_its_own():
    assert len(refusals(Source(**FACTS))) == len(FACTS)


def test_a_score_of_1_that_is_no_leak_refuses_a_bound_of_leaks():
    assert "--leak-is low" in refusals(Source(score_means="no leak"))[0]


def test_two_sources_together_have_the_facts_of_both():
    joined = Source(failed_probes=("draws",)).joined(
        Source(failed_probes=("cuts", "draws"), deterministic="greedy", score_means="unknown")
    )

    assert joined.failed_probes == ("draws", "cuts")
    assert joined.deterministic == "greedy"
    assert joined.score_means == "unknown"


def test_a_bound_below_the_mean_of_its_own_scores_is_found_by_the_name_of_its_question():
    rows = Rows("scores")
    for item, bound in (("ada", 0.0015), ("bo", 0.02)):
        rows.add("question", "score", "sampled", 0.018, item=item, split="forget")
        rows.add(
            "question",
            "score_betting",
            "sampled",
            None,
            None,
            upper(bound),
            item=item,
            split="forget",
        )

    assert below_own_mean(rows.rows) == ("ada",)


def test_a_bound_is_compared_with_the_mean_of_its_own_scores_alone():
    rows = Rows("scores")
    rows.add("question", "score", "sampled", 0.5, item="ada", split="judged alone")
    rows.add(
        "question", "score_betting", "sampled", None, None, upper(0.1), item="ada", split="forget"
    )

    assert below_own_mean(rows.rows) == ()


def probe(name: str, passed: bool | None, needed: bool = True) -> dict[str, object]:
    return {"name": name, "passed": passed, "needed": needed, "sentence": "seen"}


def test_only_a_needed_probe_that_failed_refutes_the_draws_of_a_server():
    probes = [
        probe("draws", False),
        probe("cuts", None),
        probe("n", False, needed=False),
        probe("seed", True),
    ]

    assert of_drawing({"served": {"probes": probes}}, ()).failed_probes == ("draws",)


def test_an_engine_that_nothing_compared_with_whole_passes_is_unchecked():
    check = {"unchecked": "the engine mine does not show its steps"}

    known = of_drawing({"engine_check": check}, ())

    assert "not show its steps" in (known.unchecked_engine or "")
    assert not refusals(of_drawing({"engine_check": {"unchecked": None}}, ()))


def test_rows_without_a_licence_keep_their_estimates_and_say_why_nothing_is_claimed():
    rows = Rows("m")
    rows.add("question", "leak", "sampled", 0.1, None, upper(0.3), item="ada", split="forget")
    rows.add("model", "leak_worst", "sampled", None, None, upper(0.3), split="forget")

    estimate, reason = licensed("m", rows.rows, Source(failed_probes=("draws",)))

    assert (estimate.estimate, estimate.upper, estimate.alpha_upper) == (0.1, None, None)
    assert reason.facts["reasons"] == refusals(Source(failed_probes=("draws",)))


def test_rows_with_a_licence_stay_as_they_are():
    rows = Rows("m")
    rows.add("question", "leak", "sampled", 0.1, None, upper(0.3), item="ada", split="forget")

    assert licensed("m", rows.rows, Source()) == rows.rows
