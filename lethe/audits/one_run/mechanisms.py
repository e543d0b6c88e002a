"""The mechanisms of the one-run audit and the parameters of each. No other module lists them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Mechanism = Literal["gaussian", "laplace", "approx-dp", "subsampled-gaussian", "dp-sgd"]
MECHANISMS: tuple[Mechanism, ...] = get_args(Mechanism)
TRADEOFF = "tradeoff"  # one null, from a file, in place of a mechanism's family
NEEDS: dict[str, tuple[str, ...]] = {"subsampled-gaussian": ("q",), "dp-sgd": ("q", "steps")}
MAY_HAVE: dict[str, tuple[str, ...]] = {"approx-dp": ("delta0",)}


@dataclass(frozen=True)
class Misfit:
    """A missing parameter of a mechanism (``lacking``), or a parameter that the mechanism does not take."""

    name: str
    lacking: bool
    mechanism: str

    @property
    def problem(self) -> str:
        return f"the mechanism {self.mechanism} {'needs it' if self.lacking else 'takes none'}."

    def __str__(self) -> str:
        return f"{self.name}: {self.problem}"


def misfit(mechanism: str, **given: float | None) -> Misfit | None:
    """Return the first parameter that ``mechanism`` lacks or does not take; None where all fit."""
    needed = NEEDS.get(mechanism, ())
    taken = (*needed, *MAY_HAVE.get(mechanism, ()))
    for name, value in given.items():
        if (value is None and name in needed) or (value is not None and name not in taken):
            return Misfit(name, value is None, mechanism)
    return None
