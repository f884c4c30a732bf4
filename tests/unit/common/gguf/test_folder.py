"""The folder that describes a GGUF file: its configuration, tokens and template; and files that are refused."""

import json
import os
import random
import struct
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import gguf
import pytest
from tokenizers import Tokenizer

from services.common.gguf.config import config, generation_config
from services.common.gguf.file import GgufError, read_gguf
from services.common.gguf.folder import describing_folder, gguf_of
from services.common.gguf.tokenizer import tokenizer, tokenizer_config
from services.common.model.fields.generation import read_generation
from services.common.preflight.checks import Asked, problems
from services.common.serving.hub import FolderError, local_folder
from tests.support.tiny_checkpoints import TinyShape, write_tiny
from tests.support.tiny_gguf import Type, write_gguf

SMALL = TinyShape(layers=2, taps=(0,))
TEXTS = (
    "Hello, world! It's 12345 o'clock.\n\n  Two  spaces\tand tabs\r\n",
    "日本語のテキスト, émoji 😀 and ﬁ; I'LL HE'D x=1_000;",
    "<|endoftext|>begins<|mask|> ends",
)


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def written(tmp_path: Path, family: str = "llama", changes: dict[str, Any] | None = None, **more: Any) -> Path:
    folder = write_tiny(tmp_path / "own", 5, SMALL, family=family, changes=changes).target
    write_gguf(tmp_path / "model.gguf", folder, **more)
    return tmp_path / "model.gguf"


def test_tokens_are_those_of_the_tokenizer_it_was_made_of(tmp_path: Path) -> None:
    folder = describing_folder(written(tmp_path))
    made, own = (Tokenizer.from_file(str(path / "tokenizer.json")) for path in (folder, tmp_path / "own" / "target"))
    for text in TEXTS:
        ids = made.encode(text).ids
        assert ids == own.encode(text).ids
        assert made.decode(ids) == own.decode(ids)


def test_template_and_special_tokens_are_told(tmp_path: Path) -> None:
    folder = describing_folder(written(tmp_path))
    own = json.loads((tmp_path / "own" / "target" / "tokenizer_config.json").read_text())
    told = json.loads((folder / "tokenizer_config.json").read_text())
    assert (told["chat_template"], told["eos_token"]) == (own["chat_template"], own["eos_token"])


def test_a_text_begins_as_the_file_says(tmp_path: Path) -> None:
    keys = {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.bos_token_id": 1}
    made = Tokenizer.from_file(str(describing_folder(written(tmp_path, keys=keys)) / "tokenizer.json"))
    assert made.encode("ab").ids[0] == 1
    assert made.encode("ab", add_special_tokens=False).ids[0] != 1


@pytest.mark.parametrize(
    ("pre", "text", "pieces"),
    [
        ("gpt-2", "It's 1234", ["It", "'s", "Ġ1234"]),
        ("smollm", "It's 1234", ["It", "'s", "Ġ", "1", "2", "3", "4"]),
        ("qwen2", "It'S 1234\n", ["It", "'S", "Ġ", "1", "2", "3", "4", "Ċ"]),
        ("llama-bpe", "It'S 1234\n", ["It", "'S", "Ġ", "123", "4", "Ċ"]),
    ],
)
def test_text_is_split_by_the_pattern_that_the_file_names(
    tmp_path: Path, pre: str, text: str, pieces: list[str]
) -> None:
    made = Tokenizer.from_file(str(describing_folder(written(tmp_path, pre=pre)) / "tokenizer.json"))
    assert [piece for piece, _ in made.pre_tokenizer.pre_tokenize_str(text)] == pieces


def test_every_control_token_that_ends_a_text_is_named(tmp_path: Path) -> None:
    folder = describing_folder(written(tmp_path, keys={"tokenizer.ggml.eot_token_id": 7}))
    assert json.loads((folder / "generation_config.json").read_text()) == {"eos_token_id": [0, 7]}


def test_the_sampling_of_the_makers_is_told(tmp_path: Path) -> None:
    keys = {"general.sampling.temp": 0.6, "general.sampling.top_k": 20, "general.sampling.penalty_repeat": 1.05}
    folder = describing_folder(written(tmp_path, keys=keys | {"general.sampling.top_p": "x"}))
    assert dict(read_generation(folder, 320).sampling) == {"temperature": 0.6, "top_k": 20, "repetition_penalty": 1.05}


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama_3s_frequencies_are_recognised(tmp_path: Path, factor: float) -> None:
    scaling = {"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 8192}  # fmt: skip
    path = written(tmp_path, more=lambda writer: writer.add_tensor("rope_freqs.weight", divisors(scaling)))
    assert json.loads((describing_folder(path) / "config.json").read_text())["rope_scaling"] == scaling


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), 3.0])
def test_other_frequencies_are_refused_in_the_place_of_good_ones_too(tmp_path: Path, value: float) -> None:
    """The head is that of a file that was served from the same place: what is divided by lies behind it."""
    ones = gguf.gguf_writer.np.ones(8, "float32")
    describing_folder(written(tmp_path, more=lambda writer: writer.add_tensor("rope_freqs.weight", ones)))
    path = written(tmp_path / "again", more=lambda writer: writer.add_tensor("rope_freqs.weight", ones * value))
    os.replace(path, tmp_path / "model.gguf")
    with pytest.raises(GgufError, match=r"model.gguf: rope_freqs.weight: .* served"):
        describing_folder(tmp_path / "model.gguf")


