# SPDX-License-Identifier: Apache-2.0
"""What a sink changes, and what it leaves alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelers.decision import Absent, Decisions, Keep, Value
from labelers.diff import applied, changes

MODE, CLIQUE = "nvidia.com/gpu.mode", "nvidia.com/gpu.clique"
COUNT = "nvidia.com/mig-1g.5gb.count"
COUNTS = "nvidia.com/mig-<profile>.count"
ABSENT, KEEP = Absent(reason="known to be gone"), Keep(reason="not known now")


@pytest.mark.parametrize(
    ("present", "wanted", "patch"),
    [
        ({}, {MODE: Value(text="compute")}, {MODE: "compute"}),
        ({MODE: "compute"}, {MODE: Value(text="compute")}, {}),
        ({MODE: "graphics"}, {MODE: Value(text="compute")}, {MODE: "compute"}),
        ({}, {MODE: Value(text="")}, {MODE: ""}),
        ({MODE: "compute"}, {MODE: ABSENT}, {MODE: None}),
        ({}, {MODE: ABSENT}, {}),
        ({MODE: "compute"}, {MODE: KEEP}, {}),
        ({}, {MODE: KEEP}, {}),
        ({MODE: "compute"}, {}, {}),
        ({COUNT: "7"}, {COUNTS: ABSENT}, {COUNT: None}),
        ({COUNT: "7"}, {COUNTS: KEEP}, {}),
        ({COUNT: "7"}, {COUNTS: ABSENT, COUNT: Value(text="6")}, {COUNT: "6"}),
        ({COUNT: "7"}, {COUNTS: ABSENT, COUNT: KEEP}, {}),
        ({"nvidia.com/gpu.present": "true", "zone": "a"}, {COUNTS: ABSENT, MODE: ABSENT}, {}),
    ],
)
def test_only_what_differs_is_changed_and_only_what_is_known_to_be_gone_is_removed(
    present: dict[str, str], wanted: Decisions, patch: dict[str, str | None]
) -> None:
    assert changes(present, wanted) == patch


DECISIONS = st.dictionaries(
    st.sampled_from([MODE, CLIQUE, COUNT, COUNTS]),
    st.builds(Value, text=st.sampled_from("ab")) | st.just(ABSENT) | st.just(KEEP),
)


@given(
    st.dictionaries(st.sampled_from([MODE, CLIQUE, COUNT, "zone"]), st.sampled_from("abc")),
    DECISIONS.filter(lambda decisions: not isinstance(decisions.get(COUNTS), Value)),
)
def test_once_applied_nothing_is_left_to_change(present: dict[str, str], wanted: Decisions) -> None:
    after = applied(present, wanted)

    assert changes(after, wanted) == {}
    assert after.get("zone") == present.get("zone")


def test_what_is_not_known_is_written_only_where_there_is_nothing() -> None:
    decision = {MODE: Keep(reason="not known now", otherwise="compute")}
    assert changes({}, decision) == {MODE: "compute"}
    assert changes({MODE: "graphics"}, decision) == {}
