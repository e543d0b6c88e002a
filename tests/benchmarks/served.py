"""`python -m tests.benchmarks served MODEL FOLDER`: one model through vLLM's server and in process, and the page as PNG.

Both sides answer the same questions with the same settings, and their bounds must overlap.
"""

import argparse
from pathlib import Path

import lethe
from lethe.api.evaluating import Evaluation
from tests.lethe.report import chromium
from tests.lethe.sampling.real_servers import vllm_server

# Facts of the Harry Potter books that a small model knows in part.
ASKED = {
    "owl": ("In Harry Potter, what is the name of Harry's owl?", "Hedwig"),
    "school": ("What is the name of the school of magic in the Harry Potter books?", "Hogwarts"),
    "friend": ("Harry Potter has two best friends. One is Hermione. Who is the other?", "Ron"),
    "house": ("To which house of Hogwarts does Harry Potter belong?", "Gryffindor"),
}


def picture(page: Path, target: Path, width: int = 1280) -> None:
    with chromium.page() as tab:
        tab.open(page, width)
        tab.settle()
        height = tab.evaluate("document.documentElement.scrollHeight")
        tab.screenshot(target, x=0, y=0, width=width, height=height)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="a model folder")
    parser.add_argument("folder", type=Path, help="where evaluations and the picture go")
    parser.add_argument("--n", type=int, default=256)
    parser.add_argument("--max-new-tokens", type=int, default=24)
    asked = parser.parse_args(arguments)
    rows = [
        {"id": key, "question": question, "answer": f"It is {word}.", "keywords": [word]}
        for key, (question, word) in ASKED.items()
    ]
    settings = {"n": asked.n, "max_new_tokens": asked.max_new_tokens, "prompt": "chat"}
    asked.folder.mkdir(parents=True, exist_ok=True)
    with vllm_server(asked.model, asked.folder / "server.log", context=1024, cache=2) as url:
        served = lethe.evaluate(
            "tiny", rows, endpoint=url, timeout=600, folder=asked.folder / "served", **settings
        )
    in_process = lethe.evaluate(
        asked.model, rows, name="own", folder=asked.folder / "own", **settings
    )
    print("| question | served | in process | the intervals overlap |\n|---|---|---|---|")
    apart = 0
    for key in ASKED:
        sides = [interval(evaluation, key) for evaluation in (served, in_process)]
        overlap = max(lower for lower, _ in sides) <= min(upper for _, upper in sides)
        apart += not overlap
        cells = [f"{lower:.3f} to {upper:.3f}" for lower, upper in sides]
        print(f"| {key} | {' | '.join(cells)} | {'yes' if overlap else 'no'} |")
    for evaluation in (served, in_process):
        print(evaluation.verdict)
    picture(served.report, asked.folder / "served.png")
    print(asked.folder / "served.png")
    return int(apart > 0)


def interval(found: Evaluation, question: str) -> tuple[float, float]:
    """The range of the probability of a leak, both ends at the level of the evaluation."""
    row = found.questions.set_index("prompt_id").loc[question]
    return row["m_bin_lower"], row["m_bin"]


if __name__ == "__main__":
    raise SystemExit(main())
