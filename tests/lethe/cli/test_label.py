"""`lethe label`: the order of labelling, keys, a session that is killed and continued, and the bounds that follow."""

import json
import os
import pty
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

import lethe
from lethe.cli.label_dialogue import ask
from lethe.errors import BadFile, BadRow
from lethe.io.tables import write_parquet
from lethe.labels.bounds import measure_labels
from lethe.labels.draws import DrawnAnswers, Wanted, read_draws
from lethe.labels.labels import AnswerText, LabelReason, Labels, read_labels
from lethe.labels.plan import LabelPlan
from lethe.labels.queue import Queue
from lethe.results.table import Numbers, Results, Rows, read_rows
from lethe.statistics.counts import labelled_average, rate_bounds
from lethe.statistics.judge_error import Calibration
from tests.cases import cases
from tests.lethe.cli.calls import Command
from tests.small import environment

label = Command("label")

COUNTS = ("leaks", "leaks_called", "clean", "clean_called")
FRAME = {
    "a": ["no", "no", "no", "4711", "no", "no"] * 20,
    "b": ["no", "never", "code 9", "never"] * 30,
}


def draws(verdicts: bool = False) -> DrawnAnswers:
    answers = {name: [AnswerText(name, text) for text in texts] for name, texts in FRAME.items()}
    # A judge that misses one of the two leaks.
    called = {
        name: np.array([float(text == "4711") for text in texts]) for name, texts in FRAME.items()
    }
    return DrawnAnswers(answers, {"a": "Code?"}, called if verdicts else {})


def measured(*arguments) -> tuple[Numbers, list[Numbers], dict]:
    """The numbers of the run and of each question, and the settings."""
    rows = Rows("m")
    settings = measure_labels(rows, *arguments)
    results = Results({"m": tuple(rows.rows)})
    return results.model("m"), list(results.questions("m").values()), settings


def ends(questions: list[Numbers]) -> list[tuple[float, float]]:
    return [
        (row.lower, row.upper)
        for numbers in questions
        for row in numbers.series("leak", "labelled")
    ]


def keys(text: str):
    left = list(text)
    return lambda: left.pop(0) if left else ""


def test_answers_come_in_the_order_of_the_mass_they_cover(tmp_path):
    shown = []
    labels = Labels(tmp_path / "labels.jsonl")
    queue = Queue(draws(), 1.0, 0)
    ask(queue, labels, keys("nnyny"), shown.append)
    counts = [queue.counts[answer] for answer in labels.by_answer]
    assert counts == sorted(counts, reverse=True)
    assert queue.ahead(labels) is None
    assert queue.covered(labels) == 1
    assert len(shown) == 5


def test_a_session_goes_on_where_it_was_stopped(tmp_path):
    place = tmp_path / "labels.jsonl"
    queue = Queue(draws(), 1.0, 0)
    whole = Labels(tmp_path / "whole.jsonl")
    ask(queue, whole, keys("nnyny"), lambda text: None)
    ask(queue, read_labels(place), keys("nnq"), lambda text: None)
    assert len(read_labels(place).by_answer) == 2
    ask(queue, read_labels(place), keys("yny"), lambda text: None)
    assert place.read_text() == whole.path.read_text()


def test_labels_of_another_question_with_this_id_are_refused(tmp_path):
    """Else an edit of the dataset would keep what a person said of answers to other questions."""
    place = tmp_path / "labels.jsonl"
    run = draws()
    queue = Queue(run, 1.0, 0)
    ask(queue, Labels(place), keys("nny"), lambda text: None)
    known = read_labels(place)
    edited = replace(run, questions={"a": "Who sang it?"})

    assert measured(run, queue, known, 0.05)
    assert measured(replace(run, questions={}), queue, known, 0.05)
    with pytest.raises(BadFile, match=r"Code.*is now 'Who sang it"):
        measured(edited, queue, known, 0.05)


@cases
def test_a_broken_file_of_labels_is_told_by_its_line(tmp_path, row, named):
    place = tmp_path / "labels.jsonl"
    good = {"prompt_id": "a", "text": "x", "label": 1, "part": "mass"}
    place.write_text(json.dumps(good) + "\n" + json.dumps(row) + "\n")
    with pytest.raises(BadRow, match=named) as told:
        read_labels(place)
    assert "line 2" in str(told.value)
    place.write_text((json.dumps(good) + "\n") * 2)
    with pytest.raises(BadRow, match="second time"):
        read_labels(place)


