# SPDX-License-Identifier: Apache-2.0
"""A resource stays registered through all that a kubelet does to its plugins."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from base.backoff import Backoff
from kubelet.device_plugin import registration
from kubelet.device_plugin.plugin_model import ContainerAccess, HostDevice, HostMount, ListedDevice
from kubelet.device_plugin.plugin_sockets import (
    fresh_name,
    name_pattern,
    remove_leftovers,
    rival_socket,
)
from kubelet.device_plugin.registration import Registration, RegistrationState, is_set_within
from kubelet.device_plugin.resource_server import CannotServe, ResourceServer
from tests.kubelet.played_registration import PlayedKubelet

GPU = "nvidia.com/gpu"
ONE, TWO = ListedDevice(id="GPU-1", numa_node=1), ListedDevice(id="GPU-2", healthy=False)


class Answers:
    """A plugin that prefers the first devices and gives all kinds of access."""

    async def preferred(
        self, available: Sequence[str], required: Sequence[str], size: int
    ) -> Sequence[str]:
        return [*required, *available][:size]

    def access(self, ids: Sequence[str]) -> ContainerAccess:
        return ContainerAccess(
            environment={"NVIDIA_VISIBLE_DEVICES": ",".join(ids)},
            mounts=(HostMount(container_path="/a", host_path="/b"),),
            devices=(HostDevice(container_path="/dev/nvidia0", host_path="/dev/nvidia0"),),
            annotations={"key": "value"},
            cdi=("nvidia.com/gpu=0",),
        )


async def until(holds: Callable[[], object]) -> None:
    """Wait for it; pytest ends a test that waits for ever."""
    while not holds():
        await asyncio.sleep(0.01)


async def ended(task: asyncio.Task[None]) -> None:
    """End a registration, as a signal does."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def quick_backoff() -> Backoff:
    return Backoff(first_seconds=0.02, longest_seconds=0.1)


@contextlib.asynccontextmanager
async def scene(folder: Path) -> AsyncIterator[tuple[PlayedKubelet, Registration]]:
    kubelet = PlayedKubelet(folder)
    await kubelet.start()
    resource = Registration(folder, GPU, Answers(), quick_backoff())
    resource.publish([ONE, TWO])
    task = asyncio.create_task(resource.run())
    try:
        yield kubelet, resource
    finally:
        await ended(task)
        await kubelet.stop()


def in_scene(
    folder: Path, steps: Callable[[PlayedKubelet, Registration], Coroutine[Any, Any, None]]
) -> None:
    async def play() -> None:
        async with scene(folder) as (kubelet, resource):
            await steps(kubelet, resource)

    asyncio.run(play())


def test_devices_are_listed_with_health_and_numa_node(short_path: Path) -> None:
    async def steps(kubelet: PlayedKubelet, resource: Registration) -> None:
        await until(lambda: kubelet.current(GPU))
        assert kubelet.current(GPU) == {"GPU-1": True, "GPU-2": False}
        assert kubelet.numa == {"GPU-1": 1}
        await until(lambda: resource.state is RegistrationState.REGISTERED)

    in_scene(short_path, steps)


def test_a_list_is_sent_when_it_changes_and_not_else(short_path: Path) -> None:
    async def steps(kubelet: PlayedKubelet, resource: Registration) -> None:
        await until(lambda: kubelet.current(GPU))
        for devices in ([ONE, TWO], [ONE, TWO], [ONE], []):
            resource.publish(devices)
            await asyncio.sleep(0.05)
        await until(lambda: kubelet.current(GPU) == {})
        assert kubelet.lists[GPU] == [{"GPU-1": True, "GPU-2": False}, {"GPU-1": True}, {}]
        assert resource.registrations == 1, "an empty list withdraws, and the stream stays"

    in_scene(short_path, steps)


def test_what_the_kubelet_asks_is_answered(short_path: Path) -> None:
    async def steps(kubelet: PlayedKubelet, _resource: Registration) -> None:
        await until(lambda: kubelet.current(GPU))
        assert await kubelet.prefer(GPU, ["a", "b"], 2, ["c"]) == ["c", "a"]
        access = await kubelet.allocate(GPU, ["a", "b"])
        assert dict(access.envs) == {"NVIDIA_VISIBLE_DEVICES": "a,b"}
        assert [(m.container_path, m.host_path, m.read_only) for m in access.mounts] == [
            ("/a", "/b", True)
        ]
        assert [(d.host_path, d.permissions) for d in access.devices] == [("/dev/nvidia0", "rw")]
        assert dict(access.annotations) == {"key": "value"}
        assert [cdi.name for cdi in access.cdi_devices] == ["nvidia.com/gpu=0"]

    in_scene(short_path, steps)


