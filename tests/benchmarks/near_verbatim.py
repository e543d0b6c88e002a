"""Near-verbatim mass beside constrained beam search, on the same windows at equal rows: beams of 20 for both, or, with
``--further 1``, a beam of 21 beside one of 20 and a further prefix of each length.

python -m tests.benchmarks.near_verbatim MODEL TEXT [--windows 20] [--distance 3] [--further 1]
"""

import argparse
import heapq
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from lethe.config.measuring import ExtractSettings
from lethe.sampling.draws import Law
from lethe.sampling.extraction import near_verbatim, path_of, windows_of
from lethe.sampling.predictor import ModelPredictor
from lethe.statistics.answer_tree import Rounding, leak_interval
from lethe.statistics.extraction import Distance

BEAM = 20


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("model", type=Path)
    asked.add_argument("text", type=Path)
    sizes = {"windows": 20, "distance": 3, "prefix": 25, "suffix": 20, "top-k": 40, "further": 0}
    for name, value in sizes.items():
        asked.add_argument(f"--{name}", type=int, default=value)
    options = asked.parse_args()
    predictor = ModelPredictor(options.model)
    tokens = predictor.checkpoint.tokenizer(options.text.read_text(), add_special_tokens=False)[
        "input_ids"
    ]
    every = windows_of(tokens, options.prefix, options.suffix, 1)
    windows = [
        every[place]
        for place in np.linspace(0, len(every) - 1, options.windows).round().astype(int)
    ]
    law = Law(predictor.checkpoint.end_ids, options.suffix, top_k=options.top_k)
    print(
        "| window | p_z | beam | rows | seconds | Lethe, certain lower | upper | rows | seconds | ratio |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    pairs = []
    wide = BEAM + options.further
    for window in windows:
        path = path_of(predictor, window, law)
        p_z = float(path[np.arange(options.suffix), list(window.suffix)].prod())
        begun = time.perf_counter()
        near = Distance(window.suffix, options.distance)
        beam, rows = beam_mass(
            _Continued(predictor, window.prefix, law), near, options.suffix, wide, law.end_ids
        )
        between = time.perf_counter()
        search = ExtractSettings(
            distance=options.distance, beam=BEAM, further=options.further, samples=0
        )
        found = near_verbatim(predictor, window, law, search, path)
        ended = time.perf_counter()
        ends = leak_interval(found.masses, found.remainder, 0.01, Rounding())
        pairs.append((beam, ends.lower))
        ratio = f"{ends.lower / beam:.2f}" if beam else "-"
        print(
            f"| {window.start} | {p_z:.2e} | {beam:.2e} | {rows} | {between - begun:.1f} | {ends.lower:.2e} | "
            f"{ends.upper:.2e} | {found.rows} | {ended - between:.1f} | {ratio} |",
            flush=True,
        )
    beams, lowers = np.array(pairs).T
    above = (lowers > beams * (1 + 1e-9)).sum()
    below = (lowers < beams * (1 - 1e-9)).sum()
    times = f"{lowers.sum() / beams.sum():.2f}" if beams.any() else "no ratio to"
    print(
        f"above the beam in {above}, below in {below}, both 0 in {(lowers == 0).sum()} of {len(pairs)} windows; mass {times} "
        f"times the beam's; above .001: {(lowers >= 1e-3).sum()} beside {(beams >= 1e-3).sum()}"
    )


class _Continued:
    """Next-token probabilities of prefixes of one length, a row each, with the cache of the beam's levels."""

    def __init__(self, predictor: ModelPredictor, prefix: tuple[int, ...], law: Law):
        self.predictor = predictor
        self.prefix = prefix
        self.law = law
        self.slots: list[tuple[int, ...]] = [()]

    def __call__(self, prefixes: list[tuple[int, ...]]) -> np.ndarray:
        if prefixes == [()]:
            self.predictor.begin(
                np.array([self.prefix]), len(self.prefix) + self.law.max_new_tokens
            )
            self.slots = [()]
            order = np.zeros(1, np.int64)
            last = np.array([self.prefix[-1]])
        else:
            parents = np.array([self.slots.index(prefix[:-1]) for prefix in prefixes])
            order = self.predictor.fork(parents)
            self.slots = [prefixes[place] for place in order]
            last = np.array([prefix[-1] for prefix in self.slots])
        logits = self.predictor.step(last)
        chances = np.empty((len(prefixes), self.predictor.vocabulary))
        chances[order] = self.law.probabilities(logits, np.zeros(len(logits)), 0)[0]
        return chances


Continuations = Callable[
    [list[tuple[int, ...]]], np.ndarray
]  # prefixes -> next-token probabilities (rows, V)


def beam_mass(
    chances: Continuations, near: Distance, length: int, width: int, end_ids: Sequence[int] = ()
) -> tuple[float, int]:
    """Constrained beam search as published (arXiv 2603.24917), written from its description: the summed probability of the
    continuations of ``length`` tokens that the beam ends with inside the distance, and the rows it read."""
    beams = [(1.0, (), near.start[None])]
    rows = 0
    for _ in range(length):
        candidates = []
        rows += len(beams)
        for (mass, tokens, edits), row in zip(
            beams, chances([candidate[1] for candidate in beams]), strict=True
        ):
            for token in np.flatnonzero(row):
                after = near.step(edits, np.array([token]))
                if token not in end_ids and near.alive(after)[0]:
                    candidates.append((mass * row[token], (*tokens, int(token)), after))
        beams = heapq.nlargest(width, candidates, key=lambda candidate: candidate[0])
        if not beams:
            break
    return sum(mass for mass, _, edits in beams if near.final(edits)[0] <= near.most), rows


if __name__ == "__main__":
    main()
