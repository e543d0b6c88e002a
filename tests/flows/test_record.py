"""What got worse: changed verdicts and proved changes, the command of params, the gate of `lethe run`."""

import contextlib
import dataclasses
import json
import sys

import numpy as np
import pytest
import typer

from flows import cli, record
from flows.alarms import Alarm, ModelWords, Since
from flows.notice import notice, notify
from flows.record import StageEnd
from flows.since import since_last
from flows.tries import tries_of_words
from lethe import config
from lethe.io.files import write_json, write_jsonl
from lethe.results import table
from tests.cases import cases
from tests.flows.miniature import flow_runs, mlflow_runs
from tests.flows.told import write_words
from tests.small import ROOT

RAN = {"report": StageEnd("Completed", "ran", 1.0)}
WITH_WORDS = {**RAN, "compare": StageEnd("Completed", "ran", 1.0)}
PARAMS = config.load(ROOT / config.FILE)
LEAKS = Alarm("npo", "forgetting", "verdict", "open", "leaks", worse=True, better=False)


def said(forgetting: str, utility: str = "intact") -> dict:
    """The words on a model."""
    words = {"forgetting": {"word": forgetting}, "utility": {"word": utility}}
    return {
        **words,
        "standing": f"{forgetting}, {utility}",
        "verdict": f"It {forgetting}.",
    }


def run(root, words: dict[str, dict], leaks: dict[str, list[int]]) -> list[Alarm]:
    """The alarms of a complete run with these verdicts and these leaking answers of 1,024 to each question."""
    write_words(root / "data", words)
    for model, counts in leaks.items():
        leaks_of(root, model, counts)
    since = since_last(root, RAN, PARAMS)
    record.write(root, RAN, complete=True, since=since)
    return since.alarms


def drawn_by(root, stream: str, models=("npo",), tokenizer: str = "") -> None:
    """Write that the answers of these models come from this stream: a digest of weights and drawing law."""
    about = {"schema": 1, "stream": stream, "tokenizer": tokenizer}
    for model in models:
        write_json(root / "data/generations" / model / "about.json", about)


def leaks_of(root, model: str, counts: list[int], n: int = 1024) -> None:
    """Write the leaking answers of ``n`` to each question."""
    rows = [
        table.Result(
            model, "question", "leak", "sampled", f"q{place}", lower=0.0, upper=1.0, alpha_lower=0.01,
            alpha_upper=0.01, n=n, evidence={"leaks": count, "n": n, "missing": 0},
        )
        for place, count in enumerate(counts)
    ]  # fmt: skip
    table.write(table.place(root / "data", "metrics", model), rows)


@cases
def test_a_changed_word_without_a_proved_change_is_neither_worse_nor_better(
    tmp_path, before, after, said_of_it
):
    run(tmp_path, {"npo": said(before), "base": said("reference")}, {})

    (changed,) = run(tmp_path, {"npo": said(after), "base": said("reference")}, {})

    assert changed == Alarm("npo", "forgetting", "verdict", before, after, False, False)
    assert changed.sentence() == f"npo: verdict {before} -> {after} ({said_of_it})"
    assert run(tmp_path, {"npo": said(after), "base": said("reference")}, {}) == []


def test_a_word_beside_a_proved_change_is_worse_or_better(tmp_path):
    run(tmp_path, {"npo": said("open")}, {"npo": [0, 5]})

    worse, more = run(tmp_path, {"npo": said("leaks")}, {"npo": [0, 400]})
    better, less = run(tmp_path, {"npo": said("forgot")}, {"npo": [0, 0]})

    assert (worse.kind, worse.worse, more.worse) == ("verdict", True, True)
    assert worse.sentence() == "npo: verdict open -> leaks"
    assert (better.better, better.worse, less.better) == (True, False, True)


def test_a_word_beside_a_change_of_another_model_is_not_worse(tmp_path):
    run(tmp_path, {"npo": said("open")}, {"npo": [0], "grad_diff": [0]})

    found = run(tmp_path, {"npo": said("leaks")}, {"npo": [1], "grad_diff": [900]})

    assert [(alarm.model, alarm.kind) for alarm in found if alarm.worse] == [("grad_diff", "bound")]


def test_other_answers_of_the_same_weights_are_no_change(tmp_path):
    drawn_by(tmp_path, "first weights")
    run(tmp_path, {"npo": said("open")}, {"npo": [0, 0]})

    (word,) = run(tmp_path, {"npo": said("leaks")}, {"npo": [0, 900]})

    assert word.sentence() == "npo: verdict open -> leaks (now proved, no change shown)"
    assert not word.worse


