"""`lethe.evaluate`: a verdict with its tables, from a model and a forget set."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lethe.api.result import View
from lethe.api.runs import Run, load_run
from lethe.api.sources import Rows
from lethe.config.evaluating import ENDPOINT, EXACT, METRICS, SAMPLE, Endpoint

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from lethe.results.table import Numbers, Result, Value
    from lethe.statistics.bound import Bound

NAME = "model"  # the name of a model in memory
UNUSED = {"name", "concurrency", "timeout"}  # arguments with a value also where nothing is served
MOST = 12  # numbers that a terminal shows


@dataclass(frozen=True, repr=False)
class Evaluation(Run):
    """The result of `evaluate`: the tables of a `Run` of one model, and the verdict.

    Attributes
    ----------
    verdict : str
        The verdict in one sentence, as the terminal and the report show it.
    forgetting : {"leaks", "forgot", "open", "none"}
        The word on forgetting.
    utility : {"intact", "damaged", "destroyed", "open"}
        The word on utility.
    report : pathlib.Path or None
        The HTML report, if a folder was named.
    tau : float
        The tolerance of the verdict.
    skipped : tuple of str
        The questions that were left out as too long.
    """

    verdict: str
    forgetting: str
    utility: str
    report: Path | None
    tau: float
    skipped: tuple[str, ...]
    numbers: Numbers

    def sentences(self) -> list[str]:
        """Return the verdict as a list of one sentence."""
        return [self.verdict]

    def to_frame(self) -> pd.DataFrame:
        """The metrics, one row per metric."""
        return self.metrics.T

    def bound_at(self, row: str, column: str) -> Bound | None:
        """The bound among the metrics: the table has one row per metric."""
        return self.bounds[column].get(row)

    def as_json(self) -> dict[str, object]:
        """The keys of `lethe eval --json`: null for a number that any model may have and this one lacks."""
        from lethe.io.atomic import SCHEMA_VERSION
        from lethe.results.quantities import MODEL

        answers = (row.names for row in MODEL if row.basis in ("greedy", "sampled"))
        lacking: dict[str, object] = {
            name: None for names in answers for name in names if name and "{" not in name
        }
        return {
            "schema": SCHEMA_VERSION,
            "model": self.models[0],
            **lacking,
            **self.numbers.values,
            "forgetting": self.forgetting,
            "utility": self.utility,
            "tau": self.tau,
            "verdict": self.verdict,
            "report": str(self.report) if self.report else None,
            "bounds": {key: bound.guarantee_dict() for key, bound in self.numbers.bounds.items()},
            "skipped": self.skipped,
        }

    def views(self) -> list[View]:
        """The verdict, and at most `MOST` numbers below it."""
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


def evaluate(
    model: str | os.PathLike[str] | PreTrainedModel,
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
    prompt: str | os.PathLike[str] | None = None,
    engine: str = SAMPLE.engine,
    dtype: str = SAMPLE.dtype,
    memory: int = EXACT.memory,
    scorer: str | None = None,
    above: float = EXACT.above,
    thinking: Sequence[str] | None = None,
    tau: float | None = None,
    seed: int = SAMPLE.seed,
    skip_too_long: bool = False,
    language: str | os.PathLike[str] | None = None,
    calibration: str | os.PathLike[str] | None = None,
    labels: str | os.PathLike[str] | None = None,
    name: str | None = None,
    folder: str | os.PathLike[str] | None = None,
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
    model : str, path or transformers.PreTrainedModel
        A Hugging Face model folder (safetensors), ORG/NAME@REVISION of the hub, or a causal language model in memory, whose
        modes and generation settings are restored afterwards. With --endpoint, the server's name of the model.
    data : str, path, list of dict or pandas.DataFrame
        The forget set: JSON lines with id, question, answer, and optional keywords, or such rows in memory.
    tokenizer : transformers.PreTrainedTokenizerBase, optional
        The tokenizer of a model in memory. A folder contains its own tokenizer.
    retain : like ``data``, optional
        Questions whose answers should not change.
    n : int
        The number of sampled answers to each forget question.
    alpha : float
        The probability with which each bound may fail, above 0 and at most 0.5.
    temperature : float
        The sampling temperature.
    top_p : float
        Keep the most likely tokens of this mass; 1 keeps all.
    top_k : int
        Keep the K most likely tokens; 0 keeps all.
    max_new_tokens : int
        The number of tokens after which an answer is cut.
    prompt : str or path, optional
        A template file or a text with {question}, or 'chat' (the tokenizer's chat template). [default: chat where the
        tokenizer has such a template, else a plain question and answer]
    engine : {"auto", "prefix", "transformers", "vllm"}
        The engine that draws: auto, prefix, transformers or vllm. vLLM needs a model folder.
    dtype : str
        auto (float32 on a CPU, the checkpoint's format on a GPU), float32, bfloat16 or float16.
    memory : int
        MiB for the rows in flight. vLLM manages its own memory.
    scorer : str, optional
        What a leak is: keyword_leak, exact_match, or another text scorer with ``above``. [default: keyword_leak if a question
        has keywords, else the score of ROUGE-L]
    above : float
        The score above which an answer leaks, for a ``scorer`` whose scores are not only 0 and 1.
    thinking : list of str, optional
        The two marks around the thinking, such as <think> and </think>: the answer after it is scored, and the thinking by
        itself. An empty text reads everything as answer. [default: the marks that the chat template knows]
    tau : float, optional
        The tolerance of the verdict: a question that leaks with at most this probability has not leaked. [default: 0.01,
        or 0.1 of the mean score if no question has keywords]
    seed : int
        The seed of the draws.
    skip_too_long : bool
        Leave out questions that the model's context cannot hold.
    language : path, optional
        A language of prompts (YAML): each draw is a random prompt and its answer together.
    calibration : path, optional
        Answers with `label` (a person's, 1 for a leak) and `verdict` (keyword leak's): the bounds of true leaks include the
        keyword's error.
    labels : path, optional
        A folder of labels of this model's answers, such as data/labels, with a file NAME.jsonl of `lethe label`: bounds
        that rest on them.
    name : str, optional
        The name of the model; the command writes results to data/eval/NAME. [default: the name of the model folder]
    folder : str or path, optional
        The folder of the artifacts and the report. For a model folder, a later call there reuses finished questions.
    endpoint : str, optional
        The address of an OpenAI-compatible server, such as http://127.0.0.1:8000/v1, which draws the answers.
    key_env : str, optional
        The environment variable that holds the server's key; the key itself is never written.
    concurrency : int
        The number of requests to the server at once.
    timeout : float
        The seconds after which a request to the server has failed.
    max_tokens_total : int, optional
        Stop before the tokens read and written by the server exceed this number; answers so far are kept.
    price_in : float, optional
        The price of a million tokens read, for the plan that is printed before the start.
    price_out : float, optional
        The price of a million tokens written.

    Returns
    -------
    Evaluation
        The verdict, and the tables, bounds and plots of a `Run`.

    Notes
    -----
    Each bound holds by itself with probability 1 - alpha over the draws, for answers drawn with these settings. Each bound
    assumes independent draws, which the engines provide, and nothing about the distribution of the scores.

    Examples
    --------
    >>> import lethe
    >>> rows = [{"id": "a", "question": "Who is Ada?", "answer": "Ada is a painter.", "keywords": ["painter"]}]
    >>> found = lethe.evaluate("my-model", rows, n=16, max_new_tokens=4)
    >>> found.forgetting in ("leaks", "forgot", "open")
    True
    >>> row = found.metrics.loc["my-model"]
    >>> bool(row["m_bin_pooled"] <= row["m_bin_worst"] < 1)
    True
    >>> len(found.answers)
    17
    """
    given: dict[str, Any] = dict(locals())
    from lethe.api.sources import default_name, rows_of, served_by, source_of
    from lethe.models.in_memory import InMemory, lent
    from lethe.steps import evaluate as step

    given["thinking"] = None if thinking is None else [*thinking]
    how = {key: str(value) if isinstance(value, os.PathLike) else value for key, value in given.items()}
    step.params_of(
        how, "model", Path("model"), [], how["prompt"] or "chat"
    )  # refuses what is out of range, before any work
    forget = rows_of(data, "data")
    kept = None if retain is None else rows_of(retain, "retain", "retain-")
    splits = step.checked(forget, kept, Path(data) if isinstance(data, (str, os.PathLike)) else Path("data"))
    served = {key: given[key] for key in Endpoint.model_fields if key in given and given[key] is not None}
    source = served_by(served, str(model)) if served.keys() - UNUSED else source_of(model, tokenizer)
    if name is None:
        name = default_name(source) or NAME
    with tempfile.TemporaryDirectory(prefix="lethe-") as temporary, lent(source):
        root = Path(temporary) if folder is None else Path(folder)
        scratch = Path(temporary if isinstance(source, InMemory) else root) / "answers"
        said = step.evaluate(name, source, splits, how, root, scratch=scratch, page=folder is not None)
        run = load_run(root)
        tables = dict(vars(run))
        answers = run.answers  # read before a temporary folder is gone
    found = Evaluation(
        **tables,
        verdict=said.sentence,
        forgetting=said.forgetting,
        utility=said.utility,
        report=None if folder is None else root / "report" / "index.html",
        tau=said.tau,
        skipped=said.skipped,
        numbers=said.numbers,
    )
    found.__dict__["answers"] = answers  # what `Run.answers` would read from the folder
    return found
