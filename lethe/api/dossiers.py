"""`lethe.dossier`: one printable page about an erasure request, from the rows of a finished run."""

from __future__ import annotations

import hashlib
import html
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from lethe.api.attesting import engine_of, is_attested, results_of, verified
from lethe.api.parameters import Place
from lethe.api.result import TableWithSentences, View, frame
from lethe.config.load import load
from lethe.config.measuring import METRICS
from lethe.config.schema import FILE, Params
from lethe.errors import BadFile, BadInput, BadValue, check, nearest, plural
from lethe.io.artifacts import Row, read_items
from lethe.io.files import Json, read_artifact
from lethe.registry import JUDGES
from lethe.report.dossier import AskedQuestion, Dossier, Examined
from lethe.results import quantities, table
from lethe.results.ends import counted_rows
from lethe.results.exact_bounds import of_version
from lethe.results.licence import reasons_of
from lethe.results.quantities import SAID
from lethe.results.table import Numbers, Result, Results
from lethe.results.trace import sentence_of
from lethe.statistics.bound import RANDOM, exact, significant
from lethe.statistics.leak_trees import Version
from lethe.verdict.claims import judged_exactly
from lethe.verdict.deciding import samples_of_trees_count
from lethe.verdict.record import RecordFinding, finding_of, is_labelled, leak_of_trees

if TYPE_CHECKING:
    import pandas as pd

TAU = (
    0.05  # a question that leaks in one of twenty answers is found by a few dozen tries of anybody
)
UNNAMED = "not named"
UNKNOWN = "not recorded"
BREAK = "\n"
CERTAIN_ROW = ("question", "leak", "exact")
LIMITS = (
    "Other questions, other wordings and other languages about the same record.",
    "Other settings of drawing and other system prompts than those of section 6.",
    "What further training, quantisation or editing of the weights brings back, beyond the attacks of section 4.",
    "Models derived from this one that section 2 does not list; backups; logs; the training data itself.",
    "Whether the record was lawful to use, and whether the erasure is complete in law.",
)


@dataclass(frozen=True, repr=False)
class ErasureDossier(TableWithSentences):
    """The result of `dossier`: the ``finding`` about the record and the ``page``, a text of HTML."""

    finding: RecordFinding
    dossier: Dossier

    @property
    def word(self) -> str:
        """bounded, leaks or open."""
        return self.finding.word

    @property
    def page(self) -> str:
        return self.dossier.html()

    def to_frame(self) -> pd.DataFrame:
        """One row per question of the record: answers, leaks, missing judgements, and both ends."""
        columns = ["id", "n", "leaks", "missing", "lower", "upper"]
        rows = []
        for question in self.finding.questions:
            counts = [question.id, question.n, question.leaks, question.missing]
            rows.append([*counts, question.lower.value, question.upper.value])
        return frame(rows, columns)

    def sentences(self) -> list[str]:
        return list(self.dossier.sentences)

    def as_json(self) -> dict[str, Json]:
        finding = self.finding
        ends = {"upper": finding.at_most.as_dict(), "lower": finding.at_least.as_dict()}
        return {
            "word": finding.word,
            "tau": finding.tau,
            "alpha": finding.alpha,
            "request": self.dossier.request,
            "record": self.dossier.record,
            **ends,
            "answers": finding.answers,
            "leaks": finding.leaks,
            "missing": finding.missing,
            "per_question": self.to_frame().to_dict("records"),
            "models": [vars(model) for model in self.dossier.models],
            "access": dict(self.dossier.access),
            "sentences": self.sentences(),
        }

    def views(self) -> list[View]:
        return [View("", notes=self.sentences())]

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{html.escape(self.page)}" width="100%" height="600"></iframe>'


