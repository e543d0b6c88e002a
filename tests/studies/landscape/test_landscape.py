"""The privacy-utility landscape: strategies of the grid, resumed runs, an overfitted network above a private one."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from lethe import identity
from lethe.cli.app import app
from lethe.errors import BadFile, BadParam, BadRow, BadValue, LetheError, MissingColumn
from studies.landscape.study import (
    FILES,
    PURCHASE_CLASSES,
    PURCHASE_FEATURES,
    Landscape,
    Strategy,
    frontier,
    load,
    read,
)
from studies.landscape.training import (
    Recipe,
    build,
    grouped,
    learn,
    learn_privately,
    logits,
    negative_logits,
)
from tests.small import one_after_another, touched

SMALL = [
    "data.points=600",
    "network.hidden=[32]",
    "baseline.epochs=[1,120]",
    "private.epochs=2",
    "private.epsilons=[1]",
    "private.clips=[1]",
    "private.microbatches=[null,4]",
    "runs=2",
    "goodness_of_fit=null",
]


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("scratch")


@pytest.fixture(scope="module")
def result(scratch):
    return Landscape(read("digits", SMALL), scratch).result(one_after_another)


@pytest.mark.parametrize("name", sorted(path.stem for path in FILES.glob("*.yaml")))
def test_every_file_of_settings_is_whole(name):
    settings = read(name, [])
    assert (settings.runs, settings.private.epsilons) == (5, [1, 3, 10, 100])
    grids = {"adult-paper": 52, "purchase100-paper": 51}  # the papers' sizes
    strategies = len(Landscape(settings).strategies())
    assert strategies == grids.get(name, strategies)


@pytest.mark.slow
def test_every_strategy_is_measured(result):
    assert [strategy["name"] for strategy in result["strategies"]] == [
        "1 epoch",
        "120 epochs",
        "ε 1, clip 1, batch 64, single records",
        "ε 1, clip 1, batch 64, 4 microbatches",
    ]
    assert (result["utility"], result["trained"]) == ("accuracy", 8)
    for strategy in result["strategies"]:
        for key in ("utility_population", "epsilon_star", "epsilon_star_cut", "epsilon_lower"):
            assert strategy[key]["min"] <= strategy[key]["mean"] <= strategy[key]["max"]
        assert len(strategy["runs"]) == strategy["mechanism"]["instances"] == 2
        assert strategy["epsilon_star_cut"]["mean"] <= strategy["epsilon_star"]["mean"] + 1e-9


@pytest.mark.slow
def test_learning_by_heart_costs_more_than_dp(result):
    cost, useful = (
        [strategy[key]["mean"] for strategy in result["strategies"]]
        for key in ("epsilon_star", "utility_population")
    )
    assert cost[1] > max(cost[0], cost[2])
    assert useful[1] > useful[2]
    assert 1 in result["frontier"]


@pytest.mark.parametrize(
    ("module", "moves"),
    [
        ("lethe.models.dp_sgd", True),
        ("lethe.statistics.two_sample", True),
        ("studies.landscape.study", False),
    ],
)
def test_edited_code_makes_the_runs_anew_that_it_made(tmp_path, monkeypatch, module, moves):
    study = Landscape(read("digits", SMALL), tmp_path)
    before = study.place(study.strategies()[0], 0)
    monkeypatch.setattr(identity, "library", lambda: touched(module))
    assert (study.place(study.strategies()[0], 0) != before) == moves


def test_mistakes_are_told_by_key():
    with pytest.raises(BadValue, match="one of adult"):
        read("nothing", [])
    for change, key in (("data.kind=mnist", "data.kind"), ("runs=0", "runs"), ("runz=1", "runz")):
        with pytest.raises(BadParam, match=key):
            read("digits", [change])


def naive(cost, benefit):
    """On the frontier: no other point and no convex combination of two others is at least as good and better in one."""
    kept = []
    shares = np.linspace(0, 1, 401)
    for i in range(len(cost)):
        beaten = False
        for a in range(len(cost)):
            for b in range(len(cost)):
                c, v = (shares * side[a] + (1 - shares) * side[b] for side in (cost, benefit))
                beaten |= bool(
                    np.any(
                        (c <= cost[i] + 1e-12)
                        & (v >= benefit[i] - 1e-12)
                        & ((c < cost[i] - 1e-9) | (v > benefit[i] + 1e-9))
                    )
                )
        if not beaten:
            kept.append(i)
    return set(kept)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=7, unique=True)
)
def test_equals_its_naive_twin_but_for_points_inside_an_edge(points):
    cost, benefit = np.array(points, float).T
    found = frontier(cost, benefit)
    assert set(found) <= naive(cost, benefit)
    # No point dominates a point on the line between two corners of the frontier; only the corners are returned.
    for i in naive(cost, benefit) - set(found):
        assert np.interp(cost[i], cost[found], benefit[found]) == pytest.approx(benefit[i])
    assert np.all(np.diff(cost[found]) > 0)
    assert np.all(np.diff(benefit[found]) > 0)


ADULT = "age,workclass,sex,income\n" + "".join(
    f"{20 + i},{'Private' if i % 2 else ' State-gov'},{'Male' if i % 3 else 'Female'},{'>50K' if i % 4 else '<=50K.'}\n"
    for i in range(40)
)


@pytest.fixture
def adult(tmp_path):
    path = tmp_path / "adult.csv"
    path.write_text(ADULT + "50,?,Male,>50K\n60,,Male,>50K\n")
    return str(path)


def test_adult_has_numbers_and_a_column_a_value_standardised_on_the_training_set(adult):
    data = load("adult", adult, None, 0.25, 0)
    (train, labels), (population, _) = data.train, data.population
    assert (train.shape, population.shape, data.classes) == ((30, 5), (10, 5), 2)
    assert np.allclose(train.mean(axis=0), 0, atol=1e-6)
    assert np.allclose(train.std(axis=0), 1, atol=1e-5)
    assert set(labels) == {0, 1}
    assert "40 complete rows of 42" in data.note
    assert labels.sum() + data.population[1].sum() == 30


def test_real_adult(shared):
    data = load("adult", str(shared / "data/adult/adult.csv"), None, 0.3333, 0)
    assert "30,162 complete rows" in data.note
    assert (len(data.train[1]), len(data.population[1])) == (20109, 10053)


def test_generated_purchases_have_the_shape_and_repeat():
    data, again, larger = (
        load("purchase100", None, points, 0.33, 0) for points in (1000, 1000, None)
    )
    assert data.train[0].shape == (670, PURCHASE_FEATURES)
    assert set(np.unique(data.train[0])) == {0.0, 1.0}
    assert np.array_equal(data.train[0], again.train[0])
    assert len(np.unique(larger.train[1])) == PURCHASE_CLASSES


def test_what_is_refused(adult, tmp_path):
    with pytest.raises(BadValue, match="adult, purchase100, digits"):
        load("mnist", None, None, 0.3, 0)
    with pytest.raises(BadFile, match=r"data\.source"):
        load("adult", None, None, 0.3, 0)
    with pytest.raises(BadFile, match="no such file"):
        load("purchase100", str(tmp_path / "none"), None, 0.3, 0)
    with pytest.raises(BadValue, match="points"):
        load("adult", adult, 41, 0.3, 0)
    with pytest.raises(BadValue, match="population"):
        load("adult", adult, None, 0.01, 0)
    bad = tmp_path / "bad.csv"
    for text, kind, error in (
        ("age\n1\n", "adult", MissingColumn),
        ("age,income\n1,a\n2,b\n3,c\n", "adult", BadFile),
        ("1,2,3\n", "purchase100", BadFile),
        ("1,a,3\n", "purchase100", BadFile),
        ("", "purchase100", BadFile),
    ):
        bad.write_text(text)
        with pytest.raises(error) as caught:
            load(kind, str(bad), None, 0.3, 0)
        assert isinstance(caught.value, LetheError | BadRow)


@settings(max_examples=60)
@given(st.integers(2, 6), st.integers(0, 10**6))
def test_losses_are_negative_logits_of_the_true_class(classes, seed):
    rng = np.random.default_rng(seed)
    outputs = rng.normal(0, 3, (5, classes))
    labels = rng.integers(0, classes, 5)
    f = np.exp(outputs)[np.arange(5), labels] / np.exp(outputs).sum(axis=1)
    assert negative_logits(outputs, labels) == pytest.approx(
        -(np.log(f) - np.log(1 - f)), rel=1e-9, abs=1e-9
    )


def test_a_sure_network_loses_no_digits():
    outputs = np.array([[800.0, 0.0, -3.0], [0.0, 60.0, 0.0]])
    assert negative_logits(outputs, np.array([0, 1])) == pytest.approx(
        [-800 + np.log1p(np.exp(-3)), -60 + np.log(2)]
    )


def blobs(n=200, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, n)
    features = rng.normal(0, 1, (n, 4)) + 3 * labels[:, None]
    return torch.from_numpy(features.astype(np.float32)), torch.from_numpy(labels)


RECIPE = {"lr": 0.1, "momentum": 0.9, "epochs": 5, "batch": 20, "seed": 0}


def trained(budget=None, **changes):
    features, labels = blobs()
    network = build(4, [8], 2, 0)
    recipe = Recipe(**RECIPE | changes)
    if budget is None:
        learn(network, features, labels, recipe)
    else:
        learn_privately(network, features, labels, budget, 1e-3, recipe)
    return logits(network, features), labels.numpy()


@pytest.mark.slow
@pytest.mark.parametrize(
    "budget",
    [None, Strategy(5, 20, 50, 1.0), Strategy(5, 20, 50, 1.0, 4), Strategy(5, 20, 50, 1.0, 1)],
)
def test_training_learns_and_repeats(budget):
    outputs, labels = trained(budget)
    assert (outputs.argmax(axis=1) == labels).mean() > 0.9
    assert np.array_equal(outputs, trained(budget)[0])
    assert not np.array_equal(outputs, trained(budget, seed=1)[0])


def stepped(microbatches, noise, clip, scale=100.0, rows=40):
    """The released gradients of some steps: of a linear model whose every row has the same gradient, ``scale`` long."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    network = torch.nn.Linear(30, 1, bias=False)
    model = GradSampleModule(network.train())
    plain = torch.optim.SGD(model.parameters(), lr=0.0)
    settings = {"noise_multiplier": noise, "max_grad_norm": clip, "expected_batch_size": rows}
    private = grouped(
        DPOptimizer(plain, generator=torch.Generator().manual_seed(0), **settings), microbatches
    )
    released = []
    for _ in range(300 if noise else 1):
        private.zero_grad(set_to_none=True)
        (scale * model(torch.ones(rows, 30) / 30**0.5)).mean().backward()
        private.step()
        released.append(network.weight.grad.flatten().clone())
    return torch.stack(released)


