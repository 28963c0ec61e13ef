"""The table of the kinds of damage."""

from __future__ import annotations

from rmqctl.forensics.catalogue.catalogue import CATALOGUE
from rmqctl.format.damage_kinds import KINDS
from rmqctl.store.read.commit_log import UNREADABLE


def test_every_kind_is_explained_and_its_columns_fit() -> None:
    assert KINDS.keys() <= CATALOGUE.keys()
    for kind in KINDS.values():
        assert not (kind.is_checked and kind.is_served)
        assert kind.has_record or not kind.is_served
    assert {"unreadable", "link-not-followed"} == UNREADABLE
