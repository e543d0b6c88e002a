"""The record of the last run of this folder: stages, metrics and verdicts, with which the next run compares its own."""

import dataclasses
import filecmp
import json
import math
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from flows.overview import standard
from flows.workspace import SCRATCH
from lethe import config
from lethe.comparison.changes import Changes, judged_anew, proved_changes
from lethe.config.measuring import SampleSettings, columns_of
from lethe.config.schema import Params, Population
from lethe.errors import LetheError, OtherSchema, one_line, plural, visible
from lethe.identity import content_digest
from lethe.io import tries
from lethe.io.artifacts import measured
from lethe.io.files import (
    SCHEMA_VERSION,
    Json,
    atomic_folder,
    plain,
    read_artifact,
    read_jsonl,
    restored,
    write_json,
)
from lethe.io.tries import Declared
from lethe.progress import duration
from lethe.results import table
from lethe.results.licence import reasons_of
from lethe.results.population import PopulationResult
from lethe.results.table import Results
from lethe.results.trace import BESIDE
from lethe.statistics.bound import Side, as_percent, exact, significant
from lethe.verdict.claims import judged_exactly
from lethe.verdict.finding import FORGETTING, TRACE, UTILITY, Findings
from lethe.verdict.standing import REFERENCE

DATA = Path("data")
FILE = SCRATCH / "last_run.json"
LAST_RESULTS = SCRATCH / "last_results"  # the tables of `COMPARED` of the last complete run
COMPARED = ("metrics", "exact")
FORGET = Path("dataset/forget.jsonl")
SHARED = "shared"  # answers of one seed, whoever gave them, have the same random numbers
LARGEST = 1e300  # stands for an infinite ln e in JSON
PATIENCE = 60  # seconds for the command of params
WORSE, BETTER = ("leaks",), ("forgot", "intact")  # the words that make a change worse or better
REPORT = DATA / "report" / "index.html"


@dataclasses.dataclass(frozen=True)
class Change:
    """A number of a model in the run before and in this run."""

    model: str
    metric: str
    before: int | float | None  # None: the model or the metric is new
    after: int | float | None  # None: it is gone


@dataclasses.dataclass(frozen=True)
class ModelWords:
    """The words on one model; ``trace`` is the record of its twin test, empty where no secret of the model was drawn."""

    forgetting: str
    utility: str
    sentence: str
    trace: dict[str, Json] = dataclasses.field(default_factory=dict)

    @property
    def sentences(self) -> list[str]:
        """The verdict, the word on a trace, and what both mean together."""
        traced = str(self.trace.get("sentence", ""))
        together = BESIDE.get((self.forgetting, str(self.trace.get("word"))), "")
        sentences = (self.sentence, f"{traced} {together}".strip())
        return [sentence for sentence in sentences if sentence]


