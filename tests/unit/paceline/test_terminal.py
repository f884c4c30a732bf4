"""What a model writes cannot steer the terminal."""

from paceline.commands.terminal import printable


def test_text_stays_as_it_is() -> None:
    assert printable("def f():\n\treturn 'é😀'\n") == "def f():\n\treturn 'é😀'\n"


def test_characters_that_steer_are_shown_as_replaced() -> None:
    assert printable("\x1b]0;title\x07\x1b[2J\r\x9b1m\u202e") == "�]0;title��[2J��1m�"
