"""Scorers: the share of the reference answer in a generation, from 0 (none of it) to 1 (all of it).

A scorer of `lethe.scoring.text` is a module with one function::

    score(generations: Sequence[str], item: Mapping) -> np.ndarray

``item`` is a row of the data set (`question`, `answer`, optional `keywords` and so on); the result is float64, one
value in [0, 1] per generation, in the given order. A missing generation or reference gives NaN, which files store as
null: a missing score is never zero. An empty generation is an answer and scores 0. A scorer that needs more of a row
than its answer defines a second function, ``applies(item) -> bool``, which says whether answers to the row can be
scored. A scorer whose values are only 0 and 1 sets ``BINARY = True``. A scorer with a class ``Params`` (a
`ScorerParams`) gets its parameters as a third argument, ``params``. A scorer that owns a model is a judge: see
`lethe.scoring.judges`.
"""
