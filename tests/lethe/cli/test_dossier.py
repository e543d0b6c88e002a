"""`lethe dossier`: the page of one request, its sentences, what it names as examined, and what it refuses."""

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lethe.api.dossiers import Repeating, _command, dossier
from lethe.io.yaml import read_yaml
from lethe.results import table
from lethe.results.licence import Source, licensed
from lethe.results.table import read_rows, write
from lethe.statistics.bound import Bound, Covers
from tests.lethe.certificates.small_run import write_run
from tests.lethe.cli.calls import Command
from tests.lethe.small_checkpoint import ROWS

command = Command("dossier", "run", "--model", "mine", "--request", "2026-117")
ROOT = Path(__file__).parents[3]
PLAIN = "flows/languages/plain.yaml"
CUT_IS_MISSING = {"truncated": "missing", "stop": "fixed", "language": PLAIN}
NASTY = "<script>alert(1)</script>\u202e"
CLEAN = {"a": [0.0] * 200, "b": [0.0] * 200}


@pytest.fixture
def place(tmp_path, monkeypatch, checkpoint):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(checkpoint, "mine")
    lay_out(CLEAN)
    return tmp_path


def lay_out(scores_of, rows=ROWS):
    write_run(Path("run"), Path("mine"), scores_of, rows)


def as_pipeline(**changed):
    """Make the run that of a pipeline, with the settings of this repository but for those ``changed``."""
    Path("run/evaluated.json").unlink(missing_ok=True)
    settings = read_yaml(ROOT / "params.yaml")
    settings["models"] |= {"mine": {"path": "mine"}, "gone": {"path": "data/models/gone"}}
    settings["report"] |= {"base": "mine", "retrain": "gone"}
    for section, values in changed.items():
        settings[section] |= values
    Path("params.yaml").write_text(json.dumps(settings))


def page_of(*more):
    command.result(*more)
    html = Path("dossier.html").read_text()
    text = re.sub(r"<[^>]+>", " ", html.partition("<body>")[2])
    return html, " ".join(text.split())


def test_a_clean_record_is_bounded_with_what_the_sentence_costs(place):
    found = command.result("--record", "a", "--alpha", 0.02)

    assert found["word"] == "bounded"
    assert found["sentences"][0] == "Bounded at 5%."
    sentence = found["sentences"][1]
    assert sentence.startswith("The one question about")
    assert "content in at most 2.28%" in sentence
    assert "probability at most 0.02, assuming" in sentence
    assert "most 0.02 times K false" in sentence


def test_a_leaking_record_says_at_least(place):
    lay_out({"a": [1.0, 0.0] * 100, "b": [0.0] * 200})

    found = command.result("--record", "a", "--record", "b")

    assert found["word"] == "leaks"
    assert found["sentences"][1].startswith("At least one of")
    assert "of the 2 questions" in found["sentences"][1]
    assert "Among 400 sampled answers, 100 contained" in found["sentences"][1]


def test_an_open_record_says_that_neither_is_proved(place):
    found = command.result("--record", "a", "--tau", 0.001)

    assert found["word"] == "open"
    assert "Neither is proved" in found["sentences"][1]
    assert "false with probability" not in found["sentences"][1]
    assert "half of it" in found["sentences"][1]


def test_a_record_may_be_named_by_a_field(place):
    lay_out(CLEAN, [{**row, "author": "Ada"} for row in ROWS])

    found = command.result("--record", "author=Ada")

    assert [question["id"] for question in found["per_question"]] == ["a", "b"]


def test_the_page_has_six_sections_and_names_the_digest_of_sha256sum(place):
    html, text = page_of("--record", "a")

    (model,) = json.loads(command.call("--record", "a", "--json").stdout)["models"]
    assert re.findall(r"<h2>(\d)", html) == list("123456")
    assert model["digest"] in text
    assert "200 answers to 1 question" in model["how"]
    assert "certain ends none" in text
    assert "attacks tried none" in text


