"""`lethe.exact`: bounds of P(leak) from next-token probabilities, for a model and a forget set."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lethe.api.result import Measurement, View
from lethe.api.sources import Rows
from lethe.config.evaluating import EXACT, SAMPLE
from lethe.errors import BadFile, BadValue
from lethe.text import queries

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from lethe.results.table import Result
    from lethe.statistics.bound import Bound
    from lethe.statistics.leak_trees import Certificates

NAME = "model"  # the name of a model in memory
SHOWN = 60  # characters of a leaking text in a terminal
COLUMNS = ("id", "lower", "upper", "upper_certain", "lower_sampled", "rows", "sampled", "sampled_leaks")


@dataclass(frozen=True, repr=False)
class ExactBounds(Measurement):
    """The result of `exact`.

    Attributes
    ----------
    certificates : Certificates
        The answer tree of each question (``trees``), each with its ends as ``bounds``; the summary over the questions
        (``model``); the settings of the queries (``how``).
    """

    certificates: Certificates

    def to_frame(self) -> pd.DataFrame:
        """One row per question: the ends, the rows, the sampled answers, the verdict and the likeliest leaking text."""
        import pandas as pd

        words = self.certificates.verdicts
        return pd.DataFrame(
            [
                {
                    **{column: getattr(tree, column) for column in COLUMNS},
                    "verdict": words[tree.id],
                    "queries_from": tree.queries_until_half[0],
                    "queries_to": tree.queries_until_half[1],
                    "heaviest_leak": tree.heaviest_leaks[0].text if tree.heaviest_leaks else None,
                }
                for tree in self.certificates.trees
            ]
        ).rename(columns={"id": "prompt_id"})

    def bound_at(self, row: str, column: str) -> Bound | None:
        """The ends of a question's interval; row: the number of the question."""
        return self.certificates.trees[int(row)].bounds.get(column)

    def sentences(self) -> list[str]:
        """Return the guarantees on the worst question and on the mean, and the counts of proved leaks."""
        return self.certificates.sentences()

    def as_json(self) -> dict[str, object]:
        """The keys of `lethe exact --json`."""
        return self.certificates.as_json(whole=False)

    def views(self) -> list[View]:
        """Each question's ends and its likeliest leak."""
        words = self.certificates.verdicts
        rows = [
            [
                tree.id,
                tree.bounds["lower"],
                tree.bounds["upper"],
                words[tree.id],
                queries(tree.queries_until_half),
                _short(tree.heaviest_leaks[0].text) if tree.heaviest_leaks else None,
            ]
            for tree in self.certificates.trees
        ]
        head = [
            "question",
            "P(leak) >=",
            "P(leak) <=",
            "verdict",
            "queries until an even chance",
            "likeliest leak found",
        ]
        return [View(f"{self.certificates.name}: {self.certificates.how.leak}", head, rows, self.sentences())]

    def rows(self) -> list[Result]:
        """Return the ends of each question, with the answer tree as evidence, and those of the model."""
        from lethe.results.exact_bounds import rows_of

        return rows_of(self.certificates)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def exact(
    model: str | os.PathLike[str] | PreTrainedModel,
    data: Rows,
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    rows: int = EXACT.rows,
    alpha: float = EXACT.alpha,
    target: float | None = EXACT.target,
    exact_only: bool = EXACT.exact_only,
    temperature: float = SAMPLE.temperature,
    top_k: int = SAMPLE.top_k,
    top_p: float = SAMPLE.top_p,
    adaptive_threshold: float | None = None,
    max_new_tokens: int = SAMPLE.max_new_tokens,
    prompt: str | os.PathLike[str] | None = None,
    scorer: str = EXACT.scorer,
    above: float = EXACT.above,
    tau: float = EXACT.tau,
    seed: int = EXACT.seed,
    dtype: str = SAMPLE.dtype,
    memory: int = EXACT.memory,
    scratch: str | os.PathLike[str] | None = None,
) -> ExactBounds:
    """Bound how likely each question is to make the model leak, from its next-token probabilities.

    A guided tree of answers proves leaks down to 1e-12 from below; the remainder is sampled and bounded from above.

    Parameters
    ----------
    model : str, path or transformers.PreTrainedModel
        A Hugging Face model folder (safetensors), or a causal language model in memory with a key-value cache.
    data : str, path, list of dict or pandas.DataFrame
        The forget set: JSON lines with id, question, answer, and keywords for keyword_leak, or such rows in memory.
    tokenizer : transformers.PreTrainedTokenizerBase, optional
        The tokenizer of a model in memory.
    rows : int
        The approximate number of tokens that the model processes per question.
    alpha : float
        The probability with which each upper bound may fail, above 0 and at most 0.5. Lower bounds are certain.
    target : float, optional
        Sample until a question without a sampled leak is bounded by this probability, regardless of ``rows``.
    exact_only : bool
        Draw no sample: both ends are certain, and the upper one is wide.
    temperature : float
        The sampling temperature.
    top_k : int
        Keep the K most likely tokens; 0 keeps all.
    top_p : float
        Keep the most likely tokens of this mass.
    adaptive_threshold : float, optional
        Adaptive temperature: greedy while the mean confidence exceeds this.
    max_new_tokens : int
        The number of tokens after which an answer is cut.
    prompt : str or path, optional
        A template file or a text with {question}, or 'chat' (the tokenizer's chat template). [default: chat where the
        tokenizer has such a template, else a plain question and answer]
    scorer : str
        The definition of a leak: "keyword_leak", "exact_match", or another text scorer with ``above``.
    above : float
        The score above which an answer leaks, where the scores are not only 0 and 1.
    tau : float
        The probability per query at which a question is proved to leak, or bounded.
    seed : int
        The seed of the sample of the unexplored mass.
    dtype : str
        auto, float32, bfloat16 or float16.
    memory : int
        MiB for the rows in flight.
    scratch : path, optional
        A folder in which finished questions are kept: an interrupted call resumes there. The command keeps them.

    Returns
    -------
    ExactBounds
        The bounds per question and over all questions.

    Notes
    -----
    Bounds assume that the computed logits err by at most the measured allowance, which the result states. Upper bounds also
    assume independent Poisson draws from the unexplored mass, which this function makes (Garwood, "Fiducial limits for the
    Poisson distribution", Biometrika 28, 1936).

    Examples
    --------
    >>> import lethe
    >>> rows = [{"id": "a", "question": "Who is Ada?", "answer": "Ada is a painter.", "keywords": ["painter"]}]
    >>> found = lethe.exact("my-model", rows, rows=400, max_new_tokens=4)
    >>> tree = found.certificates.trees[0]
    >>> tree.lower <= tree.upper, tree.bounds["lower"].level()
    (True, 'with certainty')
    >>> len(found.to_frame())
    1
    """
    given: dict[str, Any] = dict(locals())
    from lethe.api.sources import rows_of, source_of
    from lethe.models.in_memory import lent
    from lethe.steps.exact import ExactSettings, certify

    given["prompt"] = None if prompt is None else str(prompt)
    if exact_only and target is not None:
        raise BadValue("target", target, "left out with exact_only, which draws no sample")
    settings = ExactSettings(
        **{name: value for name, value in given.items() if name in ExactSettings.model_fields}
    )
    source = source_of(model, tokenizer)
    asked = rows_of(data, "data")
    if not asked:
        raise BadFile(str(data) if isinstance(data, (str, os.PathLike)) else "data", "holds no question")
    name = source.resolve().name if isinstance(source, Path) else NAME
    with lent(source):
        return ExactBounds(certify(name, source, asked, settings, Path(scratch) if scratch else None))
