"""docs/twins-canaries.md and its picture: what trace of the canaries each model has, from the outcomes of its steps."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lethe.config.twins import TWINS
from lethe.io.files import Json
from lethe.results.ends import Ends
from lethe.results.table import Result
from lethe.results.trace import Control, Design, Trace, lift_of, p_text
from lethe.statistics.bound import significant
from lethe.statistics.streams import stream
from lethe.statistics.twins import TwinTest, epsilon_lower, rank_band, twin_test
from lethe.text import NONE
from lethe.verdict.rules import decide
from lethe.verdict.verdict import Verdict
from studies.canaries.design import RETRAIN, Step, is_control, models, steps
from studies.canaries.design import Design as Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Outcomes = Mapping[str, Mapping[str, Json]]
LOST = 1.0  # nats per token of the codes that stay; a digit that is not known costs 2.3
ABOUT = """# A trace of canaries in a real model

    python -m tests.benchmarks real-model                      # SmolLM2-135M-Instruct, 542 MB
    LETHE_KERNELS=machine lethe study twins-canaries --keep    # a model a step, some 20 minutes of one free core
    lethe study twins-canaries --keep --page docs/twins-canaries.md --figure docs/twins-canaries.png

The commands need: minutes for the page, and half an hour of one core for all steps.

`lethe twins draw` made 40 canaries: codes of five digits of invented people, each drawn among 20. SmolLM2-135M-Instruct
learned them by LoRA beside 20 other codes. Three methods then unlearned them. Each unlearned model was tested as it is, after
ten steps of relearning on the 20 other codes, and after rounding to 4 bits. Two controls cannot know the draws: the untouched
model, and Retrain, which learned the 20 other codes alone. `studies/presets/twins-canaries.yaml` fixed every setting before
the first result, and `studies/canaries/data` has the canaries with their record and key.

The [twin test](twins.md) gives the trace. The [certain ends](exact.md) of each code's probability, less Retrain's, give the
word on forgetting. The words share alpha .01 over the nine models under test. The column *likeliest code* has the largest
probability of a true code as the whole answer, a certain lower end of its leak. The last column has nats per token.
"""


@dataclass(frozen=True)
class Measured:
    """One model of the study: its step, the test of its ranks, and its word on forgetting (None for Base and a control)."""

    step: Step
    trace: Trace
    verdict: Verdict | None
    largest_lower: float
    retain_loss: float


def measured(plan: Plan, outcomes: Outcomes) -> list[Measured]:
    """The models whose steps are done, in the order of the steps."""
    done = [step for step in models(plan) if step.name in outcomes]
    controls = []
    for step in done:
        if is_control(step):
            test = _test(outcomes[step.name])
            controls.append(Control(step.of, test.p, TWINS.control_alpha, test.direction))

    found = []
    for step in done:
        values = outcomes[step.name]
        controls_of_step = () if is_control(step) else tuple(controls)
        # A code may also come with other words, so its probability alone is a certain lower end of a leak's.
        log_probs_of_truth = [scores[0] for scores in values["scores"]]
        model = Measured(
            step,
            _trace(plan, step, values, controls_of_step),
            _verdict(plan, step, outcomes),
            largest_lower=float(np.exp(max(log_probs_of_truth))),
            retain_loss=values["retain_loss"],
        )
        found.append(model)
    return found


def _verdict(plan: Plan, step: Step, outcomes: Outcomes) -> Verdict | None:
    """The word on forgetting of an unlearned model; None for another model, and before its ends or Retrain's are there."""
    name = replace(step, kind="exact").name
    of_retrain = Step(RETRAIN, kind="exact").name
    if step.model not in plan.methods or name not in outcomes or of_retrain not in outcomes:
        return None
    ends = _ends(outcomes[name])
    chance = _ends(outcomes[of_retrain])
    return decide(ends, [chance], alpha=plan.alpha, tau=plan.tau, models=plan.models)


def _test(values: Mapping[str, Json]) -> TwinTest:
    """The twin test of an outcome's ranks."""
    return twin_test(values["ranks"], values["candidates"])


def _ends(values: Mapping[str, Json]) -> Ends:
    """Both ends of the leak of each canary of an outcome, at any level."""
    rows = [Result(**row) for row in values["rows"]]
    return Ends.of_rows(rows, tuple(values["secrets"]))


def _trace(
    plan: Plan, step: Step, values: Mapping[str, Json], controls: tuple[Control, ...]
) -> Trace:
    """The trace of a model at the level that all models under test share, beside its controls."""
    rng = np.random.default_rng(stream(0, "lifts of the canaries", step.of))
    level = plan.alpha / plan.models
    scores = np.array(values["scores"])
    return Trace(
        _test(values),
        tuple(values["secrets"]),
        plan.alpha,
        models=plan.models,
        controls=controls,
        lift=lift_of(scores, level, rng),
        design=Design("drawn", "nothing but the draw itself"),
    )


