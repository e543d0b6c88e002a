"""Tables for people: whole numbers in a pipe, no markup obeyed."""

from flows.console import print_table


def test_in_a_pipe_no_cell_is_broken_in_two(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    columns = [f"m_bin_worst_{number}" for number in range(12)]
    print_table(
        "t", ["model", *columns], [["[red]npo_entropy_at", *(0.25 + number / 1e4 for number in range(12))]]
    )
    told = capsys.readouterr().out
    for cell in ("[red]npo_entropy_at", *columns, *(f"{0.25 + number / 1e4:.4g}" for number in range(12))):
        assert cell in told
