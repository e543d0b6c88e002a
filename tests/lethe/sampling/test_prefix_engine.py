"""The prefix engine, its rows and its frontier against naive twins: every sample alone, without cache."""

import logging
import types
from collections import Counter

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from lethe.errors import BadFile, LetheError
from lethe.sampling import prefix_engine
from lethe.sampling.draws import BITS, random_table
from lethe.sampling.engine import Options, Prompt, Settings, open_engine
from lethe.sampling.forecast import rows_within
from lethe.sampling.predictor import ModelPredictor, RowCache, RowLayer
from lethe.sampling.prefix_engine import Frontier, PrefixBatch
from tests.cases import cases, read_cases
from tests.lethe.sampling.sampling_models import (
    as_text,
    build_tokenizer,
    chi_square_p_value,
    exact_probabilities,
    step_probabilities,
)

LETTERS = "abcdefghijklmnopqrstuvwxyz"
END = len(LETTERS)
PROMPTS = [
    Prompt("q1", (0,)),
    Prompt("q3", (2, 1, 0)),
    Prompt("r3", (5, 5, 5)),
    Prompt("q8", (0, 1, 2, 3, 4, 5, 6, 7)),
]


def naive_texts(model, prompt: Prompt, settings: Settings) -> list[str]:
    """One plain forward pass per token and sample; the token is where the cumulated share exceeds the draw."""
    table = (
        random_table(settings.stream(prompt.prompt_id), settings.n, settings.max_new_tokens)
        / 2**BITS
    )
    known: dict[tuple[int, ...], np.ndarray] = {}

    def logits(tokens: tuple[int, ...]) -> np.ndarray:
        if tokens not in known:
            with torch.inference_mode():
                known[tokens] = model(torch.tensor([tokens])).logits[0, -1].double().numpy()
        return known[tokens]

    texts = []
    for sample in range(-settings.greedy, settings.n):
        tokens = prompt.token_ids
        confidence = 0.0
        for step in range(settings.max_new_tokens):
            scores = logits(tokens)
            confidence += step_probabilities(scores, 1, 1, 0).max()
            threshold = settings.adaptive_threshold
            if sample < 0 or (threshold is not None and confidence / (step + 1) > threshold):
                token = int(scores.argmax())
            else:
                shares = step_probabilities(
                    scores, settings.temperature, settings.top_p, settings.top_k
                ).cumsum()
                token = int(np.searchsorted(shares, table[sample, step] * shares[-1], side="right"))
            tokens = (*tokens, token)
            if token == END:
                break
        texts.append(
            "".join(LETTERS[token] for token in tokens[len(prompt.token_ids) :] if token != END)
        )
    return texts


def model_of(folder):
    return AutoModelForCausalLM.from_pretrained(folder).eval()


@pytest.fixture(scope="module")
def engine(sure_model):
    return open_engine("prefix", sure_model)


@pytest.mark.parametrize("greedy", [True, False])
def test_single_answers_are_what_they_are_among_all(engine, greedy):
    settings = Settings(n=300, max_new_tokens=6, seed=4, greedy=greedy)
    places = (299, 0, 127, 128, 130, 257)
    (whole,) = engine.answer([Prompt("q", (0, 3, 1))], settings)

    (single,) = engine.answer([Prompt("q", (0, 3, 1), only=places)], settings)

    text_of = dict(zip(whole.samples, whole.texts, strict=True))
    assert list(single.samples) == [-1] * greedy + sorted(places)
    assert list(single.texts) == [text_of[number] for number in single.samples]


def test_an_engine_that_draws_no_single_answers_says_so(sure_model):
    other = open_engine("transformers", sure_model)
    settings = Settings(n=4, max_new_tokens=2, greedy=False)

    with pytest.raises(ValueError, match="single answers"):
        list(other.answer([Prompt("q", (0, 3, 1), only=(2,))], settings))


@cases
def test_every_sample_is_what_it_would_be_alone(engine, sure_model, way, monkeypatch):
    monkeypatch.setattr(prefix_engine, "WEIGHTS_AT_ONCE", 90)  # three rows at once
    settings = Settings(**{"n": 25, "max_new_tokens": 6, "seed": 4, **way})
    model = model_of(sure_model)
    for answers in engine.answer(PROMPTS, settings):
        (prompt,) = [prompt for prompt in PROMPTS if prompt.prompt_id == answers.prompt_id]
        assert answers.texts == naive_texts(model, prompt, settings)