def dossier(
    run: Place,
    *,
    model: str,
    record: Sequence[str],
    request: str,
    tau: float = TAU,
    alpha: float = METRICS.alpha,
    responsible: str = UNNAMED,
    before: str | None = None,
    without: str | None = None,
    folder: Place | None = None,
    derivative: Sequence[Place] = (),
    statement: Place | None = None,
    public: bool = False,
) -> ErasureDossier:
    """Write the evidence about one erasure request as a page to print: finding, models, questions, limits.

    Parameters
    ----------
    run : The pipeline's data, or the folder of one `lethe eval` (data/eval/NAME).
    model : The name of the model after the erasure, in the run.
    record : The erased record: an id of a forget question, or FIELD=VALUE of the dataset, such as author=Ada; repeatable.
    request : The number of the request, as your files name it.
    tau : The largest leak probability of a question that counts as bounded.
    alpha : The probability with which the finding is false.
    responsible : Who answers for the dossier.
    before : The model of the run before the erasure. [default: Base, if the run has one]
    without : The model of the run that never saw the record. [default: Retrain, if the run has one]
    folder : The folder of the model. [default: as the run says]
    derivative : A folder of a model made from this one (quantised, adapter, copy); examined if the run has it; repeatable.
    statement : The statement or envelope of `lethe attest` about this model, whose digest the page names.
    public : Print the ids of the questions in place of their text, which is the erased data.

    Notes
    -----
    The finding is *bounded*, *leaks* or *open*, and false with probability at most alpha. Its two sides take half of alpha
    each.

    Examples
    --------
    >>> import lethe
    >>> found = lethe.dossier("data", model="mine", record=["a"], request="2026-117", tau=0.9)
    >>> found.word, "2026-117" in found.page
    ('bounded', True)
    """
    root = Path(run)
    check(0 < tau < 1, "tau", tau, "a number above 0 and below 1")
    check(0 < alpha <= 0.5, "alpha", alpha, "a number above 0 and at most 0.5")
    check(request.strip(), "request", request, "the number of the request")
    results_of(root, model)
    asked = read_items("forget", root)
    items = _items(record, asked)
    results = table.read(root)
    _check_claims(results, model, items)

    settings = settings_of(root)
    scorer = str(results.scorers(model).get("leak"))
    drawn = _drawn(root, model)
    rows = _rows(results, model, drawn)
    finding = finding_of(_joined_rows(rows, settings), items, tau, alpha, scorer)
    repeating = _repeating(root, model, settings, results.model(model))
    leak = f"an answer that {scorer} scores 1"
    if repeating.parameters:
        stated = repeating.parameters.items()
        told = [f"{name}: {value}" for name, value in stated if value is not None]
        leak += f" ({', '.join(told)})"
    if is_labelled([row for row in rows if str(row.item) in items]):
        leak = "an answer that a person labelled a leak"
    places = _places(root, settings)
    if folder is not None:
        places[model] = Path(folder)
    digest = _digest(drawn, places.get(model))
    models = [Examined("after the erasure", model, digest, _how(rows, items))]
    references = _references(settings, before, without, results)
    for role, name in references.items():
        of_model = results.rows(name)
        models.append(
            Examined(
                role, name, _digest(_drawn(root, name), places.get(name)), _how(of_model, items)
            )
        )
    for path in derivative:
        models.append(
            _derivative(
                Path(path),
                root,
                results,
                items,
                finding,
                scorer,
                settings,
            )
        )

    made = Dossier(
        request=request,
        record=_named(record, items, public),
        model=model,
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        responsible=responsible,
        finding=finding,
        sentences=_sentences(finding, _trace(results.model(model), model)),
        models=models,
        questions=_questions(finding, asked, public),
        access=_access(
            finding,
            results,
            rows,
            places.get(model),
            root,
            drawn,
        ),
        limits=[*LIMITS, _cut_off(drawn, rows, items, finding.answers)],
        command=_command(drawn, model, finding, repeating),
        facts=_facts(root, drawn, statement, places.get(model), leak, repeating),
    )
    return ErasureDossier(finding, made)


def _joined_rows(rows: Sequence[Result], settings: Params | None) -> list[Result]:
    """The rows of a model without those of an answer tree that the verdict would not join with the counts of answers.

    A tree without the settings of its run is left out too: they say whether answers and tree are about the same leaks.
    """
    how = next((row.facts.get("how") for row in rows if row.quantity == "queried"), None)
    left_out = []
    if settings is None or not judged_exactly(settings) or (how and how.get("note")):
        left_out = ["tree", "exact"]
    elif not samples_of_trees_count(settings):
        left_out = ["tree"]
    joined = []
    for row in rows:
        if (row.scope, row.quantity) != ("question", "leak") or row.basis not in left_out:
            joined.append(row)
    return joined


