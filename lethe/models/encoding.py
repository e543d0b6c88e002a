"""From question-answer pairs to tokens: one prompt template; only answer tokens carry the loss.

The prompts of published classifiers come from the package `judgezoo` (extra ``judge``). A prompt is recorded by name and
hash, because several versions of it circulate.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lethe.errors import BadFile, BadValue, LetheError
from lethe.io.artifacts import Asked, Row
from lethe.io.files import read_text
from lethe.models.chat_template import filled_in
from lethe.models.refusals import refusals_of_tokenizer

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig, PreTrainedTokenizerBase


IGNORED = -100  # the label of prompt and padding; never an index into the vocabulary
HARMBENCH = "harmbench"  # instead of a template file: the HarmBench classifier's prompt
CHAT = "chat"  # instead of a template file: the tokenizer's own chat template


@dataclass(frozen=True)
class Example:
    """A prompt and its answer as token ids; the answer ends with the end-of-sequence token."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]

    @property
    def counted(self) -> int:
        """The number of answer tokens in a loss; without a prompt the first token is not predicted and not counted."""
        return len(self.answer) - (not self.prompt)


@dataclass(frozen=True)
class TokenBatch:
    """Right-padded rows (B, T); ``labels`` are the ids on answer positions and IGNORED elsewhere."""

    ids: torch.Tensor
    mask: torch.Tensor
    labels: torch.Tensor


class Encoder:
    """Encodes with one tokenizer and one template: a file with ``{question}`` and optionally ``{context}``, or the
    text itself; "chat", the tokenizer's own chat template; or "harmbench", the prompt of HarmBench's classifier, which
    asks whether the row's context is an instance of the behaviour in its question."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, template: str | os.PathLike):
        self.tokenizer = tokenizer
        self.template = template_of(str(template))
        if self.template == CHAT and not tokenizer.chat_template:
            problem = "its tokenizer has no chat template"
            raise BadFile(tokenizer.name_or_path, problem, "Name a prompt file instead.")

    def text(self, row: Asked) -> str:
        """The text of a row in the template."""
        if self.template == HARMBENCH:
            return harmbench_row(row)
        if self.template == CHAT:
            return self._chat(worded(CHAT, row))
        return worded(self.template, row)

    def conversation(
        self,
        row: Asked,
        system: str = "",
        before: Sequence[tuple[Asked, str]] = (),
        start: str = "",
    ) -> tuple[int, ...]:
        """The tokens of a prompt with a system prompt, the questions and answers before, and the start of the answer."""
        if self.template == CHAT:
            chat = self._chat(worded(CHAT, row), messages_before(system, before))
            return self._open_ids(chat + start)
        return self._open_ids(spelled_out(self.text, row, system, before, start))

    def _chat(self, message: str, before: Sequence[tuple[str, str]] = ()) -> str:
        turns = (*before, ("user", message))
        return self._filled([{"role": role, "content": content} for role, content in turns])

    def messages(self, turns: Sequence[Mapping[str, str]]) -> tuple[int, ...]:
        """The tokens of a conversation that the tokenizer's chat template writes; the model speaks next."""
        if self.template != CHAT:
            raise BadValue("prompt", self.template, "chat, the template of messages")
        return self._open_ids(self._filled([dict(turn) for turn in turns]))

    def _filled(self, turns: list[dict[str, str]]) -> str:
        return filled_in(self.tokenizer, turns)

    def prompt(self, row: Asked) -> tuple[int, ...]:
        """The tokens of a row as a question, which the model continues."""
        return self._open_ids(self.text(row))

    def example(self, row: Row, answer: str | None = None) -> Example:
        """Encode a row with its own answer or ``answer``, jointly, as the tokenizer encodes running text."""
        text = self.text(row)
        if answer is None:
            answer = row["answer"]
        # A space belongs to the answer's first token, unless the template ends the line itself.
        if text and not text[-1].isspace() and self.template != CHAT:
            answer = f" {answer}"
        prompt = self._open_ids(text)
        whole = self._open_ids(text + answer)
        ids = whole[len(prompt) :]
        # Where the tokenizer merges across the border, the answer is encoded separately.
        if whole[: len(prompt)] != prompt:
            ids = tuple(self.tokenizer(answer, add_special_tokens=False)["input_ids"])
        end = self.tokenizer.eos_token_id
        # An answer may hold the end token itself; it must occur once.
        if end is not None and ids[-1:] != (end,):
            ids = (*ids, end)
        return Example(prompt, ids)

    def _open_ids(self, text: str) -> tuple[int, ...]:
        """The tokens of a text that the model continues."""
        place = self.tokenizer.name_or_path or "The tokenizer in memory"
        # A chat template already contains the special tokens.
        with refusals_of_tokenizer(place, "its tokenizer cannot encode a text"):
            return open_ids(self.tokenizer, text, special=self.template != CHAT)


