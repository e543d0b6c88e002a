"""Published cases of unlearning losses, evaluated through the protocol: `python -m tests.lethe.unlearning.oracles FILE`.

A case holds logits and hidden states; models that return just these replace the model and the model before unlearning, so
that the product's code runs: masks, reductions, weights, the retain term, the dual step.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
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
        self.leaves: dict[str, torch.Tensor] = {}
        for name in ("logits", "hidden"):
            if prefix + name in batch:
                values = torch.tensor(batch[prefix + name], dtype=torch.float64)
                self.leaves[name] = values.requires_grad_(not prefix)

    def __call__(self, **_: Any) -> SimpleNamespace:
        hidden_states = [None, self.leaves.get("hidden")]
        return SimpleNamespace(logits=self.leaves.get("logits"), hidden_states=hidden_states)


def rows_of(batch: dict[str, Any], second: StepRows | None = None) -> StepRows:
    encoded = TokenBatch(
        torch.tensor(batch["input_ids"]),
        torch.tensor(batch["attention_mask"]),
        torch.tensor(batch["labels"]),
    )
    before = None
    if any(key.startswith("reference_") for key in batch):
        before = Frozen(Canned(batch, "reference_"))
    return StepRows(Canned(batch), encoded, before, second=second)


@dataclass(frozen=True)
class Evaluation:
    """What the product's code has for a case, under the case's names; gradients by input."""

    total: float
    parts: dict[str, float | None]
    gradients: dict[str, torch.Tensor | None]


def params_of(parameters: dict[str, Any]) -> dict[str, Any]:
    """The case's parameters as those of params.yaml."""
    params = {}
    for key, value in parameters.items():
        if value is not None:
            params[KEYS.get(key, key)] = value
    if "retain_loss" in params:
        params["retain_loss"] = params["retain_loss"].lower()
    return params


def evaluate(case: dict[str, Any]) -> Evaluation:
    inputs = case["inputs"]
    parameters = dict(case["parameters"])
    published_name = case["method"]
    entropy = None
    if published_name == "EntropyOptimisation":
        published_name = parameters.pop("base")
        entropy = Entropy(forget=parameters.pop("lambda_f"), retain=parameters.pop("lambda_r"))

    name = NAMES[published_name]
    entry = {"loss": name, "lr": 1e-5, "epochs": 1, **params_of(parameters)}
    method = METHODS[name](METHODS[name].Params.model_validate(entry))
    if "unit_vector" in inputs:
        method.direction = torch.tensor(inputs["unit_vector"], dtype=torch.float64)
    second = rows_of(inputs["alternate"]) if "alternate" in inputs else None
    forget = rows_of(inputs.get("forget", inputs.get("alternate")), second)
    retain = rows_of(inputs["retain"]) if "retain" in inputs else None
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

    gradients = {}
    for place, rows in (("forget", forget), ("alternate", second), ("retain", retain)):
        if rows is None:
            continue
        for leaf, tensor in rows.model.leaves.items():
            gradients[f"{place}.{leaf}"] = tensor.grad
    return Evaluation(numbers["loss"], parts, gradients)


def faults(case: dict[str, Any]) -> Iterator[str]:
    """Where the product's code disagrees with the case."""
    found = evaluate(case)
    expected = {"total": case["expected"], **case["expected_parts"]}
    expected.pop("base", None)
    values = {"total": found.total, **found.parts}
    for key, wanted in expected.items():
        if not abs(values[key] - wanted) <= TOLERANCE * max(1.0, abs(wanted)):
            yield f"{case['id']}: {key} is {values[key]}, expected {wanted}"

    for key, rows in case.get("gradient", {}).items():
        wanted = torch.tensor(rows, dtype=torch.float64)
        gradient = found.gradients[key]
        if gradient is None:
            gradient = torch.zeros_like(wanted)
        error = float((gradient - wanted).abs().max())
        if not error <= TOLERANCE * max(1.0, float(wanted.abs().max())):
            yield f"{case['id']}: the gradient of {key} is off by {error}"


def is_known(case: dict[str, Any]) -> bool:
    """Whether the method of the case is in the registry."""
    return NAMES.get(case["parameters"].get("base", case["method"])) in METHODS


def main(path: str) -> int:
    cases = json.loads(Path(path).read_text(encoding="utf-8"))
    known = [case for case in cases if is_known(case)]
    found: list[str] = []
    for case in known:
        found += faults(case)
    for fault in found:
        print(fault)
    print(
        f"{len(known)} of {len(cases)} cases have a method in the registry; {len(found)} values are wrong"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
