"""What holds, in either direction of the numbers, and the parts of the page: questions, ends, words, rules."""

import dataclasses
import json
import re
import unicodedata
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.workspace import plots_page
from lethe.data.rows import aim
from lethe.io.artifacts import write_splits
from lethe.io.files import read_json
from lethe.measure.answers import BINS
from lethe.measure.run import RunModel
from lethe.registry import DATASETS
from lethe.report import picker
from lethe.report.columns import IN_WORDS, between
from lethe.report.page import plots
from lethe.report.picker import as_data, text_parts
from lethe.report.tables import band, language_views
from lethe.results import table
from lethe.results.table import Numbers, Rows
from lethe.results.wording import FORGET
from lethe.statistics.bound import Bound, Covers
from lethe.text import INVISIBLE, LONGEST, number
from lethe.verdict.claims import MORE_THAN_RETRAIN, findings, leak_share
from tests.cases import cases
from tests.lethe.report import chromium
from tests.lethe.report.conftest import MODELS, load, rendered
from tests.lethe.report.synthetic import change_params


def set_scores(root, model, scores, split="forget", scorer="rouge_l"):
    """Replace a score of a model's answers: ``scores(question number, n)`` are n values, the greedy one first."""
    path = root / f"data/scores/{model}/{split}.parquet"
    table = pd.read_parquet(path)
    for place, (_, rows) in enumerate(table.groupby("prompt_id", sort=False).groups.items()):
        table.loc[rows, scorer] = np.asarray(scores(place, len(rows)), dtype=float)
    table.to_parquet(path)


def claim(run, title):
    found = [claim for claim in findings(run).claims if claim.title.startswith(title)]
    assert len(found) == 1
    return {row.subject: row for row in found[0].rows}


def halves(low, high):
    return lambda place, n: np.where(np.arange(n) % 2, low, high)


@pytest.mark.parametrize(
    ("entropy", "control", "verdict"),
    [
        (halves(0.4, 0.6), halves(0, 1), "holds"),
        (halves(0, 1), halves(0.4, 0.6), "the opposite holds"),
        (halves(0, 1), halves(0, 1), "did not show"),
    ],
)
def test_spread_of_entropy_against_its_control(own_artifacts, entropy, control, verdict):
    set_scores(own_artifacts, "npo_entropy", entropy)
    set_scores(own_artifacts, "npo_matched", control)
    row = claim(load(own_artifacts), "Entropy optimisation narrows")["npo_entropy"]
    assert row.verdict == verdict
    assert {"npo_entropy 0.", "npo_matched 0."} <= set(re.findall(r"\w+ 0\.", row.sentence))


@pytest.mark.parametrize(("share", "verdict"), [(0.5, "holds"), (0.0, "did not show")])
def test_leakage_against_retrain(own_artifacts, share, verdict):
    set_scores(own_artifacts, "retrain", lambda place, n: np.zeros(n), scorer="keyword_leak")
    set_scores(
        own_artifacts, "npo", lambda place, n: np.arange(n) % 2 < 2 * share, scorer="keyword_leak"
    )
    assert claim(load(own_artifacts), MORE_THAN_RETRAIN)["npo"].verdict == verdict


def test_diversity_lost_by_adaptive_temperature(own_artifacts):
    for model, same in (("npo", False), ("npo_at", True)):
        rows = [
            (f"retain-{q:03d}", s, "always this" if same else f"answer {s}")
            for q in range(60)
            for s in range(-1, 64)
        ]
        table = pd.DataFrame(rows, columns=["prompt_id", "sample", "text"])
        table.to_parquet(own_artifacts / f"data/generations/{model}/retain.parquet")
        scores = table.drop(columns="text").assign(rouge_l=0.5, keyword_leak=0.0)
        scores.to_parquet(own_artifacts / f"data/scores/{model}/retain.parquet")
    row = claim(load(own_artifacts), "Adaptive temperature costs diversity on retain")["npo_at"]
    assert row.verdict == "holds"


