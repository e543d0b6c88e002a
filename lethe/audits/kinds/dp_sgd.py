"""A one-run audit of DP-SGD: canaries in gradient space, guessed from the gradients that training
releases.

A Dirac canary is a row whose gradient has a single nonzero coordinate, which no other row shares.
Fair coins add about half of the canaries to the training rows. The auditor sees the noisy sum of
gradients of every step (the white-box setting of "Tight Privacy Audit in One Run") and guesses each
canary from the privacy loss of its coordinate over all steps. The coordinates are weights of inputs
that are 0 for every image, so the gradients of images never touch them: of padding pixels in the
dense network, of padding features in the convolutional one. Each canary therefore has an
independent channel, exactly that of DP-SGD with this rate, noise and number of steps. Neither the
optimiser nor the network changes this channel, for the auditor sees the gradients.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field

from lethe.audits import AuditResult
from lethe.audits.kinds.guesses import OneRunParams, audited, dp_sgd
from lethe.config.fields import Count, Integer, Positive, Real
from lethe.data.images import load
from lethe.errors import BadValue
from lethe.models.checkpoints import prepare_torch
from lethe.models.dp_sgd import make_private, spent
from lethe.models.training import Losses
from lethe.progress import progress
from lethe.statistics.one_run.counts import Guesses

if TYPE_CHECKING:
    from torch import Tensor, nn


class Params(OneRunParams):
    """The entry of a one-run audit of DP-SGD.

    Attributes
    ----------
    images, points
        The data, and how many images of it; null: all.
    canaries
        The number of canaries, of which about half are trained on.
    hidden
        The units of the last hidden layer.
    network, optimiser, lr
        What is trained, and how.
    q, steps
        The probability that a row is in a batch, and the number of batches.
    noise_multiplier, clip
        The standard deviation of the noise in clipping norms, and the clipping norm.
    delta
        Of the privacy guarantee.
    fault
        What the implementation does wrong, so that the audit has something to detect.
    independent
        Whether the canaries' channels are independent, as they are here: each has its own coordinate.
    """

    kind: Literal["dp_sgd"]
    images: Literal["digits", "fashion_mnist", "cifar10"]
    points: Count | None
    canaries: Annotated[Integer, Field(ge=2)]
    hidden: Count
    network: Literal["dense", "convolutional"] = "dense"
    optimiser: Literal["sgd", "adam"] = "sgd"
    q: Annotated[Real, Field(gt=0, le=1)]
    steps: Count
    noise_multiplier: Positive
    clip: Positive
    lr: Positive
    delta: Annotated[Real, Field(gt=0, lt=1)]
    fault: Literal["none", "half_noise", "no_clipping"]
    independent: bool = True

    @property
    def folder(self) -> str | None:
        """The folder of images; None for the digits, which come with scikit-learn."""
        return None if self.images == "digits" else self.source


def audit(settings: Params) -> AuditResult:
    """Train once and guess. The sampling rate and the number of steps decide the family of nulls."""
    claimed = spent(settings.noise_multiplier, settings.delta, settings.q, settings.steps)
    family = dp_sgd(settings.q, settings.steps, settings.delta)
    return audited(train_and_guess(settings), family, claimed, settings)


PADDING = 4  # pixels on each side of an image
LONGER = 10.0  # norm of a canary's gradient before clipping, in clipping norms: clipping must shorten the gradient


def train_and_guess(settings: Params) -> Guesses:
    """Train with the canaries, and guess each from the gradients that every step releases.

    A canary that is in the batch adds 1 to its coordinate of the noisy sum, in clipping norms. The score is the privacy
    loss, the logarithm of the likelihood with the canary over that without: a step adds
    ln(1 + q (exp((x - 1/2) / sigma^2) - 1)) for a released value x. Its sign is the guess, and its size the confidence.
    """
    import torch
    from torch.nn.functional import cross_entropy

    prepare_torch()
    bits, rows, network, weight, places = _setting(settings)
    optimisers = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}
    private, optimiser, loader = make_private(
        network.train(),
        optimisers[settings.optimiser](network.parameters(), lr=settings.lr),
        rows,
        sample_rate=settings.q,
        seed=settings.seed,
        steps=settings.steps,
        **_as_implemented(settings),
    )

    loss = torch.zeros(settings.canaries, dtype=torch.float64)
    of_steps = Losses("training with canaries", settings.steps, settings.lr)
    for step, (images, labels, canary) in enumerate(
        progress(loader, of_steps.run, "steps", settings.steps)
    ):
        optimiser.zero_grad(set_to_none=True)
        mean = cross_entropy(private(images), labels)
        if len(labels):  # the mean of an empty batch is not a number
            of_steps.add(step, float(mean.detach()))
        mean.backward()
        _put_canaries(network, weight, places, canary, LONGER * settings.clip)
        optimiser.step()

        # What the step releases is the noisy sum over the expected batch size.
        assert weight.grad is not None
        at_canaries = weight.grad.flatten()[places].double()
        released = at_canaries * optimiser.expected_batch_size / settings.clip
        exponent = (released - 0.5) / settings.noise_multiplier**2
        loss += torch.log1p(settings.q * torch.expm1(exponent))

    of_steps.check(network.parameters())
    score = loss.numpy()
    return Guesses(bits, (score > 0).astype(np.int8), np.abs(score))


def _setting(
    settings: Params,
) -> tuple[np.ndarray, tuple[Tensor, ...], nn.Sequential, nn.Parameter, Tensor]:
    """Return the canaries' bits, the training rows (image, label, canary or -1), the network, its
    weight with the canaries, and each canary's coordinate of the flat weight.
    """
    import torch
    from torch.nn.functional import pad

    rng = np.random.default_rng(settings.seed)
    images = load(settings.images, settings.folder, settings.points, 0.0, settings.seed)
    pixels = pad(torch.from_numpy(images.pixels).float() / images.white, (PADDING,) * 4)

    torch.manual_seed(settings.seed)
    networks = {"dense": _dense, "convolutional": _convolutional}
    network, weight, free = networks[settings.network](settings, pixels[:1], images.classes)
    picked = rng.permutation(len(free))[: settings.canaries]
    places = free[torch.from_numpy(picked)]

    # The canaries that are trained on are black images of class 0; their gradients are replaced.
    bits = rng.integers(0, 2, settings.canaries, dtype=np.int8)
    inside = torch.from_numpy(np.flatnonzero(bits))
    rows = (
        torch.cat([pixels, torch.zeros(len(inside), *pixels.shape[1:])]),
        torch.cat([torch.from_numpy(images.labels), torch.zeros(len(inside), dtype=torch.int64)]),
        torch.cat([torch.full((len(images),), -1), inside]),
    )
    return bits, rows, network, weight, places


def _dense(
    settings: Params, image: Tensor, classes: int
) -> tuple[nn.Sequential, nn.Parameter, Tensor]:
    """Return a network of one hidden layer, its first weight, and the flat coordinates of padding pixels there."""
    import torch
    from torch import nn

    network = nn.Sequential(
        nn.Flatten(),
        nn.Linear(image.numel(), settings.hidden),
        nn.ReLU(),
        nn.Linear(settings.hidden, classes),
    )
    dead = torch.ones(image.shape[1:], dtype=torch.bool)
    dead[:, PADDING:-PADDING, PADDING:-PADDING] = False
    free = dead.flatten().repeat(settings.hidden).nonzero().flatten()
    if settings.canaries > len(free):
        raise BadValue(
            "canaries",
            settings.canaries,
            f"at most {len(free)} with {settings.hidden} hidden units",
        )
    return network, network[1].get_parameter("weight"), free


def _convolutional(
    settings: Params, image: Tensor, classes: int
) -> tuple[nn.Sequential, nn.Parameter, Tensor]:
    """Return a network of two convolutions, its last weight, and the flat coordinates of features there that are always 0."""
    import torch
    from torch import nn

    features = nn.Sequential(
        nn.Conv2d(len(image[0]), 16, kernel_size=8, stride=2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, stride=1),
        nn.Conv2d(16, 32, kernel_size=4, stride=2),
        nn.ReLU(),
        nn.MaxPool2d(2, stride=1),
        nn.Flatten(),
    )
    always_zero = math.ceil(settings.canaries / classes)
    last = nn.Linear(settings.hidden + always_zero, classes)
    network = nn.Sequential(
        *features,
        nn.Linear(features(image).shape[1], settings.hidden),
        nn.ReLU(),
        nn.ConstantPad1d((0, always_zero), 0.0),
        last,
    )
    coordinates = torch.arange(last.weight.numel()).view(classes, -1)
    return network, last.get_parameter("weight"), coordinates[:, settings.hidden :].flatten()


def _put_canaries(
    network: nn.Module,
    weight: Tensor,
    places: Tensor,
    canary: Tensor,
    size: float,
) -> None:
    """Replace the gradient of each canary's row by one of a single coordinate and of norm ``size``;
    Opacus gives every parameter the attribute ``grad_sample``.
    """
    mine = canary >= 0
    for parameter in network.parameters():
        vars(parameter)["grad_sample"][mine] = 0.0
    flat = vars(weight)["grad_sample"].view(len(canary), -1)
    flat[mine.nonzero().flatten(), places[canary[mine]]] = size


def _as_implemented(settings: Params) -> dict[str, float]:
    """Return the noise and clipping of the implementation under audit: correct, or with the fault
    to detect.
    """
    noise, clip = settings.noise_multiplier, settings.clip
    if settings.fault == "half_noise":
        noise /= 2
    if settings.fault == "no_clipping":  # the noise is as claimed, the gradients keep their length
        noise = noise / 1e6
        clip = clip * 1e6
    return {"noise_multiplier": noise, "clip": clip}
