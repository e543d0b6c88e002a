"""The JSON of the commands: each function is a view of the rows that the same call writes, and computes nothing.

The keys that other people's checks read stand here and in the vocabulary (`lethe.results.quantities`), nowhere else.
"""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from itertools import combinations

from lethe.io.files import Json
from lethe.results.quantities import MODEL
from lethe.results.table import Numbers, Result, Results
from lethe.results.trace import document
from lethe.statistics.answer_tree import Masses

Document = dict[str, Json]
ENDS = ("estimate", "lower", "upper")
NUMBERS = "n mean sd max ed_score missing m_bin m_bin_lower m_mu m_mu_lower m_sigma".split()
STOPPED = ("anytime_upper", "anytime_lower", "anytime_sd_upper")
TIGHTER = ("mean_upper", "mean_lower", "sd_upper")
RECORDED = (
    "fixed_bounds",
    "log",
    "score_means",
    "score_inverted",
)  # facts of the settings that `bounds` states
WORST = {"m_bin": "leak_worst", "m_mu": "score_worst"}
ALONE = (
    "judged alone"  # the split of rows over the judged scores of a file, without the missing ones
)
MASSES = {
    *(field.name for field in fields(Masses)),
    "rounding",
}  # the evidence from which ends are computed


def bounds(rows: Sequence[Result]) -> Document:
    """Keys of `lethe bounds --json`.

    If ``missing`` is set, each entry has the number of missing scores. If they count as the worst, each entry also has the
    same values over the judged scores alone as ``judged_alone`` (null if no score was judged), and as ``judged``. With a
    calibration, ``judged`` is instead the bound of the true leak probability, for each prompt and for the pool (null if the
    numbers of answers differ). ``leak_at_k`` holds for all k at once, each side at alpha by itself; it is null unless all
    scores of the prompt are 0 or 1. ``together`` is present only if a correction was requested. ``refused`` has the reasons
    why nothing is claimed of these scores; then every bound, and what is made from bounds, is null. If the only reason is
    that nobody said which end of the score is a leak, the bounds are those of the score as recorded, and ``leak_at_k`` is
    null. ``score_means`` is what the source says of a score of 1; if ``score_inverted``, all numbers are of 1 - score.
    """
    model = Numbers([row for row in rows if row.scope == "model"])
    record, share = model.facts("settings"), model.row("share_above")
    each, alone = _questions(rows, "forget"), _questions(rows, ALONE)
    worst = model.row("score_worst", "anytime") or model.row(WORST.get(record["metric"], ""))
    pooled, population, labelled = (
        model.row("leak"),
        model.row("score_population"),
        model.row("leak", "labelled"),
    )
    entries = {item: _entry(item, own, record) for item, own in each.items()}
    for item, entry in entries.items():
        if record.get("missing") == "worst":
            own = _entry(item, alone[item], record) if item in alone else {}
            entry["judged_alone"] = {
                key: own[key] for key in own if key not in ("prompt_id", "missing")
            } or None
            entry["judged"] = entry["judged_alone"]
        if model.row("judge_fits", "judged"):
            entry["judged"] = _judged(each[item], model)
        if labelled:
            entry["labelled"] = _by_labels(each[item].row("leak", "labelled"))
    if refused := record.get("refused", []):
        return _refused(record, list(entries.values()), refused)
    document: Document = {
        "alpha": record["alpha"],
        "n_prompts": len(entries),
        "per_prompt": list(entries.values()),
        "worst_prompt": worst and {**worst.facts, "metric": record["metric"], "bound": worst.upper},
        "pooled": pooled and pooled.upper,
        "share_above": {"threshold": record["threshold"], "share": share and share.estimate},
        "refused": list(record.get("unpointed", [])),
        **{key: record[key] for key in RECORDED if key in record},
    }
    if "fixed_bounds" not in record:
        keys = (*ENDS, "covers", "assumes", "method", "n")
        document["population"] = population and {
            **_fields(population, *keys),
            "alpha": population.alpha_upper,
        }
    if claim := model.row("together"):
        document["together"] = _together(claim, rows)
    if model.row("judge_fits", "judged"):
        document["judged"] = _judged(model, model)
    if labelled:
        document["labelled"] = _by_labels(labelled)
    if passes := model.series("pass_hat_k"):
        leaks = {row.at: row for row in model.series("leak_at_k")}
        document["pass_hat_k"] = _bands(passes)
        document["leak_at_k"] = _bands(leaks[row.at] for row in passes if row.at in leaks)
    return document


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
        **{key: record[key] for key in RECORDED if key in record},
    }
    if "fixed_bounds" not in record:
        document["population"] = None
    return document | {key: None for key in record["asked"]}


