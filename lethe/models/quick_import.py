"""The import of transformers' models without scikit-learn, which takes a fifth of a stage's start.

transformers imports scikit-learn for one feature of assisted generation, which Lethe never uses. A process of Lethe's own
pretends for the time of the import that scikit-learn is not installed, which the feature allows for. In other processes,
such as a notebook, the import is as transformers has it.
"""

from __future__ import annotations

import sys

from lethe import process

FEATURE = "transformers.generation.candidate_generator"  # every model class imports it


def import_models() -> None:
    """Import the modules of transformers that every model class needs; call it before the import of a model class."""
    if process.owned and not {"sklearn", FEATURE} & set(sys.modules):
        sys.modules["sklearn"] = None  # type: ignore[assignment]  # what Python defines as "cannot be imported"
        try:
            import transformers.generation.candidate_generator  # noqa: F401
        finally:
            del sys.modules["sklearn"]
