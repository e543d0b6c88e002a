"""A run compared with the run before it: changed words, and proved changes of leaks."""

import dataclasses
import filecmp
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from flows.alarms import BETTER, WORSE, Alarm, ModelWords, Since, finite
from flows.record import (
    COMPARED,
    DATA,
    FORGET,
    LAST_RESULTS,
    StageEnd,
    drawn_from,
    read,
    read_verdicts,
)
from lethe.comparison.changes import Changes, judged_anew, proved_changes
from lethe.config.schema import Params
from lethe.io.artifacts import measured
from lethe.io.files import Json, read_jsonl
from lethe.results import table
from lethe.results.licence import reasons_of
from lethe.results.table import Results
from lethe.verdict.claims import judged_exactly


def since_last(root: Path, stages: Mapping[str, StageEnd], params: Params) -> Since:
    """Compare a complete run with the last one; call it before `write`. Base is left out."""
    last = read(root)
    alpha = params.metrics.alpha
    if last is None or last.metrics_of is None:
        return Since([], alpha)
    models = _compared_models(root, params)
    now = drawn_from(root, models)
    unchanged = []
    independent = []  # other weights or another law have random numbers of their own, another tokenizer has not
    for name in models:
        before, after = last.drawn_from.get(name), now[name]
        if before is None or after is None:
            continue
        if before == after:
            unchanged.append(name)
        elif _stream(before) != _stream(after):
            independent.append(name)
    words = _verdicts(last.verdicts, read_verdicts(root, stages), unchanged)
    if _same_tables(root):
        return Since(words, alpha)
    # the tables of `COMPARED` lie below .lethe/last_results/results as below data/results
    old = table.read(root / LAST_RESULTS, models)
    new = _without(table.read(root / DATA, models), _edited(root))
    same_or_refused = {*unchanged, *_refused(old, models), *_refused(new, models)}
    retrains = []
    subjects = []
    for name in models:
        if name in same_or_refused:
            continue
        if name in params.report.retrains:
            retrains.append(name)
        else:
            subjects.append(name)
    scorers = []
    for name, (scorer_before, scorer_now) in judged_anew(old, new, models).items():
        scorers.append(Alarm(name, "scorer", "scorer", scorer_before, scorer_now))
    exactly = judged_exactly(params)
    changes = proved_changes(old, new, subjects, alpha, exactly, independent)
    of_retrains = proved_changes(old, new, retrains, alpha, exactly, independent)
    proved = _proved(changes, is_tested=True)
    # The words of a model that another scorer judged are about other events: nothing is proved of it.
    alarms = [*scorers, *_beside(words, proved), *proved, *_proved(of_retrains, is_tested=False)]
    return Since(alarms, alpha, changes, tuple(unchanged))


def _edited(root: Path) -> set[str]:
    """The ids of the forget questions that are not as they were in the last complete run: leaks of them are other events."""
    before = _forget_rows(root / LAST_RESULTS)
    now = _forget_rows(root / DATA)
    return {item for item, row in now.items() if before.get(item, row) != row}


def _forget_rows(folder: Path) -> dict[str, Json]:
    path = folder / FORGET
    if not path.is_file():
        return {}
    return {str(row.get("id")): row for _, row in read_jsonl(path)}


def _without(results: Results, items: Collection[str]) -> Results:
    """The results without the rows of these questions."""
    kept: dict[str, tuple[table.Result, ...]] = {}
    for name, rows in results.by_model.items():
        kept[name] = tuple(row for row in rows if row.item not in items)
    return Results(kept)


def _refused(results: Results, models: Sequence[str]) -> set[str]:
    """The models of which nothing may be claimed."""
    return {name for name in models if reasons_of(results.model(name))}


def _stream(drawn: str) -> str:
    """The digest of weights and drawing law, without that of the tokenizer."""
    return drawn.partition(" ")[0]


def _compared_models(root: Path, params: Params) -> list[str]:
    """The models of params.yaml that were measured, without Base."""
    names = set(params.models) - {params.report.base}
    return [name for name in measured(root / DATA) if name in names]


def _verdicts(
    before: Mapping[str, ModelWords], after: Mapping[str, ModelWords], unchanged: Collection[str]
) -> list[Alarm]:
    """The changed words, none of them worse or better yet; ``unchanged`` models have the weights of before."""
    changes = []
    for model, new in after.items():
        old = before.get(model)
        if old is None:
            continue
        words = {
            "forgetting": (old.forgetting, new.forgetting),
            "utility": (old.utility, new.utility),
        }
        for metric, (was, now) in words.items():
            if was != now:
                anew = model in unchanged
                changes.append(Alarm(model, metric, "verdict", was, now, drawn_anew=anew))
    return changes


def _beside(words: Sequence[Alarm], proved: Sequence[Alarm]) -> list[Alarm]:
    """The changed words: worse or better only where a change of the model's leaks is proved in the same direction."""
    leaks_more = {alarm.model for alarm in proved if alarm.worse}
    leaks_less = {alarm.model for alarm in proved if alarm.better}
    changes = []
    for word in words:
        of_leaks = word.metric == "forgetting"
        worse = of_leaks and word.after in WORSE and word.model in leaks_more
        better = of_leaks and word.after in BETTER and word.model in leaks_less
        changes.append(dataclasses.replace(word, worse=worse, better=better))
    return sorted(changes, key=lambda alarm: not alarm.worse)


def _proved(found: Changes, is_tested: bool) -> list[Alarm]:
    """The proved changes, increases first; those of Retrain (not ``is_tested``) are neither worse nor better."""
    alarms = []
    for change in found.proved:
        log_e = found.log_e_better
        if change.worse:
            log_e = found.log_e_worse
        alarms.append(
            Alarm(
                model=change.model,
                metric=change.quantity,
                kind="bound",
                before=change.before,
                after=change.after,
                worse=is_tested and change.worse,
                better=is_tested and not change.worse,
                question=change.question,
                questions=change.questions,
                proved=True,
                log_e=finite(log_e),
                by_ends=change.by_ends,
            )
        )
    return sorted(alarms, key=lambda alarm: not alarm.worse)


def _same_tables(root: Path) -> bool:
    """Whether the tables of `COMPARED` have the bytes of the last complete run."""
    for stage in COMPARED:
        last = root / LAST_RESULTS / table.FOLDER / stage
        now = root / DATA / table.FOLDER / stage
        names = _tables_in(now)
        if _tables_in(last) != names:
            return False
        equal, _, _ = filecmp.cmpfiles(last, now, names, shallow=False)
        if len(equal) != len(names):
            return False
    return True


def _tables_in(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*.parquet")}
