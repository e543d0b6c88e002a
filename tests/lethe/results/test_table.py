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
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe import bounds, config
from lethe.errors import BadFile, BadValue
from lethe.io.artifacts import GREEDY
from lethe.io.files import write_json
from lethe.io.tables import read_table
from lethe.results import quantities, table
from lethe.results.quantities import HEADLINES, MODEL, MOST, QUANTITIES, USEFUL, Quantity, headline
from lethe.results.table import Numbers, Result, Results, Rows
from lethe.statistics.bound import Assumes, Bound, Covers, Side
from lethe.tracking import tables
from lethe.tracking.entries import read_entries
from tests.cases import read_cases
from tests.lethe.report.conftest import rendered
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


def result_of(kind: Quantity, **fields: object) -> Result:
    return Result(scope=kind.scope, quantity=kind.key, basis=kind.basis, **fields)


ROW = st.builds(
    result_of,
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
def test_rows_come_back_from_a_file(folder, rows):
    table.write(folder / "first.parquet", rows)

    assert table.read_rows(folder / "first.parquet") == rows


@settings(max_examples=30)
@given(st.lists(ROW, max_size=5))
def test_two_files_of_the_same_rows_have_the_same_bytes(folder, rows):
    first, second = folder / "first.parquet", folder / "second.parquet"
    table.write(first, rows)

    table.write(second, table.read_rows(first))

    assert first.read_bytes() == second.read_bytes()


def bound(value: float, side: Side, alpha: float = 0.05, **changes: object) -> Bound:
    guarantee = {"covers": Covers.ONE_PROMPT, "assumes": Assumes.DRAWS, "method": "m", "n": 8}
    guarantee |= changes
    return Bound(value, side, alpha, **guarantee)  # type: ignore[arg-type]


LOWER = bound(0.1, "lower", 0.01)
UPPER = bound(0.9, "upper")


def added(*row: object, **further: object) -> list[Result]:
    rows = Rows("m")
    rows.add(*row, **further)  # type: ignore[arg-type]
    return rows.rows


def test_ends_of_one_guarantee_are_one_row():
    (row,) = added("question", "leak", "sampled", 0.5, LOWER, UPPER, item="q")

    assert (row.lower_bound, row.upper_bound, row.value) == (LOWER, UPPER, 0.5)
    assert (row.alpha_lower, row.alpha_upper, row.n) == (0.01, 0.05, 8)


OTHER_GUARANTEES = pytest.mark.parametrize(
    "change",
    [{"covers": Covers.AVERAGE}, {"assumes": "nothing"}, {"method": "another"}, {"n": 9}],
    ids=lambda change: next(iter(change)),
)


@OTHER_GUARANTEES
def test_ends_of_two_guarantees_are_no_row(change):
    lower = bound(0.1, "lower", **change)

    with pytest.raises(ValueError, match="guarantees"):
        table.result("m", "question", "leak", "sampled", 0.5, lower, UPPER)


@OTHER_GUARANTEES
def test_ends_of_two_guarantees_are_two_rows_of_one_interval(change):
    lower = bound(0.1, "lower", **change)

    rows = added("question", "leak", "sampled", 0.5, lower, UPPER, item="q", split="forget")

    assert len(rows) == 2
    numbers = Numbers(rows)
    assert numbers.values == {"binary_share": 0.5, "m_bin_lower": 0.1, "m_bin": 0.9}
    assert numbers.bounds == {"m_bin_lower": lower, "m_bin": UPPER}


@pytest.mark.parametrize("estimate", [None, math.nan])
def test_a_missing_estimate_is_none(estimate):
    row = table.result("m", "model", "epsilon_star", "given answers", estimate)

    assert row.estimate is None
    assert row.value is None
    assert Numbers([row]).values == {"epsilon_star": None, "epsilon_lower": None}


def test_an_infinite_end_is_kept_with_its_bound():
    certain = dataclasses.replace(bound(math.inf, "lower"), alpha=0.0)

    row = table.result("m", "model", "epsilon_star", "given answers", math.inf, certain)

    numbers = Numbers([row])
    assert numbers.values == {"epsilon_star": math.inf, "epsilon_lower": math.inf}
    assert numbers.bounds == {"epsilon_lower": certain}


@pytest.mark.parametrize(("scope", "quantity"), [("model", "a_new_number"), ("audit", "leak")])
def test_a_row_of_an_unknown_quantity_is_refused(scope, quantity):
    with pytest.raises(BadValue):
        added(scope, quantity, "sampled", 0.5)


@pytest.fixture
def of_every_unit() -> Numbers:
    rows = Rows("m")
    rows.add("model", "questions", "sampled", 30)
    rows.add("model", "judge_fits", "judged", True)
    rows.add("model", "worst_production", "language", text="plain")
    rows.add("model", "score", "sampled", 1)
    rows.add("question", "leaks", "sampled", 2.5, item="q")
    return Numbers(rows.rows)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("leaking_answers", 2.5),
        ("n_questions", 30),
        ("mean", 1.0),
        ("judge_fits", True),
        ("language_worst_found", "plain"),
    ],
)
def test_a_value_has_the_unit_of_its_quantity(of_every_unit, name, value):
    assert len(of_every_unit.values) == 5
    assert of_every_unit.values[name] == value
    assert type(of_every_unit.values[name]) is type(value)


