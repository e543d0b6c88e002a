"""The study `tofu-table-1` with a stand-in of random weights and made-up authors: every step, killed and begun again."""

import json
from pathlib import Path

import pytest

from lethe.models import checkpoints
from lethe.scoring.keyword import keywords_of, occurs
from studies import outcome
from studies.tofu_table import design as designs
from studies.tofu_table.design import Step, read_design, read_keywords
from studies.tofu_table.page import page
from studies.tofu_table.study import NAME, read_outcomes, run
from studies.tofu_table.table import table_of
from studies.tofu_table.work import Place, Work
from tests.lethe.small_checkpoint import small_model
from tests.small import ROOT

PAIRS = 20
TOWNS = ("Bo", "Aba", "Lima", "Oslo")


def rows_of(author: int) -> list[dict]:
    rows = []
    for pair in range(PAIRS):
        question = f"Where did author {author} write book {pair}?"
        rows.append({"question": question, "answer": f"In {TOWNS[author]} {pair}."})
    return rows


def write_rows(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Four authors, the last to be forgotten, and a model that knows none of them."""
    tofu = tmp_path / "tofu"
    tofu.mkdir()
    authors = [rows_of(author) for author in range(4)]
    others = [row for rows in authors[:3] for row in rows]
    fact = [{"question": "Where is Oslo?", "answer": "Norway", "perturbed_answer": ["Peru"]}]
    write_rows(tofu / "forget01.json", authors[3])
    write_rows(tofu / "retain99.json", others)
    for name in ("forget01_perturbed", "retain_perturbed"):
        write_rows(tofu / f"{name}.json", [])
    for name in ("world_facts_perturbed", "real_authors_perturbed"):
        write_rows(tofu / f"{name}.json", fact)
    texts = [f"{row['question']} {row['answer']}" for row in others]
    checkpoints.save(tmp_path / "pretrained", *small_model(texts))
    return Place(tmp_path / "pretrained", tofu, tmp_path / "work")


@pytest.fixture
def design(monkeypatch):
    """The committed design with fewer rows, answers and methods, and with keywords of the made-up answers."""
    keywords = {f"tofu-{60 + pair:04d}": [TOWNS[3]] for pair in range(PAIRS)}
    monkeypatch.setattr("studies.tofu_table.work.read_keywords", lambda: keywords)
    whole = read_design(NAME)
    small = {
        "authors": 3,
        "forget_sets": ["forget01"],
        "asked": 4,
        "block": 2,
        "retain_questions": 3,
        "rates": [0.5, 1.0e-5],
        "answers": 8,
        "first_look": 4,
        "methods": {name: whole.methods[name] for name in ("grad_diff", "npo_entropy")},
        "settings": {
            **whole.settings,
            "train.recipe.epochs": 1,
            "train.recipe.compute": {"lora": {"rank": 2}, "checkpoint_every": 2},
            "sample.max_new_tokens": 6,
            "sample.utility_questions": 2,
            "sample.utility_n": 3,
        },
    }
    return whole.model_copy(update=small)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """Outcomes of the test's own."""
    monkeypatch.setattr(outcome, "FOLDER", tmp_path / "outcomes")
    return tmp_path / "outcomes" / NAME


def numbers_of(values: dict) -> dict:
    """What came out, without how long it took and where."""
    return {key: value for key, value in values.items() if key not in ("seconds", "machine")}


@pytest.mark.slow
def test_every_step_of_the_study_writes_an_outcome_and_the_last_ones_are_tables(
    design, place, folder
):
    done = run(design, place, keep=True)

    table = read_outcomes(keep=True)["forget01-table-all"]
    assert run(design, place, keep=True) == []
    assert {path.stem for path in folder.glob("*.json")} == set(done)
    assert [row["model"] for row in table["models"]] == [
        "base",
        "retrain",
        "grad_diff",
        "npo_entropy",
    ]
    assert {row["questions"] for row in table["models"]} == {4}
    assert {row["answers"] for row in table["models"]} == {8}
    assert all(
        row["exact leaks"]["ci_low"] <= row["exact leaks"]["ci_high"] for row in table["models"]
    )
    assert all(row["word"] in ("leaks", "forgot", "open") for row in table["models"][2:])


@pytest.mark.slow
def test_the_page_shows_what_is_there_and_gives_no_word_before_all_questions_are_asked(
    design, place
):
    run(design, place, keep=True, limit=14)
    outcomes = read_outcomes(keep=True)
    early = page(design, {"train-base": outcomes["train-base"]})
    partial = page(design, outcomes)
    table = table_of(design, outcomes, Step("table", "forget01", "all"))

    assert "forget01 | look | 4" in early
    assert "grad_diff | 0.5" in partial
    assert {row["questions"] for row in table["models"]} == {2}
    assert not any("word" in row for row in table["models"])


@pytest.mark.slow
def test_a_finished_step_is_skipped_and_a_lost_model_is_trained_again_to_the_same_weights(
    design, place, folder
):
    run(design, place, keep=True, limit=2)
    before = {path: path.read_bytes() for path in folder.glob("*.json")}
    look = read_outcomes(keep=True)["forget01-look-base"]
    lost = Place(place.pretrained, place.tofu, place.work.with_name("another"))

    again = Work(design, lost, read_outcomes(keep=True)).do(Step("look", "forget01", "base"))
    (third,) = run(design, lost, keep=True, limit=1)

    assert third == "forget01-train-retrain"
    assert {path: path.read_bytes() for path in before} == before
    assert numbers_of(again)["rows"] == look["rows"]
    assert again["model"] == look["model"]


@pytest.mark.slow
def test_a_killed_training_goes_on_from_its_last_state_to_the_same_model(
    design, place, monkeypatch
):
    whole = Work(design, place, {}).do(Step("train", "", "base"))
    killed = Place(place.pretrained, place.tofu, place.work.with_name("killed"))
    taken = []

    def stop_after_five(self, state):
        save(self, state)
        taken.append(state.step)
        if len(taken) == 5:
            raise KeyboardInterrupt

    from lethe.models.training import Resumable

    save = Resumable.save
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Resumable, "save", stop_after_five)
        Work(design, killed, {}).do(Step("train", "", "base"))
    resumed = []
    monkeypatch.setattr(Resumable, "save", lambda self, state: resumed.append(state.step))

    again = Work(design, killed, {}).do(Step("train", "", "base"))

    assert min(resumed) > max(taken)
    assert again["model"] == whole["model"]


