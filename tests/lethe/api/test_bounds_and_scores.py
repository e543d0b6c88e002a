"""`lethe.bounds`, `score`, the audits and `load_run`: each form of the input gives the same result."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

import lethe
from lethe.errors import BadInput, LetheError
from lethe.io.files import plain, restored
from lethe.results import table
from tests.cases import cases

SCORES = {"a": [0.0, 0.5, 1.0, 0.25], "b": [1.0, 0.0, 0.0, 0.0]}


def bounds_of(scores: object) -> pd.DataFrame:
    return lethe.bounds(scores, alpha=0.05).to_frame()


@pytest.fixture
def score_table() -> pd.DataFrame:
    """`SCORES` with a row for each answer."""
    rows = []
    for name, scores in SCORES.items():
        for number, score in enumerate(scores):
            rows.append({"prompt_id": name, "sample": number, "score": score})
    return pd.DataFrame(rows)


def test_a_table_has_the_bounds_of_the_same_lists(score_table):
    assert bounds_of(score_table).equals(bounds_of(SCORES))


@pytest.mark.parametrize("form", [str, Path])
def test_a_file_of_scores_has_the_bounds_of_the_same_lists(score_table, tmp_path, form):
    path = tmp_path / "scores.csv"
    score_table.drop(columns="sample").to_csv(path, index=False)

    assert bounds_of(form(path)).equals(bounds_of(SCORES))


def test_a_greedy_answer_counts_in_no_bound(score_table):
    greedy = pd.DataFrame({"prompt_id": ["a", "b"], "sample": -1, "score": 1.0})

    found = bounds_of(pd.concat([greedy, score_table]))

    assert found.equals(bounds_of(SCORES))


@pytest.mark.parametrize("form", [list, np.array])
def test_each_row_of_an_array_is_a_prompt_without_a_name(form):
    rows = form(list(SCORES.values()))

    unnamed = bounds_of(rows).drop(columns="prompt_id")

    assert unnamed.equals(bounds_of(SCORES).drop(columns="prompt_id"))


def test_a_table_without_names_is_about_a_single_prompt(score_table):
    assert bounds_of(score_table[["score"]])["n"].tolist() == [8]


def test_a_list_of_numbers_is_about_a_single_prompt():
    alone = bounds_of(SCORES["a"])

    assert alone["m_mu"].tolist() == [bounds_of(SCORES)["m_mu"][0]]


def test_a_score_of_one_task_is_about_its_own_prompts(tmp_path):
    def task(count):
        rows = {str(i): {"rougeL_f1": i % 2, "generation": "a", "input": "q"} for i in range(count)}
        return {"agg_value": 0.5, "value_by_index": rows}

    (tmp_path / "TOFU_EVAL.json").write_text(json.dumps({"forget_Q": task(6), "retain_Q": task(4)}))
    found = lethe.bounds(tmp_path / "TOFU_EVAL.json", score="retain_Q.rougeL_f1")
    assert [prompt.prompt_id for prompt in found.prompts] == [f"retain_Q/{i}" for i in range(4)]
    assert found.log.missing == 0


def test_a_table_keeps_its_order_and_says_how_missing_counts():
    table = pd.DataFrame({"prompt_id": [7, 3, 7, 3], "score": [0.0, np.nan, 1.0, 0.0]})
    found = lethe.bounds(table, missing="worst")
    assert [(prompt.prompt_id, prompt.n, prompt.missing) for prompt in found.prompts] == [
        ("7", 2, 0),
        ("3", 2, 1),
    ]
    assert [prompt.n for prompt in lethe.bounds(table, missing="drop").prompts] == [2, 1]
    with pytest.raises(BadInput, match="missing='worst'"):
        lethe.bounds(table)
    with pytest.raises(BadInput, match="column 'score'"):
        lethe.bounds(pd.DataFrame({"scores": [1.0]}))


def test_complex_scores_do_not_lose_their_imaginary_parts():
    with pytest.raises(BadInput, match="numbers in"):
        lethe.bounds(np.array([0 + 1j, 1]))


def test_arrays_are_no_sides_of_a_comparison():
    with pytest.raises(TypeError, match="PathLike"):
        lethe.compare(np.zeros(9), np.ones(9))


@cases
def test_a_mistake_is_a_sentence(function, arguments, words):
    with pytest.raises(BadInput, match=words):
        getattr(lethe, function)(**arguments)


def html_cells(result) -> list[list[str]]:
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", result._repr_html_().split("<tbody>")[1], re.DOTALL)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_notebook_shows_no_bound_inside_its_value(seed):
    rng = np.random.default_rng(seed)
    epsilon = lethe.audit.epsilon_star(rng.normal(0, 1, 300), rng.normal(3, 1, 300), delta=1e-3)
    assert 0 < float(html_cells(epsilon)[0][1]) <= epsilon.epsilon_lower
    run = lethe.audit.one_run(n=1000, r=100 + seed, errors=3)
    for row, result in zip(html_cells(run), run.results, strict=True):
        assert float(row[1]) <= result.epsilon_lower
    halves = [
        ("original", "forget"),
        ("original", "test"),
        ("swapped", "forget"),
        ("swapped", "test"),
    ]
    rows = [
        {"split": split, "member": member, "attack": "a", "accept": rng.random(), "seed": model}
        for split, member in halves
        for model in range(4)
    ]
    swap = lethe.audit.swap(pd.DataFrame(rows))
    (row,) = html_cells(swap)
    ends = swap.quality.by_attack["a"]
    assert float(row[4]) <= ends.ci_low <= ends.ci_high <= float(row[5])


@pytest.mark.slow
def test_every_form_of_guesses_gives_the_same_audit(guesses):
    path, table = guesses
    found = lethe.audit.one_run(guesses=path, r=100, claimed_epsilon=0.5)
    for form in (str(path), table):
        assert lethe.audit.one_run(guesses=form, r=100, claimed_epsilon=0.5) == found
    assert restored(type(found), plain(found.as_json())) == found
    assert lethe.audit.one_run(guesses=table, r=[100, 200]).r == [100, 200]


@cases
def test_what_does_not_go_together_is_told(arguments, words):
    with pytest.raises(BadInput, match=words):
        lethe.audit.one_run(**arguments)


@pytest.fixture
def two_models(here, tmp_path):
    """A pipeline's folder: the run's model under two names, and one that params.yaml no longer names."""
    data = tmp_path / "data"
    shutil.copytree(here / "data", data)
    rows = table.read_rows(table.place(data, "metrics", "mine"))
    for name in ("first", "gone"):
        for folder in ("generations", "scores"):
            shutil.copytree(data / folder / "mine", data / folder / name)
        table.write(table.place(data, "metrics", name), [replace(row, model=name) for row in rows])
    audit = table.Rows("canaries")
    audit.add("audit", "p_value", "run", 0.5, item="exact")
    table.write(table.place(data, "audit", "canaries"), audit.rows)
    (tmp_path / "params.yaml").write_text(
        yaml.safe_dump({"models": {"mine": {}, "first": {}, "later": {}}}, sort_keys=False)
    )
    return data


def test_the_tables_are_views_of_the_table_of_results(here):
    run = lethe.load_run("data")
    rows = table.read_rows(table.place(here / "data", "metrics", "mine"))
    findings = table.read_rows(table.place(here / "data", "compare", "models"))
    in_tables = [*rows, *findings]
    assert len(run.results) == len(in_tables)
    assert run.results["upper"].notna().sum() == sum(row.upper is not None for row in in_tables)
    questions = run.questions.set_index("prompt_id")
    shown = 0
    for row in rows:
        for pattern, name, value in zip(
            row.kind.names, row.names(), (row.value, row.lower, row.upper), strict=True
        ):
            single = row.at is None or row.at in row.kind.exported_at
            if (
                name
                and value is not None
                and (single or (row.scope == "question" and "{at}" in pattern))
            ):
                found = (
                    questions.loc[row.item] if row.scope == "question" else run.metrics.loc["mine"]
                )
                assert found[name] == value
                shown += row.scope == "question"
    assert shown > 100
    assert {"m_gen_0.5", "m_gen_lower_0.5", "exceedance_0.5"} < set(questions)
    assert {"leak_at_100", "leak_at_100_lower", "leak_at_2_estimate"} < set(questions)
    assert questions["question"].tolist() == ["Who is Ada?", "Where is Bo?"]
    worst = next(row for row in rows if row.quantity == "leak_worst")
    assert run.bounds["mine"]["m_bin_worst"] == worst.upper_bound
    exported = json.loads((here / "data/metrics/mine.json").read_text())
    assert {
        key: run.metrics.loc["mine", key] for key in exported if key != "schema"
    }.items() <= exported.items()
    assert set(run.answers) >= {
        "model",
        "split",
        "prompt_id",
        "sample",
        "text",
        "rouge_l",
        "keyword_leak",
    }
    told = json.loads((here / "data/report/summary.json").read_text())["models"]["mine"]["bounds"]
    assert {key: bound.as_dict() for key, bound in run.bounds["mine"].items()} == told
    greedy = run.answers[run.answers["sample"] == -1]["rouge_l"]
    assert run.metrics.loc["mine", "greedy_mean"] == pytest.approx(greedy.mean())


def test_the_figures_draw_the_tables(two_models):
    run = lethe.load_run(two_models)
    axes = run.plot_bounds()
    marks = {line.get_label().split(",")[0]: line.get_xdata() for line in axes.lines}
    assert marks["sampled answers"].tolist() == run.metrics["mean"].tolist()
    assert [label.get_text() for label in axes.get_yticklabels()] == run.models
    rows = run.questions[run.questions["model"] == "first"].sort_values("m_mu", ascending=False)
    axes = run.plot_questions("first")
    (mean,) = [line for line in axes.lines if line.get_label().startswith("mean")]
    assert sorted(mean.get_ydata().tolist()) == sorted(rows["mean"].tolist())
    tops = [segment[1][1] for segment in axes.collections[0].get_segments()]
    assert tops == rows["m_mu"].tolist()
    axes = run.plot_tails()
    assert (
        axes.lines[0].get_ydata().tolist()
        == run.tails[run.tails["model"] == "mine"]["bound"].tolist()
    )


def test_what_is_no_run_is_told(tmp_path):
    with pytest.raises(BadInput, match="none: no such folder"):
        lethe.load_run(tmp_path / "none")
    with pytest.raises(LetheError, match="metrics is missing"):
        lethe.load_run(tmp_path)
