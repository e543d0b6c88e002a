"""Diversity of one question's samples: a measure is a function ``measure(texts) -> float``.

``texts`` are the samples of one question; missing ones (None, blank) are omitted, and the value is NaN if too
few remain. Every measure depends on the number of samples: compare models only at equal n. A module is a measure, or holds
several in ``MEMBERS``.
"""