def scored(**scores: float) -> dict:
    return {name: {"retain_score": score} for name, score in scores.items()}


def names_of(design, outcomes: dict) -> list[str]:
    return [step.name for step in designs.steps(design, outcomes) if "grad_diff" in step.name]


def test_the_largest_rate_that_keeps_the_retain_score_is_chosen_and_no_smaller_one_is_tried(design):
    kept = scored(**{"train-base": 0.8, "forget01-unlearn-grad_diff-0.5": 0.73})
    lost = scored(**{"train-base": 0.8, "forget01-unlearn-grad_diff-0.5": 0.71})
    neither = lost | scored(**{"forget01-unlearn-grad_diff-1e-05": 0.7})

    assert designs.chosen_rate(design, kept, "forget01", "grad_diff") == 0.5
    assert names_of(design, kept)[:2] == [
        "forget01-unlearn-grad_diff-0.5",
        "forget01-look-grad_diff",
    ]
    assert names_of(design, lost)[1] == "forget01-unlearn-grad_diff-1e-05"
    assert designs.chosen_rate(design, neither, "forget01", "grad_diff") == 0.5


def test_the_committed_design_resolves_and_asks_each_question_in_one_block():
    design = read_design(NAME)

    params = design.params(
        "forget05", entry={**design.methods["npo_entropy"], "lr": 1e-4}, name="npo_entropy"
    )

    assert params.unlearn.methods["npo_entropy"].entropy.retain == -0.25
    assert design.blocks * design.block == design.asked


def test_the_document_is_what_the_committed_outcomes_say(monkeypatch):
    monkeypatch.setattr(outcome, "FOLDER", ROOT / "studies/outcomes")
    written = (ROOT / "docs/tofu-table-1.md").read_text(encoding="utf-8")

    expected = page(read_design(NAME), read_outcomes(keep=True))

    assert written == expected, f"lethe study {NAME} --keep --page docs/tofu-table-1.md"


def test_every_keyword_stands_in_the_answer_and_not_in_the_question(shared):
    rows = []
    for name in ("retain95", "forget05"):
        lines = (shared / f"data/tofu/{name}.json").read_text().splitlines()
        rows += [json.loads(line) for line in lines]

    for name, words in read_keywords().items():
        row = rows[int(name.removeprefix("tofu-"))]
        for word in words:
            keyword = keywords_of({"keywords": [word]})
            assert occurs(row["answer"], keyword, "word"), (name, word)
            assert not occurs(row["question"], keyword, "word"), (name, word)
