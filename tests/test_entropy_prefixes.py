"""The table of `entropy-prefixes` of the benchmarks: medians, ranges and counts of finished seeds, and nothing of
unfinished ones."""

from __future__ import annotations

import shutil

import pytest

from flows.settings import read_preset
from lethe.errors import MissingArtifact
from lethe.io.json_files import write_json
from lethe.results import table as results
from lethe.statistics.bound import Assumes, Bound, Covers
from studies.seeds.runs import FOLDER
from tests.benchmarks.entropy_prefixes import CONTROL, PRESET, chosen_points, guarantee, main, read, table
from tests.small import ROOT

BOUND = Bound(0.12341, "upper", 0.01, Covers.WORST_PROMPT, Assumes.DRAWS_WITHIN, "Clopper-Pearson", 1024)


def finished(root, points, values, complete=True):
    for point, own in zip(points, values, strict=True):
        folder = root / FOLDER / point.name
        write_json(folder / ".lethe/last_run.json", {"complete": complete})
        for name in read_preset(PRESET)["models"]:
            mean = own if name.startswith("npo_entropy") else 0.5
            rows = results.Rows(name)
            rows.add("model", "leak", "sampled", mean)
            rows.add("model", "leak_worst", "sampled", None, None, BOUND)
            rows.add("model", "sd", "sampled", 0.1)
            rows.add("model", "kept", "sampled", 0.9, split="retain")
            results.write(results.place(folder / "data", "metrics", name), rows.rows)


def test_the_points_differ_in_their_seeds_alone():
    points = chosen_points(ROOT, 3)
    seeds = [dict(point.settings)["unlearn.recipe.seed"] for point in points]
    assert [seed - seeds[0] for seed in seeds] == [0, 10, 20]
    prefixes = {
        name: method["entropy"]["prefix"] if "entropy" in method else None
        for name, method in read_preset(PRESET)["unlearn.methods"].items()
    }
    assert prefixes == {
        CONTROL: None, "npo_entropy": True, "npo_entropy_greedy": "greedy", "npo_entropy_sampled": "sampled",
    }  # fmt: skip


def test_medians_ranges_and_counts(tmp_path):
    points = chosen_points(ROOT, 4)
    finished(tmp_path, points[:3], [0.1, 0.7, 0.2])
    finished(tmp_path, points[3:], [0.0], complete=False)
    told = table(read(tmp_path, points), 4, guarantee(tmp_path, points))
    rows = [line.split(" | ") for line in told.splitlines()[2:8]]
    found = {row[0].removeprefix("| "): row[1:] for row in rows}
    assert found[CONTROL][0] == "0.5000"
    for name in ("npo_entropy", "npo_entropy_greedy", "npo_entropy_sampled"):
        assert found[name][0] == "0.2000 (0.1000 to 0.7000); lower in 2"
        assert found[name][1].startswith("0.1235;")  # a bound is rounded up
    assert told.endswith(f"{BOUND.guarantee('the forget questions')}.")


def test_the_table_is_put_between_the_marks_of_a_page(tmp_path, monkeypatch, capsys):
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    finished(tmp_path, chosen_points(tmp_path, 1), [0.1])
    page = tmp_path / "page.md"
    page.write_text("<!-- prefixes -->\n<!-- end prefixes -->\n")
    assert main(["--count", "1", "--summary", "--write", str(page)]) == 0
    told = capsys.readouterr().out
    assert "over 1 of 1 seeds" in told
    assert page.read_text() == f"<!-- prefixes -->\n{told}<!-- end prefixes -->\n"


def test_without_a_finished_seed_it_is_said(tmp_path):
    points = chosen_points(ROOT, 1)
    finished(tmp_path, points, [0.1], complete=False)
    with pytest.raises(MissingArtifact, match=f"make {PRESET}"):
        read(tmp_path, points)
