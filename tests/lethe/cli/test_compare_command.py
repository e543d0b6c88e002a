"""`lethe compare`: folders, logs, tables and revisions; what holds, what is not compared, and the gate."""

import json
import re
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

import lethe
from lethe.statistics.mean_difference import difference
from tests.cases import cases
from tests.lethe.cli.calls import Command, written
from tests.lethe.io.logs.small_logs import eval_log, header, sample, write_lines

command = Command("compare")
call = command.call
result = command.result
refused = command.refused


def data(
    folder,
    rates,
    n=200,
    stop="fixed",
    model="m",
    template="{question}",
    temperature=1.0,
    texts=None,
    match="word",
    truncated="counts",
    **more,
):
    """A folder of artifacts: question i has round(n * rates[i]) leaking answers; the greedy answer always leaks."""
    root = folder / "data"
    for place in ("scores", "generations"):
        (root / place / model).mkdir(parents=True, exist_ok=True)
    (root / "dataset").mkdir(exist_ok=True)
    tables = []
    for name, rate in rates.items():
        ones = round(n * rate)
        leaks = np.r_[1.0, np.ones(ones), np.zeros(n - ones)]
        rows = {
            "prompt_id": name,
            "sample": np.arange(-1, n),
            "rouge_l": leaks / 2,
            "keyword_leak": leaks,
        }
        tables.append(pd.DataFrame(rows))
    pd.concat(tables).to_parquet(root / "scores" / model / "forget.parquet")
    about = {"scorers": ["rouge_l", "keyword_leak"]}
    (root / "scores" / model / "about.json").write_text(json.dumps(about))
    drawn = {"temperature": temperature, "stop": stop, "seed": 3} | more
    (root / "generations" / model / "about.json").write_text(json.dumps(drawn))
    asked = [
        {"id": name, "question": (texts or {}).get(name, f"Who is {name}?"), "answer": "x"}
        for name in rates
    ]
    write_lines(root / "dataset" / "forget.jsonl", asked)
    (folder / "template.txt").write_text(template)
    (folder / "params.yaml").write_text(
        f"sample: {{prompt: template.txt, truncated: {truncated}}}\nmetrics: {{binary: keyword_leak}}\n"
        f"score: {{scorers: [rouge_l, keyword_leak], keyword_match: {match}}}\n"
    )
    return root


@pytest.fixture
def pair(tmp_path):
    a = data(tmp_path / "a", {"q": 0.0, "r": 0.5, "s": 0.1})
    b = data(tmp_path / "b", {"q": 0.3, "r": 0.5, "s": 0.1})
    return a, b


@pytest.mark.parametrize(
    ("score", "method"), [("keyword_leak", "Clopper-Pearson"), ("rouge_l", "betting")]
)
def test_whether_a_score_is_binary_is_what_its_scorer_declares(pair, score, method):
    """Halves of the graded scorer that happen to be 0 and 1 are not counted as leaks; those of the 0/1 scorer are."""
    for root in pair:
        place = root / "scores/m/forget.parquet"
        table = pd.read_parquet(place)
        table.assign(rouge_l=table["keyword_leak"]).to_parquet(place)

    found = result(*pair, "--score", score)

    assert found["per_question"][0]["method"] == method


def test_what_cannot_be_compared_is_named(tmp_path, pair):
    a, _ = pair
    other = data(tmp_path / "c", {"q": 0.2, "r": 0.2, "t": 0.2}, texts={"r": "Where is r?"})

    found = result(a, other)

    reasons = {}
    for question in found["not_compared"]:
        if question["id"]:
            reasons[question["id"]] = question["reason"]
    assert [row["id"] for row in found["per_question"]] == ["q"]
    assert set(reasons) == {"r", "s", "t"}
    assert "text or prompt" in reasons["r"]
    assert "A only" in reasons["s"]
    assert "B only" in reasons["t"]


