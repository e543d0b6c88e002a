"""The record of the last run of this folder: stages, metrics and verdicts, with which the next run compares its own."""

import dataclasses
import math
import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from flows.alarms import Alarm, ModelWords, Since
from flows.overview import standard
from flows.workspace import SCRATCH
from lethe.errors import LetheError, OtherSchema, plural, visible
from lethe.io.artifacts import measured
from lethe.io.files import SCHEMA_VERSION, Json, atomic_folder, read_artifact, restored, write_json
from lethe.io.tries import Declared
from lethe.progress import duration
from lethe.results import table
from lethe.results.licence import reasons_of
from lethe.verdict.finding import FORGETTING, TRACE, UTILITY, Findings
from lethe.verdict.standing import REFERENCE

DATA = Path("data")
FILE = SCRATCH / "last_run.json"
LAST_RESULTS = SCRATCH / "last_results"  # the tables of `COMPARED` of the last complete run
COMPARED = ("metrics", "exact")
FORGET = Path("dataset/forget.jsonl")
SHARED = "shared"  # answers of one seed, whoever gave them, have the same random numbers
REPORT = DATA / "report" / "index.html"


@dataclasses.dataclass(frozen=True)
class Change:
    """A number of a model in the run before and in this run."""

    model: str
    metric: str
    before: int | float | None  # None: the model or the metric is new
    after: int | float | None  # None: it is gone


@dataclasses.dataclass(frozen=True)
class StageEnd:
    """How a stage ended: Prefect's state, the reason in Lethe's word, and the seconds it took."""

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
    verdicts: dict[str, ModelWords]
    # End and seconds of each stage's last run.
    took: dict[str, tuple[str, float]] = dataclasses.field(default_factory=dict)
    # Of each model of which nothing may be claimed: the reasons.
    refused: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    # The level of the comparison with the run before, of which each pair of runs has one; None where nothing was compared.
    tries: dict[str, Json] | None = None
    # Of each model under test with a word, which try of its word these draws are.
    tries_of_words: dict[str, Declared] = dataclasses.field(default_factory=dict)
    # What the questions of both runs prove together; None where nothing was compared.
    change: dict[str, Json] | None = None
    # Of each model, the digests of weights and drawing law, and of the tokenizer; None where they are not known.
    drawn_from: dict[str, str | None] = dataclasses.field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        return {"schema": SCHEMA_VERSION, **dataclasses.asdict(self)}


# The record of a folder in which nothing ran yet.
NEVER = RunRecord(
    finished="",
    complete=False,
    stages={},
    compared_with=None,
    changes=[],
    alarms=[],
    report=None,
    metrics_of=None,
    metrics=None,
    verdicts={},
)


def read(root: Path) -> RunRecord | None:
    """Return the record of the last run, if there is one; a damaged record is renamed with a warning."""
    path = root / FILE
    if not path.exists():
        return None
    try:
        return restored(RunRecord, read_artifact(path))
    except (LetheError, ValueError) as error:
        problem = "was damaged"
        suffix = ".damaged.json"
        if isinstance(error, OtherSchema):
            problem = "is of another release of Lethe"
            suffix = ".other.json"
        aside = path.with_suffix(suffix)
        path.replace(aside)
        standard().print(
            f"{FILE} {problem}: it is now {aside.name}, and this run is compared with none before it."
        )
        return None


