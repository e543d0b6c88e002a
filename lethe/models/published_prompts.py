"""The prompts of published classifiers, read from the installed package `judgezoo`, which is the extra ``judge``.

The package's source file is read and never run, because the package imports clients of online services. A prompt is
recorded by name and hash, because several versions of the prompt circulate.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.errors import LetheError

if TYPE_CHECKING:
    from lethe.io.artifacts import Asked

HARMBENCH = "harmbench"  # instead of a template file: the HarmBench classifier's prompt


@dataclass(frozen=True)
class PublishedPrompt:
    """A classifier's prompt: ``system`` (empty where there is none), ``user`` with placeholders, name and hash."""

    name: str
    system: str
    user: str

    @property
    def sha256(self) -> str:
        """The hash of the prompt's text, which identifies the version."""
        return hashlib.sha256(f"{self.system}\n{self.user}".encode()).hexdigest()

    def record(self) -> dict[str, str]:
        """Name and hash, for the record of a run."""
        return {"prompt": self.name, "prompt_sha256": self.sha256}


def harmbench() -> PublishedPrompt:
    """The prompt of HarmBench's classifiers, with ``{behavior}`` and ``{generation}``.

    Source: Mazeika et al., "HarmBench: A Standardized Evaluation Framework for Automated Red Teaming and Robust Refusal".
    """
    conversation = _constant("harmbench", "HarmBenchJudge", "CLS_CONVERSATION")
    try:
        system, user = (str(message["content"]) for message in conversation)  # type: ignore[attr-defined]
    except (TypeError, KeyError, ValueError):
        raise _changed("HarmBenchJudge.CLS_CONVERSATION") from None
    return _checked("HarmBenchJudge.CLS_CONVERSATION", system, user, "{behavior}", "{generation}")


def strongreject() -> PublishedPrompt:
    """The prompt of StrongREJECT's fine-tuned checkpoint, with ``{behavior}`` and ``{response}``.

    Source: Souly et al., "A StrongREJECT for Empty Jailbreaks".
    """
    user = str(_constant("strong_reject", "StrongRejectJudge", "SR_CLS_PROMPT"))
    return _checked("StrongRejectJudge.SR_CLS_PROMPT", "", user, "{behavior}", "{response}")


def filled(template: str, **values: str) -> str:
    """The template with its placeholders replaced at once, so that a value may hold a placeholder's name."""
    places = sorted((template.index(f"{{{name}}}"), name) for name in values)
    parts, start = [], 0
    for place, name in places:
        parts += [template[start:place], values[name]]
        start = place + len(name) + 2
    return "".join([*parts, template[start:]])


def harmbench_text(behavior: str, generation: str, layout: str, prompt: PublishedPrompt) -> str:
    """The classifier's prompt about one generation, in the layout of the Llama-2 or of the Mistral checkpoint."""
    user = filled(prompt.user, behavior=behavior, generation=generation).strip()
    if layout == "mistral":
        return f"{prompt.system.strip()}\n\n[INST] {user} [/INST]"
    return f"[INST] <<SYS>>\n{prompt.system.strip()}\n<</SYS>>\n\n{user} [/INST]"


def harmbench_row(row: Asked) -> str:
    """The prompt about a row of judgements, whose question is the behaviour and whose context is the generation."""
    return harmbench_text(row["question"], row.get("context") or "", "llama2", _read_once())


@lru_cache(maxsize=1)
def _read_once() -> PublishedPrompt:
    return harmbench()


def _constant(module: str, owner: str, name: str) -> object:
    """The value of a class's constant in a module of judgezoo, read from its source without running the module."""
    spec = importlib.util.find_spec("judgezoo")
    if spec is None or not spec.submodule_search_locations:
        raise LetheError(
            f"The package judgezoo, which holds the prompt {owner}.{name}, is not installed: install the extra judge "
            "(pip install 'lethe[judge]')."
        )
    path = Path(next(iter(spec.submodule_search_locations)), f"{module}.py")
    if not path.is_file():
        raise _changed(f"{owner}.{name}")
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef) and node.name == owner:
            for line in node.body:
                if isinstance(line, ast.Assign) and any(ast.unparse(target) == name for target in line.targets):
                    return ast.literal_eval(line.value)
    raise _changed(f"{owner}.{name}")


def _checked(place: str, system: str, user: str, *placeholders: str) -> PublishedPrompt:
    if any(user.count(one) != 1 for one in placeholders):
        raise _changed(place)
    return PublishedPrompt(f"judgezoo {_version()}, {place}", system, user)


def _version() -> str:
    try:
        return version("judgezoo")
    except PackageNotFoundError:
        return "of an unknown version"


def _changed(place: str) -> LetheError:
    return LetheError(
        f"judgezoo {_version()} does not hold the prompt {place} as version 0.1.9 does: install judgezoo==0.1.9."
    )
