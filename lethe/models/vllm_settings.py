"""What every use of vLLM in Lethe shares: its environment and its context on the CPU."""

from __future__ import annotations

ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_CPU_KVCACHE_SPACE": "2",  # GiB
}
LONGEST_ON_CPU = 4096  # tokens of prompt and answer