def test_certain_ends_name_their_leak_and_need_a_tree_of_every_question_above(place):
    guarantee = (0.0, Covers.ONE_PROMPT, "exact probabilities", "answer tree")
    rows = table.Rows("mine")
    ends = Bound(0.01, "lower", *guarantee), Bound(0.4, "upper", *guarantee)
    rows.add("question", "leak", "exact", None, *ends, item="a", split="forget")
    rows.add("model", "queried", "exact", 1, evidence={"how": {"leak": "rouge_l above 0.5"}})
    path = table.place(Path("run"), "exact", "mine")
    path.parent.mkdir()
    write(path, rows.rows)

    _, of_a = page_of("--record", "a")
    _, of_both = page_of("--record", "a", "--record", "b")

    assert "0.01 and at most 0.4, with" in of_a
    assert "what rouge_l above 0.5 says" in of_a
    assert "at least 0.01, with certainty" in of_both
    assert "Bounded at 5%" in of_a


def certain_tree(note=""):
    """The answer tree of a question that surely leaks at most 1%, by the scorer of the run."""
    guarantee = (0.0, Covers.ONE_PROMPT, "exact probabilities", "answer tree")
    rows = table.Rows("mine")
    ends = Bound(0.0, "lower", *guarantee), Bound(0.01, "upper", *guarantee)
    rows.add("question", "leak", "exact", None, *ends, item="a", split="forget")
    how = {"leak": "keyword_leak", "note": note}
    rows.add("model", "queried", "exact", 1, evidence={"how": how})
    path = table.place(Path("run"), "exact", "mine")
    path.parent.mkdir()
    write(path, rows.rows)


@pytest.mark.parametrize(
    ("changed", "note", "upper"),
    [
        ({}, "", 0.01),
        ({"sample": CUT_IS_MISSING}, "", 0.02614),
        ({"score": {"parts": {"thinking": ["<think>", "</think>"]}}}, "", 0.02614),
        ({}, "as one machine computes them", 0.02614),
    ],
    ids=["as the verdict joins them", "cut answers are missing", "thinking is cut off", "a note"],
)
def test_a_tree_is_joined_with_the_answers_where_the_verdict_joins_them(
    place, changed, note, upper
):
    certain_tree(note)
    as_pipeline(**changed)

    found = command.result("--record", "a")

    assert found["upper"]["value"] == pytest.approx(upper, rel=1e-3)


def test_a_tree_without_the_settings_of_its_run_is_joined_with_nothing(place):
    certain_tree()
    Path("run/evaluated.json").unlink()

    assert command.result("--record", "a")["upper"]["value"] > 0.02


@pytest.mark.parametrize("text", ["report: [1]", "models: 3\nreport: x", "- a", "models: {a: [}"])
def test_settings_that_are_none_are_refused_in_a_sentence(place, text):
    Path("run/evaluated.json").unlink()
    Path("params.yaml").write_text(text)

    assert "params.yaml" in command.refused("--record", "a")


def test_the_page_has_the_day_on_which_it_was_written(place):
    """The time of a file is that of a copy, a checkout or a pull."""
    os.utime(table.place(Path("run"), "metrics", "mine"), (0, 0))

    _, text = page_of("--record", "a")

    assert "1970" not in text
    assert f"written on {datetime.now(UTC):%Y-%m-%d}" in text


def test_an_attack_on_the_model_stands_with_its_worst_end(place):
    guarantee = (0.01, Covers.AVERAGE, "independent answers", "Clopper-Pearson")
    rows = table.Rows("relearn")
    for budget, upper in ((0, 0.02), (10, 0.31)):
        end = Bound(upper, "upper", *guarantee)
        rows.add("audit", "attacked", "run", 0.01, None, end, at=budget)
    record = {"path": str(Path("mine").resolve()), "kind": "relearning"}
    rows.add("audit", "record", "run", evidence=record)
    path = table.place(Path("run"), "attack", "relearn")
    path.parent.mkdir()
    write(path, rows.rows)

    _, text = page_of("--record", "a")

    assert "attack relearn relearning: The" in text
    assert "after the worst budget" in text
    assert "at most 0.31 on average" in text
    assert "access weights" in text


def test_the_page_has_no_script_and_asks_nobody(place):
    html, _ = page_of("--record", "a")

    assert "<script" not in html
    assert "default-src &#39;none&#39;" in html
    assert "http" not in html.replace("http-equiv", "")
    assert "size: A4" in html


def test_texts_of_others_are_escaped(place):
    rows = [{**row, "question": NASTY} for row in ROWS]
    lay_out(CLEAN, rows)

    html, text = page_of("--record", "a", "--responsible", NASTY, "--request", NASTY)

    assert "<script" not in html
    assert "\u202e" not in html
    assert "alert(1)" in text


