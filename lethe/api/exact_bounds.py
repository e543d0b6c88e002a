"""`lethe.exact`: bounds of P(leak) from next-token probabilities, for a model and a forget set."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.api.result import Measurement
from lethe.steps.exact import DEFAULTS, ExactSettings

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from lethe.api.sources import Rows
    from lethe.results.table import Result
    from lethe.statistics.bound import Bound
    from lethe.statistics.leak_certificates import Certificates

NAME = "model"  # the name of a model in memory
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

    def rows(self) -> list[Result]:
        """Return the ends of each question, with the answer tree as evidence, and those of the model."""
        from lethe.results.exact_bounds import rows_of

        return rows_of(self.certificates)


def exact(
    model: str | os.PathLike[str] | PreTrainedModel,
    forget_rows: Rows,
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    rows: int = DEFAULTS.rows,
    alpha: float = DEFAULTS.alpha,
    target: float | None = DEFAULTS.target,
    exact_only: bool = DEFAULTS.exact_only,
    temperature: float = DEFAULTS.temperature,
    top_k: int = DEFAULTS.top_k,
    top_p: float = DEFAULTS.top_p,
    adaptive_threshold: float | None = DEFAULTS.adaptive_threshold,
    max_new_tokens: int = DEFAULTS.max_new_tokens,
    prompt: str | os.PathLike[str] | None = DEFAULTS.prompt,
    scorer: str = DEFAULTS.scorer,
    above: float = DEFAULTS.above,
    tau: float = DEFAULTS.tau,
    seed: int = DEFAULTS.seed,
) -> ExactBounds:
    """Bound how likely each question is to make the model leak, from its next-token probabilities.

    This is `lethe exact` without files.

    Parameters
    ----------
    model : str, path or transformers.PreTrainedModel
        A Hugging Face model folder with safetensors, or a causal language model in memory with a key-value cache.
    forget_rows : str, path, list of dict or pandas.DataFrame
        The forget set: ``id``, ``question`` and ``answer``, and ``keywords`` for `keyword_leak`.
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
    temperature, top_k, top_p, adaptive_threshold, max_new_tokens
        The settings under which the model answers.
    prompt : str or path, optional
        A template file with ``{question}``, or "chat"; the default is that of `evaluate`.
    scorer : str
        The definition of a leak: "keyword_leak", "exact_match", or another text scorer with ``above``.
    above : float
        The score above which an answer leaks, where the scores are not only 0 and 1.
    tau : float
        The probability per query at which a question is proved to leak, or bounded.
    seed : int
        The seed of the sample of the unexplored mass.

    Returns
    -------
    ExactBounds
        The bounds per question and over all questions.

    Raises
    ------
    BadInput
        If a value is out of range, no question can be judged, or the model has no key-value cache.

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
    from lethe.api.sources import rows_of, source_of
    from lethe.models.in_memory import lent
    from lethe.steps.exact import certify

    source = source_of(model, tokenizer)
    asked = rows_of(forget_rows, "forget_rows")
    settings = ExactSettings(
        rows=rows,
        alpha=alpha,
        target=target,
        exact_only=exact_only,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        adaptive_threshold=adaptive_threshold,
        max_new_tokens=max_new_tokens,
        prompt=None if prompt is None else str(prompt),
        scorer=scorer,
        above=above,
        tau=tau,
        seed=seed,
    )
    with lent(source):
        return ExactBounds(
            certify(source.resolve().name if isinstance(source, Path) else NAME, source, asked, settings)
        )
