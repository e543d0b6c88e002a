"""`seeds` of a method or a trained model: the entries that DVC needs, which Lethe writes, checks and removes."""

import copy
import shutil

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from flows import settings
from flows.settings import read_preset
from lethe import config
from lethe.config.load import changed_document
from lethe.config.seeds import resolved, write_copies
from lethe.errors import BadInput
from lethe.steps import utility
from stages.sources import identities
from tests.small import ROOT

SEEDS = ("unlearn.methods.npo.seeds", [2, 12, 22])


@pytest.fixture
def params(tmp_path):
    (tmp_path / "data/source").mkdir(parents=True)
    for name in ("lethe", "flows", "stages"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "dvc.yaml", tmp_path)
    path = tmp_path / "params.yaml"
    shutil.copy(ROOT / "params.yaml", path)
    return path


def test_one_line_becomes_a_model_for_each_seed(params):
    settings.change(params, [SEEDS])

    after = config.load(params)
    npo, npo_12 = after.unlearn.methods["npo"], after.unlearn.methods["npo_12"]
    assert (npo.seed, npo_12.seed, after.unlearn.methods["npo_22"].seed) == (2, 12, 22)
    assert npo_12 == npo.model_copy(update={"seed": 12, "same_as": "npo"})
    models = list(after.models)
    start = models.index("npo")
    assert models[start : start + 6] == [
        "npo",
        "npo_12",
        "npo_22",
        "npo_at",
        "npo_at_12",
        "npo_at_22",
    ]
    assert after.models["npo_at_22"].path == "data/models/npo_22"
    assert after.models["npo_at_22"].adaptive_threshold == 0.9


def test_entries_are_lines_that_a_person_would_write(params):
    settings.change(params, [SEEDS])

    lines = params.read_text().splitlines()
    assert "    npo_12: {same_as: npo, seed: 12}" in lines
    assert "  npo_12: {path: data/models/npo_12}" in lines
    assert "# The evaluated models." in params.read_text()
    assert "&id" not in params.read_text()


def test_a_second_run_changes_nothing(params):
    assert settings.change_here(params.parent, [SEEDS])

    assert settings.change_here(params.parent, []) == []


def test_seeds_that_a_person_wrote_get_their_entries(params):
    text = params.read_text().replace(
        "retain_weight: 20.0}", "retain_weight: 20.0, seeds: [2, 5]}", 1
    )
    params.write_text(text)
    with pytest.raises(BadInput, match=r"npo_5.*`lethe run` writes them"):
        config.load(params)

    assert settings.change_here(params.parent, [])

    assert config.load(params).unlearn.methods["npo_5"].seed == 5


def test_a_changed_method_changes_all_its_seeds(params):
    settings.change(params, [SEEDS])

    settings.change(
        params, [("unlearn.methods.npo.beta", 0.7), ("models.npo_at.adaptive_threshold", 0.5)]
    )

    after = config.load(params)
    assert after.unlearn.methods["npo_22"].beta == 0.7
    assert after.models["npo_at_12"].adaptive_threshold == 0.5


def test_a_seed_that_goes_takes_its_models_with_it(params):
    before = params.read_text()
    settings.change(params, [SEEDS, ("train.models.retrain.seeds", [1, 11])])

    document = yaml.safe_load(params.read_text())
    del document["unlearn"]["methods"]["npo"]["seeds"]
    del document["train"]["models"]["retrain"]["seeds"]
    params.write_text(yaml.safe_dump(document, sort_keys=False))
    settings.change(params, [])

    assert config.load(params) == config.validate(yaml.safe_load(before))


def test_every_seed_of_retrain_is_a_retrain(params):
    settings.change(params, [("train.models.retrain.seeds", [1, 11, 21])])

    after = config.load(params)
    assert after.report.retrains == ["retrain", "retrain_11", "retrain_21"]
    assert after.train.models["retrain_11"].recipe == {"seed": 11}
    assert "retrain_11" not in after.subjects


@pytest.mark.slow
def test_one_more_seed_makes_no_other_model_again(params):
    """The identity of a model, which decides whether DVC makes it again, does not know the other seeds."""
    settings.change(params, [SEEDS])
    before = identities(params.parent, config.load(params))

    settings.change(params, [("unlearn.methods.npo.seeds", [2, 12, 22, 32])])

    after = identities(params.parent, config.load(params))
    assert set(after["unlearn"]) - set(before["unlearn"]) == {"npo_32"}
    for name, identity in before["unlearn"].items():
        assert after["unlearn"][name] == identity
    settings.change(params, [("unlearn.methods.npo.beta", 0.7)])
    changed = identities(params.parent, config.load(params))
    assert changed["unlearn"]["npo_12"] != before["unlearn"]["npo_12"]


def test_dvc_sees_a_stage_for_each_seed_and_not_the_list(params, monkeypatch):
    from dvc.repo import Repo

    settings.change(params, [SEEDS])
    monkeypatch.chdir(params.parent)
    Repo.init(str(params.parent), no_scm=True).close()

    with Repo(str(params.parent)) as repo:
        stages = {stage.addressing: stage for stage in repo.index.stages}

    assert {"unlearn@npo", "unlearn@npo_12", "sample@npo_at_22", "score@npo_22"} <= set(stages)
    for stage in ("unlearn@npo", "unlearn@npo_12"):
        listed = [name for dep in stages[stage].deps for name in getattr(dep, "params", [])]
        assert not any("methods" in name for name in listed)


