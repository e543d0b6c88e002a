"""The claims that a finished run answers: numbers of its results, and what the command refuses."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from lethe import config
from lethe.cli.app import app
from lethe.errors import BadInput
from lethe.results import table
from lethe.results.table import Rows
from lethe.statistics.bound import Assumes, Bound, Covers
from studies import demonstration, outcome, papers
from tests.small import ROOT

MODELS = ("base", "retrain", "grad_ascent", "grad_diff", "npo", "npo_matched", "npo_entropy")
N = 1024


def rows_of(
    model, greedy=0.5, means=(0.5, 0.7), sds=(0.2, 0.4), largest=(1.0, 1.0), leaks=(0.5, 0)
):
    rows = Rows(model)
    for place, question in enumerate(("q1", "q2")):
        bound = Bound(1.0, "upper", 0.01, Covers.ONE_PROMPT, Assumes.DRAWS, "DKW", N)
        add = rows.add
        add("question", "score", "greedy", greedy, item=question, split="forget")
        add("question", "leak", "greedy", 0.0, item=question, split="forget")
        add(
            "question",
            "score",
            "sampled",
            means[place],
            upper=bound,
            item=question,
            split="forget",
        )
        add("question", "sd", "sampled", sds[place], upper=bound, item=question, split="forget")
        add("question", "max", "sampled", largest[place], item=question, split="forget")
        add("question", "leak", "sampled", leaks[place], item=question, split="forget")
        # what should be kept has rows of questions too
        add("question", "score", "greedy", 1.0, item=f"kept {question}", split="retain")
    for at, estimate, upper in ((64.0, 0.52, 0.8), (1024.0, 0.5, 0.55)):
        for quantity in ("convergence_mean", "convergence_sd"):
            end = Bound(upper, "upper", 0.01, Covers.ONE_PROMPT, Assumes.DRAWS, "DKW", int(at))
            rows.add(
                "question",
                quantity,
                "sampled",
                estimate,
                upper=end,
                at=at,
                item="q1",
                split="forget",
            )
    for split, alike in (("retain", 0.2), ("world", 0.4)):
        rows.add("model", "diversity", "sampled", alike, item="self_bleu", split=split)
        rows.add("model", "kept", "sampled", 0.9, split=split)
    return rows.rows


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """The folder of a finished run whose models all answer alike, but for those with entropy terms."""
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    for model in params["models"]:
        place = table.place(tmp_path / "data", "metrics", model)
        place.parent.mkdir(parents=True, exist_ok=True)
        rows = rows_of(model)
        if model.startswith("npo_entropy"):
            rows = rows_of(model, means=(0.2, 0.7), sds=(0.1, 0.1), largest=(0.4, 1.0))
        table.write(place, rows)
    return tmp_path


def values_of(finished):
    params = config.load(finished / "params.yaml")
    return demonstration.measure(params, table.read(finished / "data", params.models))


def test_the_numbers_of_a_model_are_those_of_its_forget_questions(finished):
    (npo,) = [row for row in values_of(finished)["models"] if row["model"] == "npo"]

    assert (npo["questions"], npo["answers"], npo["greedy"]) == (2, N, 0.5)
    assert npo["mean"]["mean"] == pytest.approx(0.6)
    assert npo["ED"]["mean"] == pytest.approx((0.5 + 0.4 + 0.7 + 0.8) / 2)
    assert (npo["questions with a greedy leak"], npo["questions with a sampled leak"]) == (0, 1)
    assert npo["self-BLEU of kept answers"] == pytest.approx(0.3)
    assert npo["convergence"]["mean, estimate"] == pytest.approx(0.02)
    assert npo["convergence"]["mean, bound"] == pytest.approx(0.25)


def test_the_error_of_an_ed_score_is_that_of_repeated_draws():
    rng = np.random.default_rng(5)
    drawn = rng.normal(0.5, 0.1, (4_000, 2, N))
    scores = (drawn.mean(axis=2) + 2 * drawn.std(axis=2)).mean(axis=1)
    nothing = np.zeros(2)
    asked = demonstration.Asked(
        questions=("q1", "q2"),
        n=N,
        greedy=nothing,
        mean=np.full(2, 0.5),
        sd=np.full(2, 0.1),
        largest=nothing,
        greedy_leaks=nothing,
        leaks=nothing,
    )

    assert asked.ed_score(2.0)["sd"] == pytest.approx(scores.std(), rel=0.05)


def test_pairs_of_equal_greedy_score_are_counted_with_those_whose_means_are_apart(finished):
    # Five methods make ten pairs with two questions each; one method differs on the first question.
    assert values_of(finished)["equal greedy score, sampled means apart"] == {
        "equal": 20,
        "apart": 4,
    }


def test_entropy_terms_are_read_against_the_same_method_without_them(finished):
    beside = values_of(finished)["entropy beside its control"]

    assert beside["narrower"]["mean"] == 1
    assert (beside["high in the control alone"], beside["high with entropy alone"]) == (1, 0)
    assert beside["share of the control"]["questions"] == 1


def test_where_no_question_differs_a_share_says_nothing(finished):
    rows = rows_of("npo_entropy")
    table.write(table.place(finished / "data", "metrics", "npo_entropy"), rows)

    share = values_of(finished)["entropy beside its control"]["share of the control"]

    assert (share["smallest"], share["largest"], share["questions"]) == (0, 1, 0)


def test_a_question_without_a_score_is_refused_by_name(finished):
    rows = [row for row in rows_of("npo") if row.quantity != "max"]
    table.write(table.place(finished / "data", "metrics", "npo"), rows)

    with pytest.raises(BadInput, match="question without max"):
        values_of(finished)


def test_the_command_writes_an_outcome_that_decides_every_row_of_the_papers(
    finished, tmp_path, monkeypatch
):
    monkeypatch.chdir(finished)

    done = CliRunner().invoke(app, ["study", "demonstration", "--json"])

    assert done.exit_code == 0, done.output
    document = outcome.read(finished / "data/studies/outcomes/demonstration.json")
    assert document["seeds"] == [0, 1, 2, 3]
    assert json.loads(done.stdout) == document["values"]
    rows = [
        row
        for paper in config.read_yaml(papers.ROWS)["papers"]
        for row in paper["rows"]
        if row.get("outcome") == "demonstration"
    ]
    only = tmp_path / "rows.yaml"
    only.write_text(yaml.safe_dump({"papers": [{"title": "A paper", "rows": rows}]}))
    (decided,) = papers.read(only, finished / "data/studies/outcomes")
    assert len(decided.rows) == 11
    assert "not run" not in {row.word for row in decided.rows}


def test_a_run_that_is_not_finished_is_refused_with_what_makes_it(finished, monkeypatch):
    monkeypatch.chdir(finished)
    table.place(finished / "data", "metrics", "npo_at").unlink()

    done = CliRunner().invoke(app, ["study", "demonstration"])

    assert done.exit_code == 1
    assert "metrics@npo_at" in done.output
