"""DP-SGD by Opacus: Poisson batches, clipped per-row gradients, Gaussian noise; and its cost in epsilon.

Seeded generators draw the batches and the noise, so reruns agree. A model for release would need secret randomness.
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import TYPE_CHECKING

from lethe.errors import BadInput, LibraryChanged

if TYPE_CHECKING:
    from opacus import GradSampleModule
    from opacus.data_loader import DPDataLoader
    from opacus.optimizers import DPOptimizer
    from torch import Tensor
    from torch.nn import Module
    from torch.optim import Optimizer

# Any choice of orders is a valid bound; large budgets need orders near 1, small budgets need large orders.
RENYI_ORDERS = (1.01, 1.02, 1.05, 1.1, 1.2, 1.35, 1.5, 1.75, *range(2, 65), 80, 128, 256)


def make_private(
    model: Module,
    optimiser: Optimizer,
    rows: tuple[Tensor, ...],
    *,
    sample_rate: float,
    noise_multiplier: float,
    clip: float,
    seed: int,
    steps: int | None = None,
) -> tuple[GradSampleModule, DPOptimizer, DPDataLoader]:
    """Drop-in replacements for an ordinary loop (Abadi et al., "Deep Learning with Differential Privacy", 2016, Algorithm
    1). After training, ``model.remove_hooks()`` restores the original model with its trained weights."""
    import torch
    from opacus import GradSampleModule
    from opacus.data_loader import DPDataLoader
    from opacus.optimizers import DPOptimizer
    from opacus.validators import ModuleValidator
    from torch.utils.data import TensorDataset

    warnings.filterwarnings("ignore", message="Full backward hook")
    if faults := ModuleValidator.validate(model):
        raise BadInput(f"DP-SGD needs layers that process each row independently: {faults[0]}")
    data = TensorDataset(*rows)
    drawn = torch.Generator().manual_seed(seed)
    noise = torch.Generator(next(model.parameters()).device).manual_seed(seed + 1)
    loader = DPDataLoader(data, sample_rate=sample_rate, generator=drawn)
    if steps is not None:
        # Batches per pass, which Opacus derives from the sampling rate and offers no option for.
        if not hasattr(loader.batch_sampler, "steps"):
            missing = AttributeError("batch_sampler.steps")
            raise LibraryChanged("opacus", "the number of batches of a loader", missing)
        loader.batch_sampler.steps = steps
    private = DPOptimizer(
        optimiser,
        noise_multiplier=noise_multiplier,
        max_grad_norm=clip,
        expected_batch_size=max(1, int(len(data) * sample_rate)),
        generator=noise,
    )
    return GradSampleModule(model), private, loader


@lru_cache
def noise_multiplier(epsilon: float, delta: float, sample_rate: float, steps: int) -> float:
    """The noise multiplier that keeps Poisson batches within (epsilon, delta), by Rényi accounting; cached, as it is slow."""
    from opacus.accountants.utils import get_noise_multiplier

    warnings.filterwarnings("ignore", message="Optimal order")
    return get_noise_multiplier(
        target_epsilon=epsilon,
        target_delta=delta,
        sample_rate=sample_rate,
        steps=steps,
        accountant="rdp",
        epsilon_tolerance=0.001 * epsilon,
        alphas=RENYI_ORDERS,
    )


def spent(noise_multiplier: float, delta: float, sample_rate: float, steps: int) -> float:
    """An upper bound on the epsilon of Poisson batches at ``delta``, by Opacus's numerical (PRV) accountant: Gopi et
    al., "Numerical Composition of Differential Privacy" (2021)."""
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.history = [(noise_multiplier, sample_rate, steps)]
    return float(accountant.get_epsilon(delta))
