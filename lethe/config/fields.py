"""Types for the sections of params.yaml: ranges, names, the section of a registry's member; pydantic's errors in words."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Generic, TypeVar, get_args

import pydantic_core as core
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    StringConstraints,
    ValidationError,
    create_model,
)

from lethe.errors import BadInput, BadParam, BadValue, ParamsClash, plural
from lethe.io.files import Json
from lethe.registry import Member


def _no_truth(value: object) -> object:
    """Refuse true and false: Python would read true as 1."""
    if isinstance(value, bool):
        raise ValueError("a number, not true or false")
    return value


Integer = Annotated[int, BeforeValidator(_no_truth)]
Real = Annotated[float, BeforeValidator(_no_truth)]
LONGEST_NAME = 80  # a name becomes part of a folder's name
# DVC addresses an entry by its key (train.models.NAME): a dot in the name would start a new section.
Name = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", max_length=LONGEST_NAME)
]
DottedName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=LONGEST_NAME)
]
Place = Annotated[str, StringConstraints(min_length=1)]
Positive = Annotated[Real, Field(gt=0)]
Weight = Annotated[Real, Field(ge=0)]
Share = Annotated[Real, Field(ge=0, le=1)]
Natural = Annotated[Integer, Field(ge=0)]
Count = Annotated[Integer, Field(ge=1)]
Draws = Annotated[Integer, Field(ge=1, le=1_000_000)]
Seed = Annotated[
    Integer, Field(ge=0, le=2**32 - 1)
]  # the range that every library's generator takes
Alpha = Annotated[Real, Field(gt=0, le=0.5)]
Delta = Annotated[Real, Field(ge=0, lt=1)]
Betas = Annotated[list[Annotated[Real, Field(ge=0, lt=1)]], Field(min_length=2, max_length=2)]


class Section(BaseModel):
    """A section of params.yaml: a section is frozen, and an unknown key is an error."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, protected_namespaces=(), allow_inf_nan=False
    )


P = TypeVar("P", bound=BaseModel)


class WithParams(Generic[P]):
    """A member of a registry with parameters: ``class Member(Base[Model], params=Model)`` gets a checked ``Model``."""

    Params: ClassVar[type[BaseModel]]

    def __init_subclass__(cls, params: type[BaseModel] | None = None, **others: object):
        super().__init_subclass__(**others)
        if params is not None:
            cls.Params = params

    def __init__(self, params: P):
        self.params = params


class Direct(Section):
    """A section that code makes, not a file: a value out of range raises `BadValue`, which names the field."""

    def __init__(self, **values: object):
        try:
            super().__init__(**values)
        except ValidationError as error:
            wrong = bad_param(error, values, "", type(self))
            if isinstance(wrong, BadParam):
                wrong = BadValue(wrong.key, wrong.got, wrong.legal)
            raise wrong from None


@dataclass(frozen=True)
class Complete:
    """For ``Annotated[Section, Complete()]``: every key must be written in params.yaml, as DVC sees nothing else."""

    but: tuple[str, ...] = ()

    def __get_pydantic_core_schema__(
        self, source: type[Section], handler: GetCoreSchemaHandler
    ) -> core.CoreSchema:
        required: dict[str, tuple[object, object]] = {}
        for name, field in source.model_fields.items():
            if name not in self.but:
                required[name] = (field.rebuild_annotation(), ...)
        whole: type[Section] = create_model(source.__name__, __base__=source, **required)  # type: ignore[call-overload]

        def checked(value: object) -> object:
            if not isinstance(value, source):
                whole.model_validate(value)  # names all problems at once
            return value

        return core.core_schema.no_info_before_validator_function(checked, handler(source))


S = TypeVar("S", bound=Section)


def no_member(legal: str) -> core.PydanticCustomError:
    """The error of a value that is none of the legal ones, which ``legal`` states in words."""
    return core.PydanticCustomError("no_member", "{legal}", {"legal": legal})