def open_ids(tokenizer: PreTrainedTokenizerBase, text: str, special: bool) -> tuple[int, ...]:
    """The tokens of a text that a model continues, without the end or separator that the tokenizer appends by itself.

    Every prompt is made here: behind its own end, a model writes another text. ``special``: with the special tokens that
    the tokenizer adds; one that stands at the end of the text itself stays.
    """
    ids = tuple(tokenizer(text, add_special_tokens=special)["input_ids"])
    ends = set(tokenizer.all_special_ids)
    if not special or not ends.intersection(ids[-1:]):
        return ids
    plain = tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
    while len(ids) > max(1, len(plain)) and ids[-1] in ends and ids[-len(plain) :] != plain:
        ids = ids[:-1]
    return ids


def messages_before(system: str, before: Sequence[tuple[Asked, str]]) -> list[tuple[str, str]]:
    """Role and text of each message of a chat before the question that is open."""
    messages = [("system", system)] if system else []
    for row, answer in before:
        messages.append(("user", worded(CHAT, row)))
        messages.append(("assistant", answer))
    return messages


def spelled_out(
    text_of: Callable[[Asked], str],
    row: Asked,
    system: str,
    before: Sequence[tuple[Asked, str]],
    start: str,
) -> str:
    """A conversation as one text to be continued, by the text of each question."""

    def joined(text: str, answer: str) -> str:
        gap = "" if not text or text[-1].isspace() else " "
        return f"{text}{gap}{answer}"

    parts = [system] if system else []
    for asked, answer in before:
        parts.append(joined(text_of(asked), answer))
    last = text_of(row)
    if start:
        last = joined(last, start)
    return "\n\n".join([*parts, last])


def message_of(item: Mapping[str, Any]) -> str:
    """The message of a user that asks a row: its context, if it has one, and its question."""
    return "\n".join(filter(None, [item.get("context"), item["question"]]))


def worded(template: str, row: Asked) -> str:
    """The text of a row in a template; of "chat", the message of a user."""
    if template == CHAT:
        return message_of(row)
    return filled(template, context=row.get("context") or "", question=row["question"])


def filled(template: str, **values: str) -> str:
    """The template with its placeholders replaced at once, so that braces in a value stay as they are."""
    return re.sub(r"\{(\w+)\}", lambda place: values.get(place[1], place[0]), template)


def context_of(config: PretrainedConfig) -> int | None:
    """The context size, for question and answer, of a model with this ``config``; None if unbounded, as XLNet's -1."""
    context = getattr(config.get_text_config(), "max_position_embeddings", None)
    if context is None or context < 0:
        return None
    return int(context)


def template_of(prompt: str) -> str:
    """The template that a setting names: a word such as "chat", a text with ``{question}``, or the content of a file."""
    if prompt in (CHAT, HARMBENCH) or "{question}" in prompt:
        return prompt
    return read_template(prompt)


def read_template(path: str | os.PathLike) -> str:
    """The text of a prompt file, without the final line break; raises `BadFile` without ``{question}``."""
    path = Path(path)
    if not path.is_file():
        raise BadFile(path, "no such prompt file", "Name a text file that contains {question}.")
    template = read_text(path).removesuffix("\n")
    if "{question}" not in template:
        raise BadFile(path, "holds no {question}", "Write {question} where the question goes.")
    return template


def collate(
    examples: Sequence[Example], padding: int, device: torch.device | str = "cpu"
) -> TokenBatch:
    """The batch of some rows, as wide as the longest one."""
    import torch

    width = max(len(example.prompt) + len(example.answer) for example in examples)
    ids = torch.full((len(examples), width), padding, dtype=torch.long)
    labels = torch.full((len(examples), width), IGNORED, dtype=torch.long)
    mask = torch.zeros((len(examples), width), dtype=torch.long)
    for row, example in enumerate(examples):
        start = len(example.prompt)
        end = start + len(example.answer)
        ids[row, :end] = torch.tensor(example.prompt + example.answer)
        labels[row, start:end] = torch.tensor(example.answer)
        mask[row, :end] = 1
    return TokenBatch(ids.to(device), mask.to(device), labels.to(device))


