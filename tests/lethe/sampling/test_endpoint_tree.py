"""Certain ends of a served model: those of a server whose law is known, and refusals of what cannot be walked."""

import itertools
import json
import math

import pytest

import lethe
from lethe.errors import BadInput
from lethe.sampling.answer_tree.asking import rule_of
from tests.cases import cases
from tests.lethe.cli.calls import Command
from tests.lethe.sampling.fault_server import FaultServer

LAW = {0: 0.3, 1: 0.35, 2: 0.2, 3: 0.1, 4: 0.05}
TEXT = {0: "<end>", 1: " red", 2: " blue", 3: "bird", 4: "<mark>"}
ROWS = [{"id": "a", "question": "A colour?", "answer": "It is blue.", "keywords": ["blue"]}]
LONGEST = 3


class TreeServer(FaultServer):
    """Each token is independent; 0 ends an answer, 4 is a special token without a text."""

    top = 5
    named = "token_id:{}"

    def answer(self, asked, chat):
        if "max_tokens" in asked and not isinstance(asked.get("prompt"), list):
            return super().answer(asked, chat)  # a probe
        if "messages" in asked or isinstance(asked.get("prompt"), str):
            return {"tokens": [7, 7]}
        if "tokens" in asked:
            return {"prompt": "".join(TEXT[token] for token in asked["tokens"])}
        likeliest = sorted(LAW, key=LAW.get, reverse=True)[: self.top]
        drawn = asked.get("allowed_token_ids", likeliest)[0]
        stated = {self.named.format(token): math.log(LAW[token]) for token in likeliest}
        choice = {
            "index": 0,
            "text": "" if drawn in (0, 4) else TEXT[drawn],
            "finish_reason": "length" if drawn else "stop",
            "logprobs": {
                "tokens": [self.named.format(drawn)],
                "token_logprobs": [-1.0],
                "top_logprobs": [stated],
            },
        }
        return {
            "id": "x",
            "object": "text_completion",
            "created": 0,
            "model": "m",
            "system_fingerprint": "fp-1",
            "choices": [choice],
        }


def steps(server):
    """The requests of the walk for a token, each with a prompt of token ids."""
    return [body for body in server.bodies if isinstance(body.get("prompt"), list)]


def masses():
    """The leak mass and the clean mass of every answer, word by word; one with the mark is neither."""
    leak = clean = 0.0
    for length in range(LONGEST + 1):
        for answer in itertools.product((1, 2, 3, 4), repeat=length):
            mass = math.prod(LAW[token] for token in answer) * (LAW[0] if length < LONGEST else 1)
            if 4 in answer:
                leak += mass if leaks(answer[: answer.index(4)], ended=False) else 0
            elif leaks(answer, ended=True):
                leak += mass
            else:
                clean += mass
    return leak, clean


def leaks(answer, ended):
    text = "".join(TEXT[token] for token in answer)
    return " blue " in (f"{text} " if ended else text)


def test_a_leak_is_settled_where_neither_a_letter_nor_an_accent_undoes_it():
    rule = rule_of(ROWS[0], "keyword_leak", 0.0, "substring")
    assert [rule.begun(text) for text in ("bluebird", " blue.", " blue", " blu")] == [
        True,
        True,
        False,
        False,
    ]


def walked(server, **changes):
    settings = {"max_new_tokens": LONGEST, "requests": 1000} | changes
    return lethe.exact("m", ROWS, endpoint=server.url, **settings)


def test_a_walk_to_the_end_has_the_masses_of_a_naive_sum():
    with TreeServer() as server:
        found = walked(server)
    leak, clean = masses()
    tree = found.certificates.trees[0]
    assert (tree.lower, tree.upper_certain) == pytest.approx((leak, 1 - clean))
    assert tree.bounds["lower"].certain
    assert "as the server states" in tree.bounds["lower"].assumes
    assert "as the server states" in found.as_json()["model"]["assumes"]
    assert "as the server" in " ".join(found.sentences())


def test_a_scorer_of_whole_answers_and_a_template():
    rows = [{**ROWS[0], "answer": "red"}]
    with TreeServer() as server:
        found = lethe.exact(
            "m",
            rows,
            endpoint=server.url,
            scorer="exact_match",
            prompt="Q: {question}",
            max_new_tokens=1,
        )
    assert found.certificates.trees[0].lower == pytest.approx(LAW[1])
    assert any(body.get("prompt") == "Q: A colour?" for body in server.bodies)


