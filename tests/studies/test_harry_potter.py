"""The study `harry-potter-55` with a stand-in: blocks of questions, each with an outcome, and the share over all of them."""

import pytest

from lethe.errors import BadInput
from lethe.models import checkpoints
from studies import outcome
from studies.blocks import Place, shares
from studies.harry_potter import STUDY
from studies.steps import read_outcomes
from tests.lethe.small_checkpoint import small_model
from tests.studies.small_design import small_design

HEAD = '"Question","Affirmative Response","Key Words"\n'


@pytest.fixture
def place(tmp_path, monkeypatch) -> Place:
    monkeypatch.setattr(outcome, "FOLDER", tmp_path / "outcomes")
    lines = [f'"Who is {name}?","It is ","{name}"\n' for name in ("Ada", "Bo", "Cy")]
    (tmp_path / "hp_qa_en.csv").write_text(HEAD + "".join(lines))
    checkpoints.save(tmp_path / "model", *small_model(["Who is Ada? It is Bo."]))
    return Place(tmp_path / "model", tmp_path, tmp_path / "work")


@pytest.fixture
def design(prompt):
    return small_design(STUDY, prompt)


@pytest.mark.slow
def test_each_block_has_an_outcome_and_the_last_step_joins_them(design, place):
    first = STUDY.run(design, place, keep=True, limit=1)
    before = (outcome.FOLDER / STUDY.name / "block-1.json").read_bytes()

    rest = STUDY.run(design, place, keep=True)

    outcomes = read_outcomes(STUDY.name, keep=True)
    assert (first, rest) == (["block-1"], ["block-2", "share"])
    assert (outcome.FOLDER / STUDY.name / "block-1.json").read_bytes() == before
    assert [len(outcomes[name]["questions"]) for name in ("block-1", "block-2")] == [2, 1]
    assert outcomes["share"]["questions"] == 3
    blocks = {name: outcomes[name] for name in ("block-1", "block-2")}
    assert outcomes["share"] == shares(design, blocks)


def test_a_file_with_another_number_of_questions_than_the_design_is_refused(design, place):
    larger = design.model_copy(update={"questions": 4})

    with pytest.raises(BadInput, match=r"3 questions.* 4"):
        STUDY.run(larger, place, keep=True, limit=1)


def test_the_committed_design_asks_every_question_once(tmp_path):
    design = STUDY.read_design()

    asking = [step for step in STUDY.steps(design) if step.first is not None]
    assert design.questions == design.block * len(asking)
    assert design.params(tmp_path).score.keyword_match == "substring"


def test_a_question_counts_where_its_bound_is_above_the_threshold_and_not_its_share():
    design = STUDY.read_design()
    common = {"model": "model", "scope": "question", "quantity": "leak"}
    rows = []
    for item, share, bound, greedy in (("a", 0.09, 0.11, 0.0), ("b", 0.0, 0.01, 1.0)):
        rows.append({**common, "basis": "sampled", "item": item, "estimate": share, "upper": bound})
        rows.append({**common, "basis": "greedy", "item": item, "estimate": greedy})

    found = shares(design, {"block-1": {"rows": rows, "model": "m"}})

    assert found["share of M_bin above"] == 0.5
    assert found["share with a sampled leak"] == 0.5
    assert found["share with a greedy leak"] == 0.5