@dataclasses.dataclass(frozen=True)
class Alarm:
    """A change of a model that matters.

    Kind "scorer": another scorer judged the model, so that nothing else of it is compared. Kind "verdict": the word on
    ``metric`` ("forgetting" or "utility") was ``before`` and is ``after``. Kind "bound": it is ``proved`` that ``questions``
    questions leak more or less (0: that some question of these models does), with ln of the mean e-value over all questions
    as ``log_e``; ``before`` and ``after`` are the shares of leaks of ``question``, which has the most evidence, or with
    ``by_ends`` the ends that prove the change. ``worse`` closes the gate; both may be false. A word is worse or better only
    beside a proved change of its model: other draws of the same probabilities turn *open* into *leaks* too. ``drawn_anew``:
    the same weights answered in the same way, so that they cannot have changed.
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
    proved: bool = False
    log_e: float | None = None
    by_ends: bool = False
    drawn_anew: bool = False

    def sentence(self) -> str:
        if isinstance(self.before, str) or isinstance(self.after, str):
            metric = "verdict" if self.metric == "forgetting" else self.metric
            return f"{self.model}: {metric} {self.before} -> {self.after}{self._unshown()}"
        before = self._number(self.before)
        after = self._number(self.after)
        rose = self.after > self.before
        if self.by_ends:
            before = self._end(self.before, rose)
            after = self._end(self.after, not rose)
        does = "leaks in" if self.metric == "leak" else "scores"
        sentence = f"{self.model}: {one_line(str(self.question))} {does} {after}, before {before}"
        direction = "more" if rose else "less"
        if self.questions > 1:
            sentence += f"; {self.questions} questions proved to leak {direction}"
        elif not self.questions:
            sentence += f"; of all questions together some are proved to leak {direction}"
        return sentence

    def _unshown(self) -> str:
        """That a changed word shows no change of the model; empty where one is proved, or where the words are no proof."""
        if self.kind != "verdict" or self.worse or self.better:
            return ""
        if self.after in (*WORSE, *BETTER):
            proved = "now proved" if self.drawn_anew else self.after
            return f" ({proved}, no change shown)"
        if self.before in BETTER:
            return " (not yet proved again)"
        return " (not proved now, no change shown)"

    def _number(self, value: float) -> str:
        if self.metric == "leak":
            return as_percent(significant(exact(value) * 100, 2))
        return f"{significant(exact(value), 2)}"

    def _end(self, value: float, upper: bool) -> str:
        words: str = "at least"
        side: Side = "lower"
        if upper:
            words = "at most"
            side = "upper"
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


def read_verdicts(root: Path, stages: Mapping[str, StageEnd]) -> dict[str, ModelWords]:
    """Return the words on the models under test, as they were found; empty where the report is not this run's."""
    if not _up_to_date(stages, "report"):
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


@dataclasses.dataclass(frozen=True)
class Since:
    """A run compared with the run before it.

    ``alarms`` has the changes that matter, changed verdicts first. ``changes`` is the evidence on the models under test, None
    where no table differs, and ``unchanged`` names the models whose weights and drawing law are those of the run before.
    """

    alarms: list[Alarm]
    alpha: float
    changes: Changes | None = None
    unchanged: tuple[str, ...] = ()

    def tries(self) -> dict[str, Json] | None:
        """The level of the comparison under the keys of a gate's tries; a pair of runs has one comparison."""
        if self.changes is None:
            return None
        return {"count": 1, "alpha": self.alpha, "kept": True, "sentence": self.sentence()}

    def sentence(self) -> str:
        if self.changes is None or not self.changes.questions:
            if self.unchanged:
                return "No question was compared: no weights changed."
            return ""
        return (
            f"Without a true increase the gate closes with probability at most {self.alpha:g} for this pair of runs "
            f"({plural(self.changes.questions, 'question')} together)."
        )

    def evidence(self) -> dict[str, Json] | None:
        if self.changes is None:
            return None
        return {
            "alpha": self.alpha,
            "questions": self.changes.questions,
            "log_goal": self.changes.log_goal,
            "log_e_worse": _finite(self.changes.log_e_worse),
            "log_e_better": _finite(self.changes.log_e_better),
            "unchanged": list(self.unchanged),
        }


def read_populations(
    root: Path, stages: Mapping[str, StageEnd]
) -> dict[str, PopulationResult | None]:
    """The declared populations of attacks by their names; None for one that did not end among the stages of a run."""
    entries = config.load(root / config.FILE).attacks
    results: dict[str, PopulationResult | None] = {}
    for name, entry in entries.items():
        stage = f"attack@{name}"
        if not isinstance(entry, Population):
            continue
        results[name] = None
        if _up_to_date(stages, stage):
            record = read_artifact(root / DATA / "attacks" / name / "result.json")
            results[name] = restored(PopulationResult, record)
    return results


def try_of(root: Path, name: str, result: PopulationResult) -> Declared:
    """Which try of a population this is: each seed after a result is another, on the same model, questions and recipe."""
    entry = config.load(root / config.FILE).attacks[name]
    questions = content_digest(root / DATA / "dataset/forget.jsonl")
    model = content_digest(root / entry.path)
    tested = ["attack", model, questions, result.scorer, dict(result.recipe)]
    return tries.declare(tested, dataclasses.asdict(result), result.alpha, root / tries.FOLDER)


