"""What the public functions take: the types and texts of their parameters, and the model behind one of them."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypedDict, TypeVar

from lethe.errors import BadArguments, BadInput, BadValue

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from lethe.config.measuring import Endpoint, ScorerParams
    from lethe.models.checkpoints import Origin, Source

F = TypeVar("F", bound=Callable[..., object])


@dataclass(frozen=True)
class Typed:
    """How a command line gives an argument that has other forms in Python: as a value of ``kind``."""

    kind: Any


@dataclass(frozen=True)
class InPython:
    """Marks a parameter that no command line can give."""


# Types of heavy libraries stand in quotes: `lethe.cli.generate` evaluates what is outside of them.
Place: TypeAlias = Annotated[str | os.PathLike[str], Typed(Path)]
Table: TypeAlias = Annotated["Place | pd.DataFrame", Typed(Path)]
Rows: TypeAlias = Annotated["Place | Sequence[Mapping[str, object]] | pd.DataFrame", Typed(Path)]
Ranks: TypeAlias = Annotated["Place | pd.DataFrame | Sequence[int]", Typed(Path)]
Counts: TypeAlias = Annotated["Sequence[int] | None", InPython()]
ModelOrPlace: TypeAlias = Annotated["Place | PreTrainedModel", Typed(Path)]
Tokenizer: TypeAlias = Annotated["PreTrainedTokenizerBase | None", InPython()]
PlaceInPython: TypeAlias = Annotated[Place | None, InPython()]


class JudgeArguments(TypedDict, total=False):
    """The arguments of a served model that judges answers; what is left out or None has the default of the judge."""

    judge: str | None
    judge_endpoint: str | None
    judge_model: str | None
    judge_prompt: str | None
    judge_choice: Sequence[str] | None
    judge_read: str | None
    judge_key_env: str | None
    judge_concurrency: int | None
    judge_max_tokens_total: int | None
    judge_price_in: float | None
    judge_price_out: float | None


class ServedArguments(JudgeArguments, total=False):
    """The arguments of the served models beside the tested model: the judge, and the model that words questions anew."""

    paraphrase: str | None
    paraphrase_endpoint: str | None
    paraphrase_model: str | None
    paraphrases: int | None
    paraphrase_key_env: str | None
    paraphrase_max_tokens_total: int | None
    paraphrase_price_in: float | None
    paraphrase_price_out: float | None


# The parameters that several public functions share, each with its text.
PARAMETERS = {
    "model": "A Hugging Face model folder (safetensors). In Python also a causal language model in memory.",
    "data": "The forget set: JSON lines with id, question, answer, and optional keywords and followups. "
    "In Python also such rows.",
    "tokenizer": "The tokenizer of a model in memory. A folder contains its own tokenizer.",
    "alpha": "The probability with which each bound may fail, above 0 and at most 0.5.",
    "temperature": "The sampling temperature.",
    "top_p": "Keep the most likely tokens of this mass; 1 keeps all.",
    "top_k": "Keep the K most likely tokens; 0 keeps all.",
    "adaptive_threshold": "Adaptive temperature: greedy while the mean top probability exceeds this, in (0, 1].",
    "max_new_tokens": "The number of tokens after which an answer is cut.",
    "max_thinking_tokens": "The number of tokens after which the thinking before an answer is cut, beside max_new_tokens.",
    "prompt": "A template file or a text with {question}, or 'chat' (the tokenizer's chat template). "
    "[default: chat where the tokenizer has such a template, else a plain question and answer]",
    "engine": "The engine that draws: auto, prefix, transformers or vllm. vLLM needs a model folder.",
    "dtype": "auto (float32 on a CPU, the checkpoint's format on a GPU), float32, bfloat16 or float16.",
    "memory": "MiB for the rows in flight. The engine vLLM manages its own memory.",
    "above": "The score above which an answer leaks, for a scorer whose scores are not only 0 and 1.",
    "seed": "The seed of all draws.",
    "filter": "One filter of an lm-eval log.",
    "leak_is": "high or low: the end of the score that is a leak, where the file does not say. With low, all numbers are of "
    "1 - score.",
    "auditor": "The name of the person or machine that draws.",
    "judge": "endpoint: a model behind a server judges each answer by a rubric. Without a person's labels its verdicts are "
    "bounded, and no leak is claimed.",
    "judge_endpoint": "The address of the judge's OpenAI-compatible server, up to /v1.",
    "judge_model": "The server's name of the model that judges.",
    "judge_prompt": "fact_match (does the answer reveal the reference?), harmbench, strongreject, or a text file with "
    "{question}, {generation} and optionally {answer} and {context}. [default: fact_match]",
    "judge_choice": "A word that the judge's reply may be; give two, a leak first, or each as WORD=SCORE. [default: those of "
    "the rubric, else yes and no]",
    "judge_read": "How a reply is read: text, json (a schema holds the model to the words) or logprobs (of the first token). "
    "[default: text]",
    "judge_key_env": "The environment variable that holds the key of the judge's server.",
    "judge_concurrency": "The number of requests to the judge's server at once.",
    "judge_max_tokens_total": "Stop before the judge's server reads and writes more tokens than this; verdicts so far are "
    "kept.",
    "judge_price_in": "The price of a million tokens that the judge reads, for the plan that is printed before the start.",
    "judge_price_out": "The price of a million tokens that the judge writes.",
    "paraphrase": "endpoint: a served model words each question in other ways, which are asked too. They are kept as a "
    "language of prompts, paraphrases.yaml, which --language asks again without that server.",
    "paraphrase_endpoint": "The address of the OpenAI-compatible server that paraphrases, up to /v1.",
    "paraphrase_model": "The server's name of the model that paraphrases.",
    "paraphrases": "The number of paraphrases of a question. [default: 5]",
    "paraphrase_key_env": "The environment variable that holds the key of that server.",
    "paraphrase_max_tokens_total": "Stop before that server reads and writes more tokens than this; replies so far are kept.",
    "paraphrase_price_in": "The price of a million tokens that it reads, for the plan that is printed before the start.",
    "paraphrase_price_out": "The price of a million tokens that it writes.",
    "scratch": "A folder that keeps finished work, so that an interrupted call resumes. The command has one.",
    "fail_above": "Exit with status 1 unless the bound certifies that every question leaks at most this.",
}

TITLE = re.compile(r"\n(?=\w[\w ]*\n-{3,}\n)")  # before the title of a section, over its dashes
PARAGRAPH = re.compile(r"\n(?=\S)")  # before a line that is not indented


def taking(arguments: type[JudgeArguments]) -> Callable[[F], F]:
    """Show the keys of ``arguments`` as parameters in place of a function's last one, ``**``, which takes them."""

    def shown(function: F) -> F:
        signature = inspect.signature(function)
        parameters = list(signature.parameters.values())[:-1]
        for name, annotation in arguments.__annotations__.items():
            parameters.append(
                inspect.Parameter(
                    name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=None,
                    annotation=annotation.__forward_arg__,
                )
            )
        function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return function

    return shown


