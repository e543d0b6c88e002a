"""How many hops a thing makes through the code, along its calls, beside the most that are wanted.

A *way* is a list of functions that a thing passes, in order. A *hop* is a step of a way from a function of one module into a
function of another; a step within a module is none, and neither is the return into a function that the thing has passed. The
ways stand in `WAYS`, and every step is checked against the source: a function must be named in the body of an earlier one.
A mark before a function says how the thing comes there otherwise:

- ``<`` the function calls an earlier one and takes the thing from its value;
- ``|`` the function reads what an earlier one wrote to a file;
- ``~`` a registry, a table of commands or a protocol finds the function by its name.

A way leaves out the helpers that a thing visits beside its way, so the numbers are lower ends.

``python -m tests.benchmarks hops`` prints the numbers, and with ``--steps`` the steps.
"""

import argparse
import ast
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]

QUESTION = """
  lethe.cli.generate:callback_of
~ lethe.cli.hooks.evaluating:evaluate
~ lethe.api.evaluating:evaluate
  lethe.data.rows:dataset_rows
  lethe.data.rows:read_rows
  lethe.steps.evaluate:evaluate
  lethe.io.artifacts:write_splits
  lethe.steps.evaluate:_draw
  lethe.steps.sample:run
  lethe.sampling.tasks:chosen
  lethe.sampling.tasks:_present
  lethe.io.artifacts:read_split
  lethe.sampling.tasks:tasks
  lethe.steps.sample:_drawn
  lethe.sampling.engine:AnswerStore.fill
  lethe.sampling.engine:AnswerStore.answer
~ lethe.sampling.prefix_engine:PrefixEngine.answer
  lethe.steps.sample:_tables_of
  lethe.sampling.tasks:drawn_parts
  lethe.steps.sample:_write_parts
  lethe.io.artifacts:write_parts
  lethe.steps.score:run
  lethe.steps.score:_scored
  lethe.steps.score:_columns
  lethe.io.artifacts:read_parts
  lethe.steps.score:Scoring.scored_parts
  lethe.scoring.table:scored_parts
  lethe.scoring.table:_columns
  lethe.scoring.table:asked_of
  lethe.scoring.scorer:open_scorer
  lethe.steps.metrics:run
  lethe.steps.metrics:_rows
  lethe.measure.measure:measure
  lethe.measure.measure:ScoreMatrix.__init__
  lethe.io.artifacts:parts_of
  lethe.measure.prompts:measure_prompts
  lethe.measure.prompts:_each
  lethe.statistics.counts:rate_bounds
  lethe.results.table:write
  lethe.steps.evaluate:_found
  lethe.measure.run:load_models
  lethe.results.table:read
  lethe.verdict.found:found
  lethe.verdict.deciding:standings
  lethe.verdict.deciding:_Deciding.standing
  lethe.verdict.deciding:_Deciding._verdict
  lethe.verdict.rules:decide
  lethe.verdict.deciding:_Deciding._sentence
  lethe.verdict.sentence:sentence
  lethe.verdict.standing:Standing.of
"""

ALPHA = """
  lethe.cli.generate:callback_of
~ lethe.cli.hooks.bounding:bounds
~ lethe.api.bounding:bounds
  lethe.measure.prompts:measure_file
  lethe.measure.prompts:measure_prompts
  lethe.measure.prompts:_each
  lethe.statistics.counts:rate_bounds
"""

BETA = """
  stages.unlearn:run
  stages.unlearn:forget
  lethe.unlearning.loop:unlearn
  lethe.unlearning.loop:_Loop.loss
  lethe.unlearning.protocol:Method.loss
~ lethe.unlearning.methods.npo:Method.forget_loss
  lethe.unlearning.protocol:preference
"""

# From `lethe.statistics` to the table of results, of the stage `metrics`.
TO_TABLE = """
  lethe.statistics.counts:rate_bounds
< lethe.measure.prompts:_each
< lethe.measure.prompts:measure_prompts
< lethe.measure.measure:measure
< lethe.steps.metrics:_rows
< lethe.steps.metrics:run
"""

TO_PAGE = """
  lethe.results.table:write
| lethe.results.table:read
< lethe.measure.run:load
< lethe.report.page:write
  lethe.report.page:render
"""

TO_MLFLOW = """
  lethe.results.table:write
| lethe.results.table:read_rows
< lethe.tracking.entries:_entry
< lethe.tracking.entries:read_entries
< lethe.tracking.entries:read_pipeline
< lethe.tracking:log_new
  lethe.tracking:_log_new
  lethe.tracking:_log
  lethe.tracking.runs:log
  lethe.tracking.runs:_log_entry
  lethe.tracking.runs:log_numbers
"""

TO_DVC = """
  lethe.results.quantities:headline
  lethe.io.files:write_json
"""

