"""The record of the last run of this folder: stages, metrics and verdicts, with which the next run compares its own."""

import dataclasses
import filecmp
import json
import math
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import TypeAdapter

from flows.overview import standard
from flows.workspace import SCRATCH
from lethe.comparison.changes import judged_anew, proved_changes
from lethe.config.schema import Params
from lethe.errors import LetheError, OtherSchema, plural, visible
from lethe.identity import content_digest
from lethe.io.artifacts import measured
from lethe.io.files import SCHEMA_VERSION, Json, atomic_folder, plain, read_artifact, write_json
from lethe.io.tries import Try, begin
from lethe.progress import duration
from lethe.results import table
from lethe.results.licence import reasons_of
from lethe.results.table import Results
from lethe.statistics.bound import Side, as_percent, exact, significant
from lethe.verdict.claims import judged_exactly

DATA = Path("data")
FILE = SCRATCH / "last_run.json"
LAST_RESULTS = SCRATCH / "last_results"  # the tables of `COMPARED` of the last complete run
COMPARED = ("metrics", "exact")
PATIENCE = 60  # seconds for the command of params
WORSE, BETTER = ("leaks",), ("forgot", "intact")  # the words that make a change worse or better
WEIGHTS = "these weights and questions"
REPORT = DATA / "report" / "index.html"


@dataclasses.dataclass(frozen=True)
class Change:
    model: str
    metric: str
    before: int | float | None  # None: the model or the metric is new
    after: int | float | None  # None: it is gone


@dataclasses.dataclass(frozen=True)
class Words:
    forgetting: str
    utility: str
    sentence: str


@dataclasses.dataclass(frozen=True)
class Alarm:
    """A change of a model that matters.

    Kind "scorer": another scorer judged the model, so that nothing else of it is compared. Kind "verdict": the word on
    ``metric`` ("forgetting" or "utility") was ``before`` and is ``after``. Kind "bound": it is proved that
    ``questions`` questions, or where ``question`` is None the average over all, leak more or less; ``before`` and ``after``
    are the ends that prove it, of ``question``. ``worse`` closes the gate; both may be false. A word is worse or better only
    beside a proved change of its model: other draws of the same probabilities turn *open* into *leaks* too.
    """

    model: str
    metric: str
    kind: str
    before: float | str
    after: float | str
    worse: bool
    better: bool
    question: str | None = None
    questions: int = 0

    def sentence(self) -> str:
        if isinstance(self.before, str) or isinstance(self.after, str):
            metric = "verdict" if self.metric == "forgetting" else self.metric
            return f"{self.model}: {metric} {self.before} -> {self.after}{self._unshown()}"
        rose = self.after > self.before
        before, after = self._end(self.before, rose), self._end(self.after, not rose)
        what = "the average question" if self.question is None else visible(self.question)
        does = "leaks in" if self.metric == "leak" else "scores"
        sentence = f"{self.model}: {what} {does} {after}, before {before}"
        if self.questions > 1:
            direction = "more" if rose else "less"
            sentence += f"; {self.questions} questions proved to leak {direction}"
        return sentence

    def _unshown(self) -> str:
        """That a changed word shows no change of the model; empty where one is proved, or where the words are no proof."""
        if self.kind != "verdict" or self.worse or self.better:
            return ""
        if self.after in (*WORSE, *BETTER):
            return " (now proved, no change shown)"
        return " (not proved now, no change shown)"

    def _end(self, value: float, upper: bool) -> str:
        words: str = "at least"
        side: Side = "lower"
        if upper:
            words, side = "at most", "upper"
        if self.metric == "leak":
            return f"{words} {as_percent(significant(exact(value) * 100, 2, side))}"
        return f"{words} {significant(exact(value), 2, side)}"

    def line(self) -> str:
        direction = "Changed"
        if self.worse:
            direction = "Worse"
        elif self.better:
            direction = "Better"
        return f"{direction}: {self.sentence()}"


