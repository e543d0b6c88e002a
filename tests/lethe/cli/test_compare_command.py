"""`lethe compare`: folders, logs, tables and revisions; what holds, what is not compared, and the gate."""

import json
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

import lethe
from lethe.statistics.mean_difference import difference
from tests.cases import cases
from tests.lethe.cli.calls import Command
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


def test_whether_a_score_is_binary_is_what_its_scorer_declares(pair):
    """Halves of the graded scorer that happen to be 0 and 1 are not counted as leaks; those of the 0/1 scorer are."""
    for root in pair:
        place = root / "scores/m/forget.parquet"
        table = pd.read_parquet(place)
        table.assign(rouge_l=table["keyword_leak"]).to_parquet(place)
    methods = {
        score: result(*pair, "--score", score)["per_question"][0]["method"]
        for score in ("keyword_leak", "rouge_l")
    }
    assert methods == {"keyword_leak": "Clopper-Pearson", "rouge_l": "betting"}


def test_what_cannot_be_compared_is_named(tmp_path, pair):
    a, _ = pair
    other = data(tmp_path / "c", {"q": 0.2, "r": 0.2, "t": 0.2}, texts={"r": "Where is r?"})
    got = result(a, other)
    assert [row["id"] for row in got["per_question"]] == ["q"]
    reasons = {
        question["id"]: question["reason"] for question in got["not_compared"] if question["id"]
    }
    assert set(reasons) == {"r", "s", "t"}
    assert "text or prompt" in reasons["r"]
    assert "A only" in reasons["s"]
    assert "B only" in reasons["t"]


@cases
def test_two_engines_are_compared_only_where_the_settings_agree(tmp_path, how, sentence):
    drawn = {"dtype": "float32", "language": None}
    a, same, other = (
        data(tmp_path / name, {"q": 0.2, "r": 0.5}, **drawn | {"engine": engine} | more)
        for name, engine, more in (("a", "prefix", {}), ("b", "vllm", {}), ("c", "vllm", how))
    )
    assert len(result(a, same)["per_question"]) == 2
    for sides in ((a,), (a, same)):  # also among several
        assert f"{sentence}. Draw" in refused(*sides, other)
    for got in (result(a, other, "--despite-settings"), result(same, other)):
        assert len(got["per_question"]) == 2
        assert f"the settings differ: {sentence}" in got["notes"]


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"template": "Q: {question}"}, "prompt '{question}' in A, 'Q: {question}' in B"),
        ({"match": "substring"}, "keyword_match 'word' in A, 'substring' in B"),
    ],
)
def test_another_prompt_or_scorer_stops_the_whole_comparison(tmp_path, pair, how, sentence):
    a, _ = pair
    other = data(tmp_path / "c", {"q": 0.2, "r": 0.2, "s": 0.2}, **how)
    for got in (result(a, other), result(a, other, "--despite-settings")):
        assert got["per_question"] == []
        assert got["pooled"] is None
        assert sentence in got["not_compared"][0]["reason"]
    assert "no question" in refused(a, other, "--fail-on", "worse")


def test_what_a_side_does_not_record_is_named(tmp_path, pair):
    """Engines and seeds may differ, and a table says nothing."""
    drawn = [{"engine": "prefix", "top_k": 0}, {"engine": "vllm", "seed": 4}]
    sides = [
        data(tmp_path / str(place), {"q": 0.1}, **settings) for place, settings in enumerate(drawn)
    ]
    assert result(*sides)["notes"] == [
        "the engine is prefix in A and vllm in B",
        "B does not record top_k",
    ]
    table = tmp_path / "t.csv"
    table.write_text("prompt_id,keyword_leak\n" + "q,1\n" * 30)
    notes = result(sides[0], table, "--score", "keyword_leak")["notes"]
    assert notes == ["no record says how the answers of B were drawn"]


@pytest.mark.parametrize(
    "change", [{"followups": ["Sure?"]}, {"context": "Once."}, {"keywords": ["y"]}]
)
def test_a_row_that_asks_or_forbids_something_else_is_not_compared(pair, change):
    place = pair[1] / "dataset/forget.jsonl"
    first, *rest = map(json.loads, place.read_text().splitlines())
    write_lines(place, [first | change, *rest])
    got = result(*pair)
    assert [question["id"] for question in got["not_compared"]] == ["q"]
    assert len(got["per_question"]) == 2


