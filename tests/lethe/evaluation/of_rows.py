"""The numbers of a model and of its questions, from rows in the making."""

from collections.abc import Callable, Sequence

from lethe.results.table import Numbers, Result, Results, Rows


def of_model(rows: Sequence[Result]) -> Numbers:
    """The rows of the scope "model"."""
    return Results({"m": tuple(rows)}).model("m")


def of_questions(rows: Sequence[Result]) -> dict[str, Numbers]:
    """The rows of each question by its id."""
    return Results({"m": tuple(rows)}).questions("m")


def made(to_rows: Callable[..., object], *given: object) -> list[Result]:
    """The rows that ``to_rows`` adds."""
    rows = Rows("m")
    to_rows(rows, *given)
    return rows.rows
