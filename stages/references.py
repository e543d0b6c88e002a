"""Stage `references`: the Retrains beside which each model is sampled, and the rule that ends its draws.

Stage sample depends on these files, since DVC can put no list of paths into its dependencies. With `sample.stop: fixed`
they say so alone, and a change of Retrain or of the tolerance makes no model's answers stale.
"""

from pathlib import Path

from lethe.config import Params
from lethe.errors import plural
from lethe.io.files import SCHEMA_VERSION, atomic_folder, write_json
from lethe.models.checkpoints import content
from lethe.registry import JUDGES
from lethe.sampling.word_rule import RULE
from stages import entry


def run(settings: Params, root: Path) -> None:
    """Write ``root/references``: the rule, and of each Retrain NAME.json with its path and the digest of its weights."""
    sample, report = settings.sample, settings.report
    with atomic_folder(root / "references") as folder:
        if sample.stop == "fixed":
            write_json(folder / RULE, {"schema": SCHEMA_VERSION, "stop": sample.stop})
            print("sample.stop is 'fixed': no draws beside a Retrain")
            return
        binary = settings.metrics.binary or ""
        params = settings.score.params.get(binary)
        judge = settings.judges.get(binary)
        if judge is not None:
            params = judge.params
        rule = {
            "schema": SCHEMA_VERSION,
            "stop": sample.stop,
            "tau": report.tau,
            "alpha": settings.metrics.alpha,
            "models": settings.sharing,
            "scorer": binary,
            "params": None if params is None else params.model_dump(mode="json"),
            "retrains": report.retrains,
            "base": report.base,
        }
        weights = settings.deciding_weights
        if judge is not None or binary in JUDGES:  # the draws follow the verdicts of these weights
            rule["judge"] = binary if judge is None else judge.judge
            rule["judge_digest"] = None
            if weights is not None and Path(weights).is_dir():
                rule["judge_digest"] = content(Path(weights))
        write_json(folder / RULE, rule)
        for name in report.retrains:
            model = settings.models[name]
            facts = model.model_dump(mode="json")
            digest = content(model.source)
            write_json(
                folder / f"{name}.json", {"schema": SCHEMA_VERSION, **facts, "digest": digest}
            )
    print(f"{plural(settings.sharing, 'model')} beside {plural(len(report.retrains), 'Retrain')}")


main = entry(run, __name__)
