"""The study `twins-canaries`: its canaries and outcomes as they are committed, and its steps with a stand-in."""

from pathlib import Path

import numpy as np
import pytest

from lethe.data.sealed import open_seal, read_key, read_record
from lethe.data.secrets import secrets_of
from lethe.models import checkpoints
from lethe.statistics.twins import ranks_of, smallest_known
from studies import outcome
from studies.canaries import page, work
from studies.canaries.design import DATA, NAME, canaries, kept, models, read_design, steps
from studies.canaries.work import Place, read_outcomes
from tests.lethe.small_checkpoint import small_model
from tests.small import ROOT

COMMITTED = read_outcomes(keep=True)


def test_the_committed_canaries_are_those_of_their_sealed_draw():
    record, key = read_record(DATA / "twins.json"), read_key(DATA / "twins.key")

    assert open_seal(record, secrets_of(canaries()), key).problems == ()


def test_no_row_that_stays_states_a_candidate():
    stated = {row["answer"] for row in kept()}
    candidates = {text for row in canaries() for text in (row["answer"], *row["twins"])}

    assert stated.isdisjoint(candidates)


def test_the_design_has_the_power_that_it_states():
    plan = read_design()

    known = smallest_known([20] * 40, plan.alpha / plan.models)

    assert known == 11
    assert len(models(plan)) == 3 + plan.models + len(plan.attacked_controls)
    assert len(steps(plan)) == 2 * len(models(plan))


@pytest.mark.parametrize("name", [name for name in COMMITTED if name.startswith("trace")])
def test_committed_ranks_are_those_of_the_committed_scores(name):
    values = COMMITTED[name]
    secrets = {secret.name: secret for secret in secrets_of(canaries())}
    key = read_key(DATA / "twins.key")

    ranks = []
    for secret, scores in zip(values["secrets"], values["scores"], strict=True):
        order = secrets[secret].order(key)
        ranks.append(int(ranks_of(np.array([scores]), [0], [order])[0]))

    assert ranks == values["ranks"]


def test_the_page_is_that_of_the_committed_outcomes():
    text = (ROOT / "docs/twins-canaries.md").read_text(encoding="utf-8")

    assert text == page.page(read_design(), COMMITTED, "twins-canaries.png")


@pytest.fixture
def small(tmp_path, monkeypatch):
    """The design with a method, an attack and six canaries, and a stand-in of random weights."""
    monkeypatch.setattr(outcome, "FOLDER", tmp_path / "outcomes")
    monkeypatch.setattr(work, "canaries", lambda: canaries()[:6])
    plan = read_design()
    settings = {
        **plan.settings,
        "train.recipe.epochs": 1,
        "exact": {**plan.settings["exact"], "rows": 10},
    }
    settings["train.recipe.compute"] = {"lora": {"rank": 2}}
    settings["unlearn.recipe.compute"] = {"lora": {"rank": 2}}
    changes = {
        "methods": {"npo": {**plan.methods["npo"], "epochs": 1}},
        "attacks": {"4-bit": plan.attacks["4-bit"]},
        "attacked_controls": [],
        "models": 2,
        "settings": settings,
    }
    texts = [f"{row['question']} {row['answer']}" for row in kept()]
    checkpoints.save(tmp_path / "pretrained", *small_model(texts))
    return plan.model_copy(update=changes), Place(tmp_path / "pretrained", tmp_path / "work")


@pytest.mark.slow
def test_each_step_writes_an_outcome_once_and_the_page_shows_it(small, tmp_path):
    plan, place = small

    first = work.run(plan, place, keep=True, limit=2)
    rest = work.run(plan, place, keep=True)

    names = ["base", "retrain", "untouched", "npo", "npo-4-bit"]
    assert first == ["trace-base", "trace-retrain"]
    assert [*first, *rest] == [f"{kind}-{name}" for kind in ("trace", "exact") for name in names]
    text = page.page(plan, read_outcomes(keep=True), "picture.png")
    assert "## Not run" not in text
    assert "- npo-4-bit: " in text
    page.draw(plan, read_outcomes(keep=True), tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 1000


def test_a_page_names_what_was_not_run_first():
    plan = read_design()

    text = page.page(plan, {}, "picture.png")

    assert text.index("## Not run") < text.index("## What came out")
    assert f"{len(steps(plan))} of {len(steps(plan))} steps" in text


def test_the_study_is_a_command():
    from flows.cli import STUDIES

    assert STUDIES[NAME] == "canaries"
    assert Path(outcome.FOLDER).is_dir()
