"""lm-evaluation-harness: samples_*.jsonl, one line per document and filter, with the results file of the run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self, TypeGuard

from lethe.errors import BadFile, BadRow, BadValue, plural
from lethe.io.facts import Meaning, named
from lethe.io.files import Json
from lethe.io.logs._decoding import greedy
from lethe.io.logs._json import (
    as_object,
    as_text,
    is_integer,
    list_at,
    number,
    object_at,
    objects_at,
    text_at,
)
from lethe.io.logs._log import Format, Log
from lethe.io.logs._settings import RequestSettings
from lethe.io.logs._table import NOT_WRITTEN, Table
from lethe.io.logs._untrusted import JsonFile

CHOICES = (
    "the texts are given choices, and the model drew no answer; the log-likelihoods of the choices are exact, so there is "
    "nothing to bound"
)
NOTHING = "None"  # lm-eval converts every answer to text, also a missing answer
DEFAULT_FILTER = "none"
OWN_KEYS = frozenset(
    "doc_id doc target arguments resps filtered_resps filter metrics doc_hash prompt_hash target_hash".split()
)
# Filters that treat each answer separately and keep the order. A vote or an unknown filter creates a new answer.
AN_ANSWER_EACH = frozenset(
    "take_first take_first_k regex regex_pos multi_choice_regex remove_whitespace lowercase uppercase map format_span".split()
)
# Backends that send one seed with every request, so that the repeats of a prompt are identical requests.
SEND_A_SEED = (
    "local-completions",
    "local-chat-completions",
    "openai-completions",
    "openai-chat-completions",
)
DEFAULT_SEED = 1234
# Backends whose temperature is 0 where none is set, whatever `do_sample` says.
COLD = ("vllm", "sglang", *SEND_A_SEED)


@dataclass(frozen=True)
class LoggedDocument:
    """One line: a document under a filter, with its answers, or with its choices and their likelihoods.

    Format: lm-evaluation-harness 0.4. ``passed`` has the texts that the filter passed on, where it passed a list of texts.
    """

    place: int
    document: str
    filter: str
    prompt: str | None
    texts: list[str]  # drawn, or the given choices
    choices: list[dict[str, float]]  # the scores of each choice; empty where answers were drawn
    settings: dict[str, Json]
    passed: list[str] | None
    metrics: dict[str, Json]
    beside: dict[str, Json]

    @classmethod
    def of(cls, path: Path, place: int, row: Mapping[str, Json]) -> Self:
        """Return line ``place`` of the file; `BadRow` or `BadFile` says which member is wrong."""
        document = row.get("doc_id")
        name = row.get("filter", DEFAULT_FILTER)
        resps = row.get("resps")
        if not is_integer(document) and not isinstance(document, str):
            raise BadRow(path, place, f"`doc_id` is {type(document).__name__}, expected an integer")
        if not isinstance(name, str):
            raise BadRow(path, place, f"`filter` is {type(name).__name__}, expected a text")
        requests = _requests(path, place, row.get("arguments"))
        if not _is_lists(resps) or not all(resps):
            raise BadRow(path, place, "`resps` must be a list of lists of answers")
        settings: dict[str, Json] = {}
        choices: list[dict[str, float]] = []
        if all(isinstance(response[0], list) for response in resps):
            texts = _choices(requests)
            if len(texts) != len(resps):
                problem = f"{len(resps)} log-likelihoods, but {len(texts)} choices in `arguments`"
                raise BadRow(path, place, problem)
            choices = [_likelihood(path, place, response[0]) for response in resps]
        else:
            texts = resps[0]
            if len(resps) != 1 or not _is_texts(texts):
                problem = (
                    "`resps` must hold one list of texts, or pairs of a log-likelihood and a flag"
                )
                raise BadRow(path, place, problem)
            if len(requests[0]) < 2 or not isinstance(requests[0][1], dict):
                raise BadFile(path, "holds log-likelihoods of whole texts, but no drawn answers")
            settings = requests[0][1]
        passed = next(iter(list_at(row, "filtered_resps")), None)
        if choices or not _is_texts(passed):
            passed = None
        prompt = as_text(next(iter(requests[0]), None))
        metrics = _metrics(row)
        return cls(
            place,
            str(document),
            name,
            prompt,
            texts,
            choices,
            settings,
            passed,
            metrics,
            {name: row[name] for name in row if name not in OWN_KEYS | metrics.keys()},
        )


def _metrics(row: Mapping[str, Json]) -> dict[str, Json]:
    """Return the metrics of a line by name; older versions do not list their names."""
    names = row.get("metrics")
    if not isinstance(names, list):
        names = [name for name in row if name not in OWN_KEYS]
    return {name: row.get(name) for name in names if isinstance(name, str)}


def _is_texts(value: Json) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_lists(value: Json) -> TypeGuard[list[list[Json]]]:
    """Whether a value is a list of at least one item, all of which are lists."""
    return isinstance(value, list) and value != [] and all(isinstance(item, list) for item in value)


def _choices(requests: list[list[Json]]) -> list[str]:
    texts = []
    for request in requests:
        if len(request) > 1 and isinstance(request[1], str):
            texts.append(request[1])
    return texts


def _requests(path: Path, place: int, requests: Json) -> list[list[Json]]:
    """Return the requests of a document in order, {gen_args_0: {arg_0, arg_1}}; older versions wrote nested lists."""
    if isinstance(requests, dict):
        requests = _numbered(requests, "gen_args_")
        for position, request in enumerate(requests):
            if isinstance(request, dict):
                requests[position] = _numbered(request, "arg_")
    if not _is_lists(requests):
        raise BadRow(path, place, "`arguments` must hold the requests of the document")
    return requests


def _numbered(members: Mapping[str, Json], prefix: str) -> list[Json]:
    return [members.get(f"{prefix}{number}") for number in range(len(members))]


def _likelihood(path: Path, place: int, pair: list[Json]) -> dict[str, float]:
    try:
        likelihood, flag = pair
        if isinstance(flag, str):
            flag = {"True": True, "False": False}[flag]
        return {"loglikelihood": number(float(likelihood)), "is_greedy": number(flag)}
    except (ValueError, TypeError, KeyError, OverflowError):
        problem = f"got {str(pair)[:60]}, expected a log-likelihood and True or False"
        raise BadRow(path, place, problem) from None


@dataclass(frozen=True)
class TaskRun:
    """What the results file of a run says of one task; without such a file, ``missing`` says why nothing is known."""

    missing: str = ""
    task: str | None = None
    version: str = ""
    model: str | None = None
    config: dict[str, Json] = field(default_factory=dict)
    repeats: int | None = None
    documents: int | None = None
    sampling: dict[str, Json] = field(default_factory=dict)
    steps_of_filter: dict[str, list[str]] = field(default_factory=dict)
    stated: dict[str, Json] = field(default_factory=dict)

    @classmethod
    def of(cls, content: Mapping[str, Json], task: str) -> Self:
        """Return what the results file with this content says of ``task``."""
        of_task = object_at(object_at(content, "configs"), task)
        documents = object_at(object_at(content, "n-samples"), task)
        stated = object_at(object_at(content, "results"), task)
        config = object_at(content, "config")
        arguments = object_at(config, "model_args")
        model = content.get("model_name") or arguments.get("pretrained") or arguments.get("model")
        steps_of_filter = {}
        for entry in objects_at(of_task, "filter_list"):
            if isinstance(entry.get("name"), str) and isinstance(entry.get("filter"), list):
                functions = [str(step.get("function")) for step in objects_at(entry, "filter")]
                steps_of_filter[entry["name"]] = functions
        return cls(
            task=task,
            version=text_at(content, "lm_eval_version") or "",
            model=as_text(model),
            config=config,
            repeats=_count(of_task.get("repeats")),
            documents=_count(documents.get("effective")),
            sampling=object_at(of_task, "generation_kwargs"),
            steps_of_filter=steps_of_filter,
            stated={name: stated[name] for name in stated if name not in ("name", "alias")},
        )

    def takes_first(self, name: str) -> bool:
        """Whether the score of this filter belongs to answer 1; the default filter takes the first answer."""
        steps = self.steps_of_filter.get(name)
        if steps is None:
            return name == DEFAULT_FILTER
        return "take_first" in steps and AN_ANSWER_EACH.issuperset(steps)

    def warnings(self, sampling: Mapping[str, object]) -> list[str]:
        """Return the settings under which a repeat may be a copy of another one, a sentence each."""
        warnings = []
        seed = sampling.get("seed")
        if seed is None and self.config.get("model") in SEND_A_SEED:
            seed = object_at(self.config, "model_args").get("seed", DEFAULT_SEED)
        if seed is not None:
            warnings.append(
                f"seed {str(seed)[:20]}: each request has the seed, so a server that obeys the seed gives every repeat the "
                "same answer"
            )
        if self.config.get("use_cache") and sampling.get("do_sample") is not True:
            warnings.append(
                "use_cache: a rerun gives every repeat the one cached answer unless do_sample is true"
            )
        return warnings


def _run_of(samples: Path) -> TaskRun:
    """Find the run of ``samples``: the results file beside it with the same time, or the only one."""
    try:
        beside = sorted(samples.absolute().parent.glob("results_*.json"))
    except OSError:
        beside = []
    for path in beside:
        time = path.stem.removeprefix("results_")
        if samples.stem.endswith(f"_{time}"):
            return _run(path, samples.stem.removeprefix("samples_").removesuffix(f"_{time}"))
    if not beside:
        return TaskRun("no results_*.json beside it")
    if len(beside) > 1:
        return TaskRun("several results_*.json, none with the same time, beside it")
    return _run(beside[0], None)


def _run(path: Path, task: str | None) -> TaskRun:
    if not path.is_file():
        return TaskRun(f"{path.name} is not a file")
    content = as_object(JsonFile(path).document)
    configs = content.get("configs")
    if not isinstance(configs, dict):
        problem = "is not a results file of lm-eval (no object `configs`)"
        raise BadFile(path, problem, "Move the file away from the samples.")
    if task is None and len(configs) == 1:
        task = next(iter(configs))
    if task is None or task not in configs:
        return TaskRun(f"{path.name} has no task of that name")
    return TaskRun.of(content, task)


def _count(value: Json) -> int | None:
    if is_integer(value) and value > 0:
        return value
    return None


def read(source: JsonFile, filter: str | None = None) -> Log:
    """Read all repeats of every document. A document has one line per filter, and all its lines hold the same `resps`.

    A line holds one value per metric. The value is the score of answer 1 where the filter took the first answer, one score
    per answer where the value is a list as long as the kept answers, and otherwise a score of the whole document.

    Raises `BadFile` or `BadRow` for a broken file, and `BadValue` for a ``filter`` that no line has.
    """
    path = source.path
    run = _run_of(path)
    table = Table(path)
    first_lines: dict[str, LoggedDocument] = {}
    places_of_filter: dict[str, dict[str, int]] = {}  # the line of each document
    for place, row in source.lines():
        line = LoggedDocument.of(path, place, row)
        named = f"document {line.document!r}"
        places = places_of_filter.setdefault(line.filter, {})
        if line.document in places:
            other = places[line.document]
            problem = f"{named} also appears under filter {line.filter!r} in line {other}"
            raise BadRow(path, place, problem)
        places[line.document] = place
        earlier = first_lines.setdefault(line.document, line)
        if earlier.texts != line.texts:
            raise BadRow(path, place, f"{named} has different answers in line {earlier.place}")
        if filter is None or line.filter == filter:
            _add(table, run, line, filtered=filter is not None)
    filters = list(places_of_filter)
    if filter is not None and filter not in filters:
        legal = "one of " + ", ".join(map(repr, filters)) if filters else "left out"
        raise BadValue("--filter", filter, legal)
    return _log(path, run, table, list(first_lines.values()), filters)


FORMAT = Format(
    "lm-eval",
    "lm-eval samples (samples_*.jsonl, with the results_*.json beside it)",
    lambda first: "doc_id" in first and ("resps" in first or "arguments" in first),
    read,
)


def _add(table: Table, run: TaskRun, line: LoggedDocument, *, filtered: bool) -> None:
    document = line.document
    scores = _scores(run, line)
    if line.choices:
        for sample, choice in enumerate(line.choices, start=1):
            if (document, sample) not in table:
                table.answer(document, sample, line.texts[sample - 1], choice)
        table.prompt(document, line.prompt, scores=scores.of_document)
        return
    texts = line.texts
    if filtered and line.passed and len(line.passed) == len(texts):
        texts = line.passed
    for sample, text in enumerate(texts, start=1):
        if (document, sample) not in table:
            table.answer(document, sample, text, {})
        table.note_end(document, sample, line.beside)
        table.score(document, sample, scores.of_sample[sample - 1])
    table.prompt(document, line.prompt, run.repeats, scores.of_document)


@dataclass(frozen=True)
class Scores:
    """The scores of a line: of each of its answers in order, and of the document as a whole."""

    of_sample: list[dict[str, float]]
    of_document: dict[str, float]


def _scores(run: TaskRun, line: LoggedDocument) -> Scores:
    n = len(line.texts)
    scores = Scores([{} for _ in line.texts], {})
    kept_all = n == 1 or (line.passed is not None and len(line.passed) == n)
    of_first = not line.choices and (n == 1 or run.takes_first(line.filter))
    for metric, value in line.metrics.items():
        name = f"{metric},{line.filter}"
        values: list[Json] = []
        if not isinstance(value, list):
            scores.of_document[name] = number(value)
            if of_first:
                values = [value] + [None] * (n - 1)
        elif kept_all and len(value) == n:
            values = value
        for place, score in enumerate(values):
            scores.of_sample[place][name] = number(score)
    return scores


def _log(
    path: Path,
    run: TaskRun,
    table: Table,
    documents: list[LoggedDocument],
    filters: Sequence[str],
) -> Log:
    if not documents:
        raise BadFile(path, "holds no answers")
    choices = any(line.choices for line in documents)
    repeats = table.most()
    settings = RequestSettings()
    sampling: Mapping[str, Json] = {}
    greedy_by = None
    doubts: list[str] = []
    warnings: list[str] = []
    draws = "sampled"
    refusal = None
    if choices:
        draws = "choices"
        refusal = CHOICES
    else:
        sampling = documents[0].settings or run.sampling
        for line in documents:
            settings.add({**(line.settings or run.sampling), **line.beside}, question=line.document)
        greedy_by = _greedy_by(run, documents)
        if repeats > 1:
            doubts = run.warnings(sampling)
            warnings = list(doubts)
        nothing = sum(line.texts.count(NOTHING) for line in documents)
        if nothing:
            warnings.append(
                f"{plural(nothing, 'answer')} with the text {NOTHING}, which lm-eval also writes for a missing answer"
            )
    if run.documents is not None and run.documents > len(documents):
        unwritten = run.documents - len(documents)
        table.absent(NOT_WRITTEN, unwritten * (run.repeats or repeats))
    log = table.log(
        f"lm_eval {run.version}",
        task=run.task,
        model=run.model,
        sampling=sampling,
        means=means_of,
        greedy_by=greedy_by or settings.greedy_by,
        repeats=settings.repeats,
        mixed=settings.mixed,
        selected=settings.chosen,
        may_repeat="; ".join(doubts) or None,
        engine=text_at(run.config, "model"),
        draws=draws,
        refusal=refusal,
        warnings=warnings,
        stated=run.stated,
    )
    notes = _notes(run, documents, filters)
    if repeats > 1 and not choices:
        notes += _notes_on_scores(run, log.scores, repeats)
    if any(line.settings != documents[0].settings for line in documents):
        notes.append(
            "the sampling settings differ between documents; the settings of the first document are shown"
        )
    return replace(log, notes=tuple(notes))


def _greedy_by(run: TaskRun, documents: list[LoggedDocument]) -> str | None:
    """The setting that makes lm-eval decode greedily for some document: it does, unless a temperature or sampling is set."""
    for line in documents:
        sampling = line.settings or run.sampling
        is_cold = sampling.get("do_sample") is None or run.config.get("model") in COLD
        if "temperature" not in sampling and is_cold:
            return "temperature not set, so 0"
        setting = greedy(sampling)
        if setting:
            return setting
    return None


def means_of(score: str) -> Meaning:
    """lm-eval compares with the target of a document, which may be what must be said or what must not.

    The names of `lethe.lm_eval` that say so are known. A score is called METRIC,FILTER.
    """
    metric = score.rpartition(",")[0] or score
    meaning = named(metric)
    if meaning == "unknown":
        return "match"
    return meaning


def _notes(run: TaskRun, documents: Sequence[LoggedDocument], filters: Sequence[str]) -> list[str]:
    notes = []
    if run.missing:
        notes.append(f"{run.missing}: task, model and filters are not known")
    if run.documents is not None and run.documents != len(documents):
        notes.append(f"the run had {run.documents} documents, the samples hold {len(documents)}")
    if len(filters) > 1:
        named = ", ".join(filters)
        notes.append(f"filters {named}: all filters hold the same answers, which count once")
    return notes


def _notes_on_scores(run: TaskRun, scores: Sequence[str], repeats: int) -> list[str]:
    """What the scores of several answers to a document are of."""
    if not scores:
        return ["lm-eval scores each document as a whole; score its answers with `lethe score`"]
    first_only = {name for name in scores if run.takes_first(name.rpartition(",")[2])}
    if not first_only:
        return []
    named = ", ".join(sorted(first_only))
    return [
        f"{named}: lm-eval scores only the first of {repeats} answers; score all answers with `lethe score`"
    ]
