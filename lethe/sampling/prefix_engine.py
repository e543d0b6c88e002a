"""Shared prefixes: samples of a prompt that agree so far share one row of the model's batch.

The draws stay independent: each sample follows its own row of a random table by inverse transform, and a row is
forked when its samples diverge. Sharing saves only arithmetic that many rows would repeat, so a more confident model
saves more.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from lethe.errors import LetheError
from lethe.io.artifacts import GREEDY
from lethe.models.in_memory import Source
from lethe.sampling.adaptive_temperature import check_numbers
from lethe.sampling.draws import draw, random_table, weigh
from lethe.sampling.engine import Answers, CannotOpen, Options, Prompt, Settings, check_prompts
from lethe.sampling.frontier import Branch, Frontier, Leaf, Running
from lethe.sampling.loading import checkpoint, load

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel
    from transformers.cache_utils import Cache

logger = logging.getLogger(__name__)

# On a CPU, matrix products use different kernels, with different last bits, for few rows than for many. So do
# elementwise functions for the last numbers that do not fill a vector. Multiples of sixteen rows avoid both.
ROWS_ON_CPU = 16
WEIGHTS_AT_ONCE = 1 << 24  # entries of a (rows, vocabulary) block of the draws: 128 MiB in float64
PREFILL_ROWS = 64


class PrefixEngine:
    """Samples several prompts at once if that cannot change a bit of any result, else one prompt at a time."""

    name = "prefix"
    in_memory = True

    def __init__(self, source: Source, options: Options):
        self.checkpoint, self.max_rows = checkpoint(source, options), options.max_rows
        self.forward = Forward(load(self.checkpoint, options))
        if not self.forward.keeps_keys():
            raise CannotOpen(str(source), self.name, "the model keeps no key-value cache", "transformers")
        on_gpu = self.forward.device.type != "cpu"
        # A GPU gives no bitwise guarantee anyway, so prompts share batches there for speed.
        self.together = on_gpu or self.forward.rows_are_independent()
        if not self.together:
            logger.info(
                "prefix engine: rows of a batch change each other's last bits, so prompts run one at a time"
            )

    def answer(self, prompts: Sequence[Prompt], settings: Settings) -> Iterator[Answers]:
        check_prompts(prompts, settings, self.checkpoint.context, self.checkpoint.vocabulary)
        yield from Decoding(self, prompts, settings).run()


class Forward:
    """Calls of the model with a row cache."""

    def __init__(self, model: PreTrainedModel):
        import inspect

        self.model, self.device = model, model.device
        self.vocabulary = int(model.get_input_embeddings().num_embeddings)  # type: ignore[arg-type]  # torch types it as any attribute
        self.multiple = ROWS_ON_CPU if model.device.type == "cpu" else 1
        accepts = inspect.signature(self.model.forward).parameters
        self.rows = 0  # that went through `step` so far
        self.last_only = {"logits_to_keep": 1} if "logits_to_keep" in accepts else {}

    def prefill(self, tokens: np.ndarray) -> Cache:
        """Keys and values of whole rows: (rows, length) of equally long prefixes."""
        import torch
        from transformers.cache_utils import Cache, DynamicLayer

        cache = Cache(layer_class_to_replicate=DynamicLayer)
        ids = torch.from_numpy(tokens).to(self.device)
        self.model(input_ids=ids, past_key_values=cache, use_cache=True, **self.last_only)
        return cache

    def step(self, tokens: np.ndarray, cache: Cache) -> torch.Tensor:
        """Append one token (rows,) to each row of the cache; returns float32 logits (rows, vocabulary)."""
        import torch

        self.rows += len(tokens)
        ids = torch.zeros(-(-len(tokens) // self.multiple) * self.multiple, 1, dtype=torch.long)
        ids[: len(tokens), 0] = torch.from_numpy(tokens)
        logits = self.model(input_ids=ids.to(self.device), past_key_values=cache, use_cache=True).logits
        return logits[: len(tokens), -1].float()

    def keeps_keys(self) -> bool:
        """Whether the model keeps all its state in keys and values, layer by layer."""
        import torch
        from transformers.cache_utils import DynamicLayer

        try:
            with torch.inference_mode():
                cache = self.prefill(np.zeros((1, 2), np.int64))
        except (AttributeError, TypeError, ValueError, NotImplementedError):
            return False  # the model requested another kind of state from the cache
        return len(cache.layers) > 0 and all(
            isinstance(layer, DynamicLayer) and layer.get_seq_length() == 2 for layer in cache.layers
        )

    def rows_are_independent(self) -> bool:
        """Whether a row's result is bit-identical in batches of any size; tested with the model itself."""
        import torch

        from lethe.sampling.row_cache import RowCache

        random = np.random.default_rng(0)
        rows, length = 48, 4
        prefixes = random.integers(self.vocabulary, size=(rows, length))
        tokens = random.integers(self.vocabulary, size=rows)

        def results(chosen: np.ndarray) -> list[torch.Tensor]:
            cache = RowCache(length + 1)
            for slot, row in enumerate(chosen):
                cache.fill(slot, prefills[row])
            cache.set_length(length)
            logits = self.step(tokens[chosen], cache)
            last = cache.layers[-1]
            return [logits, last.keys[: len(chosen), :, length], last.values[: len(chosen), :, length]]

        batches = [np.arange(start, start + count) for start, count in [(0, 1), (3, 16), (7, 17), (1, 33)]]
        with torch.inference_mode():
            prefills = [self.prefill(prefix[None]) for prefix in prefixes]
            whole = results(np.arange(rows))
            return all(
                torch.equal(part, all_rows[torch.from_numpy(batch)])
                for batch in [*batches, random.permutation(rows)]
                for part, all_rows in zip(results(batch), whole, strict=True)
            )