def test_the_bounds_count_all_draws(tmp_path):
    run = draws(verdicts=True)
    labels = Labels(tmp_path / "labels.jsonl")
    queue = Queue(run, 0.5, 25)
    ask(queue, labels, keys("n" * 2), lambda text: None)
    truth = {"no": "n", "never": "n", "4711": "y", "code 9": "y"}
    while (ahead := queue.ahead(labels)) is not None:
        ask(queue, labels, keys(truth[ahead.answer.text]), lambda text: None)
    model, questions, settings = measured(run, queue, labels, 0.05)
    assert queue.chosen == [AnswerText("a", "no"), AnswerText("b", "never")]
    sampled = queue.sampled
    assert len(sampled) == 25
    leaks = [1 if truth[answer.text] == "y" else 0 for answer, _ in sampled]
    judged = [run.verdicts[answer.prompt_id][place] for answer, place in sampled]
    want = Calibration.of(leaks, judged, of_this_run=True)
    assert {name: getattr(want, name) for name in COUNTS} == {
        name: settings["calibration"][name] for name in COUNTS
    }
    chosen = set(queue.chosen)
    rest = [sum(answer not in chosen for answer in answers) for answers in run.answers.values()]
    n = np.array([120, 120])
    zero = np.zeros(2)
    pool = labelled_average(zero, np.array(rest), n, (sum(leaks), 25), 0.05)
    assert ends([model]) == [pool]
    # The random draws' labels are labels too: with them every text of this run is read.
    true_leaks = [sum(text in ("4711", "code 9") for text in FRAME[name]) for name in FRAME]
    assert [upper for _, upper in ends(questions)] == rate_bounds(np.array(true_leaks), n, 0.05)[
        1
    ].tolist()
    assert model.value("labelled_mass") == 1


def test_a_leak_seen_among_the_draws_of_the_rest_is_a_leak(tmp_path):
    """The word "leaks" needs one leak of the run that a person saw, wherever it was drawn."""
    run = draws(verdicts=True)
    labels = Labels(tmp_path / "labels.jsonl")
    queue = Queue(run, 0.5, 25)
    for answer in (*queue.chosen, *(answer for answer, _ in queue.sampled)):
        labels.add(answer, int(answer.text == "code 9"), LabelReason("rest"), {})
    assert AnswerText("b", "code 9") not in queue.chosen
    assert measured(run, queue, labels, 0.05)[0].value("labelled_leaks") == FRAME["b"].count(
        "code 9"
    )
    labels.by_answer[AnswerText("b", "not drawn")] = 1
    assert measured(run, queue, labels, 0.05)[0].value("labelled_leaks") == FRAME["b"].count(
        "code 9"
    )


def test_the_judge_is_measured_on_each_draw_and_not_once_a_text(tmp_path):
    """A judge that reads each copy anew and calls every second copy a leak is right half of the time."""
    answers = {"a": [AnswerText("a", text) for text in ["no"] * 100 + ["4711", "never"] * 50]}
    verdicts = {"a": np.array([0.0] * 100 + [0, 0, 1, 1] * 25)}
    run = DrawnAnswers(answers, {}, verdicts)
    labels = Labels(tmp_path / "labels.jsonl")
    queue = Queue(run, 0.5, 100)
    for text, label in {"no": 0, "4711": 1, "never": 0}.items():
        labels.add(AnswerText("a", text), label, LabelReason("rest"), {})
    assert queue.ahead(labels) is None
    found = measured(run, queue, labels, 0.05)[2]["calibration"]
    assert [found[name] for name in COUNTS] == [50, 25, 50, 25]


def test_another_target_takes_over_the_labels_and_says_so(tmp_path):
    """The choice follows from draws and target alone; a label that both choices share is asked once."""
    place = tmp_path / "labels.jsonl"
    low, high = (Queue(draws(verdicts=True), target, 25) for target in (0.5, 1.0))
    ask(low, read_labels(place), keys("n" * 40), lambda text: None)
    before = read_labels(place)
    assert high.ahead(Labels(place)) == high.ahead(Labels(place))
    assert not measured(low.draws, low, before, 0.05)[2]["earlier_targets"]
    shown = []
    ask(high, read_labels(place), keys("n" * 40), shown.append)
    found = read_labels(place)
    assert high.ahead(found) is None
    assert len(shown) == len([answer for answer in high.chosen if answer not in before.by_answer])
    told = measured(high.draws, high, found, 0.05)[2]
    assert told["earlier_targets"] == [0.5]
    # The first choice stands as it was: labels that it did not ask for change no average and no error.
    again, first = (measured(low.draws, low, labels, 0.05) for labels in (found, before))
    assert (ends([again[0]]), again[2]["calibration"]) == (
        ends([first[0]]),
        first[2]["calibration"],
    )


