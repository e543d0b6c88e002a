"""The JSON of the commands: each function is a view of the rows that the same call writes, and computes nothing.

The keys that other people's checks read stand here and in the vocabulary (`lethe.results.quantities`), nowhere else.
Every function takes the rows of a command's result, in the order in which they were made, and returns a document of plain
JSON values. A number that a row lacks is null.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from functools import wraps
from itertools import combinations

from lethe.io.files import Json
from lethe.results.quantities import MODEL, access_of
from lethe.results.table import Numbers, Result, Results
from lethe.results.trace import document
from lethe.statistics.answer_tree import Masses

Document = dict[str, Json]
INTERVAL = ("lower", "upper")
ENDS = ("estimate", *INTERVAL)
# The numbers with which an entry of `bounds` begins, null where a prompt lacks them; its further numbers follow.
FIRST = (
    "n",
    "mean",
    "sd",
    "max",
    "ed_score",
    "missing",
    "m_bin",
    "m_bin_lower",
    "m_mu",
    "m_mu_lower",
    "m_sigma",
)
# Quantities of a prompt whose numbers stand in a part of its entry or of the document, or are its mean and counts.
IN_PARTS = (
    "leak",
    "leaks",
    "unjudged",
    "score_betting",
    "sd_betting",
    "exceedance_method",
    "leak_together",
    "certified_together",
)
STOPPED = ("anytime_upper", "anytime_lower", "anytime_sd_upper")
TIGHTER = ("mean_upper", "mean_lower", "sd_upper")
# Facts of the settings that `bounds` states.
RECORDED = ("fixed_bounds", "log", "understood", "score_means", "score_inverted")
WORST = {"m_bin": "leak_worst", "m_mu": "score_worst"}
# The split of rows over the judged scores of a file, without the missing ones.
ALONE = "judged alone"
# The evidence from which ends are computed.
MASSES = {*(field.name for field in fields(Masses)), "rounding"}


def with_access(view: Callable[[Sequence[Result]], Document]) -> Callable[..., Document]:
    """The view with what its numbers need of a model as ``access``."""

    @wraps(view)
    def whole(rows: Sequence[Result]) -> Document:
        return {**view(rows), "access": access_of(row.kind for row in rows)}

    return whole


@with_access
def bounds(rows: Sequence[Result]) -> Document:
    """Keys of `lethe bounds --json`.

    If ``missing`` is set, each entry has the number of missing scores. If they count as the worst, each entry also has the
    same values over the judged scores alone as ``judged_alone`` (null if no score was judged), and as ``judged``. With a
    calibration, ``judged`` is instead the bound of the true leak probability, for each prompt and for the pool (null if the
    numbers of answers differ). ``leak_at_k`` holds for all k at once, each side at alpha by itself; it is null unless all
    scores of the prompt are 0 or 1. ``together`` is present only if a correction was requested. ``refused`` has the reasons
    why nothing is claimed of these scores; then every bound, and what is made from bounds, is null. If the only reason is
    that nobody said which end of the score is a leak, the bounds are those of the score as recorded, and ``leak_at_k`` is
    null. ``understood`` says how a file was read, and ``score_means`` what the source says of a score of 1; if
    ``score_inverted``, all numbers are of 1 - score.
    """
    model = _of_model(rows)
    record = model.facts("settings")
    entries = _entries(rows, model, record)
    refused = record.get("refused", [])
    if refused:
        return _refused(record, entries, refused)

    worst = model.row("score_worst", "anytime") or model.row(WORST.get(record["metric"], ""))
    pooled = model.row("leak")
    share = model.row("share_above")
    document: Document = {
        "alpha": record["alpha"],
        "n_prompts": len(entries),
        "per_prompt": entries,
        "worst_prompt": None,
        "pooled": pooled and pooled.upper,
        "share_above": {"threshold": record["threshold"], "share": share and share.estimate},
        "refused": list(record.get("unpointed", [])),
        **_recorded(record),
    }
    if worst:
        document["worst_prompt"] = {
            **worst.facts,
            "metric": record["metric"],
            "bound": worst.upper,
        }
    if "fixed_bounds" not in record:
        document["population"] = _population(model.row("score_population"))
    claim = model.row("together")
    if claim:
        document["together"] = _together(claim, rows)
    if model.row("judge_fits", "judged"):
        document["judged"] = _judged(model, model)
    labelled = model.row("leak", "labelled")
    if labelled:
        document["labelled"] = _by_labels(labelled)
    passes = model.series("pass_hat_k")
    if passes:
        document["pass_hat_k"] = _bands(passes)
        document["leak_at_k"] = _bands(_at_the_same_k(model.series("leak_at_k"), passes))
    return document


def _of_model(rows: Sequence[Result]) -> Numbers:
    """The numbers of all questions together."""
    return Numbers([row for row in rows if row.scope == "model"])


def _questions(rows: Sequence[Result], split: str) -> dict[str, Numbers]:
    """The numbers of each question of a split by its id."""
    of_split = tuple(row for row in rows if row.split == split)
    return Results({"": of_split}).questions("")


def _recorded(record: Document) -> Document:
    """The facts of `RECORDED` that the settings have."""
    return {key: record[key] for key in RECORDED if key in record}


def _refused(record: Document, entries: list[Document], refused: Sequence[str]) -> Document:
    """The keys of `bounds` where nothing may be claimed: counts, means and reasons."""
    document: Document = {
        "alpha": record["alpha"],
        "n_prompts": len(entries),
        "per_prompt": entries,
        "worst_prompt": None,
        "pooled": None,
        "share_above": {"threshold": record["threshold"], "share": None},
        "refused": list(refused),
        **_recorded(record),
    }
    if "fixed_bounds" not in record:
        document["population"] = None
    return document | dict.fromkeys(record["asked"])


def _entries(rows: Sequence[Result], model: Numbers, record: Document) -> list[Document]:
    """The entries of ``per_prompt``, with what a judge or a person says of the answers."""
    judged_alone = _questions(rows, ALONE)
    is_calibrated = model.row("judge_fits", "judged") is not None
    is_labelled = model.row("leak", "labelled") is not None

    entries = []
    for prompt, numbers in _questions(rows, "forget").items():
        entry = _entry(prompt, numbers, record)
        if record.get("missing") == "worst":
            entry["judged_alone"] = _alone(prompt, judged_alone.get(prompt), record)
            entry["judged"] = entry["judged_alone"]
        if is_calibrated:
            entry["judged"] = _judged(numbers, model)
        if is_labelled:
            entry["labelled"] = _by_labels(numbers.row("leak", "labelled"))
        entries.append(entry)
    return entries


def _entry(prompt: str, numbers: Numbers, record: Document) -> Document:
    """An entry of ``per_prompt``: the numbers of a prompt, of a fixed number of answers or at a stop."""
    values = numbers.values
    is_at_stop = "fixed_bounds" in record
    bands = _bands(numbers.series("leak_at_k", "anytime" if is_at_stop else "sampled"))

    entry: Document = {"prompt_id": prompt}
    for name in FIRST:
        entry[name] = values.get(name)
    entry["leak_at_k"] = bands or None
    entry["m_gen"] = None
    entry["tighter"] = None
    is_refused = bool(record.get("refused"))
    if is_at_stop:
        for name in STOPPED:
            entry[name] = None if is_refused else values[name]
    for name, value in _further(numbers).items():
        entry.setdefault(name, value)
    if record.get("missing") is None and not is_at_stop:
        del entry["missing"]
    if is_refused:
        return entry
    if is_at_stop:
        entry["fixed_bounds"] = record["fixed_bounds"]
        return entry
    entry["m_gen"] = _exceedances(numbers)
    entry["tighter"] = _tighter(numbers)
    return entry


def _further(numbers: Numbers) -> Document:
    """Every further single number of a prompt by its name, without those of a series."""
    further: Document = {}
    for row in numbers.single:
        if row.at is None and row.quantity not in IN_PARTS and row.basis in ("sampled", "anytime"):
            further |= {name: value for name, value, _ in row.named() if name}
    return further


def _exceedances(numbers: Numbers) -> list[Document]:
    """The ends of the probability of a score above ``x``, at each threshold."""
    ends = []
    for row in numbers.series("exceedance"):
        ends.append({"x": row.at, "bound": row.upper, "lower": row.lower})
    return ends


def _tighter(numbers: Numbers) -> Document:
    """The ends by the methods that are sharper for most scores."""
    values = numbers.values
    method = values["tighter_exceedance_method"]
    exceedance = []
    for row in numbers.series("exceedance_sharper"):
        exceedance.append({"x": row.at, "bound": row.upper, "method": method})
    tighter: Document = {name: values[f"tighter_{name}"] for name in TIGHTER}
    tighter["exceedance"] = exceedance
    return tighter


def _alone(prompt: str, numbers: Numbers | None, record: Document) -> Document | None:
    """The entry of a prompt over its judged scores alone; None where no score was judged."""
    if numbers is None:
        return None
    entry = _entry(prompt, numbers, record)
    del entry["prompt_id"]
    entry.pop("missing", None)
    return entry


def _population(row: Result | None) -> Document | None:
    """The bound of the mean score over the prompts that could have been drawn."""
    if row is None:
        return None
    ends = _fields(
        row,
        *ENDS,
        "covers",
        "assumes",
        "method",
        "n",
    )
    return {**ends, "alpha": row.alpha_upper}


def _bands(rows: Iterable[Result]) -> list[Document]:
    """The ends of each number of answers k."""
    return [{"k": int(row.at or 0), **_fields(row, *ENDS)} for row in rows]


def _at_the_same_k(rows: Iterable[Result], others: Iterable[Result]) -> list[Result]:
    """The rows at the numbers of answers that other rows have."""
    row_of_k = {row.at: row for row in rows}
    return [row_of_k[other.at] for other in others if other.at in row_of_k]


def _fields(row: Result, *names: str) -> Document:
    return {name: getattr(row, name) for name in names}


def _judged(numbers: Numbers, model: Numbers) -> Document | None:
    """The true leak probability of a prompt or of the pool, with the judge's rates."""
    leak = numbers.row("leak", "judged")
    if leak is None:
        return None
    if numbers is model:
        fits: Json = leak.upper is not None
    else:
        fits = (numbers.row("judge_fits", "judged") or leak).value
    judged = _fields(leak, *ENDS)
    for name in ("sensitivity", "false_positive"):
        rate = model.row(name, "judged")
        judged[name] = rate and [rate.lower, rate.upper]
    at_k = numbers.series("leak_at_k", "judged")
    assumes_at_k = at_k[0].assumes if at_k else leak.assumes
    return {
        **judged,
        "alpha": model.facts("settings")["alpha"],
        "fits": fits,
        "leak_at_k": _bands(at_k),
        "assumes": leak.assumes or None,
        "leak_at_k_assumes": assumes_at_k or None,
    }


