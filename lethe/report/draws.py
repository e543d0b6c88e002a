"""The draws that the bounds of a model are about, in words."""

from __future__ import annotations

from pathlib import Path

from lethe.evaluation.run import Model, Run
from lethe.text import plural


def covers(model: Model, run: Run) -> str:
    """Which draws the bounds are about: all that shapes the distribution of the answers."""
    drawing = model.drawing
    engine = f" of the {drawing.engine} engine" if drawing and drawing.engine else ""
    asked = drawing or run.params.sample
    temperature, top_p, top_k = asked.temperature, asked.top_p, asked.top_k
    cuts = (f", top-p {top_p:g}" if top_p < 1 else "") + (f", top-k {top_k}" if top_k else "")
    cut = model.adaptive_threshold
    adaptive = f", greedy above confidence {cut:g}," if cut is not None else "," if cuts else ""
    prompt = run.params.sample.prompt
    wording = "the chat template" if prompt == "chat" else f"prompt {Path(prompt).name}"
    return (
        f"answers{engine} of up to {plural(asked.max_new_tokens, 'token')} at temperature {temperature:g}{cuts}"
        f"{adaptive} to {wording}"
    )
