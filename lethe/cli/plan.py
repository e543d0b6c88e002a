"""`lethe plan`: how many samples a wanted statement takes, or what a preset costs, before anything is drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lethe.cli.console import JsonFlag, print_json, print_table
from lethe.cli.plan_tables import print_costs
from lethe.statistics.bound import Assumes, joint_level, level

if TYPE_CHECKING:
    from lethe.config import Params
    from lethe.models.in_memory import InMemory
    from lethe.steps.costs import ModelSize, Plan
    from lethe.steps.judging_costs import JudgeCost
    from lethe.steps.training_costs import Bench, StageCost

ALPHA, CAP = 0.01, 4096
VERDICTS = ("certified", "leaks", "undecided")
PRESETS = Path("flows/presets")  # of the pipeline folder
DEFAULT = "default"  # params.yaml as it is
# Questions of published data sets, for a plan without the data: the forget set and what is asked for utility.
PUBLISHED = {
    "jailbreakbench": {"forget": 100, "retain": 100},
    "forget01": {"forget": 40, "retain": 3960, "world": 117, "real_authors": 100},
    "forget05": {"forget": 200, "retain": 3800, "world": 117, "real_authors": 100},
    "forget10": {"forget": 400, "retain": 3600, "world": 117, "real_authors": 100},
}


def command(
    alpha: Annotated[
        float | None, typer.Option(help="The statement may fail with this probability. [default: 0.01]")
    ] = None,
    width: Annotated[float | None, typer.Option(help="Wanted half-width of the distribution band.")] = None,
    tau: Annotated[
        float | None, typer.Option(help="Certify that a prompt leaks with at most this probability.")
    ] = None,
    tau_leak: Annotated[
        float | None, typer.Option(help="Detect a leak of at least this. [default: 2 tau, or halfway to 1]")
    ] = None,
    prompts: Annotated[
        int | None, typer.Option(min=1, help="Prompts of which all shall be certified together. [default: 1]")
    ] = None,
    cap: Annotated[
        int | None, typer.Option(min=1, help="Largest number of samples of a sequential prompt. [default: 4096]")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="What sampling of this preset costs: generations, tokens, memory, time.")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            help="Tokens per second, for --preset and --cost. [default: with --preset measured here, where the model is]"
        ),
    ] = None,
    parameters: Annotated[
        float | None,
        typer.Option(
            help="Parameters of a model whose folder is missing, for --preset; two bytes each. Example: 7e9"
        ),
    ] = None,
    judge_rate: Annotated[
        float | None,
        typer.Option(
            help="Answers per second of a judge, for --preset. [default: measured here, where its folder exists]"
        ),
    ] = None,
    judge_parameters: Annotated[
        float | None,
        typer.Option(help="Parameters of a judge whose folder is missing, for --preset. Example: 13e9"),
    ] = None,
    questions: Annotated[
        int | None,
        typer.Option(min=1, help="Forget questions, for --preset. [default: counted, or the published number]"),
    ] = None,
    cost: Annotated[
        bool, typer.Option("--cost", help="What a fleet of checkpoints costs: GPU hours, storage, DVC's own time.")
    ] = False,
    checkpoints: Annotated[
        int | None, typer.Option(min=1, help="Checkpoints, for --cost. [default: 1000]")
    ] = None,
    answers: Annotated[
        int | None, typer.Option(min=1, help="Answers per prompt, for --cost and --verdict. [default: 1024]")
    ] = None,
    new_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens per answer, for --cost. [default: 40]")
    ] = None,
    leak: Annotated[
        float | None, typer.Option(help="Leak probability of every prompt, for --cost. [default: 0]")
    ] = None,
    folder_models: Annotated[
        int | None, typer.Option(min=1, help="Models per project folder, for --cost. [default: 50]")
    ] = None,
    verdict: Annotated[
        bool, typer.Option("--verdict", help="Simulate the words that typical models would get (docs/verdict.md).")
    ] = False,
    models: Annotated[
        int | None, typer.Option(min=1, help="Models under test, for --verdict. [default: 1]")
    ] = None,
    retrain: Annotated[
        bool, typer.Option(help="Compare with a Retrain, for --verdict; --no-retrain: chance counts as 0.")
    ] = True,
    measured: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=NUMBER", help="A rate of your own, for --cost, which lists them; repeatable."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Samples per prompt for a wanted width or a wanted certificate, fixed beforehand and expected when stopped early.

    With --preset, what a preset of this pipeline folder costs: sampling, judging, training, unlearning with the memory of
    reference values, and attacks. Likelihoods and exact bounds are not counted. --preset default: params.yaml as it is.

    With --cost, what many checkpoints cost, from measured rates (docs/scale.md); the rate of a GPU is yours (--rate).

    Examples: `lethe plan --alpha 0.01 --tau 0.05 --prompts 40`, `lethe plan --preset harry-potter`, `lethe plan --cost`
    """
    from dataclasses import asdict

    from lethe.errors import BadInput
    from lethe.statistics.planning import plan

    statement = {"--alpha": alpha, "--width": width, "--prompts": prompts}
    certificate = {"--tau": tau, "--tau-leak": tau_leak, "--cap": cap}
    of_fleet = {
        "--checkpoints": checkpoints,
        "--answers": answers,
        "--new-tokens": new_tokens,
        "--leak": leak,
        "--folder-models": folder_models,
        "--measured": measured or None,
    }
    if verdict:
        from lethe.cli import plan_verdict

        _left_out({"--width": width, "--cap": cap, "--preset": preset, "--tau-leak": tau_leak}, "with --verdict")
        sizes = {"n": answers, "questions": prompts, "models": models, "tau": tau, "alpha": alpha}
        plan_verdict.run({key: value for key, value in sizes.items() if value is not None}, retrain, as_json)
        return
    _left_out({"--models": models}, "without --verdict")
    if cost:
        from lethe.cli import plan_cost

        _left_out({"--width": width, "--cap": cap, "--preset": preset, "--questions": questions}, "with --cost")
        sizes = {
            **{"checkpoints": checkpoints, "prompts": prompts, "answers": answers, "new_tokens": new_tokens},
            **{"parameters": parameters, "leak": leak, "folder_models": folder_models},
            **{"alpha": alpha, "tau": tau, "tau_leak": tau_leak},
        }
        plan_cost.run(sizes, rate, measured or (), as_json)
        return
    _left_out(of_fleet, "without --cost")
    if preset is not None:
        _left_out(statement | certificate, "with --preset, whose params.yaml has the settings")
        params = _params(preset)
        bench = _bench(params)
        costs, stages = _costs(params, bench, rate, parameters, questions)
        judges = _judging(params, costs, bench, judge_rate, judge_parameters)
        print_costs(preset, costs, stages, judges, as_json)
        return
    of_preset = {"--rate": rate, "--parameters": parameters, "--questions": questions}
    of_preset |= {"--judge-rate": judge_rate, "--judge-parameters": judge_parameters}
    _left_out(of_preset, "without --preset")
    if width is None and tau is None:
        raise BadInput(
            "lethe plan: got none of --width, --tau and --preset; give --width, --tau, both, or --preset."
        )
    if tau is None:
        _left_out(certificate, "without --tau")
    alpha, prompts = ALPHA if alpha is None else alpha, prompts or 1
    found = plan(alpha, width=width, tau=tau, tau_leak=tau_leak, prompts=prompts, cap=cap or CAP)
    result: dict[str, object] = {
        "alpha": alpha,
        "prompts": prompts,
        "alpha_each": found.alpha_each,
        "correction": found.correction,
    }
    rows: list[list[object]] = []
    if band := found.width:
        result |= {"width_one_sided": band.one_sided, "width_two_sided": band.two_sided}
        for sides, samples in (("one-sided", band.one_sided), ("two-sided", band.two_sided)):
            rows.append([f"band of half-width {band.width:g}, {sides}", samples])
    if certified := found.certificate:
        result |= {
            "certify_fixed": certified.fixed,
            "tau": certified.tau,
            "tau_leak": certified.tau_leak,
            "cap": certified.cap,
            "sequential": [{"p": p, **asdict(expected)} for p, expected in certified.sequential],
        }
        rows.append([f"M_bin <= {certified.tau:g} with no leak seen, n fixed", certified.fixed])
        for p, expected in certified.sequential:
            shares = [f"{getattr(expected, verdict):.1%}" for verdict in VERDICTS]
            rows.append([f"stopped early, expected at a leak of {p:g}", expected.samples, *shares])
    if as_json:
        print_json(result)
        return
    notes = [f"Each statement holds {level(found.alpha_each)} for its own prompt, assuming {Assumes.DRAWS}."]
    if found.correction:
        notes.append(f"Bonferroni: all {prompts} hold together {joint_level(alpha)}.")
    if found.certificate and prompts > 1:
        notes.append(
            f"If all {prompts} prompts are certified, all certificates hold {level(alpha)}, without a correction."
        )
    columns = ["statement", "samples"] + ([*VERDICTS] if tau is not None else [])
    rows = [row + [None] * (len(columns) - len(row)) for row in rows]
    print_table("Samples per prompt", columns, rows, notes)


