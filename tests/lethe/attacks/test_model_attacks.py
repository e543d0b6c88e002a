"""Every attack on a tiny model, against plain arithmetic; the rows of relearning; what a budget leaves alone."""

import copy
import sys
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from lethe.attacks.kinds.weights import on_grid, pruned
from lethe.attacks.protocol import Knowledge, linear_weights
from lethe.errors import BadInput, LetheError
from lethe.models.encoding import Encoder, collate
from lethe.models.likelihood import forward
from lethe.models.training import TrainingFailed
from lethe.registry import MODEL_ATTACKS

OWN: dict[str, dict] = {
    "noise": {},
    "prune": {},
    "quantise": {"group": 8},
    "relearn": {"rows": "forget", "count": 2, "lr": 5e-3, "steps": [8, 1]},
}
FORGET = [
    {
        "id": f"f{author}{row}",
        "author": f"a{author}",
        "question": f"Who {author}{row}?",
        "answer": f"the {row}",
    }
    for author in range(2)
    for row in range(3)
]
RETAIN = [{"id": f"r{row}", "question": f"Where {row}?", "answer": "at sea"} for row in range(4)]


def made(kind, **more):
    member = MODEL_ATTACKS[kind]
    return member(member.Params.model_validate({"kind": kind, **OWN[kind], **more}))


@pytest.fixture
def known(tiny, prompt):
    return Knowledge(FORGET, RETAIN, Encoder(tiny[1], prompt), 0)


@dataclass(frozen=True)
class Attacked:
    """A model after the attack with one budget: how far each parameter moved, and the weights of its linear layers."""

    budget: float
    moved: list[float]
    linear: list[torch.Tensor]

    @property
    def distance(self):
        return np.linalg.norm(self.moved)

    def equals(self, other):
        pairs = zip(self.linear, other.linear, strict=True)
        return all(torch.equal(first, second) for first, second in pairs)


def weights_of(model):
    return {name: weights.clone() for name, weights in model.named_parameters()}


def attacked_by(kind, model, known, seed=0):
    """The model after each budget of an attack, which changes it in place."""
    before = weights_of(model)
    found = []
    for budget, attacked in made(kind).attacked(model, known, seed):
        assert not attacked.training
        moved = []
        for name, weights in attacked.named_parameters():
            moved.append(float((weights - before[name]).norm().detach()))
        linear = [weights.clone() for weights in linear_weights(attacked)]
        found.append(Attacked(budget, moved, linear))
    return found


@pytest.mark.parametrize("kind", OWN)
def test_an_attack_changes_the_model_more_with_each_budget(tiny, known, kind):
    found = attacked_by(kind, copy.deepcopy(tiny[0]), known)

    budgets = [attacked.budget for attacked in found]
    distances = [attacked.distance for attacked in found]
    assert budgets == sorted(budgets)
    assert distances[0] > 0
    assert all(np.diff(distances) > 0)


@pytest.mark.parametrize("kind", OWN)
def test_an_attack_changes_the_model_the_same_way_for_a_seed(tiny, known, kind):
    first = attacked_by(kind, copy.deepcopy(tiny[0]), known)
    again = attacked_by(kind, copy.deepcopy(tiny[0]), known)

    assert first[-1].equals(again[-1])


@pytest.mark.parametrize("kind", OWN)
def test_the_seed_changes_an_attack_that_draws(tiny, known, kind):
    first = attacked_by(kind, copy.deepcopy(tiny[0]), known)
    of_other_seed = attacked_by(kind, copy.deepcopy(tiny[0]), known, seed=1)

    assert first[-1].equals(of_other_seed[-1]) == (kind in ("prune", "quantise"))


@pytest.mark.parametrize("kind", [kind for kind in OWN if kind != "relearn"])
@pytest.mark.parametrize("seed", [0, 1])
def test_an_attack_on_weights_leaves_embeddings_and_norms(tiny, known, kind, seed):
    model = copy.deepcopy(tiny[0])
    before = weights_of(model)

    attacked_by(kind, model, known, seed)

    left = {name for name, weights in before.items() if "embed" in name or "norm" in name}
    after = weights_of(model)
    assert left
    for name in left:
        assert torch.equal(after[name], before[name]), name


def test_noise_has_its_relative_size(tiny, known):
    model = copy.deepcopy(tiny[0])
    before = [weights.detach().clone() for weights in linear_weights(model)]

    for size, attacked in made("noise").attacked(model, known, 0):
        relative = []
        for noisy, weights in zip(linear_weights(attacked), before, strict=True):
            root_mean_square = weights.square().mean().sqrt()
            relative.append(((noisy - weights) / root_mean_square).flatten())
        drawn = torch.cat(relative).detach()
        assert float(drawn.std()) == pytest.approx(size, rel=0.06)
        assert abs(float(drawn.mean())) < 0.1 * size


WEIGHTS = torch.tensor([[3.0, -0.1, 0.5], [0.2, -2.0, 0.0]])


