"""One kind of registry for all extensions. A member has a name, which params.yaml uses, and one of three sources: a module
in a folder of the library (not with a leading underscore), an entry point of another package in the group ``lethe.KIND``,
or a call of `register`. Names are listed without an import of a member.
"""

import importlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from lethe.errors import BadValue

# The protocol of a kind defines its members: a class, or a module with functions. The user of a member knows the type.
Member = Any


class Registry(Mapping[str, Member]):
    """The members of one kind by name; ``registry[name]`` imports the member.

    ``noun`` is the word for a member in errors, ``kind`` that of `register` and, after "lethe.", of the entry points. Each
    module of ``folders`` whose name ends in ``suffix`` is a member, or holds it as ``attribute`` (``{Name}``: in camel case).
    ``tables`` are modules with several, by the keys of their ``MEMBERS``. The names in ``order`` come first.

    >>> SCORERS.names()[:2], "rouge_w" in SCORERS
    (['rouge_l', 'rouge_l_precision'], False)
    """

    def __init__(
        self,
        noun: str,
        kind: str,
        folders: tuple[str, ...] = (),
        *,
        suffix: str = "",
        attribute: str | None = None,
        order: tuple[str, ...] = (),
        tables: Mapping[str, tuple[str, ...]] | None = None,
    ):
        self.noun = noun
        self.kind = kind
        self.folders = folders
        self.suffix = suffix
        self.attribute = attribute
        self.order = order
        self.tables = tables or {}
        self.registered: dict[str, Member] = {}

    def names(self) -> list[str]:
        """Return the names of all members, those of ``order`` first and the others sorted."""
        names = {*self._built_in, *self._foreign, *self.registered}
        first = [name for name in self.order if name in names]
        return first + sorted(names.difference(first))

    def register(self, name: str, member: Member) -> None:
        """Add a member for the rest of this process; refuse the name of a module or of another package's member."""
        if name in self._built_in or name in self._foreign:
            raise BadValue(
                f"name of the {self.noun}", name, f"a name other than {', '.join(self.names())}"
            )
        self.registered[name] = member

    def source(self, name: str) -> str | None:
        """Return the module of a member in this library without an import; None for any other member."""
        return self._built_in.get(name)

    def modules(self, *names: str) -> dict[str, str]:
        """Return, without an import, the module of each of these members, or of all, with the version of another package.

        A member of this process alone has no module.
        """
        module_of_name = {name: point.module for name, point in self._foreign.items()}
        module_of_name |= self._built_in
        versions: dict[str, str] = {}
        for name in names or module_of_name:
            if name in module_of_name:
                versions[module_of_name[name]] = self.version(name)
        return versions

    def version(self, name: str) -> str:
        """Return the project and version of another package's member; empty for a member of this process."""
        if name not in self._foreign:
            return ""
        project = self._foreign[name].dist
        if project is None:
            return ""
        return f"{project.name} {project.version}"

    def __getitem__(self, name: str) -> Member:
        """Return the member of this name; raise `BadValue` with the legal names."""
        if name in self.registered:
            return self.registered[name]
        if name in self._built_in:
            module = importlib.import_module(self._built_in[name])
            if module.__name__ in self.tables:
                return module.MEMBERS[name]
            if self.attribute is None:
                return module
            return getattr(module, self.attribute.format(Name=name.title().replace("_", "")))
        if name in self._foreign:
            return self._foreign[name].load()
        raise BadValue(self.noun, name, f"one of {', '.join(self.names())}")

    def __contains__(self, name: object) -> bool:
        return name in self.registered or name in self._built_in or name in self._foreign

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    @cached_property
    def _built_in(self) -> dict[str, str]:
        modules: dict[str, str] = {}
        for module, names in self.tables.items():
            modules |= dict.fromkeys(names, module)
        for package in self.folders:
            folder = Path(__file__).parents[1].joinpath(*package.split("."))
            for path in sorted(folder.glob(f"[!_]*{self.suffix}.py")):
                if f"{package}.{path.stem}" not in self.tables:
                    modules[path.stem.removesuffix(self.suffix)] = f"{package}.{path.stem}"
        return modules

    @cached_property
    def _foreign(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=f"lethe.{self.kind}")}