def test_other_weights_with_more_leaks_are_worse_and_say_the_shares(tmp_path):
    drawn_by(tmp_path, "first weights")
    run(tmp_path, {"npo": said("open")}, {"npo": [20, 0]})
    drawn_by(tmp_path, "other weights")

    word, more = run(tmp_path, {"npo": said("leaks")}, {"npo": [100, 0]})

    assert (word.worse, more.worse, more.proved) == (True, True, True)
    assert more.log_e > np.log(1 / PARAMS.metrics.alpha)
    assert more.sentence() == "npo: q0 leaks in 9.8%, before 2.0%"


def test_an_edited_question_is_not_compared_with_what_it_was(tmp_path):
    forget = tmp_path / "data/dataset/forget.jsonl"
    write_jsonl(forget, [{"id": "q0", "question": "Who?"}, {"id": "q1", "question": "Where?"}])
    drawn_by(tmp_path, "first weights")
    run(tmp_path, {}, {"npo": [20, 20]})
    drawn_by(tmp_path, "other weights")
    write_jsonl(
        forget, [{"id": "q0", "question": "Who sings?"}, {"id": "q1", "question": "Where?"}]
    )

    (more,) = run(tmp_path, {}, {"npo": [400, 400]})

    assert (more.question, more.questions) == ("q1", 1)


def test_words_of_other_weights_that_prove_no_change_say_so(tmp_path):
    drawn_by(tmp_path, "first weights", ("npo", "grad_diff"))
    run(tmp_path, {"npo": said("open"), "grad_diff": said("forgot")}, {})
    drawn_by(tmp_path, "other weights", ("npo", "grad_diff"))

    found = run(tmp_path, {"npo": said("leaks"), "grad_diff": said("open")}, {})

    assert [change.sentence() for change in found] == [
        "npo: verdict open -> leaks (leaks, no change shown)",
        "grad_diff: verdict forgot -> open (not yet proved again)",
    ]
    assert not any(change.worse or change.better for change in found)


def test_a_record_says_what_all_questions_prove_together(tmp_path):
    drawn_by(tmp_path, "first weights")
    run(tmp_path, {}, {"npo": [20, 0]})
    drawn_by(tmp_path, "other weights")
    run(tmp_path, {}, {"npo": [21, 1]})

    news = record.read(tmp_path)

    assert news.change["questions"] == 2
    assert news.change["log_e_worse"] < news.change["log_goal"]
    assert (news.tries["count"], news.tries["alpha"]) == (1, PARAMS.metrics.alpha)
    assert news.drawn_from == {"npo": "other weights"}


def test_answers_of_shared_random_numbers_are_compared_by_their_ends(tmp_path):
    drawn_by(tmp_path, "shared")
    run(tmp_path, {}, {"npo": [20, 0]})

    (more,) = run(tmp_path, {}, {"npo": [200, 0]})

    assert more.by_ends
    assert "leaks in at least" in more.sentence()


def test_another_tokenizer_is_a_change_whose_draws_share_random_numbers(tmp_path):
    """A chat's template is the tokenizer's, so that the same weights may leak more."""
    drawn_by(tmp_path, "weights", tokenizer="first")
    run(tmp_path, {}, {"npo": [20, 0]})
    drawn_by(tmp_path, "weights", tokenizer="other")

    (more,) = run(tmp_path, {}, {"npo": [200, 0]})

    assert (more.worse, more.by_ends) == (True, True)


def test_a_server_may_change_its_weights_under_the_same_name(tmp_path):
    about = {"schema": 1, "stream": "a server", "served": {"first": "today", "last": "today"}}
    write_json(tmp_path / "data/generations/npo/about.json", about)
    run(tmp_path, {}, {"npo": [20]})

    (more,) = run(tmp_path, {}, {"npo": [200]})

    assert more.worse


@pytest.mark.slow
def test_fresh_draws_of_the_same_probabilities_close_the_gate_in_at_most_alpha_of_histories(
    tmp_path,
):
    """20 runs of the words and bounds of the same model: a word flips often, and the gate stays open."""
    rng = np.random.default_rng(43)
    closed = 0
    flipped = 0
    for history in range(10):
        root = tmp_path / str(history)
        for _ in range(20):
            leaks = rng.binomial(1024, [0.013, 0.02, 0.001]).tolist()
            word = "leaks" if max(leaks) > 20 else "open"
            found = run(root, {"npo": said(word)}, {"npo": leaks})
            flipped += any(alarm.kind == "verdict" and alarm.after == "leaks" for alarm in found)
            closed += any(alarm.worse for alarm in found)

    assert flipped > 10
    assert closed == 0


