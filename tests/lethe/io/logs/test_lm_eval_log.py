"""lm-eval's samples: each repeat once for any number of filters, scores where they belong, settings by name."""

import json
import math

import pytest

from lethe.errors import BadFile, BadRow, BadValue
from lethe.io.logs import read_log
from tests.cases import cases
from tests.lethe.io.logs.small_logs import (
    lm_eval_line,
    lm_eval_log,
    lm_eval_results,
    write_json,
    write_lines,
)

THREE = [" Ron", " Harry", " Ron"]
FILTERS = [
    {"name": "all", "filter": [{"function": "take_first_k", "k": 3}]},
    {"name": "strict", "filter": [{"function": "regex"}, {"function": "take_first"}]},
    {"name": "vote", "filter": [{"function": "majority_vote"}, {"function": "take_first"}]},
]


def three_filters(document):
    return [
        lm_eval_line(
            document, THREE, "all", ["Ron", "Harry", "Ron"], match=0.5, each=[1, 0, math.nan]
        ),
        lm_eval_line(document, THREE, "strict", "Ron", match=1.0),
        lm_eval_line(document, THREE, "vote", "Ron", match=0.0),
    ]


@pytest.fixture
def filtered(tmp_path):
    lines = sorted(
        (line for document in (3, 5) for line in three_filters(document)),
        key=lambda line: line["filter"],
    )
    return lm_eval_log(tmp_path, lines, lm_eval_results(3, 2, config={"filter_list": FILTERS}))


def test_answers_stand_once_and_scores_where_they_belong(filtered):
    log = read_log(filtered)
    assert log.answers[["prompt_id", "sample", "text"]].values.tolist() == [
        [name, n, text] for name in ("3", "5") for n, text in enumerate(THREE, start=1)
    ]
    assert set(log.scores) == {"each,all", "match,strict"}
    assert log.answers["match,strict"].tolist()[::3] == [1.0, 1.0]
    assert log.answers["match,strict"].isna().tolist() == [False, True, True] * 2
    assert log.answers["each,all"].fillna(-1).tolist() == [1.0, 0.0, -1] * 2
    prompts = log.prompts.iloc[0]
    assert [prompts[f"match,{name}"] for name in ("all", "strict", "vote")] == [0.5, 1.0, 0.0]
    assert prompts["prompt"] == "Who 3?"
    assert (log.tool, log.task, log.model) == ("lm_eval 0.4.13", "some_task", "m")
    assert log.missing == {"unscored": 4}
    assert any("first of 3 answers" in note for note in log.notes)
    assert log.draws == "sampled"


def test_one_filter_has_its_scores_and_the_answers_that_it_kept(filtered):
    log = read_log(filtered, "all")
    assert log.answers["text"].tolist() == ["Ron", "Harry", "Ron"] * 2
    assert log.scores == ("each,all",)
    log = read_log(filtered, "strict")
    assert (
        log.answers["text"].tolist() == THREE * 2
    )  # the filter kept one text; the answers are three
    assert log.scores == ("match,strict",)
    with pytest.raises(BadValue, match=r"'none'.*'all', 'strict', 'vote'"):
        read_log(filtered, "none")


def test_lines_end_at_the_line_feed_alone(tmp_path):
    log = read_log(lm_eval_log(tmp_path, [lm_eval_line(0, ["a\u2028b\u0085c\x0bd"], acc=math.nan)]))
    assert log.answers["text"].tolist() == ["a\u2028b\u0085c\x0bd"]
    assert log.answers["acc,none"].isna().all()


def test_samples_as_one_list_of_an_older_version(tmp_path):
    line = lm_eval_line(0, ["a"], acc=1)
    del line["filter"], line["metrics"]
    line["arguments"] = [["Who?", {"temperature": 1.0, "do_sample": True}]]
    log = read_log(write_json(tmp_path / "samples_t.jsonl", [line]))
    assert log.answers.values.tolist() == [["0", 1, "a", 1.0]]


