"""`lethe.exact`: bounds of P(leak) from next-token probabilities, for a model and a forget set."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lethe.api.result import (
    Measurement,
    Place,
    Rows,
    View,
    documented,
    name_of,
    rows_of,
    served_by,
    short,
    source_of,
)
from lethe.config.evaluating import EXACT, SAMPLE, Endpoint
from lethe.errors import BadFile, BadValue
from lethe.text import queries

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from lethe.results.table import Result
    from lethe.statistics.leak_trees import Certificates

COLUMNS = ("id", "lower", "upper", "upper_certain", "lower_sampled", "rows", "sampled", "sampled_leaks")


@dataclass(frozen=True, repr=False)
class ExactBounds(Measurement):
    """The result of `exact`: the answer tree of each question with its ends, and the summary over the questions."""

    certificates: Certificates

    def to_frame(self) -> pd.DataFrame:
        """One row per question: the ends, the rows, the sampled answers, the verdict and the likeliest leaking text."""
        import pandas as pd

        rows = []
        for tree in self.certificates.trees:
            row = {column: getattr(tree, column) for column in COLUMNS}
            row |= {"verdict": self.certificates.verdicts[tree.id]}
            row |= dict(zip(("queries_from", "queries_to"), tree.queries_until_half, strict=True))
            rows.append({**row, "heaviest_leak": tree.heaviest_leaks[0].text if tree.heaviest_leaks else None})
        return pd.DataFrame(rows).rename(columns={"id": "prompt_id"})

    def sentences(self) -> list[str]:
        return self.certificates.sentences()

    def as_json(self) -> dict[str, object]:
        return self.certificates.as_json(whole=False)

    def views(self) -> list[View]:
        rows = []
        for tree in self.certificates.trees:
            ends = [tree.bounds["lower"], tree.bounds["upper"]]
            likeliest = short(tree.heaviest_leaks[0].text) if tree.heaviest_leaks else None
            until = queries(tree.queries_until_half)
            rows.append([tree.id, *ends, self.certificates.verdicts[tree.id], until, likeliest])
        head = ["question", "P(leak) >=", "P(leak) <=", "verdict"]
        head += ["queries until an even chance", "likeliest leak found"]
        return [View(f"{self.certificates.name}: {self.certificates.how.leak}", head, rows, self.sentences())]

    def rows(self) -> list[Result]:
        from lethe.results.exact_bounds import rows_of

        return rows_of(self.certificates)


@documented
def exact(
    model: Place | PreTrainedModel,
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
    prompt: Place | None = None,
    scorer: str = EXACT.scorer,
    above: float = EXACT.above,
    tau: float = EXACT.tau,
    seed: int = EXACT.seed,
    dtype: str = SAMPLE.dtype,
    memory: int = EXACT.memory,
    scratch: Place | None = None,
    endpoint: str | None = None,
    key_env: str | None = None,
    requests: int = 500,
) -> ExactBounds:
    """Bound how likely each question is to make the model leak, from its next-token probabilities.

    A guided tree of answers proves leaks down to 1e-12 from below; the remainder is sampled and bounded from above.

    Parameters
    ----------
    data : The forget set: JSON lines with id, question, answer, keywords, or such rows in memory.
    rows : The approximate number of tokens that the model processes per question.
    alpha : The probability with which each upper bound may fail, above 0 and at most 0.5. Lower bounds are certain.
    target : Sample until a question without a sampled leak is bounded by this probability, regardless of ``rows``.
    exact_only : Draw no sample: both ends are certain, and the upper one is wide.
    scorer : The definition of a leak: "keyword_leak", "exact_match", or another text scorer with ``above``.
    memory : MiB for the rows in flight.
    endpoint : The address of vLLM's server, up to /v1: certain ends as the server states its probabilities; ``model`` is
        the server's name of the model.
    key_env : The environment variable that holds the server's key.
    requests : The most requests to the server for a question; one opens a prefix.
    tau : The probability per query at which a question is proved to leak, or bounded.
    seed : The seed of the sample of the unexplored mass.

    Notes
    -----
    Bounds assume that the computed logits err by at most the measured allowance, which the result states. Upper bounds also
    assume independent Poisson draws from the unexplored mass, which this function makes (Garwood, "Fiducial limits for the
    Poisson distribution", Biometrika 28, 1936).

    Examples
    --------
    >>> import lethe
    >>> rows = [{"id": "a", "question": "Who is Ada?", "answer": "Ada is a painter.", "keywords": ["painter"]}]
    >>> result = lethe.exact("my-model", rows, rows=400, max_new_tokens=4)
    >>> tree = result.certificates.trees[0]
    >>> tree.lower <= tree.upper, tree.bounds["lower"].level()
    (True, 'with certainty')
    >>> len(result.to_frame())
    1
    """
    given: dict[str, Any] = dict(locals())
    from lethe.models.in_memory import lent
    from lethe.steps.exact import ExactSettings, certify, certify_served

    given["prompt"] = None if prompt is None else str(prompt)
    if exact_only and target is not None:
        raise BadValue("target", target, "left out with exact_only, which draws no sample")
    settings = ExactSettings(**{name: given[name] for name in ExactSettings.model_fields if name in given})
    if requests < 1:
        raise BadValue("requests", requests, "at least 1")
    served = {key: given[key] for key in ("endpoint", "key_env") if given[key] is not None}
    source = served_by(served, str(model)) if served else source_of(model, tokenizer)
    questions = rows_of(data, "data")
    if not questions:
        raise BadFile(str(data) if isinstance(data, (str, os.PathLike)) else "data", "holds no question")
    if isinstance(source, Endpoint):
        return ExactBounds(certify_served(name_of(source), source, questions, settings, requests))
    with lent(source):
        return ExactBounds(
            certify(name_of(source), source, questions, settings, Path(scratch) if scratch else None)
        )
