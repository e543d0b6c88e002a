"""What a population draws: by seed and number alone, in its ranges, in proportion to the weights."""

from collections import Counter

import numpy as np
import pytest
from scipy.stats import kstest

from lethe import config
from lethe.attacks.population import draw
from lethe.config.schema import AttackRecipe, Population
from lethe.errors import BadInput
from tests.small import tiny_params

RECIPE = AttackRecipe.model_validate(
    {
        "noise": {"size": [0.02, 0.2], "weight": 3},
        "prune": {"share": [0.1, 0.3]},
        "quantise": {"bits": [8, 4]},
        "relearn": {"count": [5, 40], "steps": [1, 16], "lr": [1e-4, 1e-3]},
    }
)


@pytest.fixture(scope="module")
def drawn():
    return [draw(RECIPE, 0, number) for number in range(3000)]


def test_an_attack_depends_on_its_seed_and_number_alone():
    again = AttackRecipe.model_validate(dict(reversed(RECIPE.model_dump().items())))

    assert draw(RECIPE, 5, 7) == draw(again, 5, 7)
    assert draw(RECIPE, 5, 7) != draw(RECIPE, 6, 7)
    assert draw(RECIPE, 5, 7).params != draw(RECIPE, 5, 8).params


def test_kinds_are_drawn_in_proportion_to_their_weights(drawn):
    counts = Counter(attack.params.kind for attack in drawn)

    assert counts["noise"] / len(drawn) == pytest.approx(0.5, abs=0.04)
    for kind in ("prune", "quantise", "relearn"):
        assert counts[kind] / len(drawn) == pytest.approx(1 / 6, abs=0.03)


def of_kind(drawn, kind):
    return [attack.params for attack in drawn if attack.params.kind == kind]


def test_parameters_have_the_stated_laws(drawn):
    sizes = np.log([params.sizes[0] for params in of_kind(drawn, "noise")])
    shares = [params.shares[0] for params in of_kind(drawn, "prune")]
    rates = np.log([params.lr for params in of_kind(drawn, "relearn")])

    low, high = np.log([0.02, 0.2])
    assert kstest(sizes, "uniform", (low, high - low)).pvalue > 1e-4
    assert kstest(shares, "uniform", (0.1, 0.2)).pvalue > 1e-4
    low, high = np.log([1e-4, 1e-3])
    assert kstest(rates, "uniform", (low, high - low)).pvalue > 1e-4


def test_every_drawn_attack_has_a_single_budget_within_its_ends(drawn):
    for params in of_kind(drawn, "relearn"):
        (steps,) = params.steps
        assert 1 <= steps <= 16
        assert 5 <= params.count <= 40
    assert {params.bits for params in of_kind(drawn, "quantise")} == {(8,), (4,)}


def test_no_two_attacks_share_their_random_numbers(drawn):
    assert len({attack.seed for attack in drawn}) == len(drawn)


def checked(change):
    entry = {"path": "data/models/base", "population": {"noise": {}}, **change}
    params = tiny_params() | {"attacks": {"mine": entry}}
    return config.validate(params, "params.yaml").attacks["mine"]


def test_a_recipe_alone_is_a_population():
    entry = checked({})

    assert isinstance(entry, Population)
    assert entry.population.kinds["noise"].size == (0.02, 0.2)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"population": {}}, "attacks.mine.population: at least one of the kinds noise, prune"),
        ({"population": {"nose": {}}}, "population.nose: .*Did you mean 'noise'"),
        ({"population": {"noise": {"size": [0.2, 0.1]}}}, "noise.size: .*in this order"),
        ({"population": {"noise": {"sizes": [0.1]}}}, "noise.sizes: .*Did you mean 'size'"),
        ({"population": {"noise": {"weight": 0}}}, "noise.weight: got 0; must be above 0"),
        ({"population": {"prune": {"share": [0.1, 1]}}}, "prune.share.1: got 1; must be above 0"),
        ({"goal": 1}, "attacks.mine.goal: got 1; must be above 0 and below 1"),
        ({"draws": 0}, "attacks.mine.draws: got 0; must be at least 1"),
        ({"gaol": 0.1}, "attacks.mine.gaol: .*one of the keys path, population"),
        ({"scorer": "rouge_l"}, "attacks.mine.scorer is 'rouge_l'.*exact_match, keyword_leak"),
        ({"after": {"kind": "noise"}}, "attacks.mine.after: .*one of the keys path, population"),
    ],
)
def test_a_mistake_in_a_population_is_named_by_its_key(change, said):
    with pytest.raises(BadInput, match=said):
        checked(change)
