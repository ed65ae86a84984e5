"""A person's mistake is told in one printable line."""

from __future__ import annotations

from expertmiss.errors import UserError, suggest


def test_a_message_is_one_printable_line() -> None:
    assert str(UserError("field 'a\nb\r\ud800' is é wrong")) == "field 'a\\nb\\r\\ud800' is é wrong"


def test_the_closest_name_is_suggested() -> None:
    assert suggest("treshold", ["threshold", "first_choice"]) == "did you mean 'threshold'?"
    assert suggest("xyz", ["b", "a"]) == "known: a, b"
