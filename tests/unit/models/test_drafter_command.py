"""The whole command: text, a start from another drafter, steps, and what is left in the folder."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from models.training.__main__ import main as command_line
from models.training.foreign.command import main
from models.training.foreign.conversation import read_format
from models.training.foreign.corpus import CorpusOptions, write_corpus
from models.training.foreign.frozen import load_frozen
from models.training.foreign.learning import Learner
from models.training.foreign.publish import publish
from models.training.settings import MODELS
from services.common.model import load_block
from tests.support.tiny_checkpoints import EXPERTS, write_tiny
from tests.unit.models.foreign_pair import OPTIONS, shape_of, target_folder, written

TOKENIZER, VOCAB = MODELS / "embedded" / "target", 1024


def chatting(path: Path) -> Path:
    """A model with a tokenizer that has a chat template."""
    folder = target_folder(path, "llama", VOCAB)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER / file, folder)
    return folder


def test_a_started_drafter_opens_and_its_card_says_where_it_began(tmp_path: Path) -> None:
    folder, start, out = chatting(tmp_path / "target"), tmp_path / "start", tmp_path / "out"
    target = load_frozen(str(folder), "cpu")
    publish(Learner(target, shape_of(target), OPTIONS).folded(), start)
    held_out = tmp_path / "held_out.json"
    held_out.write_text(json.dumps([{"kind": "code", "prompt": "os"}, {"kind": "list", "prompt": "def"}]))
    main(
        f"--target {folder} --device cpu --kind dflash2 --rank 4 --layers 2 --start {start} --beside {start} "
        f"--blocks 8:2,4:2 --data-seconds 600 --conversations 6 --slots 6 --length 96 --rows 1 --steps 2 "
        f"--train-seconds 600 --pairs-from 0 --held-out {held_out} --answer-tokens 4 --out {out}".split()
    )
    card = json.loads((out / "card.json").read_text())
    assert card["facts"]["starts from"] == str(start)
    assert card["facts"]["steps"] == 2
    assert set(card["taus"]) == {str(start), "dflash2"}
    assert "16 rows" in (out / "card.md").read_text()
    assert load_block(out).spec.kind == "dflash2"


def test_a_brief_run_counts_chains_alone_and_eight_bits_are_half_the_file(tmp_path: Path) -> None:
    folder, out = chatting(tmp_path / "target"), tmp_path / "out"
    held_out = tmp_path / "held_out.json"
    held_out.write_text(json.dumps([{"kind": "code", "prompt": "os"}]))
    corpus = tmp_path / "text.pt"
    torch.save(vars(written(load_frozen(str(folder), "cpu"), 4)), corpus)
    main(
        f"--target {folder} --device cpu --kind dflash2 --rank 4 --layers 1 --brief --eight-bits --block-size 8 "
        f"--mask-token 5 --blocks 8:2 --corpus {corpus} --length 48 --rows 1 --steps 1 --held-out {held_out} "
        f"--answer-tokens 2 --out {out}".split()
    )
    card = json.loads((out / "card.json").read_text())
    assert not card["taus"]
    assert [point["step"] for point in card["curve"]] == [0, 1]
    assert json.loads((out / "config.json").read_text())["quantization_config"]["format"] == "int-quantized"
    assert load_block(out).spec.kind == "dflash2"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--mask-token 99999", "--mask-token 99999 is none of the target's 1024"),
        ("--slots 0", "argument --slots: must be at least 1, is 0"),
        ("--kind dspark --rank 0", "argument --rank: must be at least 1, is 0"),
        ("--blocks 8:2,1:3", "argument --blocks: must be at least 2, is 1"),
        ("--device cuda:9", "--device cuda:9: torch finds no GPU here"),
        ("--target /nowhere", "/nowhere: no such folder"),
        (
            "--kind dspark --rank 100000",
            "argument --rank: must be at most 16384, is 100000: what is larger is not served",
        ),
        ("--block-size 2000", "argument --block-size: must be at most 1024, is 2000: what is larger is not served"),
        ("--target {windows}", "targets with one kind of attention: this one has windows"),
        ("--device tpu", "argument --device: must be cpu or cuda, is 'tpu'"),
        ("--blocks 8", "argument --blocks: must be SIZE:COUNT,..., as in 8:2,4:2, is '8'"),
        ("--temperature -1", "argument --temperature: must be a number from 0 to inf, is -1"),
        ("--rate nan", "argument --rate: must be a number from 0 to inf, is nan"),
        ("--pairs-from 2", "argument --pairs-from: must be a number from 0 to 1, is 2"),
        ("--only-text", "--only-text keeps the text in the file of --corpus: name one"),
        ("--corpus /nowhere/text.pt", "--corpus /nowhere/text.pt: is no file in a folder that is there"),
        ("--out {file}/drafter", "/drafter: is no folder, nor in one"),
        ("--held-out /nowhere", "--held-out /nowhere: cannot be read: "),
        ("--held-out {file}", "must be a list of objects with kind and prompt, both texts"),
        ("--corpus {file}", "is no text that a run kept: remove it, or name another"),
        ("--target {experts}", "a drafter can be trained for dense targets only: this one has experts"),
    ],
)
def test_what_cannot_be_trained_is_told_at_once(
    words: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, before the target writes anything."""
    if "cuda" in words and torch.cuda.is_available():
        return
    folder, file, mixture = chatting(tmp_path / "target"), tmp_path / "file", tmp_path / "mixture"
    file.write_text("[]")
    if "experts" in words:
        write_tiny(mixture, family="qwen3_moe", changes=EXPERTS)
    if "windows" in words:
        write_tiny(tmp_path / "windowed", family="gemma3_text")
    given = words.format(file=file, experts=mixture / "target", windows=tmp_path / "windowed" / "target")
    monkeypatch.setattr(
        "sys.argv", ["training", *f"drafter --target {folder} --out {tmp_path / 'out'} {given}".split()]
    )
    with pytest.raises(SystemExit) as ended:
        command_line()
    assert told in f"{ended.value}{capsys.readouterr().err}"
    assert not (tmp_path / "out").exists()


def test_rows_that_hold_no_prompt_are_told(tmp_path: Path) -> None:
    folder = chatting(tmp_path / "target")
    target, chat = load_frozen(str(folder), "cpu"), read_format(folder)
    with pytest.raises(ValueError, match="no prompt fits into --length 6 or was written: give it, or --data-seconds"):
        write_corpus(target, chat, (), [], CorpusOptions(seconds=60.0, conversations=3, slots=3, length=6))