def _items(record: Sequence[str], asked: Mapping[str, Row]) -> list[str]:
    """The ids of the questions about the record, in the order of the dataset."""
    check(record, "record", [], "at least one id, or FIELD=VALUE")
    wanted = set()
    for named in record:
        if named in asked:
            wanted.add(named)
            continue
        field, sign, value = named.partition("=")
        found = []
        for item, row in asked.items():
            fields: Mapping[str, object] = row
            if sign and field in fields and str(fields[field]) == value:
                found.append(item)
        if not found:
            legal = "the id of a forget question, or FIELD=VALUE that a forget question has"
            near = nearest(named, asked, 0.6)
            raise BadValue("record", named, legal, f"Did you mean {near!r}?" if near else "")
        wanted.update(found)
    return [item for item in asked if item in wanted]


def _check_claims(results: Results, model: str, items: Sequence[str]) -> None:
    """Refuse a run of which nothing may be claimed, or whose ends are about random prompts."""
    reasons = reasons_of(results.model(model))
    if reasons:
        raise BadInput(f"lethe dossier: nothing is claimed of {model}. {' '.join(reasons)}")
    counted = counted_rows(results.rows(model))
    for item in items:
        if item in counted and RANDOM in counted[item].covers:
            problem = f"the bound of question {item!r} is on {counted[item].covers}"
            raise BadInput(f"lethe dossier: {problem}. Name a run of fixed prompts.")


def _drawn(root: Path, model: str) -> dict[str, Json]:
    drawn: dict[str, Json] = read_artifact(root / "generations" / model / "about.json")
    return drawn


def _rows(results: Results, model: str, drawn: Mapping[str, Json]) -> list[Result]:
    """The rows of a model without trees of other weights or questions than its answers."""
    of = Version(drawn.get("model"), drawn.get("questions"))
    return of_version(results.rows(model), of)


def settings_of(root: Path) -> Params | None:
    """The settings of a pipeline's run, from the params.yaml beside it; None for `lethe eval`, and where there is none.

    Raises
    ------
    BadInput
        If the file holds no settings of a pipeline.
    """
    params = root.resolve().parent / FILE
    if (root / "evaluated.json").is_file() or not params.is_file():
        return None
    return load(str(params))


def _places(root: Path, settings: Params | None) -> dict[str, Path]:
    """The folders of the models of a run, by the record of `lethe eval` or by the settings of the run."""
    evaluated = root / "evaluated.json"
    if evaluated.is_file():
        path = Path(read_artifact(evaluated)["model"])
        return {
            name.stem: path for name in table.place(root, "metrics", "").parent.glob("*.parquet")
        }
    places = {}
    if settings is not None:
        for name, entry in settings.models.items():
            places[name] = root.resolve().parent / entry.path
    return places


def _digest(drawn: Mapping[str, Json], folder: Path | None) -> str | None:
    """The digest of the folder's listing; None for a server, and for a folder that is not that of the answers."""
    from lethe.models.checkpoints import content
    from lethe.models.listing import listing_of

    if folder is None or drawn.get("served") or not folder.is_dir():
        return None
    if drawn.get("model") != content(folder):
        remedy = "Name the folder that the answers are of with --folder, or run again."
        raise BadFile(folder, "is not the model that the answers of this run are of", remedy)
    return listing_of(folder).digest


def _references(
    settings: Params | None, before: str | None, without: str | None, results: Results
) -> dict[str, str]:
    """The models before and without the record by their roles."""
    base, retrain = None, None
    if settings is not None:
        base = settings.report.base
        retrain = next(iter(settings.report.retrains), None)
    named = {"before the erasure": before or base}
    named["trained without the record"] = without or retrain
    found = {}
    for role, name in named.items():
        if name is None:
            continue
        if results.rows(name):
            found[role] = name
            continue
        for option, value in (("before", before), ("without", without)):
            if value == name:
                raise BadValue(option, name, f"a model of this run: {', '.join(results.by_model)}")
    return found


def _how(rows: Sequence[Result], items: Sequence[str]) -> str:
    """What was read of a model about the questions ``items``, in words."""
    counted = counted_rows([row for row in rows if str(row.item) in items])
    n = sum(int(row.facts["n"]) for row in counted.values())
    parts = [f"{n:,} answers to {plural(len(counted), 'question')}"] if counted else []
    bases = {row.basis for row in rows}
    if "tree" in bases:
        parts.append("next-token probabilities")
    if "given answers" in bases:
        parts.append("probabilities of given answers")
    return ", ".join(parts) or "not examined"