def tries_of_words(
    root: Path, stages: Mapping[str, StageEnd], params: Params
) -> dict[str, Declared]:
    """Which try of the word on each model under test this run is; empty where the words are not this run's.

    The same weights, tokenizer, drawing law, forget questions and scorer are one test. Another seed of the answers, and
    another Retrain beside them, is another try; more answers of a seed are the same one, since the word holds at any time. A
    try counts whether or not a gate asked for it: whoever read the word has tried it.
    """
    if not _up_to_date(stages, "compare"):
        return {}
    questions = ""
    if (root / DATA / FORGET).is_file():
        questions = content_digest(root / DATA / FORGET)
    scorer = params.metrics.binary or params.metrics.leak
    attempts: dict[str, Declared] = {}
    for finding in Findings.of(table.compared(root / DATA)).asked(FORGETTING):
        if finding.outcome == REFERENCE:
            continue
        name = finding.model
        model = drawn_from(root, [name])[name] or params.models[name].model_dump(mode="json")
        tested = ["forgot", model, questions, scorer, _judging(params, scorer)]
        draws: list[Json] = []
        for drawn in (name, *params.report.retrains):
            draws.append(_draws_of(root, drawn, params.sample))
        verdict = finding.details["verdict"]
        if verdict is not None and not verdict["anytime"]:  # each look at more evidence is a try
            draws.append([verdict["drawn"], verdict["log_e_forgot"], verdict["log_e_leaks"]])
        alpha = params.metrics.alpha
        attempts[name] = tries.declare(tested, draws, alpha, root / tries.FOLDER)
    return attempts


def _judging(params: Params, scorer: str) -> Json:
    """How the column of a scorer judges an answer: the parameters of the scorer, or of its entry of judges."""
    for name, judge in params.judges.items():
        if scorer in [name + ending for ending in judge.endings]:
            return judge.model_dump(mode="json", exclude={"labelled"})
    for name, parameters in params.score.params.items():
        if scorer in columns_of(name):
            return parameters.model_dump(mode="json")
    return None


def _draws_of(root: Path, name: str, sample: SampleSettings) -> Json:
    """What makes a model's answers other draws: seed, weights and law, the answers that share a stream, and where an engine's
    numbers are its own, the engine, device and rows of a call.

    A server without seeds draws again whenever it is asked: its draws are named by the time of their first.
    """
    from lethe.sampling.tasks import drawn_as

    path = root / DATA / "generations" / name / "about.json"
    if not path.is_file():
        return None
    about = read_artifact(path)
    served = about.get("served")
    if served is not None:
        first = None if served.get("seeded") else served["first"]
        return [about["seed"], about["stream"], "served", first]
    drawn = sample.model_copy(update={"seed": about["seed"]})
    return [drawn_as(about["engine"], drawn), about["stream"], sample.batch]


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
        scorers.append(
            Alarm(
                name,
                "scorer",
                "scorer",
                scorer_before,
                scorer_now,
                False,
                False,
            )
        )
    exactly = judged_exactly(params)
    changes = proved_changes(
        old,
        new,
        subjects,
        alpha,
        exactly,
        independent,
    )
    of_retrains = proved_changes(
        old,
        new,
        retrains,
        alpha,
        exactly,
        independent,
    )
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
                changes.append(
                    Alarm(
                        model,
                        metric,
                        "verdict",
                        was,
                        now,
                        False,
                        False,
                        drawn_anew=anew,
                    )
                )
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
                log_e=_finite(log_e),
                by_ends=change.by_ends,
            )
        )
    return sorted(alarms, key=lambda alarm: not alarm.worse)


def _finite(log_e: float | None) -> float | None:
    """ln of an e-value for JSON, which has no infinity: certain ends refute beyond any number."""
    if log_e is None or math.isfinite(log_e):
        return log_e
    return math.copysign(LARGEST, log_e)


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


def notice(news: RunRecord, root: Path) -> dict[str, object]:
    """What a scheduled run tells others, as JSON: when it ended, what changed, and where the report lies."""
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
            list(command),
            input=text,
            text=True,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
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
    if (root / REPORT).exists() and _up_to_date(stages, "report"):
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


def _up_to_date(stages: Mapping[str, StageEnd], name: str) -> bool:
    """Whether the stage's output is this run's; the output of a stage that failed is left over from an earlier run."""
    return name in stages and stages[name].state in ("Cached", "Completed")


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
