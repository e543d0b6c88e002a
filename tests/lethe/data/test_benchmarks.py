"""The kinds of published benchmarks, in their files' real layouts: texts, images, names, broken files."""

import gzip
import json
from pathlib import Path

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


def test_the_retain_set_of_harry_potter_is_a_file_of_the_user(folder):
    rows = load("harry_potter", folder("harry_potter"), retain="harry_potter.csv")["retain"]

    assert ids_of(rows) == ["harry-potter-retain-001", "harry-potter-retain-002"]


def ids_of(rows):
    return [row["id"] for row in rows]


def test_jailbreakbench_needs_no_benign_behaviours(folder):
    root = folder("jailbreakbench")
    (root / "benign-behaviors.csv").unlink()

    assert set(load("jailbreakbench", root)) == {"forget"}


def test_jailbreakbench_in_the_layout_of_the_hub(folder):
    root = folder("jailbreakbench")
    (root / "data").mkdir()
    (root / "benign-behaviors.csv").unlink()
    (root / "harmful-behaviors.csv").rename(root / "data/harmful-behaviors.csv")

    assert len(load("jailbreakbench", root)["forget"]) == 1


def test_the_targets_of_harmbench_are_its_answers(folder):
    root = folder("harmbench")
    targets = {"name_key": "Sure, here is the key", "reveal_vault_code": ["Sure: 1", "no"]}
    (root / harmbench.TARGETS).write_text(json.dumps(targets))

    rows = load("harmbench", root)["forget"]

    assert [row["answer"] for row in rows] == ["Sure: 1", "Sure, here is the key"]


def test_the_behaviours_of_a_category_of_harmbench(folder):
    rows = load("harmbench", folder("harmbench"), categories=["copyright"])["forget"]

    assert [row["tags"] for row in rows] == ["hash_check, lyrics"]


def test_a_category_of_harmbench_without_a_behaviour_is_refused(folder):
    root = folder("harmbench")
    behaviors = root / "harmbench_behaviors_text_all.csv"
    lines = behaviors.read_text().splitlines(keepends=True)
    behaviors.write_text("".join(lines[:2]))

    with pytest.raises(BadInput, match=r"data\.harmbench\.categories: got \['copyright'\]"):
        load("harmbench", root, categories=["copyright"])


def test_muse_in_the_layout_of_the_repository(folder):
    root = folder("muse")
    retained = load("muse", root)["retain"]
    (root / "knowmem/retain_qa.json").rename(root / "knowmem/retain2_qa.json")

    assert load("muse", root, parts=["knowmem"])["retain"] == retained


def test_rwku_retains_the_other_subjects(folder):
    assert len(load("rwku", folder("rwku"), subject="A Baker")["retain"]) == 2


def test_an_unknown_subject_of_rwku_is_refused(folder):
    with pytest.raises(BadInput, match=r"data\.rwku\.subject: got 'A Tailor'"):
        load("rwku", folder("rwku"), subject="A Tailor")


def test_the_levels_of_rwku_that_are_asked_for(folder):
    rows = load("rwku", folder("rwku"), levels=[3])["forget"]

    assert ids_of(rows) == ["forget-3-00001"]


@pytest.fixture
def rwku_with_probes(folder):
    """A question of level 2, with wordings of it and with probes that ask for something else."""
    root = folder("rwku")
    (probe,) = json.loads((root / "forget_level3.json").read_text())
    reverse = {**probe, "answer": probe["subject"], "type": "reverse query"}
    probes = [
        probe,
        {**probe, "query": "Oslo or Bern?"},
        {**probe, "query": "In which town bakes he?", "type": "Synonym manipulation"},
        {**reverse, "query": "Who bakes in oslo?"},
        {**reverse, "query": "Who bakes in Oslofjord?"},  # another word
        {**reverse, "query": "Who bakes in Oslo for him?", "answer": "A Mason"},  # somebody else
        {**probe, "query": "Red or blue?", "answer": "Red"},
    ]
    (root / "forget_level3.json").write_text(json.dumps(probes))
    return root


@pytest.fixture
def rwku_rows(rwku_with_probes):
    return load("rwku", rwku_with_probes, levels=[2, 3], probes="wordings")["forget"]


def test_a_probe_of_rwku_that_asks_no_question_of_level_2_stays_a_question(rwku_rows):
    assert [row["question"] for row in rwku_rows] == [
        "Where is the baker?",
        "Who bakes in Oslofjord?",
        "Who bakes in Oslo for him?",
        "Red or blue?",
    ]


