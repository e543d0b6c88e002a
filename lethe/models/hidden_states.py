"""Hidden states: the output of one transformer block, before the final norm; later blocks do not run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from lethe.models.encoding import Batch


class _Reached(Exception):
    """The block has run, so the rest of the model need not run."""


def number_of_blocks(model: PreTrainedModel, batch: Batch | None = None) -> int:
    """The number of transformer blocks; without a list of blocks, the number of hidden states on ``batch`` counts."""
    layers = _blocks(model)
    if layers is not None:
        return len(layers)
    if batch is None:
        return int(model.config.get_text_config().num_hidden_layers)
    return len(_states(model, batch)) - 1


def block_output(model: PreTrainedModel, batch: Batch, block: int) -> torch.Tensor:
    """(B, T, D) output of one block at each token: after the block, with the residual.

    The last of transformers' hidden states is the output of the final norm and not of the last block, so the states
    come from the block itself. Without a list of blocks in the model, the states are those that the model returns.
    """
    layers = _blocks(model)
    if layers is None:
        return _states(model, batch)[block + 1]  # entry 0 is the embedding
    outputs: list[torch.Tensor] = []

    def keep(_module: object, _given: object, output: torch.Tensor | tuple[torch.Tensor, ...]) -> None:
        outputs.append(output[0] if isinstance(output, tuple) else output)
        raise _Reached

    hook = layers[block].register_forward_hook(keep)
    try:
        model(input_ids=batch.ids, attention_mask=batch.mask, use_cache=False)
    except _Reached:
        pass
    finally:
        hook.remove()
    return outputs[0]


def _states(model: PreTrainedModel, batch: Batch) -> tuple[torch.Tensor, ...]:
    return model(input_ids=batch.ids, attention_mask=batch.mask, output_hidden_states=True).hidden_states


def _blocks(model: PreTrainedModel) -> torch.nn.ModuleList | None:
    """The model's first module list with as many entries as the configuration has blocks; None if there is none."""
    import torch

    if not isinstance(model, torch.nn.Module):
        return None
    count = model.config.get_text_config().num_hidden_layers
    lists = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList)]
    return next((one for one in lists if len(one) == count), None)
