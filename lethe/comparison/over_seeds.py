"""Methods over their seeds: a row for each method and number, and the difference of each two methods.

The unit is the seed (`lethe.statistics.seeds`). A number of a model that is an estimate has a mean, a standard deviation and
an interval over seeds; an end of an interval has a mean and a range alone, because the mean of bounds is no bound. Two
numbers are tested between methods: the leakage, and the score on what a model should still answer.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from lethe.config.schema import Params
from lethe.errors import plural
from lethe.io.files import Json
from lethe.measure.trajectories import KEPT
from lethe.results import quantities
from lethe.results.quantities import USEFUL, Quantity
from lethe.results.table import Numbers, Result, result
from lethe.statistics.bound import Bound, Side, level
from lethe.statistics.many_prompts import holm
from lethe.statistics.seeds import (
    ALPHA,
    DifferenceOfSeeds,
    difference_of_seeds,
    mean_of_seeds,
    seeds_needed,
)
from lethe.text import NONE, number

RECORD = "seeds"
MEAN = "over_seeds"
DIFFERENCE = "seeds_difference"
LEAKAGE = ("binary_mean", "mean")  # the first that every method has is tested
UTILITY = tuple(f"{split}_mean" for split in USEFUL)
RANGE = (0.0, 1.0)  # of a probability or a score
FROM_ONE = "All seeds of a method start from one model and forget one set: another start is another question."
UNIT = "The unit is the seed: more answers to the same models do not make these intervals narrower."


@dataclass(frozen=True)
class Family:
    """The models of one method, or of one trained model, by their seeds."""

    name: str
    models: tuple[str, ...]
    seeds: tuple[int, ...]
    loss: str  # the loss of a method, with "+ entropy" where that is added; empty for what was trained

    @property
    def title(self) -> str:
        return f"{self.name} ({plural(len(self.seeds), 'seed')})"


def families(params: Params) -> list[Family]:
    """The methods and the trained models of a run; empty where nothing has several seeds.

    Models that one method made and that are read in two ways, such as with adaptive temperature, are two families.
    """
    models: dict[str, dict[int, str]] = {}
    losses: dict[str, str] = {}
    for model, entry in params.models.items():
        folder, entry_of_stage = os.path.split(os.path.normpath(entry.path))
        made = _how_made(params, entry_of_stage)
        if folder != "data/models" or made is None:
            continue
        name = model
        if made.is_copy:
            name = model.removesuffix(f"_{made.seed}")
        models.setdefault(name, {})[made.seed] = model
        losses[name] = made.loss

    n_seeds = [len(model_of_seed) for model_of_seed in models.values()]
    if max(n_seeds, default=1) == 1:
        return []
    found = []
    for name, model_of_seed in models.items():
        models_of_family = tuple(model_of_seed.values())
        found.append(Family(name, models_of_family, tuple(model_of_seed), losses[name]))
    return found


@dataclass(frozen=True)
class _Made:
    """How a stage made a model; ``is_copy`` of an entry that differs in nothing but its seed."""

    seed: int
    loss: str  # empty for a trained model
    is_copy: bool


def _how_made(params: Params, name: str) -> _Made | None:
    """How an entry of ``unlearn.methods`` or ``train.models`` is made; None where there is no such entry."""
    method = params.unlearn.methods.get(name)
    if method is not None:
        seed = method.seed
        if seed is None:
            seed = params.unlearn.recipe.seed
        loss = method.loss
        if method.entropy:
            loss += " + entropy"
        return _Made(seed, loss, method.same_as is not None)

    trained = params.train.models.get(name)
    if trained is not None:
        seed = int(str(trained.recipe.get("seed", params.train.recipe.seed)))
        return _Made(seed, "", trained.same_as is not None)
    return None


def rows_over_seeds(
    params: Params, numbers: Mapping[str, Numbers], words: Mapping[str, str]
) -> list[Result]:
    """The rows of every method over its seeds, the record first; empty where nothing has several seeds.

    Parameters
    ----------
    params
        The params of the run.
    numbers
        The numbers of each model by its name.
    words
        The two words on each model by its name.
    """
    all_families = families(params)
    if not all_families:
        return []
    kinds = _shown(numbers)
    rows: list[Result] = []
    for family in all_families:
        of_models = [numbers[model] for model in family.models]
        for name, kind in kinds.items():
            row = _mean_row(family, name, kind, of_models)
            if row is not None:
                rows.append(row)
    pairs = _pairs(all_families, numbers, params.report.paired_seeds)
    differences = _difference_rows(pairs)
    record = {
        "alpha": ALPHA,
        "paired": params.report.paired_seeds,
        "shared_draws": params.sample.stream == "shared",
        "tests": len(pairs),
        "seeds_needed": seeds_needed(len(pairs), params.report.paired_seeds),
        "base": params.report.base,
        "families": [_facts(family, words) for family in all_families],
    }
    return [result(RECORD, "audit", RECORD, "compared", evidence=record), *rows, *differences]


def _facts(family: Family, words: Mapping[str, str]) -> dict[str, Json]:
    return {
        "name": family.name,
        "title": family.title,
        "loss": family.loss,
        "models": list(family.models),
        "seeds": list(family.seeds),
        "words": [words.get(model, "") for model in family.models],
    }


def _shown(numbers: Mapping[str, Numbers]) -> dict[str, Quantity]:
    """The names of the headlines, of what is tested and of what MLflow tracks, in the order of the vocabulary."""
    headlines = {*LEAKAGE}
    for of_model in numbers.values():
        headlines.update(quantities.headline(of_model.values))
    kinds: dict[str, Quantity] = {}
    for of_model in numbers.values():
        for row in of_model.single:
            names = row.names()
            if headlines.intersection(names) or "tracked" in row.kind.headlines:
                for name in filter(None, names):
                    kinds.setdefault(name, row.kind)
    order = {kind: place for place, kind in enumerate(quantities.MODEL)}
    return dict(sorted(kinds.items(), key=lambda entry: order[entry[1]]))


def _values(name: str, of_models: Sequence[Numbers]) -> list[float] | None:
    """A number of each model; None where a model has none, or one that is infinite."""
    values = []
    for numbers in of_models:
        value = numbers.value(name)
        if value is None or not np.isfinite(value):
            return None
        values.append(float(value))
    return values


def _mean_row(
    family: Family, name: str, kind: Quantity, of_models: Sequence[Numbers]
) -> Result | None:
    values = _values(name, of_models)
    if values is None:
        return None
    within = None
    if kind.unit in ("probability", "score"):
        within = RANGE
    mean = mean_of_seeds(values, within=within)
    evidence: dict[str, Json] = {
        "values": values,
        "sd": mean.sd,
        "least": mean.least,
        "greatest": mean.greatest,
        "side": None,
        "guarantee": None,
    }
    lower = None
    upper = None
    end = of_models[0].bounds.get(name)
    if end is not None:
        evidence["side"] = end.side
        evidence["guarantee"] = end.guarantee("the forget questions")
    elif kind.more != "" or kind.unit == "deviation":
        lower = mean.lower
        upper = mean.upper
    # else a p-value, which has no direction, and whose mean has no meaning
    return result(
        family.title,
        "audit",
        MEAN,
        "compared",
        mean.mean,
        lower,
        upper,
        item=name,
        n=mean.n,
        evidence=evidence,
    )


@dataclass(frozen=True)
class _Tested:
    """The difference of two methods in one number."""

    a: Family
    b: Family
    number: str
    found: DifferenceOfSeeds


def _pairs(
    all_families: Sequence[Family], numbers: Mapping[str, Numbers], paired: bool
) -> list[_Tested]:
    """Every two families that the same stage made and that have several seeds, by leakage and by utility."""
    tested = []
    for a, b in combinations(all_families, 2):
        if bool(a.loss) != bool(b.loss) or min(len(a.seeds), len(b.seeds)) < 2:
            continue
        of_a = [numbers[model] for model in a.models]
        of_b = [numbers[model] for model in b.models]
        for names in (LEAKAGE, UTILITY):
            for name in names:
                first = _values(name, of_a)
                second = _values(name, of_b)
                if first is None or second is None:
                    continue
                tested.append(_Tested(a, b, name, _difference(a, b, first, second, paired)))
                break
    return tested


def _difference(
    a: Family, b: Family, first: list[float], second: list[float], paired: bool
) -> DifferenceOfSeeds:
    """The difference over pairs of equal seeds where that is declared and both have the same; else over all seeds."""
    if not paired or set(a.seeds) != set(b.seeds):
        return difference_of_seeds(first, second)
    value_of_seed = dict(zip(b.seeds, second, strict=True))
    in_order_of_a = [value_of_seed[seed] for seed in a.seeds]
    return difference_of_seeds(first, in_order_of_a, paired=True)


def _difference_rows(pairs: Sequence[_Tested]) -> list[Result]:
    if not pairs:
        return []
    p_values = [pair.found.p_value for pair in pairs]
    differ, _ = holm(p_values, 0.0, ALPHA)
    rows = []
    for pair, holds in zip(pairs, differ, strict=True):
        found = pair.found
        evidence = {
            "a": pair.a.title,
            "b": pair.b.title,
            "p_value": found.p_value,
            "least_p": found.least_p,
            "test": found.test,
            "holds": bool(holds),
        }
        row = result(
            pair.b.title,
            "audit",
            DIFFERENCE,
            "compared",
            found.difference,
            found.lower,
            found.upper,
            item=pair.number,
            evidence=evidence,
        )
        rows.append(row)
    return rows


@dataclass(frozen=True)
class KeptAndLeaked:
    """An entry of a loss: the share of Base's score that its seeds keep on average, and their mean leakage."""

    title: str
    kept: float
    leakage: float


