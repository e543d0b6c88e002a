"""Types for the sections of params.yaml: ranges of numbers, names, and the section of a registry's member."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Generic, TypeVar

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

from lethe.errors import BadParam, BadValue


def _no_truth(value: object) -> object:
    """Refuse true and false: Python would read true as 1."""
    if isinstance(value, bool):
        raise ValueError("a number, not true or false")
    return value


Integer = Annotated[int, BeforeValidator(_no_truth)]
Real = Annotated[float, BeforeValidator(_no_truth)]
LONGEST_NAME = 80  # a name becomes part of a folder's name
# DVC addresses an entry by its key (train.models.NAME): a dot in the name would start a new section.
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", max_length=LONGEST_NAME)]
DottedName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=LONGEST_NAME)]
Place = Annotated[str, StringConstraints(min_length=1)]
Positive = Annotated[Real, Field(gt=0)]
Weight = Annotated[Real, Field(ge=0)]
Share = Annotated[Real, Field(ge=0, le=1)]
Natural = Annotated[Integer, Field(ge=0)]
Count = Annotated[Integer, Field(ge=1)]
Draws = Annotated[Integer, Field(ge=1, le=1_000_000)]
Seed = Annotated[Integer, Field(ge=0, le=2**32 - 1)]  # the range that every library's generator takes
Alpha = Annotated[Real, Field(gt=0, le=0.5)]
Delta = Annotated[Real, Field(ge=0, lt=1)]
Betas = Annotated[list[Annotated[Real, Field(ge=0, lt=1)]], Field(min_length=2, max_length=2)]


class Section(BaseModel):
    """A section of params.yaml: a section is frozen, and an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=(), allow_inf_nan=False)


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

    def __init__(self, **values: Any):
        try:
            super().__init__(**values)
        except ValidationError as error:
            from lethe.config.load import bad_param

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
        fields = {name: field for name, field in source.model_fields.items() if name not in self.but}
        required = {name: (field.rebuild_annotation(), ...) for name, field in fields.items()}
        whole: Any = create_model(source.__name__, __base__=source, **required)  # type: ignore[call-overload]

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
    return ValidationError.from_exception_data(key, [core.InitErrorDetails(type=kind, loc=(key,), input=got)])


def checked_under(key: str, model: type[S], value: object) -> S:
    """Check a value by a model, for a validator of the section above."""
    schema = core.core_schema.dict_schema(core.core_schema.str_schema(), model.__pydantic_core_schema__)
    return core.SchemaValidator(schema).validate_python({key: value})[key]


@dataclass(frozen=True)
class OrAuto:
    """A number of draws or the word "auto", for use in ``Annotated[Draws | Literal["auto"], OrAuto()]``."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> core.CoreSchema:
        # A union would name its members in the key of an error.
        return core.core_schema.no_info_wrap_validator_function(
            lambda value, draws: value if value == "auto" else draws(value),
            handler.generate_schema(Draws),
            serialization=core.core_schema.plain_serializer_function_ser_schema(lambda value: value),
        )


@dataclass(frozen=True)
class NameIn:
    """For ``Annotated[str, ...]``: a name in the registries or ``also``; ``quoted``: as errors quote fixed choices."""

    registries: tuple[Mapping[str, Any], ...]
    also: tuple[str, ...] = ()
    quoted: bool = False

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> core.CoreSchema:
        return core.core_schema.no_info_after_validator_function(self._checked, core.core_schema.str_schema())

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

    registry: Mapping[str, Any]
    tag: str
    base: type[Section]
    needs: bool = False

    def model(self, value: Mapping[str, object]) -> type[Section] | None:
        """Return the model of the section ``value``; None where the tag names no member."""
        name = value.get(self.tag)
        return self.registry[name].Params if isinstance(name, str) and name in self.registry else None

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
        missing = [str(one["loc"][0]) for one in problems if one["type"] == "missing"]
        of_all = {key for key, field in self.base.model_fields.items() if field.is_required()}
        if not self.needs or len(missing) < len(problems) or of_all.intersection(missing):
            return error
        return ValueError(f"{value[self.tag]} needs {', '.join(missing)}, which the entry lacks")
