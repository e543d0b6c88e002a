"""The settings of sampling that the requests of a log state, whose values may differ from request to request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lethe.io.files import Json
from lethe.io.logs._log import greedy

if TYPE_CHECKING:
    import pandas as pd

NAMES = ("temperature", "top_p", "top_k", "min_p", "do_sample", "max_tokens", "seed")


@dataclass
class Settings:
    """What requests state of their sampling, as they were added."""

    values: dict[str, list[Json]] = field(default_factory=dict)
    requests: int = 0
    greedy_requests: int = 0
    greedy_setting: str = ""

    def add(self, request: Mapping[str, Json]) -> None:
        self.requests += 1
        setting = greedy(request)
        if setting:
            self.greedy_requests += 1
            self.greedy_setting = setting
        for name in NAMES:
            value = request.get(name)
            if isinstance(value, (int, float, str)) and value not in self.values.setdefault(
                name, []
            ):
                self.values[name].append(value)

    def add_rows(self, table: pd.DataFrame) -> None:
        """Add what each row of a table states in the columns of these names, however they are capitalised."""
        columns = {str(column).lower(): column for column in table.columns}
        stated = [name for name in NAMES if name in columns]
        if not stated:
            return
        rows = table[[columns[name] for name in stated]].drop_duplicates()
        for values in rows.itertuples(index=False):
            self.add(dict(zip(stated, values, strict=True)))

    @property
    def sampling(self) -> dict[str, Json]:
        """The settings of which all requests that state them have one value."""
        return {name: values[0] for name, values in self.values.items() if len(values) == 1}

    @property
    def greedy_by(self) -> str | None:
        """The setting that makes some request greedy, None where none is."""
        if not self.greedy_requests:
            return None
        if self.greedy_requests == self.requests:
            return self.greedy_setting
        return f"{self.greedy_setting} in {self.greedy_requests} of {self.requests} requests"

    @property
    def may_repeat(self) -> str | None:
        """The seed that every request carries, by which some servers repeat an answer."""
        if len(self.values.get("seed", [])) == 1:
            return f"each request carries seed {self.values['seed'][0]}"
        return None

    @property
    def warnings(self) -> list[str]:
        sentences = []
        for name, values in self.values.items():
            if len(values) > 1 and name != "seed":
                sentences.append(
                    f"{name} has {len(values)} values: the answers are draws of several settings"
                )
        return sentences
