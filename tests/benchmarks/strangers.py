"""Five tasks of a newcomer, each with its commands, files to write, seconds and last line: bound a log, evaluate a model, ...

The model is tiny and the pipeline small, so the seconds are those of Lethe itself and not of training or sampling.
"""

import contextlib
import os
import subprocess
import tempfile
import time
from pathlib import Path

import yaml

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


def main() -> None:
    os.environ["LETHE_TRACKING"] = "off"
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "user")
        folder.mkdir()
        lay_out(folder, make_model(Path(place, "model")))
        show("bound a log", 0, *timed(ROOT, "lethe", "bounds", "docs/answers.csv"))
        show("evaluate a model", 0, *timed(folder, *EVALUATE))
        show("read which answers leaked", 0, *timed(folder, "python", "-c", LEAKED))
        repository = make_repository(Path(place, "clone"), small_params())
        show("(run the small pipeline)", 0, *timed(repository, "lethe", "run"))
        change = ("lethe", "run", "-S", "sample.temperature=0.7")
        show("change a parameter, see what changed", 0, *timed(repository, *change))
        write_method(repository)
        show("add a method", 2, *timed(repository, "lethe", "run", "report"))


def show(task: str, files: int, seconds: float, last: str) -> None:
    print(
        f"{task:<38} 1 command, {files} files to edit, {seconds:6.1f} s: {last[:100]}", flush=True
    )


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
