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


def claim_of(run, title):
    """The only claim of the run whose title begins with these words."""
    (found,) = (claim for claim in findings(run).claims if claim.title.startswith(title))
    return found


def rows_of_claim(run, title):
    return {row.subject: row for row in claim_of(run, title).rows}


def halves(low, high):
    """Scores of a question's answers, ``low`` and ``high`` by turns."""
    return lambda place, n: np.where(np.arange(n) % 2, low, high)


NARROW = halves(0.4, 0.6)
WIDE = halves(0, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("entropy", "control", "verdict"),
    [
        pytest.param(NARROW, WIDE, "holds", id="narrower"),
        pytest.param(WIDE, NARROW, "the opposite holds", id="wider"),
        pytest.param(WIDE, WIDE, "did not show", id="as wide"),
    ],
)
def test_spread_of_entropy_against_its_control(own_artifacts, entropy, control, verdict):
    set_scores(own_artifacts, "npo_entropy", entropy)
    set_scores(own_artifacts, "npo_matched", control)

    rows = rows_of_claim(load(own_artifacts), "Entropy optimisation narrows")

    found = rows["npo_entropy"]
    assert found.verdict == verdict
    assert "npo_entropy 0." in found.sentence
    assert "npo_matched 0." in found.sentence


@pytest.mark.parametrize(("share", "verdict"), [(0.5, "holds"), (0.0, "did not show")])
def test_leakage_against_retrain(own_artifacts, share, verdict):
    def leaks(place, n):
        return np.arange(n) % 2 < 2 * share

    def no_leaks(place, n):
        return np.zeros(n)

    set_scores(own_artifacts, "retrain", no_leaks, scorer="keyword_leak")
    set_scores(own_artifacts, "npo", leaks, scorer="keyword_leak")

    rows = rows_of_claim(load(own_artifacts), MORE_THAN_RETRAIN)

    assert rows["npo"].verdict == verdict


def write_answers_on_retain(root, model, text_of):
    """Answers to 60 questions of retain, the greedy one and 64 draws of each, with equal scores."""
    rows = []
    for question in range(60):
        for sample in range(-1, 64):
            prompt_id = f"retain-{question:03d}"
            rows.append({"prompt_id": prompt_id, "sample": sample, "text": text_of(sample)})
    answers = pd.DataFrame(rows)
    scores = answers.drop(columns="text").assign(rouge_l=0.5, keyword_leak=0.0)
    answers.to_parquet(root / f"data/generations/{model}/retain.parquet")
    scores.to_parquet(root / f"data/scores/{model}/retain.parquet")


def test_diversity_lost_by_adaptive_temperature(own_artifacts):
    write_answers_on_retain(own_artifacts, "npo", lambda sample: f"answer {sample}")
    write_answers_on_retain(own_artifacts, "npo_at", lambda sample: "always this")

    rows = rows_of_claim(load(own_artifacts), "Adaptive temperature costs diversity on retain")

    assert rows["npo_at"].verdict == "holds"


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


LEAKS_OF_ALL = {"sampled": [0.1] * 6, "greedy": [0] * 6}
LEAKS_OF_NONE = {"sampled": [0.0] * 6, "greedy": [0] * 6}


def test_hidden_leakage_is_counted_and_compared_with_retrain(own_artifacts):
    write_leaks(own_artifacts, "npo", **LEAKS_OF_ALL)
    write_leaks(
        own_artifacts,
        "npo_at",
        sampled=[0.1, 0.1, 0.1, 0.0, 0.0, 0.0],
        greedy=[1, 0, 0, 0, 0, 0],
    )
    write_leaks(own_artifacts, "retrain", **LEAKS_OF_NONE)

    rows = rows_of_claim(load(own_artifacts), "More questions leak")

    assert rows["npo"].verdict == "holds"
    assert re.findall(r"\d of \d", rows["npo"].sentence) == ["6 of 6", "0 of 6"]
    assert rows["npo_at"].verdict == "did not show"  # 2 of 6 beside 0 of 6 is no proof


def test_hidden_leakage_that_retrain_has_too_is_not_shown(own_artifacts):
    write_leaks(own_artifacts, "npo", **LEAKS_OF_ALL)
    write_leaks(own_artifacts, "retrain", **LEAKS_OF_ALL)

    rows = rows_of_claim(load(own_artifacts), "More questions leak")

    assert rows["npo"].verdict == "did not show"


def test_verdicts_of_a_judge_that_errs_are_not_counted_as_leaks(own_artifacts):
    write_leaks(own_artifacts, "npo", **LEAKS_OF_ALL, judged=[0.01, 0, 0, 0, 0, 0])

    found = claim_of(load(own_artifacts), "More questions leak")

    (row,) = (row for row in found.rows if row.subject == "npo")
    assert "1 of 6" in row.sentence
    assert "judge" in found.measured
    assert "counted" not in found.measured