def test_each_registration_has_a_socket_of_its_own_and_leaves_none(short_path: Path) -> None:
    async def steps(kubelet: PlayedKubelet, resource: Registration) -> None:
        for count in range(1, 4):
            await until(lambda count=count: len(kubelet.lists.get(GPU, ())) == count)  # type: ignore[misc]
            await kubelet.drop(kubelet.endpoints[GPU][-1])
        await until(lambda: resource.registrations == 4)
        assert len(set(kubelet.endpoints[GPU])) == 4
        ours = {path.name for path in short_path.glob("gpuscape-*")}
        assert ours == {kubelet.endpoints[GPU][-1]}

    in_scene(short_path, steps)
    assert not list(short_path.glob("gpuscape-*"))


def test_a_kubelet_that_starts_again_gets_the_list_again(short_path: Path) -> None:
    async def steps(kubelet: PlayedKubelet, resource: Registration) -> None:
        for _ in range(5):
            count = resource.registrations
            await until(lambda count=count: resource.registrations > count)  # type: ignore[misc]
            await kubelet.stop()
            kubelet.lists.clear()
            await asyncio.sleep(0.02)
            await kubelet.start()
        await until(lambda: kubelet.current(GPU) == {"GPU-1": True, "GPU-2": False})

    in_scene(short_path, steps)


def test_a_new_socket_of_the_kubelet_is_noticed_without_a_word_on_the_stream(
    short_path: Path,
) -> None:
    """The old kubelet is stopped by a debugger, say: its stream never ends."""

    async def steps(_old: PlayedKubelet, resource: Registration) -> None:
        await until(lambda: resource.registrations == 1)
        (short_path / "kubelet.sock").unlink()
        new = PlayedKubelet(short_path)
        await new.start()
        await until(lambda: new.current(GPU) and resource.registrations == 2)
        await new.stop()

    in_scene(short_path, steps)


def test_a_removed_socket_file_is_noticed(short_path: Path) -> None:
    async def steps(kubelet: PlayedKubelet, resource: Registration) -> None:
        await until(lambda: resource.registrations == 1)
        (short_path / kubelet.endpoints[GPU][0]).unlink()
        await until(lambda: resource.registrations == 2)

    in_scene(short_path, steps)


def test_a_refusal_is_tried_again(short_path: Path) -> None:
    async def steps(kubelet: PlayedKubelet, resource: Registration) -> None:
        await until(lambda: resource.registrations == 1)
        kubelet.refuse = "not now"
        await kubelet.drop(kubelet.endpoints[GPU][-1])
        await asyncio.sleep(0.2)
        assert resource.state is RegistrationState.UNREGISTERED
        assert not list(short_path.glob("gpuscape-*")) or resource.registrations == 1
        kubelet.refuse = ""
        await until(lambda: resource.registrations == 2)

    in_scene(short_path, steps)


