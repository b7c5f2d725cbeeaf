# SPDX-License-Identifier: Apache-2.0
"""From the agent's file to what a kubelet is told, and what it gets when it asks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from api.device_exchange import FILE_NAME, DeviceExchange, written
from api.mig_resources import MigStrategy
from base.errors import BadInput
from devices import device_plugin_door, devices_program, plugin_resource
from devices.device_plugin_door import DevicePluginDoor
from devices.device_settings import DeviceSettings, NumaHints
from devices.linked_sets import LinkedSets
from tests.devices.exchanges import BOOT, exchange, gpu, mig, uuid
from tests.kubelet.played_registration import PlayedKubelet

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"
PAIRS = "100001"
"""NVLinks of four GPUs: 0 with 1, and 2 with 3."""


class Scene:
    """A played kubelet and the door, with a clock that the test sets."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.now = 0.0
        self.plugins = folder / "plugins"
        self.plugins.mkdir()
        (folder / "exchange").mkdir(mode=0o700)
        self.file = folder / "exchange" / FILE_NAME
        self.kubelet = PlayedKubelet(self.plugins)
        self.door = DevicePluginDoor(
            DeviceSettings(
                exchange_folder=self.file.parent,
                plugin_folder=self.plugins,
                host_root=folder,
                **settings,
            ),
            BOOT,
            lambda: self.now,
            owner=os.geteuid(),
        )

    def writes(self, content: DeviceExchange | bytes) -> None:
        """The agent writes its file anew."""
        new = self.file.with_suffix(".new")
        new.write_bytes(content if isinstance(content, bytes) else written(content))
        new.rename(self.file)

    def holds(self, resource: str, *ids: str, numa: str = "0") -> None:
        """A pod holds these, as the kubelet's checkpoint has it."""
        entry = {"PodUID": "u", "ResourceName": resource, "DeviceIDs": {numa: ids}}
        content = {"Data": {"PodDeviceEntries": [entry], "RegisteredDevices": {}}, "Checksum": 1}
        (self.plugins / "kubelet_internal_checkpoint").write_text(json.dumps(content))

    async def lists(self, resource: str, expected: dict[str, bool]) -> None:
        """Wait for this list; pytest ends a test that waits for ever."""
        while self.kubelet.current(resource) != expected:
            await asyncio.sleep(0.01)


