"""Every registry lists its members without importing them, each member meets its kind's contract, others can add some."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from lethe import config
from lethe.config.fields import Section
from lethe.config.schema import AuditParams, GameParams, MethodParams
from lethe.errors import BadInput, BadValue
from lethe.registry import AUDITS, DATASETS, ENGINES, GAMES, KINDS, METHODS, SCORERS, register
from tests.lethe.data.benchmark_files import OPTIONS, write_benchmark
from tests.small import ROOT

WITHOUT_RETAIN = ("harry_potter", "harmbench")  # can be asked, but not learned
# What a member of each kind must have; the tests of the kinds run over the same registries.
CONTRACTS = {
    "methods": ("Params", "forget_loss", "loss", "after_step"),
    "scorers": ("score",),
    "judges": ("Params", "judge", "applies"),
    "likelihoods": ("__call__",),
    "diversity": ("__call__",),
    "datasets": ("load",),
    "engines": ("answer",),
    "audits": ("Params", "audit"),
    "games": ("Params", "play"),
    "text_attacks": ("score",),
    "model_attacks": ("Params", "attacked", "learned", "budget"),
    "one_run_methods": ("ASSUMES", "NOTE", "FAMILY_FREE", "log_p_value"),
}
MEMBERS = [
    (kind, name) for kind, registry in KINDS.items() for name in registry if (kind, name) != ("engines", "vllm")
]


def test_the_registries_are_these():
    assert set(KINDS) == set(CONTRACTS)
    assert all(len(registry) for registry in KINDS.values())


@pytest.mark.parametrize(("kind", "name"), MEMBERS)
def test_a_member_is_what_its_kind_asks_for(kind, name):
    member = KINDS[kind][name]
    assert [part for part in CONTRACTS[kind] if not hasattr(member, part)] == []
    base = {"methods": MethodParams, "audits": AuditParams, "games": GameParams}.get(kind, Section)
    assert issubclass(getattr(member, "Params", base), base)


def test_every_module_of_a_folder_is_a_member_and_no_helper_is():
    for registry in (METHODS, SCORERS, AUDITS, GAMES, ENGINES):
        suffix = registry.suffix
        for folder in registry.folders:
            modules = [path.stem for path in (ROOT / folder.replace(".", "/")).glob(f"[!_]*{suffix}.py")]
            names = [registry.tables.get(f"{folder}.{one}", (one.removesuffix(suffix),)) for one in modules]
            assert {name for own in names for name in own} == set(registry)


def test_an_unknown_name_is_told_with_the_legal_ones():
    with pytest.raises(BadValue, match="'rouge_w'; must be one of rouge_l, rouge_l_precision"):
        SCORERS["rouge_w"]
    with pytest.raises(BadValue, match="methods, scorers"):
        register("method", "mine", object())
    with pytest.raises(BadValue, match="a name other than"):
        register("scorers", "rouge_l", object())


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package as pip would have installed it: its modules, and its entry points in a .dist-info."""
    (tmp_path / "tiny_lethe").mkdir()
    (tmp_path / "tiny_lethe/__init__.py").touch()
    (tmp_path / "tiny_lethe/method.py").write_text(
        "from lethe.unlearning.protocol import Method, MethodParams, Positive\n"
        "class Params(MethodParams):\n    scale: Positive\n"
        "class Scaled(Method[Params], params=Params):\n"
        "    def forget_loss(self, rows):\n        return -self.params.scale * rows.forward.nll\n"
    )
    (tmp_path / "tiny_lethe/loud.py").write_text(
        "import numpy as np\nBINARY = True\n"
        "def score(generations, item):\n    return np.array([float(text.isupper()) for text in generations])\n"
    )
    info = tmp_path / "tiny_lethe-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-lethe\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[lethe.methods]\nscaled = tiny_lethe.method:Scaled\n\n[lethe.scorers]\nloud = tiny_lethe.loud\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for registry in (METHODS, SCORERS):
        registry.__dict__.pop("_foreign", None)
    yield
    for registry in (METHODS, SCORERS):
        registry.__dict__.pop("_foreign", None)
    for name in [name for name in sys.modules if name.startswith("tiny_lethe")]:
        del sys.modules[name]


def test_another_package_brings_a_method_and_a_scorer(package):
    from lethe.scoring import scorer

    value = config.read_yaml(ROOT / "params.yaml")
    value["unlearn"]["methods"]["mine"] = {"loss": "scaled", "lr": 1e-4, "epochs": 1, "scale": 2.0}
    value["models"]["mine"] = {"path": "data/models/mine"}
    value["score"]["scorers"].append("loud")
    value["metrics"]["binary"] = "loud"
    params = config.validate(value)
    assert "tiny_lethe.method" in sys.modules
    rows = SimpleNamespace(forward=SimpleNamespace(nll=3.0))
    method = METHODS["scaled"](params.unlearn.methods["mine"])
    assert method.forget_loss(rows) == -6.0
    assert scorer("loud")(["A", "b"], {}).tolist() == [1.0, 0.0]
    value["unlearn"]["methods"]["mine"]["scale"] = 0
    with pytest.raises(BadInput, match=r"unlearn.methods.mine.scale: got 0; must be above 0"):
        config.validate(value)
    assert METHODS.source("scaled") is None
    assert METHODS.source("npo") == "lethe.unlearning.methods.npo"


@pytest.mark.parametrize("name", DATASETS)
def test_every_dataset_gives_a_forget_set_and_most_a_retain_set(name, tmp_path, shared):
    from lethe.data.rows import load_splits

    for split in ("forget", "retain"):
        (tmp_path / f"{split}.jsonl").write_text(f'{{"id": "{split}", "question": "Who?", "answer": "Ada."}}\n')
    if name in OPTIONS:
        write_benchmark(name, tmp_path)
    source = shared / "data/tofu" if name == "tofu" else tmp_path
    if name == "tofu" and not source.is_dir():
        pytest.skip("TOFU's files are not at hand")
    value = config.read_yaml(ROOT / "params.yaml")["data"] | {"kind": name, "source": str(source)}
    value |= {name: OPTIONS[name]} if name in OPTIONS else {}
    if name == "requests":
        value["requests"] = config.read_yaml(ROOT / "flows/presets/alignment.yaml")["data.requests"]
    if name == "passages":
        (tmp_path / "book.txt").write_text("one two three four five six seven eight nine ten")
        value["passages"] = {"file": "book.txt", "forget": [[0, 20]], "prefix": 2, "suffix": 1}
    data = config.validate(config.read_yaml(ROOT / "params.yaml") | {"data": value}).data
    splits = load_splits(data, Path())
    assert splits["forget"]
    assert splits.get("retain") or name in WITHOUT_RETAIN
