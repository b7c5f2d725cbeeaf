# SPDX-License-Identifier: Apache-2.0
"""Nodes that come from NVIDIA's MIG manager, and go back to it: whose the label is, and when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.layouts.layout_request import Adoption, LayoutRequest, StatedLayout, as_adopted
from api import keys
from api.mig_status_annotation import MigPhase, MigStatusAnnotation, RequestSource
from discovery.mig_state import MigGpu
from kubelet.allocated_devices import NodeAllocation
from tests.agent.layouts.test_enforced_layouts import SPLIT, WANTED, WHOLE, EnforcingScene

MANAGER = NodeAllocation(pods=frozenset({"gpu-operator/nvidia-mig-manager-x7k2p"}))
NOBODY = NodeAllocation()
WHOLE_LABEL, SMALL_LABEL = "all-7g.40gb", "all-1g.5gb"
HAS_WHOLE = replace(WHOLE, uuid=SPLIT.uuid, bus_id=SPLIT.bus_id)


def managed(gpu: MigGpu = HAS_WHOLE, adopt: str | None = None) -> EnforcingScene:
    """A node that NVIDIA's manager has given the layout of its label; our agent is new there."""
    scene = EnforcingScene()
    scene.node.clear()
    scene.labels |= {keys.MIG_CONFIG: WHOLE_LABEL, keys.MIG_CONFIG_STATE: "success"}
    scene.gpu = gpu
    scene.start()
    scene.watch.allocated(MANAGER)
    label(scene, keys.MIG_ADOPT, adopt)
    scene.run()
    assert_not_obeyed(scene, WHOLE_LABEL)
    return scene


def label(scene: EnforcingScene, key: str, value: str | None) -> None:
    """By somebody else than the agent."""
    scene.labels.pop(key, None)
    if value is not None:
        scene.labels[key] = value
    scene.see()


def leaves(scene: EnforcingScene) -> None:
    """The manager's pod is gone."""
    scene.watch.allocated(NOBODY)
    scene.run(60)


def assert_not_obeyed(scene: EnforcingScene, value: str) -> None:
    assert (scene.status.phase, scene.status.unadopted) == ("unadopted", value)
    assert scene.request is None
    assert scene.asked == []


def test_beside_the_manager_its_label_is_its_own_and_stays_so_when_it_has_left() -> None:
    scene = managed()
    label(scene, keys.MIG_CONFIG, SMALL_LABEL)
    scene.run(60)
    assert_not_obeyed(scene, SMALL_LABEL)
    leaves(scene)
    assert_not_obeyed(scene, SMALL_LABEL)
    label(scene, keys.MIG_CONFIG, "all-2g.10gb")
    assert scene.run().phase == "waiting"


@pytest.mark.parametrize("state", ["pending", "rebooting", "success", "failed"])
@pytest.mark.parametrize("asks", [False, True])
def test_beside_the_manager_its_state_is_its_own(state: str, asks: bool) -> None:
    """Also where an agent wrote the same text before, and owns it by the managedFields."""
    scene = managed()
    if asks:
        scene.ask(WANTED)
    label(scene, keys.MIG_CONFIG_STATE, state)
    scene.run(60)
    assert scene.status.phase == ("refused" if asks else "unadopted")
    assert scene.label == state
    scene.allocation = None  # of an agent that starts, and does not know the pods yet
    scene.start()
    assert scene.label == state


def test_a_label_that_the_gpus_have_is_adopted_once_the_manager_has_left() -> None:
    scene = managed(adopt=Adoption.MATCHING)
    leaves(scene)
    assert (scene.status.phase, scene.status.unadopted) == ("unchanged", "")
    assert (scene.label, scene.request, scene.asked) == ("success", None, [])
    label(scene, keys.MIG_ADOPT, None)
    scene.start()
    assert scene.run(60).phase == "unchanged"
    label(scene, keys.MIG_CONFIG, SMALL_LABEL)
    assert scene.run().phase == "waiting"


