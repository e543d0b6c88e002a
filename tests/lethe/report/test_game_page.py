"""Games on their page, and seeds, epochs and attacks on the report's: each number from its file, each claim decided by it."""

import re
from html import unescape

import pytest

from lethe import config
from lethe.audits.unlearning_game.result import GameResult, trends
from lethe.config.seeds import write_copies
from lethe.io.files import restored
from lethe.measure.attack_counts import curves
from lethe.measure.run import load as load_run
from lethe.measure.run import load_models
from lethe.report.game_page import page
from lethe.report.sweep_figure import SweepClaim, axes_figure, outcome
from lethe.results.table import place as place_of
from lethe.results.table import read_rows, write
from lethe.statistics.bound import Assumes, Bound, Covers, level
from lethe.steps.compare import over_seeds
from tests.benchmarks.study_tables import attacks_of, methods_of
from tests.cases import cases, merged
from tests.lethe.report import chromium, other_pages
from tests.lethe.report.conftest import load, page_of, rendered
from tests.lethe.report.other_pages import paper, single
from tests.lethe.report.synthetic import change_json, change_numbers, copy_results, write_record
from tests.lethe.report.test_chromium import HIDDEN_OVERFLOW
from tests.lethe.unlearning.test_trajectory import record_of


def typed(result):
    return restored(GameResult, result)


def held(result):
    return {trend.claim: trend.held for trend in trends(typed(result))}


@cases
def test_a_trend_that_fails_is_told(change, claim):
    failed = [name for name, is_held in held(merged(paper(), change)).items() if not is_held]
    assert len(failed) == 1
    assert claim in failed[0]


def read(html):
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


def test_the_page_shows_tables_figure_trends_and_bounds():
    html = page("paper", typed(paper()))
    text = read(html)
    parts = ("Table 1", "Table 4", "Figure 2", "Held", "vacuous", "NegGrad", "0.709", "ε = ∞")
    assert [part for part in parts if part not in text] == []
    assert "Did not hold" not in text
    assert "http" not in html.replace("http-equiv", "").replace("http://www.w3.org", "")
    assert page("paper", typed(paper())) == html  # the same result, the same bytes


def test_leakage_bounds_stand_beside_the_quality():
    result = single()
    for at, method in enumerate(result["methods"].values()):
        method["leakage"] = {
            "scorer": "keyword_leak",
            "questions": 42,
            "n": 128,
            "temperature": 0.7,
            "alpha": 0.01,
            "greedy": 0.1,
            "mean": 0.2,
            "pooled_bound": 0.30101,
            "worst_bound": round(0.8 + at / 100, 2),
            "guarantees": {
                key: Bound(
                    0.5, "upper", 0.01, covers, Assumes.DRAWS_WITHIN, "Clopper-Pearson"
                ).guarantee_dict()
                for key, covers in (
                    ("pooled_bound", Covers.AVERAGE),
                    ("worst_bound", Covers.WORST_PROMPT),
                )
            },
        }
    text = read(page("authors", typed(result)))
    for part in (
        "bound, worst question",
        "0.850",
        "0.302",
        "42 forget questions",
    ):  # up: rounded down it would be no bound
        assert part in text, part


NAMES = ("game", "tables", "compare", "extraction")
BROWSED = pytest.mark.skipif(
    chromium.found() is None, reason="no chromium: install the package of that name"
)


@pytest.fixture(scope="module")
def pages():
    return other_pages.pages()