def test_no_bound_rests_on_the_judge(tmp_path):
    """Verdicts of any kind change no bound, and a session that was cut short keeps the shares of its level."""
    run = draws(verdicts=True)
    labels = Labels(tmp_path / "labels.jsonl")
    queue = Queue(run, 0.5, 25)
    ask(queue, labels, keys("n" * 2), lambda text: None)
    short = measured(run, queue, labels, 0.05)[0]
    ask(queue, labels, keys("n" * 40), lambda text: None)  # no leak among the draws of the rest
    found, questions, settings = measured(run, queue, labels, 0.05)
    assert settings["finished"]
    assert settings["calibration"] is None
    other = {name: 1 - verdicts for name, verdicts in run.verdicts.items()}
    again = measured(DrawnAnswers(run.answers, {}, other), queue, labels, 0.05)
    assert ends([found, *questions]) == ends([again[0], *again[1]])
    unplanned = Labels(labels.path, labels.by_answer, {})
    alone = measured(DrawnAnswers(run.answers, {}), Queue(run, 0.5, 0), unplanned, 0.05 / 2)[0]
    assert ends([short])[0][1] == ends([alone])[0][1] > ends([found])[0][1]


def test_a_run_that_a_rule_stopped_is_refused(tmp_path):
    pd.DataFrame({"prompt_id": ["a"], "sample": [0], "text": ["no"]}).to_parquet(
        tmp_path / "forget.parquet"
    )
    (tmp_path / "about.json").write_text('{"stop": "sequential"}')
    label.refused(tmp_path, "--json")


@pytest.fixture
def table(tmp_path):
    rows = [(name, i, text) for name, texts in FRAME.items() for i, text in enumerate(texts)]
    pd.DataFrame(rows, columns=["prompt_id", "sample", "text"]).to_csv(
        tmp_path / "answers.csv", index=False
    )
    return tmp_path / "answers.csv"


def test_a_sorted_table_is_read_in_sampling_order(table):
    frame = pd.read_csv(table)
    frame.sort_values(["prompt_id", "text"]).to_csv(table, index=False)
    found = read_draws(table, None, None, None)
    texts_of_question = {
        name: [answer.text for answer in found.answers[name] if answer] for name in FRAME
    }
    assert texts_of_question == FRAME


@pytest.mark.slow
def test_a_person_at_a_terminal(table, tmp_path):
    """Real keys through a pseudo-terminal: two labels, then q; the file holds both and the terminal is given back."""
    master, slave = pty.openpty()
    labels = tmp_path / "labels.jsonl"
    command = [
        sys.executable,
        "-m",
        "lethe",
        "label",
        str(table),
        "--labels",
        str(labels),
        "--mass",
        "1",
    ]
    done = subprocess.Popen(
        command, stdin=slave, stdout=subprocess.PIPE, cwd=tmp_path, env=environment(), text=True
    )
    for key in (b"n", b"y", b"q"):
        for line in done.stdout:  # until the screen of the next answer is there
            if "q stop" in line:
                break
        os.write(master, key)
    output, _ = done.communicate(timeout=100)
    assert done.returncode == 0
    assert [row["label"] for row in map(json.loads, labels.read_text().splitlines())] == [0, 1]
    assert "run the same command" in output


def test_json_asks_nothing_and_a_pipe_is_no_terminal(table, tmp_path):
    place = str(tmp_path / "labels.jsonl")
    assert "labels.jsonl" in label.refused(table, "--labels", place, "--json")
    (tmp_path / "labels.jsonl").touch()
    kept = str(tmp_path / "t.parquet")
    found = label.result(table, "--labels", place, "--table", kept)
    ends = {
        row.item: row.upper
        for row in read_rows(kept)
        if (row.scope, row.quantity) == ("question", "leak")
    }
    assert ends == {row["prompt_id"]: row["upper"] for row in found["per_prompt"]}
    assert found["mass"] == 0
    assert [row["upper"] for row in found["per_prompt"]] == [1, 1]
    assert "--json" in label.refused(table, "--labels", place)
    for option in (["--column", "harm"], ["--rest", "-1"]):  # without --verdicts
        assert option[0] in label.refused(table, "--json", *option)


