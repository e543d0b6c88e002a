"""Whether TOFU's perturbed answers could serve as twins: scores that cannot know TOFU rank its true answers.

``python -m tests.benchmarks tofu-twins --data FOLDER [--model FOLDER]``. Each question of forget01 has a paraphrased answer
and five perturbed ones, here as six candidates. Scores without a model, and with ``--model`` the likelihood under a model
that never saw TOFU, must rank the true one uniformly if the perturbed answers are twins.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lethe.data.drawing import model_free_controls
from lethe.data.secrets import Secret, secrets_of
from lethe.io.artifacts import Row
from lethe.models.checkpoints import QA_PROMPT
from lethe.results.trace import p_text
from lethe.statistics.twins import ranks_of, twin_test
from lethe.steps.twins import candidate_scores
from tests.benchmarks.marks import markdown, put

FILE = "forget01_perturbed.json"
CANDIDATES = 6
MARK = "tofu twins"


def rows_of(path: Path) -> list[Row]:
    """The rows whose true answer and perturbed answers are six different texts."""
    rows: list[Row] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
        row = json.loads(line)
        true, perturbed = row["paraphrased_answer"], row["perturbed_answer"]
        if len({true, *perturbed}) == CANDIDATES:
            question = row["question"]
            rows.append(
                {"id": f"{number}", "question": question, "answer": true, "twins": perturbed}
            )
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    asked = argparse.ArgumentParser(
        prog="python -m tests.benchmarks tofu-twins", description=__doc__
    )
    asked.add_argument("--data", type=Path, required=True, help="the folder of TOFU's files")
    asked.add_argument("--model", type=Path, help="the folder of a model that never saw TOFU")
    asked.add_argument("--write", type=Path, help="the page to put the table into")
    options = asked.parse_args(arguments)
    rows = rows_of(options.data / FILE)
    secrets = secrets_of(rows)
    by_chance = len(rows) / CANDIDATES
    table = []
    for control in model_free_controls(secrets, rows):
        table.append([f"{control.score}, without a model", "", "", p_text(control.p)])
    if options.model:
        table += by_likelihoods(options.model, secrets)
    head = ["score that cannot know TOFU's authors", "first", "last", "p"]
    about = (
        f"{len(rows)} questions with {CANDIDATES} candidates; by chance {by_chance:.1f} rank first."
    )
    put(options.write, MARK, f"{about}\n\n{markdown(head, table)}")
    return 0


def by_likelihoods(model: Path, secrets: Sequence[Secret]) -> list[list[str]]:
    """The ranks by the likelihood of the whole answer, and by its mean per token, as TOFU's truth ratio takes it."""
    scored = candidate_scores(model, secrets, str(QA_PROMPT), "tofu twins")
    rows = []
    names = {"whole answer, untouched model": False, "mean per token, untouched model": True}
    for name, per_token in names.items():
        ranks = []
        for of_secret in scored:
            values = of_secret.log_probs
            if per_token:
                values = values / of_secret.tokens
            ranks.append(int(ranks_of([values], [0], [of_secret.secret.order()])[0]))
        test = twin_test(ranks, [CANDIDATES] * len(ranks))
        first, last = np.sum(np.equal(ranks, 1)), np.sum(np.equal(ranks, CANDIDATES))
        p = f"{p_text(test.p, test.log_p)} ({test.direction})"
        rows.append([name, f"{first}", f"{last}", p])
    return rows


if __name__ == "__main__":
    sys.exit(main())
