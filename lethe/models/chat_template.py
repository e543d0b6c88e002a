"""A tokenizer's chat template, which is a program of a stranger: it is filled in by a process with limits.

transformers renders templates in Jinja's sandbox, which keeps them from Python's objects, but not from loops without end,
texts of gigabytes or a recursion that overflows the stack. Nothing within a process stops all of these, and nothing but
the main thread can set a timer. So one further process (`template_process`) renders the templates of this process.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lethe.errors import BadFile
from lethe.models.template_process import SECONDS, TODAY
from lethe.progress import tell

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SCRIPT = Path(__file__).with_name("template_process.py")
REMEDY = "Name a prompt file instead."
MARK = "Hello7"  # an answer, behind which a template writes its end of a turn


def filled_in(
    tokenizer: PreTrainedTokenizerBase,
    turns: Sequence[Mapping[str, str]],
    speaks_next: bool = True,
) -> str:
    """The text of a conversation in the tokenizer's chat template; raises `BadFile`.

    ``speaks_next``: up to where the model speaks, else up to the end of the last message.
    """
    from transformers import PreTrainedTokenizerBase

    if type(tokenizer).apply_chat_template is not PreTrainedTokenizerBase.apply_chat_template:
        # The tokenizer's class is transformers' own code, and fills in no template of the folder.
        messages = [dict(turn) for turn in turns]
        return str(
            tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=speaks_next
            )
        )
    place = tokenizer.name_or_path
    try:
        template = tokenizer.get_chat_template()
    except ValueError as error:  # several templates, none of which is the default
        raise _refused(place, str(error)) from None
    if not isinstance(template, str):
        raise _refused(place, f"got {type(template).__name__}, expected a text")
    request = {
        "template": template,
        "messages": [dict(turn) for turn in turns],
        "tokens": tokenizer.special_tokens_map,
        "speaks_next": speaks_next,
    }
    reply = _RENDERER.ask(json.dumps(request, default=str))
    if "error" in reply:
        raise _refused(place, reply["error"])
    if reply["dated"] and place not in _DATED:
        _DATED.add(place)
        tell(
            f"{place}: its chat template writes today's date, and Lethe writes {TODAY:%d %b %Y} on all days, so that a "
            "question has one prompt. Name a prompt file for another date."
        )
    _check_asks(place, str(reply["text"]), turns)
    return str(reply["text"])


_DATED: set[str] = set()  # the tokenizers of which this was told


def _check_asks(place: str, text: str, turns: Sequence[Mapping[str, str]]) -> None:
    """Refuse a conversation without its last message, blanks aside: answers to it are none to the question."""
    last = "".join(turns[-1]["content"].split())
    if turns[-1]["role"] == "user" and last not in "".join(text.split()):
        raise _refused(place, "it does not write the question as it is")


@dataclass(frozen=True)
class EndOfTurn:
    """What a chat template writes after an answer: a ``token`` that ends the turn by itself, and the ``text`` of ordinary
    tokens before it. Both are None where only blanks follow an answer."""

    token: int | None = None
    text: str | None = None


def end_of_turn(tokenizer: PreTrainedTokenizerBase) -> EndOfTurn:
    """What ends a turn, as a rendered conversation shows; nothing without a template that can be filled in."""
    if not tokenizer.chat_template:
        return EndOfTurn()
    turns = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": MARK}]
    try:
        text = filled_in(tokenizer, turns, speaks_next=False)
    except BadFile:  # whoever asks in chat is told
        return EndOfTurn()
    after = text.rpartition(MARK)[2].strip()
    if MARK not in text or not after:
        return EndOfTurn()

    after = after.splitlines()[0].rstrip()  # a template may begin another turn in the next line
    # Read behind the answer, since some tokenizers put a space before the first word of a text.
    answer = tokenizer(MARK, add_special_tokens=False)["input_ids"]
    ended = tokenizer(MARK + after, add_special_tokens=False)["input_ids"]
    rest = ended[len(answer) :]
    if ended[: len(answer)] != answer or not rest:
        rest = tokenizer(after, add_special_tokens=False)["input_ids"]
    if tokenizer.unk_token_id in rest:  # a model cannot write it
        return EndOfTurn()
    if len(rest) == 1:
        return EndOfTurn(int(rest[0]))
    for place, token in enumerate(rest):
        if token in tokenizer.added_tokens_decoder:
            before = str(tokenizer.decode(rest[:place])).strip()
            return EndOfTurn(int(token), before or None)
    return EndOfTurn(text=after)


def _refused(place: str, reason: str) -> BadFile:
    return BadFile(place, f"its chat template cannot be filled in ({reason})", REMEDY)


class Renderer:
    """The process that renders templates: started when it is first asked, again after it was stopped or after a fork."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Leave the process to its starter: after a fork, the pipes and the lock are those of another process."""
        self.process: subprocess.Popen[bytes] | None = None
        self.lock = threading.Lock()

    def end(self) -> None:
        if self.process is None or self.process.stdin is None:
            return
        self.process.stdin.close()  # the process ends with its input
        self.process.wait()
        self.process = None

    def ask(self, request: str) -> dict[str, Any]:
        """The reply to a request: its ``text``, or the ``error`` in one line."""
        with self.lock:
            process = self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(request.encode() + b"\n")
                process.stdin.flush()
                line = process.stdout.readline()
            except BrokenPipeError:
                line = b""
            if line.endswith(b"\n"):
                return json.loads(line)
            self.process = None
            status = process.wait()
            return {"error": _ended(status)}

    def _started(self) -> subprocess.Popen[bytes]:
        if self.process is None:
            command = [sys.executable, "-P", str(SCRIPT)]
            pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
            self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing)
        return self.process


def _ended(status: int) -> str:
    if status == -signal.SIGPROF:
        return f"it takes more than {SECONDS} seconds of processor time"
    return f"it ended the process that fills it in, with status {status}"


_RENDERER = Renderer()
os.register_at_fork(after_in_child=_RENDERER.forget)
atexit.register(_RENDERER.end)
