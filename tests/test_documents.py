"""README and docs/: links, pages, commands, targets and presets exist, an example prints what it says, pages stay short."""

import importlib.util
import json
import platform
import re
import shlex
import shutil
from functools import cache
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest
import typer
import yaml
from typer.core import TyperGroup
from typer.testing import CliRunner

import studies.commands
from flows import settings
from flows.cli import commands as pipeline
from lethe.cli.app import COMMANDS, MODEL, app
from lethe.cli.app import GROUPS as GROUPED
from lethe.config.load import parse
from lethe.errors import BadParam
from tests.benchmarks.__main__ import Side
from tests.benchmarks.__main__ import known as known_benchmarks
from tests.benchmarks.quickstart import NOTEBOOK, executed
from tests.benchmarks.size import pages, text_of
from tests.contract.commands import INPUTS, called, lay_out
from tests.lethe.io.logs.small_logs import promptfoo_log, promptfoo_row
from tests.lethe.small_checkpoint import ROWS, save_small_checkpoint
from tests.small import ROOT, make_repository, run_in_one_process

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *pages()]
LINK = re.compile(r"\]\(([^)#:]+)\)")
BLOCK = re.compile(
    r"^```sh\n(.*?)^```|^ {4}((?:LETHE_KERNELS=machine )?(?:lethe|python) [^\n]*)", re.M | re.S
)
FENCE = re.compile(r"^```.*?^```", re.M | re.S)
WORDS = re.compile(r"`(lethe [^`]+|python -m [^`]+)`")  # a command in a sentence
# After a command, or anywhere in a section or before the first one: what its commands need besides this repository.
NEEDS = re.compile(r"\bneeds?:\s")
OPEN = (
    "...",
    "NAME",
    "LOG",
    "FOLDER",
    "[",
    "'{",
)  # an abbreviated command, which is not read further
GROUPS = ("audit", "score", "study")
PRESETS = {
    path.stem
    for place in ("flows/presets", "flows/sweeps", "studies/presets")
    for path in (ROOT / place).glob("*.yaml")
}
OF_A_READER = (
    None,
    "models.smollm2.path",
    "models.unlearned.path",  # the user's checkpoint
    "judges.harm.labelled",
)  # files that a reader has or makes first
MOST_WORDS_OF_README = 600  # as `wc -w` counts


def links(page) -> set:
    return {(page.parent / target).resolve() for target in LINK.findall(text_of(page))}


class Command(NamedTuple):
    text: str
    needs: bool  # whether the page says that the command needs more than the files of a reader

    @property
    def words(self) -> list[str]:
        return shlex.split(
            self.text.replace("\n", " ").split(" && ")[0].split(" > ")[0], comments=True
        )

    @property
    def is_name(self) -> bool:
        """Whether a sentence only names the command, or leaves a part of it to the reader."""
        names = self.words[1 : 3 if self.words[1] in GROUPS else 2]
        return self.words[1:] == names or any(
            re.search("(^|/)[A-Z_]+(/|$)", word) for word in self.words
        )


def all_commands(page) -> list[Command]:
    """The commands of a page in its order, those of blocks and those of sentences; a backslash continues a line."""
    found = []
    first, *sections = re.split(r"^(?=## )", text_of(page).replace("\\\n", " "), flags=re.M)
    for section in (first, *sections):
        marked = any(NEEDS.search(re.sub(r"  # .*", "", text)) for text in (first, section))
        blocks = [fenced or indented for fenced, indented in BLOCK.findall(section)]
        lines = [line for block in blocks for line in block.splitlines() if line and line[0] != "#"]
        found += [Command(line, marked or bool(NEEDS.search(line))) for line in lines]
        named = [Command(text, marked) for text in WORDS.findall(FENCE.sub("", section))]
        found += [command for command in named if not command.is_name]
    return found


def commands(page) -> list[list[str]]:
    """The words of the commands of Lethe on a page, those that a sentence only names among them."""
    stated = [command.words for command in all_commands(page)]
    names = [
        shlex.split(text.replace("\n", " ")) for text in WORDS.findall(FENCE.sub("", text_of(page)))
    ]
    return [
        words for words in (*stated, *names) if words[0] == "lethe" or words[:2] == ["python", "-m"]
    ]


