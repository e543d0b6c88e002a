"""The report's section on populations of attacks: the share of a recipe that succeeds, and what each attack showed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lethe.results.population import PopulationResult, Tried
from lethe.results.table import Result
from lethe.results.trace import refusal_of_all
from lethe.statistics.attack_share import Outcome
from lethe.text import NONE, number

HEAD = ("kind", "attacks", "leak", "unproved", "largest upper end of a question")
FOUND_HEAD = ("attack", "with", "outcome", "question", "largest upper end of a question")
MOST = 12  # attacks that a page lists; the artifact has all
WORDS: dict[Outcome, str] = {"leaks": "leaks", "open": "unproved", "fails": "fails"}


@dataclass(frozen=True)
class PopulationView:
    """What the page shows of one population: its sentences, the kinds of its attacks, and those that did not fail."""

    name: str
    path: str
    sentences: list[str]
    rows: list[list[str]]
    found: list[list[str]]
    left_out: int  # attacks that did not fail and are not listed


@dataclass(frozen=True)
class Populations:
    """The section of the page on populations of attacks: its views, and the headings of both tables."""

    views: list[PopulationView]
    head: Sequence[str] = HEAD
    found_head: Sequence[str] = FOUND_HEAD


def populations(results: Mapping[str, PopulationResult], compared: Sequence[Result]) -> Populations:
    """The views of a run's populations; empty where it has none. ``compared`` are the rows of the stage `compare`."""
    untraced = refusal_of_all(compared)
    views = []
    for name, result in results.items():
        views.append(_view(name, result, untraced))
    return Populations(views)


def _view(name: str, result: PopulationResult, untraced: str) -> PopulationView:
    sentences = [result.sentence(name), result.before_sentence]
    if result.tests_traces and untraced:
        sentences.append(f"No word on a trace after an attack. {untraced}")
    elif result.tests_traces:
        sentences.append(result.trace_sentence)
    sentences.append(result.covers)

    found = []
    for attack in result.tried:
        if attack.outcome != "fails":
            found.append(_found(attack))
    return PopulationView(
        name=name,
        path=result.path,
        sentences=sentences,
        rows=_by_kind(result.tried),
        found=found[:MOST],
        left_out=max(0, len(found) - MOST),
    )


def _by_kind(tried: Sequence[Tried]) -> list[list[str]]:
    attacks_of_kind: dict[str, list[Tried]] = {}
    for attack in tried:
        attacks_of_kind.setdefault(attack.kind, []).append(attack)

    rows = []
    for kind, attacks in sorted(attacks_of_kind.items()):
        outcomes = [attack.outcome for attack in attacks]
        largest = max(attack.worst_upper for attack in attacks)
        row = [
            kind,
            str(len(attacks)),
            str(outcomes.count("leaks")),
            str(outcomes.count("open")),
            number(largest, side="upper"),
        ]
        rows.append(row)
    return rows


def _found(attack: Tried) -> list[str]:
    """An attack with the questions that it is proved to bring out, or else the one with the largest upper end."""
    questions = ", ".join(attack.leaks) or attack.worst or NONE
    return [
        f"{attack.number:,}",
        attack.words,
        WORDS[attack.outcome],
        questions,
        number(attack.worst_upper, side="upper"),
    ]