def test_pruning_takes_the_smallest_magnitudes():
    assert pruned(WEIGHTS, 0.5).tolist() == [[3.0, 0.0, 0.5], [0.0, -2.0, 0.0]]


def test_pruning_of_nearly_all_leaves_no_weight_of_a_few():
    assert pruned(WEIGHTS, 0.99).count_nonzero() == 0


@pytest.mark.parametrize(("bits", "group"), [(8, 11), (4, 4)])
def test_rounding_is_to_the_nearest_point_of_the_grid(bits, group):
    """The twin tries every point of each group's grid; the last group of a row is shorter."""
    weights = torch.randn((3, 11), generator=torch.Generator().manual_seed(1)).double()
    top = 2 ** (bits - 1) - 1

    found = on_grid(weights, bits, group)

    for row in range(3):
        for start in range(0, 11, group):
            values = weights[row, start : start + group]
            scale = values.abs().max() / top
            grid = torch.arange(-top, top + 1) * scale
            nearest = grid[(values[:, None] - grid).abs().argmin(-1)]
            assert torch.allclose(found[row, start : start + group], nearest, atol=1e-12)


def test_weights_of_zero_are_rounded_to_zero():
    zeros = torch.zeros(2, 4)

    assert torch.equal(on_grid(zeros, 4, 4), zeros)


def test_without_torchao_its_rounding_names_the_extra(tiny, known, monkeypatch):
    """With torchao, `python -m tests.benchmarks torchao` compares both roundings."""
    monkeypatch.setitem(sys.modules, "torchao.quantization", None)
    attack = made("quantise", rounding="torchao")

    with pytest.raises(LetheError, match=r"lethe\[torchao\].*rounding: simulated"):
        list(attack.attacked(tiny[0], known, 0))


def test_a_rounding_of_another_name_is_refused_with_those_there_are():
    with pytest.raises(ValidationError, match="'simulated' or 'torchao'"):
        made("quantise", rounding="bitsandbytes")


def test_relearning_learns_its_rows_and_no_other(tiny, known):
    model = copy.deepcopy(tiny[0])
    attack = made("relearn", steps=[12])
    examples = [known.encoder.example(row) for row in attack.learned(known, 3)]
    batch = collate(examples, 0)
    before = float(forward(model, batch).nll.detach())

    ((budget, attacked),) = attack.attacked(model, known, 3)

    after = float(forward(attacked, batch).nll.detach())
    assert budget == 12
    assert after < before - 0.2


def test_relearning_that_diverges_ends_before_the_next_budget(tiny, known):
    attack = made("relearn", steps=[1, 6], lr=1e30)
    budgets = []

    with pytest.raises(TrainingFailed) as caught:
        for budget, _ in attack.attacked(copy.deepcopy(tiny[0]), known, 0):
            budgets.append(budget)

    last = caught.value.last
    failed = caught.value.failed
    assert budgets == [1]
    assert 1 <= failed.step == last.step + 1 < 6
    assert np.isfinite(last.loss)
    assert not np.isfinite(failed.loss)


def test_a_rate_beyond_float32_fails_by_its_weights_alone(tiny, known):
    attack = made("relearn", steps=[1], lr=1e39)

    with pytest.raises(TrainingFailed) as caught:
        list(attack.attacked(copy.deepcopy(tiny[0]), known, 0))

    assert caught.value.failed == caught.value.last


def learned_ids(known, **changes):
    rows = made("relearn", **changes).learned(known, 0)
    return [row["id"] for row in rows]


def test_relearning_of_forget_rows_learns_some_of_them(known):
    ids = learned_ids(known)

    assert len(ids) == 2
    assert set(ids) < {row["id"] for row in FORGET}


def test_relearning_learns_the_same_rows_for_a_seed(known):
    assert learned_ids(known) == learned_ids(known)


@pytest.mark.parametrize("count", [1, 2])
def test_relearning_of_the_same_authors_learns_as_many_rows_of_each(known, count):
    ids = learned_ids(known, rows="same_authors", count=count)

    authors = [name[1] for name in ids]
    assert sorted(authors) == ["0"] * count + ["1"] * count


def test_relearning_of_unrelated_rows_learns_rows_to_retain(known):
    ids = learned_ids(known, rows="unrelated", count=3)

    assert {name[0] for name in ids} == {"r"}


@pytest.mark.parametrize("changes", [{"count": 6}, {"rows": "same_authors", "count": 3}])
def test_relearning_must_leave_a_question_to_ask(known, changes):
    with pytest.raises(BadInput, match="leaves no question"):
        learned_ids(known, **changes)


def test_relearning_of_the_same_authors_needs_authors(known):
    nameless_row = {"id": "x", "question": "?", "answer": "y"}
    nameless = Knowledge([nameless_row] * 3, RETAIN, known.encoder, 0)

    with pytest.raises(BadInput, match="no author"):
        learned_ids(nameless, rows="same_authors")
