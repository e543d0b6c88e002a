"""The twin test in a report: the word beside the verdict, what both mean together, curves and authors."""

import json

import pytest

from lethe.statistics.twins import rank_band
from tests.lethe.report.conftest import rendered
from tests.lethe.report.synthetic import write_run, write_traces

CHANCE = [7, 12, 3, 18, 9, 15, 5, 11, 14]
MODELS = {
    "base": {"path": "data/models/base"},
    "retrain": {"path": "data/models/retrain"},
    "npo": {"path": "data/models/npo"},
    "grad_ascent": {"path": "data/models/grad_ascent"},
}


def page_of_traces(root, questions=9, **ranks):
    write_run(root, questions=questions, models=MODELS)
    if ranks:
        write_traces(root, {"base": [1] * 9, "retrain": CHANCE} | ranks)
    return rendered(root)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return page_of_traces(tmp_path_factory.mktemp("traces"), npo=[20] * 9, grad_ascent=CHANCE)


@pytest.mark.slow
def test_the_word_stands_beside_the_verdict(page):
    assert '<span class="word bad">trace</span>' in page.html
    assert '<span class="word open">open</span>' in page.html


def test_a_sentence_says_what_verdict_and_trace_mean_together(page):
    assert page.summary["models"]["npo"]["forgetting"]["word"] == "open"
    assert "npo: open, trace. It" in page.html
    assert "is proved to know" in page.html


def test_the_summary_holds_the_record_of_section_7(page):
    record = json.loads(json.dumps(page.summary["models"]["npo"]["trace"]))

    assert record["word"] == "trace"
    assert record["direction"] == "avoided"
    assert record["ranked_last"]["count"] == 9
    assert record["control"] == {"model": "retrain", "p": 1.0, "holds": True}
    assert record["sentence"].startswith("npo: trace: its")
    assert "secrets rank too low" in record["sentence"]
    assert [author["author"] for author in record["authors"]] == [
        "author 0",
        "author 1",
        "author 2",
    ]


def test_every_tested_model_has_a_curve(page):
    for name in MODELS:
        assert f"trace-{name}.svg" in page.figures


def test_the_authors_are_listed_with_their_adjusted_p(page):
    assert "adjusted over the authors" in page.html
    assert "author 2" in page.html


def test_no_reference_has_a_word(page):
    for name in ("base", "retrain"):
        assert page.summary["models"][name]["trace"] == {}


@pytest.mark.slow
def test_a_control_that_rejects_leaves_no_word(tmp_path):
    page = page_of_traces(tmp_path, retrain=[20] * 9, npo=[1] * 9, grad_ascent=CHANCE)

    assert page.summary["models"]["npo"]["trace"]["word"] == "none"
    assert "is not exchangeable: retrain" in page.html


@pytest.mark.slow
def test_without_drawn_secrets_the_page_says_nothing_of_traces(tmp_path):
    page = page_of_traces(tmp_path)

    assert 'id="trace"' not in page.html
    assert '<th scope="col">trace</th>' not in page.html


def test_the_band_of_ranks_holds_all_counts_at_once():
    import numpy as np

    m = 30
    k = 20
    alpha = 0.05
    fewest, most = rank_band(m, k, alpha)
    ranks = np.random.default_rng(0).integers(1, k + 1, (20_000, m))
    counts = (ranks[:, None, :] <= np.arange(1, k + 1)[:, None]).sum(axis=2)
    outside = ((counts < fewest) | (counts > most)).any(axis=1).mean()

    assert outside <= alpha
    assert most[-1] == fewest[-1] == m