@dataclasses.dataclass(frozen=True)
class StageEnd:
    state: str
    why: str
    seconds: float


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """One run, under the keys of last_run.json; ``metrics`` and ``verdicts`` are of the complete run ``metrics_of``."""

    finished: str
    complete: bool
    stages: dict[str, StageEnd]
    compared_with: str | None
    changes: list[Change]
    alarms: list[Alarm]
    report: str | None
    metrics_of: str | None
    metrics: dict[str, dict[str, int | float]] | None
    verdicts: dict[str, Words]
    # End and seconds of each stage's last run.
    took: dict[str, tuple[str, float]] = dataclasses.field(default_factory=dict)
    # Of each model of which nothing may be claimed: the reasons.
    refused: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    # Which comparison with the run before this is, and the alpha that all of them share; None where nothing differs.
    tries: dict[str, Json] | None = None

    def as_json(self) -> dict[str, object]:
        return {"schema": SCHEMA_VERSION, **dataclasses.asdict(self)}


def read_verdicts(root: Path, stages: Mapping[str, StageEnd]) -> dict[str, Words]:
    path = root / DATA / "report" / "summary.json"
    if not (path.is_file() and _up_to_date(stages, "report")):
        return {}
    verdicts: dict[str, Words] = {}
    for name, model in read_artifact(path).get("models", {}).items():
        word = model["forgetting"]["word"]
        if word != "reference":
            verdicts[name] = Words(word, model["utility"]["word"], model["verdict"])
    return verdicts


def metric_changes(
    before: dict[str, dict[str, float]], after: dict[str, dict[str, float]]
) -> list[Change]:
    """Every metric of every model that is new, gone or another number."""
    changes = []
    for model in sorted(set(before) | set(after)):
        old, new = before.get(model, {}), after.get(model, {})
        for key in dict.fromkeys((*new, *old)):
            if old.get(key) != new.get(key):
                changes.append(Change(model, key, old.get(key), new.get(key)))
    return changes


def read(root: Path) -> RunRecord | None:
    """Return the record of the last run, if there is one; a damaged record is renamed with a warning."""
    path = root / FILE
    if not path.exists():
        return None
    try:
        return TypeAdapter(RunRecord).validate_python(read_artifact(path))
    except (LetheError, ValueError) as error:
        other = isinstance(error, OtherSchema)
        aside = path.with_suffix(".other.json" if other else ".damaged.json")
        path.replace(aside)
        problem = "is of another release of Lethe" if other else "was damaged"
        standard().print(
            f"{FILE} {problem}: it is now {aside.name}, and this run is compared with none before it."
        )
        return None


def alarms(root: Path, stages: Mapping[str, StageEnd], params: Params) -> list[Alarm]:
    """The changes of a complete run that matter, changed verdicts first; call it before `write`. Base is left out."""
    last = read(root)
    if last is None or last.metrics_of is None:
        return []
    words = _verdicts(last.verdicts, read_verdicts(root, stages))
    attempt = tried(root, params)
    if attempt is None:
        return words
    models = _compared_models(root, params)
    # the tables of `COMPARED` lie below .lethe/last_results/results as below data/results
    old, new = (table.read(folder, models) for folder in (root / LAST_RESULTS, root / DATA))
    anew = judged_anew(old, new, models)
    scorers = [Alarm(name, "scorer", "scorer", *both, False, False) for name, both in anew.items()]
    proved = _proved(old, new, models, params, attempt.level)
    # The words of a model that another scorer judged are about other events: nothing is proved of it.
    return [*scorers, *_beside(words, proved), *proved]


def tried(root: Path, params: Params) -> Try | None:
    """Which comparison of these weights and questions with the run before this is; None where no table differs.

    Where dvc.lock does not say which weights answered, every comparison in this folder is one more.
    """
    if _same_tables(root):
        return None
    models = _compared_models(root, params)
    results = table.read(root / DATA, models)
    questions: dict[str, list[str]] = {}
    for name in models:
        items = {str(row.item) for row in results.rows(name) if row.scope == "question"}
        questions[name] = sorted(items)
    tables = sorted((root / DATA / table.FOLDER).glob("*/*.parquet"))
    draws = [[path.stem, content_digest(path)] for path in tables if path.parent.name in COMPARED]
    tested = ["run", _weights(root, models, params), questions]
    return begin(tested, draws, params.metrics.alpha, root / SCRATCH / "tries")