def play(scene: Scene, steps: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        await scene.kubelet.start()
        task = asyncio.create_task(scene.door.run())
        try:
            await steps(scene)
            assert not task.done()
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await scene.kubelet.stop()

    asyncio.run(run())


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_plugin_door, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(plugin_resource, "ANSWER_SECONDS", 60.0)  # the machine may be busy


def four(**more: Any) -> DeviceExchange:
    return exchange(*map(gpu, range(4)), nv=PAIRS, **more)


def healthy(*places: int, of: int = 4) -> dict[str, bool]:
    return {uuid(place): place in places for place in range(of)}


def test_gpus_are_listed_chosen_by_their_links_and_given(short_path: Path) -> None:
    async def steps(scene: Scene) -> None:
        scene.writes(four())
        await scene.lists(GPU, healthy(0, 1, 2, 3))
        assert scene.kubelet.numa == {uuid(place): place // 2 for place in range(4)}
        ids = [uuid(3), uuid(1), uuid(2)]
        assert await scene.kubelet.prefer(GPU, ids, 2) == [uuid(2), uuid(3)]
        assert await scene.kubelet.prefer(GPU, ids, 1) == [uuid(1)]
        assert await scene.kubelet.prefer(GPU, ids, 2, [uuid(1)]) == [uuid(1), uuid(2)]
        access = await scene.kubelet.allocate(GPU, [uuid(3), uuid(2)])
        assert dict(access.envs) == {"NVIDIA_VISIBLE_DEVICES": f"{uuid(3)},{uuid(2)}"}

    play(Scene(short_path), steps)


def test_senseless_questions_are_answered_counted_and_logged_once(
    short_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def steps(scene: Scene) -> None:
        scene.writes(four())
        await scene.lists(GPU, healthy(0, 1, 2, 3))
        many = [f"GPU-{number}" for number in range(10_000)]
        for _ in range(2):
            assert len(await scene.kubelet.prefer(GPU, many, 9_999)) == 9_999
        assert await scene.kubelet.prefer(GPU, [], 1) == []
        assert await scene.kubelet.prefer(GPU, [uuid(0)], 1, [uuid(2)]) == [uuid(2)]
        access = await scene.kubelet.allocate(GPU, ["nonsense"])
        assert dict(access.envs) == {"NVIDIA_VISIBLE_DEVICES": "void"}
        assert scene.door.resources[GPU].fallbacks == {
            "unknown-ids": 3,
            "too-few": 1,
            "required-not-available": 1,
        }

    with caplog.at_level(logging.WARNING):
        play(Scene(short_path), steps)
    assert caplog.messages.count("devices chosen without their links") == 3


def test_a_choice_that_raises_or_sleeps_is_the_lowest_devices(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps(scene: Scene) -> None:
        scene.writes(four())
        await scene.lists(GPU, healthy(0, 1, 2, 3))
        resource, free = scene.door.resources[GPU], [uuid(3), uuid(2), uuid(1)]
        waits = asyncio.Event()
        loop = asyncio.get_running_loop()

        def sleeping(_available: int, _size: int, _required: int) -> int:
            asyncio.run_coroutine_threadsafe(waits.wait(), loop).result()
            return 0

        def raising(_available: int, _size: int, _required: int) -> int:
            raise RuntimeError("a defect")

        for linked_set, why in ((raising, "defect"), (sleeping, "late")):
            monkeypatch.setattr(LinkedSets, "best", lambda *_: None)
            scene.door._sets.best = linked_set  # type: ignore[method-assign, union-attr]
            scene.door.poll()
            monkeypatch.setattr(plugin_resource, "ANSWER_SECONDS", 0.1 if why == "late" else 60.0)
            assert await scene.kubelet.prefer(GPU, free, 2) == [uuid(1), uuid(2)]
            assert resource.fallbacks[why] == 1
        waits.set()

    play(Scene(short_path), steps)


def test_numa_nodes_may_be_off(short_path: Path) -> None:
    async def steps(scene: Scene) -> None:
        scene.writes(four())
        await scene.lists(GPU, healthy(0, 1, 2, 3))
        assert scene.kubelet.numa == {}

    play(Scene(short_path, numa=NumaHints.OFF), steps)


def test_a_sick_gpu_is_unhealthy_at_once_and_healthy_a_minute_after_its_cause(
    short_path: Path,
) -> None:
    async def steps(scene: Scene) -> None:
        scene.writes(exchange(gpu(0), gpu(1, None, ("unhealthy", "xid-79"))))
        await scene.lists(GPU, healthy(0, of=2))
        scene.writes(exchange(gpu(0), gpu(1), reading=2))
        await asyncio.sleep(0.1)
        scene.now = 59.0
        await asyncio.sleep(0.1)
        assert scene.kubelet.lists[GPU] == [healthy(0, of=2)]
        scene.now = 60.0
        await scene.lists(GPU, healthy(0, 1, of=2))

    play(Scene(short_path), steps)


def test_mig_devices_come_and_go_as_resources_without_a_new_registration(short_path: Path) -> None:
    async def steps(scene: Scene) -> None:
        scene.writes(exchange(gpu(0), gpu(1)))
        await scene.lists(GPU, healthy(0, 1, of=2))
        small = {uuid(11, "MIG"): True, uuid(12, "MIG"): True}
        scene.writes(exchange(gpu(0), gpu(1, [mig(1, 1), mig(1, 2)]), reading=2))
        await scene.lists(MIG, small)
        await scene.lists(GPU, healthy(0, of=2))
        scene.now = 60.0
        await scene.lists(GPU, {uuid(0): True})
        scene.holds(MIG, uuid(12, "MIG"))
        scene.writes(exchange(gpu(0), gpu(1, []), reading=3))
        await scene.lists(MIG, dict.fromkeys(small, False))
        scene.now = 1000.0
        await scene.lists(MIG, {uuid(12, "MIG"): False})
        scene.holds(MIG)
        await asyncio.sleep(0.1)
        scene.now = 1060.0
        await scene.lists(MIG, {})
        assert [len(names) for names in scene.kubelet.endpoints.values()] == [1, 1]

    play(Scene(short_path, mig_strategy=MigStrategy.MIXED), steps)


def test_nothing_is_registered_before_the_agent_has_written_for_this_boot(short_path: Path) -> None:
    async def steps(scene: Scene) -> None:
        await asyncio.sleep(0.1)
        scene.writes(four(boot_id=BOOT.replace("4", "5", 1)))
        await asyncio.sleep(0.1)
        assert not scene.door.registrations
        scene.writes(four())
        await scene.lists(GPU, healthy(0, 1, 2, 3))

    play(Scene(short_path), steps)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"v":2}', b"x" * 2_000_000])
def test_with_a_damaged_file_or_none_the_last_list_stays(short_path: Path, content: bytes) -> None:
    async def steps(scene: Scene) -> None:
        scene.writes(four())
        await scene.lists(GPU, healthy(0, 1, 2, 3))
        scene.writes(content)
        await asyncio.sleep(0.1)
        scene.file.unlink()
        await asyncio.sleep(0.1)
        assert scene.kubelet.lists[GPU] == [healthy(0, 1, 2, 3)]

    play(Scene(short_path), steps)


def test_a_damaged_checkpoint_changes_nothing(short_path: Path) -> None:
    async def steps(scene: Scene) -> None:
        (scene.plugins / "kubelet_internal_checkpoint").write_text("{")
        scene.writes(four())
        await scene.lists(GPU, healthy(0, 1, 2, 3))

    play(Scene(short_path), steps)


def test_while_the_checkpoint_cannot_be_read_no_device_leaves_the_list(short_path: Path) -> None:
    """Each may be held."""

    async def steps(scene: Scene) -> None:
        scene.writes(exchange(gpu(0), gpu(1)))
        await scene.lists(GPU, healthy(0, 1, of=2))
        (scene.plugins / "kubelet_internal_checkpoint").write_text("{")
        scene.writes(exchange(gpu(0), reading=2))
        await scene.lists(GPU, healthy(0, of=2))
        for scene.now in (1_000.0, 2_000.0):
            scene.door.poll()
            assert len(scene.door.resources[GPU].devices) == 2
        scene.holds(GPU)
        scene.door.poll()
        scene.now = 2_060.0
        await scene.lists(GPU, healthy(0, of=1))

    play(Scene(short_path), steps)


@pytest.mark.parametrize(
    ("numa", "node", "listed"),
    [(NumaHints.GPU, "1", 1), (NumaHints.GPU, "-1", None), (NumaHints.OFF, "1", None)],
)
def test_a_held_gpu_that_went_before_the_program_began_keeps_its_numa_node(
    short_path: Path, numa: NumaHints, node: str, listed: int | None
) -> None:
    """Without it, a kubelet with a NUMA policy ends the pod when it starts again."""

    async def steps(scene: Scene) -> None:
        scene.holds(GPU, uuid(1), numa=node)
        scene.writes(exchange(gpu(0)))
        await scene.lists(GPU, healthy(0, of=2))
        assert scene.kubelet.numa.get(uuid(1)) == listed

    play(Scene(short_path, numa=numa), steps)


def test_held_devices_of_a_profile_that_is_gone_are_listed(short_path: Path) -> None:
    """And those of other resources are not ours."""

    async def steps(scene: Scene) -> None:
        scene.holds(MIG, uuid(11, "MIG"))
        scene.writes(exchange(gpu(0)))
        await scene.lists(MIG, {uuid(11, "MIG"): False})
        scene.holds("amd.com/gpu", "a")
        scene.door.poll()
        scene.now = 60.0
        await scene.lists(MIG, {})
        assert set(scene.kubelet.lists) == {GPU, MIG}

    play(Scene(short_path, mig_strategy=MigStrategy.MIXED), steps)


@pytest.mark.parametrize("root", ["/", "/run/nvidia/driver"])
def test_control_nodes_that_the_driver_makes_later_are_given(short_path: Path, root: str) -> None:
    async def steps(scene: Scene) -> None:
        scene.writes(exchange(gpu(0)))
        await scene.lists(GPU, healthy(0, of=1))
        dev = short_path / root[1:] / "dev"
        dev.mkdir(parents=True)
        (dev / "nvidiactl").touch()
        scene.door.poll()
        access = await scene.kubelet.allocate(GPU, [uuid(0)])
        paths = [device.host_path for device in access.devices]
        assert paths == [f"{root.rstrip('/')}/dev/{name}" for name in ("nvidiactl", "nvidia7")]

    play(Scene(short_path, pass_device_specs=True, dev_root=root), steps)


def test_a_defect_of_one_poll_ends_nothing(
    short_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def steps(scene: Scene) -> None:
        scene.writes(four())
        await scene.lists(GPU, healthy(0, 1, 2, 3))
        with monkeypatch.context() as broken:
            broken.setattr(device_plugin_door, "offered_devices", lambda *_: 1 // 0)
            while "internal error" not in caplog.messages:
                await asyncio.sleep(0.01)
        scene.writes(exchange(gpu(0), gpu(1, None, ("unhealthy", "xid-79")), reading=2))
        await scene.lists(GPU, {**healthy(0, of=2), uuid(2): False, uuid(3): False})

    play(Scene(short_path), steps)


def test_without_a_readable_boot_id_the_program_does_not_begin(short_path: Path) -> None:
    with pytest.raises(BadInput, match="host-root"):
        devices_program.run(DeviceSettings(host_root=short_path, plugin_folder=short_path))


def test_a_gpu_that_is_not_read_stays_what_it_was(short_path: Path) -> None:
    """A divided one is no whole GPU, though nobody says for now that it is divided."""

    async def steps(scene: Scene) -> None:
        small = uuid(11, "MIG")
        whole, divided, later = gpu(0), gpu(1, [mig(1, 1)]), gpu(2)
        scene.writes(exchange(whole, divided))
        await scene.lists(GPU, healthy(0, of=1))
        await scene.lists(MIG, {small: True})
        unread = [replace(gpu(place), mig_enabled=None) for place in range(3)]
        scene.writes(exchange(*unread, reading=2))
        await scene.lists(MIG, {small: False})
        scene.now = 100.0
        await scene.lists(MIG, {})
        assert scene.kubelet.lists[GPU] == [healthy(0, of=1)]
        scene.writes(exchange(whole, divided, later, reading=3))
        await scene.lists(MIG, {small: True})
        await scene.lists(GPU, {uuid(0): True, uuid(2): True})

    play(Scene(short_path, mig_strategy=MigStrategy.MIXED), steps)
