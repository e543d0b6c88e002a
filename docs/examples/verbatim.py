"""The number of sampled answers that repeat the reference answer verbatim, with a bound on their share."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from lethe.audits import AuditResult
from lethe.config.fields import Alpha, Place
from lethe.config.schema import AuditParams


class Params(AuditParams):
    kind: Literal["verbatim"]
    dataset: Place
    alpha: Alpha


def audit(settings: Params) -> AuditResult:
    import pandas as pd

    from lethe.io.files import read_jsonl
    from lethe.statistics.bounds import binary_upper

    answers = {
        row["id"]: row["answer"] for _, row in read_jsonl(Path(settings.dataset) / "forget.jsonl")
    }
    drawn = pd.read_parquet(Path(settings.source) / "forget.parquet")
    drawn = drawn[drawn["sample"] >= 0]
    drawn = drawn.assign(
        verbatim=drawn["text"].str.strip() == drawn["prompt_id"].map(answers).str.strip()
    )
    found, n = int(drawn["verbatim"].sum()), len(drawn)
    headline = {"kind": settings.kind, "verbatim": found, "n": n, "alpha": settings.alpha}
    headline["share_upper"] = float(binary_upper(found, n, settings.alpha))
    return AuditResult(
        headline,
        {"assumes": "independent answers, each as likely to be verbatim as any other"},
        {"answers": drawn[["prompt_id", "sample", "verbatim"]]},
        (f"{found} of {n} answers are verbatim",),
    )
