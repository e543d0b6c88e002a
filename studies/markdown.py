"""Tables of the pages that the studies write."""

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table in Markdown; a bar within a cell of a row is escaped."""
    lines = [" | ".join(head), "|".join(["---"] * len(head))]
    for row in rows:
        escaped = [cell.replace("|", "\\|") for cell in row]
        lines.append(" | ".join(escaped))
    return lines