def test_a_budget_or_fewer_stated_tokens_only_widen_the_ends():
    leak, clean = masses()
    with TreeServer() as server:
        few = walked(server, requests=12).certificates.trees[0]
        assert (
            len(steps(server)) - 1 == few.rows <= 12 + len(LAW)
        )  # one more reads the first step again
        server.top = 3
        blind = walked(server).certificates.trees[0]
    for tree in (few, blind):
        assert 0 < tree.lower < leak
        assert 1 - clean < tree.upper_certain <= 1


@cases
def test_what_a_server_cannot_state_is_refused(changes, told):
    with TreeServer() as server, pytest.raises(BadInput, match=told):
        walked(server, **changes)


def test_a_server_without_token_ids_or_with_turns_is_refused():
    with TreeServer() as server:
        server.named = "{}"
        with pytest.raises(BadInput, match="by token id"):
            walked(server)
        with pytest.raises(BadInput, match="follow-up"):
            lethe.exact("m", [{**ROWS[0], "followups": ["Sure?"]}], endpoint=server.url)
    with FaultServer() as server, pytest.raises(BadInput, match="tokenize"):
        walked(server)


class LyingServer(TreeServer):
    """States that each of several tokens is certain."""

    def answer(self, asked, chat):
        answer = super().answer(asked, chat)
        if not isinstance(asked.get("prompt"), list):
            return answer
        for choice in answer["choices"]:
            (stated,) = choice["logprobs"]["top_logprobs"]
            choice["logprobs"]["top_logprobs"] = [dict.fromkeys(stated, 0.0)]
        return answer


def test_probabilities_that_add_up_to_more_than_one_are_refused():
    with LyingServer() as server, pytest.raises(BadInput, match="more than 1"):
        walked(server)


@pytest.mark.parametrize("tokens", ["seven", [-1], [7.5], {"a": 7}, None])
def test_token_ids_that_are_none_are_refused(tokens):
    lying = TreeServer(fault=lambda number, asked, answer: {"tokens": tokens})

    with lying as server, pytest.raises(BadInput, match="has no /tokenize"):
        walked(server)


def stores_answers(number, asked, answer):
    """Each probe of a draw gets the first answer again."""
    if "messages" in asked and asked.get("max_tokens") == 16:
        answer["choices"][0]["message"]["content"] = "red red blue"
    return answer


def other_law(number, asked, answer):
    """Another model under the same name answers once the walk is under way."""
    if number > 90 and isinstance(asked.get("prompt"), list):
        (stated,) = answer["choices"][0]["logprobs"]["top_logprobs"]
        masses = sorted(stated.values())
        answer["choices"][0]["logprobs"]["top_logprobs"] = [dict(zip(stated, masses, strict=True))]
    return answer


def other_name(number, asked, answer):
    if isinstance(asked.get("prompt"), list):
        answer["model"] = "another"
    return answer


FAULTS = {"draws": stores_answers, "drift": other_law, "identity": other_name}


@pytest.mark.parametrize("probe", FAULTS)
def test_a_walk_of_a_server_that_fails_a_probe_claims_no_end(probe):
    with TreeServer(fault=FAULTS[probe]) as server:
        found = walked(server)
    told = found.as_json()
    (question,) = told["per_question"]

    (reason,) = told["refused"]
    assert f"the probe {probe}" in reason
    assert "that passes its probes" in reason
    claims = ("lower", "upper", "upper_certain", "lower_sampled", "queries_until_half", "leak_at")
    assert {question[name] for name in claims} == {None}
    model = told["model"]
    claims = ("lower_worst", "upper_worst", "verdicts", "tree_upper_worst", "tree_certain_leaks")
    assert {model[name] for name in claims} == {None}
    assert model["bounds"] is None
    assert not any(row.ends for row in found.rows())
    assert found.to_frame()["upper"].isna().all()
    said = " ".join(found.sentences()) + str(found.views())
    assert "certainty" not in said
    assert "with probability" not in said


def test_a_gate_on_a_walk_that_claims_nothing_is_closed_and_says_what_would_open_it(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROWS[0]) + "\n")
    exact = Command("exact", "--model", "m", "--data", "rows.jsonl", "--endpoint")

    with TreeServer(fault=stores_answers) as server:
        done = exact.call(server.url, "--max-new-tokens", 3, "--fail-above", 0.9, "--json")

    gate = json.loads(done.stdout)["gate"]
    assert done.exit_code == 1
    assert (gate["closed"], gate["bound"]) == (True, None)
    assert "Walk a server" in gate["reason"]


def test_a_walk_of_a_sound_server_is_refused_nothing():
    with TreeServer() as server:
        assert walked(server).as_json()["refused"] == []
