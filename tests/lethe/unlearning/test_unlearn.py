"""Every unlearning method of the registry, run on a tiny model, and its formula against plain arithmetic."""

import copy
import math

import pytest
import torch

from lethe import config
from lethe.models.encoding import Encoder, collate
from lethe.models.forward import forward
from lethe.registry import METHODS
from lethe.unlearning.loop import reference_log_probs, unlearn
from lethe.unlearning.protocol import Before
from lethe.unlearning.second_answers import second_answers
from tests.small import ROOT

RECIPE = config.load(ROOT / "params.yaml").unlearn.recipe.model_copy(update={"forget_batch": 2, "retain_batch": 2})
# The parameters with which each method of the registry is tested, beyond those of every method.
OWN: dict[str, dict] = {
    "grad_ascent": {},
    "grad_diff": {},
    "kl": {},
    "npo": {"beta": 0.1},
    "simnpo": {"gamma": 1.0},
    "idk_dpo": {},
    "idk_nll": {},
    "altpo": {"max_new_tokens": 4},
    "rmu": {"steering_coeff": 20.0},
    "undial": {},
    "wga": {},
    "satimp": {"gamma": 1.0, "beta1": 0.1},
    "ceu": {"ignore_first_n_answer_tokens": 0},
    "pdu": {"retain_loss_eps": 3.0},
}
ROWS = [{"question": "Who is Ada?", "answer": "a painter"}, {"question": "Who is Cy?", "answer": "a poet"}]


def params(loss, **entry):
    model = METHODS[loss].Params
    return model.model_validate(
        {"loss": loss, "lr": 5e-3, "epochs": 8, "retain_weight": 1.0, **OWN[loss], **entry}
    )


def test_every_method_of_the_registry_is_exercised():
    assert set(METHODS) == set(OWN)


@pytest.fixture
def examples(tiny, prompt):
    encoder = Encoder(tiny[1], prompt)
    retain = [{"question": "Where is Bo?", "answer": "at sea"}]
    return encoder, [encoder.example(row) for row in ROWS], [encoder.example(row) for row in retain]


def run(tiny, examples, **entry):
    model = copy.deepcopy(tiny[0])
    encoder, forget, retain = examples
    before = reference_log_probs(model, forget, 2, 0).sum()
    own = params(**entry)
    second = second_answers(own, ROWS, Before(model, encoder, 0))
    history = unlearn(model, forget, retain, RECIPE, own, 0, "test", second)
    return model, history, float(reference_log_probs(model, forget, 2, 0).sum() - before)


@pytest.fixture(scope="module")
def learned(tiny, tmp_path_factory):
    """The tiny model after it has memorised the rows."""
    prompt = tmp_path_factory.mktemp("prompt") / "qa.txt"
    prompt.write_text("Question: {question}\nAnswer:")
    model, tokenizer = copy.deepcopy(tiny[0]), tiny[1]
    encoder = Encoder(tokenizer, prompt)
    batch = collate([encoder.example(row) for row in ROWS], 0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(80):
        optimizer.zero_grad()
        forward(model, batch).nll.backward()
        optimizer.step()
    assert float(forward(model, batch).log_probs.detach().exp().min()) > 0.5
    return model, tokenizer


@pytest.mark.parametrize("loss", METHODS)
def test_every_method_makes_the_forget_answers_less_likely(learned, examples, loss):
    _, history, change = run(learned, examples, loss=loss)
    assert change < -0.5
    assert len(history) == 8
    assert all(math.isfinite(row["loss"]) for row in history)


def test_the_entropy_terms_do_what_their_signs_say(tiny, examples):
    plain = run(tiny, examples, loss="npo")[1][-1]
    assert "entropy_forget" not in plain
    strong = run(tiny, examples, loss="npo", entropy={"forget": 5.0, "retain": -0.5, "ramp": 0.5})[1]
    assert strong[-1]["entropy_forget"] < strong[0]["entropy_forget"]
    first, weights = (
        strong[0],
        {"forget_loss": 1, "retain_loss": 1.0, "entropy_forget": 0.0, "entropy_retain": -0.5},
    )
    assert first["loss"] == pytest.approx(sum(weight * first[key] for key, weight in weights.items()), rel=1e-5)
