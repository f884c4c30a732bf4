"""A byte-level BPE tokenizer with two special tokens, trained on the corpus."""

import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from models.training.corpus import Source
from models.training.settings import EOS_TOKEN, MASK_TOKEN, Shape

FILES = ("tokenizer.json", "tokenizer_config.json")
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}{{ message['content'] + '\\n\\n' }}"
    "{% else %}{{ '# ' + message['role'] + ': ' + message['content'] + '\\n' }}{% endif %}"
    "{% endfor %}"
)


def train_tokenizer(texts: Iterable[str], shape: Shape) -> Tokenizer:
    """Learn the merges; the two special tokens take the ids 0 and 1."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=shape.vocab_size,
        special_tokens=[EOS_TOKEN, MASK_TOKEN],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def encode_sources(tokenizer: Tokenizer, sources: Sequence[Source], eos: int) -> Tensor:
    """Return one stream of ids, an end-of-text token after every file."""
    stream: list[int] = []
    for encoding in tokenizer.encode_batch([source.text for source in sources]):
        stream.extend(encoding.ids)
        stream.append(eos)
    return torch.tensor(stream, dtype=torch.int32)


def save_tokenizer(tokenizer: Tokenizer, folder: Path, shape: Shape) -> None:
    """Write tokenizer.json and the tokenizer_config.json that Hugging Face readers expect."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(_without_mask(tokenizer), encoding="utf-8")
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": EOS_TOKEN,
        "pad_token": EOS_TOKEN,
        "bos_token": None,
        "unk_token": None,
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": shape.max_positions,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def copy_tokenizer(source: Path, folder: Path) -> None:
    """Write the files of another folder's tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        shutil.copyfile(source / name, folder / name)


def _without_mask(tokenizer: Tokenizer) -> str:
    """Keep the mask in the vocabulary only: no text, not even its own name, encodes to it."""
    content = json.loads(tokenizer.to_str())
    content["added_tokens"] = [t for t in content["added_tokens"] if t["content"] != MASK_TOKEN]
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"