def write_leaks(root, name, sampled, greedy, judged=None):
    """Results of questions that hold only these shares of sampled answers, greedy leaks and lower bounds by a judge."""
    rows = Rows(name)
    for place, (share, first) in enumerate(zip(sampled, greedy, strict=True)):
        where = {"item": str(place), "split": "forget"}
        rows.add("question", "leak", "sampled", share, **where)
        rows.add("question", "leak", "greedy", float(first), **where)
        if judged:
            lower = Bound(judged[place], "lower", 0.01, Covers.ONE_PROMPT, "draws", "made up")
            rows.add("question", "leak", "judged", None, lower, None, **where)
    table.write(table.place(root / "data", "metrics", name), rows.rows)


def test_hidden_leakage_is_counted_and_compared_with_retrain(own_artifacts):
    sampled, greedy = [0.1] * 6, [0] * 6
    write_leaks(own_artifacts, "npo", sampled, greedy)
    write_leaks(own_artifacts, "npo_at", [0.1, 0.1, 0.1, 0.0, 0.0, 0.0], [1, 0, 0, 0, 0, 0])
    write_leaks(own_artifacts, "retrain", [0.0] * 6, [0] * 6)
    run = load(own_artifacts)
    rows = claim(run, "More questions leak")
    assert rows["npo"].verdict == "holds"
    assert re.findall(r"\d of \d", rows["npo"].sentence) == ["6 of 6", "0 of 6"]
    assert rows["npo_at"].verdict == "did not show"  # 2 of 6 beside 0 of 6 is no proof
    write_leaks(own_artifacts, "retrain", sampled, greedy)
    assert claim(load(own_artifacts), "More questions leak")["npo"].verdict == "did not show"


def test_verdicts_of_a_judge_that_errs_are_not_counted_as_leaks(own_artifacts):
    write_leaks(own_artifacts, "npo", [0.1] * 6, [0] * 6, judged=[0.01, 0, 0, 0, 0, 0])
    claims = findings(load(own_artifacts)).claims
    (found,) = (claim for claim in claims if claim.title.startswith("More questions leak"))
    row = next(row for row in found.rows if row.subject == "npo")
    assert "1 of 6" in row.sentence
    assert "judge" in found.measured
    assert "counted" not in found.measured


def test_all_intervals_share_alpha(run):
    found = findings(run)
    compared = [
        claim for claim in found.claims if not claim.title.startswith("More questions leak")
    ]
    assert found.comparisons == sum(len(claim.rows) for claim in compared)
    share = run.params.metrics.alpha / (2 * found.comparisons)
    models = {model.name: model for model in run.models}
    quantity = leak_share("keyword_leak")
    told = [
        f"{name} {quantity.worded(quantity.measure(models[name], share))}"
        for name in ("npo", "retrain")
    ]
    assert claim(run, MORE_THAN_RETRAIN)["npo"].sentence == f"{', '.join(told)}."


def test_nothing_is_shown_on_null_data(run):
    """All models draw from one distribution: at alpha .01 none of twenty runs may show a difference."""
    rng = np.random.default_rng(4)
    for _ in range(20):
        models = [dataclasses.replace(model, answers=null_answers(rng)) for model in run.models]
        for found in findings(dataclasses.replace(run, models=models)).claims:
            if not found.title.startswith(
                "More questions leak"
            ):  # a count of questions, no inference
                assert {row.verdict for row in found.rows} == {"did not show"}


def null_answers(rng):
    index = [(f"q{question}", sample) for question in range(6) for sample in range(200)]
    table = pd.DataFrame(index, columns=["prompt_id", "sample"])
    table["rouge_l"], table["keyword_leak"] = (
        rng.beta(1, 3, len(table)),
        (rng.random(len(table)) < 0.1).astype(float),
    )
    table["text"] = rng.integers(40, size=len(table)).astype(str)
    return dict.fromkeys(("forget", "retain", "world"), table)


def test_a_panel_has_one_checkpoint_beside_base_and_retrain(run):
    drawn = plots(run)
    for name in ("m_gen.json", "per_question.json"):
        panels: dict[str, set[str]] = {}
        for row in drawn[name]:
            panels.setdefault(row["panel"], set()).add(row["model"])
        assert set(panels) == {"grad_ascent", "npo", "npo_matched", "npo_entropy"}
        assert panels["npo"] == {"base", "retrain", "npo", "npo_at"}
        assert all({"base", "retrain"} < models and len(models) <= 4 for models in panels.values())
    lines = {row["model"]: row["line"] for row in drawn["m_gen.json"]}
    assert {lines[name] for name in ("base", "retrain")} == {"reference"}
    assert (lines["npo"], lines["npo_at"]) == ("weights", "adaptive")
    assert all(
        row["panel"] == row["model"]
        for row in drawn["training_loss.json"]
        if row["loss"] is not None
    )