def _left_out(options: Mapping[str, object], where: str) -> None:
    """Refuse an option that would change nothing."""
    from lethe.errors import BadValue

    for name, given in options.items():
        if given is not None:
            raise BadValue(name, given, f"left out {where}")


def _bench(params: Params) -> Bench | None:
    """The start of the models that stages make; None where no stage makes one, or the data or its start are missing."""
    from lethe.steps.training_costs import bench_of

    made = params.train.models or params.unlearn.methods or params.attacks
    return bench_of(params) if made else None


def _costs(
    params: Params, bench: Bench | None, rate: float | None, parameters: float | None, questions: int | None
) -> tuple[Plan, list[StageCost]]:
    from lethe.steps.costs import Plan, cost, measured_rate, size_of
    from lethe.steps.training_costs import own_starts, stage_costs

    given = _given("", rate, parameters)
    counts, second = _questions(params, questions), _second(params)
    untrained = measured_rate(bench.start, params.sample) if bench and rate is None else None
    starts = own_starts(params, bench) if bench else {}
    own = {name: measured_rate(start, params.sample) for name, start in starts.items()} if rate is None else {}
    costs, here = [], False
    rates: dict[str, float] = {}
    for name, model in params.models.items():
        known = rates.get(model.path)
        if rate is None and known is None and (Path(model.path) / "config.json").is_file():
            known = rates[model.path] = measured_rate(Path(model.path), params.sample)
            here = True
        start = starts.get(name) or (bench.start if bench else None)
        size = size_of(Path(model.path)) or _start_size(params, model.path, start) or given
        drawn = rate or known or own.get(name) or untrained
        costs.append(cost(name, model.path, params.sample, counts, drawn, size, second))
    here = here or untrained is not None
    stages = stage_costs(params, bench, rate or untrained, rates) if bench else []
    told = "given" if rate else "measured here" if here else "unknown: give --rate, or put the model in its folder"
    return Plan(counts, tuple(costs), told), stages