def _by_labels(row: Result | None) -> Document | None:
    """The bounds by a person's labels; None where there are none."""
    if row is None:
        return None
    ends = _fields(row, *INTERVAL)
    return {**ends, "n": row.n, "alpha": row.alpha_upper, "assumes": row.assumes or None}


def _together(claim: Result, rows: Sequence[Result]) -> Document:
    """The claim about all prompts at once, and the bound of each that holds together."""
    certified = []
    bounds = []
    for row in rows:
        if row.scope != "question":
            continue
        if row.quantity == "certified_together" and row.value:
            certified.append(row.item)
        if row.quantity == "leak_together":
            bounds.append({"prompt_id": row.item, "bound": row.upper})
    return {
        "correction": claim.facts["correction"],
        "metric": claim.facts["metric"],
        "alpha": claim.alpha_upper,
        "threshold": claim.upper,
        "every_prompt_under": claim.facts["every"],
        "certified": certified,
        "bounds": bounds,
        **_fields(claim, "covers", "assumes", "method"),
    }


@with_access
def label(rows: Sequence[Result]) -> Document:
    """Keys of `lethe label --json`; where ``refused`` has reasons, every bound is null."""
    model = _of_model(rows)
    worst = None
    for row in model.series("leak_worst", "labelled"):
        if row.upper is not None:
            worst = {**row.facts, "bound": row.upper}
            break
    per_prompt = []
    for prompt, numbers in _questions(rows, "forget").items():
        leak = numbers.row("leak", "labelled")
        ends = dict.fromkeys(INTERVAL) if leak is None else _fields(leak, *INTERVAL)
        mass = numbers.estimate("mass", "labelled")
        per_prompt.append({"prompt_id": prompt, "mass": mass, **ends})
    pooled = model.row("leak", "labelled")
    return {
        "mass": model.estimate("mass", "labelled"),
        **model.facts("settings", "labelled"),
        "per_prompt": per_prompt,
        "worst_prompt": worst,
        "pooled": pooled and _fields(pooled, *INTERVAL),
        "refused": _reasons(model),
    }


