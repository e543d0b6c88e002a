"""`lethe.evaluate`: a verdict with its tables, from a model and a forget set."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.api.runs import Run, load_run
from lethe.steps.evaluate import DEFAULTS, EvalSettings

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from lethe.api.sources import Rows
    from lethe.statistics.bound import Bound

NAME = "model"  # the name of a model in memory


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
    """

    verdict: str
    forgetting: str
    utility: str
    report: Path | None

    def sentences(self) -> list[str]:
        """Return the verdict as a list of one sentence."""
        return [self.verdict]

    def to_frame(self) -> pd.DataFrame:
        """The metrics, one row per metric."""
        return self.metrics.T

    def bound_at(self, row: str, column: str) -> Bound | None:
        """The bound among the metrics: the table has one row per metric."""
        return self.bounds[column].get(row)


def evaluate(
    model: str | os.PathLike[str] | PreTrainedModel,
    forget_rows: Rows,
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    retain_rows: Rows | None = None,
    n: int = DEFAULTS.n,
    alpha: float = DEFAULTS.alpha,
    temperature: float = DEFAULTS.temperature,
    max_new_tokens: int = DEFAULTS.max_new_tokens,
    prompt: str | os.PathLike[str] | None = DEFAULTS.prompt,
    engine: str = DEFAULTS.engine,
    tau: float | None = DEFAULTS.tau,
    seed: int = DEFAULTS.seed,
    name: str | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> Evaluation:
    """Sample answers to a forget set, score them, and bound how much the model still reveals.

    This is `lethe eval` without files: the function writes files only if ``folder`` is given.

    Parameters
    ----------
    model : str, path or transformers.PreTrainedModel
        A Hugging Face model folder with safetensors, or a causal language model in memory, whose modes and
        generation settings are restored afterwards.
    forget_rows : str, path, list of dict or pandas.DataFrame
        The forget set: ``id``, ``question`` and ``answer``, optionally ``keywords``; a JSON lines file or rows in memory.
    tokenizer : transformers.PreTrainedTokenizerBase, optional
        The tokenizer of a model in memory. A folder contains its own tokenizer.
    retain_rows : like ``forget_rows``, optional
        Questions whose answers should not change.
    n : int
        The number of sampled answers to each forget question.
    alpha : float
        The probability with which each bound may fail, above 0 and at most 0.5.
    temperature : float
        The sampling temperature.
    max_new_tokens : int
        The number of tokens after which an answer is cut.
    prompt : str or path, optional
        A template file with ``{question}``, or "chat". The default is the tokenizer's chat template where there is one,
        else a plain question and answer.
    engine : {"auto", "prefix", "transformers", "vllm"}
        The engine that draws. vLLM needs a model folder.
    tau : float, optional
        The tolerance of the verdict: a question that leaks with at most this probability has not leaked. The default is
        0.01, or 0.1 of the mean score if no question has keywords.
    seed : int
        The seed of the draws.
    name : str, optional
        The name of the model in the tables. The default is the name of the model folder, or "model".
    folder : str or path, optional
        The folder of the artifacts and the report. For a model folder, a later call there reuses finished questions.

    Returns
    -------
    Evaluation
        The verdict, and the tables, bounds and plots of a `Run`.

    Raises
    ------
    BadInput
        If a value is out of range, a row is broken, or the folder holds no model.

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
    from lethe.api.sources import rows_of, source_of
    from lethe.models.in_memory import lent
    from lethe.steps import evaluate as step

    source = source_of(model, tokenizer)
    forget = rows_of(forget_rows, "forget_rows")
    retain = None if retain_rows is None else rows_of(retain_rows, "retain_rows", "retain-")
    splits = step.checked(forget, retain, Path("forget_rows"))
    name = name or (source.resolve().name if isinstance(source, Path) else NAME)
    settings = EvalSettings(
        n=n,
        alpha=alpha,
        temperature=temperature,
        max_new_tokens=max_new_tokens,
        prompt=None if prompt is None else str(prompt),
        engine=engine,
        tau=tau,
        seed=seed,
    )
    with tempfile.TemporaryDirectory(prefix="lethe-") as temporary, lent(source):
        root = Path(temporary) if folder is None else Path(folder)
        scratch = root / "answers" if isinstance(source, Path) else Path(temporary) / "answers"
        said = step.evaluate(name, source, splits, settings, root, scratch=scratch, page=folder is not None)
        run = load_run(root)
        tables = dict(vars(run))
        answers = run.answers  # read before a temporary folder is gone
    found = Evaluation(
        **tables,
        verdict=said.sentence,
        forgetting=said.forgetting,
        utility=said.utility,
        report=None if folder is None else root / "report" / "index.html",
    )
    found.__dict__["answers"] = answers  # what `Run.answers` would read from the folder
    return found