def _questions(rows: Sequence[Result], split: str) -> dict[str, Numbers]:
    return Results({"": tuple(row for row in rows if row.split == split)}).questions("")


def _entry(item: str, numbers: Numbers, record: Document) -> Document:
    """An entry of ``per_prompt``."""
    values, early = numbers.values, "fixed_bounds" in record
    entry: Document = {"prompt_id": item} | {name: values.get(name) for name in NUMBERS}
    if record.get("missing") is None and not early:
        del entry["missing"]
    bands = _bands(numbers.series("leak_at_k", "anytime" if early else "sampled"))
    entry |= {"leak_at_k": bands or None, "m_gen": None, "tighter": None}
    if record.get("refused"):
        return entry | {name: None for name in STOPPED if early}
    if early:
        return (
            entry
            | {name: values[name] for name in STOPPED}
            | {"fixed_bounds": record["fixed_bounds"]}
        )
    method = values["tighter_exceedance_method"]
    tails = [
        {"x": row.at, "bound": row.upper, "method": method}
        for row in numbers.series("exceedance_sharper")
    ]
    return entry | {
        "m_gen": [
            {"x": row.at, "bound": row.upper, "lower": row.lower}
            for row in numbers.series("exceedance")
        ],
        "tighter": {name: values[f"tighter_{name}"] for name in TIGHTER} | {"exceedance": tails},
    }


def _bands(rows: Iterable[Result]) -> list[Document]:
    return [{"k": int(row.at or 0), **_fields(row, *ENDS)} for row in rows]


def _fields(row: Result, *names: str) -> Document:
    return {name: getattr(row, name) for name in names}


def _judged(numbers: Numbers, model: Numbers) -> Document | None:
    """The true leak probability of a prompt or of the pool, with the judge's rates."""
    if (row := numbers.row("leak", "judged")) is None:
        return None
    rates = {name: model.row(name, "judged") for name in ("sensitivity", "false_positive")}
    fits = (
        row.upper is not None
        if numbers is model
        else (numbers.row("judge_fits", "judged") or row).value
    )
    return {
        **_fields(row, *ENDS),
        **{name: rate and [rate.lower, rate.upper] for name, rate in rates.items()},
        "alpha": model.facts("settings")["alpha"],
        "fits": fits,
        "leak_at_k": _bands(numbers.series("leak_at_k", "judged")),
        "assumes": row.assumes or None,
        "leak_at_k_assumes": (numbers.row("leak_at_k", "judged") or row).assumes or None,
    }


def _by_labels(row: Result | None) -> Document | None:
    return (
        None if row is None else {**_fields(row, *ENDS[1:]), "n": row.n, "alpha": row.alpha_upper}
    )


def _together(claim: Result, rows: Sequence[Result]) -> Document:
    facts, each = claim.facts, [row for row in rows if row.scope == "question"]
    return {
        "correction": facts["correction"],
        "metric": facts["metric"],
        "alpha": claim.alpha_upper,
        "threshold": claim.upper,
        "every_prompt_under": facts["every"],
        "certified": [
            row.item for row in each if row.quantity == "certified_together" and row.value
        ],
        "bounds": [
            {"prompt_id": row.item, "bound": row.upper}
            for row in each
            if row.quantity == "leak_together"
        ],
        **_fields(claim, "covers", "assumes", "method"),
    }


def label(rows: Sequence[Result]) -> Document:
    """Keys of `lethe label --json`; where ``refused`` has reasons, every bound is null."""
    model = Numbers([row for row in rows if row.scope == "model"])
    worsts = [row for row in model.series("leak_worst", "labelled") if row.upper is not None]
    worst = worsts[0] if worsts else None
    pooled, each = model.row("leak", "labelled"), _questions(rows, "forget")
    return {
        "mass": model.estimate("mass", "labelled"),
        **model.facts("settings", "labelled"),
        "per_prompt": [
            {
                "prompt_id": item,
                "mass": own.estimate("mass", "labelled"),
                **_ends_by_labels(own.row("leak", "labelled")),
            }
            for item, own in each.items()
        ],
        "worst_prompt": worst and {**worst.facts, "bound": worst.upper},
        "pooled": pooled and _fields(pooled, *ENDS[1:]),
        "refused": model.facts("refused").get("reasons", []),
    }


def _ends_by_labels(row: Result | None) -> Document:
    return dict.fromkeys(ENDS[1:]) if row is None else _fields(row, *ENDS[1:])


