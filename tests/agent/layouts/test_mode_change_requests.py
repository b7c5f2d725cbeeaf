# SPDX-License-Identifier: Apache-2.0
"""Who may have MIG turned on by a reset: the Node's annotation, else the setting; off otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from agent.layouts.desired_change import DesiredChange, desired_change
from agent.layouts.layout_request import LayoutRequest, stated_layout
from agent.layouts.planned_request import PlannedRequest, plan_request
from api import keys
from api.actuator.actuator_messages import ApplyRequest, decode_request, encode_message
from api.mig_mode_change import ModeChange
from api.mig_status_annotation import RequestSource
from discovery.mig_state import UnreadMigGpu
from discovery.model import Mode
from mig.shared_reset import ONE_BY_ONE, SharedReset
from mig.users.device_users import DeviceUser, DeviceUsers, MigPart, UserKind
from tests.mig.naive_gpu import mig_gpu

OFF = Mode(current=False, pending=False)
GPU = replace(mig_gpu("a100-sxm4-40gb", mode=OFF), profiles=())
"""An A100 with MIG off: its driver reports no profiles."""
SPLIT = mig_gpu("a100-sxm4-40gb", ("1g.5gb", 0), uuid="GPU-1", index=1)
POD = DeviceUser(UserKind.POD, "team/train")
USERS: DeviceUsers = {MigPart(GPU.uuid, None): frozenset({POD})}


def planned(
    annotated: str | None,
    setting: ModeChange = ModeChange.OFF,
    layout: str = '{"0": {"1g.5gb": 7}}',
    shared: SharedReset = ONE_BY_ONE,
) -> PlannedRequest:
    """What is planned for a layout on the Node."""
    request = LayoutRequest(source=RequestSource.ANNOTATION, text=layout, mode_change=annotated)
    gpus = (GPU, SPLIT)
    return plan_request(request, gpus, None, USERS, None, mode_change=setting, shared=shared)


def change(plan: PlannedRequest) -> DesiredChange:
    """The change that a plan needs."""
    request = LayoutRequest(source=RequestSource.ANNOTATION, text="")
    found = desired_change(request, plan, USERS, None)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("annotated", "setting", "phase"),
    [
        (None, ModeChange.OFF, "refused"),
        (None, ModeChange.DRIVER, "planned"),
        ("driver", ModeChange.OFF, "planned"),
        ("off", ModeChange.DRIVER, "refused"),
        ("yes", ModeChange.DRIVER, "refused"),
        ("", ModeChange.DRIVER, "refused"),
    ],
)
def test_the_annotation_wins_over_the_setting_and_off_is_the_default(
    annotated: str | None, setting: ModeChange, phase: str
) -> None:
    """A value that is none of the two forbids it too."""
    assert planned(annotated, setting).status.phase == phase


def test_a_value_that_is_not_known_is_named() -> None:
    reason = planned("nvidia-smi").status.reason
    assert reason == ("annotation gpuscape.io/mig-mode-change is 'nvidia-smi': write off or driver")


def test_the_status_says_that_the_gpu_is_reset_and_how_it_was_judged() -> None:
    found = planned("driver").status
    assert "the driver resets GPU 0 for the MIG mode" in found.reason
    assert "table of known models" in found.reason
    assert [(gpu.gpu, gpu.mig) for gpu in found.gpus] == [(0, True)]
    assert found.pods == ("team/train",)


def test_the_pod_on_the_whole_gpu_is_in_the_way_and_clients_are_to_be_paused() -> None:
    """The coordinator drains and pauses by these two."""
    found = change(planned("driver"))
    assert (found.pods, found.modes, found.resets) == (frozenset({"team/train"}), True, True)


def test_the_actuator_gets_the_permission_where_a_gpu_is_reset_alone() -> None:
    """Older ones refuse a request with a key that they do not know."""
    with_reset = encode_message(change(planned("driver")).apply_request("a" * 16))
    split = '{"1": {"2g.10gb": 1}}'
    without = encode_message(change(planned("driver", layout=split)).apply_request("a" * 16))

    known = decode_request(with_reset)
    assert isinstance(known, ApplyRequest)
    assert known.mode_change == "driver"
    assert "mode_change" not in msgspec.json.decode(without)


ALL = '{"0": {"1g.5gb": 7}, "1": "off"}'


@pytest.mark.parametrize(
    ("layout", "is_allowed", "phase", "words"),
    [
        ('{"0": {"1g.5gb": 7}}', True, "refused", f"another mode of GPU {SPLIT.bus_id} too"),
        ('{"0": {"1g.5gb": 7}}', False, "refused", f"another mode of GPU {SPLIT.bus_id} too"),
        (ALL, False, "refused", "no Fabric Manager, or allow mig-reset"),
        (ALL, True, "planned", "the driver resets GPU 0, 1"),
        ('{"1": {"2g.10gb": 1}}', False, "planned", ""),
    ],
)
def test_gpus_that_are_reset_together_are_requested_together_or_refused_before_a_drain(
    layout: str, is_allowed: bool, phase: str, words: str
) -> None:
    """The sentence names the others; a layout without a reset is nobody else's matter."""
    shared = SharedReset(why="no Fabric Manager", is_allowed=is_allowed)

    found = planned("driver", layout=layout, shared=shared).status

    assert found.phase == phase
    assert words in found.reason


def test_a_gpu_that_cannot_be_read_is_one_of_the_others() -> None:
    unread = UnreadMigGpu(bus_id="0000:99:00.0", gaps=())
    request = LayoutRequest(
        source=RequestSource.ANNOTATION, text='{"0": {"1g.5gb": 7}}', mode_change="driver"
    )
    shared = SharedReset(why="no Fabric Manager", is_allowed=True)

    found = plan_request(request, (GPU, unread), None, USERS, None, shared=shared).status

    assert (found.phase, "0000:99:00.0" in found.reason) == ("refused", True)


def metadata(mode_change: str | None, **labels: str) -> dict[str, Any]:
    """A Node's, with a layout in its annotation unless it has labels."""
    notes = {} if labels else {keys.MIG_LAYOUT: "all-1g.5gb"}
    more = {} if mode_change is None else {keys.MIG_MODE_CHANGE: mode_change}
    return {"annotations": notes | more, "labels": labels}


@pytest.mark.parametrize("labels", [{}, {keys.MIG_CONFIG: "all-1g.5gb", keys.MIG_ADOPT: "any"}])
def test_the_annotation_is_part_of_what_is_asked_for(labels: dict[str, str]) -> None:
    """So that a layout which was refused is judged anew once an admin allows it."""
    found = [
        stated_layout(metadata(value, **labels), None).request for value in (None, "off", "driver")
    ]
    assert [request and request.mode_change for request in found] == [None, "off", "driver"]
    assert len(set(found)) == 3
