"""The commands of the studies, `lethe study NAME`: they import nothing heavy until they run."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lethe.cli.generate import JsonFlag, print_json, print_table
from lethe.errors import BadValue, check
from lethe.io.files import Json

if TYPE_CHECKING:
    from studies.blocks import BlockStudy

PRESETS = Path(__file__).parent / "presets"
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "-S", "--set", metavar="KEY=VALUE", help="Change a value for this run; repeatable."
    ),
]
KeepFlag = Annotated[
    bool, typer.Option("--keep", help="Write the outcome to studies/outcomes, to commit it.")
]
ModelFolder = Annotated[
    Path, typer.Option(help="The pretrained model's folder, SmolLM2-135M-Instruct.")
]
SMOLLM2 = Path("data/models/smollm2-135m-instruct")
WorkFolder = Annotated[Path, typer.Option(help="The folder of answers, which may be lost.")]
StepsLimit = Annotated[
    int | None, typer.Option(min=1, help="Stop after so many steps. [default: all]")
]


def register() -> None:
    """Add the games on images to the kinds that an entry of ``games`` may have."""
    from lethe.registry import GAMES
    from studies.image_game.play import KINDS

    for name, kind in KINDS.items():
        GAMES.register(name, kind)


def game(
    name: Annotated[str, typer.Argument(help="An entry of games in params.yaml, or of a preset.")],
    preset: Annotated[
        str | None, typer.Option(help="Take the game from this preset, by its name.")
    ] = None,
    keep: KeepFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Play one game outside the pipeline: its result and its own page go to data/games.

    A killed game keeps its finished models.

    Example: `lethe study game digits --preset game-digits`
    """
    from flows import settings
    from lethe import config
    from lethe.audits.unlearning_game.result import GameResult
    from lethe.config.load import read_preset
    from lethe.io.files import restored
    from stages import game as step
    from studies import outcome

    register()
    document = config.read_yaml(config.FILE)
    if preset:
        folder = PRESETS if (PRESETS / f"{preset}.yaml").is_file() else settings.PRESETS
        document["games"] = read_preset(folder, preset).get("games", {})
    games = config.validate(document).games
    if name not in games:
        where = f"preset {preset}" if preset else "params.yaml"
        legal = f"a game of {where}: {', '.join(games) or 'it has none'}"
        raise BadValue("game", name, legal, "--preset names the preset of a game.")
    from_preset = f" --preset {preset}" if preset else ""
    whole_game = games[name].model_dump(mode="json")
    of_study = outcome.Study(
        f"game-{name}",
        f"lethe study game {name}{from_preset}",
        _seeds(whole_game),
        whole_game,
        keep,
    )
    played = step.play(name, games[name])
    step.write(name, played, Path("data"))
    result = played.headline
    of_tables = {key: played.details[key] for key in ("tables", "figure") if key in played.details}
    page = Path(f"data/games/{name}/index.html")
    of_study.finish({**result, **of_tables}, [page] if page.is_file() else [])
    if as_json or "methods" not in result:
        print_json(result)
        return
    methods = restored(GameResult, played.details).methods
    ends = next(iter(methods.values())).quality.bounds()
    note = "No intervals: one model per split."
    if ends:
        note = f"ci_low to ci_high: {ends[0].guarantee()}, for each method by itself ({ends[0].method})."
    rows = []
    for method, values in methods.items():
        quality = values.quality
        low, high = quality.bounds() or (None, None)
        rows.append([method, quality.value, low, high, quality.attack, values.mia_score])
    columns = ["method", "quality", "ci_low", "ci_high", "attack", "mia_score"]
    whole = f"The whole result: data/games/{name}/index.html"
    print_table(f"Unlearning quality: {name}", columns, rows, [note, whole])


def _seeds(settings: Mapping[str, Json]) -> list[int]:
    """Every seed of a game's settings, in their order."""
    seeds: list[int] = []
    for key, value in settings.items():
        if isinstance(value, Mapping):
            seeds += _seeds(value)
        elif key == "seed":
            seeds.append(value)
    return seeds


