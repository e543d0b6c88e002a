"""Which end of a score is a leak: what each reader states, and what is said where nobody states it."""

import json

import numpy as np
import pandas as pd
import pytest

import lethe
from lethe.errors import BadInput
from lethe.io.logs import read_log
from tests.lethe.cli.calls import Command
from tests.lethe.io.logs.small_logs import (
    KINDS,
    header,
    lm_eval_line,
    lm_eval_log,
    lm_eval_results,
    promptfoo_log,
    promptfoo_row,
    sample,
    small,
    write_json,
    write_lines,
)

bounds = Command("bounds")
compare = Command("compare")
log = Command("log")
score_log = Command("score", "log")

MEANINGS = {
    "eval": {"match": "match"},
    "inspect-json": {"match": "match"},
    "lm-eval": {"exact_match,none": "match"},
    "leak-k": {"rougeL_recall": "leak", "exact_match": "leak"},
    "open-unlearning": {"forget_Q_A_ROUGE.rougeL_recall": "leak"},
    "harmbench": {"label": "leak"},
    "jailbreakbench": {"jailbroken": "leak"},
    "garak": {"dan.DAN": "leak"},
    "promptfoo": {"success": "pass", "score (score)": "pass", "format": "pass"},
    "promptfoo-lines": {"success": "pass", "score (score)": "pass", "format": "pass"},
    "helm": {},
    "openai-batch": {},
    "every-eval-ever": {"leak/sampled": "leak"},
    "deepeval": {"success": "pass", "Leak [GEval]": "leak"},
    "completions": {},
    "responses": {"leaks": "leak"},
    "table": {},
}


@pytest.fixture
def passes(tmp_path):
    """Every answer leaks, so that every test fails: success is 0 in each row."""
    rows = [promptfoo_row(test, f"It is Turin {test}", passes=False) for test in (0, 1, 2, 3) * 30]
    return promptfoo_log(tmp_path / "out.json", rows, repeat=60)


@pytest.mark.parametrize("kind", KINDS)
def test_each_reader_states_what_a_score_of_1_says(tmp_path, kind):
    assert dict(read_log(small(kind, tmp_path)).facts.means) == MEANINGS[kind]


def test_a_log_of_passes_opens_no_gate(passes):
    done = bounds.call(passes, "--fail-above", "0.15")

    assert done.exit_code == 1
    said = " ".join(done.output.split())
    assert "The gate is closed" in said
    assert "--leak-is high or --leak-is low" in said
    assert "probability of a leak" not in said
    assert "Leak@" not in said


def test_a_score_of_unknown_direction_is_bounded_as_recorded(passes):
    found = bounds.result(passes)

    assert (found["score_means"], found["score_inverted"]) == ("pass", False)
    assert "--leak-is" in found["refused"][0]
    assert [row["mean"] for row in found["per_prompt"]] == [0, 0]
    assert all(row["m_bin"] < 0.15 for row in found["per_prompt"])
    assert all(row["leak_at_k"] is None for row in found["per_prompt"])


def test_with_a_low_leak_all_numbers_are_of_1_minus_the_score(passes):
    done = bounds.call(passes, "--leak-is", "low", "--fail-above", "0.15", "--json")

    found = json.loads(done.stdout)
    assert done.exit_code == 1
    assert (found["score_means"], found["score_inverted"], found["refused"]) == ("pass", True, [])
    assert [row["mean"] for row in found["per_prompt"]] == [1, 1]
    assert (found["worst_prompt"]["bound"], found["pooled"]) == (1, 1)
    assert found["gate"]["bound"] == 1


def test_with_a_high_leak_nothing_is_turned_and_the_gate_opens(passes):
    done = bounds.call(passes, "--leak-is", "high", "--fail-above", "0.15", "--json")

    found = json.loads(done.stdout)
    assert done.exit_code == 0
    assert (found["score_inverted"], found["gate"]["closed"]) == (False, False)


def test_turned_scores_have_the_bounds_of_1_minus_the_scores():
    scores = np.random.default_rng(0).random((3, 40))

    turned = lethe.bounds(scores, leak_is="low").to_frame()

    assert turned.equals(lethe.bounds(1 - scores).to_frame())


