"""`lethe extract`: p_z by hand on every window, the contract of its JSON, reference models, resuming, what it refuses."""

import json

import numpy as np
import pytest
import torch

from lethe.results.table import read_rows
from lethe.sampling import extraction
from tests.cases import cases
from tests.lethe.cli.calls import Command
from tests.lethe.sampling.sampling_models import build_llama

LETTERS = "abcde"
PREFIX = 4
SUFFIX = 3
KEYS = """model references settings alpha logit_allowance tokens n_windows extractable longest_run discoverable verdict
    near_verdict windows sentences access"""
WINDOW = "id start p_z lower upper queries_until_half expected_queries suffix references"
NEAR = "lower upper upper_certain lower_sampled rows sampled sampled_within"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return [
        build_llama(folder / f"m{seed}", letters=LETTERS, scale=1.0, seed=seed) for seed in (3, 4)
    ]


@pytest.fixture
def text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    letters = np.random.default_rng(0).choice(list(LETTERS), 220)
    (tmp_path / "text.txt").write_text("".join(letters))
    return "".join(letters)


SIZES = ("--prefix", PREFIX, "--suffix", SUFFIX, "--stride", 1, "--top-k", 0)
command = Command("extract", "--text", "text.txt", *SIZES, "--model")
call = command.call
answer = command.result
refused = command.refused


def by_hand(model, text, temperature, top_k):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    network, tokenizer = (
        AutoModelForCausalLM.from_pretrained(model),
        AutoTokenizer.from_pretrained(model),
    )
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    chances = []
    for start in range(len(ids) - PREFIX - SUFFIX + 1):
        chance = 1.0
        for place in range(start + PREFIX, start + PREFIX + SUFFIX):
            with torch.inference_mode():
                logits = (
                    network(torch.tensor([ids[start:place]])).logits[0, -1].double() / temperature
                )
            if top_k:
                logits = logits.masked_fill(logits < logits.topk(top_k).values[-1], -torch.inf)
            chance *= float(logits.softmax(-1)[ids[place]])
        chances.append(chance)
    return chances


@pytest.mark.seconds
@pytest.mark.parametrize(("temperature", "top_k"), [(1.0, 0), (0.7, 3)])
def test_p_z_is_the_product_written_by_hand(models, text, temperature, top_k):
    got = answer(models[0], "--temperature", str(temperature), "--top-k", str(top_k))["windows"]
    assert len(got) >= 200
    assert [window["p_z"] for window in got] == pytest.approx(
        by_hand(models[0], text, temperature, top_k), rel=1e-4
    )
    assert all(window["lower"] <= window["p_z"] <= window["upper"] for window in got)


def test_the_keys_and_the_rows_of_the_table(models, text, tmp_path):
    table = tmp_path / "t.parquet"
    got = answer(
        models[0],
        "--near",
        "5",
        "--distance",
        "1",
        "--reference",
        str(models[1]),
        "--table",
        str(table),
    )
    assert set(got) == set(KEYS.split())
    searched = [window for window in got["windows"] if "near" in window]
    assert len(searched) == 5
    assert all(set(window) - {"near"} == set(WINDOW.split()) for window in got["windows"])
    for window in searched:
        near = window["near"]
        assert set(near) == set(NEAR.split())
        assert (
            window["lower"]
            <= near["lower"] + 1e-12
            <= near["upper"] + 1e-12
            <= near["upper_certain"] + 2e-12
        )
    rows = read_rows(table)
    verbatim = {
        row.item: row.estimate
        for row in rows
        if (row.model, row.quantity) == ("m3", "verbatim") and row.item
    }
    assert verbatim == {window["id"]: window["p_z"] for window in got["windows"]}
    assert {row.model for row in rows} == {"m3", "m4"}


def test_a_model_beside_itself_is_never_extractable_beyond_chance(models, text):
    got = answer(models[0], "--reference", str(models[0]), "--tau", "0.0001")
    assert got["verdict"]["word"] != "leaks"
    assert answer(models[0], "--tau", "0.0001")["verdict"]["word"] == "leaks"


def test_an_interrupted_call_resumes_and_says_what_is_left(models, text, monkeypatch):
    asked = models[0], "--near", "4", "--distance", "1"
    whole = answer(*asked)
    searched = []
    near = extraction.near_verbatim

    def broken(predictor, window, *more):
        if len(searched) == 2:
            raise KeyboardInterrupt
        searched.append(window.start)
        return near(predictor, window, *more)

    monkeypatch.setattr("lethe.steps.extract.WORTH", 1)
    monkeypatch.setattr(extraction, "near_verbatim", broken)
    first = call(*asked)
    assert first.exit_code != 0
    assert f"{len(whole['windows'])} windows to scan take" in first.stderr
    assert "4 windows to search take" in first.stderr
    kept = list(searched)
    monkeypatch.setattr(
        extraction, "near_verbatim", lambda *a: (searched.append(a[1].start), near(*a))[1]
    )
    again = call(*asked, "--json")
    assert again.stderr.startswith("m3: 2 windows to search take")
    assert json.loads(again.stdout) == whole
    assert len(searched) == 4
    assert searched[:2] == kept


def test_the_page_opens_on_passages_and_escapes_them(models, text, tmp_path):
    result = call(models[0], "--reference", str(models[1]), "--page", "page.html")
    assert result.exit_code == 0, result.output
    page = (tmp_path / "page.html").read_text()
    strips, _, rest = page.partition('id="queries"')
    windows = len(text) - PREFIX - SUFFIX + 1
    assert strips.count("<rect") == 2 * windows
    assert strips.count('href="#w000') == 2 * windows  # every band opens its passage
    assert rest.count('<p id="w000') == windows
    assert all(f"The {which} passages" in rest for which in ("easiest", "hardest", "other"))
    assert rest.count("<path") >= 2  # a line of the figure per model
    assert all(model.name in rest for model in models)
    assert (tmp_path / "page.png").stat().st_size > 1000


@cases
def test_wrong_use_names_the_key(models, text, more, key):
    assert key in refused(models[0], *more)
