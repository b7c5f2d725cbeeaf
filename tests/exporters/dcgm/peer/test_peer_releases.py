# SPDX-License-Identifier: Apache-2.0
"""Each release of dcgm-exporter has the counters and flags that its own files have."""

from __future__ import annotations

import pytest

from cli.dcgm_exporter.dcgm_flags import FLAGS, Form
from exporters.dcgm.catalog import CATALOG, COUNTED
from exporters.dcgm.peer.peer_counters import counters_of
from exporters.dcgm.peer.peer_releases import DEFAULT_RELEASE, RELEASES, TAGS, ReleaseSpan
from tests.exporters.dcgm.peer.peer_files import RECORDED, published, recorded, tags

FORMS = {
    "Bool": {Form.SWITCH},
    "StringSlice": {Form.LIST},
    "Int": {Form.MILLISECONDS, Form.TEXT},
    "Int64": {Form.TEXT},
    "Duration": {Form.TEXT},
    "String": {Form.TEXT},
}
"""How we read what Go's package for flags calls so."""


def test_the_newest_release_is_served_where_no_other_is_configured() -> None:
    assert DEFAULT_RELEASE == "4.8.4"
    assert sorted(path.stem for path in RECORDED.glob("*.txt")) == sorted(RELEASES)


@pytest.mark.parametrize("release", RELEASES)
def test_a_release_has_the_counters_of_its_own_file(release: str) -> None:
    assert {(row.name, row.kind, row.served) for row in counters_of(release)} == (
        recorded(release).counters
    )


@pytest.mark.parametrize("release", RELEASES)
def test_a_release_has_the_flags_and_variables_of_its_own_source(release: str) -> None:
    facts = recorded(release).flags
    kinds = {name: kind for name, _, _, kind in facts}
    ours = [flag for flag in FLAGS if release in flag.releases]

    assert {(flag.name, flag.short, flag.variable) for flag in ours} == {
        (name, short, variable) for name, short, variable, _ in facts
    }
    assert [flag.name for flag in ours if flag.form not in FORMS[kinds[flag.name]]] == []


@pytest.mark.parametrize("release", RELEASES)
def test_what_is_recorded_of_a_release_is_what_its_tag_holds(release: str) -> None:
    if TAGS[release] not in tags():
        pytest.skip("GPUSCAPE_DCGM_EXPORTER_GIT names no clone of dcgm-exporter with this tag")

    assert recorded(release) == published(TAGS[release])


def test_the_catalogue_has_the_types_of_the_release_that_is_served_by_default() -> None:
    kinds: dict[str, set[str]] = {}
    for row in counters_of(DEFAULT_RELEASE):
        kinds.setdefault(row.name, set()).add(row.kind)
    shared = [family for family in (*CATALOG, *COUNTED) if family.name in kinds]

    assert {family.name: {family.kind.value} for family in shared} == {
        family.name: kinds[family.name] for family in shared
    }


def test_a_span_has_both_its_ends_and_no_release_that_never_was() -> None:
    span = ReleaseSpan(first="4.5.2", last="4.8.0")

    assert [release for release in RELEASES if release in span] == [
        *("4.5.2", "4.6.0", "4.7.0", "4.7.1", "4.8.0")
    ]
    with pytest.raises(ValueError, match=r"4\.5\.1"):
        ReleaseSpan(first="4.5.1")
