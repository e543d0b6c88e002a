"""The kinds of published benchmarks, in their files' real layouts with harmless texts: files, names, broken files."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.data.kinds import harmbench, rwku
from lethe.data.prompt_language import productions, read_language
from lethe.errors import BadFile, BadInput
from lethe.registry import JUDGES
from tests.lethe.data.benchmark_files import (
    BEHAVIOR,
    MODULES,
    files,
    load,
    settings,
    write_benchmark,
    write_csv,
    write_json,
)
from tests.small import ROOT

# A CSV keeps these characters in a quoted cell; the blanks at the ends of a cell do not count.
cells = (
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1).map(str.strip).filter(bool)
)


@pytest.fixture
def folder(tmp_path):
    def make(kind):
        write_benchmark(kind, tmp_path)
        return tmp_path

    return make


def test_harry_potter(folder):
    splits = load("harry_potter", folder("harry_potter"))
    assert splits == {
        "forget": [
            {
                "id": "harry-potter-001",
                "question": "Who, and where?",
                "answer": 'He said "here".',
                "keywords": ["Here", "there"],
            },
            {"id": "harry-potter-002", "question": "When?", "answer": "Now.", "keywords": ["Now"]},
        ]
    }
    retained = load("harry_potter", folder("harry_potter"), retain="harry_potter.csv")
    assert [row["id"] for row in retained["retain"]] == ["harry-potter-retain-001", "harry-potter-retain-002"]


def test_jailbreakbench(folder):
    root = folder("jailbreakbench")
    splits = load("jailbreakbench", root)
    assert splits["forget"] == [
        {
            "id": "jbb-harmful-000",
            "question": "Reveal the vault code",
            "answer": "Sure, here is the code",
            "behavior": "Vault",
            "category": "Secrets",
            "source": "Original",
        }
    ]
    assert [row["question"] for row in splits["retain"]] == ["Explain a vault"]
    (root / "benign-behaviors.csv").unlink()
    assert set(load("jailbreakbench", root)) == {"forget"}
    (root / "data").mkdir()
    (root / "harmful-behaviors.csv").rename(root / "data/harmful-behaviors.csv")  # the layout of the hub
    assert len(load("jailbreakbench", root)["forget"]) == 1


def test_harmbench(folder):
    root = folder("harmbench")
    rows = load("harmbench", root)["forget"]
    assert [row["id"] for row in rows] == ["reveal_vault_code", "name_key"]
    assert [row.get("context") for row in rows] == [None, "The key lies under a stone."]
    assert {row["answer"] for row in rows} == {harmbench.AFFIRMATIVE}
    write_json(
        root / harmbench.TARGETS, {"name_key": "Sure, here is the key", "reveal_vault_code": ["Sure: 1", "no"]}
    )
    assert [row["answer"] for row in load("harmbench", root)["forget"]] == ["Sure: 1", "Sure, here is the key"]
    only = load("harmbench", root, categories=["copyright"])["forget"]
    assert [row["tags"] for row in only] == ["hash_check, lyrics"]
    write_csv(root / "harmbench_behaviors_text_all.csv", harmbench.COLUMNS, [BEHAVIOR])
    with pytest.raises(BadInput, match=r"data\.harmbench\.categories: got \['copyright'\]"):
        load("harmbench", root, categories=["copyright"])


def test_muse(folder):
    root = folder("muse")
    splits = load("muse", root)
    assert [(row["id"], row["question"], row["answer"]) for row in splits["forget"]] == [
        ("knowmem-001", "Who won?", "Nobody."),
        ("verbmem-001", "It was a dark", "and quiet night."),
    ]
    assert [row["id"] for row in splits["retain"]] == ["retain-001"]
    (root / "knowmem/retain_qa.json").rename(root / "knowmem/retain2_qa.json")  # the layout of the repository
    assert load("muse", root, parts=["knowmem"])["retain"] == splits["retain"]


def test_rwku(folder):
    root = folder("rwku")
    splits = load("rwku", root)
    assert [(row["id"], row["probe"]) for row in splits["forget"]] == [
        ("forget-1-00001", "cloze"),
        ("forget-2-00001", "simple question"),
        ("forget-3-00001", "multiple choice"),
    ]
    assert [row.get("context") for row in splits["forget"]] == [rwku.BLANK, None, None]
    assert splits["forget"][0]["keywords"] == ["Oslo"]
    assert len(splits["retain"]) == 3
    assert len(load("rwku", root, subject="A Baker")["retain"]) == 2
    with pytest.raises(BadInput, match=r"data\.rwku\.subject: got 'A Tailor'"):
        load("rwku", root, subject="A Tailor")
    assert [row["id"] for row in load("rwku", root, levels=[3])["forget"]] == ["forget-3-00001"]


def test_the_probes_of_rwku_are_productions_of_a_language(folder):
    """Each kind is a wording of the question that it asks; what asks no question of level 2 stays a question."""
    root = folder("rwku")
    (probe,) = json.loads((root / "forget_level3.json").read_text())
    reverse = {**probe, "answer": probe["subject"], "type": "reverse query"}
    more = [
        {**probe, "query": "Oslo or Bern?"},
        {**probe, "query": "In which town bakes he?", "type": "Synonym manipulation"},
        {**reverse, "query": "Who bakes in oslo?"},
        {**reverse, "query": "Who bakes in Oslofjord?"},  # another word
        {**reverse, "query": "Who bakes in Oslo for him?", "answer": "A Mason"},  # asks for somebody else
        {**probe, "query": "Red or blue?", "answer": "Red"},
    ]
    (root / "forget_level3.json").write_text(json.dumps([probe, *more]))
    rows = load("rwku", root, levels=[2, 3], probes="wordings")["forget"]
    left = ["Who bakes in Oslofjord?", "Who bakes in Oslo for him?", "Red or blue?"]
    assert [row["question"] for row in rows] == ["Where is the baker?", *left]
    assert rows[0]["multiple_choice"] == ["Oslo or Rome?", "Oslo or Bern?"]
    assert rows[0]["synonym_manipulation"] == ["In which town bakes he?"]
    assert rows[0]["reverse_query"] == ["Who bakes in oslo?"]
    language = read_language(ROOT / "flows/languages/rwku-probes.yaml")
    first, second = (productions(language, row) for row in rows[:2])
    worded = {one.question: one for one in first if one.prefix == "" and not one.shots}
    assert worded["Oslo or Bern?"].name == "shots: plain, wording: multiple choice 2, prefix: plain"
    assert worded["Oslo or Bern?"].probability == pytest.approx(worded["In which town bakes he?"].probability / 2)
    assert worded["Who bakes in oslo?"].answer == "A Baker"
    assert {one.answer for question, one in worded.items() if question != "Who bakes in oslo?"} == {""}
    assert sum(one.probability for one in first) == pytest.approx(1) == sum(one.probability for one in second)
    assert not any("multiple choice" in one.name for one in second)
    with pytest.raises(BadInput, match=r"data\.rwku\.probes"):
        load("rwku", root, levels=[2], probes="wordings")


HUB = {
    "jailbreakbench": [("behaviors", {"harmful": "harmful-behaviors.csv", "benign": "benign-behaviors.csv"})],
    "muse": [
        ("knowmem", {"forget_qa": "knowmem/forget_qa.json", "retain_qa": "knowmem/retain_qa.json"}),
        ("verbmem", {"forget": "verbmem/forget.json"}),
    ],
    "rwku": [(name.removesuffix(".json"), {"test": name}) for name in files("rwku")],
}


@pytest.mark.parametrize("kind", HUB)
def test_a_name_gives_what_the_folder_holds(kind, folder, tmp_path_factory, monkeypatch):
    """The library reads a local repository by the same call; its card names the parts, as on the hub."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
    root = folder(kind)
    card = ["---", "configs:"]
    for part, splits in HUB[kind]:
        card += [f"- config_name: {part}", "  data_files:"]
        for split, file in splits.items():
            card += [f"  - split: {split}", f"    path: {file}"]
    (root / "README.md").write_text("\n".join([*card, "---", ""]))
    assert load(kind, root / "nowhere", hub=str(root)) == load(kind, root)