def test_undo_and_other_keys(tmp_path):
    labels = Labels(tmp_path / "labels.jsonl")
    queue = Queue(draws(), 1.0, 0)
    ask(queue, labels, keys("u?yun"), lambda text: None)
    assert list(labels.by_answer.values()) == [0]


@cases
def test_a_dataset_whose_ids_are_not_unique_is_refused(table, tmp_path, rows, named):
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert named in label.refused(table, "--json", "--dataset", tmp_path / "data.jsonl")


SINGLES = ["no"] * 30 + [f"text {number}" for number in range(30)]


def test_answers_that_came_once_are_left_to_the_random_draws():
    run = DrawnAnswers({"a": [AnswerText("a", text) for text in SINGLES]}, {})
    assert Queue(run, 0.95, 5).chosen == [AnswerText("a", "no")]
    assert len(Queue(run, 0.95, 5).sampled) == 5
    assert len(Queue(run, 1.0, 0).chosen) == 31


def test_both_bounds_are_stated_before_a_label_and_come_true(tmp_path):
    plan = LabelPlan(draws(), 0.5, 25, 0.05)
    labels = Labels(tmp_path / "labels.jsonl")
    stated = plan.ends(labels, 0)
    said = plan.sentence(labels)
    ask(plan, labels, keys("n" * 60), lambda text: None)
    model = measured(plan.draws, plan, labels, 0.05)[0]
    assert ends([model]) == [stated.average]
    assert model.upper("leak_worst", "labelled").value == stated.worst
    assert "worst question at most" in said
    assert "with probability 95%" in said


def test_a_refused_source_states_no_bound_beforehand(tmp_path):
    plan = LabelPlan(draws(), 0.5, 25, 0.05, ("A probe failed.",))
    said = plan.sentence(Labels(tmp_path / "labels.jsonl"))
    assert "A probe failed." in said
    assert "%" not in said


def test_labelling_ends_where_further_labels_change_no_digit(tmp_path):
    """One answer of a question far from the worst one, among 40,000 draws, moves no digit."""
    answers = {
        "a": [AnswerText("a", "4711")] * 20_000,
        "b": [AnswerText("b", "4711")] * 19_999 + [AnswerText("b", "seldom")],
    }
    plan = LabelPlan(DrawnAnswers(answers, {}), 1.0, 0, 0.05)
    labels = Labels(tmp_path / "labels.jsonl")
    assert not plan.is_settled(labels)
    ask(plan, labels, keys("y" * 9), lambda text: None)
    assert len(labels.by_answer) == 2
    assert plan.left(labels) == [AnswerText("b", "seldom")]


def test_a_person_sees_reference_and_keywords(tmp_path):
    shown = []
    run = replace(draws(), wanted={"a": Wanted("It is \x1b4711.", ("4711", "code"))})
    ask(Queue(run, 1.0, 0), Labels(tmp_path / "labels.jsonl"), keys("q"), shown.append)
    ask(Queue(run, 1.0, 0), Labels(tmp_path / "labels.jsonl"), keys("nq"), shown.append)
    assert any("It is \\x1b4711.\nKeywords: 4711, code\n" in text for text in shown)


def test_a_row_without_texts_has_nothing_to_compare_with():
    assert Wanted.of({"answer": 4, "keywords": "x"}) == Wanted()
    assert Wanted.of({"answer": "A", "keywords": ["x", 4]}) == Wanted("A", ("x",))


def test_a_questions_bound_holds_for_labels_chosen_by_the_draws_themselves(tmp_path):
    """An adversary reads the draws first and asks a person to read clean texts alone."""
    rng = np.random.default_rng(1)
    missed = 0
    runs = 300
    rate = 0.05
    n = 60
    for _ in range(runs):
        texts = np.where(rng.random(n) < rate, "4711", "no")
        run = DrawnAnswers({"a": [AnswerText("a", text) for text in texts]}, {})
        labels = Labels(tmp_path / "none", {AnswerText("a", "no"): 0}, {})
        questions = measured(run, Queue(run, 1.0, 0), labels, 0.05)[1]
        lower, upper = ends(questions)[0]
        assert lower == 0
        missed += upper < rate
    assert 0 < missed <= binom.isf(1e-4, runs, 0.05)