@pytest.mark.parametrize(
    ("name", "number"), [("n_questions", 30), ("language_worst_found", None), ("x", None)]
)
def test_a_word_is_no_number(of_every_unit, name, number):
    assert of_every_unit.value(name) == number


def test_a_row_at_a_place_is_a_series_unless_its_place_is_exported():
    rows = Rows("m")
    for k in (1000.0, 1.0, 10.0):
        rows.add("model", "leak_at_k_worst", "sampled", None, None, bound(k / 2000, "upper"), at=k)

    numbers = Numbers(rows.rows)

    assert numbers.values == {"leak_at_1000_worst_lower": None, "leak_at_1000_worst": 0.5}
    assert [row.at for row in numbers.series("leak_at_k_worst")] == [1000, 1, 10]


def test_rows_are_found_by_quantity_basis_and_item():
    rows = Rows("m")
    rows.add("model", "choice", "language", 0.5, item="a")
    rows.add("model", "choice", "language", 0.25, item="b")

    numbers = Numbers(rows.rows)

    assert [row.estimate for row in numbers.series("choice", "language", "b")] == [0.25]
    assert numbers.row("choice", "language").item == "a"
    assert numbers.row("leak") is None


@pytest.fixture
def of_two_models(tmp_path) -> Path:
    """Results of the models a and b, of both together, and of the audit "mine"."""

    def write(stage: str, name: str, *rows: Result) -> None:
        table.write(table.place(tmp_path, stage, name), list(rows))

    def question(quantity: str, item: str, estimate: float) -> Result:
        return Result("a", "question", quantity, "sampled", item=item, estimate=estimate)

    model_a = Result("a", "model", "score", "sampled", estimate=0.5)
    write("metrics", "a", model_a, question("score", "q2", 0.25))
    write("exact", "a", question("score", "q1", 0.75), question("max", "q2", 1.0))
    write("metrics", "b", Result("b", "model", "score", "sampled", estimate=0.125))
    number = Result("mine", "audit", "number", "run", item="epsilon", estimate=2.0)
    write("audit", "mine", number)
    of_a = Result("a", "model", "forget_ks", "given answers", estimate=0.5)
    write("compare", "models", of_a, dataclasses.replace(of_a, model="b"))
    return tmp_path


def test_the_rows_of_a_folder_by_model(of_two_models):
    results = table.read(of_two_models)

    assert set(results.by_model) == {"a", "b", "mine"}
    assert results.model("a").values == {"mean": 0.5, "forget_ks": 0.5}


def test_the_rows_of_a_folder_by_question(of_two_models):
    questions = table.read(of_two_models).questions("a")

    assert list(questions) == ["q1", "q2"]  # the file exact comes before the file metrics
    assert [questions[item].values["mean"] for item in ("q1", "q2")] == [0.75, 0.25]
    assert questions["q2"].values["max"] == 1.0


def test_the_rows_of_a_folder_by_audit(of_two_models):
    assert table.read(of_two_models).audit("mine").values == {"epsilon": 2.0}


def test_a_model_that_is_not_there_has_no_rows(of_two_models):
    results = table.read(of_two_models)

    assert results.rows("gone") == ()
    assert results.model("gone").values == {}


