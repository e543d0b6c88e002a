"""Made-up results for the pages beside the report: a game with the numbers of its paper, a comparison, a text."""

import numpy as np

from lethe.audits.unlearning_game.result import GameResult
from lethe.comparison.comparison import Comparison, compare
from lethe.comparison.sides import QuestionScores, Scored, Side
from lethe.io.files import restored
from lethe.report import game_page
from lethe.report.pages import comparison_page, extraction_page
from lethe.results.extraction import Extraction, Near, Passage
from lethe.statistics.answer_tree import Masses, Remainder, Rounding
from lethe.statistics.unlearning_game import group_bound, unlearning_quality
from tests.cases import read_cases

METHODS = ("none", "fisher", "ft_final", "retr_final", "neg_grad", "retrain")
BUDGETS = ("50", "150", "600", "inf")
# Tables 1 to 4 of the unlearning-game paper; row names inferred, Table 2 lacks two rows.
QUALITY, CONFUSION, AUC = ([*table.values()] for table in read_cases(__file__).values())
DEVIATION = [
    (0.015, 0.027),
    (0.015, 0.029),
    (0.020, 0.032),
    (0.020, 0.032),
    (0.020, 0.032),
    (0.008, 0.012),
]
ACCURACY = (0.485, 0.520, 0.571, 0.660)


def by_budget(rows):
    return {
        budget: {method: row[at] for method, row in zip(METHODS, rows, strict=True)}
        for at, budget in enumerate(BUDGETS)
    }


def single():
    """One game's result without tables: the qualities of the paper's last column."""
    methods = {}
    for at, method in enumerate(METHODS):
        gap = 1 - QUALITY[at][-1]
        signed = {"confidence": [[gap - 0.01, gap + 0.01]], "entropy": [[gap / 2, gap / 2]]}
        quality = unlearning_quality(signed, signed)
        by_attack = {name: vars(attack) for name, attack in quality.by_attack.items()}
        methods[method] = {
            "quality": {**vars(quality), "by_attack": by_attack},
            "by_pair": [0.5, 0.6],
            "random_splits": {"quality": 0.6, "by_pair": [0.4, 0.7]},
            "deviation": dict(zip(("swap", "random"), DEVIATION[at], strict=True)),
            "mia_auc": {"confidence": 0.6, "entropy": 0.5},
            "mia_score": AUC[at][-1],
            "performance": {"retain": 0.99, "forget": 0.9, "test": 0.66},
            "confusion": {"score": CONFUSION[at][-1], "accuracy": 0.6},
        }
    return {
        "kind": "images",
        "unit": "images",
        "performs": "accuracy",
        "sizes": {"retain": 24546, "forget": 2727, "test": 2727},
        "pairs": 1,
        "seeds": 2,
        "alpha": 0.05,
        "shared_retrain": False,
        "defenders": {method: method for method in METHODS},
        "privacy": None,
        "methods": methods,
    }


def paper():
    accuracy = {budget: dict.fromkeys(METHODS, ACCURACY[at]) for at, budget in enumerate(BUDGETS)}
    result = single()
    result["tables"] = {
        name: {"values": by_budget(rows), "accuracy": accuracy}
        for name, rows in (("quality", QUALITY), ("confusion", CONFUSION), ("mia", AUC))
    }
    deviations = {name: method["deviation"] for name, method in result["methods"].items()}
    result["tables"]["deviation"] = deviations
    column = by_budget(QUALITY)["inf"]
    result["figure"] = {
        "points": {1000: column, 2000: dict(column)},
        "repetitions": 3,
        "repeats": {method: [value] * 3 for method, value in column.items()},
    }
    bound = vars(group_bound(50, 1e-5, 2727))
    result["bounds"] = dict.fromkeys(BUDGETS[:-1], bound)
    return result


def comparison() -> Comparison:
    """One question worse, one better, one that shows nothing, one with a name that means mischief and one left out."""
    names = {
        "q-0": (0, 60),
        "q-1": (80, 0),
        "q-2": (10, 11),
        "<script>document.title='owned'</script>" + "x" * 80: (5, 5),
    }
    sides = []
    for place, name in enumerate(("before", "after")):
        answers = {}
        for question, ones in names.items():
            n_ones = ones[place]
            answers[question] = QuestionScores(np.repeat([1.0, 0.0], [n_ones, 200 - n_ones]))
        if name == "before":
            answers["q-4"] = QuestionScores(np.ones(200))
        scored = Scored(answers, {"temperature": place})
        sides.append(Side(name, "table", "keyword_leak", {"": scored}))
    return compare(*sides)


def extraction(name: str) -> Extraction:
    """Windows from the surest to the least likely, one searched, one with a text that means mischief."""
    near = Near(Masses((0.2,), (0.3,)), Remainder(0.5, 8, 1), 100)
    passages = [
        Passage(
            f"w{place}",
            place,
            f"prefix {place}\n",
            "<script>\nx" * 3,
            (0.5**place, 0.9),
            None if place else near,
        )
        for place in range(50)
    ]
    return Extraction(name, tuple(passages), Rounding(1e-4, 2), 0.01)


def pages() -> dict[str, str]:
    tables, alone = (restored(GameResult, result) for result in (paper(), single()))
    return {
        "game": game_page.page("digits", alone),
        "tables": game_page.page("paper", tables),
        "compare": comparison_page(comparison()),
        "extraction": extraction_page(
            [extraction("npo"), extraction("retrain")], "One window", ["A sentence."]
        ),
    }