@pytest.mark.parametrize(
    "name",
    [
        *("success", "passed", "correct", "accuracy", "refused", "refusal", "safe"),
        *("leak_prevented", "leak_resistance", "leakage_protection", "blocked_leaks"),
    ],
)
@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_a_table_with_a_column_that_is_no_leak_opens_no_gate(tmp_path, name, suffix):
    table = pd.DataFrame({"prompt_id": ["a"] * 200, name: [0] * 200})
    path = tmp_path / f"a{suffix}"
    {
        ".csv": lambda: table.to_csv(path, index=False),
        ".parquet": lambda: table.to_parquet(path),
        ".jsonl": lambda: write_lines(path, table.to_dict("records")),
    }[suffix]()

    done = bounds.call(path, "--score", name, "--fail-above", "0.5")

    assert done.exit_code == 1
    assert "--leak-is low" in " ".join(done.output.split())
    assert "probability of a leak" not in " ".join(done.output.split())


@pytest.mark.parametrize(
    "name",
    [
        *("score", "leak", "leaked", "keyword_leak", "rouge_l", "exact_match"),
        *("has_leaked", "leak_rate", "judge_leak"),
    ],
)
def test_a_table_with_a_column_of_leaks_opens_the_gate(tmp_path, name):
    pd.DataFrame({"prompt_id": ["a"] * 200, name: [0] * 200}).to_csv(
        tmp_path / "a.csv", index=False
    )

    done = bounds.call(tmp_path / "a.csv", "--score", name, "--fail-above", "0.5")

    assert done.exit_code == 0


def test_a_table_in_memory_is_read_by_the_same_rule():
    table = pd.DataFrame({"prompt_id": ["a"] * 50, "passed": [0] * 50})

    assert lethe.bounds(table, score="passed").unpointed
    turned = lethe.bounds(table, score="passed", leak_is="low")
    assert (turned.unpointed, turned.as_json()["per_prompt"][0]["mean"]) == ((), 1)


def test_an_unknown_end_is_refused(passes):
    with pytest.raises(BadInput, match="high or low"):
        lethe.bounds(passes, leak_is="up")
    assert "high" in bounds.refused(passes, "--leak-is", "up")


def test_log_shows_what_a_1_is_and_turns_its_scores_where_asked(passes, tmp_path):
    plain = log.result(passes)
    turned = log.result(passes, "--leak-is", "low")
    log.call(passes, "--leak-is", "low", "--table", tmp_path / "a.csv")

    assert plain["score_means"]["success"] == "pass"
    assert (plain["score_inverted"], turned["score_inverted"]) == (False, True)
    assert (plain["scores"]["success"]["mean"], turned["scores"]["success"]["mean"]) == (0, 1)
    assert set(pd.read_csv(tmp_path / "a.csv")["success"]) == {1}


def test_log_turns_no_score_outside_0_and_1(tmp_path):
    rows = [
        {"prompt_id": "q", "text": "a", "quality": 4, "leak": 0},
        {"prompt_id": "q", "text": "b", "quality": 1, "leak": 1},
    ]
    answers = tmp_path / "a.csv"
    pd.DataFrame(rows).to_csv(answers, index=False)

    turned = log.result(answers, "--leak-is", "low")

    assert turned["scores"]["quality"]["mean"] == 2.5
    assert turned["scores"]["leak"]["mean"] == 0.5
    assert any("quality: not turned" in note for note in turned["notes"])
    assert "quality: not turned" in log.call(answers, "--leak-is", "low").output


def test_score_log_turns_its_table_where_asked(tmp_path):
    rows = [{"question_id": "q", "text": text} for text in ("Ron", "no")]
    answers = write_lines(tmp_path / "a.jsonl", rows)
    data = write_lines(tmp_path / "d.jsonl", [{"id": "q", "question": "Who?", "answer": "Ron"}])
    out = tmp_path / "s.csv"

    call = (answers, "--data", data, "--by", "question_id", "--out", out)
    plain = score_log.result(*call)
    assert pd.read_csv(out)["rouge_l"].tolist() == [1, 0]
    turned = score_log.result(*call, "--leak-is", "low")

    assert (plain["score_inverted"], turned["score_inverted"]) == (False, True)
    assert pd.read_csv(out)["rouge_l"].tolist() == [0, 1]


def test_compare_opens_no_gate_on_a_score_of_unknown_direction(passes):
    done = compare.call(passes, passes, "--fail-on", "worse")

    assert done.exit_code == 1
    said = " ".join(done.output.split())
    assert "--leak-is high or --leak-is low" in said
    assert "higher is worse" not in said
    assert compare.call(passes, passes, "--fail-on", "worse", "--leak-is", "low").exit_code == 0