def test_a_public_page_has_ids_in_place_of_the_erased_text(place):
    rows = [{**row, "author": "Ada"} for row in ROWS]
    lay_out(CLEAN, rows)

    _, private = page_of("--record", "author=Ada")
    _, public = page_of("--record", "author=Ada", "--public")

    assert "Who is Ada?" in private
    assert "Ada" not in public


def test_a_derivative_is_examined_if_the_run_drew_answers_of_it(place):
    shutil.copytree("mine", "copy")
    shutil.copytree("mine", "other")
    config = json.loads(Path("other/generation_config.json").read_text())
    Path("other/generation_config.json").write_text(json.dumps({**config, "pad_token_id": 1}))

    found = command.result("--record", "a", "--derivative", "copy", "--derivative", "other")

    _, same, changed = found["models"]
    assert "mine: bounded, at most 2.62%" in same["how"]
    assert "with probability 0.995" in same["how"]
    assert changed["how"] == "not examined"
    assert same["digest"] != changed["digest"]


def test_a_derivative_of_which_nothing_may_be_claimed_has_no_word(place):
    shutil.copytree("mine", "copy")
    refuted = Source(failed_probes=("draws",))
    rows = licensed("a", read_rows(table.place(Path("run"), "metrics", "mine")), refuted)
    shutil.copytree("run/generations/mine", "run/generations/a")
    write(table.place(Path("run"), "metrics", "a"), [replace(row, model="a") for row in rows])

    found = command.result("--record", "a", "--derivative", "copy")

    how = found["models"][-1]["how"]
    assert "of it. The server" in how
    assert "bounded" not in how


def test_answers_that_nobody_judged_are_told_beside_the_leaks(place):
    lay_out({"a": [0.0] * 190 + [float("nan")] * 10})

    found = command.result("--record", "a", "--tau", 0.2)

    assert "0 contained the erased" in found["sentences"][1]
    assert "and 10 could not be" in found["sentences"][1]


def test_attacks_are_not_called_untried_where_the_folder_is_not_known(place):
    Path("run/evaluated.json").unlink()

    _, text = page_of("--record", "a")

    assert "attacks tried not known" in text
    assert "were not tried" not in text


def test_an_attack_without_a_bound_was_tried(place):
    rows = table.Rows("relearn")
    record = {"path": str(Path("mine").resolve()), "kind": "relearning"}
    rows.add("audit", "record", "run", evidence=record)
    path = table.place(Path("run"), "attack", "relearn")
    path.parent.mkdir()
    write(path, rows.rows)

    _, text = page_of("--record", "a")

    assert "tried, and no bound" in text
    assert "were not tried" not in text


def test_a_field_that_no_question_has_names_no_record(place):
    assert "--record" in command.refused("--record", "absent=None")


def test_a_statement_is_not_called_that_of_another_model_where_the_model_is_not_known(place):
    Command("attest", "run").result("--model", "mine", "--fail-above", 0.5)
    Path("run/evaluated.json").unlink()

    said = command.refused("--record", "a", "--statement", "statement.json")

    assert "--folder" in said
    assert "another model" not in said


def test_the_repeating_command_is_safe_to_paste(place):
    drawn = {"temperature": 1.0, "max_new_tokens": 1234567}
    finding = dossier("run", model="mine", record=["a"], request="1").finding

    said = _command(drawn, "x;id", finding, Repeating("keyword_leak", {}))

    assert "--model './x;id'" in said
    assert "--max-new-tokens 1234567" in said


def option_of(command, name):
    """The value of an option as bash reads it."""
    script = f"set -- {command}; for word; do printf '%s\\0' \"$word\"; done"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    words = done.stdout.split("\0")
    return words[words.index(name) + 1]


