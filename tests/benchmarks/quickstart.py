"""`python -m tests.benchmarks quickstart`: execute docs/quickstart.ipynb on the run in data/ and store its output."""

import contextlib
import io
import json
import sys
from pathlib import Path

NOTEBOOK = Path(__file__).parents[2] / "docs/quickstart.ipynb"


def executed(notebook: dict) -> list[dict]:
    """The cells of the notebook with what each prints in this folder, in one namespace from first to last."""
    names: dict[str, object] = {}
    cells = []
    count = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count = count + 1
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec("".join(cell["source"]), names)
            lines = printed.getvalue().splitlines(keepends=True)
            outputs = [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []
            cell = cell | {"execution_count": count, "outputs": outputs}
        cells.append(cell)
    return cells


def main() -> None:
    import matplotlib

    matplotlib.use("agg")
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    notebook["cells"] = executed(notebook)
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(NOTEBOOK)


if __name__ == "__main__":
    sys.exit(main())