def inferred(claims):
    """The claims that an interval proves: how many questions leak is a count, and no inference."""
    return [claim for claim in claims if not claim.title.startswith("More questions leak")]


def test_every_row_of_an_inferred_claim_is_a_comparison(run):
    found = findings(run)

    assert found.comparisons == sum(len(claim.rows) for claim in inferred(found.claims))


def test_all_intervals_share_alpha(run):
    share = run.params.metrics.alpha / (2 * findings(run).comparisons)
    models = {model.name: model for model in run.models}
    quantity = leak_share("keyword_leak")
    npo = quantity.worded(quantity.measure(models["npo"], share))
    retrain = quantity.worded(quantity.measure(models["retrain"], share))

    found = rows_of_claim(run, MORE_THAN_RETRAIN)["npo"]

    assert found.sentence == f"npo {npo}, retrain {retrain}."


@pytest.mark.slow
def test_nothing_is_shown_on_null_data(run):
    """All models draw from one distribution: at alpha .01 none of twenty runs may show a difference."""
    rng = np.random.default_rng(4)
    for _ in range(20):
        models = [dataclasses.replace(model, answers=null_answers(rng)) for model in run.models]
        null_run = dataclasses.replace(run, models=models)

        for claim in inferred(findings(null_run).claims):
            assert {row.verdict for row in claim.rows} == {"did not show"}


def null_answers(rng):
    index = pd.MultiIndex.from_product([[f"q{place}" for place in range(6)], range(200)])
    table = index.to_frame(index=False, name=["prompt_id", "sample"])
    n = len(table)
    table["rouge_l"] = rng.beta(1, 3, n)
    table["keyword_leak"] = (rng.random(n) < 0.1).astype(float)
    table["text"] = rng.integers(40, size=n).astype(str)
    return dict.fromkeys(("forget", "retain", "world"), table)


@pytest.mark.parametrize("plot", ["m_gen.json", "per_question.json"])
def test_a_panel_has_one_checkpoint_beside_base_and_retrain(run, plot):
    panels: dict[str, set[str]] = {}
    for row in plots(run)[plot]:
        panels.setdefault(row["panel"], set()).add(row["model"])

    assert set(panels) == {"grad_ascent", "npo", "npo_matched", "npo_entropy"}
    assert panels["npo"] == {"base", "retrain", "npo", "npo_at"}
    for models in panels.values():
        assert {"base", "retrain"} < models
        assert len(models) <= 4


def test_a_line_says_whether_its_model_is_a_reference_or_samples_otherwise(run):
    line_of_model = {row["model"]: row["line"] for row in plots(run)["m_gen.json"]}

    assert line_of_model["base"] == "reference"
    assert line_of_model["retrain"] == "reference"
    assert line_of_model["npo"] == "weights"
    assert line_of_model["npo_at"] == "adaptive"


def test_a_training_loss_is_in_the_panel_of_its_model(run):
    for row in plots(run)["training_loss.json"]:
        assert row["loss"] is None or row["panel"] == row["model"]


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


@pytest.mark.slow
@given(TEXTS)
def test_a_text_comes_back_whole_with_its_invisible_characters_named(text):
    told = text_parts(text)

    parts = [told] if isinstance(told, str) else told
    restored = ""
    for part in parts:
        if isinstance(part, str):
            categories = {unicodedata.category(character) for character in part}
            assert categories.isdisjoint(INVISIBLE)
            restored += part
        else:
            restored += chr(int(part[1], 16))
    assert restored == text


@pytest.mark.slow
@given(
    st.recursive(
        TEXTS | st.integers() | st.none(),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=8,
    )
)
def test_nothing_in_the_block_ends_it(value):
    shown = str(as_data(value))

    assert set("<>&").isdisjoint(shown)
    assert json.loads(shown) == value


@given(st.text(max_size=2000), st.integers(picker.SHORTEST, 400))
def test_a_text_is_cut_to_what_it_may_take_and_says_so(text, most):
    is_cut = len(text) > LONGEST or len(as_data(text_parts(text)).encode()) > most

    parts = text_parts(text, most=most)

    length = None
    kept = parts
    if isinstance(parts, list):
        if parts and isinstance(parts[-1], int):
            length = parts[-1]
        kept = [part for part in parts if not isinstance(part, int)]
    if length is not None and not kept:
        kept = ""
    assert len(as_data(kept).encode()) <= most + 4
    assert length == (len(text) if is_cut else None)


@pytest.mark.slow
def test_the_models_and_questions_of_the_block_are_those_of_the_run(run, page):
    found = block(page.html)

    assert found["models"] == [model.name for model in run.models]
    assert [name for name, *_ in found["questions"]] == list(run.forget)


