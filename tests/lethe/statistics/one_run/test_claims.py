"""Who may say that a claimed epsilon is contradicted: exact only where the caller states independent channels."""

import lethe

RUN = {"n": 1000, "r": 200, "errors": 26, "delta": 1e-5, "claimed_epsilon": 3.0}


def test_exact_does_not_decide_from_bare_counts():
    audit = lethe.audit.one_run(**RUN)

    assert audit["exact"].epsilon_lower > 3
    assert audit.verdict.method == "mahloujifar"
    assert audit.verdict.contradicted is False
    assert audit.verdict.contradicted_by == []


def test_exact_decides_where_the_channels_are_stated_independent():
    verdict = lethe.audit.one_run(**RUN, independent=True).verdict

    assert (verdict.method, verdict.contradicted) == ("exact", True)
    assert "exact" in verdict.contradicted_by


def test_a_method_that_needs_independence_gives_no_word_without_it():
    audit = lethe.audit.one_run(**RUN, method="exact")

    assert audit.verdict.contradicted is None
    assert "--independent" in audit.verdict.refused[0]
    assert audit.sentences()[-1].startswith("No word on the")
    assert "claimed epsilon 3: exact needs" in audit.sentences()[-1]


def test_a_method_that_holds_under_any_dependence_contradicts_a_small_claim():
    audit = lethe.audit.one_run(**RUN | {"claimed_epsilon": 1.0})

    assert audit.verdict.contradicted is True
    assert audit.verdict.contradicted_by == ["steinke", "mahloujifar"]