@dataclass(frozen=True)
class PublishedPrompt:
    """A classifier's prompt: ``system`` (empty where there is none), ``user`` with placeholders, and its name."""

    name: str
    system: str
    user: str

    def record(self) -> dict[str, str]:
        """The name and the hash of the prompt, which tell versions apart."""
        digest = hashlib.sha256(f"{self.system}\n{self.user}".encode()).hexdigest()
        return {"prompt": self.name, "prompt_sha256": digest}


@cache
def harmbench() -> PublishedPrompt:
    """The prompt of HarmBench's classifiers, with ``{behavior}`` and ``{generation}`` (Mazeika et al., "HarmBench")."""
    return _published("harmbench", "HarmBenchJudge.CLS_CONVERSATION", "{behavior}", "{generation}")


@cache
def strongreject() -> PublishedPrompt:
    """The prompt of StrongREJECT's checkpoint, with ``{behavior}`` and ``{response}`` (Souly et al., "StrongREJECT")."""
    return _published(
        "strong_reject", "StrongRejectJudge.SR_CLS_PROMPT", "{behavior}", "{response}"
    )


def _published(module: str, place: str, *wanted: str) -> PublishedPrompt:
    """A prompt of judgezoo, whose user's text must have each of ``wanted`` once."""
    from importlib import import_module
    from importlib.metadata import PackageNotFoundError, version

    try:
        release = version("judgezoo")
        prompt = attrgetter(place)(import_module(f"judgezoo.{module}"))
        messages = [prompt] if isinstance(prompt, str) else [turn["content"] for turn in prompt]
        *before, user = messages
        (system,) = before or [""]
        if any(user.count(placeholder) != 1 for placeholder in wanted):
            raise ValueError(place)
    except PackageNotFoundError:
        raise LetheError(
            f"The package judgezoo, which holds the prompt {place}, is not installed: install the extra judge "
            "(pip install 'lethe[judge]')."
        ) from None
    except (ImportError, AttributeError, TypeError, LookupError, ValueError):
        raise LetheError(
            f"judgezoo {release} does not hold the prompt {place} as version 0.1.9 does: install judgezoo==0.1.9."
        ) from None
    return PublishedPrompt(f"judgezoo {release}, {place}", system, user)


def harmbench_text(
    behavior: str,
    generation: str,
    layout: str,
    prompt: PublishedPrompt,
    context: str = "",
) -> str:
    """The classifier's prompt about one generation, in the layout of the Llama-2 or of the Mistral checkpoint; with a
    ``context``, the prompt of contextual behaviours."""
    if context:
        prompt = contextual(prompt)
    values = {"behavior": behavior, "generation": generation, "context": context}
    user = filled(prompt.user, **values).strip()
    if layout == "mistral":
        return f"{prompt.system.strip()}\n\n[INST] {user} [/INST]"
    return f"[INST] <<SYS>>\n{prompt.system.strip()}\n<</SYS>>\n\n{user} [/INST]"


# Where HarmBench's prompt of contextual behaviours differs from that of the others, as its checkpoints' cards publish it.
CONTEXTUAL = (
    ("of the following behavior", "of the behavior given the context"),
    ("Behavior:\n{behavior}", "[CONTEXT]:\n{context}\n\n[BEHAVIOR]:\n{behavior}"),
    ("Generation:\n{generation}", "[GENERATION]:\n{generation}"),
    ("Instances of the behavior should", "Instances of the behavior and context should"),
)


@cache
def contextual(prompt: PublishedPrompt) -> PublishedPrompt:
    """HarmBench's prompt of contextual behaviours, with ``{context}``, made of that of the others; raises `LetheError` where
    judgezoo's text is not the known one."""
    system, user = prompt.system, prompt.user
    for standard, other in CONTEXTUAL:
        if system.count(standard) + user.count(standard) != 1:
            raise LetheError(
                f"{prompt.name} does not hold {standard!r} once, as version 0.1.9 does: install judgezoo==0.1.9."
            )
        system, user = system.replace(standard, other), user.replace(standard, other)
    return PublishedPrompt(f"{prompt.name}, contextual", system, user)


def harmbench_row(row: Asked) -> str:
    """The prompt about a row of judgements, whose question is the behaviour and whose context is the generation."""
    return harmbench_text(row["question"], row.get("context") or "", "llama2", harmbench())