def _compared_models(root: Path, params: Params) -> list[str]:
    names = [name for name in measured(root / DATA) if name in params.models]
    return [name for name in names if name != params.report.base]


def _weights(root: Path, models: Sequence[str], params: Params) -> dict[str, str | None]:
    """The hash of the folder of each model as dvc.lock has it; None where it has none."""
    from yaml import safe_load

    path = root / "dvc.lock"
    stages = safe_load(path.read_text(encoding="utf-8"))["stages"] if path.is_file() else {}
    hashes: dict[str, str | None] = {}
    for name in models:
        place = str(params.models[name].path)
        read_files = stages.get(f"sample@{name}", {}).get("deps", [])
        hashes[name] = next((dep.get("md5") for dep in read_files if dep["path"] == place), None)
    return hashes


def _verdicts(before: Mapping[str, Words], after: Mapping[str, Words]) -> list[Alarm]:
    """The changed words, none of them worse or better yet."""
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
                changes.append(Alarm(model, metric, "verdict", was, now, worse=False, better=False))
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


def _proved(
    old: Results, new: Results, models: Sequence[str], params: Params, level: float
) -> list[Alarm]:
    retrains = params.report.retrains
    changes = []
    for change in proved_changes(old, new, models, level, judged_exactly(params)):
        tested = change.model not in retrains
        changes.append(
            Alarm(
                model=change.model,
                metric=change.quantity,
                kind="bound",
                before=change.before,
                after=change.after,
                worse=tested and change.worse is True,
                better=tested and change.worse is False,
                question=change.question,
                questions=change.questions,
            )
        )
    return sorted(changes, key=lambda alarm: not alarm.worse)


def _same_tables(root: Path) -> bool:
    """Whether the tables of `COMPARED` have the bytes of the last complete run."""
    for stage in COMPARED:
        last = root / LAST_RESULTS / table.FOLDER / stage
        now = root / DATA / table.FOLDER / stage
        names = {path.name for path in now.glob("*.parquet")}
        if {path.name for path in last.glob("*.parquet")} != names:
            return False
        equal, _, _ = filecmp.cmpfiles(last, now, names, shallow=False)
        if len(equal) != len(names):
            return False
    return True


def expected(root: Path, stages: Sequence[str], at_once: int) -> str:
    """Say how long these stages took when they last ran in this folder."""
    last = read(root)
    known = []
    if last is not None:
        known = [last.took[name] for name in stages if name in last.took]
    if not known:
        return "Time: unknown, as none of these stages ran here before."
    days = sorted({end.partition("T")[0] for end, _ in known})
    since = " to ".join(dict.fromkeys((days[0], days[-1])))
    took = duration(math.fsum(seconds for _, seconds in known))
    told = (
        f"Time: these stages took {took} in sum when they last ran ({since}), now {at_once} at once"
    )
    unknown = len(stages) - len(known)
    if unknown:
        told += f"; unknown for {unknown} that never ran here"
    return f"{told}."


def notice(news: RunRecord, root: Path) -> dict[str, object]:
    return {
        "schema": 1,
        "folder": str(root.resolve()),
        "finished": news.finished,
        "compared_with": news.compared_with,
        "worse": any(alarm.worse for alarm in news.alarms),
        "changes": [dataclasses.asdict(alarm) for alarm in news.alarms],
        "report": news.report and str((root / news.report).resolve()),
    }


def notify(command: Sequence[str], value: dict[str, object]) -> str:
    """Give ``command``, without a shell, the change as JSON; returns a sentence if that failed, else nothing."""
    text = json.dumps(plain(value), allow_nan=False) + "\n"
    try:
        done = subprocess.run(
            list(command), input=text, text=True, capture_output=True, timeout=PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"notify.command: {command[0]} could not tell anyone ({error})."
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1][:200]
        return f"notify.command: {command[0]} ended with exit status {done.returncode} ({last})."
    return ""


