"""The bookkeeping of shared prefixes against its naive twin: one list of tokens per sample."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.sampling.prefix_engine import Branch, Frontier

END, VOCABULARY, STEPS = 3, 4, 6


def start(prompt: int, tokens: list[int], samples: int) -> Branch:
    return Branch(
        prompt, np.array([tokens]), np.zeros(1), np.arange(-1, samples), np.zeros(samples + 1, dtype=np.int64)
    )


class Twin:
    """What the engine does around the frontier, with each slot's cache spelt out as the tokens it stands for."""

    def __init__(self, seed: int):
        self.random = np.random.default_rng(seed)
        self.frontier = Frontier((END,), STEPS, VOCABULARY)
        self.slots: dict[int, tuple[int, ...]] = {}
        self.drawn: dict[tuple[int, int], list[int]] = {}  # (prompt, sample) -> its tokens, the prompt's included
        self.waiting: list[Branch] = []
        self.leaves: dict[int, list] = {}
        self.lengths: dict[int, int] = {}

    def add(self, prompt: int, tokens: list[int], samples: int) -> None:
        self.waiting.append(start(prompt, tokens, samples))
        self.lengths[prompt] = len(tokens)
        self.leaves[prompt] = []

    def join(self) -> None:
        frontier = self.frontier
        if not len(frontier):
            frontier.clear(min(branch.length for branch in self.waiting))
        for branch in [branch for branch in self.waiting if branch.length == frontier.length]:
            self.waiting.remove(branch)
            for row, number in zip(branch.row, branch.number, strict=True):
                self.drawn[branch.prompt, number] = branch.tokens[row].tolist()
            for slot, row in enumerate(branch.tokens, start=len(frontier)):
                self.slots[slot] = tuple(row[:-1])
            table = np.zeros((len(branch.number), STEPS), np.int64)
            table[:] = branch.number[:, None] * 100 + np.arange(STEPS)
            frontier.join(branch, self.lengths[branch.prompt], table)

    def step(self) -> None:
        frontier = self.frontier
        for slot in range(len(frontier)):  # the model writes one position behind each row
            assert self.slots[slot] == tuple(frontier.tokens[slot, :-1])
            self.slots[slot] = tuple(frontier.tokens[slot])
        prompts = {key: running.start.prompt for key, running in frontier.running.items()}
        owners = [prompts[key] for key in frontier.owner[frontier.row]]
        steps = frontier.steps_done()[frontier.row]
        assert np.array_equal(frontier.draws(), frontier.number * 100 + steps)
        tokens = self.random.integers(VOCABULARY, size=len(frontier.row))
        for prompt, number, row, token in zip(owners, frontier.number, frontier.row, tokens, strict=True):
            assert self.drawn[prompt, number] == frontier.tokens[row].tolist()
            self.drawn[prompt, number].append(int(token))
        frontier.grow(np.full(len(frontier), 0.5), tokens)

    def settle(self) -> None:
        sources, targets = self.frontier.settle()
        assert not set(sources) & set(targets)
        self.slots.update({target: self.slots[source] for source, target in zip(sources, targets, strict=True)})
        for running in self.frontier.finished():
            self.leaves[running.start.prompt] += running.leaves


@settings(max_examples=80)
@given(seed=st.integers(0, 2**32 - 1), disturb=st.booleans())
def test_every_sample_ends_with_the_tokens_it_drew(seed, disturb):
    twin = Twin(seed)
    for prompt, (length, samples) in enumerate([(2, 12), (2, 1), (4, 30), (9, 5)]):
        twin.add(prompt, [prompt] * length, samples)
    while twin.waiting or len(twin.frontier):
        twin.join()
        twin.step()
        if disturb and twin.frontier.running and len(twin.frontier) > 1:
            key = twin.random.choice(list(twin.frontier.running))
            if twin.random.random() < 0.1:
                twin.waiting.append(twin.frontier.abandon(key))
            elif np.count_nonzero(twin.frontier.owner == key) > 1 and twin.random.random() < 0.2:
                done, parts = twin.frontier.split(key, 2)
                twin.leaves[done.start.prompt] += done.leaves
                twin.waiting += parts
        assert len(
            {(*row, owner) for row, owner in zip(twin.frontier.tokens, twin.frontier.owner, strict=True)}
        ) == len(twin.frontier)
        twin.settle()
    for prompt, samples in enumerate([12, 1, 30, 5]):
        leaves = twin.leaves[prompt]
        assert sorted(np.concatenate([leaf.number for leaf in leaves])) == list(range(-1, samples))
        assert len({leaf.tokens for leaf in leaves}) == len(leaves) or disturb
        for leaf in leaves:
            assert leaf.mean_confidence == 0.5
            assert leaf.stopped == (leaf.tokens[-1] == END)
            assert leaf.stopped or len(leaf.tokens) == STEPS
            assert END not in leaf.tokens[:-1]
            for number in leaf.number:
                assert twin.drawn[prompt, number][twin.lengths[prompt] :] == list(leaf.tokens)


def test_a_first_child_stays_in_its_slot_and_only_forks_are_copied():
    frontier = Frontier((END,), STEPS, VOCABULARY)
    frontier.clear(1)
    frontier.join(start(0, [0], 5), 1, np.zeros((6, STEPS), np.int64))
    frontier.grow(np.ones(1), np.array([0, 0, 1, 1, 2, 2]))
    sources, targets = frontier.settle()
    assert (sources.tolist(), targets.tolist()) == ([0, 0], [1, 2])
    frontier.grow(np.ones(3), np.array([0, 0, END, END, 1, 2]))  # row 1 ends, row 2 forks
    sources, targets = frontier.settle()
    assert (sources.tolist(), targets.tolist()) == ([2], [1])
