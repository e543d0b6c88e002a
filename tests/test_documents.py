"""README and docs/: links, pages, commands, targets and presets exist, an example prints what it says, pages stay short."""

import importlib.util
import re
import shlex
from itertools import chain, pairwise

import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

from flows import settings
from lethe.cli.app import app
from lethe.config.yaml import parse
from lethe.errors import BadParam
from tests.benchmarks.__main__ import known
from tests.small import ROOT

DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS]
LINK = re.compile(r"\]\(([^)#:]+)\)")
# A line of a block or a word of a sentence that is a command, without its comment.
COMMAND = re.compile(r"^(?:\$ | {4})?(lethe .*?|python -m .*?)(?:\s+#.*)?$|`(lethe [^`]+|python -m [^`]+)`", re.M)
OPEN = ("...", "NAME", "LOG", "FOLDER", "[", "'{")  # an abbreviated command, which is not read further
PRESETS = {
    path.stem
    for place in ("flows/presets", "flows/sweeps", "studies/presets")
    for path in (ROOT / place).glob("*.yaml")
}
OF_A_READER = (None, "models.smollm2.path", "judges.harm.labelled")  # files that a reader has or makes first
MOST_WORDS = {"README": 600, "docs": 16_000}  # as `wc -w` counts; the sum of the pages of docs/


def links(page) -> set:
    """The files of the project to which a page links."""
    return {(page.parent / target).resolve() for target in LINK.findall(page.read_text(encoding="utf-8"))}


def commands(page) -> list[list[str]]:
    """The commands of a page as words; a backslash continues a line."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    found = (block or word for block, word in COMMAND.findall(text))
    return [shlex.split(one.replace("\n", " ").split(" && ")[0].split(" > ")[0], comments=True) for one in found]


def options(words: list[str]) -> tuple[set[str], list[str]]:
    """The options of the command that the words of `lethe ...` name, and the words behind its name."""
    command, rest = typer.main.get_command(app), words[1:]
    while isinstance(command, TyperGroup) and rest:
        found = command.get_command(None, rest[0])
        if found is None and command.name == "score":  # `lethe score LOG`
            found, rest = command.get_command(None, "log"), ["log", *rest]
        assert found is not None, f"{' '.join(words)}: no such command"
        command, rest = found, rest[1:]
    made = command.make_context(words[-1], [], resilient_parsing=True).command
    return {"--help", *(opt for one in made.params for opt in (*one.opts, *one.secondary_opts))}, rest


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file(page):
    assert [str(target) for target in links(page) if not target.exists()] == []


def test_every_page_is_found_from_the_readme():
    found, ahead = set(), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page not in found and page.suffix == ".md" and page.exists():
            found.add(page)
            ahead += links(page)
    assert {page.name for page in PAGES} - {page.name for page in found} == set()


def test_documents_stay_within_their_words():
    words = {page.name: len(page.read_text(encoding="utf-8").split()) for page in (ROOT / "README.md", *DOCS)}
    assert words.pop("README.md") <= MOST_WORDS["README"]
    assert sum(words.values()) <= MOST_WORDS["docs"], words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_targets_exist(page):
    rules = re.findall(r"^([a-z0-9-]+(?: [a-z0-9-]+)*):", (ROOT / "Makefile").read_text(), re.M)
    targets = {name for line in rules for name in line.split()}
    assert set(re.findall(r"(?:`|^)make ([a-z][a-z0-9-]+)", page.read_text(encoding="utf-8"), re.M)) <= targets


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


def refused(changes: list) -> str | None:
    """The key of params.yaml that does not take these changes."""
    try:
        settings.changed(ROOT / "params.yaml", changes)
    except BadParam as error:
        return error.key
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_changes_of_params_are_legal(page):
    for words in commands(page):
        changes = [parse(own) for option, own in pairwise(words) if option == "-S"]
        if words[:2] != ["lethe", "run"] or not changes:
            continue
        preset = [settings.read_preset(own).items() for option, own in pairwise(words) if option == "--preset"]
        assert refused([*chain(*preset), *changes]) in OF_A_READER, words


def test_the_log_of_the_readme_is_bounded_as_the_readme_says():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    ((call, file, shown),) = re.findall(r"^lethe (bounds) (docs/\S+)\n.*?```text\n(.*?)```", text, re.M | re.S)
    printed = " ".join(CliRunner().invoke(app, [call, str(ROOT / file)]).output.split())
    for part in shown.split("..."):
        assert " ".join(part.split()) in printed


WAY = re.compile(r"^\d+\. `([\w/]+\.py):(\w+)`", re.M)


def test_the_way_of_a_question_has_few_steps_and_every_step_exists():
    steps = WAY.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert 10 <= len(steps) <= 15
    for file, function in steps:
        assert re.search(rf"def {function}\(", (ROOT / file).read_text(encoding="utf-8")), (file, function)