def test_every_question_of_every_model_is_in_the_block(run, page):
    found = block(page.html)
    heads = [head for head, _ in found["columns"]]
    for model, told in zip(run.models, found["told"], strict=True):
        for row, question in zip(model.questions, told, strict=True):
            binary, score, drawn, histogram, worst = question
            cells = dict(zip(heads, [*found["shared"][binary], *score], strict=True))
            assert cells["mean"] == number(row.value("mean"))
            assert cells["M_µ"].endswith(row.bounds["m_mu"].number())
            assert len(histogram) == BINS
            assert sum(histogram) == row.value("n") == int(drawn)
            assert len(worst) <= picker.LISTED


SHARE = st.floats(0, 1)


def exactly(value):
    """The decimal number that a float is read as, by ``Bound`` too."""
    return Fraction(repr(value))


@given(SHARE, SHARE)
def test_both_ends_round_outward_and_none_promises_certainty(end, other):
    low, high = sorted((end, other))

    lower, upper = band(low, high).split(" to ")

    assert Fraction(lower) <= exactly(low) < Fraction(lower) + Fraction(2, 1000)
    assert Fraction(lower) < 1
    assert Fraction(upper) - Fraction(1, 1000) < exactly(high) <= Fraction(upper)


def view_of_language():
    """What the page says of a model of which 10% to 40% of all prompts leak, by two methods."""
    guarantee = (0.05, Covers.PROMPTS_OF_LANGUAGE, "random prompts")
    lower = Bound(0.1, "lower", *guarantee, "detected")
    upper = Bound(0.4, "upper", *guarantee, "certified")
    facts = {
        "path": "l.yaml",
        "scorer": "keyword_leak",
        "binary": True,
        "tau": 0.2,
        "left_out": {"system: kind": 2},
    }
    rows = Rows("m")
    rows.add("model", "language", "language", evidence=facts)
    rows.add("model", "worst_production", "language", text="plain")
    rows.add("model", "share_above", "language", None, lower, upper)
    rows.add(
        "model",
        "production",
        "language",
        0.25,
        item="plain",
        n=8,
        missing=0,
        evidence={"probability": 0.5, "choices": {"prefix": "plain"}},
    )
    model = RunModel("m", "subject", "m", numbers=Numbers(rows.rows))
    (view,) = language_views(SimpleNamespace(models=[model], forget={"q": {}}, words=FORGET))
    return view


def test_both_ends_of_the_share_of_prompts_are_said():
    said = " ".join(view_of_language().sentences)

    assert "at most 40.0%" in said
    assert "at least 10.0%" in said


def test_the_worst_choice_of_the_language_and_what_was_left_out_are_said():
    said = " ".join(view_of_language().sentences)

    assert "25% of its 8 answers" in said
    assert "kind, for 2 questions" in said


def test_a_choice_of_the_language_is_a_row():
    assert view_of_language().rows == [["plain", "50%", "8", "25%", "–", "–"]]


def rows_of(html: str, section: str) -> dict[str, str]:
    body = html.split(f'<section id="{section}">')[1].split("<tbody>")[1].split("</tbody>")[0]
    return dict(re.findall(r'<th scope="row">([^<]*)</th>(.*?)</tr>', body, re.S))


def words_in(row: str) -> list[str]:
    without_links = re.sub(r"</?a[^>]*>", "", row)
    return re.findall(r'<span class="word [a-z]+">([^<]*)</span>', without_links)


def test_every_model_has_its_two_words_in_the_first_table(page):
    rows = rows_of(page.html, "verdicts")

    assert list(rows) == list(MODELS)
    for name, row in rows.items():
        told = page.summary["models"][name]
        assert words_in(row) == [told["forgetting"]["word"], told["utility"]["word"]]


@pytest.mark.parametrize("name", ["base", "retrain"])
def test_what_others_are_compared_with_is_a_reference_in_both_words(page, name):
    assert words_in(rows_of(page.html, "verdicts")[name]) == ["reference", "reference"]


def screen(html: str) -> str:
    first = html.split('<section id="verdicts">')[1].split("</section>")[0]
    return re.sub(r"<[^>]+>", "", first)


@pytest.mark.slow
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
    guarantee = (0.01, Covers.WORST_PROMPT, "draws", "made up")
    low = Bound(lower, "lower", *guarantee)
    high = Bound(upper, "upper", *guarantee)

    assert between(low, high, "probability", IN_WORDS) == told


ROW = {"id": "a", "question": "q", "answer": "a"}


def test_only_kinds_of_requests_are_to_be_refused():
    refused = {kind for kind in DATASETS.names() if aim(kind) == "refuse"}

    assert refused == {"requests", "jailbreakbench", "harmbench"}


@pytest.mark.parametrize(
    ("what", "told"), [("forget", {}), ("refuse", {"aim": "refuse"})], ids=["forget", "refuse"]
)
def test_the_record_of_a_dataset_says_that_its_requests_are_to_be_refused(tmp_path, what, told):
    """The record of a set to forget is as before."""
    write_splits({"forget": [ROW]}, "jsonl", tmp_path, what)

    about = read_json(tmp_path / "about.json")
    assert about == {"schema": 1, "kind": "jsonl", **told, "rows": {"forget": 1}}
