"""A small byte-level tokenizer folder: 256 bytes, some merges, and special tokens."""

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = ("<|end|>", "<|im_start|>", "<|im_end|>")
TEXT = (
    "def add(first, second):\n    return first + second\n",
    "the quick brown fox jumps over the lazy dog and the cat sleeps",
    "Grüße aus Köln: 日本語のテキスト и немного русского 👩‍👩‍👧 🎉",
)
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def build_tokenizer(vocab_size: int = 512) -> Tokenizer:
    """A tokenizer with exactly `vocab_size` ids or fewer, one added token that is plain text among them."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(SPECIAL) - 1,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT * 4, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken("<日>", special=False)])
    return tokenizer


def write_tokenizer(folder: Path, vocab_size: int = 512) -> Path:
    """Writes tokenizer.json and tokenizer_config.json; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    build_tokenizer(vocab_size).save(str(folder / "tokenizer.json"))
    config = {"chat_template": TEMPLATE, "eos_token": {"content": SPECIAL[0]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder
