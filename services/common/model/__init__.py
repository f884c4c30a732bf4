"""Model shapes, checkpoints and forwards; no requests, no scheduling, no wire."""

from services.common.model.dflash.block import DflashBlock, load_block
from services.common.model.dflash.context import DflashContext, load_context
from services.common.model.dflash.spec import DrafterSpec, read_drafter_spec
from services.common.model.errors import ModelError
from services.common.model.families import read_target_spec
from services.common.model.spec import ModelSpec
from services.common.model.target import Target, load_target

__all__ = [
    "DflashBlock",
    "DflashContext",
    "DrafterSpec",
    "ModelError",
    "ModelSpec",
    "Target",
    "load_block",
    "load_context",
    "load_target",
    "read_drafter_spec",
    "read_target_spec",
]
