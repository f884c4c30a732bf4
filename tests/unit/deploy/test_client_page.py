"""The reference page of the client is made from it."""

import paceline
from deploy.client_page import ORDER, PAGE, page


def test_the_page_is_that_of_the_package() -> None:
    assert PAGE.read_text() == page(), "run python -m deploy.client_page"


def test_every_public_name_is_on_it() -> None:
    assert {*ORDER, "Prompt"} == set(paceline.__all__)