def write(
    root: Path,
    stages: dict[str, StageEnd],
    complete: bool,
    since: Since | None = None,
    tries_of: Mapping[str, Declared] | None = None,
) -> RunRecord:
    """Write and return the record of a run that has ended; `since_last` must compare before this replaces the last tables.

    ``tries_of`` says of the words of this run which tries they are.
    """
    last = read(root)
    names = measured(root / DATA)
    results = table.read(root / DATA, names)
    refused: dict[str, list[str]] = {}
    for name in names:
        reasons = list(reasons_of(results.model(name)))
        if reasons:
            refused[name] = reasons
    finished = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    last = last or NEVER
    took = dict(last.took)
    for name, end in stages.items():
        if end.why == "ran":
            took[name] = (finished, end.seconds)
    report = None
    if (root / REPORT).exists() and is_up_to_date(stages, "report"):
        report = str(REPORT)
    record = dataclasses.replace(
        last,
        finished=finished,
        complete=complete,
        stages=stages,
        compared_with=None,
        changes=[],
        alarms=[],
        report=report,
        refused=refused,
        took=took,
        tries=None,
        tries_of_words=dict(tries_of or {}),
        change=None,
    )
    if since is not None:
        record = dataclasses.replace(
            record, alarms=since.alarms, tries=since.tries(), change=since.evidence()
        )
    if complete:
        metrics = {name: _finite_numbers(results.model(name).values) for name in names}
        changes = []
        if last.metrics is not None:
            changes = metric_changes(last.metrics, metrics)
        record = dataclasses.replace(
            record,
            compared_with=last.metrics_of,
            changes=changes,
            metrics_of=finished,
            metrics=metrics,
            verdicts=read_verdicts(root, stages),
            drawn_from=drawn_from(root, names),
        )
    write_json(root / FILE, record.as_json())
    if complete:
        _keep_tables(root)
    return record


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


def read_verdicts(root: Path, stages: Mapping[str, StageEnd]) -> dict[str, ModelWords]:
    """Return the words on the models under test, as they were found; empty where the report is not this run's."""
    if not is_up_to_date(stages, "report"):
        return {}
    found = Findings.of(table.compared(root / DATA))
    verdicts: dict[str, ModelWords] = {}
    for finding in found.asked(FORGETTING):
        name = finding.model
        utility = found.about(name, UTILITY)
        if finding.outcome != REFERENCE and utility is not None:
            trace = found.about(name, TRACE)
            record: dict[str, Json] = {}
            if trace is not None:
                record |= trace.details
            verdicts[name] = ModelWords(
                finding.outcome,
                utility.outcome,
                finding.sentence,
                record,
            )
    return verdicts


def drawn_from(root: Path, models: Sequence[str]) -> dict[str, str | None]:
    """Of each model, the digest of weights and drawing law that its random numbers come from (about.json of its answers), and
    that of its tokenizer.

    None where it is not known: a server may answer with other weights under the same name, and answers of shared random
    numbers have no digest.
    """
    digests: dict[str, str | None] = {}
    for name in models:
        digests[name] = None
        path = root / DATA / "generations" / name / "about.json"
        if not path.is_file():
            continue
        about = read_artifact(path)
        stream = about.get("stream", SHARED)
        if stream != SHARED and not about.get("served"):
            digests[name] = f"{stream} {about.get('tokenizer', '')}".strip()
    return digests


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
        if (root / DATA / FORGET).is_file():
            (folder / FORGET).parent.mkdir()
            shutil.copyfile(root / DATA / FORGET, folder / FORGET)


def is_up_to_date(stages: Mapping[str, StageEnd], name: str) -> bool:
    """Whether the stage's output is this run's; the output of a stage that failed is left over from an earlier run."""
    return name in stages and stages[name].state in ("Cached", "Completed")


def expected(root: Path, stages: Sequence[str], at_once: int) -> str:
    """Say how long these stages took when they last ran in this folder."""
    last = read(root)
    days: set[str] = set()
    seconds: list[float] = []
    for name in stages:
        if last is not None and name in last.took:
            end, seconds_of_stage = last.took[name]
            days.add(end.partition("T")[0])
            seconds.append(seconds_of_stage)
    if not seconds:
        return "Time: unknown, as none of these stages ran here before."
    since = " to ".join(dict.fromkeys((min(days), max(days))))
    took = duration(math.fsum(seconds))
    told = (
        f"Time: these stages took {took} in sum when they last ran ({since}), now {at_once} at once"
    )
    unknown = len(stages) - len(seconds)
    if unknown:
        told += f"; unknown for {unknown} that never ran here"
    return f"{told}."


def summary(record: RunRecord, limit: int = 10) -> str:
    """What people read of a run: changes that matter, how the stages ended, ``limit`` changed metrics, the words."""
    lines = [alarm.line() for alarm in record.alarms]
    counts = Counter(end.why for end in record.stages.values())
    ends = [f"{count} {why}" for why, count in counts.most_common()]
    lines.append(f"{plural(len(record.stages), 'stage')}: {', '.join(ends)}")
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
        for words in record.verdicts.values():
            lines += words.sentences
    return "\n".join(visible(line) for line in lines)


def _cell(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}"