@cases
def test_two_engines_are_compared_only_where_the_settings_agree(tmp_path, how, sentence):
    drawn = {"dtype": "float32", "language": None}
    rates = {"q": 0.2, "r": 0.5}
    a = data(tmp_path / "a", rates, **drawn, engine="prefix")
    same = data(tmp_path / "b", rates, **drawn, engine="vllm")
    other = data(tmp_path / "c", rates, **drawn | {"engine": "vllm"} | how)

    assert len(result(a, same)["per_question"]) == 2
    assert f"{sentence}. Draw" in refused(a, other)
    assert f"{sentence}. Draw" in refused(a, same, other)  # also among several
    for found in (result(a, other, "--despite-settings"), result(same, other)):
        assert len(found["per_question"]) == 2
        assert f"the settings differ: {sentence}" in found["notes"]


of_another_prompt_or_scorer = pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"template": "Q: {question}"}, "prompt '{question}' in A, 'Q: {question}' in B"),
        ({"match": "substring"}, "keyword_match 'word' in A, 'substring' in B"),
    ],
)


@pytest.mark.parametrize("options", [(), ("--despite-settings",)])
@of_another_prompt_or_scorer
def test_another_prompt_or_scorer_stops_the_whole_comparison(
    tmp_path, pair, how, sentence, options
):
    a, _ = pair
    other = data(tmp_path / "c", {"q": 0.2, "r": 0.2, "s": 0.2}, **how)

    found = result(a, other, *options)

    assert found["per_question"] == []
    assert found["pooled"] is None
    assert sentence in found["not_compared"][0]["reason"]


@of_another_prompt_or_scorer
def test_a_gate_on_sides_of_another_prompt_or_scorer_is_refused(tmp_path, pair, how, sentence):
    a, _ = pair
    other = data(tmp_path / "c", {"q": 0.2, "r": 0.2, "s": 0.2}, **how)

    assert "no question" in refused(a, other, "--fail-on", "worse")


def test_another_engine_and_what_a_side_does_not_record_are_named(tmp_path):
    """Engines and seeds may differ."""
    a = data(tmp_path / "a", {"q": 0.1}, engine="prefix", top_k=0)
    b = data(tmp_path / "b", {"q": 0.1}, engine="vllm", seed=4)

    assert result(a, b)["notes"] == [
        "the engine is prefix in A and vllm in B",
        "B does not record top_k",
    ]


def test_a_table_does_not_say_how_its_answers_were_drawn(tmp_path):
    a = data(tmp_path / "a", {"q": 0.1}, engine="prefix", top_k=0)
    table = tmp_path / "t.csv"
    table.write_text("prompt_id,keyword_leak\n" + "q,1\n" * 30)

    found = result(a, table, "--score", "keyword_leak")

    assert found["notes"] == ["no record says how the answers of B were drawn"]


@pytest.mark.parametrize(
    "change", [{"followups": ["Sure?"]}, {"context": "Once."}, {"keywords": ["y"]}]
)
def test_a_row_that_asks_or_forbids_something_else_is_not_compared(pair, change):
    _, b = pair
    place = b / "dataset/forget.jsonl"
    first, *rest = map(json.loads, place.read_text().splitlines())
    write_lines(place, [first | change, *rest])

    found = result(*pair)

    assert [question["id"] for question in found["not_compared"]] == ["q"]
    assert len(found["per_question"]) == 2


def test_a_log_has_the_context_elsewhere_in_its_prompt(tmp_path):
    folder = data(tmp_path / "f", {"q": 0.2})
    place = folder / "dataset/forget.jsonl"
    row = json.loads(place.read_text())
    write_lines(place, [row | {"context": "Once."}])
    asked = "Who is q? Consider: Once."
    settings = {
        "input": asked,
        "messages": [{"role": "user", "content": asked}],
        "scores": {"keyword_leak": {"value": "C"}},
    }
    answers = [sample("q", epoch) | settings for epoch in range(1, 31)]
    log = eval_log(tmp_path / "c.eval", header(["q"], 30), answers)

    found = result(log, folder, "--score", "keyword_leak")

    assert found["not_compared"] == []


EVALUATED = {
    "model": "m",
    "prompt": "{question}",
    "score": {"scorers": ["keyword_leak"], "keyword_match": "word"},
}


