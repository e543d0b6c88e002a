"""The kinds of published benchmarks, in their files' real layouts: texts, images, names, broken files."""

import gzip
import json
from pathlib import Path

import datasets
import numpy as np
import pytest

from lethe.data import images
from lethe.data.kinds import harmbench
from lethe.errors import BadFile, BadInput
from lethe.registry import JUDGES
from lethe.sampling.prompt_language import productions, read_language
from tests.cases import cases
from tests.lethe.data.benchmark_files import FILES, OPTIONS, load, write_benchmark
from tests.small import ROOT


@pytest.fixture
def folder(tmp_path):
    def make(kind):
        write_benchmark(kind, tmp_path)
        return tmp_path

    return make


@pytest.mark.parametrize("kind", OPTIONS)
def test_the_rows_of_a_benchmark(kind, folder):
    """rows.json was recorded once and compared by eye with the files beside it."""
    assert load(kind, folder(kind)) == json.loads((FILES / "rows.json").read_text())[kind]


def test_harry_potter(folder):
    retained = load("harry_potter", folder("harry_potter"), retain="harry_potter.csv")
    assert [row["id"] for row in retained["retain"]] == [
        "harry-potter-retain-001",
        "harry-potter-retain-002",
    ]


def test_jailbreakbench(folder):
    root = folder("jailbreakbench")
    (root / "benign-behaviors.csv").unlink()
    assert set(load("jailbreakbench", root)) == {"forget"}
    (root / "data").mkdir()
    (root / "harmful-behaviors.csv").rename(
        root / "data/harmful-behaviors.csv"
    )  # the layout of the hub
    assert len(load("jailbreakbench", root)["forget"]) == 1


def test_harmbench(folder):
    root = folder("harmbench")
    targets = {"name_key": "Sure, here is the key", "reveal_vault_code": ["Sure: 1", "no"]}
    (root / harmbench.TARGETS).write_text(json.dumps(targets))
    assert [row["answer"] for row in load("harmbench", root)["forget"]] == [
        "Sure: 1",
        "Sure, here is the key",
    ]
    only = load("harmbench", root, categories=["copyright"])["forget"]
    assert [row["tags"] for row in only] == ["hash_check, lyrics"]
    behaviors = root / "harmbench_behaviors_text_all.csv"
    behaviors.write_text("".join(behaviors.read_text().splitlines(keepends=True)[:2]))
    with pytest.raises(BadInput, match=r"data\.harmbench\.categories: got \['copyright'\]"):
        load("harmbench", root, categories=["copyright"])


def test_muse(folder):
    root = folder("muse")
    retained = load("muse", root)["retain"]
    (root / "knowmem/retain_qa.json").rename(
        root / "knowmem/retain2_qa.json"
    )  # the layout of the repository
    assert load("muse", root, parts=["knowmem"])["retain"] == retained


def test_rwku(folder):
    root = folder("rwku")
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
        {
            **reverse,
            "query": "Who bakes in Oslo for him?",
            "answer": "A Mason",
        },  # asks for somebody else
        {**probe, "query": "Red or blue?", "answer": "Red"},
    ]
    (root / "forget_level3.json").write_text(json.dumps([probe, *more]))
    rows = load("rwku", root, levels=[2, 3], probes="wordings")["forget"]
    left = ["Who bakes in Oslofjord?", "Who bakes in Oslo for him?", "Red or blue?"]
    assert [row["question"] for row in rows] == ["Where is the baker?", *left]
    assert rows[0]["multiple_choice"] == ["Oslo or Rome?", "Oslo or Bern?"]
    assert rows[0]["synonym_manipulation"] == ["In which town bakes he?"]
    assert rows[0]["reverse_query"] == ["Who bakes in oslo?"]
    language = read_language(ROOT / "lethe/sampling/languages/rwku-probes.yaml")
    first, second = (productions(language, row) for row in rows[:2])
    worded = {one.question: one for one in first if one.prefix == "" and not one.shots}
    assert worded["Oslo or Bern?"].name == "shots: plain, wording: multiple choice 2, prefix: plain"
    assert worded["Oslo or Bern?"].probability == pytest.approx(
        worded["In which town bakes he?"].probability / 2
    )
    assert worded["Who bakes in oslo?"].answer == "A Baker"
    assert {one.answer for question, one in worded.items() if question != "Who bakes in oslo?"} == {
        ""
    }
    assert (
        sum(one.probability for one in first)
        == pytest.approx(1)
        == sum(one.probability for one in second)
    )
    assert not any("multiple choice" in one.name for one in second)
    with pytest.raises(BadInput, match=r"data\.rwku\.probes"):
        load("rwku", root, levels=[2], probes="wordings")


HUB = {
    "jailbreakbench": [
        ("behaviors", {"harmful": "harmful-behaviors.csv", "benign": "benign-behaviors.csv"})
    ],
    "muse": [
        ("knowmem", {"forget_qa": "knowmem/forget_qa.json", "retain_qa": "knowmem/retain_qa.json"}),
        ("verbmem", {"forget": "verbmem/forget.json"}),
    ],
    "rwku": [(path.stem, {"test": path.name}) for path in sorted((FILES / "rwku").iterdir())],
}