def test_the_rows_of_named_models_alone(of_two_models):
    results = table.read(of_two_models, ["b"])

    assert set(results.by_model) == {"b"}
    assert results.model("b").values == {"mean": 0.125, "forget_ks": 0.5}


def test_a_folder_that_is_not_there_has_no_results(tmp_path):
    assert table.read(tmp_path / "nothing") == Results({})


def test_a_run_that_compared_nothing_has_no_rows_of_all_models(tmp_path):
    assert table.compared(tmp_path) == []


def test_the_frame_of_no_results_has_its_columns(tmp_path):
    assert list(table.frame(tmp_path).columns) == [*table.COLUMNS, "stage"]


@pytest.fixture
def frame(tmp_path) -> pd.DataFrame:
    lower, upper = bound(0.25, "lower"), bound(0.75, "upper")
    rows = Rows("m")
    rows.add("question", "leak", "sampled", 0.5, lower, upper, item="Zoë\u2028🦉")
    rows.add("model", "worst_production", "language", text="word", evidence={"leaks": 3})
    for stage in ("metrics", "exact"):
        table.write(table.place(tmp_path, stage, "m"), rows.rows)
    return table.frame(tmp_path)


def test_the_frame_has_every_row_of_every_stage(frame):
    assert frame["stage"].tolist() == ["exact", "exact", "metrics", "metrics"]


def test_a_row_of_the_frame_has_its_ends_and_its_guarantee(frame):
    of_metrics = frame[frame["stage"] == "metrics"]

    row = of_metrics[of_metrics["quantity"] == "leak"].iloc[0]

    assert row["item"] == "Zoë\u2028🦉"
    assert (row["lower"], row["upper"], row["alpha_upper"]) == (0.25, 0.75, 0.05)
    assert (row["n"], row["covers"]) == (8, str(Covers.ONE_PROMPT))


def test_a_word_of_the_frame_has_no_estimate(frame):
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
    end = bound(0.5, side)
    ends = (end, None) if side == "lower" else (None, end)
    row = table.result("m", "question", "leak", "sampled", 0.5, *ends, item="q")

    restated = table.in_language(row)

    restated_end = getattr(restated, f"{side}_bound")
    assert restated_end == end.in_language()
    assert restated_end.covers != end.covers
    assert dataclasses.replace(restated, covers=row.covers, assumes=row.assumes) == row


def test_a_row_without_an_end_is_not_restated():
    row = table.result("m", "question", "max", "sampled", 0.5, item="q")

    assert table.in_language(row) is row


PARTS = ("split", "item", "at")


def single_names(kind: Quantity) -> list[str]:
    """The exported names of single numbers, each of their places written out."""
    names = []
    for at in kind.exported_at if kind.at else (None,):
        row = result_of(kind, model="m", item="ITEM", split="SPLIT", at=at)
        names += [name for name in dict.fromkeys(row.names()) if name]
    return names


def test_every_exported_name_is_of_one_number():
    uses: Counter[tuple[str, str]] = Counter()
    for kind in QUANTITIES:
        uses.update((kind.scope, name) for name in single_names(kind))

    assert [use for use, times in uses.items() if times > 1] == []


EVERY_QUANTITY = pytest.mark.parametrize(
    "kind", QUANTITIES, ids=lambda kind: f"{kind.scope}-{kind.key}-{kind.basis}"
)


@EVERY_QUANTITY
def test_the_names_of_a_quantity_have_places_that_it_has(kind):
    fields = set()
    for pattern in kind.names:
        fields |= {field for _, field, _, _ in string.Formatter().parse(pattern) if field}

    assert fields <= set(PARTS)
    assert ("at" in fields) <= bool(kind.at)
    assert bool(kind.exported_at) <= bool(kind.at)


@EVERY_QUANTITY
def test_the_names_of_a_row_are_written_out(kind):
    row = result_of(kind, model="m", item="i", split="s", at=0.5)

    assert [name for name in row.names() if set(name) & set("{} ")] == []


@EVERY_QUANTITY
def test_a_quantity_is_described(kind):
    assert kind.label
    assert kind.definition


@EVERY_QUANTITY
def test_a_word_has_no_ends(kind):
    assert kind.unit != "text" or not any(kind.names[1:])


