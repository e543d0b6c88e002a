"""What a server may answer: each field of a reply is checked here, and its texts are cleaned, before anything reads it.

A server can lie, break or be somebody else. A reply that does not fit is no answer: `BadReply` names the field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from lethe.errors import one_line
from lethe.io.files import Json

LONGEST_NAME = 200  # characters of a model's name or fingerprint
MOST_TOKENS = 10**9  # of one request; more is no count
ROUNDING = 0.01  # by which a log-probability may exceed 0
LEAST = -1e4  # of a log-probability, so that sums stay finite: servers write -9999 or the least float for an impossible token
NO_NAME = "(no name)"
NOT_JOINED = "tokens that do not join to the text sent"
# An end after which a letter or digit stands within a word or number.
CONTINUES = re.compile(r"[\w.,+-]\Z")
SURROGATES = re.compile("[\ud800-\udfff]")
CONTROL = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n\r"}
Checked = TypeVar("Checked", bound=BaseModel)


def named(model: str, fingerprint: str | None) -> str:
    """A model by the name that a server gives it, and by its fingerprint where the server states one."""
    return f"{model} ({fingerprint})" if fingerprint else model


class BadReply(Exception):
    """A reply that is not what the interface promises; its text names the field, in words of this file alone."""


def cleaned(text: str) -> str:
    """Return ``text`` without what no file and no terminal can hold.

    A lone surrogate becomes the replacement character. A control character, but tab and line breaks, is removed rather
    than replaced, so that a keyword around it is still found.

    >>> cleaned("Po\\x00tter \\ud800\\n")
    'Potter \ufffd\\n'
    """
    if text.isprintable():
        return text
    return SURROGATES.sub("\ufffd", text).translate(CONTROL)


def cleaned_within(value: Json) -> Json:
    """Return a value of JSON whose texts are all `cleaned`; for lines that an earlier release wrote."""
    if isinstance(value, str):
        return cleaned(value)
    if isinstance(value, list):
        return [cleaned_within(entry) for entry in value]
    if isinstance(value, dict):
        return {cleaned(key): cleaned_within(entry) for key, entry in value.items()}
    return value


def _cleaned_text(value: object) -> object:
    return cleaned(value) if isinstance(value, str) else value


def _short_name(value: object) -> object:
    return one_line(cleaned(value))[:LONGEST_NAME] if isinstance(value, str) else value


def _at_least(value: float) -> float:
    return max(value, LEAST)


Text = Annotated[str, BeforeValidator(_cleaned_text)]
ShortName = Annotated[str, BeforeValidator(_short_name)]
Tokens = Annotated[int, Field(ge=0, le=MOST_TOKENS)]
LogProb = Annotated[float, Field(le=ROUNDING), AfterValidator(_at_least)]


@dataclass(frozen=True)
class TokenStep:
    """A token of an answer, its log-probability, and those of the likeliest tokens in its place."""

    token: str
    log_probability: float
    likeliest: dict[str, float]


def spell(steps: Sequence[TokenStep], text: str) -> bool:
    """Whether tokens hold a text, blanks aside; a text with other letters than ASCII may be cut within a letter.

    >>> steps = [TokenStep(token, -1.0, {}) for token in ("I", " do", " not")]
    >>> spell(steps, "I do not"), spell(steps, "do"), spell(steps, "I do not know")
    (True, True, False)
    """
    if not text.isascii():
        return True
    tokens = "".join(step.token for step in steps)
    return "".join(text.split()) in "".join(tokens.split())


class ReplyPart(BaseModel):
    """A part of a reply: a type is never guessed from another, a number is finite, a further field is ignored."""

    model_config = ConfigDict(
        extra="ignore", strict=True, frozen=True, allow_inf_nan=False, protected_namespaces=()
    )


class Likely(ReplyPart):
    """A token that the server might have drawn, with its log-probability in nats."""

    token: Text
    logprob: LogProb


class ChatStep(Likely):
    """A token of an answer in a chat, beside the likeliest ones of its step."""

    top_logprobs: list[Likely] | None = None


class ChatLogprobs(ReplyPart):
    """What a server states of the tokens of an answer in a chat."""

    content: list[ChatStep] | None = None

    @property
    def steps(self) -> list[TokenStep]:
        """The tokens of the answer, with what the server states of each."""
        steps = []
        for step in self.content or ():
            likeliest = {likely.token: likely.logprob for likely in step.top_logprobs or ()}
            steps.append(TokenStep(step.token, step.logprob, likeliest))
        return steps


class PlainLogprobs(ReplyPart):
    """What a server states of the tokens of a completion, in parallel lists."""

    tokens: list[Text] | None = None
    token_logprobs: list[LogProb] | None = None
    top_logprobs: list[dict[Text, LogProb] | None] | None = None

    @model_validator(mode="after")
    def _one_entry_per_token(self) -> PlainLogprobs:
        n_tokens = len(self.tokens or ())
        if len(self.token_logprobs or ()) != n_tokens:
            raise ValueError("token_logprobs")
        if self.top_logprobs and len(self.top_logprobs) != n_tokens:
            raise ValueError("top_logprobs")
        return self

    @property
    def steps(self) -> list[TokenStep]:
        """The tokens of the answer, with what the server states of each."""
        tokens = self.tokens or []
        likeliest = self.top_logprobs or [None] * len(tokens)
        stated = zip(tokens, self.token_logprobs or [], likeliest, strict=True)
        return [TokenStep(token, value, dict(tops or {})) for token, value, tops in stated]


class EchoLogprobs(ReplyPart):
    """The tokens of a prompt that the server repeats, with what it states of each, and of those that it drew after them."""

    tokens: list[Text]
    token_logprobs: list[LogProb | None]
    text_offset: list[Tokens]

    def after(self, prompt: str, answer: str) -> list[float]:
        """The log-probabilities of the tokens that hold some of ``answer``, which follows ``prompt`` in the text sent.

        A token that holds the end of the prompt too counts, and one that the server put before the text does not.

        Raises
        ------
        BadReply
            If the tokens do not join to the text sent at the stated places, or a token of the answer has no number.
        """
        _check_joined(self)
        joined = "".join(self.tokens)
        sent = prompt + answer
        starts = (0, len(self.tokens[0]) if self.tokens else 0)
        start = next((start for start in starts if joined.startswith(sent, start)), None)
        if start is None:
            raise BadReply(NOT_JOINED)
        begin = start + len(prompt)
        end = start + len(sent)

        values = []
        place = 0
        for token, value in zip(self.tokens, self.token_logprobs, strict=True):
            before, place = place, place + len(token)
            if before < end < place:
                raise BadReply(NOT_JOINED)
            if begin < place and before < end:
                values.append(value)
        return _stated(values)


class EchoChoice(ReplyPart):
    """A completion that repeats its prompt, with the log-probabilities of the prompt."""

    logprobs: EchoLogprobs


class PromptToken(ReplyPart):
    """A token of a prompt, as vLLM states it."""

    logprob: LogProb
    decoded_token: Text


def _check_joined(echo: EchoLogprobs) -> None:
    """Raise `BadReply` unless each token stands where the one before it ends."""
    n_tokens = len(echo.tokens)
    if len(echo.token_logprobs) != n_tokens or len(echo.text_offset) != n_tokens:
        raise BadReply(NOT_JOINED)
    place = echo.text_offset[0] if echo.text_offset else 0
    for token, offset in zip(echo.tokens, echo.text_offset, strict=True):
        if offset != place:
            raise BadReply(NOT_JOINED)
        place += len(token)


def _stated(values: list[float | None]) -> list[float]:
    """The values, each of which is a number; raises `BadReply` for none at all."""
    stated = [value for value in values if value is not None]
    if not stated or len(stated) < len(values):
        raise BadReply("a token without a log-probability")
    return stated


class ReplyChoice(ReplyPart):
    """An answer of a reply: its place among the answers, and why it ended."""

    index: Annotated[int, Field(ge=0)] | None = None
    finish_reason: object = None  # `end_of` knows the few words that are an end
    # Of a server that passes requests on, beside what another one wrote before.
    error: object = None


class Message(ReplyPart):
    """The message of an answer in a chat."""

    content: Text | None = None
    refusal: Text | None = None
    reasoning_content: Text | None = None  # the two fields in which servers put the thinking
    reasoning: Text | None = None
    tool_calls: list[object] | None = None


class ChatChoice(ReplyChoice):
    """An answer in a chat."""

    message: Message
    logprobs: ChatLogprobs | None = None


class PlainChoice(ReplyChoice):
    """A completion of a text."""

    text: Text | None = None
    logprobs: PlainLogprobs | None = None


class Usage(ReplyPart):
    """The tokens that a server counts for a request."""

    prompt_tokens: Tokens | None = None
    completion_tokens: Tokens | None = None


class NamedReply(ReplyPart):
    """A reply that says which model answered."""

    model: ShortName = NO_NAME
    system_fingerprint: ShortName | None = None


class Reply(NamedReply):
    """A reply with answers, none of which may come twice."""

    usage: Usage | None = None
    error: object = None

    @field_validator("choices", check_fields=False)
    @classmethod
    def _each_choice_once(cls, choices: list[ReplyChoice]) -> list[ReplyChoice]:
        stated = [choice.index for choice in choices if choice.index is not None]
        if len(set(stated)) != len(stated):
            raise ValueError("two answers have one index")
        return choices


class ChatReply(Reply):
    """A reply to messages of a chat."""

    choices: list[ChatChoice]


class PlainReply(Reply):
    """A reply to a text to complete."""

    choices: list[PlainChoice]


class EchoReply(NamedReply):
    """A prompt that a completions server repeats."""

    choices: Annotated[list[EchoChoice], Field(min_length=1, max_length=1)]

    def after(self, prompt: str, answer: str) -> list[float]:
        return self.choices[0].logprobs.after(prompt, answer)


class ChatEchoReply(NamedReply):
    """The tokens of a whole chat, as vLLM states them: one entry a token, and none of the first."""

    prompt_logprobs: list[Annotated[dict[str, PromptToken], Field(max_length=1)] | None]

    def after(self, prompt: str, answer: str) -> list[float]:
        """The log-probabilities of the tokens at the end that hold some of ``answer``; ``prompt`` is in the chat's template.

        Raises
        ------
        BadReply
            If the tokens do not hold the prompt and end with the whole answer, or one of its tokens has no number.
        """
        told: list[PromptToken | None] = []
        for entry in self.prompt_logprobs:
            told.append(next(iter(entry.values())) if entry else None)
        texts = [token.decoded_token if token else "" for token in told]
        joined = "".join(texts)
        if not joined.endswith(answer):
            raise BadReply(NOT_JOINED)
        begin = len(joined) - len(answer)
        before = joined[:begin]
        if prompt.strip() not in before:
            raise BadReply(NOT_JOINED)
        if answer[:1].isalnum() and CONTINUES.search(before):
            raise BadReply(NOT_JOINED)

        values: list[float | None] = []
        place = 0
        for token, text in zip(told, texts, strict=True):
            place += len(text)
            if place > begin:
                values.append(token.logprob if token else None)
        return _stated(values)


class Tokenized(ReplyPart):
    """The tokens of a text, as vLLM states them."""

    tokens: list[Tokens]


class Detokenized(ReplyPart):
    """The text of some tokens, as vLLM states it."""

    prompt: Text


def read(kind: type[Checked], content: bytes) -> Checked:
    """Return the reply of this kind that ``content`` holds; raise `BadReply` where it holds none."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):  # the second of thousands of nested brackets
        raise BadReply("not the JSON of an answer") from None
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        place = _place(error)
        raise BadReply(f"not the JSON of an answer ({place})" if place else "no answer") from None


FIELDS = frozenset().union(
    *(ChatReply.model_fields, ChatChoice.model_fields, PlainChoice.model_fields),
    *(Message.model_fields, Usage.model_fields, Tokenized.model_fields, Detokenized.model_fields),
    *(ChatLogprobs.model_fields, PlainLogprobs.model_fields, ChatStep.model_fields),
    *(EchoLogprobs.model_fields, ChatEchoReply.model_fields, PromptToken.model_fields),
)


def _place(error: ValidationError) -> str:
    """The fields that lead to the first fault; a name that the server made up is left out."""
    names = [name for name in error.errors()[0]["loc"] if name in FIELDS]
    return ".".join(map(str, names))