class Decoding:
    """One call of `answer`: prompts wait until the running rows reach their length, then join."""

    def __init__(self, engine: PrefixEngine, prompts: Sequence[Prompt], settings: Settings):
        self.engine, self.prompts, self.settings = engine, prompts, settings
        self.forward, self.checkpoint = engine.forward, engine.checkpoint
        self.max_rows = engine.max_rows
        self.frontier = Frontier(self.checkpoint.end_ids, settings.max_new_tokens, self.forward.vocabulary)
        self.pending = [self._whole(index) for index in range(len(prompts))]
        self.unfinished = [len(branch.number) for branch in self.pending]
        self.leaves: list[list[Leaf]] = [[] for _ in prompts]
        # The forecast: the largest rows per sample of finished branches; a quarter until one is finished.
        self.done_rows, self.done_samples = 0.25, 1

    def _whole(self, index: int) -> Branch:
        prompt = self.prompts[index]
        number = np.arange(-self.settings.greedy, self.settings.of(prompt).n)
        tokens = np.array([prompt.token_ids], np.int64)
        return Branch(index, tokens, np.zeros(1), number, np.zeros(len(number), np.int64))

    def run(self) -> Iterator[Answers]:
        import torch

        from lethe.sampling.row_cache import RowCache

        self.cache = RowCache(
            max(map(len, (prompt.token_ids for prompt in self.prompts)), default=0) + self.settings.max_new_tokens
        )
        while self.pending or len(self.frontier):
            try:
                with torch.inference_mode():
                    self._join()
                    self._step()
                exhausted = None
            except (torch.OutOfMemoryError, RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                exhausted = str(error) or type(error).__name__
            if exhausted:
                self._halve(exhausted)
            yield from self._finished()

    def _join(self) -> None:
        """Start the branches that are as long as the running rows, while the forecast leaves rows."""
        if not len(self.frontier):
            self.frontier.clear(min(branch.length for branch in self.pending))
        for branch in [branch for branch in self.pending if branch.length == self.frontier.length]:
            if len(self.frontier) and not self._fits(branch):
                break
            for start in range(0, len(branch.tokens), PREFILL_ROWS) if branch.length > 1 else ():
                tokens = branch.tokens[start : start + PREFILL_ROWS, :-1]
                self.cache.fill(len(self.frontier) + start, self.forward.prefill(tokens))
            prompt = self.prompts[branch.prompt]
            stream = self.settings.stream(prompt.prompt_id)
            table = random_table(stream, self.settings.of(prompt).n, self.settings.max_new_tokens)
            table = np.concatenate([table, np.zeros((1, self.settings.max_new_tokens), np.int64)])[branch.number]
            self.frontier.join(branch, len(prompt.token_ids), table)
            self.pending.remove(branch)

    def _fits(self, branch: Branch) -> bool:
        """Whether the forecast rows suffice for one more branch; if not, the youngest branch must yield."""
        forecast = self._forecast(branch)
        for key, running in self.frontier.running.items():
            rows = int(np.count_nonzero(self.frontier.owner == key))
            past_its_peak = rows < running.most_rows
            forecast += rows if past_its_peak else max(rows, self._forecast(running.start))
        return self.engine.together and forecast <= self.max_rows

    def _forecast(self, branch: Branch) -> int:
        return max(len(branch.tokens), int(len(branch.number) * self.done_rows / self.done_samples))

    def _step(self) -> None:
        frontier = self.frontier
        self.cache.set_length(frontier.length - 1)
        logits = self.forward.step(frontier.tokens[:, -1], self.cache)
        top, drawn = self._draw(logits)
        forced = frontier.number == GREEDY
        if self.settings.adaptive_threshold is not None:
            mean = (frontier.confidence + top) / (frontier.steps_done() + 1)
            forced |= (mean > self.settings.adaptive_threshold)[frontier.row]
        rows, of_sample = np.unique(frontier.row[forced], return_inverse=True)
        drawn[forced] = logits[to_device(rows, logits.device)].argmax(-1).cpu().numpy()[of_sample]
        frontier.grow(top, drawn)
        self._relieve()
        sources, targets = frontier.settle()
        if len(targets):
            moves = (to_device(slots, logits.device) for slots in (sources, targets))
            self.cache.copy(len(frontier), *moves)

    def _draw(self, logits: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Each row's top probability, and each sample's drawn token."""
        import torch

        rows, draws, settings = self.frontier.row, self.frontier.draws(), self.settings
        block = max(1, WEIGHTS_AT_ONCE // logits.shape[1])
        drawn, tops = np.empty(len(rows), np.int64), []
        for start in range(0, len(logits), block):
            part = logits[start : start + block]
            top, weights = weigh(part, settings.temperature, settings.top_k, settings.top_p)
            check_numbers(top)
            own = np.flatnonzero((rows >= start) & (rows < start + block))
            row, column = (to_device(values, logits.device) for values in (rows[own] - start, draws[own]))
            drawn[own] = draw(weights, row, column).cpu().numpy()
            tops.append(top)
        return torch.cat(tops).double().cpu().numpy(), drawn

    def _relieve(self) -> None:
        """Keep the live rows within bounds; neither way changes a draw.

        A branch that is too wide by itself is split, whatever else runs, and its parts restart, so its bits depend only on
        its prompt. Then the youngest branches yield to the older ones.
        """
        frontier = self.frontier
        for key in list(frontier.running):
            if np.count_nonzero(frontier.owner == key) > self.max_rows:
                done, parts = frontier.split(key, max(1, self.max_rows // 2))
                self._keep_leaves(done)
                self.pending += parts
        while len(frontier) > self.max_rows:
            self.pending.append(frontier.abandon(max(frontier.running)))

    def _halve(self, message: str) -> None:
        rows = min(len(self.frontier), self.max_rows)
        if rows <= 1:
            raise LetheError(f"Out of memory with a single live row: {message}")
        self.max_rows = rows // 2
        logger.warning("out of memory with %d live rows: continuing with at most %d", rows, self.max_rows)
        self.pending += [self.frontier.abandon(key) for key in list(self.frontier.running)]
        self.cache.layers.clear()
        gc.collect()
        if self.forward.device.type == "cuda":
            import torch

            torch.cuda.empty_cache()

    def _finished(self) -> Iterator[Answers]:
        for running in self.frontier.finished():
            self.done_rows += running.most_rows
            self.done_samples += len(running.start.number)
            self._keep_leaves(running)
            if not self.unfinished[running.start.prompt]:
                yield self._answers(running.start.prompt)

    def _keep_leaves(self, running: Running) -> None:
        self.leaves[running.start.prompt] += running.leaves
        self.unfinished[running.start.prompt] -= sum(len(leaf.number) for leaf in running.leaves)

    def _answers(self, prompt: int) -> Answers:
        leaves, numbers = self.leaves[prompt], self.settings.of(self.prompts[prompt]).sample_numbers()
        self.leaves[prompt] = []
        of_sample = np.empty(len(numbers), np.int64)
        for index, leaf in enumerate(leaves):
            of_sample[leaf.number + self.settings.greedy] = index
        # An answer shared by many samples is decoded once.
        texts = self.checkpoint.tokenizer.batch_decode(
            [list(leaf.tokens) for leaf in leaves], skip_special_tokens=True
        )
        return Answers(
            self.prompts[prompt].prompt_id,
            numbers,
            [texts[leaf] for leaf in of_sample],
            [len(leaves[leaf].tokens) for leaf in of_sample],
            ["stop" if leaves[leaf].stopped else "length" for leaf in of_sample],
            [leaves[leaf].mean_confidence for leaf in of_sample],
        )


def to_device(values: np.ndarray, device: torch.device) -> torch.Tensor:
    """``values`` as a tensor on ``device``."""
    import torch

    return torch.from_numpy(values).to(device)


def is_out_of_memory(error: Exception) -> bool:
    """Whether torch or NumPy ran out of memory; on the CPU torch raises a plain RuntimeError."""
    import torch

    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "DefaultCPUAllocator" in str(error)
