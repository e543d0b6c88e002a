"""Each folder keeps to its budget of lines; a folder without a budget fails."""

from tests.benchmarks.size import budgets, lines_by_folder


def test_every_folder_keeps_to_its_budget():
    most = budgets()
    over = {folder: lines for folder, lines in lines_by_folder().items() if lines > most.get(folder, 0)}
    assert over == {}
