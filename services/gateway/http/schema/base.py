"""What all bodies of requests are: fields by name, of which some are taken and mean nothing."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema


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


class Body(BaseModel):
    """Unknown names are refused, and so are values of another type; null is as good as absent."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
