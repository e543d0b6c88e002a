"""docs/tofu-table-1.md: what of Table 1 came out on a real model, from the outcomes of the steps that are done."""

from collections import Counter

from lethe.io.files import Json
from lethe.text import NONE
from studies import markdown
from studies.tofu_table.design import BASE, Design, Outcomes, Step, chosen_rate, keeps, steps
from studies.tofu_table.table import ALL, LOOK, table_of

COLUMNS = {
    "greedy": "greedy",
    "ED": "ED",
    "mean": "mean",
    "deviation": "deviation",
    "greedy leaks": "greedy leaks",
    "sampled leaks": "sampled leaks",
    "questions with a sampled leak": "questions that leak",
    "exact leaks": "leaks, exact",
    "retain": "retain",
    "world": "world facts",
    "real_authors": "real authors",
}
ABOUT = """# Table 1 on a real model

    python -m tests.benchmarks real-model    # SmolLM2-135M-Instruct, 542 MB
    lethe study tofu-table-1 --keep          # TOFU's files in data/source, or named by --data
    lethe study tofu-table-1 --keep --page docs/tofu-table-1.md

The commands need: TOFU's files, 25 GB of disk, and days of one core, or a day for the first look at forget01.

SmolLM2-135M-Instruct learns the last 40 of TOFU's authors by LoRA and unlearns the last 2 (forget01) and the last 10
(forget05) by the methods of Table 1 of the [probabilistic paper](papers.md). `studies/presets/tofu-table-1.yaml` fixed every
setting before the first result: learning rates are chosen by what is kept of the retain set alone.
`studies/tofu_table/keywords.yaml` says what a leak is. The study goes in steps of at most an hour of one core. A step writes
its outcome to `studies/outcomes/tofu-table-1`, and the next start skips it. A killed step goes on from its last state. The
first look asks all questions 32 times, so that there is a table early; the steps after it draw 1,024 answers a question.
A model that a later step needs is trained again by the same seeds where its folder is gone.

In the tables, greedy, mean, deviation and ED are of the ROUGE-L recall, and mean over the questions; ED has the standard
error of its draws. Leaks are shares of answers, exact ends come from the answer tree. Ends in brackets hold for all models.
"""


def page(design: Design, outcomes: Outcomes) -> str:
    """The page: what was not run first, then a table for each forget set, then the choice of the rates."""
    parts = [ABOUT.rstrip(), _left(design, outcomes)]
    for forget in design.forget_sets:
        for which in (LOOK, ALL):
            parts += _table(design, outcomes, Step("table", forget, which))
    parts += _trained(design, outcomes)
    return "\n\n".join(parts) + "\n"


def _left(design: Design, outcomes: Outcomes) -> str:
    """The section of the steps that are not done, counted by forget set and kind."""
    planned = list(steps(design, outcomes))
    left = [step for step in planned if step.name not in outcomes]
    done = len(planned) - len(left)
    lines = [
        "## Not run",
        "",
        f"{done} steps are done, and {len(left)} are left: `lethe study tofu-table-1 --keep --plan`. A rate below one that",
        "keeps enough of the retain set will not be tried.",
    ]
    counts = Counter((step.forget or "both", step.kind) for step in left)
    if counts:
        rows = [[forget, kind, str(count)] for (forget, kind), count in counts.items()]
        lines += ["", *markdown.table(["forget set", "kind of step, *not run*", "steps"], rows)]
    return "\n".join(lines)


def _table(design: Design, outcomes: Outcomes, step: Step) -> list[str]:
    """The section of one table; none where no model has answered."""
    models = table_of(design, outcomes, step)["models"]
    if not models:
        return []
    which = "first look" if step.model == LOOK else "all answers"
    present = set().union(*models)
    shown = [key for key in COLUMNS if key in present]
    head = ["model", "questions", *(COLUMNS[key] for key in shown), "word, utility"]

    rows = []
    notes = []
    for row in models:
        cells = [_shown(row.get(key)) for key in shown]
        words = [row[key] for key in ("word", "utility") if key in row]
        rows.append([row["model"], str(row["questions"]), *cells, ", ".join(words) or NONE])
        if "sentence" in row:
            notes.append(f"- {row['sentence']}")

    asked = f"{models[0]['answers']:,} answers to each question."
    lines = [f"## {step.forget}, {which}", "", asked, "", *markdown.table(head, rows)]
    if notes:
        lines += ["", *notes]
    return ["\n".join(lines)]


def _trained(design: Design, outcomes: Outcomes) -> list[str]:
    """The section of the learning rates; none before Base is trained."""
    base = outcomes.get(Step("train", "", BASE).name)
    if base is None:
        return []
    losses = ", ".join(_shown(loss) for loss in base["last_losses"])
    score = _shown(base["retain_score"])
    least = _shown(design.keeps * base["retain_score"])
    lines = [
        "## Learning rates",
        "",
        f"Base: mean loss of its epochs {losses}; retain score {score}, of which {least} must be kept.",
    ]

    rows = []
    for forget in design.forget_sets:
        for method in design.methods:
            rows += _rates(design, outcomes, forget, method)
    if rows:
        head = ["forget set", "method", "rate", "retain score", "chosen"]
        lines += ["", *markdown.table(head, rows)]
    return ["\n".join(lines)]


def _rates(design: Design, outcomes: Outcomes, forget: str, method: str) -> list[list[str]]:
    """A row for each rate that was tried; one is chosen once the choice cannot change."""
    tried = []
    is_decided = False
    for rate in design.rates:
        step = Step("unlearn", forget, method, rate)
        if step.name in outcomes:
            tried.append(step)
            is_decided = is_decided or keeps(design, outcomes, step)
    chosen = None
    if is_decided or len(tried) == len(design.rates):
        chosen = chosen_rate(design, outcomes, forget, method)

    rows = []
    for step in tried:
        word = NONE
        if chosen is not None:
            word = "yes" if step.rate == chosen else "no"
        score = _shown(outcomes[step.name]["retain_score"])
        rows.append([forget, method, f"{step.rate:g}", score, word])
    return rows


def _shown(value: Json) -> str:
    """A cell: a number with its standard error or its ends, where it has them."""
    if value is None:
        return NONE
    if isinstance(value, dict) and "sd" in value:
        return f"{_shown(value['mean'])} ± {_shown(value['sd'])}"
    if isinstance(value, dict):
        return f"{_shown(value['mean'])} ({_shown(value['ci_low'])} to {_shown(value['ci_high'])})"
    if isinstance(value, int):
        return str(value)
    return f"{value:.3f}"