def evaluated(folder, **changes):
    """A folder of `lethe eval`: prompt and scorer stand in evaluated.json; the pipeline's has them in params.yaml."""
    root = data(folder, {"q": 0.2, "r": 0.2, "s": 0.2})
    (folder / "params.yaml").unlink()
    (root / "evaluated.json").write_text(json.dumps(EVALUATED | changes))
    return root


def test_folders_of_lethe_eval_with_the_same_prompt_and_scorer_are_compared(tmp_path, pair):
    a, _ = pair

    assert result(a, evaluated(tmp_path / "e"))["not_compared"] == []


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("prompt", "Q: {question}", "prompt"),
        ("score", {"scorers": ["keyword_leak"], "keyword_match": "substring"}, "keyword_match"),
        ("score", {"scorers": ["keyword_leak"], "thinking": ["<a>", "</a>"]}, "thinking"),
    ],
)
def test_folders_of_lethe_eval_tell_their_prompt_and_scorer(tmp_path, pair, key, value, named):
    a, _ = pair

    found = result(a, evaluated(tmp_path / "e", **{key: value}))

    assert named in found["not_compared"][0]["reason"]


def log_of_matches(path, value):
    """A log of 31 planned answers to a question, of which 30 came, each with the same score."""
    answers = []
    for epoch in range(1, 31):
        answers.append(sample("q", epoch, scores={"match": value, "other": 1}))
    return eval_log(path, header(["q"], 31), answers)


@pytest.fixture
def wrong_log(tmp_path):
    return log_of_matches(tmp_path / "a.eval", "I")


@pytest.fixture
def right_log(tmp_path):
    return log_of_matches(tmp_path / "b.eval", "C")


@pytest.fixture
def table_of_matches(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("prompt_id,match\n" + "q,1\n" * 30)
    return path


def test_logs_are_compared_and_a_missing_answer_widens_the_interval(wrong_log, right_log):
    complete = difference(np.zeros(30), np.ones(30), 0.05, binary=True)

    (row,) = result(wrong_log, right_log)["per_question"]

    assert row["metric"] == "match"
    assert (row["a"], row["b"]) == (0, 1)
    assert row["holds"]
    assert row["ci_low"] < complete.low  # 1 answer of each is missing


def test_a_log_is_compared_with_a_table(wrong_log, table_of_matches):
    (row,) = result(wrong_log, table_of_matches, "--score", "match")["per_question"]

    assert row["holds"]


def test_a_log_of_other_scorers_is_not_compared_with_a_folder(wrong_log, pair):
    folder, _ = pair

    found = result(wrong_log, folder)

    assert "scorers differ" in found["not_compared"][0]["reason"]


def test_a_log_of_greedy_copies_is_refused(tmp_path, wrong_log):
    greedy = header(["q"], 2, generate={"temperature": 0})
    copies = eval_log(tmp_path / "g.eval", greedy, [sample("q", 1), sample("q", 2)])

    assert "temperature 0" in refused(wrong_log, copies)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        pytest.param("nowhere", "revision", id="no file, no revision"),
        pytest.param("t.cvs", "mean 't.csv'?", id="a file of nearly this name"),
        pytest.param("", "scores/MODEL", id="a folder without scores"),
    ],
)
def test_a_side_that_is_nothing_to_compare_is_refused(
    tmp_path, wrong_log, table_of_matches, name, said
):
    assert said in refused(wrong_log, tmp_path / name)


def test_logs_have_no_model_to_choose(wrong_log, right_log):
    assert "--model" in refused(wrong_log, right_log, "--model", "m")


def test_tables_have_no_filter(table_of_matches):
    options = ("--score", "match", "--filter", "first")

    assert "--filter" in refused(table_of_matches, table_of_matches, *options)


def test_folders_have_no_filter(pair):
    assert "--filter" in refused(*pair, "--filter", "first")


