"""What every engine must do: draw from the exact distribution, give each prompt its own stream, and fit a budget."""

import importlib.machinery
import json
import math
import os
import shutil
import sys
import time
import types
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from lethe.api.evaluating import evaluate
from lethe.config.measuring import MOST_DRAWN
from lethe.errors import BadFile, BadInput, BadValue, LetheError
from lethe.models.model import Model
from lethe.sampling import engine as opening
from lethe.sampling import forecast, vllm_engine
from lethe.sampling.draws import BITS, draw, random_table, weigh
from lethe.sampling.engine import Options, Prompt, Settings, open_engine
from lethe.sampling.forecast import LEAST, MOST, PILOTS, affordable, duration, fitting, rows_within
from lethe.sampling.prefix_engine import PrefixEngine
from lethe.sampling.tasks import SplitTask
from lethe.sampling.vllm_engine import device_shares
from tests.cases import cases, read_cases
from tests.lethe.sampling.sampling_models import (
    as_text,
    chi_square_p_value,
    exact_probabilities,
    step_probabilities,
)

LETTERS = "abcde"
PROMPT = (0, 3, 1)
WAYS = read_cases(__file__)["WAYS"]


def drawn(engine, **way):
    """Answers by their text and end: "a" then the end and "a" at the length limit are different answers."""
    settings = Settings(n=4000, max_new_tokens=4, seed=5, greedy=False, **way)
    (answers,) = engine.answer([Prompt("p", PROMPT)], settings)
    return Counter(zip(answers.texts, answers.finish_reasons, strict=True))


def law(folder, **way):
    exact = exact_probabilities(folder, PROMPT, 4, **way)
    assert sum(exact.values()) == pytest.approx(1)
    return {
        (as_text(answer, LETTERS), "stop" if answer[-1] == 5 else "length"): p
        for answer, p in exact.items()
    }


@pytest.mark.seconds
@pytest.mark.parametrize("way", WAYS)
def test_whole_answers_have_their_exact_probabilities(tiny_engine, way, tiny_model):
    cuts = {name.replace("adaptive_", ""): value for name, value in WAYS[way].items()}
    assert chi_square_p_value(drawn(tiny_engine, **WAYS[way]), law(tiny_model, **cuts)) > 1e-3


@pytest.mark.seconds
def test_an_adaptive_temperature_that_is_off_or_late_is_noticed(tiny_engine, tiny_model):
    """The chi-square test above has power: the neighbouring definitions fail it."""
    answers = drawn(tiny_engine, adaptive_threshold=0.55)
    for threshold in (None, 0.5, 0.6):
        assert chi_square_p_value(answers, law(tiny_model, threshold=threshold)) < 1e-6


def test_the_greedy_answer_comes_first_and_is_the_most_likely_path(tiny_engine, tiny_model):
    settings = Settings(n=3, max_new_tokens=6, temperature=1.5)
    (answers,) = tiny_engine.answer([Prompt("p", PROMPT)], settings)
    assert answers.samples == [-1, 0, 1, 2]
    (path,) = exact_probabilities(tiny_model, PROMPT, 6, top_k=1)
    assert answers.texts[0] == as_text(path, LETTERS)
    assert answers.tokens[0] == len(path)


def test_mean_confidence_is_the_mean_top_probability_at_temperature_one(tiny_engine, tiny_model):
    settings = Settings(n=20, max_new_tokens=6, temperature=1.5, top_p=0.9)
    (answers,) = tiny_engine.answer([Prompt("p", PROMPT)], settings)
    model = AutoModelForCausalLM.from_pretrained(tiny_model)
    for text, count, reason, mean in zip(
        answers.texts, answers.tokens, answers.finish_reasons, answers.mean_confidences, strict=True
    ):
        answer = tuple(LETTERS.index(letter) for letter in text) + (5,) * (reason == "stop")
        assert len(answer) == count
        with torch.inference_mode():
            logits = model(torch.tensor([PROMPT + answer])).logits[0, len(PROMPT) - 1 : -1]
        assert mean == pytest.approx(logits.softmax(-1).amax(-1).mean().item(), abs=1e-5)


