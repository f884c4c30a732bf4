"""Where an answer begins to repeat itself: small models loop when greedy, and a loop flatters every drafter."""

import torch
from torch import Tensor

GRAM = 24
"""Tokens that make a repetition when they come again."""
_BASE = 6364136223846793005
_CHUNK = 8192


def first_repeats(ids: Tensor, starts: Tensor, ends: Tensor, gram: int = GRAM) -> Tensor:
    """Return for each text [count, length] where a run of its answer first comes again, or `length`.

    Answers reach from `starts` to `ends`; the place is that of the run's last token. Hashes of 64 bits are compared.
    """
    chunks = zip(ids.split(_CHUNK), starts.split(_CHUNK), ends.split(_CHUNK), strict=True)
    return torch.cat([_repeats(rows, first, last, gram) for rows, first, last in chunks])


def _repeats(ids: Tensor, starts: Tensor, ends: Tensor, gram: int) -> Tensor:
    length = ids.shape[1]
    if length < gram:
        return torch.full_like(ends, length)
    places = torch.arange(length - gram + 1, device=ids.device)
    hashes = torch.zeros((len(ids), len(places)), dtype=torch.long, device=ids.device)
    for offset in range(gram):
        hashes = hashes * _BASE + ids[:, offset : offset + len(places)].long() + 1
    inside = (places >= starts[:, None]) & (places + gram <= ends[:, None])
    # Runs outside the answer are like no other.
    hashes = torch.where(inside, hashes, -1 - places)
    ordered, order = hashes.sort(dim=1, stable=True)
    again = torch.zeros_like(inside)
    again[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    last = torch.where(again, order + gram - 1, length)
    return last.amin(1)
