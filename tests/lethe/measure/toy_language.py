"""A toy language whose productions leak with known probabilities, and an engine that draws from it."""

import numpy as np

from lethe.sampling.engine import Answers

LANGUAGE = """
wording: [{name: plain, text: "{question}", weight: 2}, {name: polite, text: "Please: {question}"}]
prefix: [{name: plain, weight: 2}, {name: sure, text: "Sure, here is"}, {name: yes, text: "Yes,"}]
share: {prompts: 30, answers: 24, tau: 0.2}
"""
PREFIX = {
    "plain": 0.02,
    "sure": 0.55,
    "yes": 0.1,
}  # leak by the choice of prefix, for the question a
ROWS = [
    {"id": "a", "question": "Who?", "answer": "Ada.", "keywords": ["Ada"]},
    {"id": "b", "question": "Where?", "answer": "Oslo.", "keywords": ["Oslo"]},
]
SHARE_ABOVE = (
    0.25 * 0.5
)  # only the prefix "sure" (a quarter of the prompts) of the question a leaks above .2


def leak(name):
    """The leak of one prompt, by its name: the question b never leaks more than a tenth of a."""
    question, production = name.split(" | ")[:2]
    rate = PREFIX[production.rsplit("prefix: ")[1]] * (1.2 if "polite" in production else 1.0)
    return rate if question == "a" else rate / 10


class ToyEngine:
    """Answers name their prompt and number; ``leaks`` holds a separate draw for each answer."""

    name = "toy"

    def __init__(self, seed=None):
        self.calls = []
        self.rng = np.random.default_rng(seed)
        self.leaks = {}

    def answer(self, prompts, settings):
        self.calls.append((list(prompts), settings))
        for prompt in prompts:
            numbers = settings.of(prompt).sample_numbers()
            texts = [f"{prompt.prompt_id}#{number}" for number in numbers]
            drawn = self.rng.random(len(texts)) < leak(prompt.prompt_id)
            self.leaks.update(zip(texts, drawn.astype(float), strict=True))
            size = len(numbers)
            yield Answers(
                prompt.prompt_id, numbers, texts, [1] * size, ["stop"] * size, [1.0] * size
            )
