import json
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.errors import BadFile, BadInput, BadValue
from lethe.scoring.tofu import SECTIONS, forget_quality, forget_truth, mean_term, model_utility, read_log


def section(**changes) -> dict:
    rows = {
        "avg_gt_loss": {"0": 0.5, "1": 1.0},
        "avg_paraphrased_loss": {"0": 1.0, "1": 1.0},
        "average_perturb_loss": {"0": [2.0, 4.0], "1": [1.0, 1.0]},
        "generated_text": {"0": ["Who?", "It was Ron.", "Ron"], "1": ["Who?", "", "Ron"]},
        "rougeL_recall": {"0": 1.0, "1": 0},
    }
    return rows | changes


def write(folder, **changes):
    path = folder / "log.json"
    path.write_text(json.dumps({name: section(**changes) for name in SECTIONS.values()}))
    return path


def test_values_of_a_small_log(tmp_path):
    log = read_log(write(tmp_path))
    np.testing.assert_allclose(log["retain"].probability, np.exp([-0.5, -1.0]))
    weights = np.exp([-0.5, -2, -4])
    np.testing.assert_allclose(log["world"].probability, [weights[0] / weights.sum(), 1 / 3])
    np.testing.assert_allclose(log["forget"].truth_ratio, [np.exp(-2), 1])
    assert log["forget"].rouge_again.tolist() == [1, 0]  # as TOFU has it, an empty generation recalls nothing
    assert all(entry.mismatches == [] for entry in log.values())


BROKEN = {
    "avg_gt_loss": {"0": None},
    "avg_paraphrased_loss": {"0": "2.0"},
    "average_perturb_loss": {"0": []},
    "generated_text": {"0": ["Who?", None, "Ron"], "1": "Ron"},
    "rougeL_recall": {"0": True},
}


@pytest.mark.parametrize("key", BROKEN)
def test_a_broken_value_is_missing_in_its_row_alone(tmp_path, key):
    entry = read_log(write(tmp_path, **{key: BROKEN[key]}))["world"]
    columns = {
        "avg_gt_loss": [entry.probability],
        "avg_paraphrased_loss": [entry.truth_ratio],
        "average_perturb_loss": [entry.probability, entry.truth_ratio],
        "generated_text": [entry.rouge_again],
        "rougeL_recall": [entry.rouge],
    }
    for column in columns[key]:
        assert np.isnan(column[0])
    for other in set(BROKEN) - {key, "average_perturb_loss"}:
        for column in columns[other]:
            if not any(column is broken for broken in columns[key]):
                assert not np.isnan(column[0])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1]", "holds list"),
        ("{}", "no object 'eval_log.json'"),
        (json.dumps({"eval_log.json": {"avg_gt_loss": {}}}), "no object 'avg_paraphrased_loss'"),
        (json.dumps({"eval_log.json": section(generated_text={})}), "no rows"),
    ],
)
def test_a_log_without_its_parts_is_refused(tmp_path, content, message):
    path = tmp_path / "log.json"
    path.write_text(content)
    with pytest.raises(BadFile, match=message) as caught:
        read_log(path)
    assert str(path) in str(caught.value)


values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["0", "1"]), inner, max_size=2),
    max_leaves=6,
)


@settings(max_examples=150)
@given(st.dictionaries(st.sampled_from(list(BROKEN)), values))
def test_any_content_is_read_or_refused_in_a_sentence(tmp_path_factory, changes):
    path = write(tmp_path_factory.getbasetemp(), **changes)
    try:
        log = read_log(path)
    except BadInput:
        return
    for entry in log.values():
        for column in (entry.probability, entry.truth_ratio, entry.rouge, entry.rouge_again):
            assert column.shape == (len(entry.rows),)


NAN = float("nan")


def test_missing_rows_are_counted_and_never_zero():
    for term in (mean_term([1.0, NAN]), forget_truth([1.0, NAN])):
        assert (term.value, term.n, term.missing) == (1, 1, 1)
    assert np.isnan(mean_term([NAN]).value)
    assert mean_term([]).n == 0


def test_model_utility_is_the_harmonic_mean_of_three_terms_a_set():
    rows = {"probability": [0.5, NAN], "rouge": [1.0, 1.0], "truth_ratio": [0.5, 0.5]}
    got = model_utility({"retain": rows, "world": rows})
    assert got.value == pytest.approx(statistics.harmonic_mean([0.5, 1, 0.5]))
    assert list(got.terms) == [
        f"{name}_{part}" for name in ("retain", "world") for part in ("probability", "rouge", "truth")
    ]
    assert got.terms["world_probability"].missing == 1
    with pytest.raises(BadValue, match="real_authors"):
        model_utility({})


def test_forget_quality_leaves_missing_rows_out():
    rng = np.random.default_rng(0)
    ratios = rng.random(40)
    got = forget_quality([*ratios, NAN], ratios)
    assert (got.p_value, got.n_first, got.n_second) == (1, 40, 40)
    assert forget_quality(ratios, ratios + 1).p_value < 1e-20
    with pytest.raises(BadValue, match="Retrain"):
        forget_quality(ratios, [NAN])