def test_the_page_holds_every_question_and_asks_for_nothing(tmp_path, pair):
    page = tmp_path / "page.html"

    found = result(*pair, "--page", page)

    text = page.read_text()
    assert found["page"] == str(page)
    assert "worse on 1 of 3" in text
    assert text.count("<tr") == 4
    assert "http:" not in text.replace("http://www.w3.org/2000/svg", "")  # the script's name of SVG
    assert "https:" not in text


def test_a_name_gives_the_page_no_orders(tmp_path):
    page = tmp_path / "page.html"
    hostile = data(tmp_path / "<script>x", {"q": 0.2})

    result(hostile, hostile, "--page", page)

    assert "<script>x" not in page.read_text()


def test_a_page_is_html(tmp_path, pair):
    assert "--page" in refused(*pair, "--page", tmp_path / "x.txt")


@pytest.mark.slow
def test_revisions_are_read_from_dvc_and_git(tmp_path, monkeypatch, pair):
    repository = tmp_path / "repository"
    data(repository, {"q": 0.0, "r": 0.5})
    monkeypatch.chdir(repository)

    def git(*arguments):
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
            check=True,
            capture_output=True,
        )

    git("init", "-q")
    for command in (
        ["init", "-q"],
        ["config", "core.analytics", "false"],
        ["add", "-q", "data/scores"],
    ):
        subprocess.run([sys.executable, "-m", "dvc", *command], check=True, capture_output=True)
    git("add", "-A")
    git("commit", "-qm", "before")
    data(repository, {"q": 0.4, "r": 0.5})
    got = result("HEAD", "data")
    assert [(row["id"], row["holds"]) for row in got["per_question"]] == [("q", True), ("r", False)]
    subprocess.run(
        [sys.executable, "-m", "dvc", "add", "-q", "data/scores"], check=True, capture_output=True
    )
    git("commit", "-qam", "after")
    assert call("HEAD~1", "HEAD", "--fail-on", "worse").exit_code == 1
    assert call("HEAD", "HEAD~1", "--fail-on", "worse").exit_code == 0
    git("update-ref", f"refs/exps/ab/{'c' * 38}/bold-cat", "HEAD")  # where DVC keeps an experiment
    assert result("HEAD~1", "bold-cat")["per_question"] == result("HEAD~1", "HEAD")["per_question"]
    git("update-ref", f"refs/exps/cd/{'e' * 38}/bold-cat", "HEAD~1")
    assert "2 DVC experiments" in refused("HEAD~1", "bold-cat")
    assert "nor a DVC experiment" in refused("HEAD~1", "exec/bold-cat")


@cases
def test_the_method_follows_from_recorded_seeds_and_engines(tmp_path, a, b, word):
    first = data(tmp_path / "a", {"q": 0.1}, **a)
    second = data(tmp_path / "b", {"q": 0.1}, **b)

    (row,) = result(first, second)["per_question"]

    assert word in row["method"]
    assert ("Fisher" in row["method"]) == (word == "Fisher")


def test_the_list_assumes_what_any_of_its_questions_assumes(tmp_path):
    drawn = {"engine": "prefix", "max_new_tokens": 8}
    for name, seed in (("a", 3), ("b", 4)):
        data(tmp_path / name, {"q": 0.1}, model="first", **drawn)
        data(tmp_path / name, {"q": 0.1}, model="second", **drawn, seed=seed)

    done = call(tmp_path / "a/data", tmp_path / "b/data", "--by", 0.5)

    said = " ".join(done.output.split())
    assert "one seed, whose" in said
    assert "numbers of their own" in said


def test_a_folder_that_does_not_say_how_it_was_drawn_counts_as_stopped(pair):
    _, b = pair
    (b / "generations/m/about.json").unlink()

    found = result(*pair)

    assert found["notes"][0].startswith("B:")
    assert "martingale" in found["per_question"][0]["method"]