def check_names(arguments: JudgeArguments, known: type[JudgeArguments]) -> None:
    """Refuse a name that `taking` does not show, as Python does of a function without ``**``."""
    for name in arguments:
        if name not in known.__annotations__:
            raise TypeError(f"got an unexpected keyword argument {name!r}")


def of_group(arguments: Mapping[str, object], prefix: str) -> dict[str, object]:
    """The arguments whose names begin with ``prefix``, without these letters; one that is None or empty is left out."""
    values = {}
    for name, value in arguments.items():
        if name.startswith(prefix) and value not in (None, (), []):
            values[name.removeprefix(prefix)] = value
    return values


def documented(function: F) -> F:
    """Add the shared parameters to the section Parameters of a docstring that leaves them out."""
    docstring = inspect.getdoc(function) or ""
    head, title, rest = docstring.partition("Parameters\n----------\n")
    section, blank, further = rest.partition("\n\n")

    entries: dict[str, str] = {}
    for entry in PARAGRAPH.split(section):
        entries[entry.partition(" : ")[0]] = entry
    lines = []
    for name in inspect.signature(function).parameters:
        if name in entries:
            lines.append(entries[name])
        elif name in PARAMETERS:
            lines.append(f"{name} : {PARAMETERS[name]}")
    function.__doc__ = head + title + "\n".join(lines) + blank + further
    return function


