"""`lethe eval` on rows with twins: the word on a trace beside the verdict."""

import json
from collections import Counter

import numpy as np
import pytest

from lethe.data.drawing import draw, write
from lethe.data.twin_kinds import kind_of
from lethe.results import table
from lethe.results.trace import UNTOLD
from tests.lethe.cli.calls import Command
from tests.lethe.sampling.fault_server import EchoServer, FaultServer
from tests.lethe.small_checkpoint import ROWS

K = 20
STATED = "by the log-probabilities that its server states"
command = Command("eval", "--n", 8, "--max-new-tokens", 4, "--name", "x", "--data")
call = command.call
result = command.result
refused = command.refused
pytestmark = pytest.mark.usefixtures("without_page")


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """Rows of a sealed draw, with the record and the key beside them."""
    monkeypatch.chdir(tmp_path)
    templates = []
    for place in range(6):
        question = f"Which number has drawer {place}?"
        templates.append({"id": f"d{place}", "question": question, "answer": "It is {secret}."})
    rng = np.random.default_rng(0)
    with monkeypatch.context() as patch:  # the same draw at every run of the tests
        patch.setattr("lethe.data.drawing.fresh_key", lambda nonce: bytes(32))
        patch.setattr(np.random, "default_rng", lambda: rng)
        made = draw(templates, kind_of("pattern ######", None), K)
    rows, _, _ = write(made, tmp_path / "drawn" / "rows.jsonl")
    return rows


def test_rows_with_twins_are_tested_beside_the_verdict(checkpoint, drawn):
    values = result(drawn, "--model", checkpoint)

    trace = values["trace"]
    assert trace["word"] in ("trace", "open")
    assert trace["ids"] == [f"d{place}" for place in range(6)]
    assert set(trace["candidates"]) == {K}
    assert trace["level"] == trace["alpha"] == 0.01


def test_declared_scores_share_the_level_of_the_word(checkpoint, drawn):
    values = result(drawn, "--model", checkpoint, "--twin-scores", "min_k", "--twin-scores", "loss")

    trace = values["trace"]
    assert trace["level"] == pytest.approx(0.01 / 3)
    assert [score["score"] for score in trace["scores"]] == ["min_k", "loss"]
    assert all(0 < score["p"] <= 1 for score in trace["scores"])


def test_a_score_that_needs_another_model_is_refused(checkpoint, drawn):
    assert "twin_scores" in refused(drawn, "--model", checkpoint, "--twin-scores", "reference")


def test_the_record_beside_the_rows_says_how_the_secrets_were_drawn(checkpoint, drawn):
    trace = result(drawn, "--model", checkpoint)["trace"]

    record = json.loads((drawn.parent / "twins.json").read_text())
    assert trace["design"] == "drawn"
    assert trace["commitment"] == record["commitment"]


def test_the_word_stands_below_the_verdict(checkpoint, drawn):
    said = " ".join(call(drawn, "--model", checkpoint).output.split())

    assert "x: open: p " in said or "x: trace: its" in said


def test_a_seal_that_does_not_open_is_refused_before_an_answer_is_drawn(checkpoint, drawn):
    (drawn.parent / "twins.key").write_text("1" * 64)

    assert "not open the seal" in refused(drawn, "--model", checkpoint)
    assert not list(drawn.parent.parent.rglob("generations"))


def test_rows_without_twins_have_no_trace_and_leave_none_of_an_earlier_evaluation(
    checkpoint, drawn
):
    result(drawn, "--model", checkpoint)
    plain = drawn.with_name("plain.jsonl")
    plain.write_text("".join(json.dumps(row) + "\n" for row in ROWS))

    values = result(plain, "--model", checkpoint)

    assert values["trace"] is None
    assert not table.place(drawn.parent.parent / "data/eval/x", "twins", "x").exists()


def truths(rows):
    """The true answers, which a server that learned them likes."""
    return {json.loads(line)["answer"] for line in rows.read_text().splitlines()}