def page(plan: Plan, outcomes: Outcomes, picture: str) -> str:
    """The page: what was not run first, then the table, each model's sentence, and the picture."""
    found = measured(plan, outcomes)
    names = [step.name for step in steps(plan)]
    left = [name for name in names if name not in outcomes]

    parts = [ABOUT.rstrip()]
    if left:
        parts.append(f"## Not run\n\n{len(left)} of {len(names)} steps: {', '.join(left)}.")
    failures = _failures(plan, found)
    if failures:
        parts.append("## What did not hold\n\n" + "\n".join(failures))
    parts.append("## What came out\n\n" + "\n".join(_table(plan, found)))

    sentences = []
    for model in found:
        if model.step.model in plan.methods:
            sentences.append(f"- {model.trace.sentence(model.step.of)}")
    if sentences:
        parts.append("\n".join(sentences))
    parts.append(
        f"![The curves of the ranks of each model, with the band of chance]({picture})\n\n"
        "The curve of a model that does not know stays in the grey band."
    )
    return "\n\n".join(parts) + "\n"


def _failures(plan: Plan, found: Sequence[Measured]) -> list[str]:
    """The unlearned models that kept every code, or lost the codes that should stay."""
    lines = []
    for model in found:
        if model.step.model not in plan.methods:
            continue
        m = len(model.trace.secrets)
        if model.trace.first == m:
            lines.append(f"- {model.step.of} forgot nothing: all {m} true codes still rank first.")
        if model.retain_loss > LOST:
            loss = f"{model.retain_loss:.2f} nats per token"
            lines.append(f"- {model.step.of} lost the other codes too: their loss is {loss}.")
    return lines


def _table(plan: Plan, found: Sequence[Measured]) -> list[str]:
    """The lines of the table, a row for each model."""
    columns = (
        "model",
        "trace",
        "p",
        "mean rank",
        "first, last",
        "epsilon at least",
        "word",
        "likeliest code",
        "loss on other codes",
    )
    lines = ["|".join(columns), "|".join("---" for _ in columns)]
    lines += ["|".join(_cells(plan, model)) for model in found]
    return lines


def _cells(plan: Plan, model: Measured) -> list[str]:
    """The cells of a model, one a column."""
    trace = model.trace
    test = trace.test
    word: str = trace.word
    if model.step.model not in plan.methods:
        word = "control" if is_control(model.step) else "before unlearning"
    epsilon = epsilon_lower(test.ranks, test.candidates, trace.alpha)
    return [
        model.step.of,
        word,
        p_text(test.p, test.log_p),
        f"{np.mean(test.ranks):.1f}",
        f"{trace.first}, {trace.last}",
        f"{epsilon:.2f}",
        model.verdict.word if model.verdict else NONE,
        f"{significant(model.largest_lower, 2, 'lower'):g}",
        f"{model.retain_loss:.2f}",
    ]


def draw(plan: Plan, outcomes: Outcomes, path: Path) -> None:
    """Write the picture: the step curve of the ranks of each model with the band of a model that does not know."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    found = measured(plan, outcomes)
    columns = 4
    rows = max(1, math.ceil(len(found) / columns))
    figure, axes = pyplot.subplots(rows, columns, figsize=(9, 2.3 * rows), squeeze=False)
    for panel in axes.flat[len(found) :]:
        panel.set_axis_off()
    for panel, model in zip(axes.flat, found, strict=False):
        _draw_curve(panel, model.trace)
        panel.set_title(model.step.of, fontsize=9)
        panel.tick_params(labelsize=7)

    figure.supxlabel("rank among the 20 candidates, as a share", fontsize=9)
    figure.supylabel("share of the 40 canaries", fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)


def _draw_curve(panel: "Axes", trace: Trace) -> None:
    """The share of canaries at or below each rank, on the band of a model that does not know."""
    ranks = np.array(trace.test.ranks)
    m = len(ranks)
    k = trace.test.candidates[0]
    shares = np.arange(k + 1) / k

    fewest, most = rank_band(m, k, trace.level)
    low = np.concatenate([[0], fewest]) / m
    high = np.concatenate([[0], most]) / m
    panel.fill_between(shares, low, high, step="post", color="0.85")
    panel.plot([0, 1], [0, 1], color="0.4", linewidth=0.8)

    counts = [np.count_nonzero(ranks <= rank) for rank in range(k + 1)]
    panel.step(shares, np.array(counts) / m, where="post", color="tab:red", linewidth=1.6)
