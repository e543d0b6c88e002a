"""From the numbers of models to a result: utility, directions, what comes back, and models that were not attacked."""

import json

import pytest

from lethe.errors import BadInput
from lethe.instruction_set import in_use
from lethe.io.tables import read_table
from studies.meta_evaluation.numbers import Cost, Number
from studies.meta_evaluation.page import shown
from studies.meta_evaluation.work import write
from studies.meta_evaluation.workshop import Workshop
from studies.meta_evaluation.worth import Member, meta_result
from tests.benchmarks.meta_table import main, read
from tests.studies.small_meta import small_document, small_params

CLAIMS = [{"text": "The truth tells more", "better": "a", "than": "b"}]


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    section = small_document()["meta_evaluation"]
    pool = section["pool"] | {"knows": {"all": 4}, "lacks": {"retain": 5}, "utility": 0.5}
    unlearned = section["unlearned"] | {"strengths": [1.0, 2.0, 4.0]}
    params = small_params(pool=pool, unlearned=unlearned, headline=["a", "b"], claims=CLAIMS)
    return Workshop(params, tmp_path_factory.mktemp("meta"))


@pytest.fixture(scope="module")
def members(shop):
    """The truth as number a; the last model that lacks has lost its utility."""
    made = []
    for place, model in enumerate(shop.models.values()):
        value = 1.0 if model.role == "knows" else 0.01 * place
        numbers = {
            "a": Number("a", value, value, ("greedy",)),
            "b": Number("b", value, -value, ("greedy",), larger=False),
        }
        utility = 0.1 if model.name == "lacks-03-retain" else 1.0
        back = {"leaks": value, "mean": -value} if model.role == "unlearned" else {}
        costs = {"greedy": Cost(2.0, 10.0)}
        made.append(Member(model.name, model.role, model.kind, shop.knows(model), utility, numbers, costs, back))
    return made


@pytest.fixture(scope="module")
def result(shop, members):
    return meta_result(members, shop.meta)


def test_the_result_of_finished_models(shop, result):
    worth = {one.name: one for one in result.worth}
    assert (worth["a"].auc.value, worth["b"].auc.value) == (1.0, 0.0), "the sign is the declared one"
    assert (worth["a"].larger, worth["b"].larger) == (True, False)
    assert (worth["a"].prediction.value, worth["a"].prediction_mean.value) == pytest.approx((1.0, -1.0))
    assert worth["a"].cost.seconds == 2.0
    assert result.left_out == int("lacks-03-retain" in shop.models)


def test_the_files_of_a_result(shop, result, members, tmp_path):
    folder = write("tiny", shop, result, members, tmp_path)
    kept = json.loads((folder / "result.json").read_text())
    assert kept["settings"]["pool"]["utility"] == 0.5
    assert kept["provenance"]["machine"] == in_use()
    assert {one["name"] for one in kept["worth"]} == {"a", "b"}
    table = read_table(folder / "numbers.parquet")
    assert len(table) == 2 * len(members)


def test_two_results_stand_side_by_side(shop, result, members, tmp_path, capsys):
    for name in ("tiny", "tiny-1"):
        write(name, shop, result, members, tmp_path)
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- runs -->\nold\n<!-- end runs -->\nafter\n")
    main(["tiny", "tiny-1", "--folder", str(tmp_path), "--write", str(page)])
    text = page.read_text()
    assert text.removeprefix("before\n<!-- runs -->\n").removesuffix("\n<!-- end runs -->\nafter\n") + "\n" == (
        capsys.readouterr().out
    )
    best, worst = (worth_of(result, name) for name in ("a", "b"))
    lines = text.splitlines()
    assert f"| `a` | {shown(best.auc)}<br>{shown(best.auc)} |" in text
    assert (
        f"| The truth tells more (`a` beside `b`) | {result.claims[0].verdict} | {result.claims[0].verdict} |"
        in lines
    )
    assert [line[:5] for line in lines if line.startswith(("| `a` |", "| `b` |"))] == ["| `a`", "| `b`"], (
        "the higher AUC first"
    )
    assert worst.auc.value == 0.0
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")
    assert "AUC of 2 headline numbers differs" in text
    assert repr(read(tmp_path / "data/meta/tiny")[0]) == repr(result)


def test_runs_of_other_rules_are_not_set_side_by_side(shop, result, members, tmp_path, monkeypatch):
    write("tiny", shop, result, members, tmp_path)
    other = shop.meta.model_copy(update={"alpha": 0.2})
    monkeypatch.setitem(shop.__dict__, "meta", other)
    write("other", shop, result, members, tmp_path)
    with pytest.raises(BadInput, match="tiny, other"):
        main(["tiny", "other", "--folder", str(tmp_path)])


def worth_of(result, name):
    return next(one for one in result.worth if one.name == name)
