"""The tables of methods, attacks and sweeps for docs/: each number from the run's files, between the marks of a page."""

from __future__ import annotations

import pytest
import yaml

from lethe import config
from lethe.errors import BadInput
from lethe.evaluation.attack_counts import curves
from lethe.evaluation.run import load as load_run
from lethe.io.json_files import write_json
from lethe.report.sweep_figure import sweep_figure
from lethe.results import table
from tests.benchmarks import gpu, marks
from tests.benchmarks.study_tables import main, rows_of
from tests.lethe.report.synthetic import change_numbers, copy_results, write_record
from tests.lethe.report.test_studies import RELEARN, result


def cells(text: str) -> list[list[str]]:
    """The rows of the Markdown tables of a text, without the rules."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [line for line in lines if not set("".join(line)) <= {"-"}]


def page_with(tmp_path, part):
    page = tmp_path / "page.md"
    page.write_text(f"before\n<!-- {part} -->\nold\n<!-- end {part} -->\nafter\n")
    return page


def test_methods_over_seeds_below_base_and_retrain(own_small, tmp_path, capsys):
    value = config.read_yaml(own_small / "params.yaml")
    npo = value["unlearn"]["methods"]["npo"]
    value["unlearn"]["methods"] = {"npo": {**npo, "seed": 1}, "npo_2": {**npo, "seed": 2}}
    value["models"]["npo_2"] = {"path": "data/models/npo_2"}
    copy_results(own_small, "npo", "npo_2")
    change_numbers(own_small, "npo", binary_mean=0.2, m_bin_worst=0.40001)
    change_numbers(own_small, "npo_2", binary_mean=0.4, m_bin_worst=0.60001)
    (own_small / "params.yaml").write_text(yaml.safe_dump(value, sort_keys=False))
    page = page_with(tmp_path, "methods")
    main(["methods", "--folder", str(own_small), "--write", str(page)])
    head, base, retrain, *rows = cells(page.read_text())
    assert [base[0], retrain[0], len(rows)] == ["base", "retrain", 1]
    share = table.read(own_small / "data").model("base").values["binary_mean"]
    assert float(base[2]) == pytest.approx(share, rel=5e-3)
    assert rows[0][:3] == ["npo", "2", "0.300 (0.200 to 0.400)"]
    assert rows[0][head.index("M_bin of the worst question")] == "0.501 (0.401 to 0.601)"  # bounds round up
    assert "with probability 0.99" in page.read_text()
    assert page.read_text().startswith("before\n<!-- methods -->\n| method")
    assert page.read_text().endswith("<!-- end methods -->\nafter\n")
    assert "0.300 (0.200 to 0.400)" in capsys.readouterr().out


def test_attacks_have_a_table_each_and_one_picture(own_small, tmp_path):
    leaks = {"base": [900, 910, 920], "retrain": [2, 8, 30], "npo": [5, 200, 620]}
    for name, own in leaks.items():
        write_record(own_small, "attack", f"{name}_forget", result(f"data/models/{name}", own))
    value = config.read_yaml(own_small / "params.yaml")
    value["attacks"] = {f"{name}_forget": {"path": f"data/models/{name}", "after": RELEARN} for name in leaks}
    (own_small / "params.yaml").write_text(yaml.safe_dump(value, sort_keys=False))
    page = page_with(tmp_path, "attacks")
    main(["attacks", "--folder", str(own_small), "--write", str(page)])
    head, *rows = cells(page.read_text())
    assert [row[0] for row in rows] == [f"{name}_forget" for name in leaks]
    run = load_run(config.load(own_small / "params.yaml"), own_small / "data", {})
    npo = curves(run.attacks, "data/models/base", "data/models/retrain")[2]
    assert rows[2][head.index("half-life")] == "2 (2 to 2)"
    assert npo.excess[2].lower.number(4) in rows[2][head.index("excess over Retrain")]
    assert (tmp_path / "attacks.png").read_bytes().startswith(b"\x89PNG")
    assert "(attacks.png)" in page.read_text()
    assert rows_of("relearn (rows same_authors, count 2)") == " on same authors rows"
    assert rows_of("noise") == ""


def test_sweeps_tell_each_claim_and_bring_their_figure(tmp_path):
    figure = {
        **{"x": "a.b", "y": "sd", "model": "npo", "control": None, "series": None},
        **{"title": "Spread", "x_label": "a", "y_label": "sd", "file": "fig-4a.png", "points": 2},
    }
    from lethe.evaluation.sweep_claims import Figure

    drawn = Figure.model_validate({key: value for key, value in figure.items() if key not in ("file", "points")})
    rows = [{"model": "npo", "a.b": x, "sd": x / 2} for x in (0.0, 1.0)]
    assert sweep_figure(tmp_path / "data/sweeps/fig-4a.png", drawn, rows) == 2
    found = {
        "points": {"p": {}, "q": {}},
        "failed": {},
        "figure": figure,
        "claims": [{"sentence": "It falls: held."}],
    }
    write_json(tmp_path / "data/sweeps/fig-4a.json", found)
    (tmp_path / "docs").mkdir()
    page = page_with(tmp_path / "docs", "sweeps")
    main(["sweeps", "--folder", str(tmp_path), "--write", str(page)])
    assert "![Spread](fig-4a.png)\n\n`fig-4a`, 2 points, 0 failed:\n- " in page.read_text()
    assert "- It falls: held." in page.read_text()
    assert (page.parent / "fig-4a.png").read_bytes() == (tmp_path / "data/sweeps/fig-4a.png").read_bytes()


@pytest.mark.parametrize("part", ["methods", "attacks", "sweeps"])
def test_a_run_without_the_part_is_told(own_small, part):
    with pytest.raises(BadInput, match="Run `lethe"):
        main([part, "--folder", str(own_small)])


def test_a_page_without_marks_is_told(tmp_path):
    page = page_with(tmp_path, "run")
    marks.write(page, "run", r"a \1 b")
    assert page.read_text() == "before\n<!-- run -->\na \\1 b\n<!-- end run -->\nafter\n"
    with pytest.raises(BadInput, match="holds no <!-- attacks -->"):
        marks.write(page, "attacks", "text")


def test_only_a_large_run_of_the_gpu_benchmark_is_written(tmp_path, monkeypatch):
    import torch

    monkeypatch.setattr(gpu, "benchmark", lambda size: iter([gpu.Measured("train", 2.0, 50, 1.5)]))
    monkeypatch.setattr(gpu, "device", lambda: "a device")
    page = page_with(tmp_path, "gpu")
    before = page.read_text()
    gpu.main(["--tiny", "--write", str(page)])
    assert page.read_text() == before
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    gpu.main(["--write", str(page)])
    assert "Device: a device\n\n| stage" in page.read_text()
    assert "| train | 2.0 | 50 | 25 | 1.50 |" in page.read_text()