def test_a_proved_increase_is_worse_and_other_answers_of_the_same_model_are_not(tmp_path):
    run(tmp_path, {}, {"npo": [800, 0]})
    assert run(tmp_path, {}, {"npo": [806, 3]}) == []
    (worse,) = run(tmp_path, {}, {"npo": [806, 300]})
    assert (worse.model, worse.metric, worse.kind, worse.question) == ("npo", "leak", "bound", "q1")
    assert (worse.questions, worse.worse, worse.better) == (1, True, False)
    assert worse.before < worse.after
    (better,) = run(tmp_path, {}, {"npo": [806, 3]})
    assert (better.worse, better.better) == (False, True)
    assert better.after < better.before


def test_the_base_model_is_left_out_and_retrain_closes_no_gate(tmp_path):
    base = PARAMS.report.base
    retrain = PARAMS.report.retrains[0]
    run(tmp_path, {}, {base: [0], retrain: [0], "gone": [0]})
    (found,) = run(tmp_path, {}, {base: [900], retrain: [900], "gone": [900]})
    assert (found.model, found.worse, found.better) == (retrain, False, False)


def test_exact_bounds_of_the_same_scorer_count(tmp_path):
    def tree(leaks: int) -> None:
        evidence = {
            "leak_by_length": [0.0],
            "clean_by_length": [0.9],
            "rho": 1e4,
            "sampled_leaks": leaks,
        }
        row = table.Result("npo", "question", "leak", "tree", "q0", evidence=evidence)
        table.write(table.place(tmp_path / "data", "exact", "npo"), [row])

    tree(0)
    run(tmp_path, {}, {"npo": [0]})
    tree(100)
    assert [alarm.worse for alarm in run(tmp_path, {}, {"npo": [0]})] == [True]


def test_the_command_gets_the_change_and_its_failure_is_a_sentence(tmp_path):
    news = record.RunRecord(
        "2026-01-02", True, {}, "2026-01-01", [], [LEAKS], None, "2026-01-02", {}, {}
    )
    value = notice(news, tmp_path)
    out = tmp_path / "told.json"
    copy = f"import sys; open({str(out)!r}, 'w').write(sys.stdin.read())"
    assert notify([sys.executable, "-c", copy], value) == ""
    told = json.loads(out.read_text())
    assert (told["schema"], told["worse"], told["compared_with"]) == (1, True, "2026-01-01")
    assert told["changes"] == [dataclasses.asdict(LEAKS)]
    keys = ("model", "metric", "kind", "before", "after", "worse")
    assert [told["changes"][0][key] for key in keys] == [
        "npo",
        "forgetting",
        "verdict",
        "open",
        "leaks",
        True,
    ]
    fails = [sys.executable, "-c", "import sys; print('oh', file=sys.stderr); sys.exit(3)"]
    assert "exit status 3 (oh)" in notify(fails, value)
    assert str(tmp_path / "nowhere") in notify([str(tmp_path / "nowhere")], value)


