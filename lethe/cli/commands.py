"""The commands by group. A new command is a public function of `lethe.api` and a row here; a new option is a parameter."""

from __future__ import annotations

from lethe.cli.generate import Command

MODEL, NUMBERS, PIPELINE, STUDIES = "Your model", "Your numbers", "The pipeline", "Studies"

COMMANDS: dict[str, dict[str, Command]] = {
    MODEL: {
        "eval": Command(
            "evaluating:evaluate", "eval --model ./my-model --data forget.jsonl --retain retain.jsonl --n 256"
        ),
        "sample": Command(
            "evaluating:sample prompts",
            'sample "Who is Ada?" --model ./my-model --n 32',
            "sample --data forget.jsonl --model ./my-model --n 32 --out answers.parquet",
        ),
        "exact": Command(
            "probabilities:exact", "exact --model ./my-model --data forget.jsonl --temperature 0.7 --top-p 0.9"
        ),
        "extract": Command(
            "probabilities:extract", "extract --model ./my-model --text book.txt --reference ./retrain --near 20"
        ),
        "certify": Command(
            "certificates:certify", "certify --model ./my-model --data forget.jsonl --tau 0.05 --draws 200"
        ),
        "verify": Command(
            "certificates:verify file",
            "verify certificate.json --draws 200 --model ./my-model --data forget.jsonl --auditor me",
        ),
        "label": Command(
            "labelling:label answers", "label answers.parquet --dataset forget.jsonl --labels labels.jsonl"
        ),
    },
    NUMBERS: {
        "bounds": Command(
            "bounding:bounds scores",
            "bounds scores.csv --alpha 0.01 --threshold 0.5",
            "bounds run.eval --score includes",
        ),
        "compare": Command(
            "runs:compare a b more",
            "compare HEAD~1 data --fail-on worse",
            "compare before.eval after.eval --score includes --page change.html",
            "compare gpt.eval llama.eval qwen.eval --page ranks.html",
        ),
        "log": Command("logs:read_log file", "log samples_qa.jsonl --table answers.csv"),
        "plan": Command(
            "planning:plan",
            "plan --alpha 0.01 --tau 0.05 --prompts 40",
            "plan --preset harry-potter --rate 1000",
            "plan --labels --width 0.1",
            "plan --compare --difference 0.1 --prompts 30",
        ),
    },
}
# The groups of `Your numbers`: name -> help and commands.
GROUPS: dict[str, tuple[str, dict[str, Command]]] = {
    "audit": (
        "Audit privacy on files you already have.",
        {
            "one-run": Command(
                "audit:one_run", "audit one-run --n 1000 --r 200 --errors 26 --mechanism gaussian --delta 1e-5"
            ),
            "epsilon-star": Command(
                "audit:epsilon_star", "audit epsilon-star --train member.csv --population other.csv --delta 1e-5"
            ),
            "swap": Command("audit:swap", "audit swap --predictions predictions.csv"),
        },
    ),
    "score": (
        "Score logs and generations you already have.",
        {
            "log": Command(
                "logs:score_log log",
                "score log samples_qa.jsonl --scorer rouge_l --data forget.jsonl",
                names={"table": ("--table", "--out")},
            ),
            "tofu-log": Command(
                "logs:tofu_log file", "score tofu-log TOFU_EVAL.json --retain retain90/TOFU_EVAL.json"
            ),
        },
    ),
}
