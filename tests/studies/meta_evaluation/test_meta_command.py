"""`lethe study meta-evaluation` whole, with tiny sizes: resumed after a kill, and on the public checkpoints' names."""

import contextlib
import json
import subprocess
import sys
from dataclasses import asdict

import pytest
from typer.testing import CliRunner

from lethe.cli.app import app
from lethe.io.files import plain
from studies.meta_evaluation.work import gather
from studies.meta_evaluation.workshop import Workshop, validate
from tests.flows.miniature import wait_until
from tests.flows.test_presets import CHAT, tiny, write_tofu
from tests.small import environment, make_repository, run
from tests.studies.small_meta import small_document, small_params, with_preset

SMALLEST = {  # two models a pool and one method, so that the whole takes seconds
    "pool": small_document()["meta_evaluation"]["pool"]
    | {"knows": {"all": 2}, "lacks": {"retain": 2}},
    "predict": small_document()["meta_evaluation"]["predict"] | {"draws": 1},
    "unlearned": {
        "methods": {
            "grad_diff": {"loss": "grad_diff", "lr": 5e-4, "epochs": 1, "retain_weight": 1.0}
        },
        "strengths": [1.0],
        "seeds": 1,
        "utility": 0.0,
    },
}


@pytest.fixture
def repository(tmp_path):
    """A copy of the project whose params.yaml has a tiny meta-evaluation, entered."""
    folder = make_repository(tmp_path / "lethe", small_document(**SMALLEST), git=False)
    with contextlib.chdir(folder):
        yield folder


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_killed_call_is_continued_and_a_finished_one_repeats_nothing(repository, monkeypatch):
    command = ("study", "meta-evaluation", "--name", "tiny", "--at-once", "2", "--json")
    process = subprocess.Popen(
        [sys.executable, "-m", "lethe", *command], env=environment(), cwd=repository
    )
    scratch = repository / ".lethe/scratch/meta"
    wait_until(lambda: len(list(scratch.glob("*/models/[!.]*/config.json"))) >= 2, seconds=300)
    process.kill()
    process.communicate()
    stood = {path: path.stat().st_mtime_ns for path in scratch.glob("*/models/[!.]*/config.json")}
    done = run(repository, "lethe", *command)
    assert {path: path.stat().st_mtime_ns for path in stood} == stood
    result = json.loads(done.stdout.splitlines()[-1])
    assert {path.name for path in (repository / "data/meta/tiny").iterdir()} == {
        *("result.json", "numbers.parquet", "index.html")
    }

    monkeypatch.setattr(Workshop, "_train", None)  # a second training would fail
    monkeypatch.setattr("studies.meta_evaluation.observing.Observation._make", None)
    whole, models = gather(Workshop(small_params(**SMALLEST), scratch))
    again = json.loads(json.dumps(plain(asdict(whole))))
    assert again == {key: value for key, value in result.items() if key != "name"}
    expected = {"mean@16", "greedy_mean", "forget_probability", "privleak"}
    assert expected | {"tree_lower_mean", "tree_share_proved", "excess_over_retrain"} <= {
        one.name for one in whole.worth
    }
    assert (sum(whole.knows.values()), sum(whole.lacks.values())) == (2, 1)
    (unlearned,) = [one for one in models if one.name.startswith("grad_diff")]
    assert set(unlearned.comes_back) == {"leaks", "mean"}
    values = {
        state: numbers["forget_probability"].value for state, numbers in unlearned.states.items()
    }
    assert len(set(values.values())) == len(values) == 3, "both attacks change the model"
    rows = {one.name: one.cost.rows for one in whole.worth}
    assert 0 < rows["mean@4"] < rows["mean@16"]


@pytest.mark.slow
def test_the_public_checkpoints_with_a_tiny_stand_in(tmp_path, monkeypatch):
    """The preset meta-tofu: a tiny model in the folder of the first names of each pool, TOFU's files, the rest cut."""
    monkeypatch.chdir(tmp_path)
    value = with_preset("meta-tofu")
    section = value["meta_evaluation"]
    pool, unlearned = section["pool"], section["unlearned"]
    assert (len(pool["knows_paths"]), len(pool["lacks_paths"]), len(unlearned["paths"])) == (
        30,
        31,
        75,
    )
    assert all("pos_tofu" in path for path in pool["knows_paths"])
    assert all("neg_tofu" in path for path in pool["lacks_paths"][1:])
    pool["knows_paths"], pool["lacks_paths"] = pool["knows_paths"][:2], pool["lacks_paths"][:3]
    unlearned["paths"] = unlearned["paths"][:1]
    section |= {"answers": [2, 4], "leak_at": [1], "utility_questions": 2, "bootstrap": 20}
    section["headline"] = [name.replace("@1024", "@4") for name in section["headline"]]
    section["claims"] = []
    section["predict"] |= {"count": 2, "steps": 1, "n": 2}
    value["sample"] |= {"max_new_tokens": 4, "dtype": "float32", "vllm_from": 10**12}
    value["data"]["tofu"]["hub"] = None
    value["data"]["source"] = str(tmp_path / "source")
    (tmp_path / "source").mkdir()
    write_tofu(tmp_path / "source", "forget10", 20, "retain90")
    for number, path in enumerate(
        [*pool["knows_paths"], *pool["lacks_paths"], *unlearned["paths"]]
    ):
        tiny(tmp_path / path, [f"Author {place} wrote." for place in range(20 + number)], CHAT)
        (tmp_path / path / "source.json").write_text("{}")
    params = validate(value, "params.yaml")
    result, _ = gather(Workshop(params, tmp_path / "scratch"))
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
