"""What all bodies of requests are: fields by name, of which some are taken and mean nothing."""

from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticCustomError, core_schema


class _Unread:
    """Any value, of which no object is made."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Fails at every value but null, and takes the failure for null."""
        return core_schema.with_default_schema(core_schema.none_schema(), default=None, on_error="default")

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Allows everything."""
        return {}


Ignored = Annotated[Any, _Unread, Field(description="Accepted for compatibility and ignored.")]


def is_ignored(field: FieldInfo) -> bool:
    """Whether a field takes every value and means nothing."""
    return _Unread in field.metadata


def unless(instead: str) -> WrapValidator:
    """Refuses what a field does not take by what can be done instead, where its few values would tell nothing."""

    def checked(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
        try:
            return check(value)
        except ValidationError:
            raise PydanticCustomError("not_served", "is not served; {instead}", {"instead": instead}) from None

    return WrapValidator(checked)


class Body(BaseModel):
    """Unknown names are refused, and so are values of another type; null is as good as absent."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