known = cache(known_benchmarks)  # which reads every benchmark


@cache
def whole_command() -> TyperGroup:
    return typer.main.get_command(app)


@cache
def _inside(group: TyperGroup, name: str) -> object:
    return group.get_command(None, name)


@cache
def options_of(names: tuple[str, ...]) -> set[str]:
    """The options of the command of these names."""
    command = whole_command()
    for name in names:
        command = _inside(command, name)
    made = command.make_context(names[-1], [], resilient_parsing=True).command
    return {
        "--help",
        *chain.from_iterable(
            (*parameter.opts, *parameter.secondary_opts) for parameter in made.params
        ),
    }


def options(words: list[str]) -> tuple[set[str], list[str]]:
    """The options of the command that the words of `lethe ...` name, and the words behind its name."""
    command = whole_command()
    names = []
    rest = words[1:]
    while isinstance(command, TyperGroup) and rest:
        found = _inside(command, rest[0])
        if found is None and command.name == "score":  # `lethe score LOG`
            found = _inside(command, "log")
            rest = ["log", *rest]
        assert found is not None, f"{' '.join(words)}: no such command"
        command = found
        names = [*names, rest[0]]
        rest = rest[1:]
    return options_of(tuple(names)), rest


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file(page):
    assert [str(target) for target in links(page) if not target.exists()] == []