def compare(rows: Sequence[Result]) -> Document:
    """Keys of `lethe compare --json`: of two sides, or of the ranks of several.

    ``means`` are the mean scores over the compared questions. Where ``refused`` has reasons, they and those of
    ``per_question`` are given as recorded; intervals, p-values and outcomes are null.
    """
    model = Numbers([row for row in rows if row.scope == "model"])
    record = model.facts("comparison", "compared")
    record.pop("directions")  # sentences for people; the keys say the same
    record["refused"] = [*record["refused"], *record.pop("unpointed")]
    if "runs" in record:
        return _ranks(model, record)
    questions = [row for row in rows if row.scope == "question"]
    claim, worst = model.row("not_worse", "compared"), model.row("score_worst", "compared")
    average = model.row("difference", "compared")
    means = {side: average.facts.get(side) if average else None for side in ("a", "b")}
    not_worse = None
    if claim and not record["refused"]:
        not_worse = {**claim.facts, "alpha": claim.alpha_upper, "largest": claim.upper}
    return {
        **record,
        "means": means,
        "worst_of_b": worst and worst.upper,
        "per_question": [
            {"id": row.item, **_difference(row, record["metric"])} for row in questions
        ],
        "pooled": _average(average, record["metric"], len(questions)),
        "population": _average(
            model.row("difference_population", "compared"), record["metric"], len(questions)
        ),
        "not_worse": not_worse,
    }


def _ranks(model: Numbers, record: Document) -> Document:
    means = model.series("score", "compared")
    names = {"rank_pooled": "rank", "rank_population": "rank_population"}
    ranks = {name: model.series(quantity, "compared") for name, quantity in names.items()}
    over = {"pooled": "difference", "population": "difference_population"}
    differences = {name: model.series(quantity, "compared") for name, quantity in over.items()}
    metric, size, runs = record["metric"], record["questions"], record.pop("runs")
    return {
        **record,
        "runs": [
            {
                "run": row.model,
                "mean": row.estimate,
                **{name: _range(own[place]) for name, own in ranks.items()},
            }
            for place, row in enumerate(means)
        ],
        "pairs": [
            {
                "runs": list(pair),
                **{name: _average(own[place], metric, size) for name, own in differences.items()},
            }
            for place, pair in enumerate(combinations(runs, 2))
        ],
    }


def _range(row: Result) -> list[int] | None:
    return None if row.lower is None or row.upper is None else [int(row.lower), int(row.upper)]


def _difference(row: Result, metric: str) -> Document:
    interval = {"difference": row.estimate, "ci_low": row.lower, "ci_high": row.upper}
    return {"metric": metric, **row.facts, **interval, "method": row.method or None}


def _average(row: Result | None, metric: str, questions: int) -> Document | None:
    if row is None or row.upper is None:
        return None
    return {
        **_difference(row, metric),
        "questions": questions,
        "covers": row.covers,
        "assumes": row.assumes,
    }


def exact(rows: Sequence[Result]) -> Document:
    """Keys of `lethe exact --json`: the row "tree" of a question records its tree.

    ``refused`` has the reasons why nothing may be claimed; then every end, and what follows from ends, is null.
    """
    trees = [
        row for row in rows if (row.scope, row.quantity, row.basis) == ("question", "leak", "tree")
    ]
    model = Numbers([row for row in rows if row.scope == "model"])
    queried, summary = model.facts("queried", "exact"), model.facts("summary", "exact")
    return {
        "per_question": [
            {key: value for key, value in row.facts.items() if key not in MASSES} for row in trees
        ],
        "model": {
            "name": model.rows[0].model,
            **summary,
            **model.values,
            "bounds": guarantees(model) or None,
            **queried["how"],
        },
        "skipped": queried["skipped"],
        "refused": model.facts("refused").get("reasons", []),
    }


def extraction(
    rows: Sequence[Result], references: Sequence[Sequence[Result]], suffixes: Sequence[str]
) -> Document:
    """Keys of `lethe extract --json`; ``suffixes`` are the texts of the windows in their order."""
    model = Numbers([row for row in rows if row.scope == "model"])
    others = {each[0].model: [row.estimate for row in _windows(each)] for each in references}
    certain, trees = (Numbers(rows).series("near_verbatim", basis) for basis in ("exact", "tree"))
    near = {row.item: _near(row, tree) for row, tree in zip(certain, trees, strict=True)}
    windows = []
    for place, (row, suffix) in enumerate(zip(_windows(rows), suffixes, strict=True)):
        own = {
            "id": row.item,
            "p_z": row.estimate,
            "suffix": suffix,
            **_fields(row, *ENDS[1:]),
            **row.facts,
        }
        own |= {"near": near[row.item]} if row.item in near else {}
        windows.append({**own, "references": {name: p_z[place] for name, p_z in others.items()}})
    facts, run = model.facts("windows", "exact"), model.row("longest_run", "exact")
    return {
        "model": rows[0].model,
        "references": list(others),
        "alpha": facts["alpha"],
        "logit_allowance": facts["rounding"][0],
        "n_windows": len(windows),
        "extractable": {
            **model.facts("extractable", "exact"),
            "share": model.estimate("extractable", "exact"),
        },
        "longest_run": run and {"windows": int(run.estimate or 0), "from": run.item},
        "discoverable": [
            {"queries": int(row.at or 0), "chance": float(row.item or 0), "share": row.estimate}
            for row in model.series("discoverable", "exact")
        ],
        "windows": windows,
    }