@pytest.fixture(scope="module")
def folder(pages, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    for name, html in pages.items():
        (folder / f"{name}.html").write_text(html, encoding="utf-8")
    return folder


@BROWSED
@pytest.mark.parametrize(
    ("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]
)
@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_silent_alone_and_readable(tab, folder, name, width, scheme):
    path = folder / f"{name}.html"
    tab.open(path, width, scheme)
    tab.settle()
    assert tab.logged == []
    assert tab.requested == [path.as_uri()]
    assert tab.evaluate(HIDDEN_OVERFLOW) == 0
    assert tab.evaluate("document.querySelectorAll('main, header').length") == 2


@BROWSED
def test_a_comparison_sorts_and_shows_where_each_difference_lies(tab, folder):
    tab.open(folder / "compare.html")
    names = "[...document.querySelectorAll('#compared tbody th')].map(cell => cell.textContent.slice(0, 4))"
    assert tab.evaluate(names) == [
        "q-1",
        "q-0",
        "q-2",
        "<scr",
    ]  # what holds first, the largest first
    tab.click("#compared thead th:nth-child(5) button")
    assert tab.evaluate(names) == ["q-1", "<scr", "q-2", "q-0"]
    outcomes = tab.evaluate(
        "[...document.querySelectorAll('#compared .outcome')].map(cell => cell.textContent)"
    )
    assert outcomes == ["better", "open", "open", "worse"]
    places = tab.evaluate("""[...document.querySelectorAll('.effect')].map(bar => {
        const [zero, reach, dot] = [...bar.children].map(part => part.getBoundingClientRect());
        return [reach.left < zero.left, reach.right > zero.left, dot.left + dot.width / 2 < zero.left - 1];
    })""")
    assert places == [
        [True, False, True],
        [True, True, False],
        [True, True, False],
        [False, True, False],
    ]
    assert tab.evaluate("document.title") == "Lethe: before and after"


RELEARN = {"kind": "relearn", "rows": "forget", "count": 5, "steps": [1, 2], "batch": 8, "lr": 5e-4}


def section(html: str, name: str) -> str:
    return html.split(f'<section id="{name}"')[1].split("</section>")[0]


def result(path: str, leaks: list[int]) -> dict:
    counts = [
        {
            "budget": float(budget),
            "total": float(total),
            "most": float(total),
            "n": 1000,
            "binary": True,
        }
        for budget, total in zip((0, 1, 2), leaks, strict=True)
    ]
    by_seed = []
    for seed in (0, 1):
        for count in counts:
            mean = count["total"] / 1000
            by_seed.append({"seed": seed, "budget": count["budget"], "mean": mean})
    return {
        "kind": "relearn",
        "scorer": "keyword_leak",
        "alpha": 0.05,
        "path": path,
        "after": RELEARN,
        "budget": "steps of relearning",
        "n": 256,
        "seeds": [0, 1],
        "counts": counts,
        "by_seed": by_seed,
    }


@pytest.fixture
def attacked(own_small):
    leaks = {"base": [900, 910, 920], "retrain": [2, 8, 30], "npo": [5, 200, 620]}
    for name, totals in leaks.items():
        write_record(own_small, "attack", f"{name}_forget", result(f"data/models/{name}", totals))
    settings = config.load(own_small / "params.yaml")
    entries = {
        f"{name}_forget": {"path": f"data/models/{name}", "after": RELEARN} for name in leaks
    }
    value = config.read_yaml(own_small / "params.yaml") | {"attacks": entries}
    return config.validate(value) if settings else None


def test_an_attack_is_shown_beside_base_and_retrain(without_figures, own_small, attacked, page):
    assert 'id="attacks"' not in page.html
    run = load_run(attacked, own_small / "data", load(own_small).provenance)
    html = section(page_of(run, own_small / "data").html, "attacks")
    found = {
        curve.name: curve
        for curve in curves(run.attacks, "data/models/base", "data/models/retrain")
    }
    npo = found["npo_forget"]
    assert (npo.role, found["retrain_forget"].role, found["base_forget"].role) == (
        "subject",
        "retrain",
        "base",
    )
    assert (npo.half_life.earliest, npo.half_life.estimate, npo.half_life.latest) == (2, 2, 2)
    assert [round(excess.estimate, 3) for excess in npo.excess] == [0.003, 0.192, 0.59]
    assert found["retrain_forget"].excess == []
    assert level(2 * npo.points[0].upper.alpha) in html  # of the half-life: two bands
    assert npo.excess[2].lower.number(4) in html
    rows = [
        line for line in attacks_of(run).splitlines() if line.startswith("relearn on forget rows |")
    ]
    assert [row.split(" | ")[1] for row in rows] == ["npo_forget"]
    assert npo.points[2].lower.number(4) in html
    assert "forget, count 5, batch 8, lr 0.0005)" in html
    assert html.count("<svg") == 1


FIRST_SECTIONS = {"missing", "verdicts"}  # on the first screen


def sections_without_link(page: str) -> set[str]:
    """The sections that the list of links at the top of the page leaves out."""
    links = re.findall(r'<a href="#([\w-]+)">', page.partition("<main>")[0])
    return set(re.findall(r'<section id="([\w-]+)"', page)) - set(links)


def test_epochs_have_a_figure_where_they_were_observed(own_small, small_page, without_figures):
    assert 'id="epochs"' not in small_page.html
    keys = ("confidence", "entropy", "probability")
    records = [
        {
            "epoch": epoch,
            **{
                f"{split}_{key}": 0.5 + epoch / 10 for split in ("forget", "retain") for key in keys
            },
        }
        for epoch in (-1, 0, 1)
    ]
    change_json(own_small / "data/models/npo/training.json", epochs=records)
    page = rendered(own_small).html
    html = section(page, "epochs")
    assert sections_without_link(page) <= FIRST_SECTIONS
    assert html.count("<svg") == 2
    assert "forget 0.6, retain 0.6" in html or "forget 0.600, retain 0.600" in html


def test_mean_and_deviation_by_the_number_of_answers_are_a_figure_of_each_model(small_page):
    drawn = {name for name in small_page.figures if name.startswith("convergence-")}

    assert drawn == {"convergence-npo.svg", "convergence-npo_at.svg"}
    # two estimates and two bounds
    assert small_page.figures["convergence-npo.svg"].count('stroke-dasharray="') >= 2


def test_points_along_unlearning_are_on_the_page_in_its_figures_and_plots(
    own_small, small_page, without_figures
):
    assert 'id="along"' not in small_page.html
    assert small_page.plots["trajectories.json"] == []
    record = record_of((0.9, 0.8), (0.3, 0.75), (0.1, 0.4))
    change_json(own_small / "data/models/npo/training.json", **record)

    page = rendered(own_small)

    html = section(page.html, "along")
    assert sections_without_link(page.html) <= FIRST_SECTIONS
    assert "<svg" in html
    assert '<td>npo</td><td class="n">2</td><td class="n">1</td>' in html
    assert "along-npo.svg" in page.figures
    assert len(page.plots["trajectories.json"]) == 6
    assert page.summary["trajectories"][0]["chosen_epoch"] == 1


def test_seeds_of_one_method_are_one_row(own_small, small_page, without_figures):
    assert 'id="methods"' not in small_page.html
    value = config.read_yaml(own_small / "params.yaml")
    value["unlearn"]["methods"]["npo"]["seeds"] = [1, 2]
    write_copies(value)
    copy_results(own_small, "npo", "npo_2")
    change_numbers(own_small, "npo", binary_mean=0.2)
    change_numbers(own_small, "npo_2", binary_mean=0.4)
    params = config.validate(value)
    place = place_of(own_small / "data", "compare", "models")
    compared = over_seeds(params, load_models(params, own_small / "data"), [], [])
    write(place, [*read_rows(place), *compared])

    run = load_run(params, own_small / "data", load(own_small).provenance)

    page = page_of(run, own_small / "data").html
    html = section(page, "methods")
    assert sections_without_link(page) <= FIRST_SECTIONS
    assert "npo (2 seeds)" in html
    assert "0.300 ± 0.141" in html
    assert re.search(r"\bED\b", html)
    cells = next(line for line in methods_of(run).splitlines() if line.startswith("npo |")).split(
        " | "
    )
    assert cells[1] == "0.300 (0.200 to 0.400)"


def rows(effect, model="m", points=7):
    return [
        {"model": model, "cause": place, "effect": effect(place), "set": place % 2}
        for place in range(points)
    ]


def claim(expected, within=None):
    return SweepClaim(says="It", cause="cause", effect="effect", expected=expected, within=within)


@pytest.mark.parametrize(
    ("expected", "effect", "verdict"),
    [
        ("falls", lambda x: -x, "held"),
        ("rises", lambda x: -x, "the opposite held"),
        ("falls", lambda x: x % 3, "did not show"),
        ("unrelated", lambda x: x, "a relation showed"),
        ("unrelated", lambda x: x % 3, "no relation showed"),
        ("falls", lambda x: 1.0, "did not show"),
    ],
)
def test_the_verdict_follows_the_numbers(expected, effect, verdict):
    others = rows(lambda x: 100 * x, model="other")
    found = outcome(claim(expected), "m", [*rows(effect), *others])
    assert found.verdict == verdict
    assert found.trend.points == 7
    assert verdict in found.sentence


def test_axes_of_numbers_are_drawn_and_others_are_not(tmp_path):
    drawn = [{**row, "name": f"n{row['cause']}"} for row in rows(float)]
    assert axes_figure(tmp_path / "a.png", ["cause", "name"], ["effect", "absent"], drawn)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with_base = [*drawn, *rows(lambda x: 9.0, model="base")]
    assert axes_figure(tmp_path / "c.png", ["cause", "name"], ["effect", "absent"], with_base)
    assert (tmp_path / "c.png").read_bytes() == (tmp_path / "a.png").read_bytes()
    assert not axes_figure(tmp_path / "b.png", ["name"], ["effect"], drawn)
    assert not axes_figure(tmp_path / "b.png", ["cause"], ["absent"], drawn)
    assert not (tmp_path / "b.png").exists()