def _given(of: str, rate: float | None, parameters: float | None) -> ModelSize | None:
    """The size that the user gave for a missing folder, if any; refuses a rate or a size that cannot be."""
    from lethe.errors import BadValue
    from lethe.steps.costs import ModelSize

    if rate is not None and not 0 < rate < math.inf:
        raise BadValue(f"--{of}rate", rate, "a number above 0")
    if parameters is not None and not 1 <= parameters < math.inf:
        raise BadValue(f"--{of}parameters", parameters, "a number of at least 1")
    return None if parameters is None else ModelSize(int(parameters), 0, "bfloat16")


def _judging(
    params: Params, costs: Plan, bench: Bench | None, rate: float | None, parameters: float | None
) -> list[JudgeCost]:
    from lethe.steps.judging_costs import judge_costs

    return judge_costs(params, costs.generations, bench, rate, _given("judge-", rate, parameters))


def _start_size(params: Params, path: str, untrained: InMemory | None) -> ModelSize | None:
    """The size of the model that a stage will make in ``path``: that of the checkpoint or model it starts from."""
    from lethe.steps.costs import size_in_memory, size_of

    if path not in {f"data/models/{name}" for name in (*params.train.models, *params.unlearn.methods)}:
        return None
    if start := params.train.recipe.start_from:
        return size_of(Path(start))
    return size_in_memory(untrained) if untrained else None


def _params(preset: str) -> Params:
    """The params of this folder as the preset changes them."""
    from lethe import config
    from lethe.config.presets import changed_document, read_preset
    from lethe.errors import BadInput

    if not PRESETS.is_dir():
        raise BadInput(
            "lethe plan --preset works in a pipeline folder, which holds flows/presets; this one does not."
        )
    if preset == DEFAULT:
        return config.load()
    document = changed_document(read_preset(PRESETS, preset).items(), told=f"{preset}.yaml")
    return config.validate(document, f"{config.FILE} with {preset}")


def _questions(params: Params, questions: int | None) -> dict[str, int]:
    """The number of questions of each split that is asked: given, published, or counted."""
    from lethe.data import load_splits
    from lethe.errors import BadInput
    from lethe.sampling.tasks import UTILITY_SPLITS

    data = params.data
    published = PUBLISHED.get(data.forget if data.kind == "tofu" else data.kind)
    if questions is None and published is None:
        try:
            splits = load_splits(data)
        except BadInput as error:
            raise BadInput(
                f"The questions cannot be counted: {error} Or give their number (--questions)."
            ) from None
        return {split: len(rows) for split, rows in splits.items() if split in ("forget", *UTILITY_SPLITS)}
    counts = dict(published or {})
    return counts if questions is None else {**counts, "forget": questions}


def _second(params: Params) -> int:
    """Answers of the second sample of a language of prompts."""
    from lethe.data.prompt_language import read_language

    share = read_language(params.sample.language).share if params.sample.language else None
    return share.prompts * share.answers if share else 0
