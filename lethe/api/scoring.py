"""`lethe.score`: a scorer on plain texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lethe.errors import BadInput, BadValue

if TYPE_CHECKING:
    import numpy as np


def score(
    texts: Sequence[str],
    scorer: str = "rouge_l",
    *,
    answer: str | None = None,
    keywords: Sequence[str] | None = None,
    **item: object,
) -> np.ndarray:
    """Score texts by how much of a reference they reveal, from 0 (nothing) to 1 (everything).

    Parameters
    ----------
    texts : list of str
        The answers of a model to one question.
    scorer : str
        The name of a scorer: rouge_l, rouge_l_precision, rouge_l_f, rouge_1, rouge_1_precision, rouge_1_f, keyword_leak,
        exact_match, or one that a package registered.
    answer : str, optional
        The reference answer, which every scorer but keyword_leak needs.
    keywords : list of str, optional
        The keywords of keyword_leak: each keyword by itself is a leak.
    **item
        Further keys of the question's row, for scorers that read them.

    Returns
    -------
    numpy.ndarray
        One float in [0, 1] per text, NaN where the text cannot be judged. NaN is missing, not 0.

    Examples
    --------
    >>> import lethe
    >>> lethe.score(["Ada paints.", "Ada is a painter."], "rouge_l", answer="Ada is a painter.").round(2).tolist()
    [0.25, 1.0]
    >>> lethe.score(["She paints.", "A PAINTER, they say."], "keyword_leak", keywords=["painter"]).tolist()
    [0.0, 1.0]
    """
    import numpy as np
    from pydantic import ValidationError

    from lethe.scoring import scorer as load

    for name, given in (("texts", texts), ("keywords", keywords)):
        if isinstance(given, str):
            raise BadValue(name, given, "a list of texts", "Put a single text into a list.")
    row = {"answer": answer, "keywords": list(keywords) if keywords is not None else None, **item}
    row = {key: value for key, value in row.items() if value is not None}
    try:
        values = load(scorer)(list(texts), row)
    except ValidationError as error:
        needs = ", ".join(str(one["loc"][-1]) for one in error.errors())
        remedy = f"It needs {needs}: give it an entry under judges in params.yaml."
        raise BadValue("scorer", scorer, "a scorer without a model of its own", remedy) from None
    if np.isnan(values).all() and any(isinstance(text, str) and text.strip() for text in texts):
        keys = ", ".join(row) or "nothing"
        raise BadInput(f"scorer {scorer}: cannot judge any text; the call gave {keys}. Give answer or keywords.")
    return values