def _windows(rows: Sequence[Result]) -> list[Result]:
    return [row for row in rows if (row.scope, row.quantity) == ("question", "verbatim")]


def _near(certain: Result, tree: Result) -> Document:
    sample = tree.facts
    return {
        "lower": certain.lower,
        "upper": tree.upper,
        "upper_certain": certain.upper,
        "lower_sampled": tree.lower,
        "sampled": sample["sampled"],
        "sampled_within": sample["sampled_leaks"],
        "rows": sample["rows"],
    }


def evaluation(numbers: Numbers) -> Document:
    """Keys of `lethe eval --json`: every number of the model by its exported name, null where it has none."""
    names = [name for row in MODEL if row.basis in ("greedy", "sampled") for name in row.names]
    empty = {name: None for name in names if name and "{" not in name}
    return {**empty, **numbers.values, "bounds": guarantees(numbers)}


def one_run(rows: Sequence[Result]) -> Document:
    """Keys of `lethe audit one-run --json`."""
    own = Numbers(rows)
    record = own.facts("record", "run")
    p_values = {row.item: row.estimate for row in own.series("p_value", "run") if row.at is None}
    document: Document = {
        "results": [
            {
                "method": row.item,
                "epsilon_lower": row.lower,
                "p_value": p_values.get(row.item),
                **row.facts,
            }
            for row in own.series("epsilon", "run")
        ]
    }
    asked, verdict = record.pop("curve", False), record.pop("verdict", None)
    document |= record | ({"verdict": verdict} if verdict else {})
    if asked:
        curve = [row for row in own.series("p_value", "run") if row.at is not None]
        many = len(document["results"])
        each = [curve[start : start + many] for start in range(0, len(curve), many)]
        document["curve"] = [
            {**part[0].facts, **{row.item: row.estimate for row in part}} for part in each
        ]
    return document


def epsilon_star(rows: Sequence[Result]) -> Document:
    """Keys of `lethe audit epsilon-star --json`."""
    return Numbers(rows).facts("epsilon_star", "given answers")


def swap(rows: Sequence[Result]) -> Document:
    """Keys of `lethe audit swap --json`."""
    own = Numbers(rows)
    attacks = {
        row.item: {
            **{key: row.facts[key] for key in ("a_original", "a_swapped")},
            **{"advantage": row.estimate, "ci_low": row.lower, "ci_high": row.upper},
        }
        for row in own.series("advantage", "run")
    }
    advantage = own.facts("quality", "run")["advantage"]
    return {"quality": own.estimate("quality", "run"), "advantage": advantage, "by_attack": attacks}


def trace(rows: Sequence[Result]) -> Document:
    """Keys of `lethe audit twins --json`, and of a model's ``trace``."""
    return document(rows)


def tofu_log(rows: Sequence[Result]) -> Document:
    """Keys of `lethe score tofu-log --json`."""
    each = {row.names()[0]: row for row in rows}
    facts = {name: row.facts for name, row in each.items()}
    quality = each.get("forget_quality")
    terms = {
        name: {"value": row.estimate, **_fields(row, "n", "missing")}
        for name, row in each.items()
        if row.split
    }
    keys = (*ENDS, "method", "covers", "assumes")
    return {
        "model_utility": each["model_utility"].estimate,
        "forget_truth_ratio": terms.pop("forget_truth_ratio"),
        "utility_terms": terms,
        "forget_quality": quality and quality.estimate,
        "forget_quality_test": quality and facts["forget_quality"]["test"],
        "intervals": {
            name: {**_fields(row, *keys), "alpha": facts[name]["alpha"]}
            for name, row in each.items()
            if "alpha" in facts[name]
        },
        **facts["model_utility"]["log"],
    }


def guarantees(numbers: Numbers) -> Document:
    """The guarantee of each end by its exported name."""
    return {name: bound.guarantee_dict() for name, bound in numbers.bounds.items()}
