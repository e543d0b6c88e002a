"""The commands of a pipeline folder, as the `lethe` command knows them elsewhere."""

from flows.cli import commands
from lethe.cli.app import IN_A_PIPELINE


def test_every_command_of_a_pipeline_folder_says_elsewhere_where_it_works():
    assert sorted(IN_A_PIPELINE) == sorted(commands())