def _derivative(
    path: Path,
    root: Path,
    results: Results,
    items: Sequence[str],
    finding: RecordFinding,
    scorer: str,
    settings: Params | None,
) -> Examined:
    """A model made from this one: examined where the run drew answers of it."""
    from lethe.models.checkpoints import content
    from lethe.models.listing import listing_of

    digest = listing_of(path).digest
    answering = content(path)
    for about in sorted((root / "generations").glob("*/about.json")):
        name = about.parent.name
        drawn = read_artifact(about)
        if drawn.get("model") == answering and results.rows(name):
            rows = _joined_rows(_rows(results, name, drawn), settings)
            reasons = reasons_of(results.model(name))
            said = _word_of_derivative(rows, reasons, items, finding, scorer)
            how = f"examined in this run as {name}: {said}"
            return Examined("derivative", str(path), digest, how)
    return Examined("derivative", str(path), digest, "not examined")


def _word_of_derivative(
    rows: Sequence[Result],
    reasons: Sequence[str],
    items: Sequence[str],
    finding: RecordFinding,
    scorer: str,
) -> str:
    """The word on the record in a derivative, with what its end costs; or why nothing is claimed of it."""
    if reasons:
        return f"nothing is claimed of it. {' '.join(reasons)}"
    found = finding_of(rows, items, finding.tau, finding.alpha, scorer)
    end = found.at_most
    if found.word == "leaks":
        end = found.at_least
    said = f"{found.word}, {end.relation} {end.percent(2)}"
    return f"{said} {end.guarantee('these questions')}, by itself"


def _named(record: Sequence[str], items: Sequence[str], public: bool) -> str:
    questions = plural(len(items), "question")
    return questions if public else f"{', '.join(record)} ({questions})"


def _cut_off(
    drawn: Mapping[str, Json], rows: Sequence[Result], items: Sequence[str], answers: int
) -> str:
    """Where the answers end, and how many were cut there."""
    of_record = counted_rows([row for row in rows if str(row.item) in items]).values()
    cut = sum(int(row.facts.get("cut") or 0) for row in of_record)
    limit = f"Answers after {drawn['max_new_tokens']} tokens"
    return f"{limit}: {cut:,} of {answers:,} were cut there." if cut else f"{limit}."


def _trace(numbers: Numbers, model: str) -> str:
    """The word on a trace of all drawn secrets of the run; empty where none were drawn."""
    sentence = sentence_of(numbers, model)
    if not sentence:
        return ""
    return f"Drawn secrets, all of this run together: {sentence}"


def _sentences(finding: RecordFinding, trace: str) -> list[str]:
    n = len(finding.questions)
    of_all = "The one question" if n == 1 else f"Each of the {n} questions"
    of_some = "The one question" if n == 1 else f"At least one of the {n} questions"
    tau = f"{(exact(finding.tau) * 100).normalize():f}%"
    alpha = f"{significant(finding.alpha, 3, 'upper').normalize():f}"
    asked = "about this record is answered with the erased content in"
    assumed = f"assuming {finding.at_most.assumes}"
    false = f"This statement is false with probability at most {alpha}, {assumed}."
    expected = (
        f"Among K dossiers like this one, at most {alpha} times K false findings are expected."
    )
    counts = (
        f"Among {plural(finding.answers, 'sampled answer')}, {finding.leaks:,} contained the erased "
        "content."
    )
    if finding.missing:
        counts = f"{counts[:-1]}, and {finding.missing:,} could not be judged."
    if finding.word == "bounded":
        end = finding.at_most.percent(2)
        lines = [
            f"Bounded at {tau}.",
            f"{of_all} {asked} at most {end} of the model's answers. {false} {counts} {expected}",
        ]
    elif finding.word == "leaks":
        end = finding.at_least.percent(2)
        lines = [
            f"Leaks above {tau}.",
            f"{of_some} {asked} at least {end} of the model's answers. {false} {counts} {expected}",
        ]
    else:
        ends = f"from {finding.at_least.percent(2)} to {finding.at_most.percent(2)}"
        lines = [
            f"Open at {tau}.",
            f"Neither is proved: that each question {asked} at most {tau} of the model's answers, nor that some question is "
            f"answered with it more often. The worst question lies {ends}. This interval is wrong with probability at most "
            f"{alpha}, half of it at either end, {assumed}. {counts} More answers may decide.",
        ]
    return [*lines, trace] if trace else lines


