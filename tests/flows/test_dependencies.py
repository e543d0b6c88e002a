"""dvc.yaml lists the code behind every stage: all of it, and what `make deps` writes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from flows import dependencies
from flows.dependencies import BEGIN, BY_ENTRY, END, SHARD, OutsideOfCommon
from lethe.io.cache import Sources
from tests.small import ROOT

STAGES = sorted(path.stem for path in (ROOT / "stages").glob("*.py") if path.stem != "__init__")


@pytest.fixture(scope="module")
def sources() -> Sources:
    return Sources(ROOT)


@pytest.fixture
def copy(tmp_path) -> Path:
    shutil.copy(ROOT / "dvc.yaml", tmp_path)
    for name in ("lethe", "stages"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def listed(stage: str, root: Path = ROOT) -> list[str]:
    entry = yaml.safe_load((root / "dvc.yaml").read_text())["stages"][stage]
    return [str(path) for path in entry.get("do", entry)["deps"]]


def test_dvc_yaml_is_up_to_date():
    assert dependencies.main(ROOT, check=True) == 0, "run `make deps`"


def test_every_stage_has_a_script_and_markers():
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    assert sorted(name for name in stages if not name.endswith(SHARD)) == STAGES
    text = (ROOT / "dvc.yaml").read_text()
    assert text.count(BEGIN) == text.count(END) == len(stages)


LEFT_OUT = {"stages/__init__.py"}  # chooses the python that runs a stage, not what the stage writes


@pytest.mark.parametrize("stage", STAGES)
def test_every_module_that_a_stage_can_load_is_listed(sources, stage):
    entries = listed(stage)
    without = BY_ENTRY.get(stage, {})
    for module in sources.closure(f"stages.{stage}", by_name=True, without=without):
        place = sources.place(module)
        path = str(place.relative_to(ROOT))
        covered = any(path == entry or path.startswith(f"{entry}/") for entry in entries)
        assert covered or path in LEFT_OUT or not place.stat().st_size, path


@pytest.mark.parametrize(
    ("stage", "path", "there"),
    [
        ("sample", "lethe/scoring/text", True),  # a scorer decides where `stop: sequential` ends
        ("sample", "lethe/models/given_answers.py", False),
        ("likelihood", "lethe/models/given_answers.py", True),
        ("likelihood", "lethe/sampling/prefix_engine.py", False),
        ("unlearn", "lethe/unlearning/methods/${item.loss}.py", True),
        ("unlearn", "lethe/unlearning/methods/npo.py", False),
        ("game", "lethe/audits/unlearning_game/text", True),  # attacks, by name
        ("game", "lethe/audits/unlearning_game/swap.py", False),
        ("audit", "lethe/models/dp_sgd.py", True),  # behind an observer, by name
    ],
)
def test_what_is_loaded_by_name_is_listed(stage, path, there):
    assert (path in listed(stage)) == there


def test_a_new_import_is_written_between_the_markers_alone(copy):
    before = (copy / "dvc.yaml").read_text()
    with (copy / "stages/prepare.py").open("a") as file:
        file.write("\ndef later():\n    from lethe.statistics import trend\n")
    assert dependencies.main(copy, check=True) == 1
    assert (copy / "dvc.yaml").read_text() == before
    assert dependencies.main(copy, check=False) == 0
    after = (copy / "dvc.yaml").read_text()
    assert "lethe/statistics/trend.py" in listed("prepare", copy)
    assert [line for line in after.splitlines() if "statistics/trend.py" not in line] == before.splitlines()


def test_a_folder_stands_for_its_modules_only_while_all_are_read(copy):
    assert "lethe/scoring/text" in listed("score", copy)
    (copy / "lethe/audits/unlearning_game/unused.py").write_text("X = 1\n")
    dependencies.main(copy, check=False)
    assert "lethe/audits/unlearning_game" not in listed("game", copy)
    assert "lethe/audits/unlearning_game/rounds.py" in listed("game", copy)


def test_a_method_reads_only_what_every_unlearning_depends_on(copy):
    with (copy / "lethe/unlearning/methods/npo.py").open("a") as file:
        file.write("\nimport lethe.statistics.trend\n")
    with pytest.raises(OutsideOfCommon, match=r"npo imports lethe\.statistics"):
        dependencies.main(copy, check=True)


@pytest.mark.parametrize("place", ["None", "chat"])
def test_a_word_in_place_of_a_path_has_a_file(place):
    assert (ROOT / place).is_file()
