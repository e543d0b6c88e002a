"""`tests.benchmarks logs`: ten logs as real tools write them, from the file to the sentence, with commands and seconds.

The writers of the readers' tests (`tests/lethe/io/logs/small_logs.py`) make each log. They follow what the tool of the stated
version writes or documents; no tool runs here. A log holds 40 answers to each of two questions, of which 3 leak, unless the
format sets another number. Each command runs in a process of its own, whose processor seconds include its start. Exit
status 1 where a command fails or prints no sentence.
"""

import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.lethe.io.logs import small_logs

ANSWERS = 40
LEAKS = 3
QUESTIONS = ("Who 0?", "Who 1?")
SCORED = ("--scorer", "keyword_leak", "--table", "s.csv")
BOUNDED = ("bounds", "s.csv", "--score", "keyword_leak", "--missing", "worst")
HIGH = ("--leak-is", "high")


@dataclass(frozen=True)
class Kind:
    """A log: who writes it, and where its form is documented, how it is made, and what is typed after `lethe`."""

    tool: str
    source: str
    make: Callable[[Path], Path]
    commands: tuple[tuple[str, ...], ...]


def texts(question: int) -> list[str]:
    """The answers to a question, of which the first letters of a seed decide the order."""
    answers = ["Ron"] * LEAKS + ["nobody"] * (ANSWERS - LEAKS)
    random.Random(question).shuffle(answers)
    return answers


def inspect(folder: Path) -> Path:
    samples = []
    for question, _ in enumerate(QUESTIONS):
        for epoch, text in enumerate(texts(question), start=1):
            verdict = {"match": "C" if text == "Ron" else "I"}
            samples.append(small_logs.sample(f"q{question}", epoch, text, verdict))
    head = small_logs.header(["q0", "q1"], epochs=ANSWERS)
    return small_logs.eval_log(folder / "run.eval", head, samples)


def lm_eval(folder: Path) -> Path:
    lines = []
    for question, _ in enumerate(QUESTIONS):
        answers = texts(question)
        matches = [float(text == "Ron") for text in answers]
        line = small_logs.lm_eval_line(question, answers, "keep_all", answers, exact_match=matches)
        lines.append(line)
    return small_logs.lm_eval_log(folder, lines, small_logs.lm_eval_results(ANSWERS, 2))


def garak(folder: Path) -> Path:
    rows = []
    for question, _ in enumerate(QUESTIONS):
        answers: list[str | None] = [*texts(question)]
        hits: list[float | None] = [float(text == "Ron") for text in answers]
        rows += small_logs.garak_attempt(question, answers, {"leak": hits})
    return small_logs.garak_log(folder / "run.report.jsonl", rows)


def promptfoo(folder: Path) -> Path:
    rows = [small_logs.promptfoo_row(test, "Paris", passes=test != 1) for test in range(4)]
    return small_logs.promptfoo_log(folder / "out.json", rows)


def helm(folder: Path) -> Path:
    return small_logs.helm_log(folder / "scenario_state.json", [texts(0), texts(1)])


def leak_k(folder: Path) -> Path:
    lines = []
    for question, asked in enumerate(QUESTIONS):
        lines.append(small_logs.leak_k_line(*texts(question), prompt=asked))
    return small_logs.write_lines(folder / "generations_n40.json", lines)


def openai_batch(folder: Path) -> Path:
    requests = []
    replies = []
    for question, asked in enumerate(QUESTIONS):
        name = f"r{question}"
        requests.append(small_logs.openai_request(name, asked, temperature=1, n=ANSWERS))
        replies.append(small_logs.openai_batch_line(name, *texts(question)))
    small_logs.write_lines(folder / "batch_input.jsonl", requests)
    return small_logs.write_lines(folder / "batch_output.jsonl", replies)


def vllm(folder: Path) -> Path:
    outputs = []
    for question, asked in enumerate(QUESTIONS):
        drawn = [{"text": text, "finish_reason": "stop"} for text in texts(question)]
        outputs.append({"prompt": asked, "outputs": drawn})
    return small_logs.write_json(folder / "answers.json", outputs)


