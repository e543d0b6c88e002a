"""`python -m tests.benchmarks latex RUN...`: the LaTeX of `lethe table` compiled to a page, which is to be looked at.

Needs pdflatex and booktabs (Debian: texlive-latex-recommended). Without RUN it takes the run in data/.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import lethe

PAGE = r"""\documentclass{article}
\usepackage{booktabs}
\begin{document}
%s
\end{document}
"""
OUT = Path("table.pdf")


def compiled(table: str, out: Path) -> list[str]:
    """Compile a table to ``out``; return the lines of LaTeX's log that say that something is too wide."""
    with tempfile.TemporaryDirectory() as place:
        Path(place, "table.tex").write_text(PAGE % table, encoding="utf-8")
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise SystemExit(done.stdout[-2000:])
        out.write_bytes(Path(place, "table.pdf").read_bytes())
    return [line for line in done.stdout.splitlines() if line.startswith("Overfull")]


def main(runs: list[str]) -> None:
    table = lethe.table(*(runs or ["data"]), to="latex")
    wide = compiled(table.text, OUT)
    print(f"{OUT}: {len(wide)} lines too wide")
    for line in wide:
        print(line)


if __name__ == "__main__":
    main(sys.argv[1:])