def test_a_kubelet_that_hangs_is_tried_again(short_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(registration, "REGISTER_SECONDS", 0.1)

    async def steps(kubelet: PlayedKubelet, resource: Registration) -> None:
        await until(lambda: resource.registrations == 1)
        kubelet.hang = True
        await kubelet.drop(kubelet.endpoints[GPU][-1])
        await asyncio.sleep(0.3)
        kubelet.hang = False
        await until(lambda: resource.registrations == 2)

    in_scene(short_path, steps)


def test_beside_a_plugin_that_answers_nothing_is_registered(short_path: Path) -> None:
    """NVIDIA's plugin has this name for its socket; when it is gone the resource is ours."""

    async def steps(kubelet: PlayedKubelet, resource: Registration) -> None:
        await until(lambda: resource.registrations == 1)
        with socket.socket(socket.AF_UNIX) as rival:
            rival.bind(str(short_path / "nvidia-gpu.sock"))
            rival.listen(64)
            await kubelet.drop(kubelet.endpoints[GPU][-1])
            await until(lambda: resource.state is RegistrationState.RIVAL)
            assert resource.registrations == 1
        await until(lambda: resource.registrations == 2)

    in_scene(short_path, steps)


def test_beside_another_process_of_ours_nothing_is_registered(short_path: Path) -> None:
    """Two pods of the program on one node: the kubelet would ask the last one alone."""

    async def steps(_kubelet: PlayedKubelet, resource: Registration) -> None:
        await until(lambda: resource.registrations == 1)
        second = Registration(short_path, GPU, Answers(), quick_backoff())
        other = Registration(short_path, "nvidia.com/mig-1g.5gb", Answers(), quick_backoff())
        for each in (second, other):
            each.publish([TWO])
        tasks = [asyncio.create_task(each.run()) for each in (second, other)]
        await until(lambda: second.state is RegistrationState.RIVAL and other.registrations)
        assert (resource.registrations, second.registrations) == (1, 0)
        for task in tasks:
            await ended(task)
        assert resource.state is RegistrationState.REGISTERED

    in_scene(short_path, steps)


def test_of_two_processes_that_start_at_once_one_registers(short_path: Path) -> None:
    async def play() -> None:
        kubelet = PlayedKubelet(short_path)
        await kubelet.start()
        both = [Registration(short_path, GPU, Answers(), quick_backoff()) for _ in range(2)]
        tasks = [asyncio.create_task(each.run()) for each in both]
        await until(lambda: any(each.registrations for each in both))
        await asyncio.sleep(0.3)
        assert sorted(each.registrations for each in both) == [0, 1]
        assert len(kubelet.endpoints[GPU]) == 1
        for task in tasks:
            await ended(task)
        await kubelet.stop()

    asyncio.run(play())


def test_a_plugin_that_accepts_nothing_now_is_there_all_the_same(short_path: Path) -> None:
    """Its queue is full, as of one that hangs: it is neither passed over nor removed."""
    with contextlib.ExitStack() as open_sockets:
        for name in ("nvidia-gpu.sock", "gpuscape-gpu-00000000.sock"):
            full = open_sockets.enter_context(socket.socket(socket.AF_UNIX))
            full.bind(str(short_path / name))
            full.listen(0)
            caller = open_sockets.enter_context(socket.socket(socket.AF_UNIX))
            caller.connect(str(short_path / name))
        remove_leftovers(short_path)
        assert len(list(short_path.iterdir())) == 2
        assert rival_socket(short_path, GPU) == short_path / "nvidia-gpu.sock"
        (short_path / "nvidia-gpu.sock").unlink()
        assert rival_socket(short_path, GPU) == short_path / "gpuscape-gpu-00000000.sock"


def test_a_failure_that_lasts_is_logged_once(
    short_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Though the kubelet names the socket, which is another one each time."""

    async def steps(kubelet: PlayedKubelet, resource: Registration) -> None:
        await until(lambda: resource.registrations == 1)
        kubelet.refuse_naming = "failed to dial device plugin with socketPath {}"
        await kubelet.drop(kubelet.endpoints[GPU][-1])
        await until(lambda: kubelet.refused >= 5)

    with caplog.at_level(logging.WARNING):
        in_scene(short_path, steps)
    (warning,) = (r for r in caplog.records if r.message == "device plugin not registered")
    assert f"{short_path}/gpuscape-gpu-*.sock" in warning.__dict__["why"]


def test_a_folder_that_takes_no_socket_is_logged_once(
    short_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a full one, or one that can only be read."""
    tries = []

    async def no_room(_server: ResourceServer, path: Path) -> None:
        tries.append(path)
        raise CannotServe(f"{path}: No space left on device")

    monkeypatch.setattr(ResourceServer, "start", no_room)

    async def steps(_kubelet: PlayedKubelet, resource: Registration) -> None:
        await until(lambda: len(tries) >= 5)
        assert resource.state is RegistrationState.UNREGISTERED

    with caplog.at_level(logging.WARNING):
        in_scene(short_path, steps)
    assert caplog.messages.count("device plugin not registered") == 1


def test_a_kubelet_that_drops_each_stream_at_once_is_not_called_without_pause(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps(kubelet: PlayedKubelet, resource: Registration) -> None:
        waits = []
        failed = Backoff.failed

        def noted(backoff: Backoff, asked_seconds: float | None = None) -> float:
            waits.append(failed(backoff, asked_seconds))
            return waits[-1]

        monkeypatch.setattr(Backoff, "failed", noted)
        for number in range(1, 5):
            await until(lambda number=number: resource.registrations == number)  # type: ignore[misc]
            await kubelet.drop(kubelet.endpoints[GPU][-1])
        await until(lambda: resource.registrations == 5)
        assert len(waits) == 4

    in_scene(short_path, steps)


def test_a_kubelet_that_comes_back_after_long_is_not_waited_past(short_path: Path) -> None:
    async def play() -> None:
        backoff = Backoff(first_seconds=3600.0, longest_seconds=3600.0, uniform=None)
        resource = Registration(short_path, GPU, Answers(), backoff)
        task = asyncio.create_task(resource.run())
        await asyncio.sleep(0.05)
        kubelet = PlayedKubelet(short_path)
        await kubelet.start()
        await until(lambda: resource.registrations == 1)
        await ended(task)
        await kubelet.stop()

    asyncio.run(play())


def test_a_defect_does_not_end_the_registration(
    short_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def steps(kubelet: PlayedKubelet, resource: Registration) -> None:
        await until(lambda: resource.registrations == 1)
        with monkeypatch.context() as broken:
            broken.setattr(registration, "fresh_name", lambda _resource: 1 // 0)
            await kubelet.drop(kubelet.endpoints[GPU][-1])
            await until(lambda: "internal error" in caplog.messages)
        await until(lambda: resource.registrations == 2)

    in_scene(short_path, steps)


def test_the_end_while_a_registration_hangs_leaves_no_socket(short_path: Path) -> None:
    async def steps(kubelet: PlayedKubelet, resource: Registration) -> None:
        await until(lambda: resource.registrations == 1)
        kubelet.hang = True
        await kubelet.drop(kubelet.endpoints[GPU][-1])
        first = kubelet.endpoints[GPU][-1]
        await until(lambda: {p.name for p in short_path.glob("gpuscape-*")} - {first})

    in_scene(short_path, steps)
    assert not list(short_path.glob("gpuscape-*"))


def test_names_that_are_cut_stay_apart() -> None:
    long = "nvidia.com/mig-1g.9999gb.aaaaaaaaaaaa.b"
    assert name_pattern(long) != name_pattern(f"{long}b")


def test_a_plugin_that_comes_later_is_reported_and_the_stream_stays(
    short_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The end of our stream would disconnect the other plugin too (up to Kubernetes 1.36)."""

    async def steps(_kubelet: PlayedKubelet, resource: Registration) -> None:
        await until(lambda: resource.state is RegistrationState.REGISTERED)
        with socket.socket(socket.AF_UNIX) as rival:
            rival.bind(str(short_path / "nvidia-gpu.sock"))
            rival.listen(64)
            await until(lambda: resource.state is RegistrationState.RIVAL)
            resource.publish([ONE])
            await until(lambda: _kubelet.current(GPU) == {"GPU-1": True})
        await until(lambda: resource.state is RegistrationState.REGISTERED)
        assert resource.registrations == 1

    with caplog.at_level(logging.WARNING):
        in_scene(short_path, steps)
    assert caplog.messages == ["another device plugin started"]


def test_a_list_that_changes_while_the_server_starts_is_sent(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, waiting = ResourceServer.start, asyncio.Event()

    async def late(server: ResourceServer, path: Path) -> None:
        await waiting.wait()
        await start(server, path)

    monkeypatch.setattr(ResourceServer, "start", late)

    async def steps(kubelet: PlayedKubelet, resource: Registration) -> None:
        await asyncio.sleep(0.02)
        resource.publish([ONE])
        waiting.set()
        await until(lambda: kubelet.current(GPU))
        assert kubelet.current(GPU) == {"GPU-1": True}

    in_scene(short_path, steps)


def test_leftovers_of_a_killed_process_are_removed_and_nothing_else(short_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other, socket.socket(socket.AF_UNIX) as dead:
        other.bind(str(short_path / "gpuscape-alive.sock"))
        other.listen()
        dead.bind(str(short_path / "gpuscape-dead.sock"))
        (short_path / "nvidia-gpu.sock").touch()
        dead.close()
        remove_leftovers(short_path)
        assert {path.name for path in short_path.iterdir()} == {
            "gpuscape-alive.sock",
            "nvidia-gpu.sock",
        }


def test_the_longest_path_fits_a_socket_s_address() -> None:
    name = fresh_name("nvidia.com/mig-1g.10gb.me.some.very.long.name.that.goes.on")
    assert len(f"/var/lib/kubelet/device-plugins/{name}") < 108
    assert name != fresh_name("nvidia.com/mig-1g.10gb.me.some.very.long.name.that.goes.on")


@pytest.mark.parametrize("steps", range(6))
def test_a_cancellation_that_comes_with_the_event_is_not_lost(steps: int) -> None:
    """Else the program goes on after its signal to end."""

    async def cancelled() -> bool:
        event = asyncio.Event()
        task = asyncio.create_task(is_set_within(event, 60.0))
        await asyncio.sleep(0.01)
        event.set()
        for _ in range(steps):
            await asyncio.sleep(0)
        was_running = task.cancel()
        await asyncio.wait([task])
        return task.cancelled() is was_running

    assert asyncio.run(cancelled())


def test_a_cancellation_that_the_servers_end_loses_ends_the_registration(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """grpc.aio waits by ``asyncio.wait_for``, which in Python 3.11 may lose it."""
    real, is_stopping = ResourceServer.stop, asyncio.Event()

    async def stop(self: ResourceServer) -> None:
        await real(self)
        is_stopping.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)

    monkeypatch.setattr(ResourceServer, "stop", stop)

    async def steps(kubelet: PlayedKubelet, resource: Registration) -> None:
        await until(lambda: resource.registrations == 1)
        await kubelet.drop(kubelet.endpoints[GPU][-1])
        await is_stopping.wait()

    in_scene(short_path, steps)
