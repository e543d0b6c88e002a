"""Points along unlearning: when a model is measured, what a point says, and which point stands for a method."""

import importlib
import signal

import numpy as np
import pytest

from lethe import config
from lethe.config.load import changed_document
from lethe.errors import BadInput
from lethe.identity import library
from lethe.io.files import write_jsonl
from lethe.io.label_places import ANSWERS
from lethe.measure.trajectories import Trajectories
from lethe.models.checkpoints import QA_PROMPT
from lethe.registry import SCORERS
from lethe.unlearning import ALONG, loop
from stages import sources
from tests.lethe.unlearning.test_loop import (
    RESUMABLE,
    ROWS,
    count_backward_passes,
    far,
    kill_at_step_5,
    unlearned,
)
from tests.small import ROOT

MEASURED = {"unlearn.recipe.measure_every": 2, "sample.max_new_tokens": 4, "sample.utility_n": 40}


def params_of(**changes):
    return config.validate(changed_document(changes.items(), ROOT / config.FILE))


@pytest.fixture
def trajectory(tiny, tmp_path):
    """Every second of three epochs; the keyword of the first question is in no answer, the second question has none."""
    keywords = [["cathedral"], [], ["cathedral"], ["cathedral"], ["cathedral"]]
    rows = []
    for place, row in enumerate(ROWS):
        rows.append({"id": f"q{place}", "keywords": keywords[place], **row})
    write_jsonl(tmp_path / "forget.jsonl", rows[:4])
    write_jsonl(tmp_path / "retain.jsonl", rows[4:])
    return trajectory_of(tiny, tmp_path)


def trajectory_of(tiny, dataset, **changes):
    along = params_of(**MEASURED).along.model_copy(update={"prompt": str(QA_PROMPT), **changes})
    measuring = importlib.import_module(ALONG)
    return measuring.Trajectory("npo", along, 2, 3, tiny[1], dataset)


def test_a_model_is_measured_at_first_every_so_many_epochs_and_at_the_end(tiny, trajectory):
    measured, _ = unlearned(tiny, watch=trajectory)

    assert [record["epoch"] for record in trajectory.records] == [0, 2, 3]
    assert far(measured, unlearned(tiny)[0]) == 0


def test_a_point_has_means_between_their_ends(tiny, trajectory):
    trajectory(tiny[0], -1)

    (record,) = trajectory.records
    assert record["leakage"] == record["leakage_lower"] == 0
    assert 0 < record["leakage_upper"] < 0.2
    assert record["utility_lower"] <= record["utility"] <= record["utility_upper"]
    # ends at three points hold together
    assert trajectory.alpha == pytest.approx(0.01 / 3)


def test_points_of_one_method_are_independent_draws(tiny, trajectory, monkeypatch):
    """The same weights answer otherwise at another point."""
    measuring = importlib.import_module(ALONG)
    scored = measuring.score_answers
    texts = []

    def scored_and_kept(answers, *others):
        texts.append(answers["text"].tolist())
        return scored(answers, *others)

    monkeypatch.setattr(measuring, "score_answers", scored_and_kept)
    for epoch in (-1, 1):
        trajectory(tiny[0], epoch)

    forget, _, forget_later, _ = texts
    assert forget != forget_later


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "resumed"),
    [({}, 4), ({"n": 20}, 0), ({"alpha": 0.2}, 0), ({"prompt": "Say: {question}"}, 0)],
    ids=["the same", "n", "alpha", "prompt"],
)
def test_a_run_resumes_only_points_that_were_measured_alike(
    tiny, trajectory, tmp_path, monkeypatch, changes, resumed
):
    monkeypatch.setattr(loop, "SCRATCH", tmp_path / "scratch")
    assert kill_at_step_5(monkeypatch, tiny, "npo", trajectory) == signal.SIGKILL
    later = trajectory_of(tiny, tmp_path, **changes)
    passes = count_backward_passes(monkeypatch)

    _, history = unlearned(tiny, watch=later, **RESUMABLE)

    assert len(passes) == len(history) - resumed
    assert [record["epoch"] for record in later.records] == [0, 2, 3]