ASCENT = ("grad_ascent", "grad_diff", "kl", "wga", "satimp")
METHODS = Registry(
    "unlearning method",
    "methods",
    ("lethe.unlearning.methods",),
    attribute="Method",
    tables={
        "lethe.unlearning.methods.ascent": ASCENT,
        "lethe.unlearning.methods.distillation": ("undial", "ceu"),
        "lethe.unlearning.methods.preferred_answers": ("idk_dpo", "altpo", "idk_nll"),
    },
)
ROUGE = ("rouge_l", "rouge_l_precision", "rouge_l_f", "rouge_1", "rouge_1_precision", "rouge_1_f")
BINARY = ("keyword_leak", "exact_match", "above")
SCORERS = Registry(
    "scorer",
    "scorers",
    ("lethe.scoring.text",),
    order=(*ROUGE, "keyword_leak", "exact_match"),
    tables={"lethe.scoring.text.rouge": ROUGE, "lethe.scoring.text.binary": BINARY},
)
JUDGES = Registry("judge", "judges", ("lethe.scoring.judges",), attribute="Judge")
MEMBERSHIP = ("mia_loss", "mia_zlib", "mia_min_k", "mia_min_k_plus_plus")
OF_ANSWERS = (
    "probability",
    "choice_probability",
    "truth_ratio",
    "extraction_strength",
    "exact_memorisation",
)
MEASURES = (*OF_ANSWERS, *MEMBERSHIP)
LIKELIHOODS = Registry(
    "likelihood", "likelihoods", order=MEASURES, tables={"lethe.scoring.likelihood": MEASURES}
)
NGRAMS = ("self_bleu", "distinct_1", "distinct_2", "distinct")
DIVERSITY = Registry(
    "diversity", "diversity", order=NGRAMS, tables={"lethe.scoring.diversity": NGRAMS}
)
DATASETS = Registry("dataset", "datasets", ("lethe.data.kinds",))
ENGINES = Registry(
    "engine", "engines", ("lethe.sampling",), suffix="_engine", attribute="{Name}Engine"
)
AUDITS = Registry("audit", "audits", ("lethe.audits.kinds",), order=("guesses", "dp_sgd"))
GAMES = Registry("game", "games", ("lethe.audits.unlearning_game",), suffix="_game")
OF_LIKELIHOODS = ("loss", "min_k", "min_k_plus_plus", "reference", "zlib")
TEXT_ATTACKS = Registry(
    "text attack", "text_attacks", tables={"lethe.audits.unlearning_game.text_play": OF_LIKELIHOODS}
)
ON_WEIGHTS = ("noise", "prune", "quantise", "relearn")
MODEL_ATTACKS = Registry(
    "model attack",
    "model_attacks",
    ("lethe.attacks.kinds",),
    attribute="Attack",
    tables={"lethe.attacks.kinds.weights": ON_WEIGHTS},
)
OF_GUESSES = ("exact", "chernoff", "steinke", "mahloujifar", "independent", "clopper-pearson")
ONE_RUN_METHODS = Registry(
    "method",
    "one_run_methods",
    order=OF_GUESSES,
    tables={"lethe.statistics.one_run.methods": OF_GUESSES},
)
# The name of a kind, for `register`; the group of entry points is "lethe." plus this name.
KINDS = {
    registry.kind: registry for registry in (*globals().values(),) if isinstance(registry, Registry)
}


def register(kind: str, name: str, member: Member) -> None:
    """Add a member to a registry for the rest of this process, as a notebook does.

    Parameters
    ----------
    kind : One of ``KINDS``: "methods", "scorers", "judges", "datasets", "engines", "audits", "games", ...
    name : The name of the member in params.yaml, which no module and no other package has.
    member : An object as the protocol of the kind defines it; docs/extending.md has examples.

    Notes
    -----
    A stage that DVC starts is another process and does not know the member. Every process knows the member of a package
    with an entry point.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> register("scorers", "short", SimpleNamespace(score=lambda texts, item: np.array([len(t) < 9 for t in texts], float)))
    >>> SCORERS["short"].score(["brief", "a longer answer"], {}).tolist()
    [1.0, 0.0]
    >>> del SCORERS.registered["short"]
    """
    if kind not in KINDS:
        raise BadValue("kind", kind, f"one of {', '.join(KINDS)}")
    KINDS[kind].register(name, member)