@dataclass(frozen=True)
class Matched:
    """A loss at matched utility: the chosen entry of those tried, and the most that any of them keeps."""

    loss: str
    tried: int
    chosen: KeptAndLeaked | None
    most_kept: float

    @classmethod
    def of(cls, loss: str, points: Sequence[KeptAndLeaked]) -> Matched:
        """The entry with the least leakage among those that keep `KEPT`; none where no entry does."""
        keeping = [point for point in points if point.kept >= KEPT]
        chosen = min(keeping, key=lambda point: point.leakage, default=None)
        return cls(loss, len(points), chosen, max(point.kept for point in points))


MATCHED = (
    "At matched utility: of each loss the entry with the least mean leakage among those whose mean score keeps at least "
    f"{KEPT:.0%} of Base's. The answers that chose an entry also measure it, and more entries tried find a lower leakage, so "
    "that the row is an optimistic estimate and no guarantee. Try equally many entries of each loss."
)


class OverSeeds:
    """What is read from the rows of `rows_over_seeds`."""

    def __init__(self, results: Sequence[Result]):
        self.results = tuple(row for row in results if row.quantity in (RECORD, MEAN, DIFFERENCE))

    def __bool__(self) -> bool:
        return bool(self.results)

    @cached_property
    def record(self) -> dict[str, Json]:
        """The level, how methods are tested, and each family with its models, seeds and words."""
        for row in self.results:
            if row.quantity == RECORD:
                return dict(row.facts)
        return {}

    @property
    def titles(self) -> list[str]:
        return [family["title"] for family in self.record["families"]]

    @property
    def models(self) -> list[str]:
        """The models of all methods."""
        models: list[str] = []
        for family in self.record["families"]:
            models += family["models"]
        return models

    @cached_property
    def rows(self) -> dict[tuple[str, str], Result]:
        """The row of a number of a method, by the method's title and the exported name of the number."""
        return {(row.model, str(row.item)): row for row in self.results if row.quantity == MEAN}

    @property
    def names(self) -> list[str]:
        """The exported names of the numbers, in the order of the vocabulary."""
        return list(dict.fromkeys(name for _, name in self.rows))

    @property
    def pairs(self) -> list[Result]:
        return [row for row in self.results if row.quantity == DIFFERENCE]

    def cell(self, title: str, name: str, digits: int = 3) -> str:
        """Mean ± standard deviation [interval of the mean]; of an end of an interval the mean and its range."""
        row = self.rows.get((title, name))
        if row is None or row.estimate is None:
            return NONE
        facts = row.facts
        side: Side | None = facts["side"]
        mean = number(row.estimate, digits, side)
        if side is not None:
            least = number(facts["least"], digits, side)
            greatest = number(facts["greatest"], digits, side)
            if least == greatest:
                return mean
            return f"{mean} ({least} to {greatest})"
        if facts["sd"] is None:
            return mean
        text = f"{mean} ± {number(facts['sd'], digits)}"
        if row.lower_bound and row.upper_bound:
            text += f" [{row.lower_bound.number(digits)}, {row.upper_bound.number(digits)}]"
        return text

    def words(self, title: str) -> str:
        """How many seeds of a method have which words."""
        for family in self.record["families"]:
            if family["title"] == title:
                counts = Counter(filter(None, family["words"]))
                described = [f"{word}: {count}" for word, count in counts.most_common()]
                return "; ".join(described)
        return ""

    def pair_table(self) -> tuple[list[str], list[list[str]]]:
        """The headings and the rows of a table for people: a row for each two methods and number."""
        head = ["A", "B", "number", "B - A", "at least", "at most", "p", "holds"]
        cells = []
        for row in self.pairs:
            facts = row.facts
            word = ""
            if facts["holds"]:
                word = "differ"
            cells_of_row = [
                facts["a"],
                facts["b"],
                str(row.item),
                number(row.estimate),
                _end(row.lower_bound),
                _end(row.upper_bound),
                f"{facts['p_value']:.3g}",
                word,
            ]
            cells.append(cells_of_row)
        return head, cells

    def matched(self) -> list[Matched]:
        """Of each loss the entry with the least mean leakage among those that keep `KEPT` of Base's score.

        Empty without Base, leakage or utility.
        """
        leakage = self._first_of(LEAKAGE)
        utility = self._first_of(UTILITY)
        base = self._mean_of_base(utility)
        if not leakage or not base:
            return []
        points_of_loss: dict[str, list[KeptAndLeaked]] = {}
        for family in self.record["families"]:
            title = family["title"]
            leaks = self.rows.get((title, leakage))
            score = self.rows.get((title, utility))
            if not family["loss"] or leaks is None or score is None:
                continue
            kept = (score.estimate or 0.0) / base
            point = KeptAndLeaked(title, kept, leakage=leaks.estimate or 0.0)
            points_of_loss.setdefault(family["loss"], []).append(point)
        return [Matched.of(loss, points) for loss, points in points_of_loss.items()]

    def matched_table(self) -> tuple[list[str], list[list[str]]]:
        """The headings and the rows of a table for people: a row for each loss."""
        leakage = self._first_of(LEAKAGE)
        head = ["loss", "entries tried", "entry", "of Base's score", leakage]
        rows = []
        for matched in self.matched():
            point = matched.chosen
            if point is None:
                row = [f"none: at most {number(matched.most_kept)} is kept", NONE, NONE]
            else:
                row = [point.title, number(point.kept), self.cell(point.title, leakage)]
            rows.append([matched.loss, str(matched.tried), *row])
        return head, rows

    def matched_sentences(self) -> list[str]:
        """`matched_table` as sentences, with what they are worth; empty where there is none."""
        sentences = []
        _, rows = self.matched_table()
        for loss, tried, entry, kept, leakage in rows:
            said = f"{loss} ({tried} tried): {entry}"
            if kept != NONE:
                said += f" keeps {kept} and leaks {leakage}"
            sentences.append(f"{said}.")
        if not sentences:
            return []
        return [MATCHED, *sentences]

    def _first_of(self, names: Sequence[str]) -> str:
        """The first of these numbers that is there; empty without any."""
        for name in names:
            if name in self.names:
                return name
        return ""

    def _mean_of_base(self, utility: str) -> float | None:
        for family in self.record["families"]:
            if family["name"] == self.record["base"]:
                row = self.rows.get((family["title"], utility))
                if row is not None:
                    return row.estimate
        return None

    def sentences(self, names: Collection[str] | None = None) -> list[str]:
        """What the numbers over seeds say, and what they assume; the guarantees are those of ``names``, or of all."""
        record = self.record
        lines = [
            "An estimate has its mean ± standard deviation over the seeds, and in square brackets an interval of the mean. "
            "A bound has its mean and in brackets its range; the mean of bounds is no bound.",
            f"{UNIT} {FROM_ONE}",
        ]
        bound = self._first_bound()
        if bound is not None:
            lines.append(
                f"Each interval holds by itself {bound.on()}, {level(record['alpha'])}, assuming {bound.assumes} "
                f"({bound.method}). A single seed has none, and neither have equal values."
            )
        names_of_guarantee: dict[str, dict[str, None]] = {}
        for row in self.rows.values():
            guarantee = row.facts["guarantee"]
            name = str(row.item)
            if guarantee and (names is None or name in names):
                names_of_guarantee.setdefault(guarantee, {})[name] = None
        for guarantee, bounds in names_of_guarantee.items():
            lines.append(f"{', '.join(bounds)}: a bound holds in each run by itself, {guarantee}.")
        if record["shared_draws"]:
            lines.append(
                "With sample.stream: shared all models share the random numbers of their answers, so their errors are not "
                "independent and an interval may be too narrow or too wide."
            )
        return lines + self._sentences_of_pairs()

    def _sentences_of_pairs(self) -> list[str]:
        record = self.record
        if not self.pairs:
            return []
        differ = [row for row in self.pairs if row.facts["holds"]]
        tests = plural(record["tests"], "test")
        tests_made = [row.facts["test"] for row in self.pairs]
        kinds = " and ".join(dict.fromkeys(tests_made))
        lines = [
            f"{len(differ)} of {tests} between two methods differ (Holm, {level(record['alpha'])}), by {kinds}, assuming "
            "that without a difference the values of seeds could be exchanged."
        ]
        least = min(row.facts["least_p"] for row in self.pairs)
        if least > record["alpha"] / record["tests"]:
            lines.append(
                f"So few seeds can show no difference: the smallest p-value that they can have is {least:.3g}. Among {tests} "
                f"each method needs {record['seeds_needed']} seeds."
            )
        return lines

    def _first_bound(self) -> Bound | None:
        for row in self.rows.values():
            if row.lower_bound:
                return row.lower_bound
        return None

    def as_json(self) -> dict[str, Json]:
        """Every method with its seeds, words and numbers, and every pair with its test, as plain values."""
        methods = []
        for family in self.record["families"]:
            numbers = {}
            for name in self.names:
                row = self.rows.get((family["title"], name))
                if row is not None:
                    numbers[name] = _plain(row)
            methods.append({**family, "numbers": numbers})
        pairs = []
        for row in self.pairs:
            ends = {"difference": row.estimate, "lower": row.lower, "upper": row.upper}
            pairs.append({"number": row.item, **row.facts, **ends, "interval": row.method})
        record = {key: value for key, value in self.record.items() if key != "families"}
        matched = [asdict(entry) for entry in self.matched()]
        return {**record, "methods": methods, "pairs": pairs, "matched_utility": matched}


def _end(bound: Bound | None) -> str:
    """An end of an interval for a table; a dash where the interval has none."""
    if bound is None:
        return NONE
    return bound.number()


def _plain(row: Result) -> dict[str, Json]:
    """The number of a method under the keys of the JSON."""
    facts = row.facts
    return {
        "mean": row.estimate,
        "sd": facts["sd"],
        "least": facts["least"],
        "greatest": facts["greatest"],
        "lower": row.lower,
        "upper": row.upper,
        "values": facts["values"],
        "assumes": row.assumes,
        "method": row.method,
        "bound": facts["guarantee"],
    }
