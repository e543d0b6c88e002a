"""The table of results: rows come back from a file as they were, and a new quantity stands in every view of them."""

import ast
import dataclasses
import math
import string
from collections import Counter
from pathlib import Path
from typing import get_args

import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from lethe import bounds, config
from lethe.errors import BadFile, BadValue
from lethe.io.artifacts import GREEDY
from lethe.io.files import write_json
from lethe.io.tables import read_table
from lethe.report.page import render
from lethe.results import quantities, table
from lethe.results.quantities import HEADLINES, MODEL, MOST, QUANTITIES, USEFUL, Quantity, headline
from lethe.results.table import Numbers, Result, Results, Rows
from lethe.statistics.bound import Assumes, Bound, Covers, Side
from lethe.tracking import tables
from lethe.tracking.entries import read_entries
from tests.cases import read_cases
from tests.lethe.report.conftest import load
from tests.lethe.report.synthetic import write_run
from tests.small import ROOT, run

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NUMBER = st.none() | st.floats(allow_nan=False)
COUNT = st.none() | st.integers(0, 2**40)
LEVEL = st.none() | st.floats(0, 0.5)
PLAIN = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | TEXT
EVIDENCE = st.dictionaries(
    TEXT, PLAIN | st.lists(PLAIN, max_size=3) | st.dictionaries(TEXT, PLAIN, max_size=2)
)
ROW = st.builds(
    lambda kind, **own: Result(scope=kind.scope, quantity=kind.key, basis=kind.basis, **own),
    st.sampled_from(QUANTITIES),
    model=TEXT,
    item=st.none() | TEXT,
    split=st.none() | TEXT,
    at=NUMBER,
    estimate=NUMBER,
    lower=NUMBER,
    upper=NUMBER,
    alpha_lower=LEVEL,
    alpha_upper=LEVEL,
    covers=st.sampled_from(["", *map(str, Covers)]),
    assumes=TEXT,
    method=TEXT,
    n=COUNT,
    missing=COUNT,
    evidence=st.none() | EVIDENCE,
    text=st.none() | TEXT,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("results")


@given(st.lists(ROW, max_size=5))
def test_rows_come_back_from_a_file_and_two_files_have_the_same_bytes(folder, rows):
    first, second = folder / "first.parquet", folder / "second.parquet"
    table.write(first, rows)
    assert table.read_rows(first) == rows
    table.write(second, table.read_rows(first))
    assert first.read_bytes() == second.read_bytes()


def bound(value: float, side: Side, alpha: float = 0.05, **other: object) -> Bound:
    given_ = {"covers": Covers.ONE_PROMPT, "assumes": Assumes.DRAWS, "method": "m", "n": 8} | other
    return Bound(value, side, alpha, **given_)  # type: ignore[arg-type]


GUARANTEES = [{"covers": Covers.AVERAGE}, {"assumes": "nothing"}, {"method": "another"}, {"n": 9}]


def added(*row: object, **further: object) -> list[Result]:
    rows = Rows("m")
    rows.add(*row, **further)  # type: ignore[arg-type]
    return rows.rows


def test_ends_of_one_guarantee_are_one_row():
    lower, upper = bound(0.1, "lower", 0.01), bound(0.9, "upper")
    (row,) = added("question", "leak", "sampled", 0.5, lower, upper, item="q")
    assert (row.lower_bound, row.upper_bound, row.value) == (lower, upper, 0.5)
    assert (row.alpha_lower, row.alpha_upper, row.n) == (0.01, 0.05, 8)


@pytest.mark.parametrize("other", GUARANTEES, ids=lambda one: next(iter(one)))
def test_ends_of_two_guarantees_are_two_rows_of_one_interval(other):
    lower, upper = bound(0.1, "lower", **other), bound(0.9, "upper")
    with pytest.raises(ValueError, match="guarantees"):
        table.result("m", "question", "leak", "sampled", 0.5, lower, upper)
    rows = added("question", "leak", "sampled", 0.5, lower, upper, item="q", split="forget")
    assert len(rows) == 2
    numbers = Numbers(rows)
    assert numbers.values == {"binary_share": 0.5, "m_bin_lower": 0.1, "m_bin": 0.9}
    assert numbers.bounds == {"m_bin_lower": lower, "m_bin": upper}


def test_a_missing_estimate_and_an_infinite_end():
    for estimate in (None, math.nan):
        row = table.result("m", "model", "epsilon_star", "given answers", estimate)
        assert row.estimate is row.value is None
        assert Numbers([row]).values == {"epsilon_star": None, "epsilon_lower": None}
    certain = dataclasses.replace(bound(math.inf, "lower"), alpha=0.0)
    row = table.result("m", "model", "epsilon_star", "given answers", math.inf, certain)
    assert Numbers([row]).values == {"epsilon_star": math.inf, "epsilon_lower": math.inf}
    assert Numbers([row]).bounds == {"epsilon_lower": certain}


@pytest.mark.parametrize("scope", ["model", "audit"])
def test_a_row_of_an_unknown_quantity_is_refused(scope):
    with pytest.raises(BadValue):
        added(scope, "a_new_number" if scope == "model" else "leak", "sampled", 0.5)


def test_a_value_has_the_unit_of_its_quantity():
    rows = Rows("m")
    rows.add("model", "questions", "sampled", 30)
    rows.add("model", "judge_fits", "judged", True)
    rows.add("model", "worst_production", "language", text="plain")
    rows.add("model", "score", "sampled", 1)
    rows.add("question", "leaks", "sampled", 2.5, item="q")
    numbers = Numbers(rows.rows)
    expected = {"leaking_answers": 2.5, "n_questions": 30, "mean": 1.0, "judge_fits": True}
    assert numbers.values == expected | {"language_worst_found": "plain"}
    assert [type(numbers.values[key]) for key in expected] == [float, int, float, bool]
    assert [numbers.value(key) for key in ("n_questions", "language_worst_found", "x")] == [
        30,
        None,
        None,
    ]


def test_a_row_at_a_place_is_a_series_unless_its_place_is_exported():
    rows = Rows("m")
    for k in (1000.0, 1.0, 10.0):
        rows.add("model", "leak_at_k_worst", "sampled", None, None, bound(k / 2000, "upper"), at=k)
    rows.add("model", "choice", "language", 0.5, item="a")
    rows.add("model", "choice", "language", 0.25, item="b")
    numbers = Numbers(rows.rows)
    assert numbers.values == {"leak_at_1000_worst_lower": None, "leak_at_1000_worst": 0.5}
    assert [row.at for row in numbers.series("leak_at_k_worst")] == [1000, 1, 10]
    assert [row.estimate for row in numbers.series("choice", "language", "b")] == [0.25]
    assert numbers.row("choice", "language").item == "a"
    assert numbers.row("leak") is None


def test_the_rows_of_a_folder_by_model_question_and_audit(tmp_path):
    for stage, name, *rows in (
        ("metrics", "a", ("model", "score", 0.5, None), ("question", "score", 0.25, "q2")),
        ("exact", "a", ("question", "score", 0.75, "q1"), ("question", "max", 1.0, "q2")),
        ("metrics", "b", ("model", "score", 0.125, None)),
        ("audit", "mine", ("audit", "number", 2.0, "epsilon")),
    ):
        made = Rows(name)
        for scope, quantity, value, item in rows:
            made.add(scope, quantity, "run" if scope == "audit" else "sampled", value, item=item)
        table.write(table.place(tmp_path, stage, name), made.rows)
    both = [
        Result(name, "model", "forget_ks", "given answers", estimate=0.5) for name in ("a", "b")
    ]
    table.write(table.place(tmp_path, "compare", "models"), both)
    results = table.read(tmp_path)
    assert set(results.by_model) == {"a", "b", "mine"}
    assert results.model("a").values == {"mean": 0.5, "forget_ks": 0.5}
    questions = results.questions("a")
    assert list(questions) == ["q1", "q2"]  # the file exact comes before the file metrics
    assert [questions[item].values["mean"] for item in ("q1", "q2")] == [0.75, 0.25]
    assert questions["q2"].values["max"] == 1.0
    assert results.audit("mine").values == {"epsilon": 2.0}
    assert results.rows("gone") == ()
    assert results.model("gone").values == {}
    only = table.read(tmp_path, ["b"])
    assert set(only.by_model) == {"b"}
    assert only.model("b").values == {"mean": 0.125, "forget_ks": 0.5}
    assert table.read(tmp_path / "nothing") == Results({})


def test_the_frame_has_every_row_of_every_stage(tmp_path):
    assert list(table.frame(tmp_path).columns) == [*table.COLUMNS, "stage"]
    rows = Rows("m")
    rows.add(
        "question",
        "leak",
        "sampled",
        0.5,
        bound(0.25, "lower"),
        bound(0.75, "upper"),
        item="Zoë\u2028🦉",
    )
    rows.add("model", "worst_production", "language", text="word", evidence={"leaks": 3})
    for stage in ("metrics", "exact"):
        table.write(table.place(tmp_path, stage, "m"), rows.rows)
    frame = table.frame(tmp_path)
    assert frame["stage"].tolist() == ["exact", "exact", "metrics", "metrics"]
    own = frame[(frame["stage"] == "metrics") & (frame["quantity"] == "leak")].iloc[0]
    assert (own["item"], own["lower"], own["upper"], own["alpha_upper"]) == (
        "Zoë\u2028🦉",
        0.25,
        0.75,
        0.05,
    )
    assert (own["n"], own["covers"]) == (8, str(Covers.ONE_PROMPT))
    assert pd.isna(frame.loc[3, "estimate"])
    assert frame.loc[3, "text"] == "word"


def test_a_broken_table_is_refused_by_its_name(tmp_path):
    place = table.place(tmp_path, "metrics", "m")
    place.parent.mkdir(parents=True)
    place.write_bytes(b"no Parquet")
    with pytest.raises(BadFile, match=r"m\.parquet"):
        table.read(tmp_path)


@pytest.mark.parametrize("side", ["lower", "upper"])
def test_a_row_restated_for_a_language_changes_its_guarantee_alone(side):
    one = bound(0.5, side)
    ends = (one, None) if side == "lower" else (None, one)
    row = table.result("m", "question", "leak", "sampled", 0.5, *ends, item="q")
    restated = table.in_language(row)
    end = getattr(restated, f"{side}_bound")
    assert end == one.in_language()
    assert end.covers != one.covers
    assert dataclasses.replace(restated, covers=row.covers, assumes=row.assumes) == row
    plain = table.result("m", "question", "max", "sampled", 0.5, item="q")
    assert table.in_language(plain) is plain


PARTS = ("split", "item", "at")


def single(row: Quantity) -> list[str]:
    """The exported names of single numbers, each of their places written out."""
    places = row.exported_at if row.at else (None,)
    made = (
        Result("m", row.scope, row.key, row.basis, item="ITEM", split="SPLIT", at=at)
        for at in places
    )
    return [name for one in made for name in dict.fromkeys(one.names()) if name]


def test_every_exported_name_is_of_one_number():
    found = Counter((row.scope, name) for row in QUANTITIES for name in single(row))
    assert [name for name, times in found.items() if times > 1] == []


@pytest.mark.parametrize("row", QUANTITIES, ids=lambda row: f"{row.scope}-{row.key}-{row.basis}")
def test_a_row_is_whole(row):
    fields = {
        name for pattern in row.names for _, name, _, _ in string.Formatter().parse(pattern) if name
    }
    assert fields <= set(PARTS)
    assert ("at" in fields) <= bool(row.at), "a name that says where needs a meaning of where"
    assert bool(row.exported_at) <= bool(row.at)
    made = Result("m", row.scope, row.key, row.basis, item="i", split="s", at=0.5)
    assert not [name for name in made.names() if "{" in name or "}" in name or " " in name]
    assert row.label
    assert row.definition
    assert row.unit != "text" or not any(row.names[1:]), "a word has no ends"
    assert set(row.headlines) <= set(get_args(quantities.Headline)) - {""}
    assert not row.headlines or (row.scope == "model" and any(row.names))
    assert [HEADLINES.index(one) for one in row.headlines if one in HEADLINES] == sorted(
        HEADLINES.index(one) for one in row.headlines if one in HEADLINES
    )


@pytest.mark.parametrize("module", ["verdict/claims", "report/figures", "api/runs"])
def test_a_reader_takes_its_names_from_the_vocabulary(module):
    nodes = ast.walk(ast.parse((ROOT / f"lethe/{module}.py").read_text(encoding="utf-8")))
    texts = {
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert not texts & {name for row in QUANTITIES for name in single(row) if "_" in name}


@pytest.mark.parametrize(
    "key", [("model", "nothing", "sampled"), ("audit", "leak", "sampled"), ("", "", "")]
)
def test_an_unknown_quantity_is_refused(key):
    with pytest.raises(BadValue):
        quantities.of(*key)
    with pytest.raises(BadValue):
        Result("m", *key).names()


GROUPS = read_cases(__file__)["GROUPS"]


@pytest.mark.parametrize("group", HEADLINES)
@pytest.mark.parametrize("utility", [f"{split}_mean" for split in USEFUL])
def test_a_model_is_shown_by_its_strongest_evidence(group, utility):
    """A model with the numbers of this group and of all weaker ones, and words that are no numbers."""
    known = [name for one in HEADLINES[HEADLINES.index(group) :] for name in GROUPS[one]]
    values = dict.fromkeys([*known, utility, "n", "alpha", "ed_score"], 0.25)
    assert set(headline(values)) == {*GROUPS[group], utility}
    assert headline(values)[-1] == utility


NAMES = sorted(
    {name for row in MODEL for name in single(row)} | {f"{split}_mean" for split in USEFUL}
)


@given(st.dictionaries(st.sampled_from(NAMES), st.sampled_from([None, 0.0, 0.25, "word", True])))
def test_a_headline_has_few_names_each_with_a_value(values):
    shown = headline(values)
    assert len(shown) == len(set(shown)) <= MOST
    assert all(values[name] is not None for name in shown)
    utility = [name for name in shown if name.removesuffix("_mean") in USEFUL]
    assert shown[len(shown) - len(utility) :] == utility
    assert (
        utility
        == [f"{split}_mean" for split in USEFUL if values.get(f"{split}_mean") is not None][:1]
    )


@pytest.mark.parametrize("group", [group for group in HEADLINES if group != "labelled"])
def test_the_table_of_dvc_fits_120_columns(tmp_path, group):
    """With the longest name of the demonstration, of which nobody labelled an answer, and the longest numbers."""
    values = dict.fromkeys((*GROUPS[group], "retain_mean"), 0.12345678)
    paths = [f"data/metrics/{name}.json" for name in ("base", "npo_entropy_at")]
    for path in paths:
        write_json(tmp_path / path, {"schema": 1, **{key: values[key] for key in headline(values)}})
    (tmp_path / "dvc.yaml").write_text(f"metrics: [{', '.join(paths)}]\n")
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc/config").write_text("[core]\n    no_scm = true\n    analytics = false\n")
    lines = run(tmp_path, "dvc", "metrics", "show").stdout.splitlines()
    assert len(lines) == 3
    assert all(key in lines[0] for key in values)
    assert max(map(len, lines)) <= 120


NAME, BOUND = "blank_share", "blank_worst"
WHAT = ("{scorer}", "blank", "answers without a word")
OF_MODEL = Quantity(
    "blank", "sampled", "model", (NAME, "", BOUND), *WHAT, "probability", headlines=("leaks",)
)
EACH = Quantity(
    "blank",
    "sampled",
    "question",
    ("blank_here", "", ""),
    *WHAT,
    "count",
    headlines=("tracked",),
)
GUARANTEE = ("upper", 0.01, Covers.WORST_PROMPT, Assumes.DRAWS, "Clopper-Pearson", 16)


def blank(root, name) -> list[table.Result]:
    """The line that computes it."""
    drawn = read_table(root / f"data/generations/{name}/forget.parquet")
    empty = (
        drawn[drawn["sample"] != GREEDY]
        .groupby("prompt_id")["text"]
        .agg(lambda texts: (texts == "").sum())
    )
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
        patch.setattr(
            quantities, "QUANTITIES", (*quantities.QUESTION, *quantities.MODEL, *quantities.AUDIT)
        )
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
    assert headline(results.model("npo").values)[MOST - 2] == BOUND, "a group's fifth"
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


def test_in_the_bounds_of_a_file(written):
    """In an entry of the JSON document, and as a column of the table of the prompts."""
    measured = bounds(pd.DataFrame({"prompt_id": ["a"] * 16, "score": [0, 1] * 8}))
    counted = table.result("scores", "question", "blank", "sampled", 3, item="a", split="forget")
    with_blank = dataclasses.replace(measured, results=(*measured.results, counted))
    entry = with_blank.as_json()["per_prompt"][0]
    assert entry["blank_here"] == 3
    view = with_blank.views()[0]
    assert dict(zip(view.columns, view.rows[0], strict=True))["blank_here"] == 3