def write(
    root: Path,
    stages: dict[str, StageEnd],
    complete: bool,
    changed: Sequence[Alarm] = (),
    attempt: Try | None = None,
) -> RunRecord:
    """Write and return the record of a run that has ended; `alarms` must compare before this replaces the last tables."""
    last = read(root)
    names = measured(root / DATA)
    results = table.read(root / DATA, names)
    refused: dict[str, list[str]] = {}
    for name in names:
        reasons = list(reasons_of(results.model(name)))
        if reasons:
            refused[name] = reasons
    tries = None
    if attempt is not None:
        tries = {**attempt.as_json(), "sentence": attempt.sentence(WEIGHTS)}
    finished = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    took = dict(last.took) if last else {}
    for name, end in stages.items():
        if end.why == "ran":
            took[name] = (finished, end.seconds)
    report_is_new = (root / REPORT).exists() and _up_to_date(stages, "report")
    record = RunRecord(
        finished=finished,
        complete=complete,
        stages=stages,
        compared_with=None,
        changes=[],
        alarms=list(changed),
        report=str(REPORT) if report_is_new else None,
        metrics_of=last.metrics_of if last else None,
        refused=refused,
        metrics=last.metrics if last else None,
        verdicts=last.verdicts if last else {},
        took=took,
        tries=tries,
    )
    if complete:
        metrics = {name: _finite_numbers(results.model(name).values) for name in names}
        record = dataclasses.replace(
            record,
            compared_with=record.metrics_of,
            changes=[] if record.metrics is None else metric_changes(record.metrics, metrics),
            metrics_of=finished,
            metrics=metrics,
            verdicts=read_verdicts(root, stages),
        )
    write_json(root / FILE, record.as_json())
    if complete:
        _keep_tables(root)
    return record


def _finite_numbers(values: Mapping[str, Json]) -> dict[str, int | float]:
    numbers: dict[str, int | float] = {}
    for key, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if math.isfinite(value):
            numbers[key] = value
    return numbers


def _keep_tables(root: Path) -> None:
    """Copy the tables of `COMPARED`, with which the next complete run compares its own."""
    with atomic_folder(root / LAST_RESULTS) as folder:
        for stage in COMPARED:
            tables = root / DATA / table.FOLDER / stage
            if tables.is_dir():
                shutil.copytree(tables, folder / table.FOLDER / stage)


def _up_to_date(stages: Mapping[str, StageEnd], name: str) -> bool:
    """Whether the stage's output is this run's; the output of a stage that failed is left over from an earlier run."""
    return name in stages and stages[name].state in ("Cached", "Completed")


def summary(record: RunRecord, limit: int = 10) -> str:
    """What people read of a run: changes that matter, how the stages ended, ``limit`` changed metrics, the words."""
    lines = [alarm.line() for alarm in record.alarms]
    counts = Counter(end.why for end in record.stages.values())
    ends = ", ".join(f"{count} {end}" for end, count in counts.most_common())
    lines.append(f"{plural(len(record.stages), 'stage')}: {ends}")
    changes = record.changes
    if changes:
        lines.append(f"{plural(len(changes), 'metric')} changed since {record.compared_with}:")
        for change in changes[:limit]:
            before, after = _cell(change.before), _cell(change.after)
            lines.append(f"  {change.model} {change.metric}: {before} -> {after}")
        if len(changes) > limit:
            lines.append(f"  and {len(changes) - limit} more ({FILE}, `dvc metrics diff`)")
    elif record.complete and record.compared_with:
        lines.append(f"No metric changed since {record.compared_with}.")
    if record.report:
        lines.append(f"Report: {Path(record.report).resolve()}")
    if record.complete:
        lines += [words.sentence for words in record.verdicts.values() if words.sentence]
    return "\n".join(visible(line) for line in lines)


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
