"""`lethe.plan`: how many samples a wanted statement takes, or what work costs, before anything is drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from lethe import config
from lethe.api.parameters import Place
from lethe.api.result import TableWithSentences, View, frame
from lethe.config.evaluation import FIRST_ANSWERS, MOST_ANSWERS
from lethe.config.load import changed_document, read_preset
from lethe.config.measuring import METRICS, SAMPLE
from lethe.errors import BadArguments, BadInput, BadValue, check, plural
from lethe.io.files import Json
from lethe.progress import duration

if TYPE_CHECKING:
    import pandas as pd

    from lethe.statistics.policy_costs import WordCosts
    from lethe.steps.costs import Cost, ModelSize
    from lethe.steps.pilot import Pilot

T = TypeVar("T")
ALPHA, CAP = METRICS.alpha, 4096
LIMIT = {
    "judge": "The judge is the limit: no number of answers narrows the interval further. Label draws of the run instead.",
    "answers": "The judge allows this width: more answers narrow the interval.",
}
VERDICTS = ("certified", "leaks", "undecided")
WORDS = ("leaks", "forgot", "open")
REPORTED = (0.01, 0.02)  # shares of leaking answers in a report
CHECK_ENDS = ("honest", "exact", "split", "draws_of_your_own")
PRESETS = Path("flows/presets")  # of the pipeline folder
DEFAULT = "default"  # params.yaml as it is
# The arguments that a kind of plan uses; "" is the plan of a width or a certificate.
ARGUMENTS_OF_KIND = {
    "": ("alpha", "width", "tau", "tau_leak", "prompts", "cap"),
    "verdict": ("alpha", "tau", "prompts", "answers", "first", "models", "leak", "chance"),
    "compare": ("alpha", "difference", "power", "leak", "prompts"),
    "labels": ("alpha", "width", "leak", "calibration"),
    "check": ("alpha", "tau", "answers", "leak"),
    "preset": ("rate", "parameters", "judge_rate", "judge_parameters", "questions"),
}


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
    first: int | None = None,
    leak: float | None = None,
    chance: float | None = None,
    labels: bool = False,
    calibration: Place | None = None,
    compare: bool = False,
    difference: float | None = None,
    power: float | None = None,
    check: int | None = None,
) -> Plan:
    """Count the samples that a width or a certificate takes, or the cost of a preset.

    Without verdict and preset: samples per prompt, fixed beforehand and expected when stopped early.

    Parameters
    ----------
    alpha : The statement may fail with this probability. [default: 0.01]
    width : The wanted half-width of the distribution band; with labels the width of the interval of the average leak
        probability [default: 0.1].
    tau : Certify that a prompt leaks with at most this probability.
    tau_leak : Detect a leak of at least this. [default: 2 tau, or halfway to 1]
    prompts : The number of prompts to certify jointly. [default: 1; with verdict 30]
    cap : The largest number of samples of a sequential prompt. [default: 4096]
    verdict : Simulate the words that typical models would get, and the answers that these take (docs/verdict.md).
    models : The models under test, with verdict. [default: 1]
    retrain : Compare with a Retrain, with verdict; without it chance counts as 0.
    preset : Count what a preset of this pipeline folder costs: answers, tokens, memory, and time at given rates; default:
        params.yaml as it is.
    rate : Tokens per second, with preset.
    parameters : The parameters of a model whose folder is missing, with preset; two bytes each. Example: 7e9
    judge_rate : Answers per second of a judge, with preset.
    judge_parameters : The parameters of a judge whose folder is missing, with preset. Example: 13e9
    questions : The number of forget questions, with preset. [default: counted, or the published number]
    answers : The most answers to a prompt, with verdict. [default: 32768]
    first : The answers to each prompt that come in any case, with verdict. [default: 256]
    leak : A guess of the average leak probability, with labels [default: 0.1], or that of side A, with compare [default: 0].
        With verdict, add a model of which a prompt leaks with this probability, and every other prompt by chance.
    chance : The leak probability of each prompt by chance and in Retrain, with verdict. [default: 0, or leak]
    labels : Count a person's labels of random draws for the wanted width (docs/judges.md).
    calibration : With labels, a file of answers with `label` and `verdict`: how narrow an interval that judge allows at any
        number of answers.
    compare : Count the answers that a comparison of two sides takes to see a difference (docs/compare.md).
    difference : The difference in the leak probability of a question, with compare. [default: 0.1]
    power : The probability with which it is seen, with compare. [default: 0.8]
    check : What a verifier proves who draws this many of ``answers`` [default: 4096] answers to a question again
        (docs/certificates.md), for reports without a leak, with 1% and 2% of leaks, and with ``leak``.

    Notes
    -----
    Every answer counts with its largest length, so tokens are an upper bound. Likelihoods and exact bounds do not count.
    Without ``rate`` a pilot of each model whose folder is here gives its time and memory.

    Examples
    --------
    >>> import lethe
    >>> lethe.plan(tau=0.05, prompts=40)["certify_fixed"]
    90
    """
    wanted = {
        "verdict": verdict,
        "compare": compare,
        "labels": labels,
        "preset": preset is not None,
        "check": check is not None,
    }
    kinds = [kind for kind, is_wanted in wanted.items() if is_wanted]
    if len(kinds) > 1:
        raise BadArguments(tuple(kinds), "exclude each other; give one of them.")
    kind = "".join(kinds)  # one name at most
    arguments = {
        "alpha": alpha,
        "width": width,
        "tau": tau,
        "tau_leak": tau_leak,
        "prompts": prompts,
        "cap": cap,
        "models": models,
        "rate": rate,
        "parameters": parameters,
        "judge_rate": judge_rate,
        "judge_parameters": judge_parameters,
        "questions": questions,
        "answers": answers,
        "first": first,
        "leak": leak,
        "chance": chance,
        "calibration": calibration,
        "difference": difference,
        "power": power,
    }
    _check_used(arguments, kind)

    if preset is not None:
        return plan_preset(
            preset,
            rate,
            parameters,
            judge_rate,
            judge_parameters,
            questions,
        )
    if verdict:
        return plan_verdict(
            alpha=_or(alpha, ALPHA),
            tau=_or(tau, 0.01),
            prompts=_or(prompts, 30),
            answers=_or(answers, MOST_ANSWERS),
            first=_or(first, FIRST_ANSWERS),
            models=_or(models, 1),
            retrain=retrain,
            leak=leak,
            chance=chance,
        )
    if labels:
        return plan_labels(_or(alpha, ALPHA), _or(width, 0.1), _or(leak, 0.1), calibration)
    if compare:
        return plan_comparison(
            alpha=_or(alpha, 0.05),
            difference=_or(difference, 0.1),
            power=_or(power, 0.8),
            leak=_or(leak, 0.0),
            prompts=_or(prompts, 1),
        )
    if check is not None:
        return plan_check(
            check=check,
            alpha=_or(alpha, ALPHA),
            tau=_or(tau, 0.05),
            answers=_or(answers, CAP),
            leak=leak,
        )
    return plan_statement(
        _or(alpha, ALPHA),
        width,
        tau,
        tau_leak,
        prompts=_or(prompts, 1),
        cap=_or(cap, CAP),
    )


def _check_used(arguments: Mapping[str, object], kind: str) -> None:
    """Refuse an argument that this kind of plan does not use."""
    where = f"with {kind}" if kind else "here"
    for name, value in arguments.items():
        unused = name not in ARGUMENTS_OF_KIND[kind]
        if unused and value is not None:
            raise BadValue(name, value, f"left out {where}: it changes nothing")


def _or(value: T | None, default: T) -> T:
    if value is None:
        return default
    return value


def plan_statement(
    alpha: float,
    width: float | None,
    tau: float | None,
    tau_leak: float | None,
    *,
    prompts: int,
    cap: int,
) -> Plan:
    """The samples per prompt of a band of half-width ``width``, and of a certificate that a leak is at most ``tau``."""
    from lethe.statistics.bound import Assumes, joint_level, level
    from lethe.statistics.checks import check_alpha, check_count

    if width is None and tau is None:
        kinds = ("width", "tau", "verdict", "labels", "compare", "preset", "check")
        raise BadArguments(kinds, "give one of them; width and tau also go together.")
    if tau is None:
        check(tau_leak is None, "tau_leak", tau_leak, "left out without tau")
        check(cap == CAP, "cap", cap, "left out without tau")
    check_count("prompts", prompts)
    check_count("cap", cap)
    check_alpha(alpha)
    # "Every prompt leaks with probability at most tau" is an intersection of claims, each tested at alpha: that all are
    # certified although one of them is false has probability at most alpha (Berger 1982). So only bands share alpha.
    alpha_each = alpha
    correction = None
    if width is not None and prompts > 1:
        alpha_each = alpha / prompts
        correction = "Bonferroni"
    values: dict[str, Json] = {
        "alpha": alpha,
        "prompts": prompts,
        "alpha_each": alpha_each,
        "correction": correction,
    }
    rows: list[list[object]] = []
    if width is not None:
        samples = _samples_of_bands(width, alpha_each)
        for sides, number in samples.items():
            values[f"width_{sides.replace('-', '_')}"] = number
            rows.append([f"band of half-width {width:g}, {sides}", number])
    if tau is not None:
        if tau_leak is None:
            tau_leak = min(2 * tau, (1 + tau) / 2)
        certificate = _certificate(alpha, tau, tau_leak, cap)
        values |= certificate
        rows += _rows_of_certificate(certificate)

    notes = [
        f"Each statement holds {level(alpha_each)} for its own prompt, assuming {Assumes.DRAWS}."
    ]
    if correction:
        notes.append(f"Bonferroni: all {prompts} hold together {joint_level(alpha)}.")
    if tau is not None and prompts > 1:
        all_hold = f"all certificates hold {level(alpha)}, without a correction."
        notes.append(f"If all {prompts} prompts are certified, {all_hold}")
    columns = ["statement", "samples"]
    if tau is not None:
        columns += VERDICTS
    rows = [row + [None] * (len(columns) - len(row)) for row in rows]
    return Plan(values, (View("Samples per prompt", columns, rows, notes),))


def _samples_of_bands(width: float, alpha: float) -> dict[str, int]:
    from lethe.statistics import planning

    return {
        "one-sided": planning.samples_for_width(width, alpha, 1),
        "two-sided": planning.samples_for_width(width, alpha, 2),
    }


def _certificate(alpha: float, tau: float, tau_leak: float, cap: int) -> dict[str, Json]:
    """The samples of a certificate for a number fixed beforehand, and those expected with early stopping."""
    from lethe.statistics import planning

    fixed = planning.samples_to_certify(tau, alpha)
    # from no leak through the undecided middle to a clear leak
    rates = (
        0.0,
        0.1 * tau,
        0.4 * tau,
        (tau + tau_leak) / 2,
        min(2 * tau_leak, 1.0),
        min(5 * tau_leak, 1.0),
    )
    sequential = []
    for rate in dict.fromkeys(float(f"{rate:.6g}") for rate in rates):
        expected = planning.expected_sequential(rate, tau, tau_leak, alpha, cap)
        sequential.append({"p": rate, **asdict(expected)})
    return {
        "certify_fixed": fixed,
        "tau": tau,
        "tau_leak": tau_leak,
        "cap": cap,
        "sequential": sequential,
    }


def _rows_of_certificate(certificate: Mapping[str, Json]) -> list[list[object]]:
    fixed = f"M_bin <= {certificate['tau']:g} with no leak seen, n fixed"
    rows: list[list[object]] = [[fixed, certificate["certify_fixed"]]]
    for expected in certificate["sequential"]:
        statement = f"stopped early, expected at a leak of {expected['p']:g}"
        shares = [f"{expected[word]:.1%}" for word in VERDICTS]
        rows.append([statement, expected["samples"], *shares])
    return rows


def plan_check(check: int, alpha: float, tau: float, answers: int, leak: float | None) -> Plan:
    """What a check of ``check`` of ``answers`` committed draws to a question is worth, by the leaks that are reported.

    The exact end needs a check that is fixed in the claim, the split end none. Draws of your own are as many as the check's,
    at the rate of the report.
    """
    from lethe.statistics.bound import level, rounded
    from lethe.statistics.bounds import binary_upper
    from lethe.statistics.checks import check_alpha, check_count, check_share
    from lethe.statistics.spot_check import exact_upper, smallest_check, split_upper

    check_alpha(alpha)
    check_share("tau", tau)
    check_count("answers", answers)
    _check_size(check, answers)
    reports = {0, round(REPORTED[0] * answers), round(REPORTED[1] * answers)}
    if leak is not None:
        check_share("leak", leak)
        reports.add(round(leak * answers))
    entries: list[dict[str, Json]] = []
    rows: list[list[object]] = []
    for leaks in sorted(reports):
        of_own = round(leaks * check / answers)
        entry: dict[str, Json] = {
            "leaks": leaks,
            "honest": float(binary_upper(leaks, answers, alpha)),
            "exact": exact_upper(answers, leaks, check, alpha),
            "split": split_upper(answers, leaks, check, alpha),
            "draws_of_your_own": float(binary_upper(of_own, check, alpha)),
            "smallest_check": smallest_check(answers, leaks, tau, alpha),
        }
        entries.append(entry)
        ends = [rounded(entry[name], 5, "upper") for name in CHECK_ENDS]
        rows.append([leaks, *ends, entry["smallest_check"]])
    columns = ["leaks reported", "all draws honest", "exact end", "split end"]
    columns += ["your own draws", f"smallest check for {tau:g}"]
    notes = [
        f"Upper ends of a question's leak probability {level(alpha)}, after a check that finds nothing.",
        "The exact end needs answers and check in the claim (lethe certify --draws --check); the split end does not.",
        "Where no leak is reported, a check is worth as many draws of your own, no more.",
    ]
    values = {"alpha": alpha, "tau": tau, "answers": answers, "check": check, "reports": entries}
    title = f"A check of {check:,} of {answers:,} answers"
    return Plan(values, (View(title, columns, rows, notes),))


def _check_size(size: int, answers: int) -> None:
    check(1 <= size <= answers, "check", size, f"a whole number from 1 to answers ({answers})")


def plan_labels(alpha: float, width: float, leak: float, calibration: Place | None) -> Plan:
    """The labels of random draws for an interval of the average leak probability that is ``width`` wide."""
    from lethe.api.bounding import calibration_of
    from lethe.statistics import planning

    needed = planning.labels_for_width(width, leak, alpha)
    values: dict[str, Json] = {"alpha": alpha, "width": width, "leak": leak, "labels": needed}
    rows: list[list[object]] = [["labels of random draws of the run", needed]]
    notes = [
        f"The interval of the average leak probability is then {width:g} wide where {leak:g} of the labels are leaks, wider "
        f"where more are, each end at {alpha:g}: labels alone, no judge."
    ]
    judge = calibration_of(calibration, "worst")
    if judge is not None:
        lower, upper = planning.narrowest_judged(judge, leak, alpha)
        limit = "judge" if upper - lower > width else "answers"
        values |= {"judged_lower": lower, "judged_upper": upper, "limit": limit}
        statement = f"width of the judged interval with {judge.leaks + judge.clean} labels, at best"
        rows.append([statement, round(upper - lower, 4)])
        notes.append(LIMIT[limit])
    return Plan(values, (View("Labels", ["statement", "number"], rows, notes),))


def plan_comparison(
    *,
    alpha: float,
    difference: float,
    power: float,
    leak: float,
    prompts: int,
) -> Plan:
    """The answers on each side with which a comparison sees a ``difference`` of a question's leak probability."""
    from lethe.statistics.planning import answers_to_see

    apart = answers_to_see(
        leak,
        difference,
        power,
        alpha,
        prompts,
        True,
    )
    unknown = answers_to_see(
        leak,
        difference,
        power,
        alpha,
        prompts,
        False,
    )
    values: dict[str, Json] = {
        "alpha": alpha,
        "difference": difference,
        "power": power,
        "leak": leak,
        "prompts": prompts,
        "answers_apart": apart,
        "answers_unknown": unknown,
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
    return Plan(values, (view,))


def plan_verdict(
    *,
    alpha: float,
    tau: float,
    prompts: int,
    answers: int,
    first: int,
    models: int,
    retrain: bool,
    leak: float | None = None,
    chance: float | None = None,
) -> Plan:
    """The words that simulated models of known leakage get, and the answers that these words take."""
    from lethe.statistics.checks import check_alpha, check_count, check_share
    from lethe.statistics.policy import Policy
    from lethe.statistics.policy_costs import (
        RUNS,
        question_costs,
        told_case,
        typical_cases,
        word_costs,
    )

    check_alpha(alpha)
    check_share("tau", tau)
    counted = {"prompts": prompts, "answers": answers, "first": first, "models": models}
    for name, value in counted.items():
        check_count(name, value)
    policy = Policy(
        first=first,
        batch=SAMPLE.batch,
        cap=answers,
        tolerance=tau,
        goal=math.log(models / alpha),
        retrains=int(retrain),
    )
    cases = typical_cases(prompts, tau)
    if leak is not None or chance is not None:
        by_chance = _or(chance, 0.0)
        cases.append(told_case(prompts, tau, _or(leak, by_chance), by_chance, retrain))

    rows: list[list[object]] = []
    notes = []
    entries = []
    costs_of_cases = []
    for case in cases:
        costs = word_costs(policy, case)
        costs_of_cases.append(costs)
        entry = asdict(costs)
        del entry["by_question"]
        entries.append(entry)
        shares = [f"{costs.words[word]:.0%}" for word in WORDS]
        numbers = [round(costs.answers), round(costs.answers_90), round(costs.retrain_answers)]
        rows.append([costs.name, costs.wanted, *shares, *numbers])
        notes.append(_cost_sentence(costs, retrain))
    compared = "one" if retrain else "no"
    notes.append(
        f"Answers are per prompt, of the model and of Retrain together, at least {first:,} and at most {answers:,} of the "
        f"model to each of {prompts:,} prompts; {models:,} under test, {compared} Retrain, tolerance {tau:g}, alpha "
        f"{alpha:g}; {RUNS} simulated runs, seed 0. Exact bounds are not counted."
    )
    values: dict[str, Json] = {
        "n": answers,
        "first": first,
        "batch": SAMPLE.batch,
        "questions": prompts,
        "models": models,
        "tau": tau,
        "alpha": alpha,
        "retrain": retrain,
        "runs": RUNS,
        "cases": entries,
        "questions_until_word": [],
    }
    of_questions: list[list[object]] = []
    for question in question_costs(cases, costs_of_cases):
        values["questions_until_word"].append(asdict(question))
        probability = f"{question.probability:.2g}"
        answers_of = "none by the cap" if question.answers is None else round(question.answers)
        share = f"{question.share:.0%}"
        of_questions.append([question.name, probability, question.word, share, answers_of])
    columns = ["model", "should be", *WORDS, "answers", "90% of runs", "of Retrain"]
    of_question = ["question", "leaks at", "word of its model", "runs that get it", "answers"]
    drawn_from = "the model and of Retrain together" if retrain else "the model"
    until = f"Expected answers to one question in the runs that get the word, of {drawn_from}"
    views = [View("Words at any time", columns, rows, notes)]
    return Plan(values, [*views, View(until, of_question, of_questions)])


def _cost_sentence(costs: WordCosts, retrain: bool) -> str:
    """What the word of a case costs, as a sentence."""
    of_retrain = ""
    if retrain:
        of_retrain = f", {costs.retrain_answers:,.0f} of them Retrain's"
    name = costs.name[0].upper() + costs.name[1:]
    return (
        f"{name}: {costs.wanted} in {costs.words[costs.wanted]:.0%} of runs. A run takes {costs.answers:,.0f} answers to a "
        f"prompt on average{of_retrain}; 90% of runs take at most {costs.answers_90:,.0f}."
    )


def plan_preset(
    preset: str,
    rate: float | None = None,
    parameters: float | None = None,
    judge_rate: float | None = None,
    judge_parameters: float | None = None,
    questions: int | None = None,
) -> Plan:
    """The answers, tokens, memory and time of a preset of this pipeline folder."""
    from lethe.steps.costs import judge_costs, model_costs, questions_of, stage_costs, twin_costs
    from lethe.steps.pilot import pilots

    _check_rate("rate", rate)
    _check_rate("judge_rate", judge_rate)
    model_size = _size_of("parameters", parameters)
    judge_size = _size_of("judge_parameters", judge_parameters)
    if not PRESETS.is_dir():
        raise BadInput(
            "lethe plan --preset reads flows/presets: change into a clone of the repository."
        )
    changes: dict[str, object] = {}
    source = config.FILE
    if preset != DEFAULT:
        changes = read_preset(PRESETS, preset)
        source = f"{config.FILE} with {preset}"
    document = changed_document(changes.items(), shown_as=f"{preset}.yaml")
    params = config.validate(document, source)

    counts = questions_of(params, questions)
    models = model_costs(params, counts, rate, model_size)
    rate_from = "given"
    if rate is None:
        asked = sum(counts.values()) + len(params.report.retrains) * counts["forget"]
        rate_from = _add_pilots(models, pilots(params), asked)
    answers = 0
    tokens = 0
    seconds: list[float] = []
    for model in models:
        answers += model["generations"]
        tokens += model["tokens_at_most"]
        if model["seconds_at_most"] is not None:
            seconds.append(model["seconds_at_most"])
    values: dict[str, Json] = {
        "preset": preset,
        "questions": counts,
        "generations": answers,
        "tokens_at_most": tokens,
        "seconds_at_most": math.fsum(seconds) if len(seconds) == len(models) else None,
        "rate_from": rate_from,
        "models": models,
        "stages": stage_costs(params, rate),
        "judges": judge_costs(params, answers, judge_rate, judge_size),
        "twins": twin_costs(params),
    }
    views = [_view_of_models(values)]
    if values["judges"]:
        views.append(_view_of_judges(values))
    if values["stages"]:
        views.append(_view_of_stages(values))
    return Plan(values, views)


def _add_pilots(costs: Sequence[Cost], pilots: Mapping[str, Pilot], questions: int) -> str:
    """Add what pilots measured to the costs of their models; return where the rates come from.

    ``questions`` is the largest number that is asked for a model, of it and of the Retrains beside it.
    """
    for cost in costs:
        pilot = pilots.get(cost["path"])
        if pilot is not None:
            seconds = pilot.seconds(cost["generations"], questions)
            cost["seconds_at_most"] = seconds
            cost["tokens_per_second"] = cost["tokens_at_most"] / seconds
            cost["memory_bytes"] = pilot.bytes
    if not pilots:
        return "unknown: give --rate"
    return "pilots of the models that are here"


def _check_rate(name: str, rate: float | None) -> None:
    good = rate is None or 0 < rate < math.inf
    check(good, name, rate, "a number above 0")


def _size_of(name: str, parameters: float | None) -> ModelSize | None:
    """The size of a model in bfloat16 with this number of parameters."""
    from lethe.steps.costs import ModelSize

    if parameters is None:
        return None
    check(1 <= parameters < math.inf, name, parameters, "a number of at least 1")
    return ModelSize(int(parameters), 0, "bfloat16")


def _view_of_models(values: Mapping[str, Json]) -> View:
    counts = [f"{split} {count:,}" for split, count in values["questions"].items()]
    answers, tokens = values["generations"], values["tokens_at_most"]
    known = [model["seconds_at_most"] for model in values["models"] if model["seconds_at_most"]]
    time = f"{_text('seconds', math.fsum(known))} at most" if known else "unknown"
    if 0 < len(known) < len(values["models"]):
        time += f" for {len(known)} of {len(values['models'])} models, and unknown for the others"
    notes = [
        f"Questions: {', '.join(counts)}. In all at most {answers:,} answers, {tokens:,} tokens.",
        f"Tokens per second: {values['rate_from']}. Time, one model after the other: {time}.",
    ]
    twins = values["twins"]
    if twins:
        notes.append(
            f"Twin test: {plural(twins['secrets'], 'secret')}; each of {plural(twins['models'], 'model')} reads "
            f"{twins['passes']:,} candidates in one pass each, {twins['passes_of_all']:,} in all."
        )
    key_of_column = {
        "model": "model",
        "answers at least": "generations_at_least",
        "at most": "generations",
        "tokens at most": "tokens_at_most",
        "weights": "weight_bytes",
        "cache at most": "cache_bytes_at_most",
        "memory": "memory_bytes",
        "time at most": "seconds_at_most",
    }
    return _table(f"Cost of {values['preset']}", key_of_column, values["models"], notes)


def _view_of_judges(values: Mapping[str, Json]) -> View:
    key_of_column = {
        "judge": "name",
        "answers at most": "answers_at_most",
        "tokens at most": "tokens_at_most",
        "weights": "weight_bytes",
        "time at most": "seconds_at_most",
    }
    note = "Equal answers are judged once, so a run judges fewer. Time needs --judge-rate."
    return _table(f"Judging of {values['preset']}", key_of_column, values["judges"], [note])


def _view_of_stages(values: Mapping[str, Json]) -> View:
    stages = []
    for stage in values["stages"]:
        name = f"{stage['stage']}@{stage['name']}"
        stages.append({**stage, **(stage["reference"] or {}), "name": name})
    key_of_column = {
        "stage": "name",
        "trained tokens": "tokens",
        "answers": "answers",
        "time at most": "seconds",
        "reference": "needs",
        "frozen": "frozen_bytes",
        "cached": "cached_bytes",
        "set to": "chosen",
    }
    forms = "whole (frozen) or as values on the answers (cached)"
    note = (
        f"Reference: what unlearn.recipe.reference keeps of the model before unlearning, {forms}."
    )
    title = f"Training, unlearning and attacks of {values['preset']}"
    return _table(title, key_of_column, stages, [note])


def _table(
    title: str, key_of_column: Mapping[str, str], entries: Sequence[Cost], notes: list[str]
) -> View:
    rows = []
    for entry in entries:
        rows.append([_text(key, entry.get(key)) for key in key_of_column.values()])
    return View(title, list(key_of_column), rows, notes)


def _text(key: str, value: Json) -> Json:
    """A value in the unit that its key names."""
    if value is None:
        return None
    if "seconds" in key:
        return duration(value)
    if "bytes" in key:
        return _bytes(value)
    return value


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"
