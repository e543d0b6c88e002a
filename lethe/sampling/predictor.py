"""Next-token logits of many prefixes that grow together, by a transformers model with a key-value cache of rows.

The dynamic cache of transformers is concatenated at every step and gathered as a whole when its rows change. Here the
rows are slots of a buffer: a step writes one position in place, and a fork copies only the forked row.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from transformers.cache_utils import Cache, DynamicLayer

from lethe.errors import of_the_machine
from lethe.models.agreement import EngineStep, agreement, steps_of
from lethe.models.checkpoints import Source, cache_name
from lethe.models.model import Model
from lethe.models.refusals import refusals
from lethe.sampling.engine import NoKeys, Options

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SPARE_ROWS = 16  # rows that may take part in a step before they are filled


class RowLayer(DynamicLayer):
    """One layer of the model: keys and values of every row.

    Attributes
    ----------
    keys, values
        (slots, heads, positions, head size). There are at least as many slots as rows.
    length
        The number of positions that are filled.
    """

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, positions: int):
        super().__init__()
        self.positions = positions
        self.length = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.dtype = key_states.dtype
        self.device = key_states.device
        self.is_initialized = True
        self.keys = self._buffer(key_states)
        self.values = self._buffer(value_states)

    def _buffer(self, states: torch.Tensor) -> torch.Tensor:
        """An empty buffer for states (rows, heads, positions, head size), with few slots as yet."""
        return states.new_zeros(SPARE_ROWS, states.shape[1], self.positions, states.shape[3])

    def reserve(self, rows: int) -> None:
        """Have at least so many slots."""
        if rows > len(self.keys):
            slots = 1 << (rows - 1).bit_length()  # the next power of two: few calls need new memory
            self.keys = grown(self.keys, slots)
            self.values = grown(self.values, slots)

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        *args: object,
        **kwargs: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        rows = key_states.shape[0]
        end = self.length + key_states.shape[2]
        self.reserve(rows)
        self.keys[:rows, :, self.length : end] = key_states
        self.values[:rows, :, self.length : end] = value_states
        self.length = end
        return self.keys[:rows, :, :end], self.values[:rows, :, :end]

    def get_seq_length(self) -> int:
        return self.length

    def copy(self, rows: int, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """Copy the slots ``sources`` to the slots ``targets``, all below ``rows``."""
        self.reserve(rows)
        for buffer in (self.keys, self.values):
            filled = buffer[:, :, : self.length]
            if buffer.device.type == "cpu":  # NumPy copies these rows in a third of torch's time
                moved = filled.view(torch.uint8).numpy()
                moved[targets.numpy()] = moved[sources.numpy()]
            else:
                filled.index_copy_(0, targets, filled.index_select(0, sources))

    def fill(self, slot: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Put rows (rows, heads, positions, head size) into the slots from ``slot`` on."""
        if not self.is_initialized:
            self.lazy_initialization(keys, values)
        rows = keys.shape[0]
        positions = keys.shape[2]
        self.reserve(slot + rows)
        self.keys[slot : slot + rows, :, :positions] = keys
        self.values[slot : slot + rows, :, :positions] = values


def grown(old: torch.Tensor, slots: int) -> torch.Tensor:
    """``old`` extended to ``slots`` slots, the new ones uninitialised."""
    new = old.new_empty(slots, *old.shape[1:])
    new[: len(old)] = old
    return new


