"""The table of keys; tests/operations/append compares what the kernel encodes with the code for one line."""

from rmqctl.kernels import line_parse


def test_each_key_has_a_slot_of_its_own() -> None:
    assert len(set(line_parse._KEY_SLOTS.tolist())) == line_parse.KEY_COUNT
