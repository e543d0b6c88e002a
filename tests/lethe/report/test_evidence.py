"""The path of the evidence on the page: a picture a model, the goal as a line, and the path of any question."""

import json
import re

import pytest

from lethe import config
from lethe.io.files import read_artifact, write_json
from lethe.measure.anytime import add_counts
from lethe.measure.run import load_models
from lethe.report.evidence import EvidencePath, panels
from lethe.report.page import render
from lethe.results import table
from lethe.verdict.evidence_path import paths
from lethe.verdict.finding import Findings
from lethe.verdict.standing import Standing
from tests.lethe.report.conftest import load, rows_of_compare


def write_paths(root):
    """Give each model of a made-up run random numbers of its own, its counts at any time, and the paths of `compare`."""
    settings = config.load(root / "params.yaml")
    data = root / "data"
    for name in settings.models:
        about = data / f"generations/{name}/about.json"
        write_json(about, {**read_artifact(about), "stream": name})
        rows = table.Rows(name)
        add_counts(rows, data, settings.metrics.binary, settings.metrics.alpha)
        place = table.place(data, "metrics", name)
        table.write(place, [*table.read_rows(place), *rows.rows])
    compared = table.place(data, "compare", "models")
    written = paths(load_models(settings, data), data)
    table.write(compared, [*table.read_rows(compared), *written])


@pytest.fixture
def with_paths(own_small, without_figures):
    write_paths(own_small)
    return load(own_small)


@pytest.fixture
def compared(with_paths, own_small):
    return rows_of_compare(with_paths, own_small / "data")


@pytest.fixture
def html(with_paths, compared):
    return render(with_paths, compared).html


def test_each_model_under_test_has_the_path_of_the_question_in_the_way(with_paths, compared):
    found = Findings.of(compared)
    standings = [Standing.of(found, model.name) for model in with_paths.models]

    drawn = panels(with_paths, standings)

    expected = []
    for standing in standings:
        if standing.verdict:
            shown = standing.verdict.in_the_way or standing.verdict.worst
            expected.append((standing.model, shown.item))
    assert [(panel.title, panel.note) for panel in drawn] == expected
    assert [title for title, _ in expected] == ["npo", "npo_at"]


def test_the_picture_has_both_lines_and_the_goal(html, with_paths):
    goal = EvidencePath.of(with_paths.subjects[0].questions[0]).goal
    section = html.split('id="evidence"')[1].split("</details>")[0]

    figures = re.findall(r"<svg.*?</svg>", section, re.DOTALL)

    assert len(figures) == 2
    for figure in figures:
        assert figure.count("var(--accent)") == 1
        assert figure.count("var(--warm)") == 1
        assert figure.count("stroke-dasharray") == 1
        assert f"goal {goal:.3g}" in figure


def test_any_question_has_its_path_in_the_block(html, with_paths):
    block = html.split('id="questions-data">')[1].split("</script>")[0]
    data = json.loads(block)

    for model, told in zip(with_paths.models, data["told"], strict=True):
        for question, entry in zip(model.questions, told, strict=True):
            path = EvidencePath.of(question)
            if path is None:
                assert model.role != "subject"
                assert len(entry) == 5
                continue
            axes, forgot, leaks = entry[5]
            goal, low, high, numbers = data["shared"][axes]
            assert numbers == path.row.facts["n"]
            assert low < goal < high
            for shown, known in ((forgot, "forgot"), (leaks, "leaks")):
                inside = [min(max(log_e, low), high) for log_e in path.row.facts[known]]
                assert shown == pytest.approx(inside, abs=0.051)


def test_the_script_draws_the_path_of_the_picked_question(tab, html, tmp_path):
    place = tmp_path / "live.html"
    place.write_text(html, encoding="utf-8")

    tab.open(place)

    for kind in ("within", "beyond", "goal"):
        lines = f"document.querySelectorAll('#picker [data-part=paths] svg .{kind}').length"
        assert tab.evaluate(lines) == 2
    assert tab.evaluate("document.querySelector('[data-part=evidence]').hidden") is False
    assert tab.logged == []


def test_a_run_without_paths_has_no_such_section(small_page):
    assert 'id="evidence"' not in small_page.html
