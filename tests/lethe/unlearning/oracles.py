"""Published cases of unlearning losses, evaluated through the protocol: `python -m tests.lethe.unlearning.oracles FILE`.

A case holds logits and hidden states; models that return just these replace the model and the model before unlearning, so
that the product's own code runs: masks, reductions, weights, the retain term, the dual step.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from lethe.config.schema import Entropy
from lethe.models.encoding import TokenBatch
from lethe.registry import METHODS
from lethe.unlearning.loop import with_entropy
from lethe.unlearning.protocol import Frozen, Step, StepRows
from tests.cases import read_cases

# The case's method to the registry's; the case's parameters to those of params.yaml.
NAMES = read_cases(__file__)["NAMES"]
KEYS = {"alpha": "retain_weight"}
TOLERANCE = 1e-5  # the losses are taken in float32


class Canned:
    """A model that gives back what a batch of the case holds."""

    def __init__(self, batch: dict[str, Any], prefix: str = ""):
        self.leaves = {
            name: torch.tensor(batch[prefix + name], dtype=torch.float64, requires_grad=not prefix)
            for name in ("logits", "hidden")
            if prefix + name in batch
        }

    def __call__(self, **_: Any) -> SimpleNamespace:
        return SimpleNamespace(
            logits=self.leaves.get("logits"), hidden_states=[None, self.leaves.get("hidden")]
        )


def rows_of(batch: dict[str, Any], second: StepRows | None = None) -> StepRows:
    encoded = TokenBatch(
        *(torch.tensor(batch[key]) for key in ("input_ids", "attention_mask", "labels"))
    )
    before = (
        Frozen(Canned(batch, "reference_"))
        if any(key.startswith("reference_") for key in batch)
        else None
    )
    return StepRows(Canned(batch), encoded, before, second=second)


def evaluate(case: dict[str, Any]) -> dict[str, Any]:
    """``total``, its ``parts`` under the case's names, and the ``gradient`` by input, as the product's code has them."""
    given, inputs = dict(case["parameters"]), case["inputs"]
    name, entropy = case["method"], None
    if name == "EntropyOptimisation":
        name = given.pop("base")
        entropy = Entropy(forget=given.pop("lambda_f"), retain=given.pop("lambda_r"))
    params = {KEYS.get(key, key): value for key, value in given.items() if value is not None}
    if "retain_loss" in params:
        params["retain_loss"] = params["retain_loss"].lower()
    method_class = METHODS[NAMES[name]]
    method = method_class(
        method_class.Params.model_validate({"loss": NAMES[name], "lr": 1e-5, "epochs": 1, **params})
    )
    second = rows_of(inputs["alternate"]) if "alternate" in inputs else None
    forget = rows_of(inputs.get("forget", inputs.get("alternate")), second)
    retain = rows_of(inputs["retain"]) if "retain" in inputs else None
    if "unit_vector" in inputs:
        method.direction = torch.tensor(inputs["unit_vector"], dtype=torch.float64)
    step = Step(0, 1, 0, forget, retain)
    values = with_entropy(method.loss(step), step, entropy)
    values["loss"].backward()
    numbers = {key: float(value.detach()) for key, value in values.items()}
    method.after_step(step, numbers)
    parts = {"forget": numbers.get("forget_loss"), "retain": numbers.get("retain_loss")}
    if hasattr(method, "dual"):
        parts["dual_after"] = method.dual
    if entropy is not None:
        parts = {key: numbers[key] for key in ("entropy_forget", "entropy_retain")}
    gradient = {
        f"{place}.{leaf}": tensor.grad
        for place, rows in (("forget", forget), ("alternate", second), ("retain", retain))
        if rows is not None
        for leaf, tensor in rows.model.leaves.items()
    }
    return {"total": numbers["loss"], "parts": parts, "gradient": gradient}


def faults(case: dict[str, Any]) -> Iterator[str]:
    """Where the product's code disagrees with the case."""
    found = evaluate(case)
    expected = {"total": case["expected"], **case["expected_parts"]}
    expected.pop("base", None)
    for key, value in expected.items():
        got = found["total"] if key == "total" else found["parts"][key]
        if not abs(got - value) <= TOLERANCE * max(1.0, abs(value)):
            yield f"{case['id']}: {key} is {got}, expected {value}"
    for key, values in case.get("gradient", {}).items():
        wanted = torch.tensor(values, dtype=torch.float64)
        got = found["gradient"][key]
        got = torch.zeros_like(wanted) if got is None else got
        if not (got - wanted).abs().max() <= TOLERANCE * max(1.0, float(wanted.abs().max())):
            yield f"{case['id']}: the gradient of {key} is off by {float((got - wanted).abs().max())}"


def main(path: str) -> int:
    cases = json.loads(Path(path).read_text(encoding="utf-8"))
    known = [
        case
        for case in cases
        if NAMES.get(case["parameters"].get("base", case["method"])) in METHODS
    ]
    found = [fault for case in known for fault in faults(case)]
    print(*found, sep="\n", end="\n" if found else "")
    print(
        f"{len(known)} of {len(cases)} cases have a method in the registry; {len(found)} values are wrong"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
