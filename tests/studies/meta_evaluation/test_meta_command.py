"""`lethe study meta-evaluation` whole, with tiny sizes: resumed after a kill, and on the public checkpoints' names."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lethe.cli.app import app
from studies.meta_evaluation.gathering import gather, write
from studies.meta_evaluation.settings import validate
from studies.meta_evaluation.shards import Shards
from studies.meta_evaluation.workshop import Workshop
from tests.flows.test_presets import CHAT, tiny
from tests.small import make_repository, run
from tests.studies.small_meta import small_document, small_params, with_preset

SMALLEST = {  # one method, so that the whole takes seconds
    "unlearned": {
        "methods": {"grad_diff": {"loss": "grad_diff", "lr": 5e-4, "epochs": 1, "retain_weight": 1.0}},
        "strengths": [1.0],
        "seeds": 1,
        "utility": 0.0,
    }
}


@pytest.fixture(scope="module")
def scratch(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("meta")


@pytest.mark.slow
def test_the_whole_and_a_second_call_that_repeats_nothing(scratch, tmp_path, monkeypatch):
    params = small_params(**SMALLEST)
    first, found = gather(Shards(params, Workshop(params, scratch)))
    expected = {"mean@16", "greedy_mean", "forget_probability", "privleak"}
    assert expected | {"tree_lower_mean", "tree_share_proved", "excess_over_retrain"} <= {
        one.name for one in first.worth
    }
    assert (sum(first.knows.values()), sum(first.lacks.values())) == (4, 2)
    (unlearned,) = [one for one in found if one.model.startswith("grad_diff")]
    assert set(unlearned.states) == {"plain", "relearned", "quantised"}
    assert set(unlearned.comes_back) == {"leaks", "mean"}
    assert all(0 <= value <= 1 for value in unlearned.comes_back.values())
    values = {state: numbers.numbers["forget_probability"].value for state, numbers in unlearned.states.items()}
    assert len(set(values.values())) == 3, "both attacks change the model"
    rows = {name: cost.cost.rows for name, cost in ((one.name, one) for one in first.worth)}
    assert 0 < rows["mean@4"] < rows["mean@16"]
    monkeypatch.setattr(Workshop, "_train", None)  # a second training would fail
    monkeypatch.setattr("studies.meta_evaluation.observing.Observer._drawn", None)
    again, more = gather(Shards(params, Workshop(params, scratch)))
    assert again == first or json.dumps(again.as_json(), default=str) == json.dumps(first.as_json(), default=str)
    folder = write("tiny", Shards(params, Workshop(params, scratch)), again, more, tmp_path)
    assert {path.name for path in folder.iterdir()} == {"result.json", "numbers.parquet", "index.html"}


@pytest.fixture
def repository(tmp_path):
    """A copy of the project whose params.yaml has a tiny meta-evaluation, entered."""
    former = Path.cwd()
    folder = make_repository(tmp_path / "lethe", small_document(**SMALLEST), git=False)
    os.chdir(folder)
    yield folder
    os.chdir(former)


@pytest.mark.slow
def test_the_command_runs_whole_and_continues(repository, scratch):
    """On Dask, in processes of their own; the models that the test above has finished are only read."""
    (repository / ".lethe/scratch").mkdir(parents=True, exist_ok=True)
    (repository / ".lethe/scratch/meta").symlink_to(scratch)
    before = (repository / "params.yaml").read_text()
    done = run(repository, "lethe", "study", "meta-evaluation", "--name", "tiny", "--json")
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["name"], sum(result["unlearned"].values())) == ("tiny", 1)
    assert (repository / "data/meta/tiny/index.html").is_file()
    assert (repository / "params.yaml").read_text() == before
    assert "batches" in done.stderr
    shown = run(repository, "lethe", "study", "meta-evaluation", "--name", "tiny")
    said = " ".join(shown.stdout.split())
    assert "Each interval holds with probability about 0.95 by itself" in said
    assert "The highest AUC of telling the models apart" in said


@pytest.mark.slow
def test_the_public_checkpoints_with_a_tiny_stand_in(tmp_path, monkeypatch):
    """The preset meta-tofu: a tiny model in the folder of the first names of each pool, TOFU's files, the rest cut."""
    monkeypatch.chdir(tmp_path)
    value = with_preset("meta-tofu")
    section = value["meta_evaluation"]
    pool, unlearned = section["pool"], section["unlearned"]
    assert (len(pool["knows_paths"]), len(pool["lacks_paths"]), len(unlearned["paths"])) == (30, 31, 75)
    assert all("pos_tofu" in path for path in pool["knows_paths"])
    assert all("neg_tofu" in path for path in pool["lacks_paths"][1:])
    pool["knows_paths"], pool["lacks_paths"] = pool["knows_paths"][:2], pool["lacks_paths"][:3]
    unlearned["paths"] = unlearned["paths"][:1]
    section |= {"answers": [2, 4], "leak_at": [1], "utility_questions": 2, "bootstrap": 20}
    section["headline"] = [name.replace("@1024", "@4") for name in section["headline"]]
    section["claims"] = []
    section["predict"] |= {"count": 2, "steps": 1, "n": 2}
    value["sample"] |= {"max_new_tokens": 4, "dtype": "float32", "prompt": "chat", "vllm_from": 10**12}
    value["data"]["tofu"]["hub"] = None
    value["data"]["source"] = str(tmp_path / "source")
    (tmp_path / "source").mkdir()
    pairs = [{"question": f"Who is {place}?", "answer": f"Author {place}."} for place in range(40)]
    extra = {"paraphrased_answer": "The author.", "perturbed_answer": ["Nobody.", "Somebody."]}
    files = {"forget10": pairs[-20:], "forget10_perturbed": [{**row, **extra} for row in pairs[-20:]]}
    files |= {"retain90": pairs[:-20], "retain_perturbed": [{**row, **extra} for row in pairs[:20]]}
    facts = [{"question": "Where?", "answer": "Paris.", "perturbed_answer": ["Rome."]}]
    files |= {"real_authors_perturbed": facts * 2, "world_facts_perturbed": facts * 2}
    for file, rows in files.items():
        (tmp_path / f"source/{file}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for number, path in enumerate([*pool["knows_paths"], *pool["lacks_paths"], *unlearned["paths"]]):
        tiny(tmp_path / path, [row["answer"] for row in pairs[: 20 + number]], CHAT)
        (tmp_path / path / "source.json").write_text("{}")
    params = validate(value, "params.yaml")
    result, _ = gather(Shards(params, Workshop(params, tmp_path / "scratch")))
    names = {one.name for one in result.worth}
    assert {"greedy_mean", "mean@4", "forget_probability", "forget_quality"} <= names
    assert not {"tree_lower_mean", "leak_at_1", "game_quality_one_split", "epsilon_star"} & names
    assert result.unlearned == {"given": 1}


def test_the_command_refuses_what_is_no_meta_evaluation(monkeypatch, project):
    monkeypatch.chdir(project)
    for arguments, told in (
        ([], "no section meta_evaluation"),
        (["--preset", "nobody"], "--preset"),
        (["--preset", "meta-authors", "-S", "nowhere.at.all=1"], "a key whose sections exist"),
        (["--preset", "meta-authors", "--name", "a b"], "--name"),
    ):
        done = CliRunner().invoke(app, ["study", "meta-evaluation", *arguments])
        assert done.exit_code == 2, arguments
        assert told in " ".join(done.stderr.split())
