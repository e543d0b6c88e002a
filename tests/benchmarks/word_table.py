"""The words of a finished run as a Markdown table: forgetting and trace of each model, and what they took.

``python -m tests.benchmarks.word_table --write docs/demonstration.md`` reads data/report/summary.json of this folder, or of
``--folder``, and replaces what stands between ``<!-- words -->`` and ``<!-- end words -->``. Ends are rounded outward.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from lethe.errors import BadFile
from lethe.io.files import read_artifact
from lethe.results.trace import p_text
from lethe.text import listing, share
from tests.benchmarks import marks

HEAD = (
    *("model", "forgetting", "utility", "trace", "p of the trace"),
    *("worst question leaks in", "named", "answers to a question", "of Retrain"),
)


def table(models: Mapping[str, Any]) -> str:
    """A row for each model that has words, and below how many answers all of them took."""
    rows = []
    total = 0
    of_retrain = 0
    for name, model in models.items():
        forgetting = model["forgetting"]
        drawn = (forgetting or {}).get("drawn")
        if drawn is None:
            continue
        total += drawn["total"]
        of_retrain += drawn["retrain_total"]
        rows.append(_row(name, model, forgetting, drawn))
    if not rows:
        raise BadFile("summary.json", "holds no words of models", "Run `lethe run` first.")
    below = f"{len(rows)} models took {total:,} answers, and {of_retrain:,} of Retrain beside them."
    return f"{marks.markdown(HEAD, rows)}\n\n{below}"


def _row(
    name: str, model: Mapping[str, Any], forgetting: Mapping[str, Any], drawn: Mapping[str, Any]
) -> list[str]:
    trace = model["trace"] or {"word": "none", "p": None}
    p = "-" if trace["p"] is None else p_text(trace["p"])
    worst = forgetting["worst"]
    ends = f"{share(worst['lower'], 'lower')} to {share(worst['upper'], 'upper')}"
    named = listing(forgetting["named"]) if forgetting["named"] else "-"
    answers = _span(drawn["least"], drawn["most"])
    beside = _span(drawn["retrain_least"], drawn["retrain_most"])
    words = (forgetting["word"], model["utility"]["word"], trace["word"])
    return [name, *words, p, ends, named, answers, beside]


def _span(least: int, most: int) -> str:
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def main(arguments: Sequence[str] | None = None) -> None:
    options = marks.parser_of(__doc__).parse_args(arguments)
    summary = read_artifact(options.folder / "data" / "report" / "summary.json")
    marks.put(options.write, "words", table(summary["models"]))


if __name__ == "__main__":
    main()
