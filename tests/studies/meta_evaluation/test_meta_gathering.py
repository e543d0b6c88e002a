"""From the numbers of models to a result: utility, directions, what comes back, and models that were not attacked."""

import json
import math

import pytest

from lethe.errors import BadInput
from lethe.instruction_set import in_use
from lethe.io.tables import read_table
from studies.meta_evaluation.numbers import Cost, Number
from studies.meta_evaluation.page import shown
from studies.meta_evaluation.work import ATTACKED, ModelNumbers, ModelResult, evaluate, write
from studies.meta_evaluation.workshop import State, Workshop
from tests.benchmarks.meta_table import main, read
from tests.studies.small_meta import small_document, small_params

CLAIMS = [{"text": "The truth tells more", "better": "a", "than": "b"}]


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    section = small_document()["meta_evaluation"]
    pool = section["pool"] | {"knows": {"all": 4}, "lacks": {"retain": 5}, "utility": 0.5}
    unlearned = section["unlearned"] | {"utility": 0.5, "strengths": [1.0, 2.0, 4.0]}
    params = small_params(pool=pool, unlearned=unlearned, headline=["a", "b"], claims=CLAIMS)
    return Workshop(params, tmp_path_factory.mktemp("meta"))


def numbers(value: float, utility: float) -> ModelNumbers:
    found = {
        "a": Number("a", value, value, ("greedy",)),
        "b": Number("b", value, -value, ("greedy",), larger=False),
    }
    return ModelNumbers(utility, found, {"greedy": Cost(2.0, 10.0)})


@pytest.fixture(scope="module")
def found(shop):
    """The truth as number a; the last model that lacks, and one unlearned model, have lost their utility."""
    results = []
    for place, model in enumerate(shop.models.values()):
        weak = model.name in ("lacks-03-retain", "npo-4-0")
        value = 1.0 if model.role == "knows" else 0.01 * place
        states: dict[State, ModelNumbers] = {"plain": numbers(value, 0.1 if weak else 1.0)}
        if model.role in ("retrain", "unlearned") and not weak:
            states |= {state: numbers(value + 0.1, 1.0) for state in ATTACKED}
        back = {"leaks": value, "mean": -value} if model.role == "unlearned" else {}
        results.append(ModelResult(model.name, states, back))
    return results


def test_the_result_of_finished_models(shop, found):
    result = evaluate(shop, found)
    worth = {one.name: one for one in result.worth}
    assert (worth["a"].auc.value, worth["b"].auc.value) == (1.0, 0.0), "the sign is the declared one"
    assert (worth["a"].larger, worth["b"].larger) == (True, False)
    assert (worth["a"].prediction.value, worth["a"].prediction_mean.value) == pytest.approx((1.0, -1.0))
    assert worth["a"].cost.seconds == 2.0
    assert result.useful == worth["a"].kept == sum(result.unlearned.values()) - 1
    assert not math.isnan(worth["a"].one_sided.both.value)
    left_out = {(one.knows, one.kind): one.left_out for one in result.quality}
    assert left_out == {
        (True, "all"): 0,
        (False, "retain"): 1 if "lacks-03-retain" in shop.models else 0,
    }


def test_the_files_of_a_result(shop, found, tmp_path):
    folder = write("tiny", shop, evaluate(shop, found), found, tmp_path)
    result = json.loads((folder / "result.json").read_text())
    assert result["settings"]["pool"]["utility"] == 0.5
    assert result["provenance"]["machine"] == in_use()
    assert {one["name"] for one in result["worth"]} == {"a", "b"}
    table = read_table(folder / "numbers.parquet")
    assert len(table) == 2 * sum(len(one.states) for one in found)
    assert "mean utility" in (folder / "index.html").read_text()


def test_two_results_stand_side_by_side(shop, found, tmp_path, capsys):
    result = evaluate(shop, found)
    for name in ("tiny", "tiny-1"):
        write(name, shop, result, found, tmp_path)
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


def test_runs_of_other_rules_are_not_set_side_by_side(shop, found, tmp_path, monkeypatch):
    result = evaluate(shop, found)
    write("tiny", shop, result, found, tmp_path)
    other = shop.meta.model_copy(update={"alpha": 0.2})
    monkeypatch.setitem(shop.__dict__, "meta", other)
    write("other", shop, result, found, tmp_path)
    with pytest.raises(BadInput, match="tiny, other"):
        main(["tiny", "other", "--folder", str(tmp_path)])


def worth_of(result, name):
    return next(one for one in result.worth if one.name == name)