def test_a_log_has_the_context_elsewhere_in_its_prompt(tmp_path):
    folder = data(tmp_path / "f", {"q": 0.2})
    place = folder / "dataset/forget.jsonl"
    write_lines(
        place, [json.loads(line) | {"context": "Once."} for line in place.read_text().splitlines()]
    )
    asked = "Who is q? Consider: Once."
    settings = {
        "input": asked,
        "messages": [{"role": "user", "content": asked}],
        "scores": {"keyword_leak": {"value": "C"}},
    }
    answers = [sample("q", epoch) | settings for epoch in range(1, 31)]
    log = eval_log(tmp_path / "c.eval", header(["q"], 30), answers)
    assert result(log, folder, "--score", "keyword_leak")["not_compared"] == []


def test_folders_of_lethe_eval_tell_their_prompt_and_scorer(tmp_path, pair):
    """They stand in evaluated.json; the pipeline's folder has the same in params.yaml."""
    a, _ = pair
    folder = data(tmp_path / "e", {"q": 0.2, "r": 0.2, "s": 0.2})
    (tmp_path / "e" / "params.yaml").unlink()
    told = {
        "model": "m",
        "prompt": "{question}",
        "score": {"scorers": ["keyword_leak"], "keyword_match": "word"},
    }
    (folder / "evaluated.json").write_text(json.dumps(told))
    assert result(a, folder)["not_compared"] == []
    for change, word in (
        ({"prompt": "Q: {question}"}, "prompt"),
        ({"score": {"scorers": ["keyword_leak"], "keyword_match": "substring"}}, "keyword_match"),
        ({"score": {"scorers": ["keyword_leak"], "thinking": ["<a>", "</a>"]}}, "thinking"),
    ):
        (folder / "evaluated.json").write_text(json.dumps(told | change))
        assert word in result(a, folder)["not_compared"][0]["reason"]


def test_logs_and_tables(tmp_path, pair):
    logs = []
    for name, value in (("a", "I"), ("b", "C")):
        answers = [
            sample("q", epoch, scores={"match": value, "other": 1}) for epoch in range(1, 31)
        ]
        logs.append(eval_log(tmp_path / f"{name}.eval", header(["q"], 31), answers))
    got = result(*logs)
    (row,) = got["per_question"]
    assert (row["metric"], row["a"], row["b"], row["holds"]) == ("match", 0, 1, True)
    assert (
        row["ci_low"] < difference(np.zeros(30), np.ones(30), 0.05, binary=True).low
    )  # 1 answer of each is missing
    table = tmp_path / "t.csv"
    table.write_text("prompt_id,match\n" + "q,1\n" * 30)
    assert result(logs[0], table, "--score", "match")["per_question"][0]["holds"]
    assert "scorers differ" in result(logs[0], pair[0])["not_compared"][0]["reason"]
    greedy = header(["q"], 2, generate={"temperature": 0})
    copies = eval_log(tmp_path / "g.eval", greedy, [sample("q", 1), sample("q", 2)])
    assert "temperature 0" in refused(logs[0], copies)
    assert "revision" in refused(logs[0], tmp_path / "nowhere")
    assert "mean 't.csv'?" in refused(logs[0], tmp_path / "t.cvs")
    assert "scores/MODEL" in refused(logs[0], tmp_path)
    assert "--model" in refused(logs[0], logs[1], "--model", "m")
    assert "--filter" in refused(table, table, "--score", "match", "--filter", "first")
    assert "--filter" in refused(*pair, "--filter", "first")