@pytest.mark.parametrize(("version", "said"), [
    (b"\0\0\0\3", "has the other order of bytes; turn it: gguf-convert-endian model.gguf little"),
    (b"\1\0\0\0", "is a GGUF file of version 1, and only 2, 3 are read; take another file"),
])  # fmt: skip
def test_a_file_of_another_version_is_told_with_a_remedy_that_helps(tmp_path: Path, version: bytes, said: str) -> None:
    path = written(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"GGUF\3\0\0\0", b"GGUF" + version, 1))
    with pytest.raises(GgufError, match=said):
        read_gguf(path)


def divisors(scaling: dict[str, Any]) -> Any:
    """What transformers divides frequencies by."""
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = LlamaConfig(head_dim=16, rope_parameters=scaling | {"rope_theta": 10000.0}, max_position_embeddings=131072)
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    return (1 / 10000.0 ** (gguf.gguf_writer.np.arange(0, 16, 2) / 16) / scaled.numpy()).astype("float32")


def test_yarn_is_told(tmp_path: Path) -> None:
    keys = {"qwen3.rope.scaling.type": "yarn", "qwen3.rope.scaling.factor": 4.0,
            "qwen3.rope.scaling.original_context_length": 2048}  # fmt: skip
    folder = describing_folder(written(tmp_path, "qwen3", keys=keys))
    assert json.loads((folder / "config.json").read_text())["rope_scaling"] == {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048,
    }  # fmt: skip


