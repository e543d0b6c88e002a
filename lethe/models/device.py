"""The device that models work on."""

from __future__ import annotations


def default_device() -> str:
    """The type of the device that models are loaded on: "cuda" where there is a GPU, else "cpu".

    The keys of kept results contain the type, because the same model gives other bits on a GPU, and its dtype ``auto`` is
    another one there.
    """
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