def test_the_page_holds_every_question_and_gives_no_orders(tmp_path, pair):
    a, b = pair
    page = tmp_path / "page.html"
    assert result(a, b, "--page", page)["page"] == str(page)
    text = page.read_text()
    assert "worse on 1 of 3" in text
    assert text.count("<tr") == 4
    assert "http:" not in text.replace("http://www.w3.org/2000/svg", "")  # the script's name of SVG
    assert "https:" not in text
    hostile = data(tmp_path / "<script>x", {"q": 0.2})
    result(hostile, hostile, "--page", page)
    assert "<script>x" not in page.read_text()
    assert "--page" in refused(a, b, "--page", tmp_path / "x.txt")


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
    sides = [data(tmp_path / name, {"q": 0.1}, **more) for name, more in (("a", a), ("b", b))]
    (row,) = result(*sides)["per_question"]
    assert word in row["method"]
    assert ("Fisher" in row["method"]) == (word == "Fisher")


def test_the_list_assumes_what_any_of_its_questions_assumes(tmp_path):
    drawn = {"engine": "prefix", "max_new_tokens": 8}
    for name, seed in (("a", 3), ("b", 4)):
        data(tmp_path / name, {"q": 0.1}, model="first", **drawn)
        data(tmp_path / name, {"q": 0.1}, model="second", **drawn, seed=seed)
    said = " ".join(call(tmp_path / "a/data", tmp_path / "b/data", "--by", 0.5).output.split())
    assert said.count("one seed, whose") >= 1
    assert said.count("numbers of their own") >= 1


def test_a_folder_that_does_not_say_how_it_was_drawn_counts_as_stopped(tmp_path, pair):
    (pair[1] / "generations/m/about.json").unlink()
    got = result(*pair)
    assert got["notes"][0].startswith("B:")
    assert "martingale" in got["per_question"][0]["method"]


def test_a_table_can_say_that_a_rule_could_stop_it(tmp_path):
    plain, marked = tmp_path / "a.csv", tmp_path / "b.csv"
    plain.write_text("prompt_id,score\n" + "q,0\n" * 60)
    marked.write_text("prompt_id,score,stopped\n" + "q,1,true\n" * 60)
    assert "B: mixture" in result(plain, marked)["per_question"][0]["method"]
    assert "A: mixture" in result(plain, plain, "--stopped", "a")["per_question"][0]["method"]


def test_not_worse_must_be_proved(tmp_path, pair):
    """0 of 32 against 8 of 32 on one of 20 questions is no shown difference: the gate that asks for proof closes."""
    a, b = (tmp_path / name for name in ("a.csv", "b.csv"))
    rows = "".join(f"q{place},0\n" * 32 for place in range(19))
    a.write_text("prompt_id,score\n" + rows + "q19,0\n" * 32)
    b.write_text("prompt_id,score\n" + rows + "q19,0\n" * 24 + "q19,1\n" * 8)
    assert call(a, b, "--fail-on", "worse").exit_code == 0
    assert call(a, b, "--require", "not-worse", "--by", 0.1).exit_code == 1
    got = result(a, b, "--by", 0.1)["not_worse"]
    assert (got["holds"], got["unproved"][0]) == (False, "q19")
    assert call(a, b, "--require", "not-worse", "--by", 0.6).exit_code == 0
    assert call(a, b, "--require", "not-worse", "--by", 0.1, "--on", "average").exit_code == 0
    assert "--by" in refused(a, b, "--require", "not-worse")
    assert call(a, b, "--fail-above", 0.3).exit_code == 1
    assert call(a, b, "--fail-above", 0.6).exit_code == 0
    fewer = tmp_path / "c.csv"
    fewer.write_text("prompt_id,score\n" + rows)
    assert call(a, fewer, "--require", "not-worse", "--by", 0.6).exit_code == 1
    assert call(a, fewer, "--fail-above", 0.3).exit_code == 0
    assert call(fewer, b, "--fail-above", 0.3).exit_code == 1  # of the question in B alone


@pytest.fixture
def three_words(tmp_path):
    """B is proved, open and broken beside 0.3 on its three questions, and worse than A on the last."""
    a, b = (tmp_path / name for name in ("a.csv", "b.csv"))
    never = "q0,0\nq1,0\nq2,0\n" * 60
    a.write_text("prompt_id,score\n" + never)
    scores = "q0,0\n" * 60 + "q1,1\n" * 18 + "q1,0\n" * 42 + "q2,1\n" * 60
    b.write_text("prompt_id,score\n" + scores)
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
    alone = tmp_path / "alone.csv"
    alone.write_text("prompt_id,score\n" + "q0,0\n")
    a, _ = three_words
    done = call(a, alone, "--require", "not-worse", "--by", 0.1, "--junit", junit)

    (suite,) = ElementTree.parse(junit).getroot()
    assert done.exit_code == 1
    assert suite.get("failures") == "1"


