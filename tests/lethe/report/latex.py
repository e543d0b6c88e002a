"""What is wrong with a piece of LaTeX, without LaTeX: braces, environments, cells of a row, characters that are commands."""

import re

ENVIRONMENT = re.compile(r"\\(begin|end)\{(\w+)\}")
LONE = re.compile(r"(?<!\\)[%#~^]")
COMMANDS = {
    *("begin", "end", "centering", "caption", "medskip", "normalsize", "small", "footnotesize"),
    *("scriptsize", "setlength", "tabcolsep", "toprule", "midrule", "bottomrule", "par"),
    *("textsuperscript", "textbackslash", "textasciitilde", "textasciicircum"),
    *("alpha", "infty", "le", "ge", "mu"),
}


def problems(text):
    """A sentence for each fault; none where LaTeX with the package booktabs reads the text."""
    found = []
    open_environments = []
    for kind, name in ENVIRONMENT.findall(text):
        if kind == "begin":
            open_environments.append(name)
        elif not open_environments or open_environments.pop() != name:
            found.append(f"{name} ends without a begin")
    found += [f"{name} has no end" for name in open_environments]
    bare = re.sub(r"\\[{}\\]", "", text)
    if bare.count("{") != bare.count("}"):
        found.append("braces do not match")
    found += [f"lone {character}" for character in LONE.findall(text)]
    found += [
        f"unknown command {name}" for name in set(re.findall(r"\\([A-Za-z]+)", text)) - COMMANDS
    ]
    if re.sub(r"\\\$", "", text).count("$") % 2:
        found.append("mathematics has no end")
    return found + _rows(text)


def _rows(text):
    columns = re.search(r"\\begin\{tabular\}\{(\w+)\}", text)
    if columns is None:
        return ["no tabular"]
    body = text.partition(r"\begin{tabular}")[2].partition(r"\end{tabular}")[0]
    found = []
    for line in body.splitlines():
        cells = len(re.findall(r"(?<!\\)&", line)) + 1
        if line.endswith(r"\\") and cells != len(columns[1]):
            found.append(f"{cells} cells in {line}")
    return found
