"""vLLM: paged attention and continuous batching, for models and machines that are worth its start-up."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from stages.errors import LetheError
from stages.sampling.engine import Answers, Options, Prompt, Settings, check_prompts
from stages.sampling.loading import checkpoint, resolve_device

ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_CPU_KVCACHE_SPACE": "2",  # GiB
    "VLLM_USE_V2_MODEL_RUNNER": "0",  # the second model runner has another interface for logits processors
}
LONGEST_ON_CPU = 4096  # tokens of prompt and answer


class VllmEngine:
    """All answers of a prompt are requests of their own under their own seeds; its tokens are a cached prefix.

    Start it under a main guard: the model runs in a process of its own. On a GPU vLLM is not batch-invariant, so
    there the same seed need not give the same answers.
    """

    name = "vllm"

    def __init__(self, model_folder: Path, options: Options):
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        try:
            from vllm import LLM
        except ImportError as error:
            raise LetheError(
                f"Engine vllm is not installed ({error}): install the extra gpu or cpu, or take engine: prefix."
            ) from error
        from stages.sampling.vllm_adaptive import AdaptiveTemperature

        self.checkpoint, self.max_rows = checkpoint(model_folder), options.max_rows
        on_cpu = resolve_device(options.device).type == "cpu"
        dtype = "float32" if options.dtype == "auto" and on_cpu else options.dtype
        # On a CPU vLLM 0.32 cannot take back a seeded draw, which it must for a prompt read in parts: read it whole.
        whole_prompts = (
            {"enable_chunked_prefill": False, "max_num_batched_tokens": 2 * LONGEST_ON_CPU} if on_cpu else {}
        )
        longest = min(filter(None, (self.checkpoint.context, LONGEST_ON_CPU if on_cpu else None)), default=None)
        self.llm = LLM(
            model=str(model_folder),
            dtype=dtype,
            generation_config="vllm",  # not the checkpoint's: its sampling habits would change the distribution
            enable_prefix_caching=True,
            enforce_eager=on_cpu,
            max_num_seqs=options.max_rows,
            tensor_parallel_size=options.tensor_parallel,
            logits_processors=[AdaptiveTemperature],
            disable_log_stats=True,
            max_model_len=longest,
            **whole_prompts,
        )

    def answer(self, prompts: Sequence[Prompt], settings: Settings) -> Iterator[Answers]:
        check_prompts(prompts, settings, self.checkpoint.context, self.checkpoint.vocabulary)
        at_once = max(1, 2 * self.max_rows // len(settings.sample_numbers()))
        for start in range(0, len(prompts), at_once):
            yield from self._answer(prompts[start : start + at_once], settings)

    def _answer(self, prompts: Sequence[Prompt], settings: Settings) -> Iterator[Answers]:
        from vllm import TokensPrompt

        requests = [request for prompt in prompts for request in self._requests(prompt, settings)]
        outputs = self.llm.generate(
            [TokensPrompt(prompt_token_ids=list(prompt.token_ids)) for prompt, _ in requests],
            [params for _, params in requests],
            use_tqdm=False,
        )
        completions = {prompt.prompt_id: [] for prompt in prompts}
        for (prompt, _), output in zip(requests, outputs, strict=True):
            completions[prompt.prompt_id] += sorted(output.outputs, key=lambda completion: completion.index)
        for prompt in prompts:
            yield self._answers(prompt, settings, completions[prompt.prompt_id])

    def _requests(self, prompt: Prompt, settings: Settings) -> Iterator[tuple[Prompt, object]]:
        """The greedy request, if any, then one for all samples, to which vLLM gives consecutive seeds."""
        from vllm import SamplingParams

        from stages.sampling.vllm_adaptive import THRESHOLD

        common = {
            "max_tokens": settings.max_new_tokens,
            "ignore_eos": True,  # the tokenizer's; what ends an answer is the same in all engines
            "stop_token_ids": list(self.checkpoint.end_ids),
            "logprobs": 1,
            "flat_logprobs": True,
            "detokenize": False,
        }
        if settings.greedy:
            yield prompt, SamplingParams(temperature=0, **common)
        if settings.n:
            (seed,) = settings.stream(prompt.prompt_id).generate_state(1, np.uint64)
            adaptive = settings.adaptive_threshold
            yield (
                prompt,
                SamplingParams(
                    n=settings.n,
                    seed=int(seed) % 2**62,
                    temperature=settings.temperature,
                    top_p=settings.top_p,
                    top_k=settings.top_k,
                    extra_args=None if adaptive is None else {THRESHOLD: adaptive},
                    **common,
                ),
            )

    def _answers(self, prompt: Prompt, settings: Settings, completions: list) -> Answers:
        texts: dict[tuple[int, ...], str] = {}
        for tokens in {tuple(completion.token_ids) for completion in completions}:
            texts[tokens] = self.checkpoint.tokenizer.decode(tokens, skip_special_tokens=True)
        return Answers(
            prompt.prompt_id,
            settings.sample_numbers(),
            [texts[tuple(completion.token_ids)] for completion in completions],
            [len(completion.token_ids) for completion in completions],
            [completion.finish_reason for completion in completions],
            [mean_top_probability(completion.logprobs) for completion in completions],
        )


def mean_top_probability(logprobs) -> float:
    """Of each step vLLM gives the drawn token's raw log probability and the largest one."""
    steps = zip(logprobs.start_indices, logprobs.end_indices, strict=True)
    return math.fsum(math.exp(max(logprobs.logprobs[start:end])) for start, end in steps) / len(logprobs)
