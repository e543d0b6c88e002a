"""The border between a server and Lethe: what a reply may hold, and how its texts are cleaned."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.models.endpoint_reply import (
    BadReply,
    ChatReply,
    Detokenized,
    PlainReply,
    Tokenized,
    cleaned,
    read,
)


def chat_reply(**changed):
    """A sound reply of a chat; ``changed`` are fields of its one choice."""
    step = {"token": "red", "logprob": -0.5, "top_logprobs": [{"token": "red", "logprob": -0.5}]}
    choice = {
        "index": 0,
        "finish_reason": "stop",
        "message": {"role": "assistant", "content": "red"},
        "logprobs": {"content": [step]},
    }
    usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    return {"model": "m", "usage": usage, "choices": [choice | changed]}


def plain_reply(**changed):
    logprobs = {"tokens": ["red"], "token_logprobs": [-0.5], "top_logprobs": [{"red": -0.5}]}
    choice = {"index": 0, "finish_reason": "stop", "text": "red", "logprobs": logprobs}
    return {"model": "m", "choices": [choice | changed]}


def refusal_of(kind, value) -> str:
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    with pytest.raises(BadReply) as refused:
        read(kind, content)
    return str(refused.value)


def logprobs_of_chat(**changed):
    step = {"token": "red", "logprob": -0.5, "top_logprobs": None} | changed
    return chat_reply(logprobs={"content": [step]})


def test_a_sound_reply_of_a_chat_is_read():
    reply = read(ChatReply, json.dumps(chat_reply()).encode())

    (choice,) = reply.choices
    assert choice.message.content == "red"
    assert choice.logprobs.steps[0].likeliest == {"red": -0.5}


def test_a_sound_reply_to_a_plain_prompt_is_read():
    reply = read(PlainReply, json.dumps(plain_reply()).encode())

    (choice,) = reply.choices
    assert choice.text == "red"
    assert choice.logprobs.steps[0].log_probability == -0.5


def test_log_probabilities_of_the_least_float_add_up_to_a_number():
    content = logprobs_of_chat(logprob=-1.7e308, top_logprobs=[{"token": "b", "logprob": -1.7e308}])

    step = read(ChatReply, json.dumps(content).encode()).choices[0].logprobs.steps[0]

    assert math.isfinite(math.fsum([step.log_probability] * 1000))
    assert math.exp(step.likeliest["b"]) == 0


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"model": "m"}, "choices"),
        ({"choices": "none"}, "choices"),
        ({"choices": [None]}, "choices"),
        (chat_reply() | {"model": 5}, "model"),
        (chat_reply() | {"system_fingerprint": {"a": 1}}, "system_fingerprint"),
        (chat_reply() | {"usage": {"prompt_tokens": -1}}, "usage.prompt_tokens"),
        (chat_reply() | {"usage": {"completion_tokens": math.nan}}, "usage.completion_tokens"),
        (chat_reply() | {"usage": {"completion_tokens": 10**12}}, "usage.completion_tokens"),
        (chat_reply() | {"usage": {"completion_tokens": "3"}}, "usage.completion_tokens"),
        (chat_reply() | {"choices": chat_reply()["choices"] * 2}, "choices"),
        (chat_reply(message={"content": ["red"]}), "choices.message.content"),
        (chat_reply(message=None), "choices.message"),
        (logprobs_of_chat(logprob=1000), "choices.logprobs.content.logprob"),
        (logprobs_of_chat(logprob=-math.inf), "choices.logprobs.content.logprob"),
        (logprobs_of_chat(logprob=None), "choices.logprobs.content.logprob"),
        (logprobs_of_chat(top_logprobs="red"), "choices.logprobs.content.top_logprobs"),
    ],
)
def test_a_field_that_does_not_fit_is_named(value, field):
    assert refusal_of(ChatReply, value) == f"not the JSON of an answer ({field})"


def test_a_list_of_another_length_than_the_tokens_does_not_fit():
    short = {"tokens": ["red"], "token_logprobs": [], "top_logprobs": None}

    assert "logprobs" in refusal_of(PlainReply, plain_reply(logprobs=short))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe\x00",
        b'{"choices": [',
        b"[" * 100_000 + b"]" * 100_000,
        b'{"choices": ' + b"[" * 100_000,
        b'{"usage": ' + b"9" * 10_000 + b"}",
    ],
)
def test_what_is_no_json_is_no_answer(content):
    assert refusal_of(ChatReply, content) == "not the JSON of an answer"


@pytest.mark.parametrize("kind", [ChatReply, PlainReply, Tokenized, Detokenized])
@pytest.mark.parametrize("content", [b"null", b"[]", b'"red"', b"5"])
def test_what_is_no_object_is_no_answer(kind, content):
    assert refusal_of(kind, content) == "no answer"


def test_a_name_that_the_server_made_up_stands_in_no_sentence():
    logprobs = {"tokens": ["red"], "token_logprobs": [-0.5], "top_logprobs": [{"\x1b[31m": "x"}]}

    assert "\x1b" not in refusal_of(PlainReply, plain_reply(logprobs=logprobs))


@given(st.text() | st.text(alphabet=st.characters(categories=["Cs", "Cc", "Lu"])))
def test_a_cleaned_text_can_be_written_and_stays_as_it_is(text):
    once = cleaned(text)

    assert cleaned(once) == once
    once.encode()
    assert not any(letter < " " and letter not in "\t\n\r" for letter in once)


def test_a_control_character_within_a_keyword_hides_no_leak():
    assert cleaned("Pot\x00ter\x1b") == "Potter"


def test_the_texts_of_a_reply_are_cleaned():
    told = chat_reply(message={"content": "re\x00d\ud800"}) | {"model": "m\x1b[31m" * 200}

    reply = read(ChatReply, json.dumps(told).encode())

    assert reply.choices[0].message.content == "red\ufffd"
    assert "\x1b" not in reply.model
    assert len(reply.model) <= 200
