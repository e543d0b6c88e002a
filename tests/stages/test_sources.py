"""The stage `sources`: an edit of a module runs again the stages that can load the module, and no other."""

import pytest
import yaml
from dvc.repo import Repo

from lethe.io.cache import Sources
from stages import sources as hashed
from tests.small import ROOT, make_repository, run, small_params

STAGES = {path.stem for path in (ROOT / "stages").glob("[a-z]*.py")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The real graph of stages, whose commands only make their outputs."""
    params = small_params()
    params["unlearn"]["methods"]["grad_diff"] = yaml.safe_load((ROOT / "params.yaml").read_text())["unlearn"][
        "methods"
    ]["grad_diff"]
    folder = make_repository(tmp_path_factory.mktemp("sources") / "lethe", params, git=False)
    (folder / ".dvc/config.local").write_text("[core]\n    no_scm = true\n")
    graph = yaml.safe_load((folder / "dvc.yaml").read_text())
    for name, stage in graph["stages"].items():
        own = stage.get("do", stage)
        if name != "sources":
            outs = [*own["outs"], *own.get("metrics", ())]
            own["cmd"] = [f"mkdir -p $(dirname {out}) && echo '{{}}' > {out}" for out in outs]
    (folder / "dvc.yaml").write_text(yaml.safe_dump(graph, sort_keys=False))
    run(folder, "dvc", "repro")
    return folder


def stale(folder) -> set[str]:
    """The stages that would run after the stage `sources` has run."""
    hashed.run(folder, folder / "data/sources.json")
    with Repo(str(folder)) as repo:
        return {name.rpartition(":")[2] for name in repo.status()} - {"sources"}


def names(folder) -> list[str]:
    """The stages other than `sources`."""
    with Repo(str(folder)) as repo:
        return [stage.name for stage in repo.index.stages if stage.name != "sources"]


def test_every_stage_of_dvc_yaml_has_a_script_and_takes_its_own_hash():
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    assert set(stages) == STAGES
    for name in STAGES - {"sources"}:
        own = stages[name].get("do", stages[name])
        (hashes,) = [entry["data/sources.json"] for entry in own["params"] if isinstance(entry, dict)]
        assert hashes[0] == name
    assert len((ROOT / "dvc.yaml").read_text().splitlines()) <= 300


@pytest.mark.parametrize(
    "module",
    [
        "lethe.unlearning.methods.npo",
        "lethe.data.kinds.jsonl",
        "lethe.statistics.bounds",
        "lethe.errors",
        "stages.score",
    ],
)
def test_an_edit_runs_exactly_the_stages_whose_closure_has_the_module(folder, module):
    sources = Sources(folder)
    members = {
        "unlearn@npo_entropy": ("lethe.unlearning.methods.npo", "lethe.unlearning.methods"),
        "unlearn@grad_diff": ("lethe.unlearning.methods.ascent", "lethe.unlearning.methods"),
        "prepare": ("lethe.data.kinds.authors", "lethe.data.kinds"),
    }
    expected = set()
    for stage in names(folder):
        member, package = members.get(stage, (None, ""))
        modules = [f"stages.{stage.partition('@')[0]}", *([member] if member else [])]
        if module in sources.closure(*modules, by_name=True, without=(package,) if package else ()):
            expected.add(stage)
    place = sources.place(module)
    content = place.read_bytes()
    place.write_bytes(content + b"\n# edited\n")
    try:
        assert stale(folder) == expected
    finally:
        place.write_bytes(content)


def test_a_template_counts_with_the_modules_beside_it(folder):
    place = folder / "lethe/report/style.css"
    content = place.read_bytes()
    place.write_bytes(content + b"\n")
    try:
        assert stale(folder) == {"report"}
    finally:
        place.write_bytes(content)
    assert stale(folder) == set()