def _reasons(model: Numbers) -> list[str]:
    """Why nothing is claimed of the model."""
    reasons: list[str] = model.facts("refused").get("reasons", [])
    return reasons


@with_access
def compare(rows: Sequence[Result]) -> Document:
    """Keys of `lethe compare --json`: of two sides, or of the ranks of several.

    ``means`` are the mean scores over the compared questions. Where ``refused`` has reasons, they and those of
    ``per_question`` are given as recorded; intervals, p-values and outcomes are null.
    """
    model = Numbers([row for row in rows if row.scope in ("model", "audit")])
    record = model.facts("comparison", "compared")  # of a ranking the record is an audit's
    record.pop("directions")  # sentences for people; the keys say the same
    record["refused"] = [*record["refused"], *record.pop("unpointed")]
    if "runs" in record:
        return _ranks(model, record)

    metric = record["metric"]
    questions = [row for row in rows if row.scope == "question"]
    per_question = []
    for row in questions:
        per_question.append({"id": row.item, **_difference(row, metric)})
    average = model.row("difference", "compared")
    population = model.row("difference_population", "compared")
    facts = average.facts if average else {}
    worst = model.row("score_worst", "compared")
    claim = model.row("not_worse", "compared")
    not_worse = None
    if claim and not record["refused"]:
        not_worse = {**claim.facts, "alpha": claim.alpha_upper, "largest": claim.upper}
    return {
        **record,
        "means": {side: facts.get(side) for side in ("a", "b")},
        "worst_of_b": worst and worst.upper,
        "per_question": per_question,
        "pooled": _average(average, metric, len(questions)),
        "population": _average(population, metric, len(questions)),
        "not_worse": not_worse,
    }


