"""The settings of sampling that the requests of a log state, whose values may differ from request to request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from lethe.errors import BadInput, plural, shortened
from lethe.io.column_names import columns_of, meant, object_in, spread, with_members
from lethe.io.facts import CACHED, MODELS, is_cached, several_models
from lethe.io.files import Json
from lethe.io.logs._decoding import DECODING, SAYS_GREEDY, chosen, greedy
from lethe.io.logs._json import as_object

if TYPE_CHECKING:
    import pandas as pd

NAMES = (
    *("temperature", "top_p", "top_k", "min_p", "do_sample", "max_tokens", "seed"),
    *("best_of", "num_beams"),
    *(*DECODING, *SAYS_GREEDY),
)
# Objects of a request that hold its settings, which a CSV has as JSON.
NESTED = (
    *("sampling_params", "sampling", "generation_config", "generation_kwargs", "gen_kwargs"),
    *("generation_args", "generation_params", "generation_parameters", "sampling_parameters"),
    *("inference_config", "inference_params", "model_kwargs", "model_config", "model_args"),
    *("model_params", "model_parameters", "llm_config", "extra_body", "hyperparameters"),
    *("parameters", "params", "settings", "options", "config", "kwargs"),
    *("request", "request_body", "body", "metadata", "meta", "response_metadata"),
)


class SettingsOfLog(TypedDict):
    """What a log takes of the settings of its requests."""

    sampling: Mapping[str, Json]
    greedy_by: str | None
    repeats: str | None
    may_repeat: str | None
    mixed: str | None
    selected: Sequence[str]
    warnings: Sequence[str]


# Words that may stand before the name of a setting: sampling_temperature, generation_config.top_k. A judge has settings, too.
BEFORE = frozenset(
    (
        *"sampling sampler gen generation model llm decoding inference request answer".split(),
        *"config params parameters args kwargs options settings".split(),
        *"metadata meta info details extra additional hidden notes body response".split(),
        *"generate hyperparameters decode strategy method".split(),
    )
)
OF_DRAWS = (*CACHED, *MODELS)  # what says of an answer which model drew it, or that none did
OTHER_NAMES = {
    "temp": "temperature",
    "num_beam": "num_beams",
    "beam_size": "num_beams",
    "beam_width": "num_beams",
    "n_beams": "num_beams",
    "beams": "num_beams",
    "best_of_n": "best_of",
    "use_sampling": "do_sample",
    "do_sampling": "do_sample",
}
ALL_NAMES = (*NAMES, *OTHER_NAMES)


def setting_of(name: str) -> str | None:
    """The setting that a name of a column or key means; None for another name.

    >>> [setting_of(name) for name in ("Temperature", "doSample", "gen_kwargs.top_k", "temp", "judge_temperature")]
    ['temperature', 'do_sample', 'top_k', 'temperature', None]
    """
    setting = meant(name, ALL_NAMES, BEFORE)
    return None if setting is None else OTHER_NAMES.get(setting, setting)


def holds_settings(name: str) -> bool:
    """Whether a column or key of this name may hold an object of settings.

    >>> holds_settings("generationConfig"), holds_settings("request.params"), holds_settings("judge_params")
    (True, True, False)
    """
    return meant(name, NESTED, BEFORE) is not None


def with_draws(table: pd.DataFrame) -> pd.DataFrame:
    """The table with columns for what objects in its cells state of settings, models and caches."""

    def is_read(name: str) -> bool:
        return setting_of(name) is not None or meant(name, OF_DRAWS) is not None

    return with_members(table, is_read)


def laws_among(columns: Iterable[str]) -> list[str]:
    """The columns of settings that decide the law of an answer: all but a seed, since each answer may have one of its own."""
    return [column for column in columns if setting_of(str(column)) not in (None, "seed")]


@dataclass
class RequestSettings:
    """What requests state of their sampling, as they were added.

    ``mixed`` says why answers to a question are draws of several laws: two of its requests state two values of a setting, or
    two models. ``cached`` counts the requests whose answers came from a cache.
    """

    values: dict[str, list[Json]] = field(default_factory=dict)
    mixed: str | None = None
    requests: int = 0
    greedy_requests: int = 0
    greedy_setting: str = ""
    cached: int = 0
    _laws: dict[tuple[str, str], Json] = field(default_factory=dict)  # by question and setting

    def add(self, request: Mapping[str, Json], times: int = 1, question: str | None = None) -> None:
        """Add what a request states, itself or in an object of settings.

        ``times`` is how many requests state it, and ``question`` the name of what it asks.
        """
        stated = stated_in(request)
        self.requests += times
        if is_cached(request):
            self.cached += times
        members = spread(request)
        for name in columns_of(members, MODELS):
            self._add_model(question, name, members[name])
        setting = greedy(stated)
        if setting:
            self.greedy_requests += times
            self.greedy_setting = setting
        for name in NAMES:
            value = stated.get(name)
            if not isinstance(value, (int, float, str)) or value != value:
                continue
            if value not in self.values.setdefault(name, []):
                self.values[name].append(value)
            if question is not None and name != "seed":
                earlier = self._laws.setdefault((question, name), value)
                if earlier != value and self.mixed is None:
                    self.mixed = (
                        f"Prompt {shortened(question)} has several values of {name} "
                        f"({shortened(earlier)} and {shortened(value)})"
                    )

    def _add_model(self, question: str | None, name: str, model: Json) -> None:
        """Note the model that a request names, as the key ``name`` says."""
        if question is None or not isinstance(model, str):
            return
        place = name.rpartition(".")[0]  # a request may name a model otherwise than its response
        law = f"{place}.{meant(name, MODELS)}"
        earlier = self._laws.setdefault((question, law), model)
        if earlier != model and self.mixed is None:
            self.mixed = several_models(question, [earlier, model])

    def add_answers(
        self, row: Mapping[str, Json], answers: Sequence[Json], question: str | None = None
    ) -> None:
        """Add a row of several answers to a question.

        It is a request, or each answer is one where answers, or lists beside them, state a setting.
        """
        lists = {}
        members = spread(row)
        for name, value in members.items():
            is_stated = setting_of(name) is not None or meant(name, OF_DRAWS) is not None
            if is_stated and isinstance(value, list) and len(value) == len(answers):
                lists[name] = value
        of_answers = []
        for place, answer in enumerate(answers):
            of_list = {name: values[place] for name, values in lists.items()}
            beside = spread(as_object(answer))
            drawn = {name: beside[name] for name in columns_of(beside, OF_DRAWS)}
            of_answers.append(of_list | drawn | stated_in(beside))
        if any(of_answers):
            for stated in of_answers:
                drawn = {name: members[name] for name in columns_of(members, OF_DRAWS)}
                self.add({**drawn, **stated_in(row), **stated}, question=question)
        else:
            self.add(row, question=question)

    def add_rows(self, table: pd.DataFrame, times: np.ndarray | None = None) -> None:
        """Add what each row of a table states in the columns of these names, however they are written.

        Each row counts so many ``times``, (rows,), by default once. Raises `BadInput` for a list.
        """
        if times is None:
            times = np.ones(len(table), dtype=np.int64)
        stated: list[str] = []
        nested = False
        for name in table.columns:
            if holds_settings(str(name)):
                nested = True
                stated.append(name)
            elif setting_of(str(name)):
                nested = nested or _holds_objects(table[name])
                stated.append(name)
        if not stated:
            return
        rows = table[stated]
        if nested:
            for row, count in zip(rows.to_dict("records"), times.tolist(), strict=True):
                self.add(row, count)
            return
        distinct = rows.assign(times=times).groupby(stated, sort=False, dropna=False)
        counts = distinct["times"].sum().sort_values(ascending=False, kind="stable")
        for *values, count in counts.reset_index().itertuples(index=False):
            self.add(dict(zip(stated, values, strict=True)), int(count))

    @property
    def sampling(self) -> dict[str, Json]:
        """The settings of which all requests that state them have one value."""
        return {name: values[0] for name, values in self.values.items() if len(values) == 1}

    @property
    def chosen(self) -> list[str]:
        """A sentence for each value of a setting by which an answer is the best of several."""
        sentences = []
        for name, values in self.values.items():
            for value in values:
                sentences += chosen({name: value})
        return sentences

    @property
    def greedy_by(self) -> str | None:
        """The setting that makes some request greedy, None where none is."""
        if not self.greedy_requests:
            return None
        if self.greedy_requests == self.requests:
            return self.greedy_setting
        return f"{self.greedy_setting} in {self.greedy_requests} of {self.requests} requests"

    @property
    def repeats(self) -> str | None:
        """That answers came from a cache, None where no request says so."""
        if not self.cached:
            return None
        return (
            f"The log says that the answers to {plural(self.cached, 'request')} came from a cache"
        )

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

    def of_log(self, warnings: Iterable[str] = ()) -> SettingsOfLog:
        """What every reader passes to its log, after the reader's own ``warnings``."""
        return {
            "sampling": self.sampling,
            "greedy_by": self.greedy_by,
            "repeats": self.repeats,
            "may_repeat": self.may_repeat,
            "mixed": self.mixed,
            "selected": self.chosen,
            "warnings": (*warnings, *self.warnings),
        }


def _holds_objects(column: pd.Series) -> bool:
    """Whether a column of a setting holds objects of settings; raises `BadInput` for a list."""
    if column.dtype != object:
        return False
    for value in column:
        if isinstance(value, (list, np.ndarray)):
            problem = f"column {column.name}: got a list; expected a number, a word or an object"
            raise BadInput(f"{problem}. Write the setting of each answer alone.")
    return any(isinstance(value, dict) for value in column)


def stated_in(request: Mapping[str, Json]) -> dict[str, Json]:
    """The settings of a request by their names in `NAMES`, also those in the objects inside it, or in its JSON."""
    stated: dict[str, Json] = {}
    opened: dict[str, Json] = {}
    for name, value in request.items():
        may_hold = holds_settings(str(name)) or setting_of(str(name)) in DECODING
        opened[str(name)] = (object_in(value) or value) if may_hold else value
    for name, value in spread(opened).items():
        setting = setting_of(name)
        if setting and not isinstance(value, (dict, list)):
            stated[setting] = value
    return stated