def in_order(answers):
    return sorted(answers, key=lambda answered: answered.prompt_id)


def test_answers_do_not_depend_on_the_other_prompts(tiny_engine):
    prompts = [Prompt(f"q{number}", (number, *range(2 + number % 3))) for number in range(5)]
    settings = Settings(n=40, max_new_tokens=12, seed=1)
    together = in_order(tiny_engine.answer(prompts, settings))
    alone = [next(iter(tiny_engine.answer([prompt], settings))) for prompt in reversed(prompts)]
    assert together == alone[::-1]
    assert together == in_order(tiny_engine.answer(prompts[::2] + prompts[1::2], settings))


def test_seeds_prompts_and_batches_have_streams_of_their_own(tiny_engine):
    def texts(prompt_id="q", **changes):
        settings = Settings(**{"n": 30, "max_new_tokens": 8, "seed": 1, "greedy": False, **changes})
        (answers,) = tiny_engine.answer([Prompt(prompt_id, (4, 1))], settings)
        return answers.texts

    assert texts() == texts()
    assert texts() != texts(seed=2)
    assert texts() != texts(prompt_id="r")
    assert texts() != texts(first_sample=30)
    (later,) = tiny_engine.answer(
        [Prompt("q", (4, 1))], Settings(n=2, max_new_tokens=2, first_sample=128)
    )
    assert later.samples == [-1, 128, 129]


def test_a_prompt_may_have_a_number_of_answers_of_its_own(tiny_engine):
    prompts = [Prompt("a", PROMPT, 5), Prompt("b", PROMPT), Prompt("c", (1, 2), 1)]
    settings = Settings(n=2, max_new_tokens=3)
    found = {answers.prompt_id: answers for answers in tiny_engine.answer(prompts, settings)}
    assert [found[name].samples for name in "abc"] == [list(range(-1, n)) for n in (5, 2, 1)]
    (alone,) = tiny_engine.answer([Prompt("a", PROMPT)], Settings(n=5, max_new_tokens=3))
    assert found["a"] == alone
    (greedy,) = tiny_engine.answer([Prompt("a", PROMPT)], Settings(n=0, max_new_tokens=3))
    assert greedy.texts == alone.texts[:1]


def test_the_global_generator_of_torch_is_left_alone(tiny_engine):
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    list(tiny_engine.answer([Prompt("q", (4, 1))], Settings(n=5, max_new_tokens=4)))
    assert torch.equal(torch.rand(2), expected)


@cases
def test_prompts_the_model_cannot_take_are_refused(tiny_engine, prompt, changes, said):
    settings = Settings(**{"n": 1, "max_new_tokens": 2, **changes})
    with pytest.raises(BadInput, match=said):
        list(tiny_engine.answer([Prompt("p", prompt)], settings))


@pytest.mark.parametrize(
    "changes",
    [
        {"n": -1},
        {"temperature": float("nan")},
        {"top_p": 0},
        {"adaptive_threshold": 1.5},
        {"seed": -1},
    ],
)
def test_settings_out_of_range_are_refused(changes):
    with pytest.raises(BadInput, match=next(iter(changes))):
        Settings(**{"n": 1, "max_new_tokens": 1, **changes})


def test_unknown_engines_options_and_folders_are_refused(tmp_path):
    with pytest.raises(BadInput, match="transformers"):
        open_engine("magic", tmp_path)
    with pytest.raises(BadInput, match="max_rows"):
        open_engine("transformers", tmp_path, Options(rows=3))
    with pytest.raises(BadInput, match="at least 1"):
        Options(max_rows=0)
    with pytest.raises(BadFile, match=r"config\.json"):
        open_engine("transformers", tmp_path)


