"""Lethe: guarantees on how much a language model still knows of its forget set.

Each public name loads its dependencies at first use, so that ``import lethe`` is fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lethe.api import audit
    from lethe.api.bounding import bounds, label
    from lethe.api.certificates import certify, verify
    from lethe.api.evaluating import evaluate
    from lethe.api.exact_bounds import exact
    from lethe.api.extraction import extract
    from lethe.api.logs import read_log, score
    from lethe.api.planning import plan
    from lethe.api.runs import compare, load_run
    from lethe.api.sampling import sample
    from lethe.registry import register

__version__ = "0.1.0"

# name -> "module" or "module:attribute"
_PUBLIC = {
    "audit": "lethe.api.audit",
    "bounds": "lethe.api.bounding:bounds",
    "certify": "lethe.api.certificates:certify",
    "compare": "lethe.api.runs:compare",
    "evaluate": "lethe.api.evaluating:evaluate",
    "exact": "lethe.api.exact_bounds:exact",
    "extract": "lethe.api.extraction:extract",
    "label": "lethe.api.bounding:label",
    "load_run": "lethe.api.runs:load_run",
    "plan": "lethe.api.planning:plan",
    "read_log": "lethe.api.logs:read_log",
    "register": "lethe.registry:register",
    "sample": "lethe.api.sampling:sample",
    "score": "lethe.api.logs:score",
    "verify": "lethe.api.certificates:verify",
}

__all__ = [
    "__version__",
    "audit",
    "bounds",
    "certify",
    "compare",
    "evaluate",
    "exact",
    "extract",
    "label",
    "load_run",
    "plan",
    "read_log",
    "register",
    "sample",
    "score",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _PUBLIC[name].partition(":")
    loaded = importlib.import_module(module)
    value = getattr(loaded, attribute) if attribute else loaded
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
