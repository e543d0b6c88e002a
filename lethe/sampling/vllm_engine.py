"""vLLM: paged attention and continuous batching, for models and machines that justify its start-up time."""

from __future__ import annotations

import math
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing.util import Finalize
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.errors import BadValue, LetheError
from lethe.io.answer_ends import end_of
from lethe.models.agreement import EngineStep
from lethe.models.checkpoints import second_copy
from lethe.models.first_token import LONGEST_ON_CPU, context_in_vllm, prepare_vllm, start_vllm
from lethe.models.model import Model, resolve_device
from lethe.sampling.engine import (
    Answers,
    Options,
    Prompt,
    Settings,
    answers_of,
    asked_to_watch,
    check_prompts,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel
    from vllm import LLM, CompletionOutput, SamplingParams
    from vllm.logprobs import FlatLogprobs

# The least compute capability of a card with vLLM's batch-invariant kernels.
INVARIANT_FROM = (8, 0)
MOST_SEQUENCES = 1024  # concurrent sequences; more bring no gain
STATED = 20  # the most log-probabilities of a step that vLLM gives by default


class VllmEngine:
    """Each answer is one request with its own seed; the prompt's tokens are a cached prefix. Start the engine under a
    main guard, since models may run in other processes.

    ``batch_invariant`` says whether vLLM's kernels give a request the same logits in any batch, so that a seed gives the same
    answers: on GPUs of compute capability 8.0 and above, unless the environment sets VLLM_BATCH_INVARIANT=0, which is faster.
    On other GPUs the same seed need not give the same answers.

    One generator for all answers to a prompt is no option of vLLM 0.32. It makes a generator for each request with a seed,
    the n samples of a request become n requests of consecutive seeds, and the sampler draws the noise of these rows in a
    loop. Rows without a seed share the device's generator, in one draw for the batch, so their answers would depend on
    which requests share a step, and a killed run could not draw them again. So each answer keeps its seed."""

    name = "vllm"
    in_memory = False
    repeatable = False

    def __init__(self, model_folder: Path, options: Options):
        # The second model runner has a different interface for logits processors.
        prepare_vllm("prefix", VLLM_USE_V2_MODEL_RUNNER="0")
        self.checkpoint = Model.of(model_folder, options.device, options.dtype)
        self.options = options
        self.on_cpu = resolve_device(options.device).type == "cpu"
        self.batch_invariant = not self.on_cpu and asks_for_invariance()
        self.context = context_in_vllm(self.checkpoint.context, self.on_cpu, options.room)
        # The model is in this process, or one in each of several others.
        self.model = Replicas(model_folder, options) if options.data_parallel > 1 else self._start()

    def _start(self) -> LLM:
        # vLLM 0.32 cannot revert a seeded draw on the CPU, as reading a prompt in parts requires, so prompts are read whole.
        whole = {"enable_chunked_prefill": False, "max_num_batched_tokens": 2 * LONGEST_ON_CPU}
        shared = {"gpu_memory_utilization": self.options.gpu_memory / self.options.at_once}
        processors: list[type] = []
        if self.options.adaptive:
            from lethe.sampling.vllm_adaptive import AdaptiveTemperature

            processors.append(AdaptiveTemperature)
        llm = start_vllm(
            Path(str(self.checkpoint.source)),
            self.options.dtype,
            self.context,
            self.on_cpu,
            alone=self.options.tensor_parallel == 1,
            generation_config="vllm",  # the checkpoint's generation settings would change the distribution
            max_num_seqs=min(self.options.max_rows, MOST_SEQUENCES),
            tensor_parallel_size=self.options.tensor_parallel,
            logits_processors=processors,
            **(whole if self.on_cpu else shared),
        )
        # An ending process waits for its children before `atexit` handlers run, vLLM's own cleanup among them; this
        # handler runs earlier.
        self.checkpoint = replace(
            self.checkpoint, dtype=str(llm.model_config.dtype).removeprefix("torch.")
        )
        Finalize(None, llm.llm_engine.engine_core.shutdown, exitpriority=1)
        return llm

    def answer(self, prompts: Sequence[Prompt], settings: Settings) -> Iterator[Answers]:
        check_prompts(prompts, settings, self.context, self.checkpoint.vocabulary)
        if settings.adaptive_threshold is not None and not self.options.adaptive:
            raise BadValue(
                "adaptive_threshold",
                settings.adaptive_threshold,
                "null for an engine that was opened without adaptive temperature",
            )
        most = max((len(settings.of(prompt).sample_numbers()) for prompt in prompts), default=1)
        at_once = 2 * MOST_SEQUENCES // most
        at_once = max(1, min(at_once, -(-len(prompts) // self.options.data_parallel)))
        groups = [prompts[start : start + at_once] for start in range(0, len(prompts), at_once)]
        if isinstance(self.model, Replicas):
            yield from self.model.answer(groups, settings)
        else:
            for group in groups:
                yield from self._answer(self.model, group, settings)

    def close(self) -> None:
        """Give the memory back, before another engine takes the model."""
        if isinstance(self.model, Replicas):
            self.model.pool.shutdown()
        else:
            self.model.llm_engine.engine_core.shutdown()

    def watched(
        self, prompts: Sequence[tuple[int, ...]], samples: int, tokens: int
    ) -> Iterator[EngineStep]:
        asked, settings = asked_to_watch(prompts, samples, tokens)
        if isinstance(self.model, Replicas):
            yield from self.model.steps(asked, settings)
        else:
            yield from self.steps(asked, settings)

    def steps(self, prompts: Sequence[Prompt], settings: Settings) -> list[EngineStep]:
        """What the model in this process computes after each prefix of its answers, which no token ends."""
        import torch
        from vllm import SamplingParams, TokensPrompt

        assert not isinstance(self.model, Replicas)
        params = SamplingParams(
            n=settings.n,
            seed=0,
            max_tokens=settings.max_new_tokens,
            ignore_eos=True,
            logprobs=min(STATED, self.checkpoint.vocabulary),
            flat_logprobs=True,
            detokenize=False,
        )
        tokens = [TokensPrompt(prompt_token_ids=list(prompt.token_ids)) for prompt in prompts]
        with torch.random.fork_rng(devices=[]):
            outputs = self.model.generate(tokens, params, use_tqdm=False)
        steps = []
        for prompt, output in zip(prompts, outputs, strict=True):
            for completion in output.outputs:
                drawn = tuple(completion.token_ids)
                stated = stated_probabilities(completion.logprobs, self.checkpoint.vocabulary)
                for place, probabilities in enumerate(stated):
                    steps.append(EngineStep((*prompt.token_ids, *drawn[:place]), probabilities))
        return steps

    def whole_model(self) -> PreTrainedModel | None:
        """The model by transformers, on the CPU; None where it does not fit into the free memory."""
        return second_copy(Path(str(self.checkpoint.source)), self.checkpoint.dtype)

    def _answer(self, llm: LLM, prompts: Sequence[Prompt], settings: Settings) -> Iterator[Answers]:
        import torch
        from vllm import TokensPrompt

        ids: list[str] = []
        tokens: list[TokensPrompt] = []
        requests: list[SamplingParams] = []
        for prompt in prompts:
            for request in self._requests(prompt, settings.of(prompt)):
                ids.append(prompt.prompt_id)
                tokens.append(TokensPrompt(prompt_token_ids=list(prompt.token_ids)))
                requests.append(request)
        with torch.random.fork_rng(devices=[]):  # greedy requests also draw from torch's generator
            outputs = llm.generate(tokens, requests, use_tqdm=False)

        completions: dict[str, list[CompletionOutput]] = {}
        for prompt_id, output in zip(ids, outputs, strict=True):
            ordered = sorted(output.outputs, key=lambda completion: completion.index)
            completions.setdefault(prompt_id, []).extend(ordered)
        for prompt in prompts:
            completed = completions.get(prompt.prompt_id, [])
            yield answers_of(
                self.checkpoint,
                prompt,
                settings.of(prompt).sample_numbers(),
                [tuple(completion.token_ids) for completion in completed],
                [end_of(completion.finish_reason, "") for completion in completed],
                [mean_top_probability(completion.logprobs) for completion in completed],
            )

    def _requests(self, prompt: Prompt, settings: Settings) -> Iterator[SamplingParams]:
        """The greedy request, if any, then one request for each batch, to whose samples vLLM assigns consecutive seeds."""
        from vllm import SamplingParams

        common = {
            "max_tokens": settings.max_new_tokens,
            "ignore_eos": True,  # ignores the tokenizer's end; all engines end answers by the same tokens
            "stop_token_ids": list(self.checkpoint.end_ids),
            "logprobs": 1,
            "flat_logprobs": True,
            "detokenize": False,
        }
        if settings.greedy:
            yield SamplingParams(temperature=0, **common)
        extra_args = None
        if settings.adaptive_threshold is not None:
            from lethe.sampling.vllm_adaptive import THRESHOLD

            extra_args = {THRESHOLD: settings.adaptive_threshold}
        for batch in settings.batches():
            (seed,) = settings.stream(prompt.prompt_id, batch.first).generate_state(1, np.uint64)
            yield SamplingParams(
                n=batch.end - batch.start,
                seed=int(seed) % 2**62 + batch.start,
                temperature=settings.temperature,
                top_p=settings.top_p,
                top_k=settings.top_k,
                extra_args=extra_args,
                **common,
            )


def asks_for_invariance() -> bool:
    """Ask vLLM for its batch-invariant kernels where every visible GPU has them, unless the environment says otherwise.

    Returns whether vLLM will use them.
    """
    import torch

    capabilities = []
    for place in range(torch.cuda.device_count()):
        capabilities.append(torch.cuda.get_device_capability(place))
    if not capabilities or min(capabilities) < INVARIANT_FROM:
        return False
    return os.environ.setdefault("VLLM_BATCH_INVARIANT", "1") != "0"


def stated_probabilities(logprobs: FlatLogprobs, vocabulary: int) -> list[np.ndarray]:
    """The (V,) next-token probabilities of each step, NaN for the tokens that vLLM does not state."""
    steps = []
    for start, end in zip(logprobs.start_indices, logprobs.end_indices, strict=True):
        probabilities = np.full(vocabulary, np.nan)
        probabilities[logprobs.token_ids[start:end]] = np.exp(logprobs.logprobs[start:end])
        steps.append(probabilities)
    return steps


def mean_top_probability(logprobs: FlatLogprobs) -> float:
    """The mean largest probability; vLLM gives the raw log probabilities of the drawn and the likeliest token."""
    confidences = []
    for start, end in zip(logprobs.start_indices, logprobs.end_indices, strict=True):
        confidences.append(math.exp(max(logprobs.logprobs[start:end])))
    return math.fsum(confidences) / len(confidences)


class Replicas:
    """Parallel engines, each in its own process with its share of the GPUs; any may answer a prompt."""

    def __init__(self, model_folder: Path, options: Options):
        context = multiprocessing.get_context("spawn")
        shares = context.Queue()
        for share in device_shares(options):
            shares.put(share)
        self.pool = ProcessPoolExecutor(
            options.data_parallel,
            mp_context=context,
            initializer=start_replica,
            initargs=(model_folder, options.model_copy(update={"data_parallel": 1}), shares),
        )

    def answer(self, groups: Sequence[Sequence[Prompt]], settings: Settings) -> Iterator[Answers]:
        """The answers to groups of prompts, as any replica finishes a group."""
        submitted = [self.pool.submit(replica_answer, group, settings) for group in groups]
        try:
            for done in as_completed(submitted):
                yield from done.result()
        except BrokenProcessPool as error:
            raise LetheError(
                "A vLLM process ended unexpectedly; its output is printed above."
            ) from error

    def steps(self, prompts: Sequence[Prompt], settings: Settings) -> list[EngineStep]:
        """The steps of one replica."""
        return self.pool.submit(replica_steps, prompts, settings).result()


def device_shares(options: Options) -> list[str | None]:
    """The CUDA_VISIBLE_DEVICES of each replica: ``tensor_parallel`` GPUs each; None on a CPU.

    Raises
    ------
    BadValue
        If the replicas need more GPUs than there are.
    """
    import torch

    if resolve_device(options.device).type == "cpu":
        return [None] * options.data_parallel
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible:
        names = visible.split(",")
    else:
        names = list(map(str, range(torch.cuda.device_count())))
    wanted = options.data_parallel * options.tensor_parallel
    if wanted > len(names):
        raise BadValue(
            "tensor_parallel x data_parallel",
            wanted,
            f"at most {len(names)}, the number of available GPUs",
        )
    size = options.tensor_parallel
    return [",".join(names[start : start + size]) for start in range(0, wanted, size)]


_replica: VllmEngine  # the engine that `start_replica` opened in this process


def start_replica(model_folder: Path, options: Options, shares: multiprocessing.Queue) -> None:
    """Open the engine of this process, with the next share of the GPUs."""
    global _replica
    share = shares.get()
    if share is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = share
    _replica = VllmEngine(model_folder, options)


def replica_steps(prompts: Sequence[Prompt], settings: Settings) -> list[EngineStep]:
    """The steps of the engine of this process."""
    return _replica.steps(prompts, settings)


def replica_answer(prompts: Sequence[Prompt], settings: Settings) -> list[Answers]:
    """The answers of the engine of this process."""
    return list(_replica.answer(prompts, settings))