def sections_of(function: Callable[..., object]) -> dict[str, str]:
    """The parts of a docstring by their titles; what stands before the first title has the title ""."""
    before, *parts = TITLE.split(inspect.getdoc(function) or "")
    sections = {"": before}
    for part in parts:
        title, _, text = part.split("\n", 2)
        sections[title] = text
    return sections


def texts_of(function: Callable[..., object]) -> dict[str, str]:
    """The text of each parameter in the docstring's section Parameters, on one line."""
    section = re.sub(r"\n +", " ", sections_of(function).get("Parameters", ""))
    texts = {}
    for line in section.splitlines():
        name, _, text = line.partition(" : ")
        texts[name] = text
    return texts


def source_of(model: ModelOrPlace, tokenizer: Tokenizer) -> Source:
    """Return the source of a model folder, or of a model in memory with its tokenizer."""
    from lethe.models.checkpoints import InMemory

    if isinstance(model, (str, os.PathLike)):
        if tokenizer is not None:
            raise BadInput(
                "tokenizer: a model folder contains its own tokenizer; leave the argument out."
            )
        return folder_of(model)
    if not hasattr(model, "generate"):
        legal = "a model folder, or a causal language model of transformers"
        raise BadValue("model", type(model).__name__, legal)
    if tokenizer is None:
        raise BadInput("tokenizer: got none; a model in memory needs its tokenizer.")
    return InMemory(model, tokenizer)


# Arguments of an endpoint that have a value also without a server.
SERVERLESS = {"name", "concurrency", "timeout"}
OF_A_SERVER = "only a model behind a server has these; give the server's address too."


def origin_of(model: ModelOrPlace, tokenizer: Tokenizer, served: Mapping[str, object]) -> Origin:
    """Return the endpoint of a model where one of its arguments is given, else `source_of`.

    ``served`` has the values of the parameters of `Endpoint`; None and False mean that nothing is given.
    """
    values = {}
    for key, value in served.items():
        if value is not None and value is not False:
            values[key] = value
    if values.keys() - SERVERLESS:
        return served_by(values, str(model))
    return source_of(model, tokenizer)


def served_by(values: Mapping[str, object], model: str) -> Endpoint:
    """Return the endpoint of ``model`` from the arguments of a public function.

    Raises `BadArguments` without an address, and `BadValue` for a value out of range, in whose sentence no secret stands.
    """
    from pydantic import ValidationError

    from lethe.config.measuring import Endpoint

    if "endpoint" not in values:
        names = sorted(values.keys() - SERVERLESS)
        raise BadArguments((*names, "endpoint"), OF_A_SERVER)
    try:
        return Endpoint.model_validate({**values, "name": model})
    except ValidationError as error:
        problem = error.errors()[0]
    key = str(problem["loc"][0])
    secret = "an address or a name that is not shown"
    address = "an address such as http://127.0.0.1:8000/v1, without a key or a password in it"
    if key == "endpoint":
        raise BadValue(key, secret, address)
    if key == "key_env":
        raise BadValue(key, secret, "the name of an environment variable, not the key itself")
    raise BadValue(key, values.get(key), problem["msg"])


ENDPOINT_JUDGE = "endpoint"
NO_JUDGE = "only a judge has these; give --judge endpoint, --judge-endpoint and --judge-model too."


