"""The examples of docs/extending.md work unchanged, and each touches one module and params.yaml."""

import json
import re

import pytest
import yaml

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
from lethe.scoring import score_answers
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
    files = {target: (ROOT / "docs" / source).read_text(encoding="utf-8") for source, target in copied}
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


def test_the_method_unlearns(extended, done):
    steps = json.loads((extended / "data/models/bounded/training.json").read_text())["steps"]
    assert len(steps) == 2
    assert all(-4.0 <= step["forget_loss"] < 0 for step in steps)  # the ceiling
    assert (extended / "data/models/bounded/model.safetensors").is_file()


def test_the_judge_is_asked_once_about_each_distinct_answer_in_batches_that_span_questions(done):
    found = json.loads(done.splitlines()[-1])
    assert found["columns"] == ["prompt_id", "sample", "rouge_l", "keyword_leak", "number_match", "same_fact"]
    assert sum(found["batches"]) == 2 * found["rows"]
    assert len(found["batches"]) == -(-2 * found["rows"] // 32)
    for at in range(0, len(found["scores"]), 5):
        greedy, same, no, again, missing = found["scores"][at : at + 5]
        assert greedy == same
        assert no == again
        assert 0 < no < 1
        assert missing != missing


def test_the_scorer_counts_the_numbers_of_the_reference(done):
    found = json.loads(done.splitlines()[-1])["numbers"]
    asked = [at for at in range(0, len(found), 5) if found[at] is not None]  # rows whose reference has a number
    assert asked
    assert {tuple(found[at : at + 5]) for at in asked} == {(1, 1, 0, 0, None)}


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