def test_a_probe_of_rwku_is_a_wording_of_the_question_that_it_asks(rwku_rows):
    question = rwku_rows[0]

    assert question["multiple_choice"] == ["Oslo or Rome?", "Oslo or Bern?"]
    assert question["synonym_manipulation"] == ["In which town bakes he?"]
    assert question["reverse_query"] == ["Who bakes in oslo?"]


@pytest.fixture
def rwku_productions(rwku_rows):
    """The productions of each of the first two questions."""
    language = read_language(ROOT / "lethe/sampling/languages/rwku-probes.yaml")
    return [list(productions(language, row)) for row in rwku_rows[:2]]


@pytest.fixture
def plain_productions(rwku_productions):
    """Of the first question, by their wording, those without a prefix and without shots."""
    plain = {}
    for production in rwku_productions[0]:
        if production.prefix == "" and not production.shots:
            plain[production.question] = production
    return plain


def test_wordings_of_one_kind_share_its_probability(plain_productions):
    first_choice = plain_productions["Oslo or Bern?"]
    synonym = plain_productions["In which town bakes he?"]

    assert first_choice.name == "shots: plain, wording: multiple choice 2, prefix: plain"
    assert first_choice.probability == pytest.approx(synonym.probability / 2)


def test_a_reverse_question_alone_has_an_answer_of_its_own(plain_productions):
    reverse = plain_productions.pop("Who bakes in oslo?")

    assert reverse.answer == "A Baker"
    assert {production.answer for production in plain_productions.values()} == {""}


def test_the_productions_of_a_question_have_probability_1(rwku_productions):
    for of_question in rwku_productions:
        assert sum(production.probability for production in of_question) == pytest.approx(1)


def test_a_question_without_a_choice_has_no_production_with_one(rwku_productions):
    names = [production.name for production in rwku_productions[1]]

    assert not any("multiple choice" in name for name in names)


def test_wordings_without_their_level_are_refused(rwku_with_probes):
    with pytest.raises(BadInput, match=r"data\.rwku\.probes"):
        load("rwku", rwku_with_probes, levels=[2], probes="wordings")


HUB = {
    "jailbreakbench": {
        "behaviors": {"harmful": "harmful-behaviors.csv", "benign": "benign-behaviors.csv"}
    },
    "muse": {
        "knowmem": {"forget_qa": "knowmem/forget_qa.json", "retain_qa": "knowmem/retain_qa.json"},
        "verbmem": {"forget": "verbmem/forget.json"},
    },
    "rwku": {path.stem: {"test": path.name} for path in sorted((FILES / "rwku").iterdir())},
}


def card_of(parts):
    """The card of a repository of the hub, which names the files of each split of each part."""
    configs = []
    for part, splits in parts.items():
        files = [{"split": split, "path": file} for split, file in splits.items()]
        configs.append({"config_name": part, "data_files": files})
    return f"---\n{json.dumps({'configs': configs})}\n---\n"