@EVERY_QUANTITY
def test_the_headlines_of_a_quantity_are_known_and_in_their_order(kind):
    places = [HEADLINES.index(name) for name in kind.headlines if name in HEADLINES]

    assert set(kind.headlines) <= set(get_args(quantities.Headline)) - {""}
    assert not kind.headlines or (kind.scope == "model" and any(kind.names))
    assert places == sorted(places)


@pytest.mark.parametrize("module", ["verdict/claims", "report/figures", "api/runs"])
def test_a_reader_takes_its_names_from_the_vocabulary(module):
    tree = ast.parse((ROOT / f"lethe/{module}.py").read_text(encoding="utf-8"))
    texts = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.add(node.value)

    for kind in QUANTITIES:
        names = {name for name in single_names(kind) if "_" in name}
        assert not texts & names


UNKNOWN_KEYS = pytest.mark.parametrize(
    "key", [("model", "nothing", "sampled"), ("audit", "leak", "sampled"), ("", "", "")]
)


@UNKNOWN_KEYS
def test_an_unknown_quantity_is_refused(key):
    with pytest.raises(BadValue):
        quantities.of(*key)


@UNKNOWN_KEYS
def test_a_row_of_an_unknown_quantity_has_no_names(key):
    with pytest.raises(BadValue):
        Result("m", *key).names()


GROUPS = read_cases(__file__)["GROUPS"]
UTILITIES = [f"{split}_mean" for split in USEFUL]


@pytest.mark.parametrize("group", HEADLINES)
@pytest.mark.parametrize("utility", UTILITIES)
def test_a_model_is_shown_by_its_strongest_evidence(group, utility):
    """A model with the numbers of this group and of all weaker ones, and words that are no numbers."""
    names = [utility, "n", "alpha", "ed_score"]
    for weaker in HEADLINES[HEADLINES.index(group) :]:
        names += GROUPS[weaker]

    shown = headline(dict.fromkeys(names, 0.25))

    assert set(shown) == {*GROUPS[group], utility}
    assert shown[-1] == utility


NAMES = set(UTILITIES)
for kind in MODEL:
    NAMES.update(single_names(kind))


@given(
    st.dictionaries(
        st.sampled_from(sorted(NAMES)), st.sampled_from([None, 0.0, 0.25, "word", True])
    )
)
def test_a_headline_has_few_names_each_with_a_value(values):
    shown = headline(values)

    assert len(shown) == len(set(shown)) <= MOST
    assert all(values[name] is not None for name in shown)
    with_value = [name for name in UTILITIES if values.get(name) is not None]
    utility = [name for name in shown if name.removesuffix("_mean") in USEFUL]
    assert utility == with_value[:1]
    assert shown[len(shown) - len(utility) :] == utility


@pytest.mark.seconds
@pytest.mark.parametrize("group", [group for group in HEADLINES if group != "labelled"])
def test_the_table_of_dvc_fits_120_columns(tmp_path, group):
    """With the longest name of the demonstration, of which nobody labelled an answer, and the longest numbers."""
    values = dict.fromkeys((*GROUPS[group], "retain_mean"), 0.12345678)
    shown = {"schema": 1} | {name: values[name] for name in headline(values)}
    paths = [f"data/metrics/{name}.json" for name in ("base", "npo_entropy_at")]
    for path in paths:
        write_json(tmp_path / path, shown)
    (tmp_path / "dvc.yaml").write_text(f"metrics: [{', '.join(paths)}]\n")
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc/config").write_text("[core]\n    no_scm = true\n    analytics = false\n")

    lines = run(tmp_path, "dvc", "metrics", "show").stdout.splitlines()

    assert len(lines) == 3
    assert all(name in lines[0] for name in values)
    assert max(map(len, lines)) <= 120


NAME = "blank_share"
BOUND = "blank_worst"
OF_MODEL = Quantity(
    "blank",
    "sampled",
    "model",
    (NAME, "", BOUND),
    "{scorer}",
    "blank",
    "answers without a word",
    "probability",
    headlines=("leaks",),
)
OF_QUESTION = dataclasses.replace(
    OF_MODEL, scope="question", names=("blank_here", "", ""), unit="count", headlines=("tracked",)
)
BLANK_WORST = Bound(0.25, "upper", 0.01, Covers.WORST_PROMPT, Assumes.DRAWS, "Clopper-Pearson", 16)
MODELS = ("base", "retrain", "npo")


