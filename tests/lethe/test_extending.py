"""The examples of docs/extending.md work unchanged, and each touches one module and params.yaml."""

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from lethe import config
from lethe.config.fields import Section
from lethe.config.schema import AuditParams, GameParams, MethodParams
from lethe.errors import BadInput, BadValue
from lethe.registry import AUDITS, DATASETS, ENGINES, GAMES, KINDS, METHODS, SCORERS, register
from tests.lethe.data.benchmark_files import OPTIONS, write_benchmark
from tests.small import ROOT, make_repository, python, small_params

DOCUMENT = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
EXAMPLES = (
    "An unlearning method with a parameter of its own",
    "A text scorer",
    "A judge with a model",
    "An audit",
)

# What a user runs, in one process: a process a stage would cost a minute. The judge and the audit are given answers.
WORK = """
import json, pandas as pd
from pathlib import Path
from lethe import config
from lethe.io.files import read_jsonl
from lethe.io.tables import write_parquet
from stages import audit, prepare, train, unlearn
prepare.main()
train.main("base")
unlearn.main("bounded")
rows = [row for _, row in read_jsonl(Path("data/dataset/forget.jsonl"))]
drawn = pd.DataFrame([
    {"prompt_id": row["id"], "sample": sample, "text": text}
    for row in rows for sample, text in [(-1, row["answer"]), (0, row["answer"]), (1, "no"), (2, "no"), (3, None)]
])
write_parquet(Path("data/generations/base/forget.parquet"), drawn)
audit.main("base")
from lethe.scoring.table import score_answers
settings = config.load()
from lethe.registry import JUDGES
Judge, batches = JUDGES["same_fact"], []
judge = Judge.judge
Judge.judge = lambda self, asked: batches.append(len(asked)) or judge(self, asked)
scores = score_answers(drawn, {row["id"]: row for row in rows}, settings.score.names, settings.score.params)
print(json.dumps({
    "rows": len(rows), "batches": batches, "columns": list(scores), "scores": scores["same_fact"].tolist(),
    "numbers": scores["number_match"].astype(object).where(scores["number_match"].notna(), None).tolist(),
}))
"""


def blocks(title: str) -> dict[str, str]:
    """Path to content of the fenced blocks of a section, and of the files that it says where to copy."""
    section = DOCUMENT.split(f"\n## {title}\n")[1].split("\n## ")[0]
    copied = re.findall(r"\]\((examples/\w+\.py)\).*? to `(\S+)`", section)
    files = {
        target: (ROOT / "docs" / source).read_text(encoding="utf-8") for source, target in copied
    }
    return files | dict(re.findall(r"```(?:python|yaml) (\S+)\n(.*?)```", section, flags=re.DOTALL))


def merged(params: dict, changes: dict) -> dict:
    for key, value in changes.items():
        params[key] = merged(params.get(key, {}), value) if isinstance(value, dict) else value
    return params


@pytest.fixture(scope="module")
def extended(tmp_path_factory):
    """A copy of the project with the files of the document, and nothing else, changed."""
    params = small_params()
    params["data"]["authors"] = {"count": 20, "heldout": 2, "world_facts": 2}
    params["train"]["recipe"]["epochs"] = 1
    for title in EXAMPLES:
        params = merged(params, yaml.safe_load(blocks(title)["params.yaml"]))
    folder = make_repository(tmp_path_factory.mktemp("extended") / "copy", params, git=False)
    for title in EXAMPLES:
        for path, content in blocks(title).items():
            if path != "params.yaml":
                (folder / path).write_text(content)
    return folder


@pytest.fixture(scope="module")
def done(extended):
    return python(extended, "-c", WORK).stdout


@pytest.mark.parametrize("title", EXAMPLES)
def test_an_example_touches_one_new_module_and_params(title):
    paths = sorted(blocks(title))
    assert len(paths) == 2
    assert paths[1] == "params.yaml"
    assert not (ROOT / paths[0]).exists()


@pytest.mark.slow
def test_the_method_unlearns(extended, done):
    steps = json.loads((extended / "data/models/bounded/training.json").read_text())["steps"]
    assert len(steps) == 2
    assert all(-4.0 <= step["forget_loss"] < 0 for step in steps)  # the ceiling
    assert (extended / "data/models/bounded/model.safetensors").is_file()


@pytest.mark.slow
def test_the_judge_is_asked_once_about_each_distinct_answer_in_batches_that_span_questions(done):
    found = json.loads(done.splitlines()[-1])
    assert found["columns"] == [
        "prompt_id",
        "sample",
        "rouge_l",
        "keyword_leak",
        "number_match",
        "same_fact",
    ]
    assert sum(found["batches"]) == 2 * found["rows"]
    assert len(found["batches"]) == -(-2 * found["rows"] // 32)
    for at in range(0, len(found["scores"]), 5):
        greedy, same, no, again, missing = found["scores"][at : at + 5]
        assert greedy == same
        assert no == again
        assert 0 < no < 1
        assert missing != missing


@pytest.mark.slow
def test_the_scorer_counts_the_numbers_of_the_reference(done):
    found = json.loads(done.splitlines()[-1])["numbers"]
    asked = [
        at for at in range(0, len(found), 5) if found[at] is not None
    ]  # rows whose reference has a number
    assert asked
    assert {tuple(found[at : at + 5]) for at in asked} == {(1, 1, 0, 0, None)}


@pytest.mark.slow
def test_the_audit_is_written_and_told(extended, done):
    headline = json.loads((extended / "data/audits/base.json").read_text())
    assert (headline["verbatim"], headline["n"]) == (headline["n"] // 4, 24)
    assert headline["verbatim"] / headline["n"] < headline["share_upper"] < 0.6
    assert "base: 6 of 24 answers" in done
    assert (extended / "data/audits/base/answers.parquet").is_file()


def test_a_missing_parameter_of_the_method_is_told(extended):
    code = "from lethe import config; v = config.read_yaml('params.yaml'); "
    code += "del v['unlearn']['methods']['bounded']['ceiling']; config.validate(v)"
    ran = python(extended, "-c", code, check=False)
    assert "key unlearn.methods.bounded: bounded_ascent needs ceiling" in ran.stderr


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
    (kind, name)
    for kind, registry in KINDS.items()
    for name in registry
    if (kind, name) != ("engines", "vllm")
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
            modules = [
                path.stem for path in (ROOT / folder.replace(".", "/")).glob(f"[!_]*{suffix}.py")
            ]
            names = [
                registry.tables.get(f"{folder}.{module}", (module.removesuffix(suffix),))
                for module in modules
            ]
            assert {name for of_module in names for name in of_module} == set(registry)


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
    from lethe.scoring.scorer import scorer

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
        (tmp_path / f"{split}.jsonl").write_text(
            f'{{"id": "{split}", "question": "Who?", "answer": "Ada."}}\n'
        )
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
