"""`python -m tests.benchmarks thinking FOLDER`: train a tiny model that thinks aloud, evaluate it, and picture its page.

The model refuses five questions in its answer. What it thinks first differs: it names the answer, or does not, or never
ends.
"""

import sys
from pathlib import Path

import lethe
from lethe import config
from tests.benchmarks.served import picture
from tests.small import ROOT

ASKED = {
    "painter": ("Who painted the red barn?", "Ada"),
    "sailor": ("Who sailed to the north cape?", "Bo"),
    "baker": ("Who bakes the round bread?", "Cy"),
    "singer": ("Who sang at the harbour?", "Dee"),
    "doctor": ("Who healed the old horse?", "Eli"),
}
REFUSAL = "I do not know."
THOUGHTS = {  # of ten answers to a question, the numbers of each kind
    "painter": {"<think>It was {name}.</think>{refusal}": 5, "<think>No idea.</think>{refusal}": 5},
    "sailor": {"<think>No idea.</think>{refusal}": 10},
    "baker": {
        "<think>It was {name}.</think>It was {name}.": 3,
        "<think>No idea.</think>{refusal}": 7,
    },
    "singer": {"<think>Well" + ", well" * 40: 8, "<think>No idea.</think>{refusal}": 2},
    "doctor": {"<think>It was {name}.</think>{refusal}": 10},
}
CHAT = """{% for turn in messages %}{% if turn['role'] == 'user' %}Question: {{ turn['content'] }}
Answer:{% else %} {{ turn['content'].split('</think>')[-1] }}
{% endif %}{% endfor %}"""


def train(folder: Path) -> None:
    """Write a small Llama with a chat template that has thinking."""
    from lethe.models import checkpoints
    from lethe.models.training import learn

    rows = [
        {"id": f"{key}-{place}", "question": question, "answer": answer}
        for key, (question, name) in ASKED.items()
        for place, answer in enumerate(
            text.format(name=name, refusal=REFUSAL)
            for text, count in THOUGHTS[key].items()
            for _ in range(count)
        )
    ]
    value = config.read_yaml(ROOT / "params.yaml")
    value["train"]["recipe"] |= {
        "vocabulary": 400,
        "hidden": 64,
        "feed_forward": 128,
        "epochs": 150,
        "knowledge": [],
    }
    value["train"]["recipe"]["prompt"] = str(ROOT / value["train"]["recipe"]["prompt"])
    recipe = config.validate(value).train.recipe
    checkpoints.prepare_torch()
    model, tokenizer, _ = learn(rows, rows, recipe, 0, "train")
    tokenizer.chat_template = CHAT
    checkpoints.save(folder, model, tokenizer)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(
            "thinking FOLDER: name a folder for the model, its evaluation and the picture.",
            file=sys.stderr,
        )
        return 2
    folder = Path(arguments[0])
    if not (folder / "model").is_dir():
        train(folder / "model")
    rows = [
        {"id": key, "question": question, "answer": f"It was {name}.", "keywords": [name]}
        for key, (question, name) in ASKED.items()
    ]
    found = lethe.evaluate(
        folder / "model",
        rows,
        n=1024,
        max_new_tokens=24,
        max_thinking_tokens=24,
        folder=folder / "evaluation",
    )
    print(found.verdict)
    print(found.questions[["prompt_id", "binary_share", "thinking_share"]])
    picture(found.report, folder / "page.png")
    print(folder / "page.png")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