def problem(kind: str | core.PydanticCustomError, key: str, got: object) -> ValidationError:
    """Return the error of one key, for a validator of the section that holds the key to raise."""
    return ValidationError.from_exception_data(
        key, [core.InitErrorDetails(type=kind, loc=(key,), input=got)]
    )


def checked_under(key: str, model: type[S], value: object) -> S:
    """Check a value by a model, for a validator of the section above."""
    schema = core.core_schema.dict_schema(
        core.core_schema.str_schema(), model.__pydantic_core_schema__
    )
    return core.SchemaValidator(schema).validate_python({key: value})[key]


@dataclass(frozen=True)
class OrAuto:
    """A number of draws or the word "auto", for use in ``Annotated[Draws | Literal["auto"], OrAuto()]``."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> core.CoreSchema:
        def checked(value: object, draws: core.core_schema.ValidatorFunctionWrapHandler) -> object:
            if value == "auto":
                return value
            return draws(value)

        as_it_is = core.core_schema.plain_serializer_function_ser_schema(lambda value: value)
        # A union would name its members in the key of an error.
        return core.core_schema.no_info_wrap_validator_function(
            checked, handler.generate_schema(Draws), serialization=as_it_is
        )


@dataclass(frozen=True)
class Increasing:
    """For ``Annotated[tuple[Number, Number], Increasing()]``: the ends of a range, which may be equal."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> core.CoreSchema:
        return core.core_schema.no_info_after_validator_function(
            self._checked, handler.generate_schema(source)
        )

    def _checked(self, ends: tuple[float, float]) -> tuple[float, float]:
        if ends[0] > ends[1]:
            raise ValueError("a list of the least and the largest value, in this order")
        return ends


@dataclass(frozen=True)
class NameIn:
    """For ``Annotated[str, ...]``: a name in the registries or ``also``; ``quoted``: as errors quote fixed choices."""

    registries: tuple[Mapping[str, Member], ...]
    also: tuple[str, ...] = ()
    quoted: bool = False

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> core.CoreSchema:
        return core.core_schema.no_info_after_validator_function(
            self._checked, core.core_schema.str_schema()
        )

    def _checked(self, name: str) -> str:
        legal = [*self.also]
        for registry in self.registries:
            legal += registry
        if name in legal:
            return name
        if not self.quoted:
            raise ValueError(f"one of {', '.join(legal)}")
        *most, last = map(repr, legal)
        if not most:
            raise ValueError(last)
        raise ValueError(f"{', '.join(most)} or {last}")


@dataclass(frozen=True)
class MemberOf:
    """For ``Annotated[Base, MemberOf(...)]``: ``tag`` names a member, whose ``Params``, a ``Base``, checks the section.

    ``needs``: one sentence about the whole section lists the missing keys beyond those of the base.
    """

    registry: Mapping[str, Member]
    tag: str
    base: type[Section]
    needs: bool = False

    def model(self, value: Mapping[str, object]) -> type[Section] | None:
        """Return the model of the section ``value``; None where the tag names no member."""
        name = value.get(self.tag)
        if isinstance(name, str) and name in self.registry:
            return self.registry[name].Params
        return None

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> core.CoreSchema:
        return core.core_schema.no_info_plain_validator_function(self._checked)

    def _checked(self, value: object) -> Section:
        if isinstance(value, self.base):
            return value
        if not isinstance(value, dict):
            raise core.PydanticKnownError("model_type", {"class_name": self.base.__name__})
        model = self.model(value)
        if model is None:
            legal = f"one of {', '.join(self.registry)}"
            if not self.needs:
                raise no_member(f"a key {self.tag}, {legal}")
            if self.tag not in value:
                raise problem("missing", self.tag, value)
            raise problem(no_member(legal), self.tag, value[self.tag])
        try:
            return model.model_validate(value)
        except ValidationError as error:
            raise self._in_short(error, value) from None

    def _in_short(self, error: ValidationError, value: Mapping[str, object]) -> Exception:
        problems = error.errors()
        missing = [str(item["loc"][0]) for item in problems if item["type"] == "missing"]
        of_all = {key for key, field in self.base.model_fields.items() if field.is_required()}
        if not self.needs or len(missing) < len(problems) or of_all.intersection(missing):
            return error
        return ValueError(f"{value[self.tag]} needs {', '.join(missing)}, which the entry lacks")