def test_every_page_is_found_from_the_readme():
    found = set()
    ahead = [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page not in found and page.suffix in (".md", ".ipynb") and page.exists():
            found.add(page)
            ahead += links(page)
    assert {page.name for page in PAGES} - {page.name for page in found} == set()


def test_the_readme_has_at_most_600_words():
    assert len(text_of(ROOT / "README.md").split()) <= MOST_WORDS_OF_README


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_targets_exist(page):
    rules = re.findall(r"^([a-z0-9-]+(?: [a-z0-9-]+)*):", (ROOT / "Makefile").read_text(), re.M)
    targets = {name for line in rules for name in line.split()}
    assert set(re.findall(r"(?:`|^)make ([a-z][a-z0-9-]+)", text_of(page), re.M)) <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_modules_options_and_presets_exist(page):
    for words in commands(page):
        if words[0] == "python":
            module, *rest = words[2:]
            if module == "tests.benchmarks":
                assert not rest or rest[0] in known() or rest[0].startswith(("-", *OPEN)), words
            else:
                assert importlib.util.find_spec(module), words
            continue
        if any(word.startswith(OPEN) for word in words[1:3]) or len(words) == 1:
            continue
        legal, rest = options(words)
        assert {word.split("=")[0] for word in rest if word.startswith("--")} <= legal, words
        if "--preset" in rest:
            name = rest[rest.index("--preset") + 1]
            assert name.startswith(OPEN) or name in PRESETS, words


@pytest.fixture(scope="module")
def reader(tmp_path_factory) -> Path:
    """A folder with a file of every name that the pages use; a model of a few thousand weights answers."""
    folder = tmp_path_factory.mktemp("reader")
    for name in ("my-model", "unlearned", "retrain"):
        save_small_checkpoint(folder / name)
    lay_out(folder, folder / "my-model")
    (folder / "docs").symlink_to(ROOT / "docs")
    theirs = [json.loads(line) for line in (INPUTS / "rows.jsonl").read_text().splitlines()]
    more = {"paraphrased_question": "Which one?", "reversed": "What is it?", "author": "Ron"}
    for name, mark in (("forget.jsonl", ""), ("retain.jsonl", "retain-")):
        rows = [
            json.dumps(row | more | {"id": mark + row["id"]}) + "\n" for row in (*ROWS, *theirs)
        ]
        (folder / name).write_text("".join(rows))
    template = {"id": "a", "question": "Which code has Ada?", "answer": "Ada has {secret}."}
    (folder / "templates.jsonl").write_text(json.dumps(template) + "\n")
    customer = {"id": "b", "question": "Which number has Bo?", "answer": "Bo has 471108."}
    (folder / "customers.jsonl").write_text(json.dumps(customer | {"keywords": ["471108"]}) + "\n")
    shutil.copy(ROOT / "docs/examples/language.yaml", folder)
    (folder / "book.txt").write_text(text_of(ROOT / "README.md")[:700])
    (folder / "run.eval").write_text(
        (INPUTS / "inspect.json").read_text().replace('"match"', '"includes"')
    )
    samples, results = sorted((INPUTS / "lm_eval").iterdir(), reverse=True)
    (folder / "samples_qa.jsonl").write_text(samples.read_text().replace('"first"', '"keep_all"'))
    (folder / "results_qa.json").write_text(results.read_text().replace('"first"', '"keep_all"'))
    promptfoo_log(folder / "out.json", [promptfoo_row(test, "Paris") for test in (0, 1, 2, 3)])
    for name in ("retain90", "data/labels"):
        (folder / name).mkdir(parents=True)
    copies = {
        "scores.csv": "leaks.csv", "TOFU_EVAL.json": "tofu.json", "retain90/TOFU_EVAL.json": "tofu_retain.json",
        "member.csv": "train.csv", "other.csv": "train.csv", "predictions.csv": "swap.csv", "labelled.csv": "calibration.csv",
        "verdicts.csv": "leaks.csv", "ranks.csv": "ranks.csv",
        "labels.csv": "random_labels.csv", "data/labels/my-model.jsonl": "labels/letters.jsonl",
    }  # fmt: skip
    for name, source in copies.items():
        shutil.copy(INPUTS / source, folder / name)
    for names in (("before", "a", "c"), ("after", "b")):
        scores = (
            pd.read_csv(INPUTS / f"{names[0]}.csv")
            .drop(columns="overlap")
            .rename(columns={"match": "score"})
        )
        for name in names:
            scores.to_csv(folder / f"{name}.csv", index=False)
    for name, side in (("before", "a"), ("after", "b")):
        shutil.copytree(folder / "pipelines" / side / "data", folder / "data/eval" / name)
    for name in ("before", "after", "gpt", "llama", "qwen"):
        shutil.copy(folder / "run.eval", folder / f"{name}.eval")
    answers = pd.read_csv(INPUTS / "leaks.csv").rename(
        columns={"prompt_id": "task_id", "score": "reward"}
    )
    answers.to_csv(folder / "trials.csv", index=False)
    answers.assign(gpt_4=answers["reward"], human_majority=1).to_csv(
        folder / "classifier_comparison.csv", index=False
    )
    return folder


SLOW = (
    "attest.md",
    "eval.md",
    "exact.md",
    "certificates.md",
    "README.md",
    "logs.md",
)  # a model answers, MLflow logs
SHORT = ["--max-new-tokens", "4"]  # the last value of an option counts
LESS = {"eval": [*SHORT, "--n", "16"], "exact": [*SHORT, "--rows", "300"], "certify": SHORT}
GATES = {"--fail-on", "--fail-above", "--require"}


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.slow] * (page.name in SLOW)) for page in PAGES],
    ids=lambda page: page.name,
)
def test_every_command_runs_or_says_what_it_needs(page, reader, tmp_path, monkeypatch):
    """As written, but with fewer tokens and answers, in the page's order and one folder; a gate that closes leaves with 1."""
    monkeypatch.chdir(shutil.copytree(reader, tmp_path / "reader", symlinks=True))
    for command in all_commands(page):
        if not command.needs:
            lethe, *words = command.words
            assert lethe == "lethe", f"{command.text}: mark what it needs"
            done = called(shlex.join([*words, *LESS.get(words[0], [])]))
            legal = (0, 1) if GATES & {*words} else (0,)
            assert done.exit_code in legal, f"{command.text}\n{done.output[-2000:]}"


LESS |= {"sample": SHORT, "extract": ["--near", "1", "--stride", "40"]}
EXAMPLES = {group: [example for row in rows.values() for example in row.examples] for group, rows in (
    *COMMANDS.items(), *((name, rows) for name, (_, rows) in GROUPED.items()))}  # fmt: skip
ELSEWHERE = (
    "plan --preset",
    "compare HEAD~1",
    "compare data",
    "label ",
    "score log run.eval --judge",
)  # in a clone, in a git repository, with a person, with a server