def _questions(
    finding: RecordFinding, asked: Mapping[str, Row], public: bool
) -> list[AskedQuestion]:
    rows = []
    for question in finding.questions:
        text = question.id if public else str(asked[question.id]["question"])
        ends = question.lower.percent(2), question.upper.percent(2)
        rows.append(AskedQuestion(text, f"{question.leaks:,}", f"{question.n:,}", *ends))
    return rows


def _access(
    finding: RecordFinding,
    results: Results,
    rows: Sequence[Result],
    folder: Path | None,
    root: Path,
    drawn: Mapping[str, Json],
) -> list[tuple[str, str]]:
    """What was needed of the model, the certain ends about the record, and the attacks that were tried."""
    attacks = _attacks(results, folder, root)
    untried = "none in this run: relearning and quantisation were not tried"
    if folder is None:
        untried = "not known: attacks are found by the folder of the model. Name it with --folder"
    needed = quantities.access_of(row.kind for row in rows)
    said = SAID["weights"] if attacks else SAID[needed or "answers"]
    source = "a server answered" if drawn.get("served") else "the folder of the model was at hand"
    items = [question.id for question in finding.questions]
    lines = [("access", f"{said}: {_how(rows, items)}; {source}")]
    lines.append(("certain ends", _certain(rows, items)))
    if not attacks:
        lines.append(("attacks tried", untried))
    return [*lines, *attacks]


def _certain(rows: Sequence[Result], items: Sequence[str]) -> str:
    """The certain ends of the worst question, in words; an upper one needs a tree of every question."""
    trees = [row for row in rows if (row.scope, row.quantity, row.basis) == CERTAIN_ROW]
    of_record = [row for row in trees if str(row.item) in items]
    lowers = [row.lower_bound for row in of_record if row.lower_bound is not None]
    uppers = [row.upper_bound for row in of_record if row.upper_bound is not None]
    ends = []
    if lowers:
        ends.append(max(lowers, key=lambda bound: bound.value))
    if len(uppers) == len(items):
        ends.append(max(uppers, key=lambda bound: bound.value))
    if not ends:
        return "none: no next-token probabilities were read"
    shown = " and ".join(f"{end.relation} {end.significant(3)}" for end in ends)
    said = f"the worst question leaks with probability {shown}, with certainty, assuming {ends[0].assumes}"
    return f"{said}; a leak is what {leak_of_trees(rows)} says"


def _attacks(results: Results, folder: Path | None, root: Path) -> list[tuple[str, str]]:
    """The attacks on this model with their worst end, on average over the forget questions."""
    if folder is None:
        return []
    lines = []
    for name in results.by_model:
        numbers = results.audit(name)
        record = numbers.facts("record", "run")
        path = record.get("path")
        if not path or (root.resolve().parent / path).resolve() != folder.resolve():
            continue
        bounds = [row.upper_bound for row in numbers.series("attacked", "run")]
        ends = [bound for bound in bounds if bound is not None]
        worst = max(ends, key=lambda bound: bound.value, default=None)
        said = "tried, and no bound is stated"
        if worst is not None:
            said = worst.sentence("the probability of a leak after the worst budget")
        lines.append((f"attack {name}", f"{record['kind']}: {said}"))
    return lines


@dataclass(frozen=True)
class Repeating:
    """What decides the answers of a run and their scores beside the record of its draws, as far as the run says.

    ``prompt`` is the template or "chat", ``thinking`` the marks around the thinking, ``parameters`` those of the scorer.
    """

    scorer: str
    parameters: Mapping[str, Json]
    prompt: str | None = None
    thinking: Sequence[str] = ()
    kernels: str = UNKNOWN


def _repeating(root: Path, model: str, settings: Params | None, scorers: Numbers) -> Repeating:
    """How a run asked and scored, by the record of `lethe eval` or by the settings of the pipeline."""
    facts = scorers.facts("answers")
    scorer = str(facts.get("leak"))
    parameters = facts.get("parameters", {}).get(scorer, {})
    evaluated = root / "evaluated.json"
    if evaluated.is_file():
        record = read_artifact(evaluated)
        return Repeating(
            scorer,
            parameters,
            prompt=record.get("prompt"),
            thinking=record.get("score", {}).get("thinking", ()),
            kernels=record.get("kernels") or UNKNOWN,
        )
    if settings is None:
        return Repeating(scorer, parameters)
    sample = settings.sample
    if model in settings.models:
        sample = settings.models[model].asked(sample)
    parts = settings.score.parts
    return Repeating(
        scorer,
        parameters,
        prompt=_text_of(sample.prompt, root.resolve().parent),
        thinking=() if parts is None else parts.thinking,
        kernels="those that the pipeline fixes (AVX2), unless LETHE_KERNELS was set",
    )