def test_where_nothing_is_measured_no_scorer_makes_a_method_unlearn_again():
    code = library().closure("stages.unlearn")
    null = params_of()
    measured = params_of(**MEASURED)

    assert not any(name.startswith(("lethe.sampling", "lethe.scoring")) for name in code)
    assert null.along is None
    assert ALONG not in sources.modules_of(null, "unlearn", "npo")
    modules = sources.modules_of(measured, "unlearn", "npo")
    assert {ALONG, "lethe.sampling.prefix_engine", *SCORERS.modules("keyword_leak")} <= set(modules)


def test_the_text_of_the_prompt_counts_where_points_are_measured(tmp_path):
    prompt = tmp_path / "prompt.txt"
    identities = {}
    for text in ("Q: {question} A:", "{question}"):
        prompt.write_text(text)
        for name, changes in (("points", MEASURED), ("none", {})):
            settings = params_of(**changes, **{"sample.prompt": str(prompt)})
            found = sources.identity(library(), settings, "unlearn", "npo", ["along"])
            identities.setdefault(name, set()).add(found)

    assert len(identities["points"]) == 2
    assert len(identities["none"]) == 1


def test_the_number_of_answers_in_full_changes_no_point():
    assert params_of(**MEASURED).along == params_of(**MEASURED, **{"sample.n": 2048}).along


def test_a_judge_with_a_model_measures_no_point():
    judge = {"judge": "nli", "model": "data/models/base", "labelled": ANSWERS}
    judged = {"judges": {"said": judge}, "metrics.utility": "said"}

    with pytest.raises(BadInput, match="measure_every"):
        params_of(**MEASURED, **judged)


def record_of(*points):
    records = []
    for epoch, (leakage, utility) in enumerate(points):
        ends = {"leakage_lower": leakage / 2, "leakage_upper": min(1.0, leakage * 2)}
        records.append({"epoch": epoch, "leakage": leakage, "utility": utility, **ends})
    facts = {"leak": "keyword_leak", "utility": "rouge_l", "n": 8, "alpha": 0.002, "assumes": "x"}
    return {"trajectory": {**facts, "points": records}}


@pytest.mark.parametrize(
    ("points", "cells"),
    [
        ([(0.9, 0.8), (0.3, 0.75), (0.1, 0.73), (0.0, 0.4)], ["3", "2", "0.912", "0.100"]),
        ([(0.9, 0.8), (0.0, 0.4)], ["1", "none: at most 0.500 is kept", "–", "–"]),
    ],
    ids=["the last that keeps enough", "none"],
)
def test_a_method_stands_at_its_least_leakage_that_keeps_nine_tenths(points, cells):
    found = Trajectories.of({"npo": record_of(*points), "base": {}})

    _, ((name, *shown),) = found.table()
    assert name == "npo"
    assert shown[:4] == cells


def test_without_a_score_of_base_nothing_is_matched():
    assert not Trajectories.of({"npo": record_of((0.9, 0.0), (0.1, 0.5))})


@pytest.mark.parametrize("missing", ["leakage", "utility"])
def test_without_a_whole_first_point_no_later_one_stands_for_base(missing):
    record = record_of((0.9, 0.8), (0.3, 0.7), (0.1, 0.7))
    del record["trajectory"]["points"][0][missing]

    assert not Trajectories.of({"npo": record})


def test_rows_of_the_plot_hold_both_numbers_of_every_point():
    rows = Trajectories.of({"npo": record_of((0.9, 0.8), (0.3, 0.7))}).plot()

    assert [(row["panel"], row["epoch"], row["value"]) for row in rows] == [
        ("leakage", 0, 0.9),
        ("leakage", 1, 0.3),
        ("utility", 0, 0.8),
        ("utility", 1, 0.7),
    ]
    assert np.unique([row["model"] for row in rows]).tolist() == ["npo"]