@pytest.mark.parametrize("layers", [[True, False], [False, False], [True], [2, 0]])
def test_windows_may_be_told_of_each_layer(tmp_path: Path, layers: list[Any]) -> None:
    def more(writer: gguf.GGUFWriter) -> None:
        writer.kv_data[0].pop(key := "gemma3.attention.sliding_window_pattern")
        writer.add_array(key, layers)

    windows = {"query_pre_attn_scalar": 16, "sliding_window": 24, "sliding_window_pattern": 2, "layer_types": None}
    path = written(tmp_path, "gemma3_text", windows, more=more)
    if layers not in ([True, False], [False, False]):
        with pytest.raises(GgufError, match="does not say of each of 2 layers whether it has a window"):
            describing_folder(path)
        return
    told = json.loads((describing_folder(path) / "config.json").read_text())
    assert told["layer_types"] == ["sliding_attention" if one else "full_attention" for one in layers]
    assert not [problem for problem in problems(Asked(str(path), device="cpu")) if problem.fatal]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"general.architecture": "gemma2"}, "'gemma2' is not served, only llama, qwen2, qwen3, gemma3"),
        ({"general.type": "adapter"}, "'adapter' is not served, only a whole model is"),
        ({"split.count": 3}, "llama-gguf-split --merge"),
        ({"llama.expert_count": 8}, "a model of 8 experts is not served"),
        ({"tokenizer.ggml.pre": "tekken"}, "'tekken' is not known, .*; put the model's own tokenizer.json beside"),
        ({"tokenizer.ggml.model": "bert"}, "'bert' is not served, only gpt2"),
        ({"tokenizer.ggml.model": "llama"}, "tokens or scores are missing"),
        ({"llama.rope.scaling.type": "linear"}, "'linear' is not served, only yarn"),
        ({"llama.embedding_length": "x"}, "must be one int, is x"),
        ({"llama.rope.dimension_count": 8}, "differs from the 16 of a head"),
        ({"llama.rope.scaling.factor": 4.0}, "'linear' is not served, only yarn"),
        ({"llama.rope.scale_linear": 4.0}, "'linear' is not served, only yarn"),
        ({"llama.rope.scaling.attn_factor": 1.2}, "rope.scaling.attn_factor: 1.2.* is not supported, only 0 or 1 is"),
        ({"llama.rope.scaling.yarn_ext_factor": 0.5}, "only -1 or 1 is"),
        ({"llama.attention.scale": 0.5}, "llama.attention.scale: 0.5 is not supported, only 0 is"),
        ({"llama.attention.causal": False}, "attention.causal: False is not supported, only true is"),
        ({"llama.attention.sliding_window": 16}, "16 is not supported: this architecture sees its whole context"),
        ({"llama.final_logit_softcapping": 30.0}, "final_logit_softcapping: 30.0 is not supported"),
        ({"llama.logit_scale": 0.25}, "only 0 or 1 is"),
        ({"tokenizer.ggml.bos_token_id": 999, "tokenizer.ggml.add_bos_token": True}, "999 is none of 320 tokens"),
    ],
)
def test_what_is_not_served_is_refused_by_name(tmp_path: Path, keys: dict[str, Any], message: str) -> None:
    path = written(tmp_path, keys=keys)
    with pytest.raises(FolderError, match=f"model.gguf: .*{message}"):
        local_folder(path)
    assert not list((tmp_path / "cache" / "paceline" / "gguf").iterdir())


def test_a_key_of_another_type_is_one_line(tmp_path: Path) -> None:
    """Of any key that is read, whatever stands there: a word, a number, a flag or a list."""
    own = read_gguf(written(tmp_path))
    names = [*own.keys, "split.count", "llama.expert_count", "llama.rope.scaling.type", "llama.rope.scaling.factor"]
    names += [f"tokenizer.ggml.{name}" for name in ("bos_token_id", "eot_token_id", "add_bos_token", "scores")]
    refused = 0
    for name, value in product(names, ("x", 3, -3, 1.5, True, ["a", "b"], [1, 2], [1.5])):
        file = replace(own, keys={**own.keys, name: value})
        try:
            for describe in (config, generation_config, tokenizer_config, tokenizer):
                describe(file)
        except GgufError as error:
            refused += 1
            assert str(error).startswith(f"{own.path}: ") and "\n" not in str(error)
    assert refused > len(names) * 5


def test_factors_of_one_and_whole_windows_change_nothing(tmp_path: Path) -> None:
    keys = {"llama.rope.scaling.factor": 1.0, "llama.attention.sliding_window": 1 << 20, "llama.logit_scale": 1.0}
    folder = describing_folder(written(tmp_path, keys=keys | {"llama.rope.scaling.type": "linear"}))
    assert json.loads((folder / "config.json").read_text())["rope_scaling"] is None


