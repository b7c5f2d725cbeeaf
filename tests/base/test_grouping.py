# SPDX-License-Identifier: Apache-2.0
"""Items in groups: by key, each in the order in which they come."""

from __future__ import annotations

from base.grouping import grouped


def test_items_stand_in_the_group_of_their_key_in_their_order() -> None:
    found = grouped(["pear", "fig", "plum", "kiwi", "nut"], len)

    assert list(found.items()) == [(4, ["pear", "plum", "kiwi"]), (3, ["fig", "nut"])]
    assert grouped([], len) == {}
