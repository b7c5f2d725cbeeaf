# SPDX-License-Identifier: Apache-2.0
"""Exactly when a request is settled, judged and written; what an agent that only observes shows."""

from __future__ import annotations

import pytest

from agent.layouts.layout_watch import LayoutWatch
from api import keys
from discovery.model import Driver, GpuState, NodeSnapshot
from kubelet.allocated_devices import NodeAllocation
from labelers.decision import Absent
from tests import build
from tests.agent.layouts.test_enforced_layouts import EnforcingScene
from tests.agent.layouts.test_layout_watch import OTHER, SPLIT, WANTED, Scene, held, snapshot


class Watched:
    """The watch of one node by a clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.scene = Scene()
        self.watch = LayoutWatch(
            self.scene.watch._inputs, clock=lambda: self.now, wall=lambda: 1_700_000_000.0
        )
        self.watch.allocated(NodeAllocation())
        self.annotations: dict[str, str] = {}
        self.observe()

    def observe(self, **annotations: str | None) -> None:
        """The Node has these annotations of the admin too."""
        for key, text in annotations.items():
            if text is None:
                self.annotations.pop(key, None)
            else:
                self.annotations[key] = text
        self.watch.observe({"name": "node-a", "annotations": dict(self.annotations)})

    def asks(self, text: str | None) -> None:
        self.observe(**{keys.MIG_LAYOUT: text})

    def at(self, now: float) -> tuple[float, int]:
        """The seconds until the next look, and how often the GPUs were read by then."""
        self.now = now
        return self.watch.tick(now), self.scene.reads


def test_a_request_is_judged_once_it_has_stayed_for_ten_seconds() -> None:
    watched = Watched()
    assert watched.at(0.0) == (30.0, 0)
    watched.now = 5.0
    watched.asks(WANTED)
    assert watched.at(5.0) == (10.0, 0)
    assert watched.at(11.5) == (3.5, 0)
    wait, reads = watched.at(14.999)
    assert (round(wait, 6), reads) == (0.001, 0)
    assert watched.at(15.0) == (5.0, 1)
    assert watched.at(20.0) == (5.0, 1)
    assert watched.at(314.9) == (5.0, 1)
    assert watched.at(315.0) == (5.0, 2)


def refused(watched: Watched) -> bool:
    return "keeps changing" in str(watched.watch.annotations().get(keys.MIG_STATUS))


def test_a_request_that_never_stays_is_refused_after_exactly_a_minute() -> None:
    watched = Watched()
    for at in range(0, 60, 5):
        watched.now = 100.0 + at
        watched.asks((WANTED, OTHER)[at % 2])
    assert watched.at(159.999)[1] == 0
    assert not refused(watched)
    assert watched.at(160.0)[1] == 0
    assert refused(watched)
    assert watched.at(165.0) == (5.0, 1)
    assert not refused(watched)


def test_a_request_that_stayed_for_ten_seconds_begins_the_minute_anew() -> None:
    watched = Watched()
    for number, at in enumerate((0, 5, 15, 24, 33, 42, 51, 60, 69)):
        watched.now = 100.0 + at
        watched.asks((WANTED, OTHER)[number % 2])
    watched.at(174.999)
    assert not refused(watched)
    watched.at(175.0)
    assert refused(watched)


def test_other_pods_are_shown_a_minute_after_the_ones_before_and_not_sooner() -> None:
    watched = Watched()
    watched.asks(WANTED)

    def pods(now: float) -> str:
        watched.at(now)
        text = str(watched.watch.annotations()[keys.MIG_STATUS])
        return next((name for name in ("first", "second") if name in text), "")

    pods(10.0)
    watched.watch.allocated(held("first"))
    assert pods(69.999) == ""
    assert pods(70.0) == "first"
    watched.watch.allocated(held("second"))
    assert pods(129.999) == "first"
    assert pods(130.0) == "second"


def test_an_agent_that_only_observes_takes_a_request_away_and_shows_no_state() -> None:
    """One that enforced before may have left it."""
    watched = Watched()
    assert isinstance(watched.watch.annotations()[keys.MIG_REQUEST], Absent)
    assert watched.watch.labels() == {}
    assert (watched.watch.enforces, watched.watch.release_causes) == (False, ())
    assert EnforcingScene().watch.enforces


def test_metrics_follow_an_agent_that_only_observes_too() -> None:
    watched = Watched()
    watched.at(0.0)
    assert watched.watch.desired_layout is None
    watched.asks(WANTED)
    watched.at(10.0)
    assert watched.watch.desired_layout is not None
    assert (watched.watch.desired_layout.phase, watched.watch.desired_layout.enforced) == (
        "planned",
        False,
    )
    watched.asks(None)
    watched.at(20.0)
    assert watched.watch.desired_layout is None


NO_DRIVER = Driver(version=None, nvml_version=None, cuda_version=None)


@pytest.mark.parametrize(
    ("snapshot_", "shows"),
    [
        (None, "nothing"),
        (snapshot(), "status"),
        (snapshot(mig=None), "gone"),
        (build.node([]), "gone"),
        (build.node([build.gpu(0, mig=None), build.silent(1)]), "nothing"),
        (build.node([build.silent(0, GpuState.LOST)]), "nothing"),
        (build.node([], driver=NO_DRIVER), "nothing"),
    ],
    ids=["not read", "with MIG", "without", "no GPU", "one silent", "all silent", "no driver"],
)
def test_a_status_goes_once_every_gpu_says_that_it_has_no_mig(
    snapshot_: NodeSnapshot | None, shows: str
) -> None:
    watched = Watched()
    watched.scene.snapshot = snapshot_
    found = watched.watch.annotations()
    if shows == "nothing":
        assert found == {}
    elif shows == "gone":
        assert {key: type(it) for key, it in found.items()} == {
            keys.MIG_STATUS: Absent,
            keys.MIG_REQUEST: Absent,
        }
    else:
        assert "idle" in str(found[keys.MIG_STATUS])


def test_a_permit_that_comes_has_the_gpus_read_again_and_other_notes_do_not() -> None:
    watched = Watched()
    watched.asks(WANTED)
    assert watched.at(10.0)[1] == 1
    watched.observe(**{"example.com/note": "x"})
    assert watched.at(15.0)[1] == 1
    for reads, permit in ((2, "x"), (3, "y"), (4, None)):
        watched.observe(**{keys.MIG_PERMIT: permit})
        assert watched.at(15.0)[1] == reads
        assert watched.at(20.0)[1] == reads


def test_a_label_that_is_to_be_adopted_by_now_is_judged_at_once() -> None:
    scene = Scene(label="all-1g.5gb")
    scene.run(60)
    assert (scene.phase, scene.reads) == ("unadopted", 0)
    scene.labels[keys.MIG_ADOPT] = "matching"
    scene.see()
    scene.run()
    assert (scene.phase, scene.reads) == ("unadopted", 1)
    scene.labels[keys.MIG_ADOPT] = "any"
    scene.see()
    scene.run(1)
    assert (scene.phase, scene.reads) == ("planned", 2)
    assert SPLIT.index == 0


def test_an_enforcing_agent_looks_every_five_seconds_whatever_is_asked_for() -> None:
    scene = EnforcingScene()
    assert scene.watch.tick(scene.runtime.now) == 5.0
    scene.ask(WANTED)
    assert scene.watch.tick(scene.runtime.now + 8.0) == 2.0