@pytest.mark.slow
@pytest.mark.skipif(
    chromium.found() is None, reason="no chromium: install the package of that name"
)
def test_the_page_of_dvc_draws_and_asks_for_nothing(tmp_path):
    values = [{"x": 1, "y": 2}, {"x": 2, "y": 3}]
    axis = {"type": "quantitative"}
    plot = {
        "data": {"values": values},
        "mark": "bar",
        "encoding": {key: {"field": key, **axis} for key in "xy"},
    }
    drawn = f"<div id='plot'></div><script>drawn = vegaEmbed('#plot', {json.dumps(plot)})</script>"
    tried = "<img src='http://127.0.0.1:8/x.png'>"
    path = tmp_path / "plots.html"
    path.write_text(
        plots_page().replace("{refresh_tag}", "").replace("{plot_divs}", drawn + tried),
        encoding="utf-8",
    )
    with chromium.page() as tab:
        tab.open(path)
        tab.call("Runtime.evaluate", expression="drawn", awaitPromise=True)
        assert tab.evaluate("document.querySelectorAll('#plot canvas, #plot svg').length") > 0
        (refused,) = map(str, tab.logged)
        assert "x.png" in refused
        assert "Content Security Policy" in refused


TEXTS = st.text(max_size=80) | st.text(
    st.sampled_from("a<>&\"'\\\n\x00\u202e\u2028漢\U0001f600\ud800"), max_size=80
)


def block(html: str) -> dict:
    return json.loads(re.search(r'id="questions-data">(.*?)</script>', html, re.S)[1])


@given(TEXTS)
def test_a_text_comes_back_whole_with_its_invisible_characters_named(text):
    told = text_parts(text)
    parts = [told] if isinstance(told, str) else told
    plain = "".join(part for part in parts if isinstance(part, str))
    assert not any(unicodedata.category(character) in INVISIBLE for character in plain)
    assert (
        "".join(part if isinstance(part, str) else chr(int(part[1], 16)) for part in parts) == text
    )


@given(
    st.recursive(
        TEXTS | st.integers() | st.none(), lambda inner: st.lists(inner, max_size=3), max_leaves=8
    )
)
def test_nothing_in_the_block_ends_it(value):
    shown = str(as_data(value))
    assert not set("<>&") & set(shown)
    assert json.loads(shown) == value


@given(st.text(max_size=2000), st.integers(picker.SHORTEST, 400))
def test_a_text_is_cut_to_what_it_may_take_and_says_so(text, most):
    parts = text_parts(text, most=most)
    told = parts[-1] if isinstance(parts, list) and parts and isinstance(parts[-1], int) else None
    kept = (
        parts if isinstance(parts, str) else [part for part in parts if not isinstance(part, int)]
    )
    assert len(as_data(kept if told is None else kept or "").encode()) <= most + 4
    cut = len(text) > LONGEST or len(as_data(text_parts(text)).encode()) > most
    assert (told == len(text)) if cut else (told is None)


def test_every_question_of_every_model_is_in_the_block(run, page):
    found = block(page.html)
    assert found["models"] == [model.name for model in run.models]
    assert [name for name, *_ in found["questions"]] == list(run.forget)
    heads = [head for head, _ in found["columns"]]
    for model, told in zip(run.models, found["told"], strict=True):
        for row, (binary, score, drawn, histogram, worst) in zip(
            model.questions, told, strict=True
        ):
            cells = dict(zip(heads, [*found["shared"][binary], *score], strict=True))
            assert cells["mean"] == number(row.value("mean"))
            assert cells["M_µ"].endswith(row.bounds["m_mu"].number())
            assert len(histogram) == BINS
            assert sum(histogram) == row.value("n") == int(drawn)
            assert len(worst) <= picker.LISTED


SHARE = st.floats(0, 1)