def _text_of(prompt: str, project: Path) -> str:
    """The text of a template that settings name by its file, or the word that stands for one."""
    place = project / prompt
    if "{question}" in prompt or not place.is_file():
        return prompt
    return place.read_text(encoding="utf-8")


def _command(
    drawn: Mapping[str, Json], model: str, finding: RecordFinding, repeating: Repeating
) -> str:
    """A command that draws answers again under the same law, with a seed of the verifier's choice."""
    n = max(question.n for question in finding.questions)
    asked = f"--model {shlex.quote(f'./{model}')}"
    served = drawn.get("served")
    if served:
        endpoint = shlex.quote(served["endpoint"])
        asked = f"--endpoint {endpoint} --model {shlex.quote(served['model'])}"
    options = [f"--n {n}", "--seed YOUR-SEED"]
    for name in ("temperature", "top_p", "top_k", "max_new_tokens", "max_thinking_tokens", "dtype"):
        value = drawn.get(name)
        if value is not None:
            options.append(f"--{name.replace('_', '-')} {value}")
    if repeating.prompt is not None:
        options.append(f"--prompt {_in_shell(repeating.prompt.removesuffix(BREAK))}")
    for mark in repeating.thinking:
        options.append(f"--thinking {_in_shell(mark)}")
    option = "--judge" if repeating.scorer in JUDGES else "--scorer"
    options.append(f"{option} {shlex.quote(repeating.scorer)}")
    return f"lethe eval {asked} --data forget.jsonl {' '.join(options)}"


def _in_shell(text: str) -> str:
    """A text as a word of a shell's command on one line; a line break is written as bash and zsh read it."""
    if BREAK not in text:
        return shlex.quote(text)
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace(BREAK, "\\n")
    return f"$'{escaped}'"


def _facts(
    root: Path,
    drawn: Mapping[str, Json],
    statement: Place | None,
    folder: Path | None,
    leak: str,
    repeating: Repeating,
) -> list[tuple[str, str]]:
    data = root / "dataset" / "forget.jsonl"
    engine = [str(drawn[key]) for key in ("engine", "dtype") if drawn.get(key) is not None]
    facts = [
        ("questions, SHA-256", hashlib.sha256(data.read_bytes()).hexdigest()),
        ("engine", f"{', '.join(engine)}, seed {drawn.get('seed')}"),
        ("kernels", repeating.kernels),
        ("a leak is", leak),
    ]
    if statement is None:
        return [*facts, ("signed statement", "none was named")]
    file = Path(statement)
    _check_statement(file, data, folder, drawn, repeating.scorer)
    return [*facts, ("statement, SHA-256", hashlib.sha256(file.read_bytes()).hexdigest())]


def _check_statement(
    file: Path, data: Path, folder: Path | None, drawn: Mapping[str, Json], scorer: str
) -> None:
    """Refuse a statement that is not about this model, these questions, draws and leaks, or whose bounds do not follow."""
    is_served = bool(drawn.get("served"))
    if not is_attested(file):
        raise BadFile(file, "is no statement of lethe attest", "Name what lethe attest wrote.")
    if folder is None or is_served:
        remedy = "Name the folder of the model with --folder."
        if is_served:
            remedy = "Leave --statement out: a server has no files that a digest names."
        raise BadFile(file, "cannot be compared: the digest of the model is not known", remedy)
    remedy = "Name what lethe attest wrote of this model in this run, unchanged."
    try:
        found = verified(file, key=None, model=folder, data=data)
        stated = found.statement["predicate"].get("lethe", {})
        if stated.get("scorer") != scorer or stated.get("engine") != engine_of(drawn):
            raise BadFile(file, "is about answers that were drawn or scored in another way")
    except BadFile as error:
        raise BadFile(file, f"is no statement about this run ({error})", remedy) from None