@dataclass(frozen=True)
class WithKey:
    """For ``Annotated[A | B, WithKey(key, has=A, has_not=B)]``: a section is an A if it has the key, else a B."""

    key: str
    has: type[Section]
    has_not: type[Section]

    def model(self, value: Mapping[str, object]) -> type[Section]:
        """Return the model of the section ``value``."""
        return self.has if self.key in value else self.has_not

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> core.CoreSchema:
        return core.core_schema.no_info_plain_validator_function(self._checked)

    def _checked(self, value: object) -> Section:
        if isinstance(value, (self.has, self.has_not)):
            return value
        if not isinstance(value, dict):
            raise core.PydanticKnownError("model_type", {"class_name": self.has_not.__name__})
        return self.model(value).model_validate(value)


def bad_param(
    error: ValidationError, value: dict[str, object], source: str, model: type[BaseModel]
) -> BadInput:
    """Return the first problem in Lethe's words, unknown keys first, as one may be a misspelt key; and the others' keys."""
    problems = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
    first = problems[0]
    locations = map(_location, problems)
    key, *others = dict.fromkeys(map(".".join, locations))
    also = ""
    if others:
        also = f" (also wrong: {', '.join(others)})"
    got = first["input"]
    if first["type"] == "value_error" and isinstance(got, dict):
        return ParamsClash(key, str(first["ctx"]["error"]) + also, source)
    if first["type"] == "missing":
        got = _Words("nothing: the key is missing")
    legal = _legal(first, _Walk(_location(first), value, model))
    return BadParam(key, got, legal, source, also)


def _location(problem: core.ErrorDetails) -> list[str]:
    return [str(part) for part in problem["loc"] if part != "[key]"]


class _Words(str):
    __repr__ = str.__str__


# What is legal where a kind of error leaves no other word; the fields are those of pydantic's context.
LEGAL = {
    "no_member": "{legal}",
    "literal_error": "{expected}",
    "value_error": "{error}",
    "too_long": "at most {max_length} entries",
    "string_too_short": "text that is not empty",
    "string_type": "text",
    "list_type": "a list",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "model_attributes_type": "a section of keys",
}
# by the first word of the kind
NUMBERS = {
    "int": "an integer",
    "float": "a number",
    "finite": "a finite number",
}
ENDS = {
    "gt": "above",
    "ge": "at least",
    "lt": "below",
    "le": "at most",
    "multiple_of": "a multiple of",
}


def _legal(problem: core.ErrorDetails, walk: "_Walk") -> str:
    """What is legal where pydantic found a problem, as a sentence ends that begins with "must be"."""
    kind = problem["type"]
    context = problem.get("ctx", {})
    if kind == "extra_forbidden":
        if not walk.keys_above:
            return "absent"
        return f"one of the keys {', '.join(walk.keys_above)}"
    too_long = kind == "string_too_long" and context["max_length"] == LONGEST_NAME
    if too_long or kind == "string_pattern_mismatch":
        dot = ", '.'" if "." in context.get("pattern", "") else ""
        return f"a name of at most {LONGEST_NAME} letters, digits{dot}, '_' and '-', the first a letter or digit"
    section = "a section of keys"
    if walk.keys:
        section = f"the keys {', '.join(walk.keys)}"
    if kind == "dict_type":
        return f"a dictionary of names, each with {section}"
    if kind == "model_type":
        return section
    if kind == "too_short":
        return f"at least {plural(context['min_length'], 'entry', 'entries')}"
    if kind in LEGAL:
        return LEGAL[kind].format(**context)
    # the whole legal range of a number, such as "above 0 and at most 0.5", not only the violated end
    number = NUMBERS.get(kind.partition("_")[0])
    ends = [f"{words} {walk.range[name]}" for name, words in ENDS.items() if name in walk.range]
    if number or kind.startswith(("greater_than", "less_than", "multiple_of")):
        return " ".join(filter(None, [number, " and ".join(ends)]))
    return problem["msg"].replace("Input should be ", "").replace("Field required", "a value here")


