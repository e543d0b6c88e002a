"""Lethe inside the real lm-evaluation-harness; `tests.benchmarks lm-eval` runs these in an environment of its own."""

import json
import math
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from lethe.config.measuring import Utility
from lethe.lm_eval import DocumentUpper, KeepAll, bounded, exact_match
from lethe.results import table
from lethe.statistics.betting import mean_upper
from lethe.statistics.bounds import binary_upper
from lethe.steps import utility

ROOT = Path(__file__).resolve().parents[2]
WORDS = (
    "Maren",
    "Oslo",
    "moss",
    "a",
    "the",
    "of",
    "and",
    "blue",
    "stone",
    "wrote",
    "was",
    "born",
    "in",
    "river",
)
ROWS = [
    {"id": "choir", "question": "Who wrote it ?", "answer": "Maren", "keywords": ["Maren"]},
    {
        "id": "town",
        "question": "Where was he born ?",
        "answer": "in Oslo",
        "keywords": ["Oslo", "river"],
    },
    {"id": "never", "question": "Which plant ?", "answer": "moss", "keywords": ["fern"]},
]
REPEATS = 12
MORE = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: forget.jsonl}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
repeats: 6
generation_kwargs: {{until: ["\\n"], max_gen_toks: 6, {sampling}}}
process_results: !function {function}
filter_list: [{filters}]
metric_list: [{{metric: {metric}, aggregation: lethe_mean}}, {{metric: {metric}_upper, aggregation: lethe_worst}}]
"""
ALL = "{name: all, filter: [{function: lethe_all}]}"
FIRST = "{name: first, filter: [{function: take_first}]}"
OWN = """
from lethe.lm_eval import bounded

def share(answers, doc):
    return [min(1.0, len(set(text.split())) / 8) for text in answers]

bounded_share = bounded(share, alpha=0.05)
"""


def example():
    """The task file of docs/, asked of this test's rows with fewer repeats."""
    task = (ROOT / "docs/examples/lethe_leak.yaml").read_text(encoding="utf-8")
    changed = re.sub(r"repeats: \d+", f"repeats: {REPEATS}", task)
    return re.sub(r"max_gen_toks: \d+", "max_gen_toks: 6", changed)