@pytest.mark.parametrize(
    ("seeds", "said"),
    [
        ([], "must be a list"),
        ([2, 2], "must be a list"),
        ([-1], "must be a list"),
        (3, "must be a list"),
        (["two"], "must be a list"),
        ([True], "must be a list"),
    ],
)
def test_illegal_seeds_are_named(params, seeds, said):
    text = params.read_text()

    with pytest.raises(BadInput, match=rf"unlearn\.methods\.npo\.seeds.*{said}"):
        settings.change(params, [("unlearn.methods.npo.seeds", seeds)])

    assert params.read_text() == text


def test_seed_and_seeds_together_are_refused(params):
    with pytest.raises(BadInput, match="both seed and seeds"):
        settings.change(params, [SEEDS, ("unlearn.methods.npo.seed", 1)])


def test_a_name_that_a_seed_needs_is_not_taken_from_another_entry(params):
    mine = {"loss": "npo", "lr": 1e-4, "epochs": 1}

    with pytest.raises(BadInput, match=r"unlearn\.methods\.npo_12.*the seeds of npo"):
        settings.change(params, [("unlearn.methods.npo_12", mine), SEEDS])
    with pytest.raises(BadInput, match=r"models\.npo_12"):
        settings.change(params, [("models.npo_12", {"path": "data/models/base"}), SEEDS])


def test_a_document_takes_a_copy_of_each_value():
    npo = {"loss": "npo", "seeds": [2, 12]}

    document = changed_document(
        [("unlearn.methods.npo", npo), ("unlearn.methods.npo.beta", 0.2)], ROOT / config.FILE
    )

    assert document["unlearn"]["methods"]["npo"]["beta"] == 0.2
    assert npo == {"loss": "npo", "seeds": [2, 12]}


@pytest.mark.parametrize(("preset", "count"), [("methods", 47), ("five-retrains", 5)])
def test_a_preset_says_its_seeds_in_one_key(preset, count):
    document = changed_document(read_preset(preset).items(), ROOT / config.FILE)

    assert len(config.validate(document).models) == count


names = st.sampled_from(["a", "b", "c"])
entries = st.dictionaries(
    names,
    st.one_of(
        st.none(),
        st.fixed_dictionaries(
            {"loss": st.just("npo")}, optional={"seeds": st.lists(st.integers(0, 3))}
        ),
        st.fixed_dictionaries({"same_as": names, "seed": st.integers(0, 3)}),
    ),
)


@given(
    entries,
    st.dictionaries(
        names, st.one_of(st.none(), st.builds(lambda name: {"path": f"data/models/{name}"}, names))
    ),
)
def test_what_is_written_is_whole_and_stays(methods, models):
    document = {"unlearn": {"methods": methods}, "models": models}
    try:
        write_copies(document)
    except BadInput:
        return
    before = copy.deepcopy(document)

    assert write_copies(document) == []

    assert document == before
    for name, entry in document["unlearn"]["methods"].items():
        if entry and "same_as" in entry:
            assert entry["seed"] in document["unlearn"]["methods"][entry["same_as"]]["seeds"][1:]
            assert name == f"{entry['same_as']}_{entry['seed']}"


def test_a_document_of_other_shapes_is_left_to_validation():
    for document in ({}, {"unlearn": []}, {"unlearn": {"methods": {"a": 1}}, "models": 3}):
        assert write_copies(document) == []
        assert resolved(copy.deepcopy(document)) == document


@pytest.mark.slow
def test_tasks_of_general_utility_have_an_entry_for_each_folder_of_weights(params, monkeypatch):
    monkeypatch.setattr(utility, "find_spec", lambda name: True)
    settings.change(params, [("utility.tasks", ["mmlu"])])

    measured = config.load(params).utility.models

    # the other entries of these folders differ in sampling alone
    assert list(measured) == [
        *("base", "retrain", "grad_ascent", "grad_diff", "npo", "npo_matched", "npo_entropy")
    ]
    assert measured["npo"].path == "data/models/npo"
    assert set(identities(params.parent, config.load(params))["utility"]) == set(measured)
    settings.change(params, [("utility.tasks", [])])
    assert config.load(params).utility.models == {}


def test_tasks_without_their_package_are_refused_before_a_stage_and_the_file_stays(
    params, monkeypatch
):
    monkeypatch.setattr(utility, "find_spec", lambda name: None)
    before = params.read_text()

    with pytest.raises(BadInput, match="the extra lm-eval"):
        settings.change(params, [("utility.tasks", ["mmlu"])])

    assert params.read_text() == before


def test_a_file_whose_tasks_have_no_entries_is_refused(params):
    document = config.read_yaml(params)
    document["utility"]["tasks"] = ["mmlu"]

    with pytest.raises(BadInput, match=r"utility\.models\.base"):
        config.validate(document)


def test_without_tasks_there_is_no_stage_of_general_utility(params):
    assert identities(params.parent, config.load(params))["utility"] == {}
