"""The rows of `dvc plots`: a panel per checkpoint, few lines in each, and the template that draws them."""

import json

import pytest

from flows.workspace import plots_page
from lethe.report.page import TRAINED, plots
from tests.lethe.report import chromium


def test_a_panel_has_one_checkpoint_beside_base_and_retrain(run):
    drawn = plots(run)
    for name in ("m_gen.json", "per_question.json"):
        panels: dict[str, set[str]] = {}
        for row in drawn[name]:
            panels.setdefault(row["panel"], set()).add(row["model"])
        assert set(panels) == {"grad_ascent", "npo", "npo_matched", "npo_entropy"}
        assert panels["npo"] == {"base", "retrain", "npo", "npo_at"}
        assert all({"base", "retrain"} < models and len(models) <= 4 for models in panels.values())
    trained = {row["model"]: row["panel"] for row in drawn["training_loss.json"] if row["loss"] is not None}
    assert trained["base"] == trained["retrain"] == TRAINED
    assert trained["npo"] == "npo"


@pytest.mark.skipif(chromium.found() is None, reason="no chromium: install the package of that name")
def test_the_page_of_dvc_draws_and_asks_for_nothing(tmp_path):
    values = [{"x": 1, "y": 2}, {"x": 2, "y": 3}]
    axis = {"type": "quantitative"}
    plot = {"data": {"values": values}, "mark": "bar", "encoding": {key: {"field": key, **axis} for key in "xy"}}
    drawn = f"<div id='plot'></div><script>drawn = vegaEmbed('#plot', {json.dumps(plot)})</script>"
    tried = "<img src='http://127.0.0.1:8/x.png'>"
    path = tmp_path / "plots.html"
    path.write_text(
        plots_page().replace("{refresh_tag}", "").replace("{plot_divs}", drawn + tried), encoding="utf-8"
    )
    with chromium.page() as tab:
        tab.open(path)
        tab.call("Runtime.evaluate", expression="drawn", awaitPromise=True)
        assert tab.evaluate("document.querySelectorAll('#plot canvas, #plot svg').length") > 0
        (refused,) = map(str, tab.logged)
        assert "x.png" in refused
        assert "Content Security Policy" in refused