# Parents' slots all the same: a slot that nothing filled yet holds whatever its memory held.
@pytest.mark.parametrize(
    "wrong", [lambda sources: sources[::-1].copy(), lambda sources: 0 * sources]
)
def test_a_wrong_parent_row_is_caught(monkeypatch, tiny_model, wrong):
    """The mutation of the sharing: a forked row gets another prefix's keys, and the chi-square test sees it."""
    settings = Settings(n=20000, max_new_tokens=4, seed=5, greedy=False)
    copy = RowCache.copy
    engine = open_engine("prefix", tiny_model)
    law = exact_probabilities(tiny_model, (0, 3, 1), 4)
    exact = {(as_text(answer, "abcde"), len(answer)): chance for answer, chance in law.items()}

    def p_value() -> float:
        (answers,) = engine.answer([Prompt("p", (0, 3, 1))], settings)
        return chi_square_p_value(Counter(zip(answers.texts, answers.tokens, strict=True)), exact)

    assert p_value() > 1e-3
    monkeypatch.setattr(
        RowCache,
        "copy",
        lambda cache, rows, sources, targets: copy(cache, rows, wrong(sources), targets),
    )
    assert p_value() < 1e-9


@pytest.fixture
def rows_seen(monkeypatch):
    """The number of live rows of every step."""
    seen = []
    step = prefix_engine.RowModel.step

    def watched(self, tokens, cache):
        seen.append(len(tokens))
        return step(self, tokens, cache)

    monkeypatch.setattr(prefix_engine.RowModel, "step", watched)
    return seen


@pytest.mark.parametrize("limit", [3, 30])
def test_a_limit_on_live_rows_is_kept_and_changes_no_answer(engine, sure_model, rows_seen, limit):
    settings = Settings(n=60, max_new_tokens=6, seed=4)
    free = sorted(engine.answer(PROMPTS, settings), key=lambda answers: answers.prompt_id)
    assert max(rows_seen) > 60
    bounded = open_engine("prefix", sure_model, Options(max_rows=limit))
    rows_seen.clear()
    held = sorted(bounded.answer(PROMPTS, settings), key=lambda answers: answers.prompt_id)
    assert max(rows_seen) <= limit
    assert [answers.texts for answers in held] == [answers.texts for answers in free]
    for limited, other in zip(held, free, strict=True):
        assert limited.mean_confidences == pytest.approx(other.mean_confidences, abs=1e-5)


def test_batches_that_are_not_whole_sixteens_are_found_out(engine, monkeypatch):
    """The trial at the start has power: with an odd number of rows the last bits do change."""
    assert engine.forward.rows_are_independent()
    monkeypatch.setattr(engine.forward, "multiple", 1)
    assert not engine.forward.rows_are_independent()


@pytest.fixture
def failing(monkeypatch):
    """Makes every step of more than some rows fail."""
    step = prefix_engine.RowModel.step

    def of(error, most=0):
        def small(self, tokens, cache):
            if len(tokens) > most:
                raise error
            return step(self, tokens, cache)

        monkeypatch.setattr(prefix_engine.RowModel, "step", small)

    return of


NO_MEMORY = torch.OutOfMemoryError("CUDA out of memory")