@pytest.mark.filterwarnings("ignore:Full backward hook")
def test_microbatches_clip_the_mean_of_each_group():
    # All eight groups point the same way and are longer than the clip: the mean of the clipped has the clip's norm.
    assert float(stepped(8, 0.0, 0.5).norm(dim=1)) == pytest.approx(0.5, rel=1e-4)
    # Shorter than the clip: nothing is clipped, and the mean of the groups' means is the gradient itself.
    assert float(stepped(8, 0.0, 50.0, scale=1.0).norm(dim=1)) == pytest.approx(1.0, rel=1e-4)


@pytest.mark.filterwarnings("ignore:Full backward hook")
def test_microbatches_double_the_noise():
    noise = stepped(4, 1.5, 0.5, scale=0.0) * 4
    assert float(noise.std()) == pytest.approx(2 * 1.5 * 0.5, rel=0.03)


FEW = (
    "data.points=300",
    "network.hidden=[8]",
    "baseline.epochs=[1,20]",
    "private.epochs=1",
    "private.epsilons=[10]",
    "private.clips=[1]",
    "runs=2",
    "goodness_of_fit={components: 2, samples: [20, 40]}",
)


@pytest.fixture
def call(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "lethe.audits.cores", lambda: 1
    )  # a process more costs more than these runs
    monkeypatch.setattr(
        "studies.landscape.training.noise_multiplier", lambda *_: 1.0
    )  # spares a search
    changes = [part for change in FEW for part in ("-S", change)]
    return lambda *arguments: CliRunner().invoke(app, ["study", "landscape", *arguments, *changes])


@pytest.mark.slow
def test_results_and_pictures_from_one_command(call, tmp_path):
    done = call("digits", "--json")
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert len(result["strategies"]) == 3
    folder = tmp_path / "data/landscapes/digits"
    for name in ("landscape.png", "goodness-of-fit.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
    assert json.loads((folder / "result.json").read_text())["frontier"] == result["frontier"]
    kept = json.loads((tmp_path / "data/studies/outcomes/landscape-digits.json").read_text())
    stars = [strategy["epsilon_star"]["mean"] for strategy in kept["values"]["strategies"]]
    assert kept["values"]["Epsilon* without DP, largest"] == max(stars[:2])
    assert kept["values"]["Epsilon* of DP, largest"] == stars[2]
    assert "-S runs=2" in kept["command"]
    again = call("digits")
    assert "Trained now: 0 runs" in again.stdout