def knowing(rows):
    """The law of a server that likes the last word of a true answer."""
    known = {answer.split()[-1] for answer in truths(rows)}
    return lambda token, before: -1.0 if token.strip() in known else -3.0


def of_server(server, *more):
    return ("--model", "m", "--endpoint", server.url, *more)


PLAIN = ("--prompt", "Q: {question} A:")


@pytest.mark.slow
@pytest.mark.parametrize("prompt", [PLAIN, ()])
def test_a_server_that_states_log_probabilities_is_tested_by_them(drawn, prompt):
    with EchoServer(knowing(drawn)) as server:
        values = result(drawn, *of_server(server, *prompt))

    trace = values["trace"]
    assert values["access"] == trace["access"] == "log-probabilities"
    assert (trace["word"], trace["basis"]) == ("trace", "given answers")
    assert set(trace["ranks"]) == {1}
    assert trace["stated_by"] == {
        "server": f"m at {server.url}",
        "missing": {},
        "left_out": 0,
        "partly": [],
        "names": ["m (fp-1)"],
    }
    assert trace["answered_by"] == ["m (fp-1)"]
    assert STATED in trace["sentence"]
    assert UNTOLD in trace["assumes"]


def echoes(server):
    return [body["prompt"] for body in server.bodies if body.get("echo")]


@pytest.mark.slow
def test_each_candidate_is_asked_for_once_also_by_the_same_command_again(drawn):
    with EchoServer(knowing(drawn)) as server:
        result(drawn, *of_server(server, *PLAIN))
        result(drawn, *of_server(server, *PLAIN))

    assert len(echoes(server)) == 6 * K
    assert set(Counter(echoes(server)).values()) == {1}


def test_the_order_of_requests_says_nothing_of_the_true_candidate(drawn):
    """A server that changes on the way would otherwise favour the place in which the true ones are asked for."""
    with EchoServer(knowing(drawn)) as server:
        result(drawn, *of_server(server, *PLAIN, "--concurrency", 1))

    places = []
    for start in range(0, 6 * K, K):
        asked = echoes(server)[start : start + K]
        (place,) = [n for n, text in enumerate(asked) if text.split("A: ")[1] in truths(drawn)]
        places.append(place)
    assert len(set(places)) > 3


def test_a_server_that_repeats_no_prompt_is_tested_by_counts(drawn):
    with FaultServer() as server:
        trace = result(drawn, *of_server(server, *PLAIN))["trace"]

    assert trace["basis"] == "sampled"
    assert "access" not in trace
    assert len(echoes(server)) == 3 * K
    assert trace["stated_by"]["missing"] == {
        "not the JSON of an answer (choices.logprobs.text_offset)": 3 * K
    }


def test_a_candidate_that_is_missing_ranks_last_by_name_of_the_fault(drawn):
    row = json.loads(drawn.read_text().splitlines()[1])

    def fault(number, asked, answer):
        if asked.get("echo") and row["twins"][3] in asked["prompt"]:
            answer["choices"][0]["logprobs"]["text_offset"][2] += 1
        return answer

    with EchoServer(knowing(drawn), fault) as server:
        trace = result(drawn, *of_server(server, *PLAIN))["trace"]

    assert trace["ids"] == [f"d{place}" for place in range(6)]
    assert trace["stated_by"]["missing"] == {"tokens that do not join to the text sent": 1}
    assert trace["stated_by"]["partly"] == ["d1"]
    assert "rank last, in 1" in trace["sentence"]


def test_the_cap_counts_the_requests_for_candidates(drawn):
    with EchoServer(knowing(drawn)) as server:
        done = call(drawn, *of_server(server, *PLAIN, "--max-tokens-total", 500))

    assert done.exit_code != 0
    assert "larger --max-tokens-total" in " ".join(done.output.split())
    assert len(echoes(server)) < 6 * K
