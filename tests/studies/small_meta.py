"""A meta-evaluation of tiny sizes: the preset with few models, little training and few answers."""

from typing import Any

from lethe.config.load import changed_document, read_preset
from studies.commands import PRESETS
from studies.meta_evaluation.workshop import MetaParams, validate
from tests.small import ROOT


def with_preset(name: str) -> dict[str, Any]:
    """The committed params as a preset of the studies changes them."""
    return changed_document(read_preset(PRESETS, name).items(), ROOT / "params.yaml")


def small_document(**changes: object) -> dict[str, Any]:
    """The committed params with the preset meta-authors in tiny sizes; ``changes`` are keys of its section."""
    document: dict[str, Any] = with_preset("meta-authors")
    document["data"] |= {
        "authors": {"count": 20, "heldout": 2, "world_facts": 3},
        "forget": "forget05",
    }
    document["train"]["recipe"] |= {
        "vocabulary": 400,
        "hidden": 32,
        "layers": 1,
        "feed_forward": 64,
        "lr": 1e-2,
    }
    document["sample"] |= {"max_new_tokens": 12}
    for part in (
        document["train"]["recipe"],
        document["sample"],
    ):  # a test works in an empty folder
        part["prompt"] = str(ROOT / part["prompt"])
    document["exact"] |= {"rows": 40}
    section = document["meta_evaluation"]
    section["pool"] |= {
        "knows": {"all": 1, "paraphrased": 1, "part": 1, "other_form": 1},
        "lacks": {"retain": 2, "wrong": 1},
        "utility": 0.0,
        "recipes": [{"epochs": 6, "lr": 1e-2}, {"epochs": 4, "lr": 8e-3}],
    }
    methods = section["unlearned"]["methods"]
    section["unlearned"] |= {"strengths": [1.0, 4.0], "seeds": 1, "utility": 0.0}
    section["unlearned"]["methods"] = {
        name: methods[name] | {"epochs": 1} for name in ("grad_diff", "npo")
    }
    section["predict"] |= {"count": 2, "steps": 2, "n": 8, "draws": 2}
    section |= {"answers": [4, 16], "leak_at": [1, 4, 16], "utility_questions": 4, "bootstrap": 50}
    section["headline"] = [
        "greedy_mean",
        "mean@16",
        "binary_mean@16",
        "tree_lower_mean",
        "forget_probability",
    ]
    section["claims"] = [{"text": "Samples tell more", "better": "mean@16", "than": "greedy_mean"}]
    section |= changes
    return document


def small_params(**changes: object) -> MetaParams:
    """`small_document`, checked."""
    return validate(small_document(**changes), "params.yaml")