class RowCache(Cache):
    """The ``past_key_values`` of a model, with a `RowLayer` for each of its layers.

    Attributes
    ----------
    positions
        The largest number of tokens per row.
    """

    layers: list[RowLayer]  # type: ignore[assignment]  # the base class declares a list of any kind of layer

    def __init__(self, positions: int):
        super().__init__(
            layer_class_to_replicate=partial(RowLayer, positions)  # type: ignore[arg-type]  # it is only called
        )
        self.positions = positions

    def set_length(self, length: int) -> None:
        """Let the next step write behind so many positions, in every layer."""
        for layer in self.layers:
            layer.length = length

    def copy(self, rows: int, sources: np.ndarray, targets: np.ndarray) -> None:
        """Copy the slots ``sources`` to the slots ``targets``, in every layer."""
        if len(targets):
            device = self.layers[0].keys.device
            from_slots = torch.from_numpy(sources).to(device)
            to_slots = torch.from_numpy(targets).to(device)
            for layer in self.layers:
                layer.copy(rows, from_slots, to_slots)

    def fill(self, slot: int, prefilled: Cache) -> None:
        """Put the rows of a cache of transformers into the slots from ``slot`` on.

        Raises
        ------
        TypeError
            If a layer of the cache has no keys and values.
        """
        while len(self.layers) < len(prefilled.layers):
            self.layers.append(RowLayer(self.positions))
        for layer, source in zip(self.layers, prefilled.layers, strict=True):
            if not isinstance(source, DynamicLayer) or source.keys is None or source.values is None:
                raise TypeError(f"{type(source).__name__} has no keys and values")
            layer.fill(slot, source.keys, source.values)


# The most parameters of a model that is copied to float64 to measure its rounding.
FLOAT64_UP_TO = 50_000_000
# Of the buffers, so that they serve prompts of other lengths without being allocated anew.
SPARE_POSITIONS = 8
CONTINUATIONS = 2  # per prompt, on which the error of the logits is measured
MOST_LOGITS = 1 << 25  # that are kept at once, where several prompts are drawn from
SAFETY = 4.0  # the allowance is this multiple of the largest error that was seen
# The smallest allowed error of the logits, used where the measured error is smaller.
LEAST_ALLOWANCE = 1e-5
PREFILL_ROWS = 64
# On a CPU, matrix products use different kernels, with different last bits, for few rows than for many. So do
# elementwise functions for the last numbers that do not fill a vector. Multiples of sixteen rows avoid both.
ROWS_ON_CPU = 16


