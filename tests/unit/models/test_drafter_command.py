"""The whole command: text, a start from another drafter, steps, and what is left in the folder."""

import json
import shutil
from pathlib import Path

from models.training.foreign.command import main
from models.training.foreign.frozen import load_frozen
from models.training.foreign.learning import Learner
from models.training.foreign.publish import publish
from models.training.settings import MODELS
from services.common.model import load_block
from tests.unit.models.foreign_pair import OPTIONS, shape_of, target_folder

TOKENIZER, VOCAB = MODELS / "embedded" / "target", 1024


def test_a_started_drafter_opens_and_its_card_says_where_it_began(tmp_path: Path) -> None:
    folder, start, out = target_folder(tmp_path / "target", "llama", VOCAB), tmp_path / "start", tmp_path / "out"
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER / file, folder)
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