def landscape(
    name: Annotated[
        str, typer.Argument(help="A file of studies/landscape/presets, without its ending.")
    ],
    set_: Changes = None,
    keep: KeepFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Train by epochs and by DP-SGD, several runs each, and compare Epsilon* of every model with its utility.

    Writes result.json, landscape.png and goodness-of-fit.png to data/landscapes/NAME. A killed landscape
    keeps its finished runs.

    Example: `lethe study landscape digits`

    Example: `lethe study landscape adult -S data.source=adult.csv`
    """
    from studies.landscape.study import draw, table

    result = draw(name, set_ or [], keep=keep)
    if as_json:
        print_json(result)
    else:
        print_table(*table(name, result))


def simulation(
    runs: Annotated[
        int, typer.Option(min=2, help="The number of draws of each sample size and gap.")
    ] = 10,
    sizes: Annotated[
        list[int] | None,
        typer.Option(
            "--size",
            min=10,
            help="The number of losses per side; repeatable. [default: 1000, 10000, 100000]",
        ),
    ] = None,
    delta: Annotated[
        float, typer.Option(help="The delta of Epsilon*, above 0 and under 1/2.")
    ] = 1e-5,
    components: Annotated[
        int, typer.Option(min=1, max=50, help="The largest number of Gaussians tried for Fig. 6.")
    ] = 20,
    seed: Annotated[int, typer.Option(min=0, help="The seed of all draws.")] = 0,
    out: Annotated[Path, typer.Option(help="The folder of the table and the pictures.")] = Path(
        "data/simulations/epsilon-star"
    ),
    keep: KeepFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Simulate losses from Gamma(2, 5) and Gamma(2 + gap, 5), and compare the paper's estimate of Epsilon* with the truth.

    Writes result.json and figure-3.png to figure-6.png. Fig. 6 tests the fit of Gaussian mixtures on the transformed
    losses of gap 3; `lethe study landscape` draws it for trained networks.

    Example: `lethe study epsilon-star-simulation --runs 10`
    """
    from studies.simulation import draw, table

    if not 0 < delta < 0.5:
        raise BadValue(
            "--delta",
            delta,
            "above 0 and under 1/2",
            "At delta = 0 it is infinite for any gap but 0.",
        )
    of_sizes = sorted(set(sizes or (1_000, 10_000, 100_000)))
    cells, result = draw(
        runs,
        of_sizes,
        delta,
        components,
        seed,
        out,
        keep=keep,
    )
    if as_json:
        print_json(result)
    else:
        print_table(*table(cells, runs, out))


def text_epsilon_star(
    root: Annotated[Path, typer.Option(help="The folder of the finished run.")] = Path("."),
    keep: KeepFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Compute Epsilon* of the language models of a finished `lethe run` as the paper defines it, and as Lethe does.

    The paper: the negative logit, on the whole training set. Lethe: the mean negative log-likelihood, on the forget
    set alone. The rows that no model trained on are the population of both.

    Example: `lethe study epsilon-star-text`
    """
    from studies.text_epsilon_star import LEVEL, study, table

    values = study(root, keep=keep)
    if as_json:
        print_json(values)
        return
    note = (
        f"lower: each lower end holds by itself with probability {1 - LEVEL:g}. An estimate holds with none, and where "
        "the Gaussian is rejected it says little."
    )
    print_table("Epsilon* of the models of this run", *table(values), [note])


def one_run_figures(
    figures: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FIGURE]...", help="2 to 12, or shared. [default: all]"),
    ] = None,
    keep: KeepFlag = False,
    out: Annotated[Path, typer.Option(help="The folder of the pictures.")] = Path(
        "data/studies/one-run"
    ),
    as_json: JsonFlag = False,
) -> None:
    """Draw the figures of "Tight Privacy Audit in One Run", and how often each method rejects a true null.

    Figure 6 trains networks with canaries and takes minutes; the others take seconds.

    Example: `lethe study one-run-figures 3 5 shared`
    """
    from studies.one_run.figures import FIGURES, draw

    names = figures or list(FIGURES)
    for name in names:
        check(name in FIGURES, "FIGURE", name, ", ".join(FIGURES))
    finished = []
    for name in draw(names, out, keep=keep):
        finished.append(name)
        if not as_json:
            print(f"figure {name}: {out / f'figure-{name}.png'}", flush=True)
    if as_json:
        print_json({"figures": finished, "folder": str(out)})


def theorems(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CHECK]...", help="As one-run-theorem-3. [default: all]"),
    ] = None,
    keep: KeepFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Check by numbers what the four papers prove: exact sums and simulations, the worst case that was found.

    Example: `lethe study theorems one-run-theorem-3`
    """
    from lethe.io.files import flat_numbers
    from studies import outcome
    from studies.theorems import CHECKS, SEED

    chosen = names or list(CHECKS)
    for name in chosen:
        check(name in CHECKS, "CHECK", name, ", ".join(CHECKS))
    results = {}
    for name in chosen:
        command = f"lethe study theorems {name}"
        of_study = outcome.Study(f"theorem-{name}", command, [SEED], {}, keep)
        results[name] = CHECKS[name]()
        of_study.finish(results[name])
        if not as_json:
            numbers = [[key, value] for key, value in flat_numbers(results[name]).items()]
            print_table(name, ["number", "value"], numbers)
    if as_json:
        print_json(results)


def demonstration(
    root: Annotated[Path, typer.Option(help="The folder of the finished run.")] = Path("."),
    keep: KeepFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Read from a finished `lethe run` what the probabilistic paper claims of its tables and figures.

    Nothing is drawn or trained: the models are those of params.yaml, small and from one seed.

    Example: `lethe study demonstration`
    """
    from studies.demonstration import study

    values = study(root, keep=keep)
    if as_json:
        print_json(values)
        return
    columns = ["model", "greedy", "mean", "deviation", "ED", "leaks, greedy", "leaks, sampled"]
    rows = []
    for row in values["models"]:
        means = [row[key]["mean"] for key in ("mean", "deviation", "ED")]
        leaks = [row[f"questions with a {kind} leak"] for kind in ("greedy", "sampled")]
        rows.append([row["model"], row["greedy"], *means, *leaks])
    note = "leaks: forget questions with a leak. `lethe study papers` says what the claims come to."
    print_table("The forget questions of this run", columns, rows, [note])


def sweep(
    name: Annotated[str, typer.Argument(help="A preset of lethe sweep that states claims.")],
    root: Annotated[Path, typer.Option(help="The folder of the finished sweep.")] = Path("."),
    keep: KeepFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Read from a finished `lethe sweep --preset NAME` what its claims of the probabilistic paper's figures came to.

    Nothing is drawn or trained. A claim is tested by permutations of the points, at .05.

    Example: `lethe study sweep fig-4a`
    """
    from studies.sweeps import study

    values = study(root, name, keep=keep)
    if as_json:
        print_json(values)
        return
    columns = ["claim", "Kendall's tau", "p", "points", "verdict"]
    rows = []
    for claim in values["claims"]:
        tau = claim["tau"]["mean"]
        rows.append([claim["says"], tau, claim["p"], claim["points"], claim["verdict"]])
    note = "`lethe study papers` says what the claims come to."
    print_table(f"The claims of {name}", columns, rows, [note])


def tofu_table(
    model: ModelFolder = SMOLLM2,
    data: Annotated[
        Path | None,
        typer.Option(help="TOFU's files. [default: data/tofu of LETHE_SHARED, else data/source]"),
    ] = None,
    work: Annotated[
        Path, typer.Option(help="The folder of models and answers, which may be lost.")
    ] = Path("data/studies/tofu-table-1"),
    steps: StepsLimit = None,
    plan: Annotated[bool, typer.Option("--plan", help="Name the steps that are left.")] = False,
    page: Annotated[
        Path | None, typer.Option(help="Write what came out here, as docs/tofu-table-1.md.")
    ] = None,
    keep: KeepFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Make Table 1 of the probabilistic paper with a real model and TOFU's own files, step by step.

    A step takes at most an hour of one core and writes an outcome of its own. The next start skips the steps that have
    one, and a killed step goes on where it was.

    Example: `lethe study tofu-table-1 --keep --steps 1`
    """
    import os

    from lethe.io.files import write_text
    from studies.tofu_table.design import read_design
    from studies.tofu_table.design import steps as steps_of
    from studies.tofu_table.page import page as page_of
    from studies.tofu_table.study import NAME, read_outcomes, run
    from studies.tofu_table.work import Place

    design = read_design(NAME)
    outcomes = read_outcomes(keep)
    if page:
        write_text(page, page_of(design, outcomes))
        return
    if plan:
        left = [step.name for step in steps_of(design, outcomes) if step.name not in outcomes]
        print_json({"left": left}) if as_json else print("\n".join(left))
        return
    shared = os.environ.get("LETHE_SHARED")
    tofu = data or (Path(shared, "data/tofu") if shared else Path("data/source"))
    place = Place(model.absolute(), tofu.absolute(), work.absolute())
    done = run(design, place, keep, steps)
    if as_json:
        print_json({"done": done})


def harry_potter(
    model: ModelFolder = SMOLLM2,
    data: Annotated[
        Path, typer.Option(help="The folder with hp_qa_en.csv, the 55 published questions.")
    ] = Path("data/source"),
    work: WorkFolder = Path("data/studies/harry-potter-55"),
    steps: StepsLimit = None,
    keep: KeepFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Ask the 55 published questions about Harry Potter 1,024 times each, five questions a step (Fig. 3a).

    Each step writes an outcome of its own, and the next start skips the steps that have one.

    Example: `lethe study harry-potter-55 --keep --steps 1`
    """
    from studies.harry_potter import STUDY

    _ask(STUDY, model, data, work, steps, keep, as_json)


def behaviours(
    model: ModelFolder = SMOLLM2,
    data: Annotated[
        Path,
        typer.Option(
            help="The folder with classifier_comparison.csv, JailbreakBench's labelled answers to 50 behaviours."
        ),
    ] = Path("data/source"),
    work: WorkFolder = Path("data/studies/behaviours-50"),
    steps: StepsLimit = None,
    keep: KeepFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Ask for 50 harmful behaviours 1,024 times each, two a step, by a judge whose error people's labels measure (Fig. 6).

    Each step writes an outcome of its own, and the next start skips the steps that have one.

    Example: `lethe study behaviours-50 --keep --steps 1`
    """
    from studies.behaviours import STUDY, register_judge

    register_judge()
    _ask(STUDY, model, data, work, steps, keep, as_json)


def _ask(
    study: "BlockStudy",
    model: Path,
    data: Path,
    work: Path,
    steps: int | None,
    keep: bool,
    as_json: bool,
) -> None:
    """Do the steps of a study in blocks of questions that are left."""
    from studies.blocks import Place

    place = Place(model.absolute(), data.absolute(), work.absolute())
    done = study.run(study.read_design(), place, keep, steps)
    if as_json:
        print_json({"done": done})


def canaries(
    model: ModelFolder = SMOLLM2,
    work: Annotated[Path, typer.Option(help="The folder of models, which may be lost.")] = Path(
        "data/studies/twins-canaries"
    ),
    steps: StepsLimit = None,
    page: Annotated[
        Path | None, typer.Option(help="Write what came out here, as docs/twins-canaries.md.")
    ] = None,
    figure: Annotated[Path | None, typer.Option(help="Write the picture of the page here.")] = None,
    keep: KeepFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Fine-tune a real model on drawn canaries, unlearn them, and ask what trace is left, also after attacks.

    A step makes and measures one model, and writes an outcome of its own. The next start skips the steps that have one.

    Example: `lethe study twins-canaries --keep --steps 1`
    """
    from lethe.io.files import make_folder, write_text
    from studies.canaries.design import read_design
    from studies.canaries.page import draw
    from studies.canaries.page import page as page_of
    from studies.canaries.work import Place, read_outcomes, run

    if page or figure:
        outcomes = read_outcomes(keep)
        picture = figure or Path("data/studies/twins-canaries.png")
        make_folder(picture.parent)
        draw(read_design(), outcomes, picture)
        if page:
            write_text(page, page_of(read_design(), outcomes, picture.name))
        return
    done = run(read_design(), Place(model.absolute(), work.absolute()), keep, steps)
    if as_json:
        print_json({"done": done})


def _show_page(text: str, document: Json, write: Path | None, as_json: bool) -> None:
    """Write a page of docs/ to ``write``; without it print the page, or with ``as_json`` its numbers."""
    from lethe.io.files import write_text

    if write:
        write_text(write, text)
    if as_json:
        print_json(document)
    elif not write:
        typer.echo(text)


def papers(
    write: Annotated[
        Path | None, typer.Option(help="Write the page here, as docs/papers.md.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Say of each table, figure, theorem and claim of the four papers whether it holds here, from studies/outcomes.

    Example: `lethe study papers --write docs/papers.md`
    """
    from studies.papers import as_json as as_plain
    from studies.papers import page, read

    tables = read()
    _show_page(page(tables), as_plain(tables), write, as_json)


def numbers(
    write: Annotated[
        Path | None, typer.Option(help="Write the page here, as docs/numbers.md.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """List every number by its name: what it is, its paper, its direction, and whether it has a guarantee.

    Example: `lethe study numbers --write docs/numbers.md`
    """
    from studies.numbers import as_json as as_plain
    from studies.numbers import page, read

    tables = read()
    _show_page(page(tables), as_plain(tables), write, as_json)