@given(SHARE, SHARE)
def test_both_ends_round_outward_and_none_promises_certainty(end, other):
    low, high = sorted((end, other))
    lower, upper = map(Fraction, band(low, high).split(" to "))
    least, most = (Fraction(repr(end)) for end in (low, high))  # as `Bound` reads a float
    assert lower <= least < lower + Fraction(2, 1000)
    assert lower < 1
    assert upper - Fraction(1, 1000) < most <= upper


def test_both_ends_of_the_share_of_prompts_are_said():
    rows = Rows("m")
    rest = (0.05, Covers.PROMPTS_OF_LANGUAGE, "random prompts")
    facts = {"path": "l.yaml", "scorer": "keyword_leak", "binary": True, "tau": 0.2}
    facts["left_out"] = {"system: kind": 2}
    rows.add("model", "language", "language", evidence=facts)
    rows.add("model", "worst_production", "language", text="plain")
    # two methods, so two rows
    ends = Bound(0.1, "lower", *rest, "detected"), Bound(0.4, "upper", *rest, "certified")
    rows.add("model", "share_above", "language", None, *ends)
    evidence = {"probability": 0.5, "choices": {"prefix": "plain"}}
    rows.add(
        "model", "production", "language", 0.25, item="plain", n=8, missing=0, evidence=evidence
    )
    model = RunModel("m", "subject", "m", numbers=Numbers(rows.rows))
    (view,) = language_views(SimpleNamespace(models=[model], forget={"q": {}}, words=FORGET))
    said = " ".join(view.sentences)
    assert "25% of its 8 answers" in said
    assert "at most 40.0%" in said
    assert "at least 10.0%" in said
    assert "kind, for 2 questions" in said
    assert view.rows == [["plain", "50%", "8", "25%", "–", "–"]]


def rows_of(html: str, section: str) -> dict[str, str]:
    body = html.split(f'<section id="{section}">')[1].split("<tbody>")[1].split("</tbody>")[0]
    return dict(re.findall(r'<th scope="row">([^<]*)</th>(.*?)</tr>', body, re.S))


def test_every_model_has_its_two_words_in_the_first_table(page):
    rows = rows_of(page.html, "verdicts")
    assert list(rows) == list(MODELS)
    for name, row in rows.items():
        told = page.summary["models"][name]
        words = [told[aspect]["word"] for aspect in ("forgetting", "utility")]
        assert (
            re.findall(r'<span class="word [a-z]+">([^<]*)</span>', re.sub(r"</?a[^>]*>", "", row))
            == words
        )
        if name in ("base", "retrain"):
            assert words == ["reference", "reference"]


def screen(html: str) -> str:
    first = html.split('<section id="verdicts">')[1].split("</section>")[0]
    return re.sub(r"<[^>]+>", "", first)


@cases
def test_the_keyword_rule_in_force_is_on_the_first_screen(own_small, without_figures, rule, words):
    change_params(own_small, lambda value: value["score"].update(keyword_match=rule))
    told = screen(rendered(own_small).html)
    assert f"{words} (score.keyword_match: {rule})" in told


def test_too_few_answers_come_with_the_number_that_would_do(small_page):
    """Three questions of 64 answers: no share could be shown to be small."""
    for model in ("npo", "npo_at"):
        told = small_page.summary["models"][model]["forgetting"]
        assert told["word"] == "open"
        assert told["decides"]["answers"] > 64


@cases
def test_no_band_promises_certainty(lower, upper, told):
    rest = (0.01, Covers.WORST_PROMPT, "draws", "made up")
    told_band = between(
        Bound(lower, "lower", *rest), Bound(upper, "upper", *rest), "probability", IN_WORDS
    )
    assert told_band == told


ROW = {"id": "a", "question": "q", "answer": "a"}


def test_only_kinds_of_requests_are_to_be_refused(tmp_path):
    """The kind decides and the dataset's own record says so; the record of a set to forget is as before."""
    found = {kind: aim(kind) for kind in DATASETS.names()}
    assert {kind for kind, what in found.items() if what == "refuse"} == {
        "requests",
        "jailbreakbench",
        "harmbench",
    }
    for what, told in (("forget", {}), ("refuse", {"aim": "refuse"})):
        write_splits({"forget": [ROW]}, "jsonl", tmp_path / what, what)
        about = read_json(tmp_path / what / "about.json")
        assert about == {"schema": 1, "kind": "jsonl", **told, "rows": {"forget": 1}}