class RowModel:
    """A causal language model that reads rows of tokens, one token a row with a `RowCache`, or whole prefixes.

    Attributes
    ----------
    vocabulary
        V, the number of tokens that the model has embeddings of.
    multiple
        A step reads a multiple of so many rows.
    rows
        The number of rows that went through `step` so far.
    last_only
        The argument by which the model computes the logits of the last position alone; empty where it has none.
    cache_name
        The argument by which the model takes its cache.
    """

    def __init__(self, model: PreTrainedModel):
        self.model = model
        self.device = model.device
        self.vocabulary = int(model.get_input_embeddings().num_embeddings)  # type: ignore[arg-type]  # torch types it as any attribute
        self.multiple = ROWS_ON_CPU if model.device.type == "cpu" else 1
        self.rows = 0
        accepts = inspect.signature(model.forward).parameters
        self.last_only = {"logits_to_keep": 1} if "logits_to_keep" in accepts else {}
        self.cache_name = cache_name(model)

    def prefill(self, tokens: np.ndarray) -> Cache:
        """The cache after one pass over (rows, length) tokens."""
        cache = Cache(layer_class_to_replicate=DynamicLayer)
        ids = torch.from_numpy(tokens).to(self.device)
        named = {self.cache_name: cache}
        self.model(input_ids=ids, use_cache=True, **named, **self.last_only)
        return cache

    def step(self, tokens: np.ndarray, cache: Cache) -> torch.Tensor:
        """Append one token (rows,) to each row of the cache; returns float32 logits (rows, vocabulary).

        The rows are filled up to a multiple of `multiple` with token 0, whose logits are dropped.
        """
        self.rows += len(tokens)
        n_rows = -(-len(tokens) // self.multiple) * self.multiple
        ids = torch.zeros(n_rows, 1, dtype=torch.long)
        ids[: len(tokens), 0] = torch.from_numpy(tokens)

        named = {self.cache_name: cache}
        read = self.model(input_ids=ids.to(self.device), use_cache=True, **named)
        return read.logits[: len(tokens), -1].float()

    def passed(
        self, tokens: np.ndarray, length: int, model: PreTrainedModel | None = None
    ) -> torch.Tensor:
        """(rows, length, vocabulary) the logits that predict the last ``length`` tokens, in one pass without a cache.

        Parameters
        ----------
        tokens
            (rows, all tokens), of which there are more than ``length``.
        model
            Another model of the same vocabulary, such as a copy in float64; None: this one.
        """
        model = model or self.model
        ids = torch.from_numpy(tokens).to(self.device)
        # The logits of all positions may not fit in memory.
        last = {"logits_to_keep": length + 1} if self.last_only else {}
        with torch.inference_mode():
            logits = model(input_ids=ids, **last).logits
        return logits[:, -length - 1 : -1]

    def keeps_keys(self) -> bool:
        """Whether the model keeps all its state in keys and values, layer by layer."""
        try:
            with torch.inference_mode():
                cache = self.prefill(np.zeros((1, 2), np.int64))
        except Exception as error:
            if of_the_machine(error):
                raise
            return False  # the model requested another kind of state from the cache
        for layer in cache.layers:
            if not isinstance(layer, DynamicLayer) or layer.get_seq_length() != 2:
                return False
        return len(cache.layers) > 0

    def rows_are_independent(self) -> bool:
        """Whether a row's result is bit-identical in batches of any size.

        This is tested with the model itself: a step of random rows, all together and in several smaller batches, must give
        the same logits, keys and values to the last bit. A test can refute independence, not prove it.
        """
        random = np.random.default_rng(0)
        rows = 48
        length = 4
        prefixes = random.integers(self.vocabulary, size=(rows, length))
        tokens = random.integers(self.vocabulary, size=rows)

        def results(chosen: np.ndarray) -> list[torch.Tensor]:
            """The logits, keys and values of the chosen rows after one step of these rows alone."""
            cache = RowCache(length + 1)
            cache.fill(0, prefilled)
            cache.set_length(length)
            cache.copy(rows, chosen, np.arange(len(chosen)))
            logits = self.step(tokens[chosen], cache)
            last = cache.layers[-1]
            keys = last.keys[: len(chosen), :, length]
            values = last.values[: len(chosen), :, length]
            return [logits, keys, values]

        batches = [np.arange(1), np.arange(3, 19), np.arange(7, 24), np.arange(1, 34)]
        batches.append(random.permutation(rows))
        with torch.inference_mode():
            prefilled = self.prefill(prefixes)
            whole = results(np.arange(rows))
            for batch in batches:
                for part, all_rows in zip(results(batch), whole, strict=True):
                    if not torch.equal(part, all_rows[torch.from_numpy(batch)]):
                        return False
        return True


class ModelPredictor:
    """A causal language model with a row cache, as growing trees and reading passages need.

    Parameters
    ----------
    source
        The model, or where it lies.
    options
        The device, the number format and the most rows.
    memory
        The most bytes of a step's rows: keys, values and probabilities.

    Attributes
    ----------
    agreement
        How cached steps compare with whole passes of the same model.

    Raises
    ------
    NoKeys
        If the state of the model is no key-value cache, or cached steps refute that whole passes give the same.
    """

    name = "prefix"

    def __init__(self, source: Source, options: Options | None = None, memory: int = 1 << 30):
        options = options or Options()
        self.checkpoint = Model.of(source, options.device, options.dtype)
        self.forward = RowModel(self.checkpoint.load(options.device, options.dtype))
        if not self.forward.keeps_keys():
            raise NoKeys(source)
        self.vocabulary = self.checkpoint.vocabulary
        self.memory = memory
        self.limit = options.max_rows
        self.dtype = str(self.forward.model.dtype).removeprefix("torch.")
        self._clear()
        self.agreement = agreement(self, source, self.vocabulary, self.checkpoint.context)
        if self.agreement.is_refuted:
            raise NoKeys(source, self.agreement.sentence())
        self._clear()

    def _clear(self) -> None:
        """Have no rows, and no memory for any."""
        self.cache = RowCache(0)
        self.positions = 0
        self.length = 0

    def watched(
        self, prompts: Sequence[tuple[int, ...]], samples: int, tokens: int
    ) -> Iterator[EngineStep]:
        """The steps of rows that part after the first token, as a tree's do, in the order of `fork`."""
        random = np.random.default_rng(0)
        for prompt in prompts:
            prefixes = np.array([prompt])
            self.begin(prefixes, len(prompt) + tokens)
            for _ in range(tokens):
                logits = self.step(prefixes[:, -1])
                yield from steps_of(prefixes, torch.from_numpy(logits))

                parents = np.resize(np.arange(len(prefixes)), samples)
                order = self.fork(parents)
                drawn = random.integers(self.vocabulary, size=(samples, 1))
                children = np.concatenate([prefixes[parents], drawn], axis=1)
                prefixes = children[order]

    def whole_model(self) -> PreTrainedModel:
        return self.forward.model

    def begin(self, prefixes: np.ndarray, positions: int) -> None:
        """Replace all rows by (rows, length) prefixes, which may grow to so many positions.

        The last token of each prefix is left to the first `step`.
        """
        if not positions <= self.cache.positions <= positions + 2 * SPARE_POSITIONS:
            self.cache = RowCache(positions + SPARE_POSITIONS)
        self.positions = positions
        self.length = prefixes.shape[1] - 1
        if self.length:
            with torch.inference_mode():
                for start in range(0, len(prefixes), PREFILL_ROWS):
                    rows = prefixes[start : start + PREFILL_ROWS, :-1]
                    self.cache.fill(start, self.forward.prefill(rows))
        self.cache.set_length(self.length)

    def step(self, tokens: np.ndarray) -> np.ndarray:
        """Append one token (rows,) to each row; returns the logits (rows, V)."""
        with torch.inference_mode():
            self.cache.set_length(self.length)
            logits = self.forward.step(tokens, self.cache)
        self.length += 1
        return logits.cpu().numpy()

    def fork(self, parents: np.ndarray) -> np.ndarray:
        """Make row ``parents[i]`` the i-th new row; returns ``order``: the new row i represents ``parents[order[i]]``."""
        order, sources, targets = slots(parents)
        with torch.inference_mode():
            self.cache.copy(len(parents), sources, targets)
        return order

    def most_rows(self) -> int:
        """The rows whose keys, values and probabilities fit into ``memory``, at most ``limit`` and at least 1."""
        needed = 4 * self.vocabulary  # for logits; derived arrays are computed a few rows at a time
        for layer in self.cache.layers:
            if isinstance(layer, RowLayer) and layer.keys is not None:
                _, heads, _, size = layer.keys.shape
                # Of the buffers' positions only those of these rows count.
                needed += 2 * heads * self.positions * size * layer.keys.element_size()
        return max(1, min(self.limit, self.memory // needed))


def measured_allowance(
    predictor: ModelPredictor, prompts: Sequence[np.ndarray], length: int, seed: int = 0
) -> float:
    """The observed error of the logits times `SAFETY`: measured on continuations that the model itself draws, not proved.

    The error is the largest difference between cached steps and whole passes, for a small model in float32 also whole
    passes in float64. For the first prompt cached steps of one row are compared with those of many rows too.

    Parameters
    ----------
    prompts
        The tokens of each prompt.
    length
        The number of tokens of each continuation.
    seed
        Of the draws of the continuations.

    Returns
    -------
    float
        An allowance for each logit, in nats, at least `LEAST_ALLOWANCE`.

    Raises
    ------
    BadFile
        If the model reads no text as a whole.
    """
    model = predictor.forward.model
    with refusals(str(predictor.checkpoint.source), "cannot read a text as a whole"):
        _read_two(model)
    references = [model]
    if model.dtype == torch.float32 and model.num_parameters() <= FLOAT64_UP_TO:
        doubled = _in_float64(model)
        if doubled is not None:
            references.append(doubled)
    # The numbers that choose each prompt's tokens, in the order of the prompts.
    random = np.random.default_rng(seed)
    chosen_by = random.random((len(prompts), length, CONTINUATIONS))
    errors = []
    for places in _of_equal_length(prompts, length * predictor.vocabulary):
        group = np.repeat([prompts[place] for place in places], CONTINUATIONS, axis=0)
        numbers = np.concatenate([chosen_by[place] for place in places], axis=1)
        continuations, logits_of_many = _drawn(predictor, group, numbers)
        # A row at a time: all logits may not fit in memory in float64.
        for row in range(len(group)):
            tokens = continuations[[row]]
            others = []  # (1, length, V) each
            for reference in references:
                passed = predictor.forward.passed(tokens, length, reference)
                others.append(passed.double().cpu().numpy())
            if places[row // CONTINUATIONS] == 0:
                start = tokens.shape[1] - length
                predictor.begin(tokens[:, :start], tokens.shape[1])
                read = tokens[:, start - 1 : -1]
                steps = [predictor.step(column) for column in read.T]
                others.append(np.stack(steps, axis=1))

            for other in others:
                errors.append(float(np.abs(other - logits_of_many[[row]]).max()))
    return max(LEAST_ALLOWANCE, SAFETY * max(errors))


def _of_equal_length(prompts: Sequence[np.ndarray], logits: int) -> Iterator[list[int]]:
    """The places of prompts that have the same number of tokens, so many as a step reads at the cost of one.

    ``logits``: of each continuation, which are all kept at once.
    """
    most = ROWS_ON_CPU // CONTINUATIONS
    most = max(1, min(most, MOST_LOGITS // (CONTINUATIONS * logits)))
    places_of_length: dict[int, list[int]] = {}
    for place, prompt in enumerate(prompts):
        places_of_length.setdefault(len(prompt), []).append(place)
    for places in places_of_length.values():
        for start in range(0, len(places), most):
            yield places[start : start + most]


def _in_float64(model: PreTrainedModel) -> PreTrainedModel | None:
    """A copy of the model in float64; None where a kernel of the model has no float64, as grouped products of experts."""
    doubled = copy.deepcopy(model).double()
    try:
        _read_two(doubled)
    except (RuntimeError, NotImplementedError) as error:
        if of_the_machine(error):
            raise
        return None
    return doubled


def _read_two(model: PreTrainedModel) -> None:
    """Let the model read two tokens without a cache."""
    with torch.inference_mode():
        model(input_ids=torch.zeros((1, 2), dtype=torch.long, device=model.device))


def _drawn(
    predictor: ModelPredictor, rows: np.ndarray, numbers: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Continuations that the model draws at temperature 1.

    Parameters
    ----------
    rows
        (rows, tokens) of prompts.
    numbers
        (length, rows) uniform in [0, 1), which choose the tokens.

    Returns
    -------
    tuple of numpy.ndarray
        (rows, all tokens) the tokens, those of the prompts included, and (rows, length, vocabulary) the logits of each step.
    """
    predictor.begin(rows, rows.shape[1] + len(numbers))
    tokens = [rows]
    logits: list[np.ndarray] = []
    for numbers_of_step in numbers:
        of_step = predictor.step(tokens[-1][:, -1])
        logits.append(of_step)

        # By inverse transform of the unnormalised distribution function.
        masses = np.exp(of_step - of_step.max(axis=1, keepdims=True))
        heights = masses.cumsum(axis=1)
        thresholds = numbers_of_step[:, None] * heights[:, -1:]
        drawn = (heights <= thresholds).sum(axis=1)
        tokens.append(drawn[:, None])
    return np.concatenate(tokens, axis=1), np.stack(logits, axis=1)


def slots(parents: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where the children of rows go, so that few slots are copied.

    A parent's first child keeps the parent's slot if that is below the number of children. The others take the slots that
    are left.

    Parameters
    ----------
    parents
        (children,) the slot of each child's parent.

    Returns
    -------
    tuple of numpy.ndarray
        ``order`` (children,), the children by slot; ``sources`` and ``targets``, the slots to copy and where to. No slot
        is both source and target.
    """
    children = len(parents)
    _, first = np.unique(parents, return_index=True)
    stays = np.zeros(children, bool)
    stays[first] = True
    stays &= parents < children

    vacant = np.ones(children, bool)
    vacant[parents[stays]] = False
    targets = np.flatnonzero(vacant)
    slot = parents.copy()
    slot[~stays] = targets
    return np.argsort(slot), parents[~stays], targets