@pytest.mark.parametrize(
    "group", [pytest.param(name, marks=[pytest.mark.slow] * (name == MODEL)) for name in EXAMPLES]
)
def test_every_example_of_the_help_runs(group, reader, tmp_path, monkeypatch):
    """In a reader's folder, one after the other: `lethe verify` reads the certificate of `lethe certify`."""
    monkeypatch.chdir(shutil.copytree(reader, tmp_path / "reader", symlinks=True))
    for example in EXAMPLES[group]:
        if not example.startswith(ELSEWHERE):
            words = shlex.split(example)
            done = called(shlex.join([*words, *LESS.get(words[0], [])]))
            assert done.exit_code == 0, f"{example}\n{done.output[-2000:]}"


def test_every_example_of_the_pipeline_is_legal():
    """Run, sweep, serve and the studies run for minutes."""
    commands_of_pipeline = pipeline()
    study = [getattr(studies.commands, name) for name in commands_of_pipeline.pop("study").values()]
    for function in (*commands_of_pipeline.values(), *study):
        examples = re.findall(r"^ *Example: `(lethe [^`]+)`$", function.__doc__, re.M)
        assert examples, function
        for words in map(shlex.split, examples):
            legal, rest = options(words)
            assert {word.split("=")[0] for word in rest if word.startswith("--")} <= legal, words


def refused(project: Path, changes: list) -> str | None:
    try:
        settings.changed(project / "params.yaml", changes)
    except BadParam as error:
        return error.key
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_changes_of_params_are_legal(page, project, monkeypatch):
    """A reader has the package that the page names."""
    monkeypatch.setattr(settings.utility, "check_installed", lambda: None)
    for words in commands(page):
        changes = [parse(value) for option, value in pairwise(words) if option == "-S"]
        if words[:2] != ["lethe", "run"] or not changes:
            continue
        preset = [
            settings.read_preset(value).items()
            for option, value in pairwise(words)
            if option == "--preset"
        ]
        assert refused(project, [*chain(*preset), *changes]) in OF_A_READER, words


def test_the_log_of_the_readme_is_bounded_as_the_readme_says():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    ((call, file, shown),) = re.findall(
        r"^lethe (bounds) (docs/\S+)\n.*?```text\n(.*?)```", text, re.M | re.S
    )
    printed = " ".join(CliRunner().invoke(app, [call, str(ROOT / file)]).output.split())
    for part in shown.split("..."):
        assert " ".join(part.split()) in printed


WAY = re.compile(r"^\d+\. `([\w/]+\.py):(\w+)`", re.M)


FUNCTION = re.compile(r"`([\w/]+\.py):(\w+)`")


def test_the_way_of_a_question_has_few_steps():
    steps = WAY.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))

    assert 10 <= len(steps) <= 15


def test_every_function_that_contributing_names_exists():
    named = FUNCTION.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))

    assert len(named) >= 30
    for file, function in named:
        source = (ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"def {function}\(", source), (file, function)


@pytest.mark.slow
@pytest.mark.timeout(1800)  # a whole pipeline, on a machine that may be busy
@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors give other numbers")
def test_every_cell_of_the_notebook_prints_what_it_stores(tmp_path, monkeypatch):
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    (preset,) = re.findall(r"^lethe run --preset (\S+)", text_of(NOTEBOOK), re.M)
    repository = make_repository(
        tmp_path / "lethe", yaml.safe_load((ROOT / "params.yaml").read_text()), git=False
    )
    settings.change(repository / "params.yaml", list(settings.read_preset(preset).items()))
    models = yaml.safe_load((repository / "params.yaml").read_text())["models"]
    stages = ["prepare", "train@base", "train@retrain", "unlearn@npo"]
    for name in models:
        stages += [f"{stage}@{name}" for stage in ("sample", "likelihood", "score", "metrics")]
    run_in_one_process(repository, *stages, timeout=1500)
    monkeypatch.chdir(repository)
    monkeypatch.setenv("MPLBACKEND", "agg")
    assert executed(notebook) == notebook["cells"]
    assert sum(bool(cell.get("outputs")) for cell in notebook["cells"]) >= 6


def test_every_check_is_a_command_and_where_it_runs():
    for check in known().values():
        assert all(isinstance(word, str) for word in check.command)
        assert check.side is None or isinstance(check.side, Side)