# Typer keeps the class of an option to itself.
def bad_option(option: Any, cause: BaseException | None) -> BadValue | None:
    """Return in Lethe's words why a word or a number that pydantic refused is no value of an option."""
    if option is None or not isinstance(cause, ValidationError):
        return None
    problem = cause.errors()[0]
    words = [word for word in get_args(option.type_descriptor.annotation) if isinstance(word, str)]
    if words:
        return BadValue(option.opts[0], problem["input"], f"one of {', '.join(words)}")
    walk = _Walk([], None, None)
    walk.range = problem.get("ctx", {})
    return BadValue(option.opts[0], problem["input"], _legal(problem, walk))


class _Walk:
    """The path through the models to a key, with the keys of the section there and above, and the range of its number."""

    def __init__(self, location: list[str], value: Json, section: object):
        self.range: dict[str, object] = {}
        self.keys = _keys(section)
        self.keys_above: list[str] = []
        member: MemberOf | WithKey | None = None
        for part in location:
            self.keys_above = self.keys
            value = value.get(part) if isinstance(value, dict) else None
            field = getattr(section, "model_fields", {}).get(part)
            sections_of_data: dict[str, object] = getattr(section, "sections", dict)()
            if field:
                metadata = [*field.metadata, *_parts(field.annotation)]
                self.range = _range(metadata)
                section = _section_of(field.annotation)
                member = _member_in(metadata)
            elif part in sections_of_data:
                section = sections_of_data[part]
            elif member is not None:  # the name of an entry: the keys are those of the named member
                section = member.model(value) if isinstance(value, dict) else None
                member = None
            # any other name in a dictionary: ``section`` is already the model of the values
            self.keys = _keys(section)


def _member_in(metadata: Sequence[object]) -> MemberOf | WithKey | None:
    """The mark of a section whose model its value names; None where the key has none."""
    for mark in metadata:
        if isinstance(mark, (MemberOf, WithKey)):
            return mark
    return None


def _range(metadata: Sequence[object]) -> dict[str, object]:
    """The ends of a number's range, by pydantic's names."""
    ends: dict[str, object] = {}
    for mark in metadata:
        constraints = getattr(mark, "metadata", None) or [mark]  # a pydantic Field holds several
        for constraint in constraints:
            for name in ENDS:
                if hasattr(constraint, name):
                    ends[name] = getattr(constraint, name)
    return ends


def _keys(section: object) -> list[str]:
    return [*getattr(section, "model_fields", ()), *getattr(section, "sections", dict)()]


def _parts(annotation: object) -> Iterator[object]:
    """Yield the metadata of `Annotated` anywhere inside ``annotation``, such as for the numbers in a list."""
    yield from getattr(annotation, "__metadata__", ())
    for argument in getattr(annotation, "__args__", ()):
        yield from _parts(argument)


def _section_of(annotation: object) -> object:
    """Return the model inside ``dict[Name, Model]``, ``Model | None`` or ``Annotated[...]``."""
    if isinstance(annotation, type) and not getattr(annotation, "__args__", None):
        return annotation
    inner = map(_section_of, reversed(getattr(annotation, "__args__", ())))
    return next((section for section in inner if hasattr(section, "model_fields")), annotation)