def test_the_repeating_command_asks_and_scores_as_the_run_did(place):
    template = "It's a\\b\n{question}\nA:"
    record = {"prompt": f"{template}\n", "kernels": "fixed AVX2 kernels"}
    record["score"] = {"thinking": ["<think>", "</think>"]}
    path = Path("run/evaluated.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | record))

    made = dossier("run", model="mine", record=["a"], request="1").dossier

    assert option_of(made.command, "--prompt") == template
    assert option_of(made.command, "--scorer") == "keyword_leak"
    assert option_of(made.command, "--dtype") == "float32"
    assert "--thinking '<think>' --thinking '</think>'" in made.command
    assert dict(made.facts)["kernels"] == "fixed AVX2 kernels"


def test_the_repeating_command_of_a_pipeline_has_the_template_of_the_model(place):
    entry = {"path": "mine", "prompt": "Say {question}"}
    as_pipeline(models={"mine": entry}, sample={"stop": "fixed"})

    made = dossier("run", model="mine", record=["a"], request="1").dossier

    assert option_of(made.command, "--prompt") == "Say {question}"
    assert "AVX2" in dict(made.facts)["kernels"]


def test_the_repeating_command_of_a_server_asks_this_server(place):
    path = Path("run/generations/mine/about.json")
    served = {"endpoint": "http://127.0.0.1:8000/v1", "model": "theirs"}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"served": served}))

    made = dossier("run", model="mine", record=["a"], request="1").dossier

    assert option_of(made.command, "--endpoint") == served["endpoint"]
    assert option_of(made.command, "--model") == "theirs"


def test_labels_of_a_person_say_what_a_leak_is(place):
    path = table.place(Path("run"), "metrics", "mine")
    rows = read_rows(path)
    labelled = [replace(row, basis="labelled") for row in rows if row.scope == "question"]
    write(path, [*rows, *labelled])

    _, text = page_of("--record", "a")

    assert "a person labelled a" in text


def test_a_statement_of_this_model_is_named_by_its_digest(place):
    Command("attest", "run").result("--model", "mine", "--fail-above", 0.5)

    _, text = page_of("--record", "a", "--statement", "statement.json")

    assert "statement, SHA-256" in text


def test_a_statement_of_another_model_is_refused(place):
    Command("attest", "run").result("--model", "mine", "--fail-above", 0.5)
    stated = json.loads(Path("statement.json").read_text())
    stated["predicate"]["model"]["digest"]["dirHash"] = "0" * 64
    Path("statement.json").write_text(json.dumps(stated))

    said = command.refused("--record", "a", "--statement", "statement.json")

    assert "is about another model" in said


@pytest.mark.parametrize("change", ["data", "bound", "served", "scorer", "engine"])
def test_a_statement_that_does_not_hold_for_this_run_is_refused(place, change):
    Command("attest", "run").result("--model", "mine", "--fail-above", 0.5)
    stated = json.loads(Path("statement.json").read_text())
    predicate = stated["predicate"]
    if change == "data":
        predicate["dataset"]["digest"]["sha256"] = "0" * 64
    elif change == "bound":
        predicate["claims"][0]["lethe"]["bound"] = "0.000001"
    elif change == "scorer":
        predicate["lethe"]["scorer"] = "exact_match"
    elif change == "engine":
        predicate["lethe"]["engine"]["temperature"] = "0.1"
    else:
        del predicate["model"]
        predicate["commitments"] = {"model": {"alg": "sha256", "value": "0" * 64}}
    Path("statement.json").write_text(json.dumps(stated))

    said = command.refused("--record", "a", "--statement", "statement.json")

    assert "statement about this run" in said
    assert "Name what lethe attest" in said


def test_a_folder_trained_since_is_refused(place):
    config = json.loads(Path("mine/config.json").read_text())
    Path("mine/config.json").write_text(json.dumps({**config, "initializer_range": 0.5}))

    assert "is not the model" in command.refused("--record", "a")


def test_an_unknown_record_is_refused_with_the_nearest_one(place):
    lay_out({"ada-1": [0.0] * 9}, [{**ROWS[0], "id": "ada-1"}])

    assert "Did you mean 'ada-1'?" in command.refused("--record", "ada-2")


def test_a_run_of_which_nothing_may_be_claimed_has_no_dossier(place):
    path = table.place(Path("run"), "metrics", "mine")
    refuted = Source(failed_probes=("draws",))
    write(path, licensed("mine", read_rows(path), refuted))

    assert "claimed of mine" in command.refused("--record", "a")


def test_a_reference_that_the_run_lacks_is_refused(place):
    assert "--before" in command.refused("--record", "a", "--before", "base")


def test_base_and_retrain_of_a_pipeline_stand_beside_the_model(place):
    as_pipeline()

    found = command.result("--record", "a")

    roles = [model["role"] for model in found["models"]]
    assert roles == ["after the erasure", "before the erasure"]


def test_python_gives_the_same_page(place):
    html, _ = page_of("--record", "a")

    assert dossier("run", model="mine", record=["a"], request="2026-117").page == html
