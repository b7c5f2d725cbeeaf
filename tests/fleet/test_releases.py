# SPDX-License-Identifier: Apache-2.0
"""Annotations that agent and coordinator of a release wrote in each phase of a MIG change, read by
the programs of today.

The files in ``releases`` were recorded from running programs (tests/cluster/recorded_release.py).
A key that today's formats do not know, or mean otherwise, would leave a node cordoned after an
upgrade.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from api import (
    keys,
    mig_permit_annotation,
    mig_request_annotation,
    mig_status_annotation,
    names,
)
from api.versioned import VersionedFormat
from base.errors import BadInput
from fleet import rollback_record, slot_lease
from fleet.rollout_settings import RolloutSettings
from kube.api import LEASES
from tests.fleet.simulated_fleet import Cluster

RELEASES: Final = Path(__file__).with_name("releases")
RECORDED: Final = sorted(RELEASES.glob("*/*.json"))
PHASES: Final = {"requested", "cordoned", "permitted", "changing", "ended"}
FORMATS: Final[dict[str, VersionedFormat[Any]]] = {
    "gpuscape.io/mig-request": mig_request_annotation.FORMAT,
    "gpuscape.io/mig-status": mig_status_annotation.FORMAT,
    "gpuscape.io/mig-permit": mig_permit_annotation.FORMAT,
    "gpuscape.io/mig-rollback-record": rollback_record.FORMAT,
}
TERMS: Final = RolloutSettings(slots=1, most_cordoned=1)
CHANGE_SECONDS: Final = 20.0
EACH_RECORDED = pytest.mark.parametrize(
    "file", RECORDED, ids=lambda file: f"{file.parent.name}-{file.stem}"
)


def texts(recorded: dict[str, Any]) -> list[tuple[str, str]]:
    """Each annotation that has a format, with its text."""
    groups = (recorded["node"]["annotations"], *recorded["slots"].values())
    return [(key, text) for group in groups for key, text in group.items() if key in FORMATS]


def is_understood(key: str, text: str) -> bool:
    """Whether today's format reads the text, and has each of its keys with the same value."""
    try:
        value = FORMATS[key].decode(text)
    except BadInput:
        return False
    return value is not None and json.loads(FORMATS[key].encode(value)) == json.loads(text)


def test_each_release_has_all_phases_and_all_annotations() -> None:
    releases = {file.parent for file in RECORDED}
    assert releases
    for release in releases:
        files = [file for file in RECORDED if file.parent == release]
        assert {file.stem for file in files} == PHASES
        read = [json.loads(file.read_text("utf-8")) for file in files]
        assert {key for recorded in read for key, _ in texts(recorded)} == FORMATS.keys()


@EACH_RECORDED
def test_every_key_that_a_release_wrote_is_read_as_it_was_meant(file: Path) -> None:
    for key, text in texts(json.loads(file.read_text("utf-8"))):
        assert is_understood(key, text), (key, text)


@EACH_RECORDED
def test_a_key_of_another_name_would_be_noticed(file: Path) -> None:
    """This is what a release sees whose formats have a key renamed."""
    for key, text in texts(json.loads(file.read_text("utf-8"))):
        for name in json.loads(text):
            assert not is_understood(key, text.replace(f'"{name}":', f'"{name}_renamed":')), name


def replayed(recorded: dict[str, Any]) -> Cluster:
    """A cluster whose only node is in the middle of that change, and whose agent is away."""
    cluster = Cluster(nodes=1, terms=TERMS)
    cluster.now = recorded["recorded_at"] + 1.0
    cluster.start_coordinator()
    node, (agent,) = recorded["node"], cluster.agents.values()
    agent.is_away, agent.closed = True, False
    agent.wish = agent.asked = node["annotations"][keys.MIG_LAYOUT]
    agent.request = json.loads(node["annotations"][keys.MIG_STATUS])["request"]
    for number, notes in enumerate(recorded["slots"].values()):
        text = notes[keys.MIG_ROLLBACK_RECORD]
        for old, new in (
            ("name", agent.name),
            ("uid", cluster.node(agent.name)["metadata"]["uid"]),
        ):
            text = text.replace(f'"{node[old]}"', f'"{new}"')
        lease = {
            "metadata": {
                "name": slot_lease.slot_name(number),
                "annotations": {keys.MIG_ROLLBACK_RECORD: text},
            },
            "spec": {"holderIdentity": agent.name},
        }
        cluster.people.create(LEASES, lease, namespace=names.NAMESPACE)
    spec = {"unschedulable": node["unschedulable"] or None}
    cluster.edit(agent.name, {"metadata": {"annotations": node["annotations"]}, "spec": spec})
    return cluster


def is_undone(cluster: Cluster) -> bool:
    """Whether nothing of the change is left."""
    notes = cluster.notes("n0")
    ours = {keys.MIG_PERMIT, keys.MIG_CORDON, *names.SCALE_DOWN_GUARDS}
    return notes.keys().isdisjoint(ours) and not (
        cluster.is_cordoned("n0") or cluster.open_leases()
    )


@EACH_RECORDED
def test_the_coordinator_of_today_ends_a_change_that_a_release_began(file: Path) -> None:
    """Alone where the agent has written the outcome; else it waits for the agent, and no permit is
    taken back or given meanwhile. The change is the one that was begun: no second one is needed."""
    recorded = json.loads(file.read_text("utf-8"))
    cluster = replayed(recorded)
    agent, request = cluster.agents["n0"], cluster.agents["n0"].request
    before = recorded["node"]["annotations"].get(keys.MIG_PERMIT)
    if file.stem == "ended":
        cluster.pass_until(lambda: is_undone(cluster), within=300)
        return

    cluster.pass_time(60)
    assert cluster.notes("n0").get(keys.MIG_PERMIT) == before
    assert cluster.is_cordoned("n0") == recorded["node"]["unschedulable"]

    agent.changes_until = cluster.now + CHANGE_SECONDS if file.stem == "changing" else 0.0
    agent.is_away = False
    cluster.pass_until(lambda: bool(agent.done) and is_undone(cluster), within=600)
    assert agent.done == [(request, "applied")]
