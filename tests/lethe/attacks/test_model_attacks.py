"""Every attack on a tiny model, against plain arithmetic; the rows of relearning; what a budget leaves alone."""

import copy
import sys

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


@pytest.mark.parametrize("kind", OWN)
def test_an_attack_changes_the_model_more_with_each_budget_and_the_same_way_for_a_seed(
    tiny, known, kind
):
    runs = []
    for seed in (0, 0, 1):
        model = copy.deepcopy(tiny[0])
        before = {name: weights.clone() for name, weights in model.named_parameters()}
        states = []
        for budget, attacked in made(kind).attacked(model, known, seed):
            assert not attacked.training
            moved = [
                float((weights - before[name]).norm().detach())
                for name, weights in attacked.named_parameters()
            ]
            states.append(
                (budget, moved, [weights.clone() for weights in linear_weights(attacked)])
            )
        budgets = [budget for budget, *_ in states]
        assert budgets == sorted(budgets)
        distances = [np.linalg.norm(moved) for _, moved, _ in states]
        assert all(np.diff(distances) > 0)
        assert distances[0] > 0
        runs.append(states)
        if kind != "relearn":
            left = {
                name
                for name, weights in model.named_parameters()
                if torch.equal(weights, before[name])
            }
            assert {name for name in before if "embed" in name or "norm" in name} <= left
    same = [
        all(torch.equal(a, b) for a, b in zip(runs[0][-1][2], states_of_run[-1][2], strict=True))
        for states_of_run in runs[1:]
    ]
    assert same == [True, kind in ("prune", "quantise")]


def test_noise_has_its_relative_size(tiny, known):
    model = copy.deepcopy(tiny[0])
    before = [weights.detach().clone() for weights in linear_weights(model)]
    for size, attacked in made("noise").attacked(model, known, 0):
        added = [
            (a - b) / b.square().mean().sqrt()
            for a, b in zip(linear_weights(attacked), before, strict=True)
        ]
        drawn = torch.cat([noise.flatten() for noise in added])
        assert float(drawn.std().detach()) == pytest.approx(size, rel=0.06)
        assert abs(float(drawn.mean().detach())) < 0.1 * size


def test_pruning_takes_the_smallest_magnitudes():
    weights = torch.tensor([[3.0, -0.1, 0.5], [0.2, -2.0, 0.0]])
    assert pruned(weights, 0.5).tolist() == [[3.0, 0.0, 0.5], [0.0, -2.0, 0.0]]
    assert pruned(weights, 0.99).count_nonzero() == 0


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
    assert torch.equal(on_grid(torch.zeros(2, 4), 4, 4), torch.zeros(2, 4))


def test_without_torchao_its_rounding_names_the_extra(tiny, known, monkeypatch):
    """With torchao, `python -m tests.benchmarks torchao` compares both roundings."""
    monkeypatch.setitem(sys.modules, "torchao.quantization", None)
    with pytest.raises(LetheError, match=r"lethe\[torchao\].*rounding: simulated"):
        list(made("quantise", rounding="torchao").attacked(tiny[0], known, 0))
    with pytest.raises(ValidationError, match="'simulated' or 'torchao'"):
        made("quantise", rounding="bitsandbytes")


def test_relearning_learns_its_rows_and_no_other(tiny, known):
    model = copy.deepcopy(tiny[0])
    attack = made("relearn", steps=[12])
    rows = attack.learned(known, 3)
    batch = collate([known.encoder.example(row) for row in rows], 0)
    before = float(forward(model, batch).nll.detach())
    ((budget, attacked),) = attack.attacked(model, known, 3)
    assert budget == 12
    assert float(forward(attacked, batch).nll.detach()) < before - 0.2


def test_relearning_that_diverges_ends_before_the_next_budget(tiny, known):
    model = copy.deepcopy(tiny[0])
    budgets = []
    with pytest.raises(TrainingFailed) as caught:
        for budget, _ in made("relearn", steps=[1, 6], lr=1e30).attacked(model, known, 0):
            budgets.append(budget)
    assert budgets == [1]
    failed, last = caught.value.failed, caught.value.last
    assert 1 <= failed.step == last.step + 1 < 6
    assert [np.isfinite(step.loss) for step in (last, failed)] == [True, False]
    with pytest.raises(TrainingFailed) as caught:
        list(made("relearn", steps=[1], lr=1e39).attacked(copy.deepcopy(tiny[0]), known, 0))
    assert caught.value.failed == caught.value.last, (
        "a rate beyond float32: only the weights are not finite"
    )


def test_the_rows_of_each_kind_of_relearning(known):
    ids = lambda **changes: [row["id"] for row in made("relearn", **changes).learned(known, 0)]  # noqa: E731
    assert len(ids()) == 2
    assert set(ids()) < {row["id"] for row in FORGET}
    same = ids(rows="same_authors", count=1)
    assert sorted(name[1] for name in same) == ["0", "1"]
    assert len(ids(rows="same_authors", count=2)) == 4
    assert {name[0] for name in ids(rows="unrelated", count=3)} == {"r"}
    assert ids() == ids()
    for changes in ({"count": 6}, {"rows": "same_authors", "count": 3}):
        with pytest.raises(BadInput, match="leaves no question"):
            ids(**changes)
    nameless = Knowledge(
        [{"id": "x", "question": "?", "answer": "y"}] * 3, RETAIN, known.encoder, 0
    )
    with pytest.raises(BadInput, match="no author"):
        made("relearn", rows="same_authors").learned(nameless, 0)
