"""Compare the statistics with values by independent routes: ``python -m
tests.lethe.statistics.oracles NAME FILE``.

NAME is ``anytime`` or ``twins``; FILE has the form of the oracle of that name. The command prints
the largest error. It ends with status 1 above the tolerance, or where a case names something
unknown.
"""

import argparse
import hashlib
import hmac
import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from lethe.statistics import anytime, twins
from lethe.statistics.bounds import binary_lower, binary_upper

TOLERANCES = {"anytime": 1e-8, "twins": 1e-9}

# What is compared, and the largest error of it, relative for values above 1.
Error = tuple[str, float]


class UnknownName(Exception):
    """A case has a key that this program does not compare."""


def check_keys(values: dict, names: set[str], what: str) -> None:
    unknown = values.keys() - names
    if unknown:
        raise UnknownName(f"{what}: {', '.join(sorted(unknown))}")


def number(value: float | str) -> float:
    return float(value)  # also "inf" and "-inf"


def error(value: float, expected: float | str) -> float:
    """The absolute error of values up to 1, the relative one of larger values; infinities must
    be equal. A value that is no number is never right.
    """
    expected = number(expected)
    if value == expected:
        return 0.0
    difference = abs(value - expected) / max(1.0, abs(expected))
    return math.inf if math.isnan(difference) else difference


def relative_error(value: float, expected: float) -> float:
    """The relative error, of an end that may be 0 or 1 exactly."""
    if value == expected:
        return 0.0
    return error(value / expected, 1.0) if expected else math.inf


def counts(values: dict) -> anytime.Counts:
    check_keys(values, {"leaks", "n", "missing", "certain", "name"}, "model or retrain")
    lower, upper = values["certain"]
    return anytime.Counts(values["leaks"], values["n"], values["missing"], lower, upper)


ENDS = {"lower": "lower", "upper": "upper"}
ENDS |= {"difference_lower": "beyond_lower", "difference_upper": "beyond_upper"}


def anytime_errors(oracle: dict) -> Iterator[Error]:
    check_keys(oracle, {"version", "about", "cases"}, "file")
    for case in oracle["cases"]:
        keys = {"id", "model", "retrains", "tau", "levels", "expected", "route_difference"}
        check_keys(case, keys, case["id"])
        model = counts(case["model"])
        retrains = [counts(retrain) for retrain in case["retrains"]]
        expected = case["expected"]
        check_keys(expected, {"log_e_forgot", "log_e_leaks", "ends"}, case["id"])

        forgot = anytime.log_e_forgot(model, retrains, case["tau"])
        leaks = anytime.log_e_leaks(model, retrains, case["tau"])
        yield f"{case['id']} log_e_forgot", error(forgot, expected["log_e_forgot"])
        yield f"{case['id']} log_e_leaks", error(leaks, expected["log_e_leaks"])
        for row in expected["ends"]:
            check_keys(row, {"level", *ENDS}, case["id"])
            ends = anytime.ends(model, retrains, row["level"])
            for key, name in ENDS.items():
                label = f"{case['id']} {key} at {row['level']}"
                yield label, abs(getattr(ends, name) - number(row[key]))


def twin_errors(oracle: dict) -> Iterator[Error]:
    check_keys(oracle, {"cases", "rankings", "sealed", "planning"}, "file")
    for place, case in enumerate(oracle.get("cases", [])):
        yield from twin_case_errors(f"case {place}", case)
    for place, ranking in enumerate(oracle.get("rankings", [])):
        check_keys(ranking, {"scores", "true", "order", "ranks"}, f"ranking {place}")
        ranks = twins.ranks_of(ranking["scores"], ranking["true"], ranking["order"])
        yield f"ranking {place}", float(np.abs(ranks - ranking["ranks"]).max())
    for place, sealed in enumerate(oracle.get("sealed", [])):
        check_keys(sealed, {"key", "rows", "places", "ties", "commitment"}, f"sealed {place}")
        yield f"sealed {place}", float(not is_opened(sealed))
    for place, plan in enumerate(oracle.get("planning", [])):
        keys = {"rows", "candidates", "alpha", "threshold", "smallest_known"}
        check_keys(plan, keys, f"planning {place}")
        m = plan["rows"]
        k = plan["candidates"]
        alpha = plan["alpha"]
        threshold = twins.threshold([k] * m, alpha / 3)
        yield f"planning {place} threshold", float(abs(threshold - plan["threshold"]))
        known = twins.smallest_known([k] * m, alpha)
        yield f"planning {place} smallest_known", float(known != plan["smallest_known"])