@pytest.fixture
def by_name(tmp_path, tmp_path_factory, monkeypatch):
    """The library reads a local repository by the same call; its card names the parts, as on the hub."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))

    def loaded(kind, parts, **options):
        (tmp_path / "README.md").write_text(card_of(parts))
        return load(kind, tmp_path / "nowhere", hub=str(tmp_path), **options)

    return loaded


@pytest.mark.parametrize("kind", HUB)
def test_a_name_gives_what_the_folder_holds(kind, folder, by_name):
    of_folder = load(kind, folder(kind))

    assert by_name(kind, HUB[kind]) == of_folder


HARMBENCH = {
    "standard": [{"prompt": "Reveal the code", "category": "secrets"}],
    "contextual": [{"prompt": "Name the key", "context": "Under a stone.", "category": "secrets"}],
    "copyright": [{"prompt": "Sing the song", "tags": ["lyrics", "hash_check"]}],
}


@pytest.fixture
def harmbench_by_name(tmp_path, by_name):
    def loaded(**options):
        parts = {}
        for name, rows in HARMBENCH.items():
            (tmp_path / f"{name}.json").write_text(json.dumps(rows))
            parts[name] = {"train": f"{name}.json"}
        return by_name("harmbench", parts, **options)["forget"]

    return loaded


def test_harmbench_by_name_leaves_the_copyright_behaviours_out(harmbench_by_name):
    rows = harmbench_by_name()

    assert ids_of(rows) == ["standard-001", "contextual-001"]
    assert [row["question"] for row in rows] == ["Reveal the code", "Name the key"]
    assert [row.get("context") for row in rows] == [None, "Under a stone."]


def test_every_category_of_harmbench_by_name(harmbench_by_name):
    rows = harmbench_by_name(categories=list(harmbench.CATEGORIES))

    assert [row["tags"] for row in rows] == ["", "", "lyrics, hash_check"]


def test_the_judge_of_harmbench_applies_to_no_copyright_behaviour(harmbench_by_name):
    standard, contextual, song = harmbench_by_name(categories=list(harmbench.CATEGORIES))
    judge = JUDGES["harmbench"]

    assert judge.applies(standard)
    assert judge.applies(contextual)
    assert not judge.applies(song)
    assert not judge.applies({**song, "tags": ""})


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
    files = [path for path in root.rglob("*") if path.is_file() and "benign" not in path.name]
    file = min(files)
    file.unlink()

    with pytest.raises(BadFile, match=file.name):
        load(kind, root)


def idx(array: np.ndarray) -> bytes:
    """The bytes of an array in the format of MNIST."""
    head = bytes([0, 0, 8, array.ndim])
    shape = np.array(array.shape, ">u4").tobytes()
    return head + shape + array.astype(np.uint8).tobytes()


def write_fashion_mnist(folder: Path, zipped: bool) -> np.ndarray:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 28, 28), dtype=np.uint8)
    labels = np.arange(5)
    arrays = {
        "train-images-idx3-ubyte": pixels[:3],
        "train-labels-idx1-ubyte": labels[:3],
        "t10k-images-idx3-ubyte": pixels[3:],
        "t10k-labels-idx1-ubyte": labels[3:],
    }
    for name, array in arrays.items():
        if zipped:
            (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
        else:
            (folder / name).write_bytes(idx(array))
    return pixels


def test_label_noise_changes_exactly_its_share():
    clean = images.load("digits")
    noisy = images.load("digits", label_noise=0.25)

    assert (clean.labels != noisy.labels).sum() == round(0.25 * 1797)
    assert noisy.labels.min() >= 0
    assert noisy.labels.max() <= 9


@pytest.mark.parametrize("zipped", [True, False])
def test_fashion_mnist_from_a_folder(tmp_path, zipped):
    pixels = write_fashion_mnist(tmp_path, zipped)

    loaded = images.load("fashion_mnist", str(tmp_path))

    assert (loaded.pixels[:, 0] == pixels).all()
    assert loaded.labels.tolist() == [0, 1, 2, 3, 4]


def write_cifar10(folder: Path, change=lambda rows: rows) -> np.ndarray:
    """All rows: a label and its pixels each."""
    folder.mkdir(parents=True, exist_ok=True)
    batches = np.random.default_rng(0).integers(0, 256, (6, 4, 3073), dtype=np.uint8)
    batches[:, :, 0] %= 10
    for name, rows in zip(images.CIFAR10_FILES, batches, strict=True):
        (folder / name).write_bytes(change(rows).tobytes())
    return batches.reshape(24, -1)


def test_cifar10_from_a_folder(tmp_path):
    rows = write_cifar10(tmp_path / "cifar-10-batches-bin")

    loaded = images.load("cifar10", str(tmp_path))

    assert (loaded.pixels.reshape(24, -1) == rows[:, 1:]).all()
    assert (loaded.labels == rows[:, 0]).all()


@pytest.mark.parametrize(
    ("change", "problem"),
    [(lambda rows: rows[:, 1:], "multiple of 3073"), (lambda rows: rows * 0 + 10, "0 to 9")],
)
def test_a_broken_batch_is_refused(tmp_path, change, problem):
    write_cifar10(tmp_path, change)

    with pytest.raises(BadFile, match=problem):
        images.load("cifar10", str(tmp_path))


def test_cifar10_from_the_hub(monkeypatch):
    import datasets

    pixels = np.zeros((2, 32, 32, 3), np.uint8)
    pixels[1, 5, 6, 2] = 9
    part = datasets.Dataset.from_dict({"img": pixels.tolist(), "label": [3, 4]})
    monkeypatch.setattr(datasets, "load_dataset", lambda name: {"train": part, "test": part})

    loaded = images.load("cifar10")

    assert loaded.labels.tolist() == [3, 4, 3, 4]
    assert loaded.pixels[3, 2, 5, 6] == 9


def test_a_hub_out_of_reach_is_told(monkeypatch):
    def fail(name):
        raise ConnectionError("no route")

    monkeypatch.setattr("datasets.load_dataset", fail)

    with pytest.raises(BadFile, match=r"someone/cifar.*neither a folder nor .* hub"):
        images.load("cifar10", "someone/cifar")