def test_a_type_that_is_not_served_is_named(tmp_path: Path) -> None:
    def more(writer: gguf.GGUFWriter) -> None:
        zeros = gguf.gguf_writer.np.zeros((2, 136), "uint8")
        writer.add_tensor("blk.0.other.weight", zeros, raw_dtype=Type.IQ4_XS)

    with pytest.raises(GgufError, match=r"tensor blk.0.other.weight has type IQ4_XS, which is not served; only .*Q4_K"):
        describing_folder(written(tmp_path, more=more))


def test_a_vocabulary_alone_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "vocab.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(GgufError, match="a vocabulary and no weights"):
        describing_folder(path)


def test_a_tokenizer_beside_the_file_is_taken(tmp_path: Path) -> None:
    path = written(tmp_path, keys={"tokenizer.ggml.pre": "tekken"})
    own = (tmp_path / "own" / "target" / "tokenizer.json").read_bytes()
    (tmp_path / "tokenizer.json").write_bytes(own)
    assert (describing_folder(path) / "tokenizer.json").read_bytes() == own


def test_a_template_beside_the_file_is_taken(tmp_path: Path) -> None:
    path = written(tmp_path, keys={"tokenizer.chat_template": ""})
    told = [problem.line for problem in problems(Asked(str(path), device="cpu"))]
    assert len(told) == 1 and told[0].startswith(f"{path}: no chat template") and "into its folder" in told[0]
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert not list(problems(Asked(str(path), device="cpu")))
    assert (describing_folder(path) / "chat_template.jinja").read_text() == "{{ messages[0].content }}"


def test_a_folder_with_one_file_is_that_file(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert gguf_of(tmp_path) == path == gguf_of(path)
    assert gguf_of(tmp_path / "own" / "target") is None and gguf_of(tmp_path / "none") is None
    assert gguf_of(describing_folder(path)) is None
    os.link(path, tmp_path / "mmproj-F16.gguf")
    assert gguf_of(tmp_path) == path
    os.link(path, tmp_path / "second.gguf")
    with pytest.raises(GgufError, match=r"holds 2 GGUF files; name one of them: .*model.gguf"):
        gguf_of(tmp_path)


def test_parts_of_a_model_are_told_to_be_joined(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        (tmp_path / f"m-0000{number}-of-00003.gguf").touch()
    with pytest.raises(GgufError, match="holds 3 parts of a model; join them with: llama-gguf-split --merge"):
        gguf_of(tmp_path)


def test_a_folder_is_made_once_and_again_when_it_was_changed(tmp_path: Path) -> None:
    path = written(tmp_path)
    folder = describing_folder(path)
    config, made = folder / "config.json", (folder / "config.json").read_text()
    stamp = config.stat().st_mtime_ns
    assert describing_folder(path) == folder and config.stat().st_mtime_ns == stamp
    config.write_text("{}")
    assert describing_folder(path) == folder and config.read_text() == made
    assert [one.name for one in folder.parent.iterdir()] == [folder.name]


def test_a_cut_file_is_told(tmp_path: Path) -> None:
    path = written(tmp_path)
    whole = path.read_bytes()
    head = read_gguf(path).tensors["token_embd.weight"].start
    for size in [*range(0, head, max(1, head // 200)), len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(
            GgufError, match=r"is not a complete GGUF file: .*; fetch it again|is cut short|is empty; fetch it again"
        ):
            read_gguf(path)


def test_a_damaged_head_is_told_or_read(tmp_path: Path) -> None:
    """Any 1 to 8 bytes of the head may be wrong; nothing but a GgufError comes of it, and no gigabytes."""
    path = written(tmp_path)
    whole = bytearray(path.read_bytes())
    draw = random.Random(7)
    for _ in range(300):
        damaged = bytearray(whole)
        place = draw.choice([draw.randrange(4, 400), draw.randrange(4, 20000)])
        damaged[place : place + 8] = draw.choice([struct.pack("<Q", 1 << draw.randrange(64)), draw.randbytes(8)])
        path.write_bytes(damaged)
        try:
            describing_folder(path)
        except GgufError as error:
            assert str(path) in str(error) and "\n" not in str(error)