def twin_case_errors(name: str, case: dict) -> Iterator[Error]:
    keys = {"ranks", "candidates", "alpha", "T", "p_way", "p", "log_e", "row_p", "row_p_holm"}
    keys |= {"first", "last", "first_ends", "last_ends", "epsilon_lower"}
    check_keys(case, keys, name)
    ranks = case["ranks"]
    candidates = case["candidates"]
    alpha = case["alpha"]
    check_keys(case["T"], set(twins.WAYS), f"{name} T")
    check_keys(case["p_way"], set(twins.WAYS), f"{name} p_way")
    test = twins.twin_test(ranks, candidates)
    for way in twins.WAYS:
        yield f"{name} T {way}", float(abs(test.totals[way] - case["T"][way]))
        log_p = math.log(case["p_way"][way])
        yield f"{name} ln p {way}", error(test.log_p_of_way[way], log_p)
    yield f"{name} ln p", error(test.log_p, math.log(case["p"]))
    yield f"{name} ln e", error(test.log_e, case["log_e"])

    alone = twins.secret_p_values(ranks, candidates)
    adjusted = twins.holm_adjusted(alone)
    yield f"{name} row_p", float(np.abs(alone - case["row_p"]).max())
    yield f"{name} row_p_holm", float(np.abs(adjusted - case["row_p_holm"]).max())
    if "first" not in case:
        return
    m = len(ranks)
    for key, count in (("first", ranks.count(1)), ("last", ranks.count(candidates[0]))):
        lower, upper = case[f"{key}_ends"]
        yield f"{name} {key}", float(abs(count - case[key]))
        yield f"{name} {key} lower", relative_error(float(binary_lower(count, m, alpha)), lower)
        yield f"{name} {key} upper", relative_error(float(binary_upper(count, m, alpha)), upper)
    epsilon = twins.epsilon_lower(ranks, candidates, alpha)
    yield f"{name} epsilon_lower", error(epsilon, case["epsilon_lower"])


def is_opened(sealed: dict) -> bool:
    """Whether places, ties and commitment are those that the key draws."""
    key = bytes.fromhex(sealed["key"])
    for (secret, candidates), place, ties in zip(
        sealed["rows"], sealed["places"], sealed["ties"], strict=True
    ):
        if twins.drawn_place(key, secret, len(candidates)) != place:
            return False
        for candidate, tie in zip(candidates, ties, strict=True):
            message = f"tie\n{secret}\n{candidate}".encode()
            digest = hmac.new(key, message, hashlib.sha256).hexdigest()
            if not digest.startswith(tie) or digest != twins.tie_digest(key, secret, candidate):
                return False
    return twins.commitment(key, sealed["rows"]) == sealed["commitment"]


ERRORS: dict[str, Callable[[dict], Iterator[Error]]] = {
    "anytime": anytime_errors,
    "twins": twin_errors,
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=ERRORS)
    parser.add_argument("file", type=Path)
    options = parser.parse_args(arguments)
    oracle = json.loads(options.file.read_text(encoding="utf-8"))
    tolerance = TOLERANCES[options.name]
    try:
        errors = list(ERRORS[options.name](oracle))
    except UnknownName as unknown:
        print(f"{options.file}: this program does not know {unknown}")
        return 1

    worst, largest = max(errors, key=lambda item: item[1])
    print(f"{len(errors):,} values, largest error {largest:.2g} ({worst}), at most {tolerance:g}")
    return 1 if largest > tolerance else 0


if __name__ == "__main__":
    sys.exit(main())
