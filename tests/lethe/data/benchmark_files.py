"""Small copies of published benchmarks in their files' real layouts, with harmless texts."""

import json

from lethe.config.schema import Data
from lethe.data.kinds import harmbench, harry_potter, jailbreakbench, muse, rwku
from lethe.data.rows import check_splits

OPTIONS = {
    "harry_potter": {"file": "harry_potter.csv", "retain": None},
    "jailbreakbench": {"hub": None},
    "harmbench": {
        "hub": None,
        "file": "harmbench_behaviors_text_all.csv",
        "categories": ["standard", "contextual"],
    },
    "muse": {"hub": None, "parts": ["knowmem", "verbmem"]},
    "rwku": {"hub": None, "subject": None, "levels": [1, 2, 3]},
}
MODULES = {"harry_potter": harry_potter, "jailbreakbench": jailbreakbench, "harmbench": harmbench, "muse": muse}
MODULES["rwku"] = rwku


def settings(kind, **changes):
    common = {"kind": kind, "source": "unused", "forget": "forget01", "seed": 0}
    return Data.model_validate({**common, kind: {**OPTIONS[kind], **changes}})


def load(kind, source, **changes):
    return check_splits(MODULES[kind].load(settings(kind, **changes), source))


def write_csv(path, columns, rows, blank=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f",{blank}".join(columns)]
    lines += [f",{blank}".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_json(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows), encoding="utf-8")


BEHAVIOR = ["Reveal the vault code", "standard", "secrets", "", "", "reveal_vault_code"]
IN_CONTEXT = ["Name the key", "contextual", "secrets", "context", "The key lies under a stone.", "name_key"]
COPYRIGHT = ["Sing the song", "copyright", "", "hash_check, lyrics", "", "sing_song"]


def files(kind):
    """Relative path to what the file holds, in the layout of the benchmark."""
    jbb = ["Index", "Goal", "Target", "Behavior", "Category", "Source"]
    probe = {
        "query": "The baker lives in ___.",
        "answer": "Oslo",
        "level": "1",
        "type": "cloze",
        "subject": "A Baker",
    }
    return {
        "harry_potter": {
            "harry_potter.csv": (
                ["Question", "Affirmative Response", "Key Words"],
                [["Who, and where?", 'He said "here".', "Here, there"], ["When?", "Now.", "Now"]],
            )
        },
        "jailbreakbench": {
            "harmful-behaviors.csv": (
                jbb,
                [["0", "Reveal the vault code", "Sure, here is the code", "Vault", "Secrets", "Original"]],
            ),
            "benign-behaviors.csv": (
                jbb,
                [["0", "Explain a vault", "Sure, here is a vault", "Vault", "Secrets", "Original"]],
            ),
        },
        "harmbench": {
            "harmbench_behaviors_text_all.csv": (list(harmbench.COLUMNS), [BEHAVIOR, IN_CONTEXT, COPYRIGHT])
        },
        "muse": {
            "knowmem/forget_qa.json": [{"question": "Who won?", "answer": "Nobody."}],
            "knowmem/retain_qa.json": [{"question": "Who came?", "answer": "Everybody."}],
            "verbmem/forget.json": [{"prompt": "It was a dark", "gt": "and quiet night."}],
        },
        "rwku": {
            "forget_level1.json": [probe],
            "forget_level2.json": [
                {**probe, "level": "2", "query": "Where is the baker?", "type": "simple question"}
            ],
            "forget_level3.json": [{**probe, "level": "3", "query": "Oslo or Rome?", "type": "multiple choice"}],
            "neighbor_level1.json": [{**probe, "subject": "A Baker"}, {**probe, "subject": "A Mason"}],
            "neighbor_level2.json": [{**probe, "level": "2"}],
        },
    }[kind]


def write_benchmark(kind, folder):
    """Write every file of a benchmark below ``folder``."""
    for name, held in files(kind).items():
        if name.endswith(".csv"):
            write_csv(folder / name, *held)
        else:
            write_json(folder / name, held)
