"""The log-probabilities of given texts that a server states: which tokens are the answer's, and what is no answer."""

import json
import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lethe.config.measuring import Endpoint
from lethe.models.endpoint_reply import BadReply, ChatEchoReply, EchoReply, read
from lethe.models.endpoint_texts import GivenText, StatedText, stated_texts
from tests.cases import cases
from tests.lethe.sampling.fault_server import EchoServer, Status

PROMPT = "A code?"
ANSWER = " It is 7."
TEXT = GivenText("a", PROMPT, ANSWER)
JOINED = "tokens that do not join to the text sent"

letters = st.text("ab é\n", min_size=1, max_size=3)
values = st.floats(-50, 0)


def asked(server, chat=False, texts=(TEXT,)):
    endpoint = Endpoint(endpoint=server.url, name="m", retries=0, timeout=5.0)
    return stated_texts(endpoint, chat, texts)


def length(token, before):
    return -float(len(token))


def reply_of(tokens, numbers):
    """The reply of a completions server to a text."""
    offsets = [sum(map(len, tokens[:place])) for place in range(len(tokens))]
    told = {"tokens": tokens, "token_logprobs": numbers, "text_offset": offsets}
    return {"choices": [{"logprobs": told}]}


def parsed(value, kind=EchoReply):
    return read(kind, json.dumps(value).encode())


@given(
    st.lists(st.tuples(letters, values), min_size=1, max_size=12),
    st.lists(st.tuples(letters, values), max_size=3),
    st.booleans(),
    st.data(),
)
def test_the_tokens_of_an_answer_are_those_that_hold_one_of_its_letters(sent, drawn, marked, data):
    text = "".join(token for token, _ in sent)
    begin = data.draw(st.integers(0, len(text) - 1))
    first = [("<s>", None)] if marked else []
    tokens, numbers = map(list, zip(*first, *sent, *drawn, strict=True))

    found = parsed(reply_of(tokens, numbers)).after(text[:begin], text[begin:])

    token_of_letter = [place for place, (token, _) in enumerate(sent) for _ in token]
    holding = sorted(set(token_of_letter[begin:]))
    assert found == [sent[place][1] for place in holding]


@given(st.lists(st.tuples(letters, values), min_size=2, max_size=8), st.data())
def test_a_reply_whose_tokens_are_others_than_the_text_is_no_answer(sent, data):
    text = "".join(token for token, _ in sent)
    place = data.draw(st.integers(0, len(sent) - 1))
    tokens, numbers = map(list, zip(*sent, strict=True))
    tokens[place] = "?" * len(tokens[place])

    with pytest.raises(BadReply, match=JOINED):
        parsed(reply_of(tokens, numbers)).after(text[:1], text[1:])


@given(st.lists(st.tuples(letters, values), min_size=2, max_size=12), st.data())
def test_the_tokens_of_a_chats_answer_are_those_at_its_end(sent, data):
    text = "".join(token for token, _ in sent)
    begin = data.draw(st.integers(len(sent[0][0]), len(text) - 1))
    assume(not (text[begin - 1].isalnum() and text[begin].isalnum()))
    prompt = text[len(sent[0][0]) : begin]

    found = chat_of(sent).after(prompt, text[begin:])

    token_of_letter = [place for place, (token, _) in enumerate(sent) for _ in token]
    assert found == [sent[place][1] for place in sorted(set(token_of_letter[begin:]))]


def chat_of(sent):
    """The reply of vLLM to a chat: nothing of the first token."""
    entries = [None]
    for number, (token, value) in enumerate(sent[1:]):
        entries.append({str(number): {"logprob": value, "decoded_token": token}})
    return parsed({"prompt_logprobs": entries}, ChatEchoReply)


@pytest.mark.parametrize(
    ("prompt", "said", "answer"),
    [
        ("Another code?", ["[assistant]", " 5"], "5"),  # a reply without the question
        ("5", ["[assistant]", " 5"], "5"),  # the candidate is no question
        ("A code?", ["[assistant]", " 15"], "5"),
        ("A code?", ["[assistant]", " 1", ".", "5"], "5"),
        ("A code?", ["[assistant]", " mist"], "is"),
    ],
)
def test_a_chat_of_another_question_or_candidate_is_no_answer(prompt, said, answer):
    tokens = ["<s>", "[user]", " A", " code?", *said]

    with pytest.raises(BadReply, match=JOINED):
        chat_of([(token, -1.0) for token in tokens]).after(prompt, answer)


@pytest.mark.parametrize("prompt", ["A code?", "  A code?\n"])
def test_a_chats_template_may_strip_the_question(prompt):
    tokens = ["<s>", "[user]", " A", " code?", "[assistant]\n", "5"]

    assert chat_of([(token, -1.0) for token in tokens]).after(prompt, "5") == [-1.0]


@pytest.mark.parametrize("chat", [False, True])
def test_the_score_is_the_sum_over_the_answers_tokens(chat):
    answer = ANSWER.strip() if chat else ANSWER  # in chat the template has the space before it
    with EchoServer(length) as server:
        (found,) = asked(server, chat, [GivenText("a", PROMPT, answer)])

    assert found == StatedText(-float(len(ANSWER)), 3, model="m (fp-1)")


@cases
def test_a_faulty_reply_is_missing_by_its_kind(changes, kind):
    def fault(number, asked, answer):
        told = answer["choices"][0]["logprobs"]
        answer["choices"][0]["logprobs"] = None if changes is None else told | changes
        return answer

    with EchoServer(length, fault) as server:
        (found,) = asked(server)

    assert found.missing == kind
    assert found.nats == -math.inf


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 0.5, "-1", None])
def test_a_log_probability_that_is_none_is_missing(number):
    with EchoServer(lambda token, before: number if "7" in token else -1.0) as server:
        (found,) = asked(server)

    assert found.missing


def test_a_request_that_fails_is_missing_beside_those_that_do_not():
    def fault(number, asked, answer):
        if "none" in asked["prompt"]:
            raise Status(500)
        return answer

    with EchoServer(length, fault) as server:
        failed, found = asked(server, texts=[GivenText("a", PROMPT, " none"), TEXT])

    assert (failed.missing, failed.came) == ("status 500", False)
    assert found.tokens == 3