@pytest.mark.slow
def test_a_run_that_got_worse_closes_the_gate_marks_and_tells(repository):
    folder = repository.folder
    copy = "import sys; open('told.json', 'w').write(sys.stdin.read())"
    command = json.dumps([sys.executable, "-c", copy])
    (folder / "params.yaml").write_text(repository.params() + f"\nnotify: {{command: {command}}}\n")
    models = ("npo", "grad_diff")  # npo is Retrain here

    def lethe(word: str, leaks: int, *arguments: str):
        write_json(folder / "words.json", {"npo": said("reference"), "grad_diff": said(word)})
        write_json(folder / "leaks.json", {model: {"q": leaks} for model in models})
        return repository.lethe("run", "--fail-on", "worse", *arguments)

    first = lethe("forgot", 0)
    assert first.returncode == 0, first.stderr
    noise = lethe("open", 2)
    assert noise.returncode == 0, noise.stderr
    assert (
        noise.stdout.splitlines()[0]
        == Alarm("grad_diff", "forgetting", "verdict", "forgot", "open", False, False).line()
    )
    assert noise.stdout.splitlines()[-1] == "It open."
    worse = lethe("leaks", 300, "--json")
    assert worse.returncode == 1, worse.stderr
    value = json.loads(worse.stdout)
    assert [(alarm["model"], alarm["kind"], alarm["worse"]) for alarm in value["alarms"]] == [
        ("grad_diff", "verdict", True), ("grad_diff", "bound", True), ("npo", "bound", False),
    ]  # fmt: skip
    assert value["verdicts"] == {
        "grad_diff": dataclasses.asdict(ModelWords("leaks", "intact", "It leaks."))
    }
    closing = " ".join(worse.stderr.split())
    assert "Gate closed: grad_diff: verdict open ->" in closing
    assert "-> leaks. Without a true" in closing
    assert json.loads((folder / "told.json").read_text())["changes"] == value["alarms"]
    marks = [run.data.tags.get("lethe.change") for run in mlflow_runs(repository)]
    assert sorted(mark for mark in marks if mark) == ["changed", "worse"]
    assert flow_runs(repository)[-1].state_name == "Worse"
    newest = next(
        run for run in mlflow_runs(repository) if run.data.tags.get("lethe.change") == "worse"
    )
    told = newest.data.tags["mlflow.note.content"]
    assert 0 < told.index("open, intact") < told.index("leaks, intact"), "the changed verdict"
    assert lethe("leaks", 300).returncode == 0, "the next run compares with this one"


TWO = RAN | {"metrics@npo": StageEnd("Completed", "ran", 1.5)}


def measured(root, mean: float, worst: float = 0.5) -> None:
    rows = table.Rows("npo")
    rows.add("model", "score", "sampled", mean)
    rows.add("question", "score", "sampled", worst, item="q")
    table.write(table.place(root / "data", "metrics", "npo"), rows.rows)


def verdicts(root, **words: str) -> None:
    models = {
        name: {
            "forgetting": {"word": word},
            "utility": {"word": "intact"},
            "verdict": f"{name}: {word}.",
        }
        for name, word in words.items()
    }
    write_words(root / "data", models)


def test_a_record_comes_back_as_it_was_written_and_names_what_changed(tmp_path):
    assert record.expected(tmp_path, ["report"], 1).startswith("Time: unknown")
    for value in (4.0, 6.0):
        measured(tmp_path, value)
        verdicts(tmp_path, npo="leaks", base="reference")
        written = record.write(tmp_path, TWO, complete=True, since=Since([LEAKS], 0.01))
    assert record.read(tmp_path) == written
    assert written.changes == [record.Change("npo", "mean", 4.0, 6.0)]
    assert written.metrics == {"npo": {"mean": 6.0}}
    assert written.verdicts == {"npo": ModelWords("leaks", "intact", "npo: leaks.")}, (
        "a reference has no verdict"
    )
    assert list(json.loads((tmp_path / record.FILE).read_text()))[:3] == [
        "schema",
        "finished",
        "complete",
    ]
    record.write(tmp_path, {"report": StageEnd("Cached", "clean", 0.0)}, complete=False)
    told = record.expected(tmp_path, ["prepare", *TWO], 2)
    assert "took 2 s in sum" in told
    assert {f"({written.finished[:10]}),", "1"} <= set(told.split())


def test_the_next_run_compares_with_the_tables_of_the_last_complete_run(tmp_path):
    for mean, complete in ((4.0, True), (6.0, False)):
        measured(tmp_path, mean)
        written = record.write(tmp_path, TWO, complete)
    kept = table.read(tmp_path / record.LAST_RESULTS)
    assert kept.model("npo").values == {"mean": 4.0}
    assert kept.questions("npo")["q"].values["mean"] == 0.5
    assert written.metrics == {"npo": {"mean": 4.0}}
    assert (written.compared_with, written.changes) == (None, [])
    record.write(tmp_path, TWO, complete=True)
    assert table.read(tmp_path / record.LAST_RESULTS).model("npo").values == {"mean": 6.0}


@pytest.mark.parametrize("damage", ["{", "[]", '{"stages": 3}', ""])
def test_a_damaged_record_is_set_aside_and_the_run_is_recorded(tmp_path, damage, capsys):
    path = tmp_path / record.FILE
    path.parent.mkdir(parents=True)
    path.write_text(damage)
    written = record.write(tmp_path, {}, complete=True)
    assert written.compared_with is None
    assert record.read(tmp_path) == written
    assert path.with_suffix(".damaged.json").read_text() == damage
    assert path.with_suffix(".damaged.json").name in capsys.readouterr().err


