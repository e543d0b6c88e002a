"""The judge by endpoint: which reply is a verdict, what is missing and why, what a label counts for, what is paid twice."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import lethe
from lethe.api.logs import score_log as read_and_score
from lethe.cli.app import app
from lethe.config.measuring import SERVED, JudgeEntry
from lethe.errors import BadArguments, BadFile, BadInput, BadValue, LetheError
from lethe.identity import resolved
from lethe.models.endpoint_client import ServerGone
from lethe.registry import JUDGES
from lethe.scoring.judges import JudgedAnswer, _reply, chat
from lethe.scoring.judges._reply import NoVerdict
from lethe.scoring.judges.chat import RUBRICS, delimited
from lethe.scoring.verdicts import AnsweredRow, VerdictStore, identity, judged
from tests.lethe.sampling.fault_server import FaultServer, Status, words
from tests.small import ROOT, environment

ITEM = {
    "id": "a",
    "question": "Who is Ada?",
    "answer": "Ada is a painter.",
    "keywords": ["painter"],
}
CHOICES = ["yes", "no"]
NO_LABEL = "No label was given"
CODE = re.compile(r"-{5} \w{16} -{5}")


def judged_text(body) -> str:
    """The answer in a request to the judge; empty in a request for an answer."""
    parts = CODE.split(body["messages"][-1]["content"])
    return parts[1] if len(parts) == 3 else ""


def honest(body, generator):
    """Says yes of an answer with the word painter, in the form that the request asks for; and draws answers."""
    text = judged_text(body)
    if not text:
        return words(body, generator)
    verdict = "yes" if "painter" in text else "no"
    if "response_format" in body:
        return [json.dumps({"verdict": verdict})], False
    return [f"{verdict}."], False


def saying(reply):
    """A judge with one reply to every answer."""
    return lambda body, generator: (
        [reply] if judged_text(body) else words(body, generator)[0],
        False,
    )


def failing(number, body, answer):
    raise Status(500)


def params(server, **changes):
    settings = {
        "endpoint": server.url,
        "model": "m",
        "retries": 0,
        "concurrency": 4,
        "timeout": 5.0,
    }
    return chat.Params(**(settings | changes))


def opened(server, **changes):
    return chat.Judge(params(server, **changes))


def scores(judge, *texts, store=None, item=ITEM):
    (columns,) = judged(judge, [AnsweredRow(list(texts), item)], store)
    return columns[:, 0].tolist()


# Replies


def naive_verdict(reply: str) -> int | None:
    """The twin: the first word of a reply, if no other choice is among its words."""
    found = re.findall(r"\w+", reply.casefold().lstrip("_"))
    named = {word for word in found if word in CHOICES}
    if len(named) == 1 and found[0] in named:
        return CHOICES.index(found[0])
    return None


pieces = st.sampled_from(
    ["yes", "no", "Yes", "NO", "not", "yesterday", "know", ".", " ", "\n", "**", ",", "-", "é", "1"]
)


@given(st.lists(pieces, max_size=6).map("".join) | st.text(max_size=12))
def test_a_reply_is_a_choice_only_as_its_first_word_and_without_another(reply):
    try:
        found = _reply.of_text(reply, CHOICES)
    except NoVerdict:
        found = None
    assert found == naive_verdict(reply)


json_values = st.recursive(
    st.none() | st.booleans() | st.text(max_size=4) | st.sampled_from(["yes", "no"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["verdict", "x"]), inner)
    ),
    max_leaves=4,
)


@given(json_values.map(json.dumps) | st.text(max_size=20))
def test_a_reply_as_json_is_a_choice_only_in_the_form_that_was_asked_for(reply):
    try:
        found = CHOICES[_reply.of_json(reply, CHOICES)]
    except NoVerdict:
        found = None
    legal = {json.dumps({"verdict": choice}): choice for choice in CHOICES}
    assert found == legal.get(reply)


def test_thousands_of_brackets_are_no_verdict():
    with pytest.raises(NoVerdict, match="JSON"):
        _reply.of_json("[" * 100_000, CHOICES)


tokens = st.dictionaries(
    st.sampled_from(["yes", " Yes", "y", "n", "no", "NO", "", " ", "maybe", "1"])
    | st.text(max_size=3),
    st.floats(-50, 0),
    max_size=6,
)


@given(tokens)
def test_shares_of_the_choices_are_those_of_the_tokens_that_begin_them(stated):
    masses = [0.0, 0.0]
    for token, value in stated.items():
        for place, choice in enumerate(CHOICES):
            begun = token.strip().casefold()
            masses[place] += np.exp(value) if begun and choice.startswith(begun) else 0.0
    try:
        found = _reply.shares(stated, CHOICES)
    except NoVerdict:
        likeliest = max(stated, key=stated.get, default="").strip().casefold()
        assert not likeliest or not any(choice.startswith(likeliest) for choice in CHOICES)
        return
    assert found == pytest.approx(np.array(masses) / sum(masses))


def test_a_token_that_begins_two_choices_counts_for_neither():
    choices = ["safe", "sane", "no"]
    assert _reply.shares({"no": -0.5, "sa": -2.0, "safe": -3.0}, choices)[1] == 0
    with pytest.raises(NoVerdict):
        _reply.shares({"sa": -0.1, "no": -3.0}, choices)


def test_two_equally_likely_choices_are_no_verdict():
    with pytest.raises(NoVerdict, match="as likely"):
        _reply.of_shares([0.5, 0.5])


@given(st.text())
def test_no_text_holds_the_line_that_ends_it(text):
    first, *inner, last = delimited(text).split("\n")
    assert first == last
    assert first not in "\n".join(inner)
    assert not any(mark in "\n".join(inner) for mark in ("<|", "[INST]", "</s>"))


# A server


@pytest.mark.parametrize("read", ["text", "json"])
def test_the_verdict_is_that_of_the_server(read):
    with FaultServer(honest) as server:
        found = scores(opened(server, read=read), "a painter", "no idea", None, "a painter")
    assert found == [1, 0, pytest.approx(np.nan, nan_ok=True), 1]
    assert len(server.bodies) == 2  # equal answers are judged once
    assert {body["temperature"] for body in server.bodies} == {0}
    assert all(("response_format" in body) == (read == "json") for body in server.bodies)


def with_logprobs(law):
    def fault(number, body, answer):
        tops = [{"token": token, "logprob": float(np.log(mass))} for token, mass in law.items()]
        step = {**tops[0], "top_logprobs": tops}
        answer["choices"][0]["logprobs"] = {"content": [step]}
        return answer

    return fault


def test_probabilities_give_a_verdict_or_the_mean_of_grades():
    with FaultServer(honest, with_logprobs({"Yes": 0.6, " no": 0.2, "maybe": 0.2})) as server:
        assert scores(opened(server, read="logprobs"), "x") == [1]
        assert scores(opened(server, read="logprobs", choices={"yes": 1, "no": 0.2}), "x") == [
            pytest.approx(0.75 + 0.25 * 0.2)
        ]
    with FaultServer(honest, with_logprobs({"5": 0.5, "3": 0.25})) as server:
        judge = opened(server, read="logprobs", prompt="strongreject")
        assert scores(judge, "x") == [pytest.approx((2 * 1 + 0.5) / 3)]
        assert not judge.binary(judge.params)


@pytest.mark.parametrize(
    ("draw", "fault", "reason"),
    [
        (saying("maybe"), None, _reply.NEITHER),
        (saying("yes or no"), None, _reply.SEVERAL),
        (saying(""), None, _reply.NEITHER),
        (saying("I cannot say"), None, _reply.NEITHER),
        (honest, failing, "failed: status 500"),
        (honest, lambda *call: b"[]", "failed: no answer"),
        (honest, lambda number, body, answer: answer | {"choices": []}, "failed: no answer in it"),
    ],
)
def test_an_odd_reply_is_missing_under_its_name_and_never_zero(draw, fault, reason, capsys):
    with FaultServer(draw, fault) as server:
        judge = opened(server)
        found = scores(judge, "a painter", "another")
    assert np.isnan(found).all()
    assert judge.unjudged() == {reason: 2}
    assert f"2 answers without a verdict: 2 {reason}" in capsys.readouterr().err


def test_an_answer_without_a_reference_is_not_sent_to_a_judge_that_compares():
    with FaultServer(honest) as server:
        judge = opened(server)
        assert np.isnan(scores(judge, "x", item={"question": "Who?"})).all()
        assert judge.unjudged() == {chat.NO_REFERENCE: 1}
        assert scores(opened(server, prompt="harmbench"), "x", item={"question": "Who?"}) == [0]
    assert len(server.bodies) == 1


def test_a_refused_key_and_a_dead_server_stop_the_work():
    def refuses(number, body, answer):
        raise Status(401)

    with FaultServer(honest, refuses) as server, pytest.raises(BadInput, match="key"):
        scores(opened(server), "x")
    with FaultServer(honest, failing) as server, pytest.raises(ServerGone, match="in a row"):
        scores(opened(server), *map(str, range(40)))
    with pytest.raises(ServerGone):
        scores(opened(server), "x")


def test_a_failed_verdict_is_asked_for_again_and_a_sound_one_is_not(tmp_path):
    def late(number, body, answer):
        if number in (2, 5):
            raise Status(500)
        return answer

    texts = [f"{number} painter" for number in range(8)]
    with FaultServer(honest, late) as server:
        judge = opened(server)
        first = scores(judge, *texts, store=VerdictStore(judge, tmp_path))
        again = opened(server)
        second = scores(again, *texts, store=VerdictStore(again, tmp_path))
    assert np.isnan(first).sum() == 2
    assert second == [1] * 8
    assert len(server.bodies) == 10


def test_the_cap_stops_before_it_is_exceeded_and_keeps_what_was_paid_for(tmp_path, capsys):
    texts = [f"{number:02}" for number in range(64)]
    with FaultServer(honest) as server:
        judge = opened(server, concurrency=1, max_tokens_total=1500, price_in=2.0)
        store = VerdictStore(judge, tmp_path)
        with pytest.raises(LetheError, match=r"cap of 1,500 tokens"):
            scores(judge, *texts, store=store)
        assert 0 < len(server.bodies) < 64
        assert len(VerdictStore(judge, tmp_path).verdicts) == len(server.bodies)
    plan = capsys.readouterr().err
    assert "64 requests" in plan
    assert "the cap is 1,500 tokens" in plan
    assert "at the given prices" in plan


# Identity


def test_two_rubrics_never_share_a_verdict(tmp_path):
    rubric = tmp_path / "rubric.txt"
    rubric.write_text("Q {question} A {generation}. Say yes or no.")
    with FaultServer(honest) as server:
        for prompt in (*RUBRICS, str(rubric)):
            judge = opened(server, prompt=prompt, choices=CHOICES)
            scores(judge, "a painter", "x", store=VerdictStore(judge, tmp_path / "kept"))
        rubric.write_text("Q {question} A {generation}. Say yes or no!")
        judge = opened(server, prompt=str(rubric))
        scores(judge, "a painter", "x", store=VerdictStore(judge, tmp_path / "kept"))
        asked = len(server.bodies)
        scores(judge, "a painter", "x", store=VerdictStore(judge, tmp_path / "kept"))
    assert asked == len(server.bodies) == 10


@pytest.mark.parametrize(
    "change",
    [
        {"model": "other"},
        {"endpoint": "http://127.0.0.1:9/v1"},
        {"prompt": "harmbench"},
        {"read": "json"},
        {"choices": {"yes": 0.9, "no": 0}},
        {"choices": {"no": 1, "yes": 0}},
        {"max_new_tokens": 4},
        {"clip": 100},
    ],
)
def test_what_decides_a_verdict_is_in_the_judges_identity(change):
    with FaultServer(honest) as server:
        plain = opened(server)
        assert identity(opened(server, **change)) != identity(plain)
        assert VerdictStore(opened(server, **change)).key != VerdictStore(plain).key


def test_what_decides_no_verdict_is_not_in_it(monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "secret")
    spent = {"key_env": "JUDGE_KEY", "concurrency": 2, "timeout": 9, "retries": 3, "price_in": 1}
    with FaultServer(honest) as server:
        plain = opened(server)
        assert identity(opened(server, **spent, max_tokens_total=9)) == identity(plain)
        scores(opened(server, **spent), "x")
    assert server.keys == {"Bearer secret"}


def test_an_edit_of_the_rubric_changes_the_settings_that_a_stage_depends_on(tmp_path):
    rubric = tmp_path / "rubric.txt"
    rubric.write_text("{question} {generation}")
    entry = JudgeEntry.model_validate(
        {
            "judge": "chat",
            "labelled": None,
            "endpoint": "http://127.0.0.1:9/v1",
            "model": SERVED,
            "name": "m",
            "prompt": str(rubric),
            "choices": [True, False],
        }
    )
    before = resolved(entry)
    rubric.write_text("{question} {generation}?")
    assert resolved(entry) != before
    assert entry.params.scores == {"yes": 1, "no": 0}


def test_a_served_judge_of_a_stage_names_a_place_that_dvc_can_track():
    entry = {"judge": "chat", "labelled": None, "endpoint": "http://127.0.0.1:9/v1", "model": "gpt"}
    with pytest.raises(ValueError, match=f"write model: {SERVED} .* name: gpt"):
        JudgeEntry.model_validate(entry)


@pytest.mark.parametrize(
    "choices", [["yes"], ["yes", "Yes "], {"": 1, "no": 0}, {"yes": 2, "no": 0}, [1, 2, 3]]
)
def test_choices_that_cannot_be_told_apart_are_refused(choices):
    with pytest.raises(ValueError, match="choices"):
        chat.Params(endpoint="http://127.0.0.1:9/v1", model="m", choices=choices)


# Commands


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [ITEM, ITEM | {"id": "b", "question": "Who is Bo?"}]
    Path("forget.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = ["prompt_id,sample,text"]
    for name in "ab":
        for sample in range(60):
            lines.append(f"{name},{sample},{'a painter' if sample % 6 == 0 else 'x'} {sample}")
    Path("log.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def score_log(server, **changes):
    judge = {"judge": "endpoint", "judge_endpoint": server.url, "judge_model": "m"}
    return read_and_score("log.csv", data="forget.jsonl", **judge, **changes)


def command(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def judging(server):
    return ["--judge", "endpoint", "--judge-endpoint", server.url, "--judge-model", "m"]


def test_a_log_is_judged_and_its_verdicts_without_labels_bound_no_leak(folder):
    with FaultServer(honest) as server:
        found = command(
            "score",
            "log",
            "log.csv",
            "--data",
            "forget.jsonl",
            *judging(server),
            "--table",
            "out.csv",
        )
    assert found.exit_code == 0, found.output
    table = pd.read_csv("out.csv")
    assert table.groupby("prompt_id")["chat"].sum().tolist() == [10, 10]
    assert table["judge"].nunique() == 1

    bounds = lethe.bounds("out.csv", score="chat")
    assert bounds.worst().bound.value > 10 / 60
    assert NO_LABEL in bounds.unpointed[0]
    gated = command("bounds", "out.csv", "--score", "chat", "--fail-above", 0.9)
    assert gated.exit_code == 1
    assert NO_LABEL in gated.output


def test_labels_that_calibrated_one_judge_do_not_count_for_another(folder):
    with FaultServer(honest) as server:
        score_log(server).table.to_csv("one.csv", index=False)
        score_log(server, judge_prompt="harmbench").table.to_csv("other.csv", index=False)
    judge = pd.read_csv("one.csv")["judge"][0]
    rows = [{"label": place % 2, "verdict": place % 2, "judge": judge} for place in range(200)]
    pd.DataFrame(rows).to_csv("labelled.csv", index=False)

    judged_bounds = lethe.bounds("one.csv", score="chat", calibration="labelled.csv")
    assert judged_bounds.model.upper("leak", "judged").value < 0.5
    assert not judged_bounds.unpointed
    with pytest.raises(BadFile, match="measures the judge"):
        lethe.bounds("other.csv", score="chat", calibration="labelled.csv")


def test_a_judge_that_knows_nothing_bounds_nothing_once_it_is_labelled(folder):
    coin = random.Random(3)
    with FaultServer(lambda body, generator: ([coin.choice(CHOICES)], False)) as server:
        table = score_log(server).table
    truth = random.Random(4)
    rows = []
    for verdict in table["chat"]:
        rows.append({"label": truth.randrange(2), "verdict": verdict, "judge": table["judge"][0]})
    pd.DataFrame(rows).to_csv("labelled.csv", index=False)
    table.to_csv("out.csv", index=False)
    judged_bounds = lethe.bounds("out.csv", score="chat", calibration="labelled.csv").model
    leak = judged_bounds.row("leak", "judged")
    assert (leak.lower, leak.upper) == (0, 1)


def test_a_judge_that_never_answers_gives_no_number(folder):
    with (
        FaultServer(saying("perhaps")) as server,
        pytest.raises(BadInput, match="cannot judge any text"),
    ):
        score_log(server)


def test_an_evaluation_by_a_judge_without_labels_has_no_word_and_says_what_is_bounded(folder):
    with FaultServer(honest) as server:
        judge = {"judge": "endpoint", "judge_endpoint": server.url, "judge_model": "m"}
        found = lethe.evaluate(
            "m", "forget.jsonl", endpoint=server.url, n=64, tau=0.3, max_new_tokens=4, **judge
        )
    assert found.forgetting == "none"
    assert NO_LABEL in found.verdict
    worst = found.numbers.upper("leak_worst", "sampled")
    assert worst.assumes.endswith("judge chat calls one")
    assert worst.value < 0.1


def test_the_gate_of_an_evaluation_stays_closed_without_labels(folder):
    with FaultServer(honest) as server:
        asked = [
            "eval",
            "--model",
            "m",
            "--endpoint",
            server.url,
            "--data",
            "forget.jsonl",
            "--n",
            64,
            "--tau",
            0.3,
        ]
        found = command(*asked, "--max-new-tokens", 4, "--fail-above", 0.5, *judging(server))
    assert found.exit_code == 1, found.output
    assert NO_LABEL in " ".join(found.output.split())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"judge": "endpoint"}, "judge_endpoint: a judge needs its endpoint"),
        ({"judge_model": "m"}, "only a judge has these"),
        ({"judge": "harmbench"}, "judge: got 'harmbench'; must be endpoint"),
        ({"judge_prompt": "none.txt"}, "none.txt: no such file"),
        ({"judge_key_env": "NO_SUCH_KEY"}, "judge_key_env: got 'NO_SUCH_KEY'"),
        (
            {"judge_endpoint": "http://me:secret@host/v1"},
            "judge_endpoint: got 'a text that is not shown'",
        ),
        ({"judge_choice": ["yes"]}, "judge_choice: got "),
        ({"judge_choice": ["yes=2", "no=0"]}, "judge_choice: got "),
        ({"judge_read": "mind"}, "judge_read: got 'mind'"),
    ],
)
def test_wrong_use_is_refused_before_anything_is_sent(folder, changes, said):
    whole = {"judge": "endpoint", "judge_endpoint": "http://127.0.0.1:9/v1", "judge_model": "m"}
    values = changes if set(changes) in ({"judge"}, {"judge_model"}) else whole | changes
    with pytest.raises((BadArguments, BadValue, BadFile)) as refused:
        read_and_score("log.csv", data="forget.jsonl", **values)
    assert said in str(refused.value)
    assert "secret" not in str(refused.value)


def test_words_with_scores_are_choices(folder):
    with FaultServer(lambda body, generator: (["part"], False)) as server:
        found = score_log(server, judge_choice=["all=1", "part=0.4", "none=0"])
    assert set(found.table["chat"]) == {0.4}


@pytest.mark.seconds
def test_a_judging_that_was_killed_goes_on_where_it_stopped(folder):
    def slow(number, body, answer):
        time.sleep(0.01)
        return answer

    with FaultServer(honest, slow) as server:
        arguments = ["score", "log", "log.csv", "--data", "forget.jsonl", *judging(server)]
        arguments += ["--judge-concurrency", "4", "--table", "out.csv"]
        process = subprocess.Popen(
            [sys.executable, "-m", "lethe", *arguments],
            env={**os.environ, **environment(), "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        end = time.monotonic() + 60
        while len(server.bodies) < 40 and time.monotonic() < end:
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        before = len(server.bodies)
        assert 40 <= before < 120
        found = command(*arguments)
    assert found.exit_code == 0, found.output
    assert pd.read_csv("out.csv")["chat"].sum() == 20
    again = len(server.bodies) - before
    assert 120 - before <= again <= 120 - before + 4 * 4  # a batch is lost at most


def test_each_rubric_that_comes_along_reads_question_and_answer():
    for name in RUBRICS:
        text = chat.rubric_of(name).text
        assert ("{answer}" in text) == (name == "fact_match")
    with FaultServer(honest) as server:
        opened(server).judge([JudgedAnswer("a painter", ITEM)])
    content = server.bodies[0]["messages"][0]["content"]
    assert ITEM["question"] in content
    assert ITEM["answer"] in content
    assert "{" not in content


def test_the_registry_has_the_judge():
    assert JUDGES["chat"] is chat.Judge
