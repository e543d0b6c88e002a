"""`lethe.evaluate`: a verdict with its tables, from a model and a forget set."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lethe.api.result import Place, Rows, View, documented, name_of, rows_of, served_by, source_of
from lethe.api.runs import Run, load_run
from lethe.config.evaluating import ENDPOINT, EXACT, METRICS, SAMPLE, Endpoint
from lethe.errors import BadValue

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from lethe.results.table import Numbers, Result, Value
    from lethe.statistics.bound import Bound

UNUSED = {"name", "concurrency", "timeout"}  # arguments with a value also where nothing is served
MOST = 12  # numbers that a terminal shows


@dataclass(frozen=True, repr=False)
class Evaluation(Run):
    """The result of `evaluate`: the tables of a `Run` of one model, and the verdict.

    ``verdict`` is the sentence that the terminal and the report show, ``forgetting`` (leaks, forgot, open, none) and
    ``utility`` (intact, damaged, destroyed, open) are its words, ``tau`` its tolerance. ``report`` is the HTML report, if a
    folder was named; ``skipped`` are the questions that were left out as too long.
    """

    verdict: str
    forgetting: str
    utility: str
    report: Path | None
    tau: float
    skipped: tuple[str, ...]
    numbers: Numbers

    def sentences(self) -> list[str]:
        return [self.verdict]

    def to_frame(self) -> pd.DataFrame:
        """The metrics, one row per metric."""
        return self.metrics.T

    def as_json(self) -> dict[str, object]:
        from lethe.io.atomic import SCHEMA_VERSION
        from lethe.results.quantities import MODEL

        names = [name for row in MODEL if row.basis in ("greedy", "sampled") for name in row.names]
        result: dict[str, object] = {"schema": SCHEMA_VERSION, "model": self.models[0]}
        result |= {name: None for name in names if name and "{" not in name}
        result |= self.numbers.values
        result |= {name: getattr(self, name) for name in ("forgetting", "utility", "tau", "verdict")}
        result["report"] = str(self.report) if self.report else None
        result["bounds"] = {key: bound.guarantee_dict() for key, bound in self.numbers.bounds.items()}
        return result | {"skipped": self.skipped}

    def views(self) -> list[View]:
        from lethe.statistics.bound import level

        alpha = max(bound.alpha for bound in self.numbers.bounds.values())
        notes = [
            f"Each end holds by itself {level(alpha)} or more; a number without ends is an estimate.",
            f"All {len(self.numbers.values)} numbers and what their ends assume: --json.",
            *([f"report: {self.report}"] if self.report else []),
        ]
        columns = ["number", "estimate", "at least", "at most", "the ends cover"]
        return [View("", notes=[self.verdict]), View(self.models[0], columns, _shown(self.numbers), notes)]


def _shown(numbers: Numbers) -> list[list[Value | Bound]]:
    """The headlines, then the intervals with both ends: name, estimate, ends, and what the ends cover."""
    from lethe.results.quantities import headline

    first = headline(numbers.values)
    same: dict[tuple[object, ...], list[Result]] = {}  # two ends with two guarantees are two rows
    for row in numbers.rows:
        if row.at is None or row.at in row.kind.exported_at:
            same.setdefault((row.quantity, row.basis, row.item, row.split, row.at), []).append(row)
    lines = []
    for rows in same.values():
        names = [name for name in rows[0].names() if name]
        places = [first.index(name) for name in names if name in first]
        line = _line(names, rows)
        if places or None not in line[2:4]:
            lines.append((min(places, default=len(first)), line))
    return [line for _, line in sorted(lines, key=lambda one: one[0])][:MOST]


def _line(names: list[str], rows: list[Result]) -> list[Value | Bound]:
    from lethe.evaluation.joint import BELOW_1
    from lethe.statistics.bounds import possible

    estimate = next((row.value for row in rows if row.value is not None), None)
    lower = next((row.lower_bound for row in rows if row.lower_bound), None)
    upper = next((row.upper_bound for row in rows if row.upper_bound), None)
    if upper and rows[0].quantity.startswith("sd"):  # the JSON keeps the published end, which can be impossible
        upper = possible(upper)
    if lower and rows[0].kind.unit == "probability" and not lower.certain:
        lower = replace(lower, value=min(lower.value, BELOW_1))  # 1 is a rounding
    end = upper or lower
    return [names[-1] if estimate is None else names[0], estimate, lower, upper, str(end.covers) if end else ""]


@documented
def evaluate(
    model: Place | PreTrainedModel,
    data: Rows,
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    retain: Rows | None = None,
    n: int = SAMPLE.most,
    alpha: float = METRICS.alpha,
    temperature: float = SAMPLE.temperature,
    top_p: float = SAMPLE.top_p,
    top_k: int = SAMPLE.top_k,
    max_new_tokens: int = SAMPLE.max_new_tokens,
    max_thinking_tokens: int = SAMPLE.max_thinking_tokens,
    prompt: Place | None = None,
    engine: str = SAMPLE.engine,
    dtype: str = SAMPLE.dtype,
    memory: int = EXACT.memory,
    scorer: str | None = None,
    above: float = EXACT.above,
    thinking: Sequence[str] | None = None,
    tau: float | None = None,
    seed: int = SAMPLE.seed,
    skip_too_long: bool = False,
    language: Place | None = None,
    calibration: Place | None = None,
    labels: Place | None = None,
    name: str | None = None,
    folder: Place | None = None,
    endpoint: str | None = None,
    key_env: str | None = None,
    concurrency: int = ENDPOINT.concurrency,
    timeout: float = ENDPOINT.timeout,
    max_tokens_total: int | None = None,
    price_in: float | None = None,
    price_out: float | None = None,
) -> Evaluation:
    """Measure what your model still knows about a forget set: sampled answers, scores, bounds, one verdict, one report.

    The command keeps finished questions under data/eval/NAME, so an interrupted run resumes.

    Parameters
    ----------
    model : A Hugging Face model folder (safetensors), ORG/NAME@REVISION of the hub, or a causal language model in memory,
        whose modes and generation settings are restored afterwards. With --endpoint, the server's name of the model.
    retain : Questions whose answers should not change.
    n : The number of sampled answers to each forget question.
    scorer : What a leak is: keyword_leak, exact_match, or another text scorer with ``above``. [default: keyword_leak if a
        question has keywords, else the score of ROUGE-L]
    thinking : The two marks around the thinking, such as <think> and </think>: the answer after it is scored, and the
        thinking by itself. An empty text reads everything as answer. [default: the marks that the chat template or a server's
        answers have; a server's own field for thinking is always read]
    tau : The tolerance of the verdict: a question that leaks with at most this probability has not leaked. [default: 0.01,
        or 0.1 of the mean score if no question has keywords]
    skip_too_long : Leave out questions that the model's context cannot hold.
    language : A language of prompts (YAML): each draw is a random prompt and its answer together.
    calibration : Answers with `label` (a person's, 1 for a leak) and `verdict` (keyword leak's): the bounds of true leaks
        include the keyword's error.
    labels : A folder of labels of this model's answers, such as data/labels, with a file NAME.jsonl of `lethe label`:
        bounds that rest on them.
    name : The name of the model; the command writes results to data/eval/NAME. [default: the name of the model folder]
    folder : The folder of the artifacts and the report. For a model folder, a later call there reuses finished questions.
    endpoint : The address of an OpenAI-compatible server, such as http://127.0.0.1:8000/v1, which draws the answers.
    key_env : The environment variable that holds the server's key; the key itself is never written.
    concurrency : The number of requests to the server at once.
    timeout : The seconds after which a request to the server has failed.
    max_tokens_total : Stop before the tokens read and written by the server exceed this number; answers so far are kept.
    price_in : The price of a million tokens read, for the plan that is printed before the start.
    price_out : The price of a million tokens written.

    Notes
    -----
    Each bound holds by itself with probability 1 - alpha over the draws, for answers drawn with these settings. Each bound
    assumes independent draws, which the engines provide, and nothing about the distribution of the scores.

    Examples
    --------
    >>> import lethe
    >>> rows = [{"id": "a", "question": "Who is Ada?", "answer": "Ada is a painter.", "keywords": ["painter"]}]
    >>> result = lethe.evaluate("my-model", rows, n=16, max_new_tokens=4)
    >>> result.forgetting in ("leaks", "forgot", "open")
    True
    >>> row = result.metrics.loc["my-model"]
    >>> bool(row["m_bin_pooled"] <= row["m_bin_worst"] < 1)
    True
    >>> len(result.answers)
    17
    """
    given: dict[str, Any] = dict(locals())
    from lethe.models.in_memory import InMemory, lent
    from lethe.steps import evaluate as step

    how = {key: str(value) if isinstance(value, os.PathLike) else value for key, value in given.items()}
    how["thinking"] = None if thinking is None else [*thinking]
    if how["thinking"] not in (None, [""]) and len(how["thinking"]) != 2:
        raise BadValue("thinking", how["thinking"], "two marks, the first before the thinking, or one empty text")
    step.params_of(how, "model", Path("model"), [], how["prompt"] or "chat")  # refuses what is out of range first
    forget = rows_of(data, "data")
    others = None if retain is None else rows_of(retain, "retain", "retain-")
    splits = step.checked(forget, others, Path(data) if isinstance(data, (str, os.PathLike)) else Path("data"))
    served = {key: given[key] for key in Endpoint.model_fields if given.get(key) is not None}
    source = served_by(served, str(model)) if served.keys() - UNUSED else source_of(model, tokenizer)
    name = name_of(source) if name is None else name
    with tempfile.TemporaryDirectory(prefix="lethe-") as temporary, lent(source):
        root = Path(temporary) if folder is None else Path(folder)
        scratch = Path(temporary if isinstance(source, InMemory) else root) / "answers"
        verdict = step.evaluate(name, source, splits, how, root, scratch=scratch, page=folder is not None)
        run = load_run(root)
        tables, answers = dict(vars(run)), run.answers  # read before a temporary folder is gone
    evaluation = Evaluation(**tables, **verdict, report=None if folder is None else root / "report" / "index.html")
    evaluation.__dict__["answers"] = answers  # what `Run.answers` would read from the folder
    return evaluation