@cases
def test_auto_takes_vllm_for_a_large_model_on_a_gpu_and_says_why(
    monkeypatch, tiny_model, gpu, installed, options, kind, told
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(
        opening.importlib.util, "find_spec", lambda name: object() if installed else None
    )
    chosen, reason = opening.choose(tiny_model, Options(**options))
    assert chosen == kind
    assert told in (reason or "")


@pytest.fixture
def asked_of_vllm(monkeypatch) -> dict:
    """What a stand-in for vLLM is opened with."""
    made: dict = {}

    class LLM:
        def __init__(self, **settings):
            made.update(settings)
            self.llm_engine = types.SimpleNamespace(
                engine_core=types.SimpleNamespace(shutdown=lambda: None)
            )
            self.model_config = types.SimpleNamespace(dtype=torch.float32)

    stand_in = types.ModuleType("vllm")
    stand_in.__spec__ = importlib.machinery.ModuleSpec("vllm", None)
    stand_in.LLM = LLM
    adaptive = types.SimpleNamespace(AdaptiveTemperature=object)
    monkeypatch.setitem(sys.modules, "vllm", stand_in)
    monkeypatch.setitem(sys.modules, "lethe.sampling.vllm_adaptive", adaptive)
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    return made


@pytest.mark.parametrize(("wanted", "alone"), [(1, True), (2, False)])
def test_vllm_divides_one_model_as_the_params_say(asked_of_vllm, tiny_model, wanted, alone):
    vllm_engine.VllmEngine(tiny_model, Options(device="cpu", tensor_parallel=wanted))
    made = asked_of_vllm
    assert (made["tensor_parallel_size"], made["dtype"]) == (wanted, "float32")
    # One process holds the whole model; the parts of a divided one are processes.
    assert (made.get("distributed_executor_backend") == "uni") == alone
    assert (os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0") == alone


def test_vllm_needs_memory_for_the_longest_prompt_and_its_answer_alone(asked_of_vllm, tiny_model):
    vllm_engine.VllmEngine(tiny_model, Options(device="cpu", room=30))
    assert asked_of_vllm["max_model_len"] == 30

    whole = vllm_engine.VllmEngine(tiny_model, Options(device="cpu")).checkpoint.context
    assert asked_of_vllm["max_model_len"] == whole > 30


@pytest.fixture
def two_cards(monkeypatch) -> dict:
    """A machine with two GPUs, of the compute capabilities under their places."""
    capabilities = {0: (9, 0), 1: (9, 0)}
    monkeypatch.setattr(vllm_engine, "resolve_device", lambda device: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda place: capabilities[place])
    # Set and deleted, so that what an engine sets is taken back.
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    monkeypatch.delenv("VLLM_BATCH_INVARIANT")
    return capabilities


def test_models_that_are_open_together_divide_the_share_of_the_memory(
    asked_of_vllm, two_cards, tiny_model
):
    vllm_engine.VllmEngine(tiny_model, Options(device="cpu", gpu_memory=0.6, at_once=3))

    assert asked_of_vllm["gpu_memory_utilization"] == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("capability", "stated", "invariant"),
    [((9, 0), None, True), ((8, 0), None, True), ((7, 5), None, False), ((9, 0), "0", False)],
)
def test_vllm_is_batch_invariant_where_every_card_has_the_kernels_and_nobody_declined(
    asked_of_vllm, two_cards, tiny_model, monkeypatch, capability, stated, invariant
):
    two_cards[1] = capability
    if stated is not None:
        monkeypatch.setenv("VLLM_BATCH_INVARIANT", stated)

    engine = vllm_engine.VllmEngine(tiny_model, Options(device="cpu"))

    assert engine.batch_invariant == invariant
    assert (os.environ.get("VLLM_BATCH_INVARIANT") == "1") == invariant


def test_the_processor_of_adaptive_temperature_is_there_only_for_a_threshold(
    asked_of_vllm, tiny_model
):
    engine = vllm_engine.VllmEngine(tiny_model, Options(device="cpu", adaptive=False))
    assert asked_of_vllm["logits_processors"] == []

    settings = Settings(n=1, max_new_tokens=2, adaptive_threshold=0.9)
    with pytest.raises(BadValue, match="without adaptive temperature"):
        list(engine.answer([Prompt("a", (1, 2))], settings))

    vllm_engine.VllmEngine(tiny_model, Options(device="cpu", adaptive=True))
    assert asked_of_vllm["logits_processors"] == [object]


def test_a_row_of_vllms_batch_keeps_the_confidences_of_its_request(monkeypatch):
    """Requests move, leave the batch and return. Stand-ins for the names of vLLM."""
    module = "lethe.sampling.vllm_adaptive"
    stand_in = types.SimpleNamespace(VllmConfig=object, BatchUpdate=object)
    stand_in.LogitsProcessor = object
    stand_in.MoveDirectionality = types.SimpleNamespace(SWAP="swap")
    for name in ("vllm.config", "vllm.v1.sample.logits_processor", module):
        monkeypatch.setitem(sys.modules, name, stand_in)
    del sys.modules[module]
    processor = importlib.import_module(module).AdaptiveTemperature(
        None, torch.device("cpu"), False
    )

    def forced(*tops, added=(), removed=(), moved=()):
        """The rows that are made greedy in a step with these top probabilities."""
        processor.update_state(types.SimpleNamespace(added=added, removed=removed, moved=moved))
        logits = torch.tensor([[top, 1 - top] for top in tops]).log()
        return processor.apply(logits).isinf().any(1).tolist()

    def request(row, seed, tokens):
        return (
            row,
            types.SimpleNamespace(seed=seed, extra_args={"adaptive_threshold": 0.7}),
            (),
            tokens,
        )

    tokens: list[int] = []
    assert forced(0.9, 0.6, 0.9, added=[request(0, 1, tokens), request(1, 2, [])]) == [
        True,
        False,
        False,
    ]
    tokens.append(0)
    assert forced(0.9, 0.6, moved=[(0, 1, "swap")]) == [True, True]
    assert forced(0.9, 0.65, removed=[1]) == [True, False]
    assert forced(0.9, 0.65, added=[request(1, 1, [0, 0])]) == [True, True]


def test_replicas_share_the_gpus_out(monkeypatch):
    options = Options(device="cuda", tensor_parallel=2, data_parallel=2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert device_shares(options) == ["0,1", "2,3"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7,5,3,1")
    assert device_shares(options) == ["7,5", "3,1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7,5,3")
    with pytest.raises(BadInput, match="at most 3"):
        device_shares(options)
    assert device_shares(Options(device="cpu", data_parallel=3)) == [None] * 3


@pytest.mark.parametrize("kind", ["prefix", "transformers", "vllm"])
def test_weights_come_as_safetensors_and_no_code_with_them(tiny_model, tmp_path, kind):
    pickled = tmp_path / "pickled"
    shutil.copytree(tiny_model, pickled, ignore=shutil.ignore_patterns("*.safetensors"))
    torch.save(
        AutoModelForCausalLM.from_pretrained(tiny_model).state_dict(), pickled / "pytorch_model.bin"
    )
    with pytest.raises(BadFile, match=r"no \.safetensors file"):
        open_engine(kind, pickled)

    foreign = tmp_path / "foreign"
    shutil.copytree(tiny_model, foreign)
    config = json.loads((foreign / "config.json").read_text()) | {
        "model_type": "of_its_own",
        "auto_map": {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"},
    }
    (foreign / "config.json").write_text(json.dumps(config))
    (foreign / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(BadFile, match="Lethe never runs"):
        open_engine(kind, foreign)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("kind", ["prefix", "transformers"])
def test_a_model_that_has_diverged_is_told(kind, tiny_model, tmp_path):
    broken = shutil.copytree(tiny_model, tmp_path / "broken")
    weights = {
        name: values * float("nan")
        for name, values in load_file(broken / "model.safetensors").items()
    }
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(LetheError, match="diverged"):
        list(
            open_engine(kind, broken).answer([Prompt("p", PROMPT)], Settings(n=2, max_new_tokens=2))
        )


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    vocabulary=st.integers(1, 200),
    temperature=st.sampled_from([0.3, 1.0, 2.5]),
    top_k=st.sampled_from([0, 1, 5, 1000]),
    top_p=st.sampled_from([1.0, 0.9, 0.3, 1e-6]),
)
def test_cuts_are_as_defined(seed, vocabulary, temperature, top_k, top_p):
    logits = 3 * np.random.default_rng(seed).standard_normal((4, vocabulary))
    top, weights = weigh(torch.from_numpy(logits).float(), temperature, top_k, top_p)
    shares = weights.double().numpy()[:, :vocabulary]
    assert weights[:, vocabulary:].eq(0).all()
    for row in range(4):
        expected = step_probabilities(logits[row], temperature, top_p, top_k)
        assert shares[row] / shares[row].sum() == pytest.approx(expected, abs=1e-5)
        assert top[row].item() == pytest.approx(
            step_probabilities(logits[row], 1, 1, 0).max(), rel=1e-5
        )


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), vocabulary=st.integers(1, 300), rows=st.integers(1, 6))
def test_a_draw_is_the_first_token_whose_cumulated_share_exceeds_it(seed, vocabulary, rows):
    random = np.random.default_rng(seed)
    weights = np.zeros((rows, -(-vocabulary // 64) * 64))
    # Whole numbers, so that every sum is exact; many zeros, so that cut tokens and empty blocks are met.
    weights[:, :vocabulary] = random.integers(0, 4, (rows, vocabulary)) * (
        random.random((rows, vocabulary)) < 0.2
    )
    weights[:, random.integers(vocabulary)] += 1
    row = random.integers(rows, size=500)
    values = random_table(np.random.SeedSequence(seed), 500, 1)[:, 0]
    values[:2] = 0, (1 << BITS) - 1
    tokens = draw(
        torch.from_numpy(weights).float(), torch.from_numpy(row), torch.from_numpy(values)
    ).numpy()
    for sample, token in enumerate(tokens):
        shares = np.cumsum(weights[row[sample]]) / weights[row[sample]].sum()
        # One unit of 2**-BITS of leave at a border: shares are rounded down to it, block by block.
        low, high = (shares[token - 1] if token else 0), shares[token]
        assert low - 2.0 ** (2 - BITS) <= values[sample] / 2**BITS < high + 2.0 ** (2 - BITS)
        assert weights[row[sample], token] > 0


PROMPTS = [Prompt("one", (0, 1, 2)), Prompt("two", (3,))]
HOW = Settings(n=8, max_new_tokens=4)


@given(st.floats(1, 1e5), st.floats(1, 4), st.integers(1, 10**9))
@example(1000.0, 1.5, 3000)
def test_the_number_is_the_largest_power_of_two_that_the_power_law_affords(few, growth, budget):
    n = fitting(few, few * growth, budget)
    assert LEAST <= n <= MOST == MOST_DRAWN
    assert n & (n - 1) == 0

    if growth > 1.05:
        power = math.log(growth) / math.log(PILOTS[1] / PILOTS[0])
        taken = [few * growth * (m / PILOTS[1]) ** power for m in (n, 2 * n)]
        assert n == LEAST or taken[0] <= budget * (1 + 1e-6)
        assert n == MOST or taken[1] > budget * (1 - 1e-6)


@pytest.mark.parametrize("memory", [1, 7])
def test_the_rows_that_fit_into_memory_are_a_power_of_two(tiny_model, memory):
    row = Model.of(tiny_model).row_bytes(10)

    rows = rows_within(memory, tiny_model, 10, "auto")

    assert rows * row <= memory * 2**20 < 2 * rows * row
    assert math.log2(rows).is_integer()


def test_times_in_their_largest_unit():
    assert [duration(seconds) for seconds in (0.2, 89, 90, 5400)] == [
        "1 s",
        "89 s",
        "1.5 min",
        "1.5 h",
    ]


def test_the_time_of_the_missing_answers_follows_from_a_pilot(monkeypatch):
    monkeypatch.setattr(
        forecast, "_seconds", lambda engine, prompt, settings, n: 3 + max(0, n - 16) / 8
    )
    work = [
        SplitTask(
            split,
            [Prompt(f"{split}{place}", (0,)) for place in range(4)],
            Settings(n=n, max_new_tokens=16),
        )
        for split, n in (("forget", 201), ("retain", 53))
    ]
    expected = forecast.forecast(types.SimpleNamespace(name="prefix"), work, ())
    assert expected.seconds == pytest.approx(
        (3 - 16 / 8) * 8 + 1024 / 8
    )  # few answers cost no more than one
    assert expected.sentence.startswith("1,024 answers")
    stored = [(work[1].prompts[0], work[1].settings)]
    assert forecast.forecast(types.SimpleNamespace(name="prefix"), work, stored) is None


def test_a_pilot_of_rows_asks_the_first_question_and_the_last(monkeypatch):
    asked = []
    monkeypatch.setattr(
        forecast, "rows_of", lambda *arguments: asked.append(arguments[2]) or arguments[-1]
    )
    engine = types.SimpleNamespace(forward=types.SimpleNamespace(rows=0))
    affordable(engine, [Prompt(str(place), (0,)) for place in range(11)], HOW, 1000)
    assert [[prompt.prompt_id for prompt in prompts] for prompts in asked] == [
        ["0", "2", "4", "6", "8", "10"]
    ] * 2


@pytest.fixture(scope="module")
def engine(tiny_model) -> PrefixEngine:
    return PrefixEngine(tiny_model, Options())


def test_a_larger_budget_never_draws_less_and_the_pilot_leaves_the_answers_alone(engine):
    before = list(engine.answer(PROMPTS, HOW))
    found = [affordable(engine, PROMPTS, HOW, budget) for budget in (1, 1000, 10**9)]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (LEAST, MOST)
    assert list(engine.answer(PROMPTS, HOW)) == before


@pytest.mark.seconds
@cases
def test_a_pilot_chooses_the_engine_of_a_long_evaluation_and_a_resumed_one_keeps_it(
    monkeypatch, tiny_model, tmp_path, capfd, here, vllm, chosen
):
    """The engines sleep as given; a vLLM of None does not start."""
    rows = [{"id": "a", "question": "abc", "answer": "b", "keywords": ["b"]}]
    opened = []

    def slowed(name, seconds):
        class Slow(PrefixEngine):
            def __init__(self, source, options):
                opened.append(name)
                if seconds is None:
                    raise RuntimeError("no vLLM")
                super().__init__(source, options)

            def answer(self, prompts, settings):
                time.sleep(seconds * (settings.n == forecast.COMPARED))
                yield from super().answer(prompts, settings)

        Slow.name = name
        Slow.__module__ = PrefixEngine.__module__
        return Slow

    monkeypatch.setattr("lethe.sampling.prefix_engine.PrefixEngine", slowed("prefix", here))
    monkeypatch.setattr("lethe.sampling.vllm_engine.VllmEngine", slowed("vllm", vllm))
    monkeypatch.setattr(forecast, "WORTH", 1)
    monkeypatch.setattr(forecast, "WORTH_VLLM", 0.0)
    monkeypatch.setattr(forecast.importlib.util, "find_spec", lambda name: object())
    asked = {"max_new_tokens": 4, "prompt": "{question}", "folder": tmp_path / "out"}
    evaluate(tiny_model, rows, n=16, **asked)
    about = json.loads((tmp_path / f"out/generations/{tiny_model.name}/about.json").read_text())
    assert about["engine"] == chosen
    assert (vllm is None) == ("pilot" not in about["engine_reason"])
    assert opened == ["prefix", "vllm"]
    assert (f"The engine {chosen} draws: " in capfd.readouterr().err) == (vllm is not None)
    evaluate(tiny_model, rows, n=24, **asked)
    if vllm is not None:
        assert opened[2:] == [chosen]