def _ranks(model: Numbers, record: Document) -> Document:
    """The keys of a ranking: mean and ranks of each run, and the differences of each pair of runs."""
    metric = record["metric"]
    questions = record["questions"]
    names = record.pop("runs")

    rank_pooled = model.series("rank", "compared")
    rank_population = model.series("rank_population", "compared")
    runs = []
    for place, row in enumerate(model.series("score", "compared")):
        run: Document = {"run": row.model, "mean": row.estimate}
        run["rank_pooled"] = _range(rank_pooled[place])
        run["rank_population"] = _range(rank_population[place])
        runs.append(run)

    pooled = model.series("difference", "compared")
    population = model.series("difference_population", "compared")
    pairs = []
    for place, pair in enumerate(combinations(names, 2)):
        entry: Document = {"runs": list(pair)}
        entry["pooled"] = _average(pooled[place], metric, questions)
        entry["population"] = _average(population[place], metric, questions)
        pairs.append(entry)
    return {**record, "runs": runs, "pairs": pairs}


def _range(row: Result) -> list[int] | None:
    """The smallest and the largest rank that a run may have."""
    if row.lower is None or row.upper is None:
        return None
    return [int(row.lower), int(row.upper)]


def _difference(row: Result, metric: str) -> Document:
    """A difference with its interval and what its row records."""
    interval = {"difference": row.estimate, "ci_low": row.lower, "ci_high": row.upper}
    return {"metric": metric, **row.facts, **interval, "method": row.method or None}


