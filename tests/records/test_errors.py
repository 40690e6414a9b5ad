"""Input errors are one line."""

from edge0verify.records.errors import InputError


def test_a_message_of_many_lines_becomes_one():
    assert str(InputError("file.h5:\n  expected 3 rows,\tfound 4")) == "file.h5: expected 3 rows, found 4"
