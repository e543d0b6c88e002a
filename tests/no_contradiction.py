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
from lethe.measure.run import Run, RunModel, load
from lethe.verdict.claims import findings
from lethe.verdict.deciding import standings
from lethe.verdict.verdict import Verdict, WorstQuestion

Ends = Mapping[str, tuple[float, float]]
ROUNDING = 1e-9
SUMMARY = "report/summary.json"


def contradictions(data: Path) -> tuple[dict[str, str], list[str]]:
    """The word on each model under test, and each contradiction as a line that begins with the model's name."""
    run = load(config.load(data.parent / "params.yaml"), data, {})
    chance = _chance(run)
    said = read_json(data / SUMMARY)["models"] if (data / SUMMARY).is_file() else {}
    checked = {}
    found = []
    for standing, model in zip(standings(run, findings(run)), run.models, strict=True):
        if standing.verdict is None:
            continue
        checked[model.name] = standing.word
        certain = _certain(model, run)
        lines = list(_wrong(standing.verdict, standing.sentence, certain, chance))
        if said:
            reported = said[model.name]
            reported_word = reported["forgetting"]["word"]
            if (reported_word, reported["verdict"]) != (standing.word, standing.sentence):
                lines.append("the report says something else than its results")
        found += [f"{model.name}: {line}" for line in lines]
    return checked, found


def _certain(model: RunModel, run: Run) -> Ends:
    """The certain ends of each question, where they are about the event that the word is about."""
    exact = getattr(run.params, "exact", None)
    labelled = any(question.numbers.row("leak", "labelled") for question in model.questions)
    same = (
        exact
        and exact.scorer == run.params.metrics.binary
        and exact.scorer in run.params.score.scorers
    )
    other = run.params.sample.language or run.params.sample.truncated == "missing"
    if not same or labelled or other or model.exact is None or model.exact.how.note:
        return {}
    ends = {}
    for question in model.questions:
        row = question.numbers.row("leak", "exact")
        if row:
            ends[question.prompt_id] = (row.lower, row.upper)
    return ends


def _chance(run: Run) -> Ends:
    """The certain ends of the Retrain that leaks most on each question."""
    of_retrains = [_certain(model, run) for model in run.retrains]
    largest = {}
    for model in run.models:
        for question in model.questions:
            item = question.prompt_id
            ends = [known.get(item, (0.0, 1.0)) for known in of_retrains] or [(0.0, 0.0)]
            lower = max(low for low, _ in ends)
            largest[item] = (lower, max(high for _, high in ends))
    return largest


def _wrong(verdict: Verdict, sentence: str, certain: Ends, chance: Ends) -> Iterator[str]:
    if verdict.graded:  # no certain end is about a mean score
        return
    least = {item: low - chance[item][1] for item, (low, _) in certain.items()}
    most = {item: certain.get(item, (0.0, 1.0))[1] - chance[item][0] for item in chance}
    if verdict.word == "forgot":
        for item, excess in least.items():
            if excess > verdict.tau + ROUNDING:
                yield f"forgot, but {item} leaks by at least {excess:.3g} beyond Retrain, with certainty"
    if verdict.word == "leaks" and max(most.values(), default=-1.0) <= verdict.tau - ROUNDING:
        yield "leaks, but no question leaks by more than the tolerance beyond Retrain, with certainty"
    way = verdict.in_the_way
    if way and way.reason != "cut off" and way.excess > most[way.item] + ROUNDING:
        yield f"{way.item} may leak {way.excess:.3g} beyond Retrain, but leaks at most {most[way.item]:.3g}"
    if verdict.worst:
        yield from _wrong_of_worst(verdict.worst, sentence, certain)


def _wrong_of_worst(worst: WorstQuestion, sentence: str, certain: Ends) -> Iterator[str]:
    low, high = certain.get(worst.item, (0.0, 1.0))
    lower, upper = worst.lower, worst.upper
    if lower < low - ROUNDING or upper > high + ROUNDING:
        yield f"{worst.item} is said to leak in {lower:.3g} to {upper:.3g}, but leaks in {low:.3g} to {high:.3g}"
    for first, last in re.findall(r" ([0-9.]+)% to ([0-9.]+)%", sentence):
        if float(first) / 100 <= lower + ROUNDING and float(last) / 100 >= upper - ROUNDING:
            return
    yield f"the sentence does not hold the ends {lower:.6g} and {upper:.6g} of the worst question"


def main() -> None:
    checked, found = contradictions(Path(sys.argv[1]))
    print(*found, f"{len(checked)} models checked, {len(found)} contradictions", sep="\n")
    sys.exit(bool(found) or not checked)


if __name__ == "__main__":
    main()
