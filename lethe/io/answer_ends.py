"""Why an answer ended: the words of the column ``finish_reason``, and what servers, engines and logs call them.

A text is an answer only where the model is known to have ended it, or a limit of tokens to have cut it off. Everything
else is missing, by kind: the rest of a text that an error broke off could have leaked.
"""

from __future__ import annotations

STOPPED = "stop"  # the model ended the answer
CUT_OFF = "length"  # the limit of tokens ended it
ANSWERED = frozenset((STOPPED, CUT_OFF))

# Kinds of missing answers, which have no text.
REFUSED = "refused"
FILTERED = "filtered"  # a content filter took the text away
FAILED = "failed"  # the request brought nothing
ERROR = "error"
ABORTED = "abort"
TOOL_CALLS = "tool_calls"  # the model called a tool in place of an answer
NO_CONTEXT = "context"  # the conversation is longer than the model's context
NO_TEXT = "null content"
NOT_STATED = "no end stated"
UNKNOWN = "unknown end"
# The server failed, not the model: the same command asks again.
ASKED_AGAIN = frozenset((FAILED, ERROR, ABORTED))

# What OpenAI, vLLM, SGLang, TGI, Together, Anthropic, Inspect and HELM write, and the words above. An unknown word is not
# repeated, since it comes from outside.
WORDS_OF = {
    STOPPED: "stop eos eos_token stop_sequence end_turn endoftext stopped",
    CUT_OFF: "length max_tokens model_length",
    FILTERED: "content_filter filtered safety",
    REFUSED: "refusal refused",
    TOOL_CALLS: "tool_calls function_call tool_use",
    ABORTED: "abort aborted cancelled canceled",
}
MEANINGS = {word: end for end, words in WORDS_OF.items() for word in words.split()}
MEANINGS |= {word: word for word in (FAILED, ERROR, NO_CONTEXT, NO_TEXT, NOT_STATED, UNKNOWN)}


def missing_kind(stated: object) -> str | None:
    """Why the answer of another tool's log is missing, where the log states its end; None where it is one, or states none."""
    if stated is None or stated != stated:  # NaN, as pandas reads an empty cell
        return None
    reason = end_of(stated, "")
    return None if reason in ANSWERED else reason


def end_of(stated: object, text: object) -> str:
    """The ``finish_reason`` of an answer, from what its server, engine or log states and from its text.

    >>> end_of("stop", ""), end_of("max_tokens", "Ada"), end_of("stop", None), end_of("error", "Ad")
    ('stop', 'length', 'null content', 'error')
    """
    if stated is None or stated == "":
        return NOT_STATED
    if not isinstance(stated, str):
        return UNKNOWN
    reason = MEANINGS.get(stated.lower(), UNKNOWN)
    if reason in ANSWERED and text is None:
        return NO_TEXT
    return reason