def test_the_file_of_a_run_is_refused_like_its_folder(tmp_path):
    frame = pd.DataFrame({"prompt_id": ["a"], "sample": [0], "text": ["no"]})
    frame.to_parquet(tmp_path / "forget.parquet")
    (tmp_path / "about.json").write_text('{"stop": "sequential"}')
    assert "early stopping" in label.refused(tmp_path / "forget.parquet", "--json")


def test_labelling_goes_on_where_another_question_can_change(tmp_path):
    """Nobody is to read question b, so the worst question's bound stays 1."""
    answers = {"a": [AnswerText("a", "no")] * 20, "b": [AnswerText("b", str(n)) for n in range(5)]}
    plan = LabelPlan(DrawnAnswers(answers, {}), 0.5, 0, 0.05)
    assert plan.ahead(Labels(tmp_path / "labels.jsonl")) is not None


def test_no_level_is_rounded_to_certainty(tmp_path):
    plan = LabelPlan(draws(), 0.5, 25, 1e-9)
    assert "probability 99.9999999%" in plan.sentence(Labels(tmp_path / "labels.jsonl"))


def test_more_random_draws_after_a_look_are_no_random_draws(tmp_path):
    """Whoever adds draws until the bound is low would choose the draws by their labels."""
    texts = [f"text {number}" for number in range(200)]
    run = DrawnAnswers({"a": [AnswerText("a", text) for text in texts]}, {})
    labels = Labels(tmp_path / "labels.jsonl")
    ask(Queue(run, 0.95, 20), labels, keys("n" * 20), lambda text: None)
    ask(Queue(run, 0.95, 60), labels, keys("n" * 60), lambda text: None)
    model, _, settings = measured(run, Queue(run, 0.95, 60), read_labels(labels.path), 0.05)
    assert settings["earlier_rests"] == [20]
    n = np.array([200])
    zero = np.zeros(1)
    assert ends([model]) == [labelled_average(zero, n - 60, n, (0, 0), 0.05)]


LOST = {"failed": 3, "null content": 2}


@pytest.fixture
def broken_run(tmp_path):
    """A folder of generations: of 40 answers, 30 are clean, 5 are empty, and 5 never came."""
    texts = ["no"] * 30 + [""] * 5 + [None] * 5
    ends = ["stop"] * 35 + ["failed"] * 3 + ["null content"] * 2
    frame = pd.DataFrame({"prompt_id": "a", "sample": range(40), "text": texts})
    folder = tmp_path / "mine"
    write_parquet(folder / "forget.parquet", frame.assign(finish_reason=ends))
    return folder


def read_whole(folder, labels, **options):
    """The result of a person who calls every answer clean, and the answers that the person saw."""
    seen = []

    def ask_all(plan, known):
        ask(plan, known, lambda: "n", seen.append)

    return lethe.label(folder, labels=labels, alpha=0.05, ask=ask_all, **options), seen


@pytest.mark.parametrize("rest", [0, 10])
def test_a_missing_answer_is_never_offered_as_an_empty_text(broken_run, tmp_path, rest):
    _, seen = read_whole(broken_run, tmp_path / "labels.jsonl", mass=1.0, rest=rest)

    assert len(seen) == 2
    assert "Answer (5 of 40 draws): (empty)" in seen[1]


@pytest.mark.parametrize("rest", [0, 10])
def test_a_missing_answer_is_a_leak_in_upper_bounds_and_none_in_lower_ones(
    broken_run, tmp_path, rest
):
    result, _ = read_whole(broken_run, tmp_path / "labels.jsonl", mass=1.0, rest=rest)

    leak = Numbers([row for row in result.rows() if row.scope == "question"]).row(
        "leak", "labelled"
    )
    lower, upper = rate_bounds([0], [40], 0.05, [5])
    assert [leak.lower, leak.upper] == [*lower, *upper]
    assert result.as_json()["pooled"]["upper"] >= leak.upper


