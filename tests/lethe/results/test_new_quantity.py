"""A quantity is added by one row of the vocabulary and the line that computes it, and stands in every view of the table."""

import pytest
import yaml

from lethe import config
from lethe.io.artifacts import GREEDY
from lethe.io.tables import read_table
from lethe.report.page import render
from lethe.results import quantities, table
from lethe.results.quantities import Quantity
from lethe.statistics.bound import Assumes, Bound, Covers
from lethe.tracking import tables
from lethe.tracking.entries import read_entries
from tests.lethe.report.conftest import load
from tests.lethe.report.synthetic import write_run
from tests.small import ROOT

NAME, BOUND = "blank_share", "blank_worst"
WHAT = ("{scorer}", "blank", "answers without a word")
OF_MODEL = Quantity("blank", "sampled", "model", (NAME, "", BOUND), *WHAT, "probability", headlines=("leaks",))
EACH = Quantity("blank", "sampled", "question", ("blank_here", "", ""), *WHAT, "count")
GUARANTEE = ("upper", 0.01, Covers.WORST_PROMPT, Assumes.DRAWS, "Clopper-Pearson", 16)


def blank(root, name) -> list[table.Result]:
    """The line that computes it."""
    drawn = read_table(root / f"data/generations/{name}/forget.parquet")
    empty = drawn[drawn["sample"] != GREEDY].groupby("prompt_id")["text"].agg(lambda texts: (texts == "").sum())
    rows = table.Rows(name)
    rows.add("model", "blank", "sampled", empty.mean() / 16, None, Bound(0.25, *GUARANTEE))
    for item, count in empty.items():
        rows.add("question", "blank", "sampled", count, item=item)
    return rows.rows


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A run whose models were measured with the new quantity, and a lock that lists the measuring."""
    root = tmp_path_factory.mktemp("run")
    models = config.read_yaml(ROOT / "params.yaml")["models"]
    with pytest.MonkeyPatch.context() as patch:
        for name, row in (("MODEL", OF_MODEL), ("QUESTION", EACH)):
            patch.setattr(quantities, name, (*getattr(quantities, name), row))
        patch.setattr(quantities, "QUANTITIES", (*quantities.QUESTION, *quantities.MODEL, *quantities.AUDIT))
        forget_the_vocabulary()
        write_run(root, 3, 16, models={name: models[name] for name in ("base", "retrain", "npo")})
        stages = {}
        for name in ("base", "retrain", "npo"):
            place = table.place(root / "data", "metrics", name)
            table.write(place, [*table.read_rows(place), *blank(root, name)])
            path = str(place.relative_to(root))
            stages[f"metrics@{name}"] = {"outs": [{"path": path, "md5": path}]}
        (root / "dvc.lock").write_text(yaml.safe_dump({"schema": "2.0", "stages": stages}))
        yield root
    forget_the_vocabulary()


def forget_the_vocabulary() -> None:
    quantities._by_key.cache_clear()
    quantities.order.cache_clear()


def test_in_the_numbers_and_their_bounds(written):
    results = table.read(written / "data")
    assert (results.model("npo").values[NAME], results.model("npo").values[BOUND]) == (0.0, 0.25)
    assert results.model("npo").bounds[BOUND] == Bound(0.25, *GUARANTEE)
    assert {own.values["blank_here"] for own in results.questions("npo").values()} == {0}


def test_in_the_summary_and_on_the_page(written):
    page = render(load(written))
    told = page.summary["models"]["npo"]
    assert told["metrics"][BOUND] == told["bounds"][BOUND]["value"] == 0.25
    for name in (NAME, BOUND):
        assert f"<code>{name}</code>" in page.html
    assert OF_MODEL.definition in page.html
    assert page.html.count(f"<dt>keyword leak: {OF_MODEL.label}</dt>") == 3, (
        "two columns of models, one of questions"
    )


def test_in_mlflow(written):
    entry = next(entry for entry in read_entries(written) if entry.name == "npo")
    rows = tables.metrics(entry).set_index("metric")
    assert rows.loc[BOUND, "exact"] == 0.25
    assert rows.loc[BOUND, "alpha"] == 0.01
    assert entry.metrics[BOUND] == 0.25
    assert "blank_here" in tables.questions(entry, written)