def test_a_file_for_a_ci_needs_a_gate(three_words, tmp_path):
    assert "--fail-on" in refused(*three_words, "--junit", tmp_path / "gates.xml")
    assert ".xml" in refused(*three_words, "--fail-on", "worse", "--junit", tmp_path / "gates.txt")


@pytest.fixture
def runs(tmp_path):
    paths = []
    for name, ones in (("a", 0), ("b", 10), ("c", 20), ("d", 20)):
        rows = [(f"q{i}", float(j < ones)) for i in range(20) for j in range(20)]
        paths.append(tmp_path / f"{name}.csv")
        pd.DataFrame(rows, columns=["prompt_id", "score"]).to_csv(paths[-1], index=False)
    return paths


def test_several_runs_are_ranked(tmp_path, runs):
    page = tmp_path / "ranks.html"
    got = result(*runs, "--page", page)
    assert [run["rank_pooled"] for run in got["runs"]] == [[1, 1], [2, 2], [3, 4], [3, 4]]
    assert [run["rank_population"] for run in got["runs"]] == [[1, 1], [2, 2], [3, 4], [3, 4]]
    assert [pair["population"]["holds"] for pair in got["pairs"]] == [True] * 5 + [False]
    assert {pair["pooled"]["questions"] for pair in got["pairs"]} == {20}
    assert page.read_text().count("rank 3 to 4") == 8
    two = result(*runs[:2])
    assert two["population"]["difference"] == two["pooled"]["difference"] == pytest.approx(0.5)


def test_the_pairs_of_many_runs_do_not_hide_the_ranks(tmp_path, runs):
    """Eight runs have 28 pairs, each over these questions and over questions like these."""
    copies = [tmp_path / f"copy-{path.name}" for path in runs]
    for path, copied in zip(runs, copies, strict=True):
        copied.write_bytes(path.read_bytes())

    pairs, ranks = lethe.compare(*runs, *copies).views()

    assert (len(pairs.rows), len(ranks.rows)) == (20, 8)
    assert ranks.notes[-1] == "56 rows of pairs in all: see --json or --page."


def test_runs_are_ranked_by_their_common_questions(tmp_path, runs):
    table = pd.read_csv(runs[0])
    table[table["prompt_id"] != "q0"].to_csv(runs[0], index=False)
    got = result(*runs)
    assert got["questions"] == 19
    assert {question["id"] for question in got["not_compared"]} == {"q0"}
    one_each = [tmp_path / f"one-{path.name}" for path in runs]
    for path, place in zip(runs, one_each, strict=True):
        pd.read_csv(path).drop_duplicates("prompt_id").to_csv(place, index=False)
    got = result(*one_each)["runs"]
    assert [run["rank_pooled"] for run in got] == [
        None
    ] * 4  # with one answer each, the questions are the sample
    assert got[0]["rank_population"] == [1, 1]


@pytest.mark.parametrize(
    "option", [("--by", "0.1"), ("--fail-on", "worse"), ("--fail-above", "0.1")]
)
def test_a_gate_takes_two_runs(runs, option):
    assert option[0] in refused(*runs, *option)


def test_a_run_is_not_independent_of_itself(tmp_path):
    rows = ["prompt_id,score", *(f"q{n % 5},{int(n % 3 == 0)}" for n in range(200))]
    clean = ["prompt_id,score", *(f"q{n % 5},0" for n in range(200))]
    for name, lines in {"a": rows, "copy": rows, "clean": clean, "other": clean}.items():
        (tmp_path / f"{name}.csv").write_text("\n".join(lines))

    said = command.refused(tmp_path / "a.csv", tmp_path / "copy.csv", "--independent")

    assert "in the same order" in said
    assert (
        command.call(tmp_path / "clean.csv", tmp_path / "other.csv", "--independent").exit_code == 0
    )
