"""Lethe: guarantees on how much a language model still knows of its forget set.

Each public name loads its dependencies at first use, so that ``import lethe`` is fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lethe.api import audit as audit
    from lethe.api import twins as twins
    from lethe.api.attesting import attest as attest
    from lethe.api.bounding import bounds as bounds
    from lethe.api.certificates import certify as certify
    from lethe.api.certificates import verify as verify
    from lethe.api.dossiers import dossier as dossier
    from lethe.api.evaluating import evaluate as evaluate
    from lethe.api.evaluating import sample as sample
    from lethe.api.labelling import label as label
    from lethe.api.logs import read_log as read_log
    from lethe.api.logs import score as score
    from lethe.api.planning import plan as plan
    from lethe.api.probabilities import exact as exact
    from lethe.api.probabilities import extract as extract
    from lethe.api.runs import compare as compare
    from lethe.api.runs import load_run as load_run
    from lethe.api.tabling import table as table
    from lethe.registry import register as register

__version__ = "0.1.0"

# module of `lethe.api` -> its public names
_API = {
    "attesting": ("attest",),
    "bounding": ("bounds",),
    "certificates": ("certify", "verify"),
    "dossiers": ("dossier",),
    "evaluating": ("evaluate", "sample"),
    "labelling": ("label",),
    "logs": ("read_log", "score"),
    "planning": ("plan",),
    "probabilities": ("exact", "extract"),
    "runs": ("compare", "load_run"),
    "tabling": ("table",),
}
_PUBLIC = {name: f"lethe.api.{module}:{name}" for module, names in _API.items() for name in names}
_PUBLIC |= {"audit": "lethe.api.audit", "twins": "lethe.api.twins"}
_PUBLIC |= {"register": "lethe.registry:register"}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> object:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _PUBLIC[name].partition(":")
    loaded = importlib.import_module(module)
    value = getattr(loaded, attribute) if attribute else loaded
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