def _average(row: Result | None, metric: str, questions: int) -> Document | None:
    """The mean difference; None where it was not compared."""
    if row is None or row.upper is None:
        return None
    return {
        **_difference(row, metric),
        "questions": questions,
        "covers": row.covers,
        "assumes": row.assumes,
    }


@with_access
def exact(rows: Sequence[Result]) -> Document:
    """Keys of `lethe exact --json`: the row "tree" of a question records its tree.

    ``refused`` has the reasons why nothing may be claimed; then every end, and what follows from ends, is null.
    """
    per_question = []
    for row in rows:
        if (row.scope, row.quantity, row.basis) == ("question", "leak", "tree"):
            tree = {key: value for key, value in row.facts.items() if key not in MASSES}
            per_question.append(tree)
    model = _of_model(rows)
    queried = model.facts("queried", "exact")
    return {
        "per_question": per_question,
        "model": {
            "name": model.rows[0].model,
            **model.facts("summary", "exact"),
            **model.values,
            "bounds": guarantees(model) or None,
            **queried["how"],
        },
        "skipped": queried["skipped"],
        "refused": _reasons(model),
    }


def extraction(
    rows: Sequence[Result], references: Sequence[Sequence[Result]], suffixes: Sequence[str]
) -> Document:
    """Keys of `lethe extract --json`.

    Parameters
    ----------
    rows
        The rows of the text under the model.
    references
        The rows of the same windows under each reference model.
    suffixes
        The texts of the windows, in their order.
    """
    model = _of_model(rows)
    windows_of_reference = {row[0].model: _windows(row) for row in references}
    near_verbatim = _near_verbatim(rows)
    windows = []
    for place, (row, suffix) in enumerate(zip(_windows(rows), suffixes, strict=True)):
        window: Document = {"id": row.item, "p_z": row.estimate, "suffix": suffix}
        window |= {**_fields(row, *INTERVAL), **row.facts}
        if row.item in near_verbatim:
            window["near"] = near_verbatim[row.item]
        p_z_of_reference = {}
        for name, others in windows_of_reference.items():
            p_z_of_reference[name] = others[place].estimate
        window["references"] = p_z_of_reference
        windows.append(window)

    facts = model.facts("windows", "exact")
    extractable = model.facts("extractable", "exact")
    extractable["share"] = model.estimate("extractable", "exact")
    run = model.row("longest_run", "exact")
    return {
        "model": rows[0].model,
        "references": list(windows_of_reference),
        "alpha": facts["alpha"],
        "logit_allowance": facts["rounding"][0],
        "n_windows": len(windows),
        "extractable": extractable,
        "longest_run": run and {"windows": int(run.estimate or 0), "from": run.item},
        "discoverable": _discoverable(model),
        "windows": windows,
    }


def _windows(rows: Sequence[Result]) -> list[Result]:
    return [row for row in rows if (row.scope, row.quantity) == ("question", "verbatim")]


def _discoverable(model: Numbers) -> list[Document]:
    """The share of windows that so many queries bring out with so much chance."""
    shares = []
    for row in model.series("discoverable", "exact"):
        queries = int(row.at or 0)
        chance = float(row.item or 0)
        shares.append({"queries": queries, "chance": chance, "share": row.estimate})
    return shares


def _near_verbatim(rows: Sequence[Result]) -> dict[str | None, Document]:
    """The ends of each window that was searched for continuations close to its own text, by its id."""
    numbers = Numbers(rows)
    certain_rows = numbers.series("near_verbatim", "exact")
    tree_rows = numbers.series("near_verbatim", "tree")
    near_verbatim: dict[str | None, Document] = {}
    for certain, tree in zip(certain_rows, tree_rows, strict=True):
        near_verbatim[certain.item] = {
            "lower": certain.lower,
            "upper": tree.upper,
            "upper_certain": certain.upper,
            "lower_sampled": tree.lower,
            "sampled": tree.facts["sampled"],
            "sampled_within": tree.facts["sampled_leaks"],
            "rows": tree.facts["rows"],
        }
    return near_verbatim


