"""A study of published questions in small, of three questions and eight short answers."""

from pathlib import Path

from studies.blocks import BlockStudy, Design


def small_design(study: BlockStudy, prompt: Path) -> Design:
    committed = study.read_design()
    settings = {
        **committed.settings,
        "sample.prompt": str(prompt),
        "sample.max_new_tokens": 4,
    }
    small = {"questions": 3, "answers": 8, "block": 2, "settings": settings}
    return committed.model_copy(update=small)
