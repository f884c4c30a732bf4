"""How a product with the head is cut into pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.common.kernels.argmax_token.columns import TILE, columns_at_once


@given(rows=st.integers(1, 5000), vocab=st.integers(1, 300_000))
def test_pieces_are_whole_tiles_and_few_scores(rows: int, vocab: int) -> None:
    columns = columns_at_once(rows, vocab)
    assert columns > 0
    assert columns % TILE == 0
    assert columns - TILE < vocab
    assert (columns - TILE) * rows <= (10 << 20 if rows <= 128 else 48 << 20)


@pytest.mark.parametrize(("rows", "pieces"), [(1, 1), (15, 1), (60, 1), (120, 2), (480, 2), (1920, 6)])
def test_pieces_of_a_vocabulary_of_qwen3(rows: int, pieces: int) -> None:
    assert -(-151_936 // columns_at_once(rows, 151_936)) == pieces