def blank_rows(root, name) -> list[table.Result]:
    """The rows of the new quantity, from the answers of a model."""
    answers = read_table(root / f"data/generations/{name}/forget.parquet")
    sampled = answers[answers["sample"] != GREEDY]
    blanks = (sampled["text"] == "").groupby(sampled["prompt_id"]).sum()
    rows = table.Rows(name)
    rows.add("model", "blank", "sampled", blanks.mean() / 16, None, BLANK_WORST)
    for item, count in blanks.items():
        rows.add("question", "blank", "sampled", count, item=item)
    return rows.rows


def learn_the_new_quantity(patch: pytest.MonkeyPatch) -> None:
    of_model = (*quantities.MODEL, OF_MODEL)
    of_question = (*quantities.QUESTION, OF_QUESTION)
    patch.setattr(quantities, "MODEL", of_model)
    patch.setattr(quantities, "QUESTION", of_question)
    patch.setattr(quantities, "QUANTITIES", (*of_question, *of_model, *quantities.AUDIT))
    forget_the_vocabulary()


def forget_the_vocabulary() -> None:
    quantities._by_key.cache_clear()
    quantities.order.cache_clear()


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A run whose models were measured with the new quantity, and a lock that lists the measuring."""
    root = tmp_path_factory.mktemp("run")
    models = config.read_yaml(ROOT / "params.yaml")["models"]
    with pytest.MonkeyPatch.context() as patch:
        learn_the_new_quantity(patch)
        write_run(root, 3, 16, models={name: models[name] for name in MODELS})
        stages = {}
        for name in MODELS:
            place = table.place(root / "data", "metrics", name)
            table.write(place, [*table.read_rows(place), *blank_rows(root, name)])
            path = str(place.relative_to(root))
            stages[f"metrics@{name}"] = {"outs": [{"path": path, "md5": path}]}
        (root / "dvc.lock").write_text(yaml.safe_dump({"schema": "2.0", "stages": stages}))
        yield root
    forget_the_vocabulary()


def test_a_new_quantity_is_in_the_numbers_and_their_bounds(written):
    npo = table.read(written / "data").model("npo")

    assert (npo.values[NAME], npo.values[BOUND]) == (0.0, 0.25)
    assert npo.bounds[BOUND] == BLANK_WORST
    assert headline(npo.values)[MOST - 2] == BOUND, "a group's fifth"


def test_a_new_quantity_is_in_the_numbers_of_questions(written):
    questions = table.read(written / "data").questions("npo")

    assert {numbers.values["blank_here"] for numbers in questions.values()} == {0}


@pytest.fixture(scope="module")
def page(written):
    return rendered(written)


def test_a_new_quantity_is_in_the_summary(page):
    summary = page.summary["models"]["npo"]

    assert summary["metrics"][BOUND] == 0.25
    assert summary["bounds"][BOUND]["value"] == 0.25


def test_a_new_quantity_is_on_the_page(page):
    for name in (NAME, BOUND):
        assert f"<code>{name}</code>" in page.html
    assert OF_MODEL.definition in page.html
    columns = page.html.count(f"<dt>keyword leak: {OF_MODEL.label}</dt>")
    assert columns == 3, "two columns of models, one of questions"


def test_a_new_quantity_is_in_mlflow(written):
    entry = next(entry for entry in read_entries(written) if entry.name == "npo")

    rows = tables.metrics(entry).set_index("metric")

    assert rows.loc[BOUND, "exact"] == 0.25
    assert rows.loc[BOUND, "alpha"] == 0.01
    assert entry.metrics[BOUND] == 0.25
    assert "blank_here" in tables.questions(entry, written)


def test_a_new_quantity_is_in_the_bounds_of_a_file(written):
    """In an entry of the JSON document, and as a column of the table of the prompts."""
    measured = bounds(pd.DataFrame({"prompt_id": ["a"] * 16, "score": [0, 1] * 8}))
    counted = table.result("scores", "question", "blank", "sampled", 3, item="a", split="forget")

    with_blank = dataclasses.replace(measured, results=(*measured.results, counted))

    view = with_blank.views()[0]
    assert with_blank.as_json()["per_prompt"][0]["blank_here"] == 3
    assert dict(zip(view.columns, view.rows[0], strict=True))["blank_here"] == 3
