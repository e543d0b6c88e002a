"""Two processes train as one: accelerate starts them, the gradients of their parts add up, one of them writes."""

from __future__ import annotations

import copy

import pytest
from safetensors.numpy import load_file

from lethe.io.json_files import read_json
from tests.small import make_repository, run, small_params, write_params


@pytest.mark.slow
def test_two_processes_take_the_steps_of_one_that_takes_them_in_two_parts(tmp_path):
    params = small_params()
    params["data"]["authors"] = {"count": 20, "heldout": 2, "world_facts": 2}
    params["train"]["recipe"] |= {"epochs": 1}
    params["unlearn"]["methods"]["npo_entropy"] |= {"epochs": 2}
    folder = make_repository(tmp_path / "lethe", params, git=False)
    run(folder, "stages.prepare")
    run(folder, "stages.train", "base")
    found = []
    for compute in ({"accumulate": 2}, {"processes": 2}):
        other = copy.deepcopy(params)
        other["unlearn"]["recipe"]["compute"] = compute
        write_params(folder, other)
        run(folder, "stages.unlearn", "npo_entropy")
        made = folder / "data/models/npo_entropy"
        found.append((load_file(made / "model.safetensors"), read_json(made / "training.json")["steps"]))
    for one, two in zip(found[0][1], found[1][1], strict=True):
        assert two == pytest.approx(one, rel=1e-4, abs=1e-5)
    assert all(abs(found[1][0][name] - weights).max() < 2e-4 for name, weights in found[0][0].items())

    other["unlearn"]["methods"]["npo_entropy"]["lr"] = 1e30
    write_params(folder, other)
    failed = run(folder, "stages.unlearn", "npo_entropy", check=False, timeout=120)  # both processes end
    assert failed.returncode == 1
    assert load_file(made / "model.safetensors").keys() == found[1][0].keys()
    assert read_json(made / "training.json")["steps"] == found[1][1], "the folder is as it was"