REFUSED = "The server failed the probe draws, so nothing follows. Draw again."


def test_a_record_names_the_models_of_which_nothing_may_be_claimed(tmp_path):
    reasons = {"reasons": [REFUSED]}
    rows = [table.Result("npo", "model", "refused", "sampled", evidence=reasons)]
    table.write(table.place(tmp_path / "data", "metrics", "npo"), rows)

    written = record.write(tmp_path, RAN, complete=True)

    assert written.refused == {"npo": [REFUSED]}
    assert record.read(tmp_path) == written


def test_fail_on_worse_is_closed_after_a_run_that_was_compared_with_none(
    tmp_path, monkeypatch, capsys
):
    news = record.write(tmp_path, RAN, complete=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("flows.workspace.prepare", lambda root: None)
    monkeypatch.setattr(cli, "_run_changed", lambda *arguments: (news, {}, None))

    with pytest.raises(typer.Exit) as ended:
        cli.run(fail_on="worse")

    said = capsys.readouterr()
    assert ended.value.exit_code == 1
    assert "Gate closed" in said.out + said.err


def test_fail_on_worse_says_that_a_first_run_was_compared_with_none(tmp_path, monkeypatch, capsys):
    news = record.write(tmp_path, RAN, complete=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("flows.workspace.prepare", lambda root: None)
    monkeypatch.setattr(cli, "_run_changed", lambda *arguments: (news, {}, None))

    cli.run(fail_on="worse")

    said = capsys.readouterr()
    assert "nothing was compared" in " ".join((said.out + said.err).split())


def test_fail_on_worse_is_closed_where_nothing_may_be_claimed_of_a_model(
    tmp_path, monkeypatch, capsys
):
    written = record.write(tmp_path, RAN, complete=True)
    news = dataclasses.replace(written, refused={"npo": [REFUSED]})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("flows.workspace.prepare", lambda root: None)
    monkeypatch.setattr("flows.server.temporary_server", contextlib.nullcontext)
    monkeypatch.setattr(cli, "_run_changed", lambda *arguments: (news, {}, None))

    with pytest.raises(typer.Exit) as ended:
        cli.run(fail_on="worse")

    said = capsys.readouterr()
    words = " ".join((said.out + said.err).split())
    assert ended.value.exit_code == 1
    assert "Gate closed: nothing is" in words
    assert f"is claimed of npo. {REFUSED}" in words


def asked(folder, monkeypatch, capsys, news, **gates) -> tuple[int, str]:
    """The exit status of gates after a run with this record, and what they said."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr("flows.workspace.prepare", lambda root: None)
    monkeypatch.setattr(cli, "_run_changed", lambda *arguments: (news, {}, None))
    status = 0
    try:
        cli.run(**gates)
    except typer.Exit as ended:
        status = ended.exit_code
    said = capsys.readouterr()
    return status, " ".join((said.out + said.err).split())


def words_of_a_run(root, params=PARAMS, **words) -> record.RunRecord:
    """The record of a complete run with these words."""
    verdicts(root, **words)
    attempts = tries_of_words(root, WITH_WORDS, params)
    return record.write(root, WITH_WORDS, complete=True, tries_of=attempts)


@pytest.mark.parametrize(
    ("word", "status"), [("forgot", 0), ("open", 1), ("leaks", 1), ("none", 1)]
)
def test_require_forgot_demands_the_word_of_every_model(
    tmp_path, monkeypatch, capsys, word, status
):
    news = words_of_a_run(tmp_path, grad_diff="forgot", npo=word)

    ended, said_of_it = asked(tmp_path, monkeypatch, capsys, news, require="forgot")

    assert ended == status
    assert ("npo has not" in said_of_it) == bool(status)


def drawn_with(root, seed: int, models=("npo",), **about) -> None:
    """Write that these models answered by this seed, with the prefix engine unless ``about`` says another."""
    for model in models:
        facts = {
            "schema": 1,
            "stream": f"law of {model}",
            "engine": "prefix",
            "seed": seed,
            **about,
        }
        write_json(root / "data/generations" / model / "about.json", facts)


def test_another_seed_of_the_answers_is_another_try_of_forgot_and_needs_a_smaller_alpha(
    tmp_path, monkeypatch, capsys
):
    for seed in (0, 1):
        drawn_with(tmp_path, seed)
        news = words_of_a_run(tmp_path, npo="forgot")
    ended, said_of_it = asked(tmp_path, monkeypatch, capsys, news, require="forgot")

    assert ended == 1
    assert "try 2 of this" in said_of_it
    assert "at most 0.00333" in said_of_it

    smaller = PARAMS.metrics.model_copy(update={"alpha": 0.003})
    lower = PARAMS.model_copy(update={"metrics": smaller})
    news = words_of_a_run(tmp_path, lower, npo="forgot")
    ended, said_of_it = asked(tmp_path, monkeypatch, capsys, news, require="forgot")

    assert ended == 0
    assert "try 2" in said_of_it
    assert record.read(tmp_path) == news


@pytest.mark.parametrize(
    ("about", "number"),
    [
        ({}, 1),
        ({"stream": "other weights"}, 1),
        ({"engine": "transformers"}, 2),
    ],
)
def test_the_same_draws_and_other_weights_are_no_further_try_of_forgot(tmp_path, about, number):
    drawn_with(tmp_path, 0)
    words_of_a_run(tmp_path, npo="forgot")

    drawn_with(tmp_path, 0, **about)
    news = words_of_a_run(tmp_path, npo="forgot")

    assert news.tries_of_words["npo"].number == number


def sampled_with(**changes):
    """The params with other settings of sampling."""
    return PARAMS.model_copy(update={"sample": PARAMS.sample.model_copy(update=changes)})


@pytest.mark.parametrize(
    ("engine", "changes", "number"),
    [
        ("prefix", {"batch": 129}, 2),
        ("prefix", {"max_rows": 8}, 1),
        ("prefix", {"n": 64}, 1),
        ("transformers", {"max_rows": 8}, 2),
    ],
)
def test_what_decides_the_random_numbers_makes_another_try_of_forgot(
    tmp_path, engine, changes, number
):
    drawn_with(tmp_path, 0, engine=engine)
    words_of_a_run(tmp_path, npo="forgot")

    news = words_of_a_run(tmp_path, sampled_with(**changes), npo="forgot")

    assert news.tries_of_words["npo"].number == number


@pytest.mark.parametrize(("seeded", "number"), [(False, 2), (True, 1)])
def test_a_server_without_seeds_draws_again_each_time(tmp_path, seeded, number):
    for day in ("Monday", "Tuesday"):
        served = {"first": day, "last": "Sunday", "seeded": seeded}
        drawn_with(tmp_path, 0, engine="endpoint", served=served)
        words_of_a_run(tmp_path, npo="forgot")
    news = words_of_a_run(tmp_path, npo="forgot")

    assert news.tries_of_words["npo"].number == number


@pytest.mark.parametrize(
    ("scorers", "number"),
    [
        (["keyword_leak", "exact_match", "rouge_l"], 2),
        (["rouge_l", {"keyword_leak": {"keyword_match": "substring"}}], 1),
    ],
)
def test_another_scorer_than_that_of_the_word_restarts_no_count(tmp_path, scorers, number):
    drawn_with(tmp_path, 0)
    words_of_a_run(tmp_path, npo="forgot")

    drawn_with(tmp_path, 1)
    score = type(PARAMS.score).model_validate({"scorers": scorers})
    changed = PARAMS.model_copy(update={"score": score})
    news = words_of_a_run(tmp_path, changed, npo="forgot")

    assert news.tries_of_words["npo"].number == number


def test_another_retrain_is_another_try_of_forgot(tmp_path):
    retrain = PARAMS.report.retrains[0]
    drawn_with(tmp_path, 0, ("npo", retrain))
    words_of_a_run(tmp_path, npo="forgot")

    drawn_with(tmp_path, 0, (retrain,), stream="trained again")
    news = words_of_a_run(tmp_path, npo="forgot")

    assert news.tries_of_words["npo"].number == 2


def test_a_run_that_was_not_complete_counts_its_words_as_tried(tmp_path):
    for seed in (0, 1):
        drawn_with(tmp_path, seed)
        verdicts(tmp_path, npo="forgot")
        attempts = tries_of_words(tmp_path, WITH_WORDS, PARAMS)

    assert attempts["npo"].number == 2
    assert tries_of_words(tmp_path, {}, PARAMS) == {}


def test_require_forgot_is_closed_after_a_run_that_was_not_complete(tmp_path, monkeypatch, capsys):
    news = record.write(tmp_path, RAN, complete=False)

    ended, said_of_it = asked(tmp_path, monkeypatch, capsys, news, require="forgot")

    assert ended == 1
    assert "not complete" in said_of_it