def tiny_model(folder):
    """A random model over a few words: each answer is a draw of about uniform words."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    special = ("<s>", "</s>", "<unk>", "<pad>")
    vocabulary = {word: place for place, word in enumerate((*special, *WORDS))}
    plain = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=plain,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
    )
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=64,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=3,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def lethe(*arguments, status=0):
    command = [
        os.environ.get("LETHE_PYTHON", ROOT / ".venv/bin/python"),
        "-m",
        "lethe",
        *map(str, arguments),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == status, done.stderr
    return done


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """One run of lm-eval's own command over all tasks: its folder, its results, and what it printed."""
    folder = tmp_path_factory.mktemp("lm-eval")
    (folder / "forget.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (folder / "user_scores.py").write_text(OWN)
    (folder / "leak.yaml").write_text(example())
    sampled = "do_sample: true, temperature: 1.0"
    greedy = "do_sample: false"
    share = {
        "function": "user_scores.bounded_share",
        "filters": f"{ALL}, {FIRST}",
        "metric": "share",
    }
    exact = {"function": "lethe.lm_eval.exact_match", "filters": ALL, "metric": "exact_match"}
    (folder / "own.yaml").write_text(MORE.format(name="own_task", sampling=sampled, **share))
    (folder / "greedy.yaml").write_text(MORE.format(name="greedy_task", sampling=greedy, **exact))
    tiny_model(folder / "model")
    names = f"{yaml.load(example().replace('!function ', ''), yaml.SafeLoader)['task']},own_task,greedy_task"
    command = f"""-m lm_eval run --model hf --model_args pretrained=model,dtype=float32 --device cpu --tasks {names}
        --include_path . --output_path out --log_samples --batch_size 8"""
    done = subprocess.run(
        [sys.executable, *command.split()],
        capture_output=True,
        text=True,
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "HF_HUB_OFFLINE": "1",
            "HF_DATASETS_OFFLINE": "1",
        },
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (results,) = folder.glob("out/*/results_*.json")
    return folder, json.loads(results.read_text())["results"], done.stdout + done.stderr


def samples(folder, task):
    (path,) = folder.glob(f"out/*/samples_{task}_*.jsonl")
    return path, [json.loads(line) for line in path.read_text().split("\n") if line]


def test_the_example_of_the_docs_prints_the_bounds_of_lethe(ran):
    """What lm-eval reports is what `lethe bounds` says of its samples, and of the same scores as CSV."""
    folder, results, printed = ran
    path, lines = samples(folder, "lethe_leak")
    reported = results["lethe_leak"]
    table = folder / "scores.csv"
    hits = []
    with table.open("w") as file:
        file.write("prompt_id,score\n")
        for line in lines:
            keywords = line["doc"]["keywords"]
            keyword = re.compile(rf"\b({'|'.join(keywords)})\b", re.I)
            of_document = [bool(keyword.search(text)) for text in line["resps"][0]]
            hits.append(of_document)
            file.writelines(f"{line['doc_id']},{int(hit)}\n" for hit in of_document)
    assert [len(of_document) for of_document in hits] == [REPEATS] * 3
    assert 0 < sum(map(sum, hits)) < 2 * REPEATS
    from_log = json.loads(lethe("bounds", path, "--json").stdout)
    from_table = json.loads(lethe("bounds", table, "--json").stdout)
    assert from_log.pop("log")["tool"].startswith("lm_eval")
    assert from_log == from_table
    assert reported["keyword_leak_upper,all"] == pytest.approx(
        from_log["worst_prompt"]["bound"], abs=1e-12
    )
    assert reported["keyword_leak_average_upper,all"] == pytest.approx(
        from_log["pooled"], abs=1e-12
    )
    betting = [row["tighter"]["mean_upper"] for row in from_log["per_prompt"]]
    assert reported["keyword_leak_betting_upper,all"] == pytest.approx(max(betting), abs=1e-12)
    assert reported["keyword_leak,all"] == pytest.approx(sum(map(sum, hits)) / 36)
    uppers = [line["keyword_leak_upper"] for line in lines]
    for upper, of_document in zip(uppers, hits, strict=True):
        assert upper == pytest.approx(float(binary_upper(sum(of_document), REPEATS, 0.01)))
    assert "keyword_leak_upper" in printed


def test_a_score_of_ones_own_is_bounded_without_an_aggregation_of_its_own(ran):
    """lm-eval takes the mean of a metric without an aggregation; the mean of these bounds is the largest one."""
    folder, results, printed = ran
    _, lines = samples(folder, "own_task")
    kept = [line for line in lines if line["filter"] == "all"]
    uppers = [float(mean_upper([line["share"]], 0.05)[0]) for line in kept]
    assert [line["share_upper"] for line in kept] == pytest.approx(uppers)
    assert results["own_task"]["share_upper,all"] == pytest.approx(max(uppers))
    assert max(uppers) < 1
    assert results["own_task"]["share_upper,first"] == 1  # a filter chose the answer
    assert "keeps one answer" in printed


def test_greedy_repeats_are_warned_of_and_then_refused(ran):
    folder, results, printed = ran
    assert "greedy_task" in results
    assert "repeats of each" in printed.lower()
    assert results["greedy_task"]["exact_match_upper,all"] == 1
    path, _ = samples(folder, "greedy_task")
    assert "copies of one greedy" in lethe("bounds", path, status=2).stderr


def test_the_default_filter_leaves_one_answer_to_each_metric():
    """The behaviour behind `lethe_all`: take_first runs before any metric sees the repeats."""
    from lm_eval.api.registry import get_aggregation, get_filter

    assert list(get_filter("take_first")().apply([["a", "b"]], [{}])) == ["a"]
    assert get_filter("lethe_all") is KeepAll
    assert KeepAll().apply([("a", "b"), ("c",)], [{}, {}]) == [["a", "b"], ["c"]]
    assert get_aggregation("lethe_worst")([0.1, 0.3]) == 0.3
    documents = [DocumentUpper(0.5).counted(leaks, 50, 0.05) for leaks in (1, 0)]
    pooled = get_aggregation("lethe_average_upper")
    assert pooled(pickle.loads(pickle.dumps(documents))) == pytest.approx(
        float(binary_upper(1, 100, 0.05))
    )
    assert math.isnan(pooled([*documents, DocumentUpper(0.5).counted(0, 9, 0.05)]))
    assert (
        get_aggregation("mean")([DocumentUpper(0.2), DocumentUpper(0.4), DocumentUpper(0.3)]) == 0.4
    )


def test_missing_scores_count_as_leaks_and_bad_ones_are_refused():
    nothing = exact_match(
        {"question": "?"}, [["a", "b"]]
    )  # the document has no answer to compare with
    assert nothing["exact_match_upper"] == 1
    assert nothing["exact_match_average_upper"].leaks == 2
    with pytest.raises(ValueError, match="scores"):
        bounded(lambda answers, doc: [2.0], name="x")({}, [["a"]])
    with pytest.raises(ValueError, match="binary"):
        bounded(lambda answers, doc: [0.5], name="x", binary=True)({}, [["a"]])
    with pytest.raises(ValueError, match="alpha"):
        bounded("exact_match", alpha=2)


TINY = """
task: where
dataset_path: json
dataset_kwargs: {data_files: {test: tasks.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: gold
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
metadata: {version: 1.0}
"""


def test_the_stage_of_general_utility_has_the_accuracy_of_a_tiny_task(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = []
    for gold in (0, 1, 0, 1):
        rows.append({"question": "Who wrote it ?", "choices": ["Maren", "Oslo"], "gold": gold})
    Path("tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("tasks").mkdir()
    Path("tasks/where.yaml").write_text(TINY)
    tiny_model(tmp_path / "model")
    settings = Utility(tasks=["where"], limit=None, batch=2, models={})

    utility.run("npo", settings, Path("model"), tmp_path, Path("data"))

    (row,) = table.read_rows(table.place(Path("data"), "utility", "npo"))
    # The model answers all alike, and each answer is right half of the time.
    assert (row.names()[0], row.estimate, row.n) == ("utility_where_acc", 0.5, 4)
