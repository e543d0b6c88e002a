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
        fields = {
            name: field for name, field in source.model_fields.items() if name not in self.but
        }
        required = {name: (field.rebuild_annotation(), ...) for name, field in fields.items()}
        whole: type[Section] = create_model(source.__name__, __base__=source, **required)  # type: ignore[call-overload]

        def checked(value: object) -> object:
            if not isinstance(value, source):
                whole.model_validate(value)  # names all problems at once
            return value

        return core.core_schema.no_info_before_validator_function(checked, handler(source))


S = TypeVar("S", bound=Section)


def no_member(legal: str) -> core.PydanticCustomError:
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
        # A union would name its members in the key of an error.
        return core.core_schema.no_info_wrap_validator_function(
            lambda value, draws: value if value == "auto" else draws(value),
            handler.generate_schema(Draws),
            serialization=core.core_schema.plain_serializer_function_ser_schema(
                lambda value: value
            ),
        )


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
        if name in self.also or any(name in registry for registry in self.registries):
            return name
        legal = [*self.also, *(name for registry in self.registries for name in registry)]
        if self.quoted:
            *most, last = map(repr, legal)
            raise ValueError(" or ".join(filter(None, (", ".join(most), last))))
        raise ValueError(f"one of {', '.join(legal)}")


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
            kind = no_member(legal) if self.tag in value else "missing"
            raise problem(kind, self.tag, value.get(self.tag, value))
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


def bad_param(
    error: ValidationError, value: dict[str, object], source: str, model: type[BaseModel]
) -> BadInput:
    """Return the first problem in Lethe's words, unknown keys first, as one may be a misspelt key; and the others' keys."""
    problems = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
    first, location = problems[0], _location(problems[0])
    key, *others = dict.fromkeys(".".join(_location(item)) for item in problems)
    also = f" (also wrong: {', '.join(others)})" if others else ""
    if first["type"] == "value_error" and isinstance(first["input"], dict):
        return ParamsClash(key, str(first["ctx"]["error"]) + also, source)
    got = _Words("nothing: the key is missing") if first["type"] == "missing" else first["input"]
    return BadParam(key, got, _legal(first, _Walk(location, value, model)), source, also)


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
NUMBERS = {
    "int": "an integer",
    "float": "a number",
    "finite": "a finite number",
}  # by the first word of the kind
ENDS = {
    "gt": "above",
    "ge": "at least",
    "lt": "below",
    "le": "at most",
    "multiple_of": "a multiple of",
}


def _legal(problem: core.ErrorDetails, walk: "_Walk") -> str:
    kind, context, keys = problem["type"], problem.get("ctx", {}), ", ".join(walk.keys)
    if kind == "extra_forbidden":
        return f"one of the keys {', '.join(walk.keys_above)}" if walk.keys_above else "absent"
    if kind == "string_pattern_mismatch" or (
        kind == "string_too_long" and context["max_length"] == LONGEST_NAME
    ):
        dot = ", '.'" if "." in context.get("pattern", "") else ""
        return f"a name of at most {LONGEST_NAME} letters, digits{dot}, '_' and '-', the first a letter or digit"
    section = f"the keys {keys}" if keys else "a section of keys"
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
    words = [word for word in get_args(option.type_descriptor.annotation) if isinstance(word, str)]
    problem, walk = cause.errors()[0], _Walk([], None, None)
    walk.range = problem.get("ctx", {})
    legal = f"one of {', '.join(words)}" if words else _legal(problem, walk)
    return BadValue(option.opts[0], problem["input"], legal)


class _Walk:
    """The path through the models to a key, with the keys of the section there and above, and the range of its number."""

    def __init__(self, location: list[str], value: Json, section: object):
        self.range: dict[str, object] = {}
        self.keys, self.keys_above = _keys(section), []
        member: MemberOf | None = None
        kinds: dict[str, type[Section]]
        for part in location:
            self.keys_above = self.keys
            value = value.get(part) if isinstance(value, dict) else None
            field = getattr(section, "model_fields", {}).get(part)
            if field:
                metadata = [*field.metadata, *_parts(field.annotation)]
                self.range = _range(metadata)
                section = _section_of(field.annotation)
                member = next((mark for mark in metadata if isinstance(mark, MemberOf)), None)
            elif part in (kinds := getattr(section, "sections", dict)()):  # of `Data`
                section = kinds[part]
            elif member is not None:  # the name of an entry: the keys are those of the named member
                section = member.model(value) if isinstance(value, dict) else None
                member = None
            # any other name in a dictionary: ``section`` is already the model of the values
            self.keys = _keys(section)


def _range(metadata: Sequence[object]) -> dict[str, object]:
    """The ends of a number's range, by pydantic's names."""
    ends = {}
    for mark in metadata:
        for constraint in getattr(mark, "metadata", None) or [
            mark
        ]:  # a pydantic Field holds several
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