@pytest.fixture
def plain(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("prompt_id,score\n" + "q,0\n" * 60)
    return path


def test_a_table_can_say_that_a_rule_could_stop_it(tmp_path, plain):
    marked = tmp_path / "b.csv"
    marked.write_text("prompt_id,score,stopped\n" + "q,1,true\n" * 60)

    (row,) = result(plain, marked)["per_question"]

    assert "B: mixture" in row["method"]


def test_an_option_can_say_that_a_rule_could_stop_a_table(plain):
    (row,) = result(plain, plain, "--stopped", "a")["per_question"]

    assert "A: mixture" in row["method"]


NINETEEN_CLEAN = "".join(f"q{place},0\n" * 32 for place in range(19))


def scores_of(path, rows):
    path.write_text("prompt_id,score\n" + rows)
    return path


@pytest.fixture
def clean(tmp_path):
    """32 answers to each of 20 questions, none of them a leak."""
    return scores_of(tmp_path / "a.csv", NINETEEN_CLEAN + "q19,0\n" * 32)


@pytest.fixture
def leaky(tmp_path):
    """The same with 8 leaks of 32 answers to the last question, which are no shown difference."""
    return scores_of(tmp_path / "b.csv", NINETEEN_CLEAN + "q19,0\n" * 24 + "q19,1\n" * 8)


@pytest.fixture
def without_the_last(tmp_path):
    return scores_of(tmp_path / "c.csv", NINETEEN_CLEAN)


@pytest.mark.parametrize(
    ("options", "status"),
    [
        pytest.param(("--fail-on", "worse"), 0, id="no difference is shown"),
        pytest.param(("--require", "not-worse", "--by", 0.1), 1, id="nor is it disproved"),
        pytest.param(("--require", "not-worse", "--by", 0.6), 0, id="a large one is disproved"),
        pytest.param(
            ("--require", "not-worse", "--by", 0.1, "--on", "average"), 0, id="on average"
        ),
        pytest.param(("--fail-above", 0.3), 1, id="b may leak more"),
        pytest.param(("--fail-above", 0.6), 0, id="b leaks less"),
    ],
)
def test_not_worse_must_be_proved(clean, leaky, options, status):
    assert call(clean, leaky, *options).exit_code == status


def test_the_questions_on_which_not_worse_is_unproved_are_named(clean, leaky):
    found = result(clean, leaky, "--by", 0.1)["not_worse"]

    assert not found["holds"]
    assert found["unproved"][0] == "q19"


def test_not_worse_needs_a_tolerance(clean, leaky):
    assert "--by" in refused(clean, leaky, "--require", "not-worse")


def test_not_worse_is_unproved_where_b_lacks_a_question(clean, without_the_last):
    done = call(clean, without_the_last, "--require", "not-worse", "--by", 0.6)

    assert done.exit_code == 1


def test_the_gate_on_b_asks_about_the_questions_of_b_alone(clean, leaky, without_the_last):
    assert call(clean, without_the_last, "--fail-above", 0.3).exit_code == 0
    assert call(without_the_last, leaky, "--fail-above", 0.3).exit_code == 1


@pytest.fixture
def three_words(tmp_path):
    """B is proved, open and broken beside 0.3 on its three questions, and worse than A on the last."""
    proved = "q0,0\n" * 60
    undecided = "q1,1\n" * 18 + "q1,0\n" * 42
    broken = "q2,1\n" * 60
    a = scores_of(tmp_path / "a.csv", "q0,0\nq1,0\nq2,0\n" * 60)
    b = scores_of(tmp_path / "b.csv", proved + undecided + broken)
    return a, b


def test_the_gate_on_b_names_its_questions_as_the_gate_of_bounds_does(three_words):
    done = call(*three_words, "--fail-above", 0.3, "--json")

    gate = json.loads(done.stdout)["gate"]
    assert done.exit_code == 1
    assert (gate["passed"], gate["threshold"], gate["prompt_id"]) == (False, 0.3, "q2")
    words = {entry["id"]: entry["word"] for entry in gate["closed_by"]}
    assert words == {"q2": "broken", "q1": "open"}


def test_the_gates_of_a_comparison_are_written_for_a_ci(three_words, tmp_path):
    junit, summary = tmp_path / "gates.xml", tmp_path / "summary.md"
    files = ("--junit", junit, "--summary", summary)

    done = call(*three_words, "--fail-above", 0.3, "--fail-on", "worse", *files)

    (suite,) = ElementTree.parse(junit).getroot()
    failures = {case.get("name"): case.find("failure") for case in suite.iter("testcase")}
    assert done.exit_code == 1
    assert failures["q0"] is None
    assert {failures["q1"].get("type"), failures["q2"].get("type")} == {"open", "broken"}
    assert "worse" in failures["--fail-on worse"].text
    assert suite.get("failures") == "3"
    text = summary.read_text()
    assert "| 1 | 1 | 1" in text
    assert "`--fail-on worse`: **closed**" in text


def test_a_gate_that_stays_open_fails_no_case(three_words, tmp_path):
    a, _ = three_words
    junit = tmp_path / "gates.xml"

    done = call(a, a, "--fail-on", "worse", "--junit", junit)

    (suite,) = ElementTree.parse(junit).getroot()
    assert done.exit_code == 0
    assert (suite.get("tests"), suite.get("failures")) == ("1", "0")


def test_sides_of_which_nothing_is_claimed_fail_every_case(three_words, tmp_path):
    junit = tmp_path / "gates.xml"
    a, _ = three_words
    alone = scores_of(tmp_path / "alone.csv", "q0,0\n")

    done = call(a, alone, "--require", "not-worse", "--by", 0.1, "--junit", junit)

    (suite,) = ElementTree.parse(junit).getroot()
    assert done.exit_code == 1
    assert suite.get("failures") == "1"


def test_a_file_for_a_ci_needs_a_gate(three_words, tmp_path):
    assert "--fail-on" in refused(*three_words, "--junit", tmp_path / "gates.xml")


def test_a_file_of_cases_is_xml(three_words, tmp_path):
    options = ("--fail-on", "worse", "--junit", tmp_path / "gates.txt")

    assert ".xml" in refused(*three_words, *options)


@pytest.fixture
def runs(tmp_path):
    """Tables of four runs with 0, 10, 20 and 20 leaks of 20 answers to each of 20 questions."""
    paths = []
    for name, ones in (("a", 0), ("b", 10), ("c", 20), ("d", 20)):
        rows = ""
        for question in range(20):
            rows += f"q{question},1\n" * ones + f"q{question},0\n" * (20 - ones)
        paths.append(scores_of(tmp_path / f"{name}.csv", rows))
    return paths


def test_several_runs_are_ranked(runs):
    found = result(*runs)

    ranks = [[1, 1], [2, 2], [3, 4], [3, 4]]
    assert [run["rank_pooled"] for run in found["runs"]] == ranks
    assert [run["rank_population"] for run in found["runs"]] == ranks


def test_every_pair_of_several_runs_is_compared(runs):
    pairs = result(*runs)["pairs"]

    assert [pair["population"]["holds"] for pair in pairs] == [True] * 5 + [False]
    assert {pair["pooled"]["questions"] for pair in pairs} == {20}


def test_runs_of_which_no_difference_is_shown_are_not_said_to_be_alike(runs):
    said = " ".join(lethe.compare(runs[-1], runs[-1], runs[-1]).sentences())

    assert "0 of 3 pairs differ" not in said


def test_the_page_of_several_runs_has_their_ranks(tmp_path, runs):
    page = tmp_path / "ranks.html"

    result(*runs, "--page", page)

    assert page.read_text().count("rank 3 to 4") == 8


def test_two_runs_have_a_difference_over_questions_like_these(runs):
    found = result(*runs[:2])

    assert found["pooled"]["difference"] == pytest.approx(0.5)
    assert found["population"]["difference"] == found["pooled"]["difference"]


def test_the_pairs_of_many_runs_do_not_hide_the_ranks(tmp_path, runs):
    """Eight runs have 28 pairs, each over these questions and over questions like these."""
    copies = [tmp_path / f"copy-{path.name}" for path in runs]
    for path, copied in zip(runs, copies, strict=True):
        copied.write_bytes(path.read_bytes())

    pairs, ranks = lethe.compare(*runs, *copies).views()

    assert (len(pairs.rows), len(ranks.rows)) == (20, 8)
    assert ranks.notes[-1] == "56 rows of pairs in all: see --json or --page."


def test_runs_are_ranked_by_their_common_questions(runs):
    table = pd.read_csv(runs[0])
    table[table["prompt_id"] != "q0"].to_csv(runs[0], index=False)

    found = result(*runs)

    assert found["questions"] == 19
    assert {question["id"] for question in found["not_compared"]} == {"q0"}


def test_runs_of_one_answer_to_each_question_are_ranked_over_questions_like_these_alone(runs):
    """With one answer each, the questions are the sample."""
    for path in runs:
        pd.read_csv(path).drop_duplicates("prompt_id").to_csv(path, index=False)

    found = result(*runs)["runs"]

    assert [run["rank_pooled"] for run in found] == [None] * 4
    assert found[0]["rank_population"] == [1, 1]


@pytest.mark.parametrize(
    "option", [("--by", "0.1"), ("--fail-on", "worse"), ("--fail-above", "0.1")]
)
def test_a_gate_takes_two_runs(runs, option):
    assert option[0] in refused(*runs, *option)


def test_a_run_is_not_independent_of_itself(tmp_path):
    rows = "".join(f"q{n % 5},{int(n % 3 == 0)}\n" for n in range(200))
    first = scores_of(tmp_path / "a.csv", rows)
    copied = scores_of(tmp_path / "copy.csv", rows)

    assert "in the same order" in refused(first, copied, "--independent")


def test_two_runs_without_a_leak_may_be_independent(tmp_path):
    rows = "".join(f"q{n % 5},0\n" for n in range(200))
    first = scores_of(tmp_path / "clean.csv", rows)
    other = scores_of(tmp_path / "other.csv", rows)

    assert call(first, other, "--independent").exit_code == 0


@pytest.mark.parametrize("column", ["question", "Prompt", "question_text"])
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_tables_with_other_questions_under_one_id_are_not_compared(tmp_path, column, suffix):
    paths = []
    for side, first in (("a", "Who is Ada?"), ("b", "Where is Bo?")):
        texts = [first] * 50 + ["Who is Ida?"] * 50
        rows = {"prompt_id": ["q1"] * 50 + ["q2"] * 50, "sample": [*range(50)] * 2, "score": 0}
        table = pd.DataFrame({**rows, column: texts})
        path = tmp_path / f"{side}.{suffix}"
        if suffix == "csv":
            table.to_csv(path, index=False)
        else:
            table.to_json(path, orient="records", lines=True)
        paths.append(path)

    found = result(*paths)

    assert [row["id"] for row in found["per_question"]] == ["q2"]
    assert [row["id"] for row in found["not_compared"]] == ["q1"]


@pytest.fixture
def beside(tmp_path):
    """A function that writes two tables of scores, each with its own value of a column."""

    def write(column, first, second, suffix="csv"):
        paths = []
        for side, value in (("a", first), ("b", second)):
            rows = {"prompt_id": "q", "sample": range(50), "score": 0, column: value}
            path = tmp_path / f"{side}.{suffix}"
            written(path, pd.DataFrame(rows))
            paths.append(path)
        return paths

    return write


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("column", "setting"), [("temperature", "temperature"), ("max_tokens", "max_new_tokens")]
)
def test_settings_that_tables_state_are_named_where_they_differ(beside, column, setting, suffix):
    notes = result(*beside(column, 5, 7, suffix))["notes"]

    assert notes == [f"the settings differ: {setting} 5 in A, 7 in B"]


def test_a_seed_in_a_table_says_nothing_of_shared_draws(beside):
    found = result(*beside("seed", 1, 2))

    assert found["notes"] == ["no record says how the answers of A and B were drawn"]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_verdicts_of_two_judges_are_not_compared(beside, suffix):
    found = result(*beside("judge", "j1", "j2", suffix))

    (left_out,) = found["not_compared"]
    assert {"j1", "j2"} <= set(re.findall(r"j\d", left_out["reason"]))
    assert found["per_question"] == []
