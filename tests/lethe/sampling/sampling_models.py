"""Model folders for the tests, and exact arithmetic on them."""

from pathlib import Path

import numpy as np

END = "."
ROWS = [  # questions to a model whose tokens are the letters a to e
    {"id": "one", "question": "ab", "answer": "d", "keywords": ["edbb", "d"]},
    {"id": "two", "question": "c", "answer": "ae", "keywords": ["ae"]},
    {"id": "bare", "question": "d", "answer": "cb"},
]


def build_tokenizer(folder: Path, letters: str) -> None:
    """Letters are tokens 0, 1, ...; the last token ends an answer and pads."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {letter: number for number, letter in enumerate(letters + END)}
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token=END))
    raw.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    raw.decoder = decoders.Fuse()
    PreTrainedTokenizerFast(tokenizer_object=raw, eos_token=END, pad_token=END).save_pretrained(
        folder
    )


def build_llama(folder: Path, letters: str, scale: float, seed: int = 0, **changes) -> Path:
    """A random Llama whose logits have a standard deviation of about ``scale``."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    build_tokenizer(folder, letters)
    shape = {
        "vocab_size": len(letters) + 1,
        "hidden_size": 64,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,  # of 32 numbers: vLLM's attention on the CPU takes no smaller ones
        "num_key_value_heads": 1,
        "max_position_embeddings": 128,
        "bos_token_id": None,
        "eos_token_id": len(letters),
        "pad_token_id": len(letters),
        "initializer_range": 0.5,
    }
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(LlamaConfig(**{**shape, **changes}))
        torch.nn.init.normal_(model.lm_head.weight, std=scale / model.config.hidden_size**0.5)
    model.save_pretrained(folder)
    return folder


def every_answer(
    logits_of, prompt, length, end, temperature=1.0, top_p=1.0, top_k=0, adaptive_threshold=None
):
    """The probability of every answer of up to ``length`` tokens: the definition of each cut written out."""
    answers = {}
    open_prefixes = {(): (1.0, 0.0)}
    for step in range(1, length + 1):
        grown = {}
        for prefix, (mass, confidence) in open_prefixes.items():
            logits = logits_of(prompt + prefix).astype(np.float64)
            confidence_now = confidence + step_probabilities(logits, 1, 1, 0).max()
            chances = step_probabilities(logits, temperature, top_p, top_k)
            if adaptive_threshold is not None and confidence_now / step > adaptive_threshold:
                chances = (logits == logits.max()).astype(float)
            for token in np.flatnonzero(chances).tolist():
                if token == end or step == length:
                    answers[*prefix, token] = mass * chances[token]
                else:
                    grown[*prefix, token] = (mass * chances[token], confidence_now)
        open_prefixes = grown
    return answers


def exact_probabilities(
    folder: Path, prompt: tuple[int, ...], length: int, threshold=None, **cuts
) -> dict:
    """`every_answer` of a model by plain forward passes: the naive twin of all engines."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()

    def logits_of(tokens: tuple[int, ...]) -> np.ndarray:
        with torch.inference_mode():
            return model(torch.tensor([tokens])).logits[0, -1].numpy()

    return every_answer(
        logits_of, prompt, length, model.config.eos_token_id, adaptive_threshold=threshold, **cuts
    )


def step_probabilities(logits: np.ndarray, temperature=1.0, top_p=1.0, top_k=0) -> np.ndarray:
    """Temperature, then top-k, then the smallest set of most likely tokens whose mass reaches top_p."""
    chances = np.exp((logits - logits.max()) / temperature)
    order = np.argsort(-chances)
    if top_k:
        chances[order[top_k:]] = 0
    chances /= chances.sum()
    before = np.concatenate([[0.0], np.cumsum(chances[order])[:-1]])
    chances[order[before >= top_p]] = 0
    return chances / chances.sum()


def chi_square_p_value(counts: dict, probabilities: dict) -> float:
    """P-value of counts against exact probabilities; answers expected fewer than 5 times share one cell.

    An answer of probability 0 that was drawn all the same gives 0.
    """
    from scipy.special import chdtrc

    if set(counts) - set(probabilities):
        return 0.0
    n = sum(counts.values())
    expected = np.array([n * chance for chance in probabilities.values()])
    observed = np.array([counts.get(answer, 0) for answer in probabilities])
    rare = expected < 5
    expected = np.append(expected[~rare], expected[rare].sum())
    observed = np.append(observed[~rare], observed[rare].sum())
    kept = expected > 0
    statistic = ((observed - expected)[kept] ** 2 / expected[kept]).sum()
    return float(chdtrc(kept.sum() - 1, statistic))


def as_text(answer: tuple[int, ...], letters: str) -> str:
    return "".join(letters[token] for token in answer if token < len(letters))
