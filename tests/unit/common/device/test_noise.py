"""The noise: published vectors of the generator, and what invariant I1 needs of it."""

import numpy as np
import pytest
import torch

from services.common.device.noise import gumbel, gumbel_array, philox

# Known answers of Random123 1.14, tests/kat_vectors: philox4x32-10.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def words(values: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    return tuple(np.array([value], dtype=np.uint64) for value in values)


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_philox_gives_the_published_words(
    counter: tuple[int, ...], key: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    got = philox(words(counter), words(key))  # type: ignore[arg-type]
    assert tuple(int(word[0]) for word in got) == expected


def test_noise_of_a_token_is_the_word_of_its_quad() -> None:
    seed, position, token = 0x299F31D0_A4093822, 0x5_0000_0007, 1234
    counter = words((position & 0xFFFFFFFF, position >> 32, token >> 2, 0))
    word = int(philox(counter, words((seed & 0xFFFFFFFF, seed >> 32)))[token & 3][0])  # type: ignore[arg-type]
    uniform = ((word >> 9) + 0.5) * 2.0**-23
    noise = gumbel_array(np.array([seed]), np.array([[position]]), 2000, np.float64)
    assert noise[0, 0, token] == pytest.approx(-np.log(-np.log(uniform)), abs=1e-12)


def test_published_vector() -> None:
    noise = gumbel(torch.tensor([42]), torch.tensor([[100, 101]]), 6)
    expected = -np.log(-np.log(_uniforms(42, 101, 6)))
    np.testing.assert_allclose(noise[0, 1].numpy(), expected, atol=2e-6)


def _uniforms(seed: int, position: int, vocab: int) -> np.ndarray:
    """One scalar Philox per token, in plain integers."""
    out = []
    for token in range(vocab):
        x, key = [position & 0xFFFFFFFF, position >> 32, token >> 2, 0], [seed & 0xFFFFFFFF, seed >> 32]
        for _ in range(10):
            high0, low0 = divmod(x[0] * 0xD2511F53, 1 << 32)
            high1, low1 = divmod(x[2] * 0xCD9E8D57, 1 << 32)
            x = [high1 ^ x[1] ^ key[0], low1, high0 ^ x[3] ^ key[1], low0]
            key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
        out.append(((x[token & 3] >> 9) + 0.5) * 2.0**-23)
    return np.array(out)


def test_noise_does_not_depend_on_batch_width_or_vocabulary() -> None:
    seeds = torch.tensor([3, -9, 77])
    positions = torch.tensor([[5, 6, 7, 8], [1, 2, 3, 4], [900, 901, 902, 903]])
    whole = gumbel(seeds, positions, 50)
    for row in range(3):
        for column in range(4):
            alone = gumbel(seeds[row : row + 1], positions[row : row + 1, column : column + 1], 33)
            assert torch.equal(alone[0, 0], whole[row, column, :33])


def test_noise_is_finite_and_gumbel_distributed() -> None:
    noise = gumbel(torch.arange(40), torch.arange(25)[None].expand(40, -1), 64, torch.float64)
    assert bool(noise.isfinite().all())
    assert float(noise.mean()) == pytest.approx(0.5772, abs=0.02)
    assert float(noise.var()) == pytest.approx(np.pi**2 / 6, abs=0.05)
