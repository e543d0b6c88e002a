"""`lethe study harry-potter-55`: the published questions about Harry Potter, a block of questions a step (Fig. 3a)."""

from lethe.config.schema import Params
from lethe.data.rows import load_splits
from lethe.io.artifacts import Row
from studies.blocks import BlockStudy, shares


def published(params: Params) -> list[Row]:
    """The questions of the published file."""
    return load_splits(params.data)["forget"]


STUDY = BlockStudy(
    "harry-potter-55",
    published,
    after={"share": lambda design, _, outcomes: shares(design, outcomes)},
)