@pytest.fixture
def by_name(tmp_path, tmp_path_factory, monkeypatch):
    """The library reads a local repository by the same call; its card names the parts, as on the hub."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))

    def loaded(kind, parts, **options):
        configs = [
            {
                "config_name": part,
                "data_files": [{"split": split, "path": file} for split, file in splits.items()],
            }
            for part, splits in parts
        ]
        (tmp_path / "README.md").write_text(f"---\n{json.dumps({'configs': configs})}\n---\n")
        return load(kind, tmp_path / "nowhere", hub=str(tmp_path), **options)

    return loaded


@pytest.mark.parametrize("kind", HUB)
def test_a_name_gives_what_the_folder_holds(kind, folder, by_name):
    expected = load(kind, folder(kind))
    assert by_name(kind, HUB[kind]) == expected


def test_harmbench_by_name(tmp_path, by_name):
    held = {
        "standard": [{"prompt": "Reveal the code", "category": "secrets"}],
        "contextual": [
            {"prompt": "Name the key", "context": "Under a stone.", "category": "secrets"}
        ],
        "copyright": [{"prompt": "Sing the song", "tags": ["lyrics", "hash_check"]}],
    }
    for name, rows in held.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(rows))
    parts = [(name, {"train": f"{name}.json"}) for name in held]
    rows = by_name("harmbench", parts)["forget"]
    assert [(row["id"], row["question"], row.get("context")) for row in rows] == [
        ("standard-001", "Reveal the code", None),
        ("contextual-001", "Name the key", "Under a stone."),
    ]
    every = by_name("harmbench", parts, categories=list(harmbench.CATEGORIES))["forget"]
    assert [row["tags"] for row in every] == ["", "", "lyrics, hash_check"]
    assert [JUDGES["harmbench"].applies(row) for row in every] == [True, True, False]
    assert not JUDGES["harmbench"].applies({**every[2], "tags": ""})


@cases
def test_a_wrong_schema_names_file_row_and_column(kind, file, old, new, told, folder):
    root = folder(kind)
    text = (root / file).read_text()
    assert old in text
    (root / file).write_text(text.replace(old, new, 1))
    with pytest.raises(BadInput, match=told):
        load(kind, root)


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_missing_file_is_named(kind, folder):
    root = folder(kind)
    file = min(path for path in root.rglob("*") if path.is_file() and "benign" not in path.name)
    file.unlink()
    with pytest.raises(BadFile, match=file.name):
        load(kind, root)


def idx(array: np.ndarray) -> bytes:
    return (
        bytes([0, 0, 8, array.ndim])
        + np.array(array.shape, ">u4").tobytes()
        + array.astype(np.uint8).tobytes()
    )


def fashion_folder(folder: Path, zipped: bool) -> np.ndarray:
    pixels, labels = (
        np.random.default_rng(0).integers(0, 256, (5, 28, 28), dtype=np.uint8),
        np.arange(5),
    )
    for part, rows in (("train", slice(0, 3)), ("t10k", slice(3, 5))):
        for name, values in (("images-idx3", pixels[rows]), ("labels-idx1", labels[rows])):
            data = gzip.compress(idx(values)) if zipped else idx(values)
            (folder / f"{part}-{name}-ubyte{'.gz' * zipped}").write_bytes(data)
    return pixels


def test_label_noise_changes_exactly_its_share():
    clean, noisy = images.load("digits"), images.load("digits", label_noise=0.25)
    assert (clean.labels != noisy.labels).sum() == round(0.25 * 1797)
    assert noisy.labels.min() >= 0
    assert noisy.labels.max() <= 9


@pytest.mark.parametrize("zipped", [True, False])
def test_fashion_mnist_from_a_folder(tmp_path, zipped):
    pixels = fashion_folder(tmp_path, zipped)
    loaded = images.load("fashion_mnist", str(tmp_path))
    assert (loaded.pixels[:, 0] == pixels).all()
    assert loaded.labels.tolist() == [0, 1, 2, 3, 4]


def write_cifar10(folder: Path, change=lambda rows: rows) -> np.ndarray:
    """All rows: a label and its pixels each."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = np.random.default_rng(0).integers(0, 256, (6, 4, 3073), dtype=np.uint8)
    rows[:, :, 0] %= 10
    for name, own in zip(images.CIFAR10_FILES, rows, strict=True):
        (folder / name).write_bytes(change(own).tobytes())
    return rows.reshape(24, -1)


def test_cifar10_from_a_folder(tmp_path):
    rows = write_cifar10(tmp_path / "cifar-10-batches-bin")
    loaded = images.load("cifar10", str(tmp_path))
    assert (loaded.pixels.reshape(24, -1) == rows[:, 1:]).all()
    assert (loaded.labels == rows[:, 0]).all()


@pytest.mark.parametrize(
    ("change", "told"),
    [(lambda rows: rows[:, 1:], "multiple of 3073"), (lambda rows: rows * 0 + 10, "0 to 9")],
)
def test_a_broken_batch_is_refused(tmp_path, change, told):
    write_cifar10(tmp_path, change)
    with pytest.raises(BadFile, match=told):
        images.load("cifar10", str(tmp_path))


def test_cifar10_from_the_hub(monkeypatch):
    pixels, labels = np.zeros((2, 32, 32, 3), np.uint8), [3, 4]
    pixels[1, 5, 6, 2] = 9
    part = datasets.Dataset.from_dict({"img": [p.tolist() for p in pixels], "label": labels})
    monkeypatch.setattr(datasets, "load_dataset", lambda name: {"train": part, "test": part})
    loaded = images.load("cifar10")
    assert loaded.labels.tolist() == [3, 4, 3, 4]
    assert loaded.pixels[3, 2, 5, 6] == 9


def test_a_hub_out_of_reach_is_told(monkeypatch):
    def fail(name):
        raise ConnectionError("no route")

    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(BadFile, match=r"someone/cifar.*neither a folder nor .* hub"):
        images.load("cifar10", "someone/cifar")
