"""`lethe score tofu-log`: TOFU's aggregate metrics from an evaluation log of TOFU's authors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lethe.cli.console import JsonFlag, print_json, print_table
from lethe.errors import plural


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The model's log, as TOFU's evaluation writes it.")],
    retain: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The log of the Retrain model: adds the forget quality.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Model utility, forget quality and a check of every stored ROUGE-L recall against its stored texts.

    Model utility is the harmonic mean of probability, ROUGE-L recall and truth on retain set, real authors and
    world facts. Forget quality is the p-value of the exact two-sample Kolmogorov-Smirnov test between the truth
    ratios on the forget set of FILE and of the Retrain model's log. Rows without a usable value are left out and
    counted.

    Example: `lethe score tofu-log phi_full.json --retain phi_retain90.json`
    """
    from lethe.scoring.tofu import UTILITY_SETS, forget_quality, forget_truth, model_utility, read_log

    log = read_log(file)
    utility = model_utility({name: vars(log[name]) for name in UTILITY_SETS})
    forgotten = forget_truth(log["forget"].truth_ratio)
    quality = forget_quality(log["forget"].truth_ratio, read_log(retain)["forget"].truth_ratio) if retain else None
    mismatches = {name: section.mismatches for name, section in log.items()}
    count = sum(map(len, mismatches.values()))
    if as_json:
        print_json(
            {
                "model_utility": utility.value,
                "utility_terms": utility.terms,
                "forget_truth_ratio": forgotten,
                "forget_quality": quality and quality.p_value,
                "forget_quality_test": quality,
                "rougeL_recall_mismatches": count,
                "mismatched_rows": mismatches,
            }
        )
        return
    rows = [[name, term.value, term.n, term.missing] for name, term in utility.terms.items()]
    rows.append(["forget_truth_ratio", forgotten.value, forgotten.n, forgotten.missing])
    stored = sum(len(section.rows) for section in log.values())
    compared = f"{plural(stored, 'stored ROUGE-L recall')}, {plural(count, 'mismatch', 'mismatches')}"
    notes = [f"model utility   {utility.value:.6f}", f"ROUGE-L         {compared}"]
    if quality:
        notes.insert(1, f"forget quality  {quality.p_value:.4g} (KS statistic {quality.statistic:.4g}, exact)")
    print_table(str(file), ["term", "mean", "rows", "missing"], rows, notes)
