"""How many numbers the weights of a checkpoint are, by the shapes of its tensors."""

from math import prod

from services.common.model.config import BackboneConfig, DrafterConfig, TargetConfig
from services.common.model.layers import layer_shapes


def target_elements(config: TargetConfig) -> int:
    """Weights of a target; a tied head is its embedding."""
    blocks = config.num_hidden_layers * _block_elements(config)
    return table_elements(config) + config.hidden_size + blocks


def table_elements(config: TargetConfig) -> int:
    """Its embedding and its head."""
    tables = 1 if config.tie_word_embeddings else 2
    return tables * config.vocab_size * config.hidden_size


def context_elements(config: DrafterConfig) -> int:
    """Weights of the half of a drafter that its target holds."""
    width, keys = config.hidden_size, config.num_key_value_heads * config.head_dim
    features = len(config.target_layer_ids) * width
    return width * features + width + config.num_hidden_layers * (2 * keys * width + config.head_dim)


def block_elements(config: DrafterConfig) -> int:
    """Weights of the half that the drafter itself holds; embedding and head are the target's."""
    return config.num_hidden_layers * _block_elements(config) + config.hidden_size


def _block_elements(config: BackboneConfig) -> int:
    return sum(prod(shape) for shape in layer_shapes(config, "").values())
