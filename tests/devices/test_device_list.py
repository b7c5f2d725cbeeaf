# SPDX-License-Identifier: Apache-2.0
"""No device leaves the list of a resource while somebody may hold it."""

from __future__ import annotations

from random import Random

import pytest

from devices.device_list import DeviceList, next_list
from kubelet.device_plugin.plugin_model import ListedDevice

A, B = ListedDevice(id="a", numa_node=0), ListedDevice(id="b", numa_node=1)


def listed(state: DeviceList) -> dict[str, bool]:
    return {device.id: device.healthy for device in state.devices}


def test_what_is_offered_is_listed_in_its_order() -> None:
    assert next_list(DeviceList(), [B, A], {}, 0).devices == (B, A)


def test_a_device_that_goes_is_unhealthy_for_a_minute_and_then_gone() -> None:
    state = next_list(DeviceList(), [A, B], {}, 0)
    state = next_list(state, [A], {}, 100)
    assert listed(state) == {"a": True, "b": False}
    assert state.devices[1].numa_node == 1, "the kubelet has its NUMA node still"
    state = next_list(state, [A], {}, 159)
    assert listed(state) == {"a": True, "b": False}
    assert listed(next_list(state, [A], {}, 160)) == {"a": True}


def test_a_held_device_stays_until_a_minute_after_it_is_free() -> None:
    state = next_list(DeviceList(), [A, B], {"b": None}, 0)
    for now in (100, 10_000):
        state = next_list(state, [A], {"b": None}, now)
        assert listed(state) == {"a": True, "b": False}
    state = next_list(state, [A], {}, 10_059)
    assert listed(state) == {"a": True, "b": False}
    assert listed(next_list(state, [A], {}, 10_060)) == {"a": True}


def test_a_held_device_that_this_process_never_offered_is_listed() -> None:
    """It went while no plugin ran."""
    state = next_list(DeviceList(), [A], {"b": 1}, 0)
    assert listed(state) == {"a": True, "b": False}
    assert state.devices[1].numa_node == 1


def test_a_device_that_comes_back_is_as_it_is_offered() -> None:
    state = next_list(next_list(DeviceList(), [A, B], {}, 0), [A], {}, 10)
    state = next_list(state, [A, B], {}, 20)
    assert state == DeviceList(devices=(A, B))


@pytest.mark.parametrize("seed", range(200))
def test_no_held_device_is_ever_missing_and_none_is_there_for_ever(seed: int) -> None:
    chance = Random(seed)  # noqa: S311  # it has to repeat
    devices = [ListedDevice(id=id_) for id_ in "abcd"]
    state, needed = DeviceList(), dict[str, int]()
    for now in range(0, 600, 7):
        offered = [device for device in devices if chance.random() < 0.6]
        held = {device.id: None for device in devices if chance.random() < 0.3}
        before = set(listed(state))
        state = next_list(state, offered, held, now)
        shown = listed(state)
        assert len(shown) == len(state.devices)
        assert held.keys() <= shown.keys()
        assert {id_ for id_, healthy in shown.items() if healthy} == {it.id for it in offered}
        for id_ in before - shown.keys():
            assert now - needed[id_] >= 60 - 7
        needed |= dict.fromkeys({*held, *(it.id for it in offered)}, now)
