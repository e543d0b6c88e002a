"""Whether a word on a model, or a number in its sentence, contradicts an end that cannot fail.

`python -m tests.no_contradiction DATA_FOLDER` asks it of a folder of artifacts, with the params.yaml beside the folder. It
prints the number of models and exits with 1 on a contradiction.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from lethe import config
from lethe.io.files import read_json
from lethe.measure.run import Model, Run, load
from lethe.verdict.claims import findings
from lethe.verdict.deciding import standings
from lethe.verdict.verdict import Verdict

Ends = Mapping[str, tuple[float, float]]
ROUNDING = 1e-9
SUMMARY = "report/summary.json"


def contradictions(data: Path) -> tuple[dict[str, str], list[str]]:
    """The word on each model under test, and each contradiction as a line that begins with the model's name."""
    run = load(config.load(data.parent / "params.yaml"), data, {})
    chance = _chance(run)
    said = read_json(data / SUMMARY)["models"] if (data / SUMMARY).is_file() else {}
    checked, found = {}, []
    for one, model in zip(standings(run, findings(run)), run.models, strict=True):
        if one.verdict is None:
            continue
        checked[model.name] = one.word
        lines = [*_wrong(one.verdict, one.sentence, _certain(model, run), chance)]
        if said and (said[model.name]["forgetting"]["word"], said[model.name]["verdict"]) != (
            one.word,
            one.sentence,
        ):
            lines.append("the report says something else than its results")
        found += [f"{model.name}: {line}" for line in lines]
    return checked, found


def _certain(model: Model, run: Run) -> Ends:
    """The certain ends of each question, where they are about the event that the word is about."""
    exact = getattr(run.params, "exact", None)
    labelled = any(one.numbers.row("leak", "labelled") for one in model.questions)
    same = (
        exact
        and exact.scorer == run.params.metrics.binary
        and exact.scorer in run.params.score.scorers
    )
    other = run.params.sample.language or run.params.sample.truncated == "missing"
    if not same or labelled or other or model.exact is None or model.exact.how.note:
        return {}
    rows = {one.prompt_id: one.numbers.row("leak", "exact") for one in model.questions}
    return {item: (row.lower, row.upper) for item, row in rows.items() if row}


def _chance(run: Run) -> Ends:
    """The certain ends of the Retrain that leaks most on each question."""
    each = [_certain(model, run) for model in run.retrains]
    items = {one.prompt_id for model in run.models for one in model.questions}
    every = {
        item: [known.get(item, (0.0, 1.0)) for known in each] or [(0.0, 0.0)] for item in items
    }
    return {
        item: (max(low for low, _ in ends), max(high for _, high in ends))
        for item, ends in every.items()
    }


def _wrong(one: Verdict, sentence: str, own: Ends, chance: Ends) -> Iterator[str]:
    if one.graded:  # no certain end is about a mean score
        return
    least = {item: low - chance[item][1] for item, (low, _) in own.items()}
    most = {item: own.get(item, (0.0, 1.0))[1] - chance[item][0] for item in chance}
    if one.word == "forgot":
        yield from (
            f"forgot, but {item} leaks by at least {excess:.3g} beyond Retrain, with certainty"
            for item, excess in least.items()
            if excess > one.tau + ROUNDING
        )
    if one.word == "leaks" and not any(excess > one.tau - ROUNDING for excess in most.values()):
        yield "leaks, but no question leaks by more than the tolerance beyond Retrain, with certainty"
    way = one.in_the_way
    if way and way.reason != "cut off" and way.excess > most[way.item] + ROUNDING:
        yield f"{way.item} may leak {way.excess:.3g} beyond Retrain, but leaks at most {most[way.item]:.3g}"
    if one.worst:
        low, high = own.get(one.worst.item, (0.0, 1.0))
        lower, upper = one.worst.lower, one.worst.upper
        if lower < low - ROUNDING or upper > high + ROUNDING:
            yield f"{one.worst.item} is said to leak in {lower:.3g} to {upper:.3g}, but leaks in {low:.3g} to {high:.3g}"
        shown = re.findall(r" ([0-9.]+)% to ([0-9.]+)%", sentence)
        if not shown or not any(
            float(first) / 100 <= lower + ROUNDING and float(last) / 100 >= upper - ROUNDING
            for first, last in shown
        ):
            yield f"the sentence does not hold the ends {lower:.6g} and {upper:.6g} of the worst question"


def main() -> None:
    checked, found = contradictions(Path(sys.argv[1]))
    print(*found, f"{len(checked)} models checked, {len(found)} contradictions", sep="\n")
    sys.exit(bool(found) or not checked)


if __name__ == "__main__":
    main()
