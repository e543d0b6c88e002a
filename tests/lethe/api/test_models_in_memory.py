"""A model in memory instead of a folder: the same answers, the model unchanged, nothing written."""

import pytest

import lethe
from lethe.errors import BadInput
from tests.cases import cases
from tests.lethe.api.conftest import ROWS


@pytest.fixture
def held(here):
    """The user's model in memory, in training mode and with its own generation settings."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained("my-model")
    model.train()
    model.model.layers[0].eval()
    model.generation_config.temperature = 0.1
    model.generation_config.repetition_penalty = 5.0
    return model, AutoTokenizer.from_pretrained("my-model")


@pytest.mark.parametrize("engine", ["prefix", "transformers"])
def test_the_answers_are_those_of_the_folder(held, engine):
    how = {"n": 16, "max_new_tokens": 4, "engine": engine, "seed": 3}
    prompts = {"a": "Who is Ada?", "b": "Where is Bo?"}
    drawn = lethe.sample(*held, prompts, **how)
    same = lethe.sample("my-model", prompts=prompts, **how)
    assert drawn.to_frame().equals(same.to_frame())
    assert drawn.to_frame()["sample"].tolist() == [*range(-1, 16)] * 2
    assert len(set(drawn.texts("a"))) > 1
    assert drawn.texts() == drawn.texts("a") + drawn.texts("b")
    with pytest.raises(BadInput, match="prompt_id: got 'c'"):
        drawn.texts("c")


def test_a_chat_model_gets_its_template_and_takes_messages(held):
    model, tokenizer = held
    tokenizer.chat_template = "{% for turn in messages %}{{ turn['role'] }}: {{ turn['content'] }}\n{% endfor %}"
    how = {"n": 8, "max_new_tokens": 4}
    asked = [{"role": "user", "content": "Who is Ada?"}]
    (plain,) = lethe.sample(model, tokenizer, ["user: Who is Ada?\n"], prompt="{question}", **how).answers
    for prompts in (["Who is Ada?"], [asked]):
        (answers,) = lethe.sample(model, tokenizer, prompts, **how).answers
        assert answers == plain
    system = [{"role": "system", "content": "Be brief."}, *asked]
    (other,) = lethe.sample(model, tokenizer, [system], **how).answers
    assert other.texts != plain.texts
    for wrong in ([], [{"role": "user"}], [*asked, {"role": "assistant", "content": "Ada"}]):
        with pytest.raises(BadInput, match="prompts: got"):
            lethe.sample(model, tokenizer, [wrong], **how)
    with pytest.raises(BadInput, match="the template of messages"):
        lethe.sample(model, tokenizer, [asked], prompt="{question}", **how)


def test_the_model_is_given_back_as_it_was(held, here):
    import torch

    model, tokenizer = held
    habits, modes = model.generation_config, [module.training for module in model.modules()]
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    before = sorted(path for path in here.rglob("*"))
    torch.use_deterministic_algorithms(False)
    lethe.sample(model, tokenizer, ["Who?"], 4, max_new_tokens=2)
    lethe.evaluate(model, ROWS, tokenizer=tokenizer, n=4, max_new_tokens=2)
    assert not torch.are_deterministic_algorithms_enabled()
    assert model.generation_config is habits
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert sorted(path for path in here.rglob("*")) == before


def test_an_evaluation_in_memory_is_that_of_the_folder(held, here):
    model, tokenizer = held
    found = lethe.evaluate(model, ROWS, tokenizer=tokenizer, n=8, max_new_tokens=4)
    again = lethe.evaluate("my-model", "forget.jsonl", n=8, max_new_tokens=4, name="model")
    kept = lethe.load_run("data")
    assert found.verdict == again.verdict
    assert found.metrics.equals(again.metrics)
    assert found.answers.equals(again.answers)
    assert found.report is None
    shared = [column for column in kept.questions if column != "model"]
    assert found.questions[shared].equals(kept.questions[shared])
    assert found.answers["sample"].tolist() == [*range(-1, 8)] * 2


@cases
def test_a_mistake_is_a_sentence(held, function, given, words):
    model, tokenizer = held
    usual = {"sample": {"prompts": ["a"], "n": 2}, "evaluate": {"data": ROWS}}[function]
    with pytest.raises(BadInput, match=words):
        getattr(lethe, function)(**{"model": model, "tokenizer": tokenizer, **usual, **given})