def test_without_an_admins_word_not_even_a_label_that_matches_is_obeyed() -> None:
    scene = managed()
    leaves(scene)
    assert_not_obeyed(scene, WHOLE_LABEL)


def test_a_label_that_the_gpus_do_not_have_is_adopted_only_where_a_change_is_wanted() -> None:
    scene = managed(SPLIT, adopt=Adoption.MATCHING)
    leaves(scene)
    assert_not_obeyed(scene, WHOLE_LABEL)
    assert f"{keys.MIG_ADOPT}={Adoption.ANY}" in scene.status.reason
    label(scene, keys.MIG_ADOPT, Adoption.ANY)
    assert scene.run().phase == "waiting"
    assert scene.request is not None


def test_a_label_that_no_configuration_has_is_not_adopted_and_the_reason_is_shown() -> None:
    scene = managed(adopt=Adoption.MATCHING)
    label(scene, keys.MIG_CONFIG, "all-1g.6gb")
    scene.run()
    leaves(scene)
    assert_not_obeyed(scene, "all-1g.6gb")
    assert "all-1g.6gb" in scene.status.reason


def test_with_any_the_label_is_still_left_to_a_manager_that_is_there() -> None:
    scene = managed(SPLIT, adopt=Adoption.ANY)
    assert "nvidia-mig-manager" in scene.status.reason
    leaves(scene)
    assert scene.status.phase == "waiting"


def test_a_manager_that_comes_back_takes_the_label_and_what_was_asked_is_cancelled() -> None:
    scene = managed(SPLIT, adopt=Adoption.ANY)
    leaves(scene)
    request = scene.status.request
    scene.watch.allocated(MANAGER)
    scene.run(60)
    assert (scene.status.phase, scene.status.unadopted) == ("unadopted", WHOLE_LABEL)
    assert (scene.status.request, scene.status.outcome) == (request, "cancelled")
    assert (scene.request, scene.applied()) == (None, [])


def test_never_gives_the_label_back_with_what_was_asked_and_our_state_of_it() -> None:
    scene = managed(SPLIT, adopt=Adoption.ANY)
    leaves(scene)
    assert scene.label == "pending"
    label(scene, keys.MIG_ADOPT, Adoption.NEVER)
    scene.run()
    assert (scene.status.phase, scene.status.outcome) == ("unadopted", "cancelled")
    assert scene.request is None
    assert scene.label is None
    assert scene.applied() == []
    label(scene, keys.MIG_CONFIG, SMALL_LABEL)
    scene.run(60)
    assert (scene.status.phase, scene.status.unadopted) == ("unadopted", SMALL_LABEL)
    label(scene, keys.MIG_ADOPT, None)
    scene.run(60)
    assert (scene.status.phase, scene.request) == ("unadopted", None)


def test_the_annotation_counts_whatever_becomes_of_the_label() -> None:
    scene = managed(adopt=Adoption.NEVER)
    leaves(scene)
    scene.ask(WANTED)
    scene.gpu = SPLIT
    assert scene.run(60).phase == "waiting"
    assert scene.status.unadopted == WHOLE_LABEL


@pytest.mark.parametrize("adopting", [False, True])
@pytest.mark.parametrize("source", RequestSource)
def test_beside_another_manager_the_label_is_shown_by_its_value_as_not_obeyed(
    source: RequestSource, *, adopting: bool
) -> None:
    """Also one that was obeyed until then; an annotation is nobody else's."""
    request = LayoutRequest(source=source, text=SMALL_LABEL)
    wish = StatedLayout(request=request, adopting=adopting)
    verdict = MigStatusAnnotation(v=2, phase=MigPhase.REFUSED, reason="another manages MIG")

    found = as_adopted(wish, verdict, foreign=True)

    if source is RequestSource.ANNOTATION:
        assert found == verdict
    else:
        assert (found.phase, found.unadopted) == ("unadopted", SMALL_LABEL)
        assert found.reason == verdict.reason
