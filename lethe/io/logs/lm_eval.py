"""lm-evaluation-harness: samples_*.jsonl, one line per document and filter, with the results file of the run."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from lethe.errors import BadFile, BadRow, BadValue, plural
from lethe.io.facts import Meaning, named
from lethe.io.files import Json
from lethe.io.logs._log import (
    NOT_WRITTEN,
    Format,
    Log,
    Table,
    as_list,
    as_object,
    as_text,
    chosen,
    greedy,
    number,
)
from lethe.io.logs._untrusted import Source

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


class Line:
    """One line: its answers, or its choices with likelihoods; ``passed``: the texts that the filter passed on as a list."""

    def __init__(self, path: Path, place: int, row: Mapping[str, Json]):
        document, name, resps = (
            row.get("doc_id"),
            row.get("filter", DEFAULT_FILTER),
            row.get("resps"),
        )
        if isinstance(document, bool) or not isinstance(document, (int, str)):
            raise BadRow(path, place, f"`doc_id` is {type(document).__name__}, expected an integer")
        if not isinstance(name, str):
            raise BadRow(path, place, f"`filter` is {type(name).__name__}, expected a text")
        requests = _requests(path, place, row.get("arguments"))
        if (
            not isinstance(resps, list)
            or not resps
            or not all(isinstance(one, list) and one for one in resps)
        ):
            raise BadRow(path, place, "`resps` must be a list of lists of answers")
        self.place, self.document, self.filter = place, str(document), name
        self.prompt = as_text(next(iter(requests[0]), None))
        self.settings: dict[str, Json] = {}
        self.choices: list[dict[str, float]] = []
        if all(isinstance(one[0], list) for one in resps):
            self.texts = [one[1] for one in requests if len(one) > 1 and isinstance(one[1], str)]
            if len(self.texts) != len(resps):
                problem = (
                    f"{len(resps)} log-likelihoods, but {len(self.texts)} choices in `arguments`"
                )
                raise BadRow(path, place, problem)
            self.choices = [_likelihood(path, place, one[0]) for one in resps]
        else:
            self.texts = resps[0]
            if len(resps) != 1 or not all(isinstance(text, str) for text in self.texts):
                problem = (
                    "`resps` must hold one list of texts, or pairs of a log-likelihood and a flag"
                )
                raise BadRow(path, place, problem)
            if len(requests[0]) < 2 or not isinstance(requests[0][1], dict):
                raise BadFile(path, "holds log-likelihoods of whole texts, but no drawn answers")
            self.settings = requests[0][1]
        passed = next(iter(as_list(row.get("filtered_resps"))), None)
        listed = (
            isinstance(passed, list)
            and not self.choices
            and all(isinstance(text, str) for text in passed)
        )
        self.passed = passed if listed else None
        named = row.get("metrics")
        metrics = named if isinstance(named, list) else [key for key in row if key not in OWN_KEYS]
        self.metrics = {metric: row.get(metric) for metric in metrics if isinstance(metric, str)}


def _requests(path: Path, place: int, requests: Json) -> list[list[Json]]:
    """Return the requests of a document in order, {gen_args_0: {arg_0, arg_1}}; older versions wrote nested lists."""
    if isinstance(requests, dict):
        requests = _numbered(requests, "gen_args_")
        requests = [_numbered(one, "arg_") if isinstance(one, dict) else one for one in requests]
    if (
        not isinstance(requests, list)
        or not requests
        or not all(isinstance(one, list) for one in requests)
    ):
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
        raise BadRow(
            path, place, f"got {str(pair)[:60]}, expected a log-likelihood and True or False"
        ) from None


class Run:
    """What the results file of a run says of one task; without such a file only the lines are known, and a note says why."""

    def __init__(
        self,
        reason: str = "",
        content: Mapping[str, Json] = MappingProxyType({}),
        task: str | None = None,
    ):
        of_task = {
            key: as_object(content.get(key)).get(task or "")
            for key in ("configs", "n-samples", "results")
        }
        config, stated = as_object(of_task["configs"]), as_object(of_task["results"])
        self.config, self.task = as_object(content.get("config")), task
        arguments = as_object(self.config.get("model_args"))
        named = content.get("model_name") or arguments.get("pretrained") or arguments.get("model")
        self.tool, self.model = (
            f"lm_eval {as_text(content.get('lm_eval_version')) or ''}",
            as_text(named),
        )
        self.repeats = _count(config.get("repeats"))
        self.documents = _count(as_object(of_task["n-samples"]).get("effective"))
        self.sampling = as_object(config.get("generation_kwargs"))
        self.filters = {
            one["name"]: tuple(str(as_object(step).get("function")) for step in one["filter"])
            for one in map(as_object, as_list(config.get("filter_list")))
            if isinstance(one.get("name"), str) and isinstance(one.get("filter"), list)
        }
        self.stated = {
            name: value for name, value in stated.items() if name not in ("name", "alias")
        }
        self.notes = [f"{reason}: task, model and filters are not known"] if reason else []

    def takes_first(self, name: str) -> bool:
        """Whether the score of this filter belongs to answer 1; the default filter takes the first answer."""
        steps = self.filters.get(name, ("take_first",) if name == DEFAULT_FILTER else ())
        return "take_first" in steps and set(steps) <= AN_ANSWER_EACH

    def warnings(self, sampling: Mapping[str, object]) -> list[str]:
        seed, warnings = sampling.get("seed"), []
        if seed is None and self.config.get("model") in SEND_A_SEED:
            seed = as_object(self.config.get("model_args")).get("seed", DEFAULT_SEED)
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


def _run_of(samples: Path) -> Run:
    """Find the run of ``samples``: the results file beside it with the same time, or the only one."""
    try:
        beside = sorted(samples.absolute().parent.glob("results_*.json"))
    except OSError:
        beside = []
    for path in beside:
        time = path.stem.removeprefix("results_")
        if samples.stem.endswith(f"_{time}"):
            return _run(path, samples.stem.removeprefix("samples_").removesuffix(f"_{time}"))
    if len(beside) == 1:
        return _run(beside[0], None)
    several = "several results_*.json, none with the same time, beside it"
    return Run(several if beside else "no results_*.json beside it")


def _run(path: Path, task: str | None) -> Run:
    if not path.is_file():
        return Run(f"{path.name} is not a file")
    content = as_object(Source(path).document)
    configs = content.get("configs")
    if not isinstance(configs, dict):
        problem = "is not a results file of lm-eval (no object `configs`)"
        raise BadFile(path, problem, "Move the file away from the samples.")
    if task is None and len(configs) == 1:
        task = next(iter(configs))
    if task is None or task not in configs:
        return Run(f"{path.name} has no task of that name")
    return Run("", content, task)


def _count(value: Json) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def read(source: Source, filter: str | None = None) -> Log:
    """Read all repeats of every document. A document has one line per filter, and all its lines hold the same `resps`.

    A line holds one value per metric. The value is the score of answer 1 where the filter took the first answer, one score
    per answer where the value is a list as long as the kept answers, and otherwise a score of the whole document.
    """
    path = source.path
    run, table = _run_of(path), Table(path)
    first: dict[str, Line] = {}
    filters: dict[str, None] = {}
    seen: dict[tuple[str, str], int] = {}
    for place, row in source.lines():
        line = Line(path, place, row)
        filters[line.filter] = None
        key = (line.document, line.filter)
        if key in seen:
            problem = f"document {line.document!r} also appears under filter {line.filter!r} in line {seen[key]}"
            raise BadRow(path, place, problem)
        seen[key] = place
        earlier = first.setdefault(line.document, line)
        if earlier.texts != line.texts:
            raise BadRow(
                path,
                place,
                f"document {line.document!r} has different answers in line {earlier.place}",
            )
        if filter is None or line.filter == filter:
            _add(table, run, line, filter is not None)
    if filter is not None and filter not in filters:
        raise BadValue(
            "--filter", filter, "one of " + ", ".join(map(repr, filters)) if filters else "left out"
        )
    return _log(path, run, table, list(first.values()), filters)


FORMAT = Format(
    "lm-eval",
    "lm-eval samples (samples_*.jsonl, with the results_*.json beside it)",
    lambda first: "doc_id" in first and ("resps" in first or "arguments" in first),
    read,
)


def _add(table: Table, run: Run, line: Line, filtered: bool) -> None:
    document = line.document
    of_answers, of_document = _scores(run, line)
    if line.choices:
        for sample, (text, scores) in enumerate(
            zip(line.texts, line.choices, strict=True), start=1
        ):
            if (document, sample) not in table:
                table.answer(document, sample, text, scores)
    else:
        texts = (
            line.passed
            if filtered and line.passed and len(line.passed) == len(line.texts)
            else line.texts
        )
        for sample, text in enumerate(texts, start=1):
            if (document, sample) not in table:
                table.answer(document, sample, text, {})
            table.score(
                document, sample, {name: values[sample - 1] for name, values in of_answers.items()}
            )
    table.prompt(document, line.prompt, None if line.choices else run.repeats, of_document)


def _scores(run: Run, line: Line) -> tuple[dict[str, list[float]], dict[str, float]]:
    of_answers: dict[str, list[float]] = {}
    of_document: dict[str, float] = {}
    n = len(line.texts)
    for metric, value in line.metrics.items():
        name = f"{metric},{line.filter}"
        if isinstance(value, list):
            if n == len(value) and (n == 1 or (line.passed is not None and len(line.passed) == n)):
                of_answers[name] = [number(one) for one in value]
            continue
        of_document[name] = number(value)
        if not line.choices and n and (n == 1 or run.takes_first(line.filter)):
            of_answers[name] = [number(value)] + [math.nan] * (n - 1)
    return of_answers, of_document


def _log(
    path: Path, run: Run, table: Table, documents: list[Line], filters: Mapping[str, None]
) -> Log:
    if not documents:
        raise BadFile(path, "holds no answers")
    choices = any(line.choices for line in documents)
    sampling = {} if choices else documents[0].settings or run.sampling
    repeats = table.most()
    greedy_by, doubts, warnings = None, [], []
    if not choices:
        greedy_by = _greedy_by(run, documents)
        doubts = run.warnings(sampling) if repeats > 1 else []
        warnings = chosen(sampling) + doubts if repeats > 1 else []
    if nothing := sum(text == NOTHING for line in documents for text in line.texts if not choices):
        warnings.append(
            f"{plural(nothing, 'answer')} with the text {NOTHING}, which lm-eval also writes for a missing answer"
        )
    if run.documents is not None and run.documents > len(documents):
        table.absent(NOT_WRITTEN, (run.documents - len(documents)) * (run.repeats or repeats))
    log = table.log(
        run.tool,
        task=run.task,
        model=run.model,
        sampling=sampling,
        means=means_of,
        greedy_by=greedy_by,
        may_repeat="; ".join(doubts) or None,
        engine=as_text(run.config.get("model")),
        draws="choices" if choices else "sampled",
        refusal=CHOICES if choices else None,
        warnings=warnings,
        stated=run.stated,
    )
    return replace(log, notes=tuple(_notes(run, documents, filters, log.scores, repeats, choices)))


def _greedy_by(run: Run, documents: list[Line]) -> str | None:
    """The setting that makes lm-eval decode greedily for some document: it does, unless a temperature or sampling is set."""
    for line in documents:
        sampling = line.settings or run.sampling
        if "temperature" not in sampling and sampling.get("do_sample") is None:
            return "temperature not set, so 0"
        if setting := greedy(sampling):
            return setting
    return None


def means_of(score: str) -> Meaning:
    """lm-eval compares with the target of a document, which may be what must be said or what must not.

    The names of `lethe.lm_eval` that say so are known. A score is called METRIC,FILTER.
    """
    metric = score.rpartition(",")[0] or score
    meaning = named(metric)
    return "match" if meaning == "unknown" else meaning


def _notes(
    run: Run,
    documents: list[Line],
    filters: Mapping[str, None],
    scores: tuple[str, ...],
    repeats: int,
    choices: bool,
) -> list[str]:
    notes = [*run.notes]
    if run.documents is not None and run.documents != len(documents):
        notes.append(f"the run had {run.documents} documents, the samples hold {len(documents)}")
    if len(filters) > 1:
        notes.append(
            f"filters {', '.join(filters)}: all filters hold the same answers, which count once"
        )
    if repeats > 1 and not choices:
        once = sorted({name for name in scores if run.takes_first(name.rpartition(",")[2])})
        if once:
            notes.append(
                f"{', '.join(once)}: lm-eval scores only the first of {repeats} answers; score all answers with `lethe score`"
            )
        elif not scores:
            notes.append(
                "lm-eval scores each document as a whole; score its answers with `lethe score`"
            )
    if any(line.settings != documents[0].settings for line in documents):
        notes.append(
            "the sampling settings differ between documents; the settings of the first document are shown"
        )
    return notes