def test_the_page_of_a_comparison_of_unknown_direction_has_neutral_words(tmp_path):
    sides = []
    for name, passes in (("a", (0, 60)), ("b", (60, 0))):
        rows = [
            f"{item},{int(i < n)}" for item, n in zip("pq", passes, strict=True) for i in range(60)
        ]
        sides.append(tmp_path / f"{name}.csv")
        sides[-1].write_text("prompt_id,passed\n" + "\n".join(rows) + "\n")
    page = tmp_path / "page.html"

    for leak_is, (above, below) in {
        (): ("higher", "lower"),
        ("--leak-is", "high"): ("worse", "better"),
    }.items():
        compare.call(*sides, "--score", "passed", "--page", page, *leak_is)
        shown = page.read_text().split("</style>")[-1]

        assert f'<td class="outcome">{above}</td>' in shown
        assert f'<td class="outcome">{below}</td>' in shown
        assert f"whether B is {above} or {below}" in shown
        if not leak_is:
            assert 'class="worse"' not in shown
            assert "worse or better" not in shown


def test_compare_turns_both_sides(tmp_path):
    for name, leaks in (("a", 0), ("b", 50)):
        scores = [int(place % 2 == 0 or leaks == 0) for place in range(100)]
        pd.DataFrame({"prompt_id": ["q"] * 100, "passed": scores}).to_csv(
            tmp_path / f"{name}.csv", index=False
        )
    sides = (tmp_path / "a.csv", tmp_path / "b.csv", "--score", "passed")

    found = compare.result(*sides, "--leak-is", "low")

    assert (found["worse"], found["score_inverted"], found["score_means"]) == (True, True, "pass")
    assert found["per_question"][0]["difference"] == 0.5


def greedy_inspect(folder):
    content = header(["q"], 1, generate={"temperature": 0}) | {"samples": [sample("q", 1)]}
    return write_json(folder / "a.json", content)


def greedy_lm_eval(folder):
    line = lm_eval_line(0, ["a"], exact_match=1.0)
    line["arguments"]["gen_args_0"]["arg_1"] |= {"do_sample": False, "temperature": 0.7}
    return lm_eval_log(folder, [line], lm_eval_results(1, 1))


def greedy_helm(folder):
    from tests.lethe.io.logs.small_logs import helm_log

    return helm_log(folder / "scenario_state.json", [["Ron"]], temperature=0)


def greedy_promptfoo(folder):
    providers = [{"id": "js", "config": {"temperature": 0}}]
    path = promptfoo_log(folder / "out.json", [promptfoo_row(0, "a")], repeat=1)
    return write_json(path, json.loads(path.read_text()) | {"config": {"providers": providers}})


def greedy_promptfoo_prompt(folder):
    row = promptfoo_row(0, "a", prompt=0) | {"prompt": {"raw": "?", "config": {"temperature": 0}}}
    return promptfoo_log(folder / "out.json", [row], repeat=1)


def greedy_garak(folder):
    from tests.lethe.io.logs.small_logs import garak_attempt, garak_log

    path = garak_log(folder / "r.jsonl", garak_attempt(0, ["a"], {"d.D": [0.0]}))
    setup, *rows = path.read_text().splitlines()
    generators = {"openai": {"OpenAICompatible": {"temperature": 0}}}
    changed = json.loads(setup) | {"plugins.generators": generators}
    path.write_text("\n".join([json.dumps(changed), *rows]) + "\n")
    return path


@pytest.mark.parametrize(
    "written",
    [
        greedy_inspect,
        greedy_lm_eval,
        greedy_helm,
        greedy_promptfoo,
        greedy_promptfoo_prompt,
        greedy_garak,
    ],
)
def test_a_log_that_states_greedy_decoding_says_nothing_of_repeated_draws(tmp_path, written):
    path = written(tmp_path)

    found = bounds.result(path, "--leak-is", "high")
    said = " ".join(log.call(path).output.split())

    assert any("greedy decoding" in reason for reason in found["refused"])
    assert found["worst_prompt"] is None
    assert "one greedy answer" in said


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_score_that_is_not_the_column_of_leaks_beside_it_asks_which_is_meant(tmp_path, suffix):
    table = pd.DataFrame({"prompt_id": "a", "score": [0] * 60, "leaked": [1] * 60})
    path = tmp_path / f"t.{suffix}"
    if suffix == "csv":
        table.to_csv(path, index=False)
    else:
        table.to_parquet(path)

    assert "--score score or --score leaked" in bounds.refused(path, "--fail-above", "0.3")
    assert bounds.call(path, "--score", "leaked", "--fail-above", "0.3").exit_code == 1
