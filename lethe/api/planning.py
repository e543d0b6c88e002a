"""`lethe.plan`: how many samples a wanted statement takes, or what work costs, before anything is drawn."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lethe import config
from lethe.api.parameters import Place
from lethe.api.result import TableWithSentences, View, frame
from lethe.config.evaluating import METRICS, SAMPLE
from lethe.config.load import changed_document, read_preset
from lethe.errors import BadArguments, BadInput, BadValue
from lethe.io.files import Json
from lethe.progress import duration

if TYPE_CHECKING:
    import pandas as pd

    from lethe.steps.costs import Cost

ALPHA, CAP = METRICS.alpha, 4096
LIMIT = {
    "judge": "The judge is the limit: no number of answers narrows the interval further. Label draws of the run instead.",
    "answers": "The judge allows this width: more answers narrow the interval.",
}
VERDICTS = ("certified", "leaks", "undecided")
PRESETS = Path("flows/presets")  # of the pipeline folder
DEFAULT = "default"  # params.yaml as it is


@dataclass(frozen=True, repr=False)
class Plan(TableWithSentences):
    """The result of `plan`: ``values`` by the keys of `lethe plan --json`, which are its keys too, and tables."""

    values: Mapping[str, Json]
    shown: Sequence[View]

    def __getitem__(self, key: str) -> Json:
        return self.values[key]

    def to_frame(self) -> pd.DataFrame:
        """Return the first table."""
        return frame(self.shown[0].rows, columns=list(self.shown[0].columns))

    def sentences(self) -> list[str]:
        return [note for view in self.shown for note in view.notes]

    def as_json(self) -> dict[str, object]:
        return dict(self.values)

    def views(self) -> list[View]:
        return list(self.shown)


def plan(
    *,
    alpha: float | None = None,
    width: float | None = None,
    tau: float | None = None,
    tau_leak: float | None = None,
    prompts: int | None = None,
    cap: int | None = None,
    verdict: bool = False,
    models: int | None = None,
    retrain: bool = True,
    preset: str | None = None,
    rate: float | None = None,
    parameters: float | None = None,
    judge_rate: float | None = None,
    judge_parameters: float | None = None,
    questions: int | None = None,
    answers: int | None = None,
    leak: float | None = None,
    labels: bool = False,
    calibration: Place | None = None,
    compare: bool = False,
    difference: float | None = None,
    power: float | None = None,
) -> Plan:
    """Count the samples that a width or a certificate takes, or the cost of a preset.

    Without verdict and preset: samples per prompt, fixed beforehand and expected when stopped early.

    Parameters
    ----------
    alpha : The statement may fail with this probability. [default: 0.01]
    width : The wanted half-width of the distribution band; with labels the width of the interval of the average leak
        probability.
    tau : Certify that a prompt leaks with at most this probability.
    tau_leak : Detect a leak of at least this. [default: 2 tau, or halfway to 1]
    prompts : The number of prompts to certify jointly. [default: 1; with verdict 30]
    cap : The largest number of samples of a sequential prompt. [default: 4096]
    verdict : Simulate the words that typical models would get (docs/verdict.md).
    models : The models under test, with verdict. [default: 1]
    retrain : Compare with a Retrain, with verdict; without it chance counts as 0.
    preset : Count what a preset of this pipeline folder costs: answers, tokens, memory, and time at given rates; default:
        params.yaml as it is.
    rate : Tokens per second, with preset.
    parameters : The parameters of a model whose folder is missing, with preset; two bytes each. Example: 7e9
    judge_rate : Answers per second of a judge, with preset.
    judge_parameters : The parameters of a judge whose folder is missing, with preset. Example: 13e9
    questions : The number of forget questions, with preset. [default: counted, or the published number]
    answers : The number of answers per prompt, with verdict. [default: 1024]
    leak : A guess of the average leak probability, with labels [default: 0.1], or that of side A, with compare [default: 0].
    labels : Count a person's labels of random draws for the wanted width (docs/judges.md).
    calibration : With labels, a file of answers with `label` and `verdict`: how narrow an interval that judge allows at any
        number of answers.
    compare : Count the answers that a comparison of two sides takes to see a difference (docs/compare.md).
    difference : The difference in the leak probability of a question, with compare. [default: 0.1]
    power : The probability with which it is seen, with compare. [default: 0.8]

    Notes
    -----
    Every answer counts with its largest length, so tokens are an upper bound. Likelihoods and exact bounds do not count.
    Lethe measures no rate: times need ``rate``.

    Examples
    --------
    >>> import lethe
    >>> lethe.plan(tau=0.05, prompts=40)["certify_fixed"]
    90
    """
    given = {
        name: value for name, value in locals().items() if value is not None and value is not False
    }
    kinds: dict[str, Callable[..., Plan]]
    kinds = {"verdict": _verdict, "compare": _compare, "labels": _labels, "preset": _preset}
    kind, *others = [name for name in kinds if name in given] or [""]
    if others:
        raise BadArguments((kind, *others), "exclude each other; give one of them.")
    run = kinds.get(kind, _statement)
    legal = inspect.signature(run).parameters
    if "retrain" not in legal:
        given.pop("retrain", None)
    for name, value in given.items():
        if name not in (*legal, kind):
            raise BadValue(
                name, value, f"left out {f'with {kind}' if kind else 'here'}: it changes nothing"
            )
    return run(**{name: value for name, value in given.items() if name in legal})


def _statement(
    alpha: float = ALPHA,
    width: float | None = None,
    tau: float | None = None,
    tau_leak: float | None = None,
    prompts: int = 1,
    cap: int = CAP,
) -> Plan:
    from lethe.statistics import planning
    from lethe.statistics.bound import Assumes, joint_level, level
    from lethe.statistics.checks import check_alpha, check_count

    if width is None and tau is None:
        kinds = ("width", "tau", "verdict", "labels", "compare", "preset")
        raise BadArguments(kinds, "give one of them; width and tau also go together.")
    for name, value, usual in (("tau_leak", tau_leak, None), ("cap", cap, CAP)):
        if tau is None and value != usual:
            raise BadValue(name, value, "left out without tau")
    check_count("prompts", prompts)
    check_count("cap", cap)
    check_alpha(alpha)
    # "Every prompt leaks with probability at most tau" is an intersection of claims, each tested at alpha: that all are
    # certified although one of them is false has probability at most alpha (Berger 1982). So only bands share alpha.
    each = alpha if width is None else alpha / prompts
    correction = "Bonferroni" if each < alpha else None
    values: dict[str, Json] = {
        "alpha": alpha,
        "prompts": prompts,
        "alpha_each": each,
        "correction": correction,
    }
    rows: list[list[object]] = []
    if width is not None:
        for sides, name in ((1, "one-sided"), (2, "two-sided")):
            samples = planning.samples_for_width(width, each, sides)
            values[f"width_{name.replace('-', '_')}"] = samples
            rows.append([f"band of half-width {width:g}, {name}", samples])
    if tau is not None:
        leak = min(2 * tau, (1 + tau) / 2) if tau_leak is None else tau_leak
        fixed = planning.samples_to_certify(tau, alpha)
        values |= {
            "certify_fixed": fixed,
            "tau": tau,
            "tau_leak": leak,
            "cap": cap,
            "sequential": [],
        }
        rows.append([f"M_bin <= {tau:g} with no leak seen, n fixed", fixed])
        # from no leak through the undecided middle to a clear leak
        rates = (
            0.0,
            0.1 * tau,
            0.4 * tau,
            (tau + leak) / 2,
            min(2 * leak, 1.0),
            min(5 * leak, 1.0),
        )
        for p in dict.fromkeys(float(f"{rate:.6g}") for rate in rates):
            expected = planning.expected_sequential(p, tau, leak, alpha, cap)
            values["sequential"].append({"p": p, **asdict(expected)})
            shares = [f"{getattr(expected, word):.1%}" for word in VERDICTS]
            rows.append([f"stopped early, expected at a leak of {p:g}", expected.samples, *shares])
    notes = [f"Each statement holds {level(each)} for its own prompt, assuming {Assumes.DRAWS}."]
    if correction:
        notes.append(f"Bonferroni: all {prompts} hold together {joint_level(alpha)}.")
    if tau is not None and prompts > 1:
        all_hold = f"all certificates hold {level(alpha)}, without a correction."
        notes.append(f"If all {prompts} prompts are certified, {all_hold}")
    columns = ["statement", "samples"] + ([*VERDICTS] if tau is not None else [])
    rows = [row + [None] * (len(columns) - len(row)) for row in rows]
    return Plan(values, (View("Samples per prompt", columns, rows, notes),))


def _labels(
    alpha: float = ALPHA, width: float = 0.1, leak: float = 0.1, calibration: Place | None = None
) -> Plan:
    from lethe.api.bounding import calibration_of
    from lethe.statistics import planning

    needed = planning.labels_for_width(width, leak, alpha)
    values: dict[str, Json] = {"alpha": alpha, "width": width, "leak": leak, "labels": needed}
    rows: list[list[object]] = [["labels of random draws of the run", needed]]
    notes = [
        f"The interval of the average leak probability is then {width:g} wide where {leak:g} of the labels are leaks, wider "
        f"where more are, each end at {alpha:g}: labels alone, no judge."
    ]
    if judge := calibration_of(calibration, "worst"):
        low, high = planning.narrowest_judged(judge, leak, alpha)
        limit = "judge" if high - low > width else "answers"
        values |= {"judged_lower": low, "judged_upper": high, "limit": limit}
        labels = judge.leaks + judge.clean
        rows.append(
            [f"width of the judged interval with {labels} labels, at best", round(high - low, 4)]
        )
        notes.append(LIMIT[limit])
    return Plan(values, (View("Labels", ["statement", "number"], rows, notes),))


def _compare(
    alpha: float = 0.05,
    difference: float = 0.1,
    power: float = 0.8,
    leak: float = 0.0,
    prompts: int = 1,
) -> Plan:
    from lethe.statistics.planning import answers_to_see

    apart, unknown = (
        answers_to_see(leak, difference, power, alpha, prompts, seeds) for seeds in (True, False)
    )
    values = {
        "alpha": alpha,
        "difference": difference,
        "power": power,
        "leak": leak,
        "prompts": prompts,
    }
    rows: list[list[object]] = [
        ["sides with seeds of their own", apart],
        ["seeds not recorded", unknown],
    ]
    note = (
        f"A question that leaks with probability {leak:g} in A and {leak + difference:g} in B is then listed as worse with "
        f"probability {power:g}, on a list of {prompts:,} that has a false entry with probability at most {alpha:g}. Sides "
        "with one seed take fewer, the fewer of their j-th answers differ; how many do is not known beforehand."
    )
    view = View("Answers to each question on each side", ["draws", "answers"], rows, [note])
    return Plan(values | {"answers_apart": apart, "answers_unknown": unknown}, (view,))


def _verdict(
    alpha: float = ALPHA,
    tau: float = 0.01,
    prompts: int = 30,
    answers: int = SAMPLE.most,
    models: int = 1,
    retrain: bool = False,
) -> Plan:
    from lethe.verdict.rules import RUNS, power

    cases = power(answers, questions=prompts, models=models, tau=tau, alpha=alpha, retrain=retrain)
    words = ("leaks", "forgot", "open")
    rows = [
        [case.name, case.wanted, *(f"{case.words[word]:.0%}" for word in words)] for case in cases
    ]
    note = (
        f"{answers:,} answers to each of {prompts:,} questions, {models:,} under test, {'one' if retrain else 'no'} Retrain, "
        f"tolerance {tau:g}, alpha {alpha:g}; {RUNS} simulated runs, seed 0. Exact bounds are not counted."
    )
    values: dict[str, Json] = {
        "n": answers,
        "questions": prompts,
        "models": models,
        "tau": tau,
        "alpha": alpha,
    }
    values |= {"retrain": retrain, "runs": RUNS, "cases": [asdict(case) for case in cases]}
    return Plan(
        values, [View("Words by sampled answers", ["model", "should be", *words], rows, [note])]
    )


def _preset(
    preset: str,
    rate: float | None = None,
    parameters: float | None = None,
    judge_rate: float | None = None,
    judge_parameters: float | None = None,
    questions: int | None = None,
) -> Plan:
    from lethe.steps.costs import ModelSize, judge_costs, model_costs, questions_of, stage_costs

    for name, value in (("rate", rate), ("judge_rate", judge_rate)):
        if value is not None and not 0 < value < math.inf:
            raise BadValue(name, value, "a number above 0")
    sizes: list[ModelSize | None] = []
    for name, value in (("parameters", parameters), ("judge_parameters", judge_parameters)):
        if value is not None and not 1 <= value < math.inf:
            raise BadValue(name, value, "a number of at least 1")
        sizes.append(None if value is None else ModelSize(int(value), 0, "bfloat16"))
    if not PRESETS.is_dir():
        raise BadInput(
            "lethe plan --preset reads flows/presets: change into a clone of the repository."
        )
    changes = {} if preset == DEFAULT else read_preset(PRESETS, preset)
    document = changed_document(changes.items(), shown_as=f"{preset}.yaml")
    params = config.validate(
        document, config.FILE if preset == DEFAULT else f"{config.FILE} with {preset}"
    )
    counts = questions_of(params, questions)
    models = model_costs(params, counts, rate, sizes[0])
    answers = sum(one["generations"] for one in models)
    seconds = [one["seconds_at_most"] for one in models if one["seconds_at_most"] is not None]
    values: dict[str, Json] = {
        "preset": preset,
        "questions": counts,
        "generations": answers,
        "tokens_at_most": sum(one["tokens_at_most"] for one in models),
        "seconds_at_most": math.fsum(seconds) if seconds else None,
        "rate_from": "given" if rate else "unknown: give --rate",
        "models": models,
        "stages": stage_costs(params, rate),
        "judges": judge_costs(params, answers, judge_rate, sizes[1]),
    }
    return Plan(values, _preset_views(values))


def _preset_views(values: Mapping[str, Json]) -> list[View]:
    asked = ", ".join(f"{split} {count:,}" for split, count in values["questions"].items())
    preset = values["preset"]
    notes = [
        f"Questions: {asked}. In all {values['generations']:,} answers, at most {values['tokens_at_most']:,} tokens.",
        f"Tokens per second: {values['rate_from']}. Time, one model after the other: "
        f"{_text('seconds', values['seconds_at_most']) or 'unknown'} at most.",
    ]
    shown = {
        "answers": "generations",
        "tokens at most": "tokens_at_most",
        "weights": "weight_bytes",
    }
    shown |= {"cache at most": "cache_bytes_at_most", "time at most": "seconds_at_most"}
    views = [_table(f"Cost of {preset}", {"model": "model", **shown}, values["models"], notes)]
    if values["judges"]:
        shown = {
            "judge": "name",
            "answers at most": "answers_at_most",
            "tokens at most": "tokens_at_most",
        }
        shown |= {"weights": "weight_bytes", "time at most": "seconds_at_most"}
        note = "Equal answers are judged once, so a run judges fewer. Time needs --judge-rate."
        views.append(_table(f"Judging of {preset}", shown, values["judges"], [note]))
    if values["stages"]:
        named = [(f"{one['stage']}@{one['name']}", one) for one in values["stages"]]
        stages = [{**one, **(one["reference"] or {}), "name": name} for name, one in named]
        shown = {
            "stage": "name",
            "trained tokens": "tokens",
            "answers": "answers",
            "time at most": "seconds",
        }
        shown |= {
            "reference": "needs",
            "frozen": "frozen_bytes",
            "cached": "cached_bytes",
            "set to": "chosen",
        }
        forms = "whole (frozen) or as values on the answers (cached)"
        note = f"Reference: what unlearn.recipe.reference keeps of the model before unlearning, {forms}."
        views.append(_table(f"Training, unlearning and attacks of {preset}", shown, stages, [note]))
    return views


def _table(title: str, shown: Mapping[str, str], entries: Sequence[Cost], notes: list[str]) -> View:
    rows = [[_text(key, one.get(key)) for key in shown.values()] for one in entries]
    return View(title, list(shown), rows, notes)


def _text(key: str, value: Json) -> Json:
    if value is not None and "seconds" in key:
        return duration(value)
    return _bytes(value) if "bytes" in key and value is not None else value


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"