TO_JSON = """
  lethe.statistics.counts:rate_bounds
< lethe.measure.prompts:_each
< lethe.measure.prompts:measure_prompts
< lethe.measure.prompts:measure_file
< lethe.api.bounding:bounds
~ lethe.api.bounding:Bounds.as_json
  lethe.results.views:bounds
"""

# From the finding, which `lethe.steps.compare` made a row.
VERDICT = """
  lethe.steps.compare:write
  lethe.results.table:write
| lethe.results.table:read_rows
< lethe.results.table:compared
"""

VERDICT_TO_PAGE = """
< lethe.report.page:write
  lethe.report.page:render
  lethe.verdict.standing:Standing.of
"""

VERDICT_TO_MLFLOW = """
< lethe.tracking.entries:_compared
< lethe.tracking.entries:read_entries
  lethe.verdict.finding:Findings.of
< lethe.tracking.entries:read_pipeline
< lethe.tracking:log_new
  lethe.tracking:_log_new
  lethe.tracking:_log
  lethe.tracking.runs:log
  lethe.tracking.runs:model_note
"""

VERDICT_TO_JSON = """
  lethe.steps.evaluate:_found
< lethe.steps.evaluate:evaluate
  lethe.verdict.standing:Standing.of
< lethe.api.evaluating:evaluate
"""

# way -> the most hops that are wanted, and its steps
WAYS = {
    "a question from `lethe eval --data` to its sentence": (20, QUESTION),
    "alpha from the command line to an interval": (7, ALPHA),
    "npo.beta to the loss": (7, BETA),
    "a number from statistics to the page": (3, TO_TABLE + TO_PAGE),
    "a number from statistics to MLflow": (3, TO_TABLE + TO_MLFLOW),
    "a number from statistics to `dvc metrics`": (3, TO_TABLE + TO_DVC),
    "a number from statistics to `lethe bounds --json`": (3, TO_JSON),
    "a verdict from its row to the page": (2, VERDICT + VERDICT_TO_PAGE),
    "a verdict from its row to MLflow": (2, VERDICT + VERDICT_TO_MLFLOW),
    "a verdict to `lethe eval --json`": (2, VERDICT_TO_JSON),
}


@dataclass(frozen=True)
class Step:
    """A function on a way, and how the thing comes there: by a call (" "), or by a mark."""

    mark: str
    module: str
    function: str

    @property
    def name(self) -> str:
        """The word by which another function names this one; a class names its ``__init__``."""
        *above, last = self.function.split(".")
        return above[-1] if last == "__init__" else last


class BrokenWay(Exception):
    """A step that the source does not have."""


def steps_of(way: str) -> list[Step]:
    steps = []
    for line in filter(None, way.splitlines()):
        module, _, function = line[2:].partition(":")
        steps.append(Step(line[0], module, function))
    return steps


@cache
def tree_of(module: str) -> ast.Module:
    place = ROOT.joinpath(*module.split("."))
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def names_in(module: str, function: str) -> frozenset[str]:
    """The names and attributes in the body of a function. Raises `BrokenWay` where the module has no such function."""
    node: ast.AST = tree_of(module)
    for part in function.split("."):
        for child in ast.iter_child_nodes(node):
            if getattr(child, "name", None) == part:
                node = child
                break
        else:
            raise BrokenWay(f"{module} has no {function}")
    names = set()
    for child in ast.walk(node):
        if isinstance(child, ast.Name):
            names.add(child.id)
        elif isinstance(child, ast.Attribute):
            names.add(child.attr)
    return frozenset(names)


def sources_of(step: Step, earlier: list[Step]) -> list[Step]:
    """The earlier steps from which a thing comes to ``step``, in order. Raises `BrokenWay` where there is none."""
    names = names_in(step.module, step.function)
    if step.mark in "|~":
        return earlier[-1:]
    if step.mark == "<":
        sources = [source for source in earlier if source.name in names]
    else:
        sources = []
        for source in earlier:
            if step.name in names_in(source.module, source.function):
                sources.append(source)
    if not sources:
        raise BrokenWay(f"no step before {step.module}:{step.function} leads there")
    return sources


def hops_of(way: str) -> int:
    """The steps of a way whose function stands in another module than the function from which the thing comes."""
    steps = steps_of(way)
    hops = 0
    for place in range(1, len(steps)):
        source = sources_of(steps[place], steps[:place])[-1]
        hops += source.module != steps[place].module
    return hops


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", action="store_true", help="print the steps of each way")
    options = parser.parse_args()
    print("hops  wanted  functions  way")
    for name, (wanted, way) in WAYS.items():
        print(f"{hops_of(way):4}  {wanted:6}  {len(steps_of(way)):9}  {name}")
        if options.steps:
            print("\n".join(filter(None, way.splitlines())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
