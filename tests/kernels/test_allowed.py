"""Which products the library may compute."""

from collections.abc import Iterator

import pytest

from services.common.kernels.linear import allowed


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """The refusals are the process's."""
    allowed.allow_all()
    yield
    allowed.allow_all()


def test_the_library_may_compute_whatever_nobody_refused() -> None:
    assert allowed.allowed(2560, 9728, 128)
    assert allowed.refused() == ()


def test_a_refusal_is_of_one_weight_at_one_number_of_rows() -> None:
    allowed.refuse(2560, 9728, 128)
    allowed.refuse(2560, 9728, 128)
    assert not allowed.allowed(2560, 9728, 128)
    assert allowed.allowed(2560, 9728, 256) and allowed.allowed(9728, 2560, 128)
    assert allowed.refused() == ((2560, 9728, 128),)


def test_a_refusal_is_taken_back() -> None:
    for rows in (64, 128, 256):
        allowed.refuse(2560, 9728, rows)
    allowed.allow(2560, 9728, 128)
    allowed.allow(2560, 9728, 1)
    assert allowed.refused() == ((2560, 9728, 64), (2560, 9728, 256))
    allowed.allow_all()
    assert allowed.refused() == ()