def test_choices_are_no_draws(tmp_path):
    requests = {
        f"gen_args_{n}": {"arg_0": "Who?", "arg_1": text}
        for n, text in enumerate((" Ron", " Harry"))
    }
    line = lm_eval_line(0, [], acc=1.0) | {
        "arguments": requests,
        "resps": [[["-0.5", "True"]], [["-inf", "False"]]],
    }
    log = read_log(lm_eval_log(tmp_path, [line]))
    assert log.draws == "choices"
    assert "drew no answer" in log.refusal
    assert log.answers["text"].tolist() == [" Ron", " Harry"]
    assert log.answers["is_greedy"].tolist() == [1.0, 0.0]
    assert log.answers["loglikelihood"].fillna(0).tolist() == [-0.5, 0]
    assert log.prompts["acc,none"].tolist() == [1.0]


@pytest.mark.parametrize(
    "settings",
    [{}, {"do_sample": False, "temperature": 1.0}, {"do_sample": True, "temperature": "0"}],
)
def test_greedy_repeats_are_refused_by_name(tmp_path, settings):
    line = lm_eval_line(0, ["a", "a"])
    line["arguments"]["gen_args_0"]["arg_1"] = settings
    log = read_log(lm_eval_log(tmp_path, [line]))
    assert log.draws == "copies"
    assert (
        "do_sample false"
        if "do_sample" in settings and not settings["do_sample"]
        else "temperature"
    ) in log.refusal


@cases
def test_settings_that_may_contradict_independent_draws_are_named(tmp_path, run, settings, name):
    line = lm_eval_line(0, ["a", "b"])
    line["arguments"]["gen_args_0"]["arg_1"] = settings
    log = read_log(lm_eval_log(tmp_path, [line], lm_eval_results(2, 1, run=run)))
    assert log.refusal is None
    assert any(name in sentence for sentence in (*log.warnings, *log.facts.refused))


def test_answers_and_documents_that_the_run_owes_are_missing(tmp_path):
    log = read_log(
        lm_eval_log(tmp_path, [lm_eval_line(0, ["a", "b"], acc=1.0)], lm_eval_results(3, 4))
    )
    assert log.missing == {"not written": 1 + 9, "unscored": 1}
    assert log.scored("acc,none")["reason"].tolist()[1:] == ["unscored", "not written"]


@cases
def test_a_broken_line_is_named(tmp_path, broken):
    with pytest.raises(BadRow, match="line 2"):
        read_log(lm_eval_log(tmp_path, [lm_eval_line(0, ["a"]), lm_eval_line(1, ["a"]) | broken]))


def test_a_document_that_stands_twice_is_named(tmp_path):
    lines = [lm_eval_line(0, ["a"]), lm_eval_line(1, ["a"]), lm_eval_line(0, ["a"])]
    with pytest.raises(BadRow, match=r"3: document '0' .*'none' in line 1"):
        read_log(lm_eval_log(tmp_path, lines))
    with pytest.raises(BadRow, match=r"line 2: document '0' .* in line 1"):
        read_log(lm_eval_log(tmp_path, [lm_eval_line(0, ["a"]), lm_eval_line(0, ["b"], "other")]))


def test_files_beside_the_samples_are_told_apart(tmp_path):
    path = lm_eval_log(tmp_path, [lm_eval_line(0, ["a"])], lm_eval_results(1, 1))
    with pytest.raises(BadFile, match=r"samples_\*\.jsonl beside it"):
        read_log(tmp_path / "results_2026-01-01T00-00-00.5.json")
    write_json(tmp_path / "results_2027.json", {"configs": {}})
    assert read_log(path).task == "some_task"  # the one of the same time
    other = write_lines(tmp_path / "renamed.jsonl", [json.loads(path.read_text())])
    assert any("several" in note for note in read_log(other).notes)
    write_json(tmp_path / "results_2026-01-01T00-00-00.5.json", {"no": 1})
    with pytest.raises(BadFile, match="`configs`"):
        read_log(path)
