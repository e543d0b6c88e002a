"""How far one Retrain differs from another: five of them, each as the subject of each other, 20 pairs.

``python -m tests.benchmarks.five_retrains`` reads data/ of this folder, or of ``--folder``, after `lethe run --preset
five-retrains`, and prints how often each word was given; a model that never saw the forget set should never leak. With
``--write docs/evidence.md`` the table replaces what stands between ``<!-- retrains -->`` and ``<!-- end retrains -->``.
"""

from collections import Counter
from itertools import permutations
from pathlib import Path

from lethe import config
from lethe.config.schema import Params
from lethe.measure.run import load
from lethe.verdict.claims import findings
from lethe.verdict.deciding import standings
from lethe.verdict.verdict import Verdict
from tests.benchmarks import marks

TAUS = (0.01, 0.05)


def verdicts(
    settings: Params, data: Path, subject: str, retrains: list[str], tau: float
) -> Verdict:
    """The verdict on one model beside the others as Retrains, alone on its page."""
    report = settings.report.model_copy(update={"retrain": retrains, "tau": tau})
    models = {name: settings.models[name] for name in (subject, *retrains)}
    run = load(settings.model_copy(update={"report": report, "models": models}), data, {})
    found = {standing.model: standing.verdict for standing in standings(run, findings(run))}
    verdict = found[subject]
    assert verdict is not None  # the only model under test
    return verdict


def table(settings: Params, data: Path) -> str:
    """The words by tolerance, of pairs and of each model beside the four others."""
    names = list(settings.models)
    head = (
        "tolerance",
        "Retrains beside it",
        "cases",
        "leaks",
        "forgot",
        "open",
        "proved above chance",
    )
    rows = []
    for tau in TAUS:
        pairs = [(subject, [other]) for subject, other in permutations(names, 2)]
        whole = [(name, [other for other in names if other != name]) for name in names]
        for many, cases in ((1, pairs), (len(names) - 1, whole)):
            found = [verdicts(settings, data, subject, others, tau) for subject, others in cases]
            words = Counter(verdict.word for verdict in found)
            above = sum(verdict.above_chance for verdict in found)
            counts = (words["leaks"], words["forgot"], words["open"], above)
            rows.append([f"{tau:g}", str(many), str(len(cases)), *map(str, counts)])
    return marks.markdown(head, rows)


def main() -> None:
    arguments = marks.parser_of("The words that five Retrains get beside each other.").parse_args()
    settings = config.load(arguments.folder / "params.yaml")
    marks.put(arguments.write, "retrains", table(settings, arguments.folder / "data"))


if __name__ == "__main__":
    main()