@pytest.mark.parametrize(
    "error", [NO_MEMORY, RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_out_of_memory_halves_the_live_rows_and_goes_on(engine, failing, caplog, error):
    settings = Settings(n=60, max_new_tokens=6, seed=4)
    free = {answers.prompt_id: answers.texts for answers in engine.answer(PROMPTS, settings)}
    failing(error, most=20)
    with caplog.at_level(logging.WARNING):
        assert {
            answers.prompt_id: answers.texts for answers in engine.answer(PROMPTS, settings)
        } == free
    assert "out of memory" in caplog.text
    assert "continuing with at most" in caplog.text


@pytest.mark.parametrize(
    ("error", "raised", "word"),
    [
        (NO_MEMORY, LetheError, "single live row"),
        (RuntimeError("shapes do not fit"), RuntimeError, "shapes"),
    ],
)
def test_no_memory_for_a_single_row_and_other_errors_end_the_run(
    engine, failing, error, raised, word
):
    failing(error)
    with pytest.raises(raised, match=word):
        list(engine.answer(PROMPTS, Settings(n=5, max_new_tokens=3)))


SMALL = read_cases(__file__)["SMALL"]
FAMILIES = read_cases(__file__)["FAMILIES"]


def build(family: str, folder, **changes):
    build_tokenizer(folder, LETTERS)
    config = getattr(transformers, f"{family}Config")(**{**SMALL, **changes})
    config.architectures = None
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = transformers.AutoModelForCausalLM.from_config(config)
        for weight in model.parameters():
            if weight.dim() > 1:
                torch.nn.init.normal_(weight, std=0.25)
    model.save_pretrained(folder)
    return folder


@pytest.mark.seconds
@pytest.mark.parametrize("family", FAMILIES)
def test_any_causal_model_with_a_key_value_cache(family, tmp_path):
    """Learned, rotary and ALiBi positions, grouped heads, sliding windows: the twin knows none of them."""
    folder = build(family, tmp_path, **FAMILIES[family])
    settings = Settings(n=12, max_new_tokens=7, seed=2)
    answers = {
        answers.prompt_id: answers.texts
        for answers in open_engine("prefix", folder).answer(PROMPTS, settings)
    }
    model = model_of(folder)
    for prompt in PROMPTS:
        assert answers[prompt.prompt_id] == naive_texts(model, prompt, settings)
    assert len(set(answers["q8"])) > 5
    assert rows_within(1, folder, 15, "auto") > 1


def test_a_model_without_a_key_value_cache_is_refused_and_auto_takes_another_engine(tmp_path):
    folder = build("Mamba", tmp_path, state_size=4, num_heads=2)
    with pytest.raises(BadFile, match=r"no key-value cache.*--engine transformers"):
        open_engine("prefix", folder)
    engine = open_engine("auto", folder)
    assert engine.name == "transformers"
    assert "key-value cache" in engine.reason
    (answers,) = engine.answer(PROMPTS[:1], Settings(n=2, max_new_tokens=3))
    assert len(answers.texts) == 3


@pytest.mark.parametrize("kind", ["prefix", "transformers"])
def test_a_row_takes_the_bytes_of_its_format(tiny_model, kind):
    whole, half = (
        open_engine(kind, tiny_model, Options(dtype=dtype)).checkpoint
        for dtype in ("auto", "bfloat16")
    )
    assert (
        whole.row_bytes(9) - whole.row_bytes(0) == 2 * (half.row_bytes(9) - half.row_bytes(0)) > 0
    )


class Away(torch.Tensor):
    """Memory that says it is a GPU's."""

    device = types.SimpleNamespace(type="cuda")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("length", [0, 1, 7])
@pytest.mark.parametrize("kind", [torch.Tensor, Away])
def test_a_copy_is_a_loop_over_the_rows(dtype, length, kind):
    rows = 9
    heads = 2
    positions = 7
    size = 3
    keys, values = torch.randn(2, rows, heads, positions, size).to(dtype)
    layer = RowLayer(positions)
    layer.fill(0, keys, values)
    layer.length = length
    layer.keys = layer.keys.as_subclass(kind)
    layer.values = layer.values.as_subclass(kind)
    sources, targets = torch.tensor([0, 3, 3, 8]), torch.tensor([1, 2, 7, 5])
    layer.copy(rows, sources, targets)
    for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
        keys[target, :, :length] = keys[source, :, :length]
        values[target, :, :length] = values[source, :, :length]
    assert torch.equal(layer.keys[:rows], keys)
    assert torch.equal(layer.values[:rows], values)


def test_kept_buffers_change_no_bit(tiny_model):
    """Prompts of several lengths, one after the other, in the buffers of the first and in buffers of their own."""
    kept = ModelPredictor(tiny_model, memory=40_000)
    random = np.random.default_rng(0)
    buffers = []
    room = []
    for length in (9, 4, 6, 1, 14):
        fresh = ModelPredictor(tiny_model, memory=40_000)
        prefixes = random.integers(5, size=(3, length))
        parents = np.array([0, 0, 1, 1, 1, 2])
        tokens = random.integers(5, size=6)
        for predictor in (kept, fresh):
            predictor.begin(prefixes, length + 3)
        first = [predictor.step(prefixes[:, -1]) for predictor in (kept, fresh)]
        orders = [predictor.fork(parents) for predictor in (kept, fresh)]
        second = [predictor.step(tokens) for predictor in (kept, fresh)]
        assert np.array_equal(*first)
        assert np.array_equal(*orders)
        assert np.array_equal(*second)
        buffers.append(kept.cache)
        room.append((kept.most_rows(), fresh.most_rows()))
    assert len({id(buffer) for buffer in buffers}) < len(buffers)  # some were kept
    assert all(
        reused == other for reused, other in room
    )  # the rows that fit do not depend on what came before
    assert isinstance(kept.cache, RowCache)


STOP = 3
VOCABULARY = 4
STEPS = 6


def start(prompt: int, tokens: list[int], samples: int) -> PrefixBatch:
    return PrefixBatch(
        prompt,
        np.array([tokens]),
        np.zeros(1),
        np.arange(-1, samples),
        np.zeros(samples + 1, dtype=np.int64),
    )


class Twin:
    """What the engine does around the frontier, with each slot's cache spelt out as the tokens it stands for."""

    def __init__(self, seed: int):
        self.random = np.random.default_rng(seed)
        self.frontier = Frontier((STOP,), STEPS, VOCABULARY)
        self.slots: dict[int, tuple[int, ...]] = {}
        self.drawn: dict[
            tuple[int, int], list[int]
        ] = {}  # (prompt, sample) -> its tokens, the prompt's included
        self.waiting: list[PrefixBatch] = []
        self.leaves: dict[int, list] = {}
        self.lengths: dict[int, int] = {}

    def add(self, prompt: int, tokens: list[int], samples: int) -> None:
        self.waiting.append(start(prompt, tokens, samples))
        self.lengths[prompt] = len(tokens)
        self.leaves[prompt] = []

    def join(self) -> None:
        frontier = self.frontier
        if not len(frontier):
            frontier.clear(min(branch.length for branch in self.waiting))
        for branch in [branch for branch in self.waiting if branch.length == frontier.length]:
            self.waiting.remove(branch)
            for row, number in zip(branch.row, branch.number, strict=True):
                self.drawn[branch.prompt, number] = branch.tokens[row].tolist()
            for slot, row in enumerate(branch.tokens, start=len(frontier)):
                self.slots[slot] = tuple(row[:-1])
            table = np.zeros((len(branch.number), STEPS), np.int64)
            table[:] = branch.number[:, None] * 100 + np.arange(STEPS)
            frontier.join(branch, self.lengths[branch.prompt], table)

    def step(self) -> None:
        frontier = self.frontier
        for slot in range(len(frontier)):  # the model writes one position behind each row
            assert self.slots[slot] == tuple(frontier.tokens[slot, :-1])
            self.slots[slot] = tuple(frontier.tokens[slot])
        prompts = {key: running.start.prompt for key, running in frontier.running.items()}
        owners = [prompts[key] for key in frontier.owner[frontier.row]]
        steps = frontier.steps_done()[frontier.row]
        assert np.array_equal(frontier.draws(), frontier.number * 100 + steps)
        tokens = self.random.integers(VOCABULARY, size=len(frontier.row))
        for prompt, number, row, token in zip(
            owners, frontier.number, frontier.row, tokens, strict=True
        ):
            assert self.drawn[prompt, number] == frontier.tokens[row].tolist()
            self.drawn[prompt, number].append(int(token))
        frontier.grow(np.full(len(frontier), 0.5), tokens)

    def settle(self) -> None:
        sources, targets = self.frontier.settle()
        assert not set(sources) & set(targets)
        self.slots.update(
            {target: self.slots[source] for source, target in zip(sources, targets, strict=True)}
        )
        for running in self.frontier.finished():
            self.leaves[running.start.prompt] += running.leaves


@settings(max_examples=80)
@given(seed=st.integers(0, 2**32 - 1), disturb=st.booleans())
def test_every_sample_ends_with_the_tokens_it_drew(seed, disturb):
    twin = Twin(seed)
    for prompt, (length, samples) in enumerate([(2, 12), (2, 1), (4, 30), (9, 5)]):
        twin.add(prompt, [prompt] * length, samples)
    while twin.waiting or len(twin.frontier):
        twin.join()
        twin.step()
        if disturb and twin.frontier.running and len(twin.frontier) > 1:
            key = twin.random.choice(list(twin.frontier.running))
            if twin.random.random() < 0.1:
                twin.waiting.append(twin.frontier.abandon(key))
            elif np.count_nonzero(twin.frontier.owner == key) > 1 and twin.random.random() < 0.2:
                done, parts = twin.frontier.split(key, 2)
                twin.leaves[done.start.prompt] += done.leaves
                twin.waiting += parts
        assert len(
            {
                (*row, owner)
                for row, owner in zip(twin.frontier.tokens, twin.frontier.owner, strict=True)
            }
        ) == len(twin.frontier)
        twin.settle()
    for prompt, samples in enumerate([12, 1, 30, 5]):
        leaves = twin.leaves[prompt]
        assert sorted(np.concatenate([leaf.number for leaf in leaves])) == list(range(-1, samples))
        assert len({leaf.tokens for leaf in leaves}) == len(leaves) or disturb
        for leaf in leaves:
            assert leaf.mean_confidence == 0.5
            assert leaf.stopped == (leaf.tokens[-1] == STOP)
            assert leaf.stopped or len(leaf.tokens) == STEPS
            assert STOP not in leaf.tokens[:-1]
            for number in leaf.number:
                assert twin.drawn[prompt, number][twin.lengths[prompt] :] == list(leaf.tokens)
