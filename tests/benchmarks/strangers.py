"""Eight tasks of a newcomer, each with its commands, files to write, seconds and last line: bound a log, ...

The model is tiny and the pipeline small, so the seconds are those of Lethe itself and not of training or sampling.
"""

import contextlib
import os
import subprocess
import tempfile
import time
from pathlib import Path

import yaml

from lethe.errors import plural
from tests.contract.commands import lay_out, make_model
from tests.lethe.test_extending import EXAMPLES, blocks
from tests.small import ROOT, environment, make_repository, small_params

LEAKED = (
    "import lethe; answers = lethe.load_run('data/eval/letters').answers; "
    "leaks = answers.query(\"split == 'forget' and keyword_leak == 1\"); "
    "print(leaks.groupby('prompt_id')['text'].agg(['count', 'first']).to_string(header=False))"
)
EVALUATE = (
    "lethe",
    "eval",
    "--model",
    "letters",
    "--data",
    "forget.jsonl",
    "--prompt",
    "letters.txt",
)

COMPARE = ("lethe", "compare", "data:npo_entropy_at", "data:bounded")


def timed(folder: Path, *command: str) -> tuple[float, str]:
    """Seconds of a command, and the last line of what it prints."""
    began = time.monotonic()
    env = environment() | {
        "PYTHONPATH": str(folder)
    }  # a clone's own modules, as its installation has them
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(
            f"{' '.join(command)} left with {done.returncode}:\n{done.stdout}{done.stderr}"
        )
    return time.monotonic() - began, done.stdout.strip().splitlines()[-1].strip()


def write_method(repository: Path) -> None:
    """The method of docs/extending.md: one module, and one entry each under two keys of params.yaml."""
    files = blocks(EXAMPLES[0])
    entries = yaml.safe_load(files.pop("params.yaml"))
    for name, text in files.items():
        (repository / name).write_text(text)
    params = yaml.safe_load((repository / "params.yaml").read_text())
    params["models"] |= entries["models"]
    params["unlearn"]["methods"] |= entries["unlearn"]["methods"]
    (repository / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))


def write_seeds(repository: Path) -> None:
    """Three seeds of a method, as docs/methods.md has them: one key of its entry in params.yaml."""
    params = yaml.safe_load((repository / "params.yaml").read_text())
    params["unlearn"]["methods"]["npo_entropy"]["seeds"] = [2, 12, 22]
    (repository / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))


def main() -> None:
    os.environ["LETHE_TRACKING"] = "off"
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "user")
        folder.mkdir()
        lay_out(folder, make_model(Path(place, "model")))
        show("bound a log", 0, ROOT, ("lethe", "bounds", "docs/answers.csv"))
        show("evaluate a model", 0, folder, EVALUATE)
        show("read which answers leaked", 0, folder, ("python", "-c", LEAKED))
        repository = make_repository(Path(place, "clone"), small_params())
        show("(run the small pipeline)", 0, repository, ("lethe", "run"))
        change = ("lethe", "run", "-S", "sample.temperature=0.7")
        show("change a parameter, see what changed", 0, repository, change)
        write_method(repository)
        show("add a method", 2, repository, ("lethe", "run", "report"))
        show("compare two methods of a run", 0, repository, COMPARE)
        write_seeds(repository)
        by_method = ("lethe", "table", "data", "--by", "method")
        show("see three seeds of a method", 1, repository, ("lethe", "run"), by_method)
        show("a LaTeX table", 0, repository, ("lethe", "table", "data", "--to", "latex"))


def show(task: str, files: int, folder: Path, *commands: tuple[str, ...]) -> None:
    """Run the commands of a task; print how many, the files to edit, their seconds and the last line."""
    seconds = 0.0
    for command in commands:
        took, last = timed(folder, *command)
        seconds += took
    count = plural(len(commands), "command")
    print(f"{task:<38} {count}, {files} files to edit, {seconds:6.1f} s: {last[:100]}", flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
