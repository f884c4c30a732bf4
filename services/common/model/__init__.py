"""Model shapes, checkpoints and forwards; no requests, no scheduling, no wire."""

from services.common.model.config import DrafterConfig, TargetConfig, read_drafter_config, read_target_config
from services.common.model.dflash import DflashBlock, DflashContext, load_block, load_context
from services.common.model.errors import ModelError
from services.common.model.qwen3 import Qwen3, load_target

__all__ = [
    "DflashBlock",
    "DflashContext",
    "DrafterConfig",
    "ModelError",
    "Qwen3",
    "TargetConfig",
    "load_block",
    "load_context",
    "load_target",
    "read_drafter_config",
    "read_target_config",
]