def every_eval_ever(folder: Path) -> Path:
    rows = []
    for question, _ in enumerate(QUESTIONS):
        for text in texts(question):
            rows.append(small_logs.eee_line(f"q{question}", text, float(text == "Ron")))
    place = folder / "0b5d7c1e-6f2a-4c1d-9e3b-2a7f4d8c9b10_samples.jsonl"
    return small_logs.eee_log(place, rows, temperature=1)


def spreadsheet(folder: Path) -> Path:
    lines = ["question_id;leaked"]
    for question, _ in enumerate(QUESTIONS):
        for text in texts(question):
            lines.append(f"q{question};{'yes' if text == 'Ron' else 'no'}")
    place = folder / "scores.csv"
    place.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return place


KINDS = (
    Kind(
        "Inspect 0.3.285",
        "https://inspect.aisi.org.uk/eval-logs.html",
        inspect,
        (("bounds", "{log}", "--score", "match", *HIGH),),
    ),
    Kind(
        "lm-evaluation-harness 0.4.13",
        "https://github.com/EleutherAI/lm-evaluation-harness",
        lm_eval,
        (("score", "{log}", "--data", "forget.jsonl", *SCORED), BOUNDED),
    ),
    Kind("garak 0.17.1", "https://github.com/NVIDIA/garak", garak, (("bounds", "{log}"),)),
    Kind(
        "promptfoo 0.121.20",
        "https://www.promptfoo.dev/docs/configuration/outputs",
        promptfoo,
        (("bounds", "{log}", "--score", "success", *HIGH),),
    ),
    Kind(
        "HELM",
        "https://crfm-helm.readthedocs.io",
        helm,
        (("score", "{log}", "--data", "forget.jsonl", *SCORED), BOUNDED),
    ),
    Kind(
        "Leak-k",
        "https://arxiv.org/abs/2511.04934",
        leak_k,
        (("score", "{log}", "--data", "forget.jsonl", *SCORED), BOUNDED),
    ),
    Kind(
        "OpenAI batch",
        "https://platform.openai.com/docs/guides/batch",
        openai_batch,
        (("score", "{log}", "--data", "forget.jsonl", *SCORED), BOUNDED),
    ),
    Kind(
        "vLLM",
        "https://docs.vllm.ai",
        vllm,
        (("score", "{log}", "--data", "forget.jsonl", *SCORED), BOUNDED),
    ),
    Kind(
        "Every Eval Ever 0.3.0",
        "https://arxiv.org/abs/2606.14516",
        every_eval_ever,
        (("bounds", "{log}"),),
    ),
    Kind("a spreadsheet", "a person", spreadsheet, (("bounds", "{log}", "--by", "question_id"),)),
)


def main() -> int:
    failed = 0
    for number, kind in enumerate(KINDS, start=1):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            rows = []
            for question, asked in enumerate(QUESTIONS):
                rows.append(
                    {"id": f"q{question}", "question": asked, "answer": "Ron", "keywords": ["Ron"]}
                )
            small_logs.write_lines(folder / "forget.jsonl", rows)
            log = kind.make(folder)
            print(f"{number}. {kind.tool} ({kind.source}): {log.name}", flush=True)
            failed += not all([shown(command, log, folder) for command in kind.commands])
    print(f"{len(KINDS) - failed} of {len(KINDS)} logs became a sentence.")
    return int(failed > 0)


def shown(command: tuple[str, ...], log: Path, folder: Path) -> bool:
    """Run a command in a folder, and print it with its seconds and its first sentences; whether it did its work."""
    words = [word.format(log=log.name) for word in command]
    before = processor_seconds()
    done = subprocess.run(
        [sys.executable, "-m", "lethe", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = processor_seconds() - before
    print(f"   lethe {' '.join(words)}    # {seconds:.1f} s")
    said = done.stdout if done.returncode == 0 else done.stderr
    sentences = [
        line for line in said.splitlines() if " " in line.strip() and line[0] not in "┏┃┡└│"
    ]
    for sentence in sentences[:3]:
        print(f"   {sentence}")
    return done.returncode == 0 and bool(sentences)


def processor_seconds() -> float:
    """What all ended processes that this one started have taken, which other work on the machine does not stretch."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
