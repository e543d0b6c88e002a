"""Every figure of the page is a file, the first screen and forgetting beside utility among them, with a copy button."""

import re

import pytest

from lethe.report import svg
from lethe.report.page import write
from tests.lethe.report import chromium
from tests.lethe.report.conftest import load, rendered
from tests.lethe.report.synthetic import change_params

DRAWN = re.compile(r'<svg xmlns="[^"]*" viewBox="[^"]*" role="img" aria-label="([^"]*)"')


@pytest.mark.slow
def test_every_drawing_of_the_page_is_a_file(page):
    on_page = set(DRAWN.findall(page.html))
    in_files = {
        label
        for drawing in page.figures.values()
        for label in re.findall(r'aria-label="([^"]*)"', drawing)
    }

    assert len(on_page) > 10
    assert on_page <= in_files


def test_the_first_screen_is_a_file_with_the_words(page):
    drawing = page.figures["first-screen.svg"]

    for name in ("base", "npo_entropy"):
        assert f">{name}: " in drawing
    assert "var(" not in drawing


def test_forgetting_beside_utility_names_each_model(page, run):
    drawing = page.figures["forgetting-and-utility.svg"]

    for model in run.models:
        assert f">{model.name}<" in drawing


def test_a_run_without_utility_has_no_such_figure(own_small):
    change_params(own_small, lambda params: params["report"].update(base=None))

    page = rendered(own_small)

    assert "first-screen.svg" in page.figures


def test_a_figure_is_also_a_pdf(page):
    printed = svg.pdf(page.figures["first-screen.svg"])

    assert printed.startswith(b"%PDF-")
    assert printed == svg.pdf(page.figures["first-screen.svg"])


def test_the_stage_writes_both_forms(own_small):
    run = load(own_small)

    write(run.params, own_small / "data")

    written = {path.name for path in (own_small / "data/report/figures").iterdir()}
    assert {"first-screen.svg", "first-screen.pdf"} <= written


@pytest.mark.skipif(chromium.found() is None, reason="no chromium")
def test_a_button_copies_the_figure_as_a_file(tab, page, tmp_path):
    path = tmp_path / "index.html"
    path.write_text(page.html, encoding="utf-8")
    tab.open(path)

    made = tab.evaluate("standalone(document.querySelector('figure svg'))")

    assert made.startswith("<svg")
    assert "var(" not in made
    assert "#2459a9" in made
    assert tab.evaluate("document.querySelectorAll('figure .copy').length") > 10