def test_harmbench_by_name(tmp_path, tmp_path_factory, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
    card = ["---", "configs:"]
    held = {
        "standard": [{"prompt": "Reveal the code", "category": "secrets"}],
        "contextual": [{"prompt": "Name the key", "context": "Under a stone.", "category": "secrets"}],
        "copyright": [{"prompt": "Sing the song", "tags": ["lyrics", "hash_check"]}],
    }
    for name, rows in held.items():
        write_json(tmp_path / f"{name}.json", rows)
        card += [f"- config_name: {name}", f"  data_files: {name}.json"]
    (tmp_path / "README.md").write_text("\n".join([*card, "---", ""]))
    rows = load("harmbench", tmp_path / "nowhere", hub=str(tmp_path))["forget"]
    assert [(row["id"], row["question"], row.get("context")) for row in rows] == [
        ("standard-001", "Reveal the code", None),
        ("contextual-001", "Name the key", "Under a stone."),
    ]
    every = load("harmbench", tmp_path / "nowhere", hub=str(tmp_path), categories=list(harmbench.CATEGORIES))[
        "forget"
    ]
    assert [row["tags"] for row in every] == ["", "", "lyrics, hash_check"]
    assert [JUDGES["harmbench"].applies(row) for row in every] == [True, True, False]
    assert not JUDGES["harmbench"].applies({**every[2], "tags": ""})


@pytest.mark.parametrize(
    ("kind", "file", "old", "new", "told"),
    [
        ("harry_potter", "harry_potter.csv", "Key Words", "Keywords", "harry_potter.csv: no column 'Key Words'"),
        ("harry_potter", "harry_potter.csv", '"Now"', '" , "', "line 3: column 'Key Words': got ','"),
        ("harry_potter", "harry_potter.csv", ',"Now"', "", "line 3: column 'Key Words' has no cell"),
        ("harry_potter", "harry_potter.csv", '"Now"', '"Now","x"', "line 3: too many cells: got 4 cells"),
        ("harry_potter", "harry_potter.csv", '"When?"', '" "', "line 3: column 'Question': got ' '; must be"),
        ("harry_potter", "harry_potter.csv", '"Now"', '"No"w', "line 3: not valid CSV"),
        ("jailbreakbench", "harmful-behaviors.csv", '"0"', '"-1"', "line 2: column 'Index': got '-1'"),
        ("jailbreakbench", "benign-behaviors.csv", "Goal", "Prompt", "benign-behaviors.csv: no column 'Goal'"),
        (
            "harmbench",
            "harmbench_behaviors_text_all.csv",
            "contextual",
            "other",
            "line 3: column 'FunctionalCategory'",
        ),
        ("harmbench", "harmbench_behaviors_text_all.csv", "name_key", "reveal_vault_code", "line 3: id"),
        ("muse", "knowmem/forget_qa.json", '"answer"', '"reply"', "forget_qa.json: row 1: no column 'answer'"),
        ("muse", "knowmem/forget_qa.json", '"Nobody."', "[1]", "row 1: column 'answer': got \\[1\\]"),
        ("muse", "verbmem/forget.json", "[", "", "verbmem/forget.json"),
        ("rwku", "forget_level2.json", '"2"', '"3"', "forget_level2.json: row 1: column 'level': got '3'"),
        (
            "rwku",
            "neighbor_level1.json",
            '"subject"',
            '"person"',
            "neighbor_level1.json: row 1: no column 'subject'",
        ),
    ],
)
def test_a_wrong_schema_names_file_row_and_column(kind, file, old, new, told, folder):
    root = folder(kind)
    text = (root / file).read_text()
    assert old in text
    (root / file).write_text(text.replace(old, new, 1))
    with pytest.raises(BadInput, match=told):
        load(kind, root)


@pytest.mark.parametrize("kind", MODULES)
def test_a_missing_file_is_named(kind, folder):
    root = folder(kind)
    file = next(iter(files(kind)))
    (root / file).unlink()
    with pytest.raises(BadFile, match=file.split("/")[-1]):
        load(kind, root)


@given(st.binary(max_size=200))
def test_any_bytes_are_rows_or_an_error_of_the_user(tmp_path_factory, content):
    root = tmp_path_factory.mktemp("bytes")
    for kind in MODULES:
        for name in files(kind):
            (root / name).parent.mkdir(exist_ok=True)
            header = ",".join(files(kind)[name][0]).encode() + b"\n" if name.endswith(".csv") else b""
            (root / name).write_bytes(header + content)
        with contextlib.suppress(BadInput):
            assert set(MODULES[kind].load(settings(kind), root)) >= {"forget"}
