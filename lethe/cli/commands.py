"""The commands by group. A new command is a public function of `lethe.api` and a row here; a new option is a parameter."""

from __future__ import annotations

from lethe.cli.generate import Command

MODEL, NUMBERS, PIPELINE, STUDIES = "Your model", "Your numbers", "The pipeline", "Studies"

EVAL = Command(
    "lethe.api.evaluating:evaluate",
    ("eval --model ./my-model --data forget.jsonl --retain retain.jsonl --n 256",),
    python=("tokenizer", "folder"),
    hook="evaluate",
)
SAMPLE = Command(
    "lethe.api.sampling:sample",
    (
        'sample "Who is Ada?" --model ./my-model --n 32',
        "sample --data forget.jsonl --model ./my-model --n 32 --out answers.parquet",
    ),
    arguments=("prompts",),
    python=("tokenizer",),
    hook="sample",
)
EXACT = Command(
    "lethe.api.exact_bounds:exact",
    ("exact --model ./my-model --data forget.jsonl --temperature 0.7 --top-p 0.9",),
    python=("tokenizer", "scratch"),
    hook="exact",
    table=True,
)
EXTRACT = Command(
    "lethe.api.extraction:extract",
    ("extract --model ./my-model --text book.txt --reference ./retrain --near 20",),
    python=("tokenizer", "scratch"),
    hook="extract",
    table=True,
)
CERTIFY = Command(
    "lethe.api.certificates:certify",
    ("certify --model ./my-model --data forget.jsonl --tau 0.05 --draws 200",),
    hook="certify",
)
VERIFY = Command(
    "lethe.api.certificates:verify",
    ("verify certificate.json --draws 200 --model ./my-model --data forget.jsonl --auditor me",),
    arguments=("file",),
    hook="verify",
)
LABEL = Command(
    "lethe.api.labelling:label",
    ("label data/generations/refuser --verdicts data/judged/harm/refuser/forget.parquet",),
    arguments=("answers",),
    python=("ask",),
    hook="label",
    table=True,
)
BOUNDS = Command(
    "lethe.api.bounding:bounds",
    ("bounds scores.csv --alpha 0.01 --threshold 0.5", "bounds logs/2026-01-01_forget-qa.eval --score includes"),
    arguments=("scores",),
    hook="bounds",
    table=True,
)
COMPARE = Command(
    "lethe.api.comparing:compare",
    (
        "compare HEAD~1 data --fail-on worse",
        "compare before.eval after.eval --score includes --page change.html",
    ),
    arguments=("a", "b"),
    python=("worst",),
    hook="compare",
)
LOG = Command(
    "lethe.api.logs:read_log",
    ("log samples_forget_qa_2026-01-01T00-00-00.jsonl --table answers.csv",),
    arguments=("file",),
    hook="log",
)
ONE_RUN = Command(
    "lethe.api.one_run_audit:one_run",
    ("audit one-run --n 1000 --r 200 --errors 26 --mechanism gaussian --delta 1e-5",),
    hook="one_run",
    table=True,
)
EPSILON_STAR = Command(
    "lethe.api.epsilon_star_audit:epsilon_star",
    ("audit epsilon-star --train member.csv --population other.csv --delta 1e-5",),
    table=True,
)
SWAP = Command("lethe.api.swap_audit:swap", ("audit swap --predictions predictions.csv",), table=True)
SCORE_LOG = Command(
    "lethe.api.logs:score_log",
    ("score samples_forget_qa_2026-01-01T00-00-00.jsonl --scorer rouge_l --data forget.jsonl",),
    arguments=("log",),
    hook="score_log",
    names={"table": ("--table", "--out")},
)
TOFU_LOG = Command(
    "lethe.api.logs:tofu_log",
    ("score tofu-log phi_full.json --retain phi_retain90.json",),
    arguments=("file",),
)

PLAN = Command(
    "lethe.api.planning:plan",
    (
        "plan --alpha 0.01 --tau 0.05 --prompts 40",
        "plan --preset harry-potter --rate 1000",
        "plan --cost --rate 2500",
        "plan --labels --width 0.1",
        "plan --compare --difference 0.1 --prompts 30",
    ),
)

COMMANDS: dict[str, dict[str, Command]] = {
    MODEL: {
        "eval": EVAL,
        "sample": SAMPLE,
        "exact": EXACT,
        "extract": EXTRACT,
        "certify": CERTIFY,
        "verify": VERIFY,
        "label": LABEL,
    },
    NUMBERS: {"bounds": BOUNDS, "compare": COMPARE, "log": LOG, "plan": PLAN},
}
# The groups of `Your numbers`: name -> help and commands.
GROUPS: dict[str, tuple[str, dict[str, Command]]] = {
    "audit": (
        "Audit privacy on files you already have.",
        {"one-run": ONE_RUN, "epsilon-star": EPSILON_STAR, "swap": SWAP},
    ),
    "score": (
        "Score logs and generations you already have.",
        {"log": SCORE_LOG, "tofu-log": TOFU_LOG},
    ),
}