def judge_by(arguments: JudgeArguments) -> tuple[str, ScorerParams] | None:
    """Return the name and the checked parameters of the judge that the arguments of a public function describe, or None.

    Raises `BadArguments` where one is given without a judge, or a judge without its server or model.
    """
    from pydantic import ValidationError

    from lethe.registry import JUDGES

    judge = arguments.get("judge")
    values = of_group(arguments, "judge_")
    if judge is None:
        if values:
            names = [f"judge_{name}" for name in sorted(values)]
            raise BadArguments((*names, "judge"), NO_JUDGE)
        return None
    if judge != ENDPOINT_JUDGE:
        remedy = "A judge with a folder of its own has an entry under judges in params.yaml (docs/judges.md)."
        raise BadValue("judge", judge, ENDPOINT_JUDGE, remedy)
    for name in ("endpoint", "model"):
        if name not in values:
            raise BadArguments(("judge", f"judge_{name}"), f"a judge needs its {name}.")
    if "choice" in values:
        values["choices"] = _choices(values.pop("choice"))
    try:
        params = JUDGES["chat"].Params.model_validate(values)
        JUDGES["chat"](params)  # a missing rubric or key is refused before anything is drawn
        return "chat", params
    except BadValue as error:
        raise BadValue(f"judge_{error.name}", error.got, error.legal) from None
    except ValidationError as error:
        problem = error.errors()[0]
    place = problem["loc"]
    key = str(place[0]) if place else "choices"
    if key == "choices":
        key = "choice"
    got: object = values.get("choices" if key == "choice" else key)
    if key in ("endpoint", "key_env"):
        got = "a text that is not shown"
    legal = problem["msg"].removeprefix("Value error, ")
    raise BadValue(f"judge_{key}", got, legal)


PARAPHRASES, MOST_PARAPHRASES = 5, 50  # of a question
NO_PARAPHRASE = "give --paraphrase endpoint, --paraphrase-endpoint and --paraphrase-model together."


@dataclass(frozen=True)
class Paraphraser:
    """The server that words questions in other ways, and how many ways of each."""

    server: Endpoint
    n: int


def paraphraser(arguments: ServedArguments) -> Paraphraser | None:
    """Return the checked server of the arguments "paraphrase_..." and the number of paraphrases; or None.

    Raises `BadArguments` where some of them are given and not all that are needed.
    """
    paraphrase = arguments.get("paraphrase")
    n = arguments.get("paraphrases")
    values = of_group(arguments, "paraphrase_")
    if paraphrase is None and n is None and not values:
        return None
    if paraphrase is None or not {"endpoint", "model"} <= values.keys():
        raise BadArguments(("paraphrase",), NO_PARAPHRASE)
    if paraphrase != ENDPOINT_JUDGE:
        raise BadValue("paraphrase", paraphrase, ENDPOINT_JUDGE)
    if n is None:
        n = PARAPHRASES
    if not isinstance(n, int) or not 1 <= n <= MOST_PARAPHRASES:
        raise BadValue("paraphrases", n, f"a number from 1 to {MOST_PARAPHRASES}")
    try:
        return Paraphraser(served_by(values, str(values.pop("model"))), n)
    except BadValue as error:
        raise BadValue(f"paraphrase_{error.name}", error.got, error.legal) from None


def _choices(choice: object) -> object:
    """The choices as the judge's parameters have them: a list of words, or a score for each word."""
    words = [choice] if isinstance(choice, str) else list(choice)  # type: ignore[call-overload]
    if not any("=" in word for word in words):
        return words
    score_of_word = {}
    for word in words:
        name, _, score = word.rpartition("=")
        score_of_word[name] = score
    return score_of_word


IN_MEMORY = "model"  # the name of a model in memory


def name_of(source: Origin) -> str:
    """Return the name under which the results of a model are kept."""
    from lethe.config.measuring import Endpoint

    if isinstance(source, Endpoint):
        return re.sub(r"[^A-Za-z0-9_.-]+", "-", source.name).strip("-.") or IN_MEMORY
    if isinstance(source, Path):
        return source.resolve().name
    return IN_MEMORY


def folder_of(model: Place) -> Path:
    """Return the folder of a model; a model of the hub is fetched into one."""
    path = Path(model)
    if path.exists():
        return path
    from lethe.models import hub

    name = hub.hub_name(path)
    return path if name is None else hub.fill(name)


def file_of(rows: Rows, name: str) -> Path:
    """The file of a dataset, by which errors name it; rows in memory are called ``name``."""
    if isinstance(rows, (str, os.PathLike)):
        return Path(rows)
    return Path(name)


def path_of(table: Table) -> Path | pd.DataFrame:
    """A table as its readers take it: the path of a file, or the table itself."""
    if isinstance(table, (str, os.PathLike)):
        return Path(table)
    return table


def text_of(place: Place | None) -> str | None:
    """A path as settings keep it; a text may also be a prompt, or a word."""
    return None if place is None else os.fspath(place)