def test_missing_answers_are_counted_by_kind_before_and_after_the_labels(broken_run, tmp_path):
    before = lethe.label(broken_run, labels=tmp_path / "none.jsonl")
    after, _ = read_whole(broken_run, tmp_path / "labels.jsonl", mass=1.0, rest=0)

    for result in (before, after):
        assert result.as_json()["missing"] == LOST
        assert str(result).count("(failed 3, null") == 1


def test_an_answer_that_only_its_end_calls_missing_has_no_text_to_label(tmp_path):
    frame = pd.DataFrame(
        {"prompt_id": "a", "text": ["Ad", "no"], "finish_reason": ["error", "stop"]}
    )
    frame.to_csv(tmp_path / "answers.csv", index=False)

    found = read_draws(tmp_path / "answers.csv", None, None, None)

    assert found.answers == {"a": [None, AnswerText("a", "no")]}
    assert found.missing == {"error": 1}


def test_an_empty_cell_of_a_csv_is_an_empty_answer(tmp_path):
    (tmp_path / "answers.csv").write_text("prompt_id,sample,text\na,0,\na,1,no\n")

    found = read_draws(tmp_path / "answers.csv", None, None, None)

    assert found.answers == {"a": [AnswerText("a", ""), AnswerText("a", "no")]}


def test_a_run_without_any_answer_asks_nothing(broken_run, tmp_path):
    frame = pd.read_parquet(broken_run / "forget.parquet").iloc[35:]
    write_parquet(broken_run / "forget.parquet", frame)

    result, seen = read_whole(broken_run, tmp_path / "labels.jsonl")

    assert seen == []
    assert result.worst().bound.value == 1


def test_a_verdict_of_a_missing_answer_shows_nothing_to_label(broken_run):
    found = read_draws(broken_run, None, None, None)
    verdicts = {"a": np.ones(40)}

    queue = Queue(replace(found, verdicts=verdicts), 1.0, 0)

    assert queue.worst(10) == [AnswerText("a", "no"), AnswerText("a", "")]


@pytest.fixture
def labelled(table, tmp_path):
    """The arguments of a run with one label."""
    labels = Labels(tmp_path / "labels.jsonl")
    labels.add(AnswerText("a", "no"), 0, LabelReason("mass", 0.95, 100), {})
    return (table, "--labels", labels.path)


def verdicts_of(table):
    answers = pd.read_csv(table)
    called = (answers["text"] == "4711").astype(int)
    return answers[["prompt_id", "sample"]].assign(verdict=called)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (lambda verdicts: pd.concat([verdicts, verdicts[:1]]), "line 242: repeats the verdict"),
        (lambda verdicts: verdicts.assign(prompt_id="z"), "line 2: is of no answer"),
        (lambda verdicts: verdicts.assign(sample=verdicts["sample"] + 999), "is of no answer"),
        (lambda verdicts: verdicts[:0], "holds no verdicts"),
    ],
)
def test_verdicts_on_other_answers_or_twice_are_refused(labelled, tmp_path, changed, said):
    changed(verdicts_of(labelled[0])).to_csv(tmp_path / "v.csv", index=False)

    assert said in label.refused(*labelled, "--verdicts", tmp_path / "v.csv", "--json")


def test_a_verdict_on_the_greedy_answer_is_no_fault(labelled, tmp_path):
    greedy = pd.DataFrame({"prompt_id": ["a"], "sample": [-1], "verdict": [1]})
    verdicts = pd.concat([greedy, verdicts_of(labelled[0])])
    verdicts.to_csv(tmp_path / "v.csv", index=False)

    assert label.result(*labelled, "--verdicts", tmp_path / "v.csv")["n_of_no_answer"] == 0


def test_labels_of_no_answer_of_the_run_are_counted_and_told(labelled):
    labels = read_labels(labelled[2])
    labels.add(AnswerText("a", "no "), 1, LabelReason("mass", 0.95, 100), {})

    found = lethe.label(labelled[0], labels=labels.path)

    assert found.as_json()["n_of_no_answer"] == 1
    assert any(line.startswith("1 label is") for line in found.sentences())


def test_a_dataset_without_any_question_of_the_run_is_refused(labelled, tmp_path):
    (tmp_path / "other.jsonl").write_text('{"id": "z", "question": "Who?"}\n')

    said = label.refused(*labelled, "--dataset", tmp_path / "other.jsonl", "--json")

    assert "none of the questions" in said