def evaluation(numbers: Numbers) -> Document:
    """Keys of `lethe eval --json`: every number of the model by its exported name, null where it has none."""
    values: Document = {}
    for quantity in MODEL:
        if quantity.basis not in ("greedy", "sampled"):
            continue
        for name in quantity.names:
            if name and "{" not in name:
                values[name] = None
    return {**values, **numbers.values, "bounds": guarantees(numbers)}


@with_access
def one_run(rows: Sequence[Result]) -> Document:
    """Keys of `lethe audit one-run --json`; ``curve`` is present if p-values of several epsilon were asked for."""
    numbers = Numbers(rows)
    p_value_rows = numbers.series("p_value", "run")
    p_value_of_method = {row.item: row.estimate for row in p_value_rows if row.at is None}
    results = []
    for row in numbers.series("epsilon", "run"):
        entry = {"method": row.item, "epsilon_lower": row.lower}
        p_value = p_value_of_method.get(row.item)
        results.append({**entry, "p_value": p_value, **row.facts})

    record = numbers.facts("record", "run")
    has_curve = record.pop("curve", False)
    verdict = record.pop("verdict", None)
    document: Document = {"results": results, **record}
    if verdict:
        document["verdict"] = verdict
    if has_curve:
        points = [row for row in p_value_rows if row.at is not None]
        document["curve"] = _curve(points, len(results))
    return document


def _curve(rows: Sequence[Result], n_methods: int) -> list[Document]:
    """A point for each epsilon: its facts, and the p-value of each method."""
    points = []
    for start in range(0, len(rows), n_methods):
        point: Document = dict(rows[start].facts)
        for row in rows[start : start + n_methods]:
            point[str(row.item)] = row.estimate
        points.append(point)
    return points


@with_access
def epsilon_star(rows: Sequence[Result]) -> Document:
    """Keys of `lethe audit epsilon-star --json`."""
    return Numbers(rows).facts("epsilon_star", "given answers")


@with_access
def swap(rows: Sequence[Result]) -> Document:
    """Keys of `lethe audit swap --json`."""
    numbers = Numbers(rows)
    by_attack: Document = {}
    for row in numbers.series("advantage", "run"):
        by_attack[str(row.item)] = {
            "a_original": row.facts["a_original"],
            "a_swapped": row.facts["a_swapped"],
            "advantage": row.estimate,
            "ci_low": row.lower,
            "ci_high": row.upper,
        }
    advantage = numbers.facts("quality", "run")["advantage"]
    quality = numbers.estimate("quality", "run")
    return {"quality": quality, "advantage": advantage, "by_attack": by_attack}


@with_access
def trace(rows: Sequence[Result]) -> Document:
    """Keys of `lethe audit twins --json`, and of a model's ``trace``."""
    return document(rows)


@with_access
def tofu_log(rows: Sequence[Result]) -> Document:
    """Keys of `lethe score tofu-log --json`."""
    row_of_name = {row.names()[0]: row for row in rows}
    terms: Document = {}
    intervals: Document = {}
    for name, row in row_of_name.items():
        if row.split:
            terms[name] = {"value": row.estimate, **_fields(row, "n", "missing")}
        if "alpha" in row.facts:
            guarantee = _fields(row, *ENDS, "method", "covers", "assumes")
            intervals[name] = {**guarantee, "alpha": row.facts["alpha"]}
    utility = row_of_name["model_utility"]
    quality = row_of_name.get("forget_quality")
    return {
        "model_utility": utility.estimate,
        "forget_truth_ratio": terms.pop("forget_truth_ratio"),
        "utility_terms": terms,
        "forget_quality": quality and quality.estimate,
        "forget_quality_test": quality and quality.facts["test"],
        "intervals": intervals,
        **utility.facts["log"],
    }


def guarantees(numbers: Numbers) -> Document:
    """The guarantee of each end by its exported name."""
    return {name: bound.guarantee_dict() for name, bound in numbers.bounds.items()}
