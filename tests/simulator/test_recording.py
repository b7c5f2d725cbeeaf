# SPDX-License-Identifier: Apache-2.0
"""A recorded machine answers as it did, also under other names, and cannot leave its directory."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from ctypes import byref, c_uint
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pynvml as nv
import pytest

from base.errors import BadInput
from discovery.driver_errors import GpuLost
from discovery.host.pci import pci_gpus
from discovery.model import GpuSnapshot, NodeSnapshot, nvidia_gpus
from discovery.node_host import NodeHost
from discovery.nvml.facts import read_driver, read_gpu
from discovery.nvml.history import History
from discovery.nvml.samples import read_sample
from discovery.nvml.session import close_session, open_gpu, open_session
from discovery.sample import GpuSample, ReadingGroup
from simulator import recording
from simulator.description.machine_catalog import load_machine
from simulator.description.machine_schema import (
    FabricSpec,
    Gpu,
    MigInstanceSpec,
    SimulatedNic,
)
from simulator.recording import HostFiles, Recording
from simulator.simulation import Return, Simulation
from tests import build, machines
from tests.catalog import WITH_DRIVER, by_kind
from tests.discovery.sampling import small

FIRST, SECOND = machines.gpu(0), machines.gpu(1)
PROCESSES = "nvmlDeviceGetComputeRunningProcesses_v3"
NEAREST = "nvmlDeviceGetTopologyNearestGpus"


class Seen:
    """What a run of our own readers saw of a node."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.node: NodeSnapshot | None = None
        self.samples: list[GpuSample] = []

    def read(self) -> None:
        """Everything that the agent reads, but one sample more, since some readings span two."""
        open_session()
        history, clock = History(), itertools.count()
        driver = read_driver()
        listed = pci_gpus(self._root).ours or machines.bus_ids_by_index()
        handles = {bus_id: open_gpu(bus_id)[0] for bus_id in listed}
        gpus: list[GpuSnapshot] = []
        self.samples = []
        for bus_id, handle in handles.items():
            peers = {other: one for other, one in handles.items() if other != bus_id}
            gpus.append(read_gpu(bus_id, handle, peers))
            samples = [
                read_sample(
                    bus_id,
                    handle,
                    lambda: float(next(clock)),
                    tuple(ReadingGroup),
                    history,
                    peers=peers.items(),
                )
                for _ in range(2)
            ]
            self.samples.append(samples[-1])
        history.close()
        self.node = NodeHost(root=self._root, name="node-a").snapshot(driver, tuple(gpus))
        close_session()


def recorded(simulation: Simulation) -> tuple[Recording, Seen]:
    seen = Seen(simulation.host_root)
    with simulation:
        return recording.capture(seen.read, simulation.host_root), seen


def replayed(taken: Recording, directory: Path) -> Seen:
    """What the same readers see of the recording, after it went through a file."""
    recording.save_recording(taken, directory / "taken.json")
    again = Simulation.replay(
        recording.load_recording(directory / "taken.json"), directory / "replay", name="again"
    )
    seen = Seen(again.host_root)
    with again:
        seen.read()
    return seen


@pytest.mark.parametrize("name", by_kind(WITH_DRIVER))
def test_every_machine_replays_as_it_was_recorded(tmp_path: Path, name: str) -> None:
    """Snapshot, gaps and their reasons, samples, host facts, links: nothing differs."""
    taken, seen = recorded(Simulation.create(name, tmp_path))

    again = replayed(taken, tmp_path)

    assert again.node == seen.node
    assert again.samples == seen.samples


def test_profiling_metrics_replay_by_gpu_and_instance(tmp_path: Path) -> None:
    """Sample buffers are others each time, and taken in another order here."""
    one = MigInstanceSpec(profile="1g.5gb", start=0, id=7)
    split = machines.gpu(1, mig=True, instances=(one,))
    bus_ids = (FIRST.bus_id, split.bus_id)
    with small(tmp_path / "machine", machines.gpu(0), split) as taken:
        taken.simulation.add_process(FIRST.bus_id, 71, percent=50)
        ids = {"gpu_instance_id": 7, "compute_instance_id": 0}
        taken.simulation.add_process(split.bus_id, 72, percent=10, **ids)
        seen: dict[str, GpuSample] = {}

        def read() -> None:
            nv.nvmlInit()
            for bus_id in (*bus_ids, *bus_ids):
                seen[bus_id] = taken.sample(bus_id, (ReadingGroup.PROFILING,))

        recording.save_recording(
            recording.capture(read, tmp_path / "root"), tmp_path / "taken.json"
        )
    again = Simulation.replay(
        recording.load_recording(tmp_path / "taken.json"), tmp_path / "r", name="r"
    )
    history, clock = History(), itertools.count()
    replayed: dict[str, GpuSample] = {}
    with machines.session(again):
        for bus_id in reversed((*bus_ids, *bus_ids)):
            handle, _ = open_gpu(bus_id)
            replayed[bus_id] = read_sample(
                bus_id, handle, lambda: float(next(clock)), (ReadingGroup.PROFILING,), history
            )
        history.close()

    for bus_id, sample in replayed.items():
        assert sample.profiling == seen[bus_id].profiling
        assert sample.mig_profiling == seen[bus_id].mig_profiling
    assert dict(seen[FIRST.bus_id].profiling)[1] == pytest.approx(0.5)
    assert dict(seen[split.bus_id].mig_profiling[0][1])[1] == pytest.approx(0.3)


def test_a_replay_may_be_asked_for_fewer_and_for_more_readings(tmp_path: Path) -> None:
    """Fields come many at once: each is told as it was, in whatever company it is asked."""
    asked = {"none": (), "some": (ReadingGroup.ECC, ReadingGroup.LINKS), "all": tuple(ReadingGroup)}
    seen: dict[str, GpuSample] = {}
    with small(tmp_path / "machine") as taken:

        def read() -> None:
            nv.nvmlInit()
            seen["some"] = taken.sample(FIRST.bus_id, asked["some"])

        tape = recording.capture(read, tmp_path / "root")
    again = Simulation.replay(tape, tmp_path / "again", name="again")
    with machines.session(again):
        handle, _ = open_gpu(FIRST.bus_id)
        now = {
            name: read_sample(FIRST.bus_id, handle, lambda: 0.0, groups)
            for name, groups in asked.items()
        }

    assert seen["some"].ecc_errors is not None
    assert {sample.memory_celsius for sample in now.values()} == {seen["some"].memory_celsius}
    assert (now["none"].ecc_errors, now["all"].ecc_errors) == (None, seen["some"].ecc_errors)
    assert now["all"].links == seen["some"].links
    assert now["all"].held_down is None


def test_errors_are_recorded_too(tmp_path: Path) -> None:
    """A call that failed fails again with its code, and the rest is well."""
    simulation = machines.simulation(tmp_path)
    simulation.fault(Return(code=nv.NVML_ERROR_NO_PERMISSION), "nvmlDeviceGetSerial")
    simulation.fault(Return(code=nv.NVML_ERROR_UNKNOWN), "nvmlDeviceGetName", bus_id=SECOND.bus_id)
    taken, seen = recorded(simulation)

    again = replayed(taken, tmp_path)

    assert again.node == seen.node
    assert again.node is not None
    first, second = again.node.gpus
    assert (first.serial, first.model, second.model) == (None, "NVIDIA Small", None)


def test_an_init_that_fails_fails_again(tmp_path: Path) -> None:
    """And what stopped it is in the file, which is what a bug report needs."""
    simulation = machines.simulation(tmp_path)
    simulation.set_driver("mismatch")
    with simulation:
        taken = recording.capture(lambda: _ignoring(nv.nvmlInit), simulation.host_root)

    with Simulation.replay(taken, tmp_path / "again", name="again"):
        code = machines.code_of(nv.nvmlInit)

    assert code == nv.NVML_ERROR_LIB_RM_VERSION_MISMATCH


def test_no_library_is_recorded_as_none(tmp_path: Path) -> None:
    """A node without a driver can be recorded as well."""
    simulation = machines.simulation(tmp_path, driver=None)
    with simulation:
        taken = recording.capture(lambda: _ignoring(nv.nvmlInit), simulation.host_root)

    with Simulation.replay(taken, tmp_path / "again", name="again"):
        code = machines.code_of(nv.nvmlInit)

    assert (taken.library, code) == (False, nv.NVML_ERROR_LIBRARY_NOT_FOUND)


def test_pynvml_is_as_before_after_a_recording_that_failed(tmp_path: Path) -> None:
    """The session that was open goes on, and the error comes through."""

    def fail() -> None:
        nv.nvmlInit()
        raise GpuLost("on purpose")

    with machines.session(machines.simulation(tmp_path)) as handle:
        before = nv.CDLL, nv.nvmlLib, nv._nvmlLib_refcount
        with pytest.raises(GpuLost):
            recording.capture(fail, tmp_path / "root")

        assert (nv.CDLL, nv.nvmlLib, nv._nvmlLib_refcount) == before
        assert nv.nvmlDeviceGetName(handle(0)) == "NVIDIA Small"


def test_calls_that_ask_the_same_are_one(tmp_path: Path) -> None:
    """The newest answer counts, but the length of a list does not replace the list."""

    def read() -> None:
        nv.nvmlInit()
        gpu = nv.nvmlDeviceGetHandleByIndex(0)
        for celsius in (40, 50):
            simulation.set_readings(FIRST.bus_id, gpu_celsius=celsius)
            nv.nvmlDeviceGetTemperature(gpu, 0)
        nv.nvmlDeviceGetComputeRunningProcesses(gpu)
        nv._nvmlGetFunctionPointer(PROCESSES)(gpu, byref(c_uint(0)), None)
        nv.nvmlDeviceGetTopologyNearestGpus(gpu, nv.NVML_TOPOLOGY_HOSTBRIDGE)
        nv._nvmlGetFunctionPointer(NEAREST)(gpu, nv.NVML_TOPOLOGY_HOSTBRIDGE, byref(c_uint()), None)

    simulation = machines.simulation(tmp_path)
    simulation.add_process(FIRST.bus_id, 71)
    with simulation:
        taken = recording.capture(read, tmp_path / "root")

    calls = {call.entry: call.outputs for call in taken.calls}
    assert len(calls) == len(taken.calls)
    assert calls["nvmlDeviceGetTemperature"] == {"celsius": 50}
    assert [process["pid"] for process in calls[PROCESSES]["processes"]] == [71]
    assert calls[NEAREST] == {"devices": [2]}


@pytest.fixture
def replay(tmp_path: Path) -> Simulation:
    """A recording of two GPUs of which the second was lost, and the first asked for its name."""

    def read() -> None:
        nv.nvmlInit()
        nv.nvmlDeviceGetCount()
        for gpu in (FIRST, SECOND):
            handle = nv.nvmlDeviceGetHandleByPciBusId(gpu.bus_id)
            _ignoring(lambda handle=handle: nv.nvmlDeviceGetName(handle))  # type: ignore[misc]
        nv.nvmlDeviceGetNvLinkState(nv.nvmlDeviceGetHandleByPciBusId(FIRST.bus_id), 0)

    simulation = machines.simulation(tmp_path)
    simulation.fault(
        Return(code=nv.NVML_ERROR_GPU_IS_LOST), "nvmlDeviceGetName", bus_id=SECOND.bus_id
    )
    with simulation:
        taken = recording.capture(read, tmp_path / "root")
    return Simulation.replay(taken, tmp_path / "again", name="again")


def test_what_was_never_asked_is_answered_with_less(replay: Simulation) -> None:
    """An entry point without a call is not there; other inputs are not supported or not found."""
    with replay:
        nv.nvmlInit()
        first, second = (nv.nvmlDeviceGetHandleByPciBusId(gpu.bus_id) for gpu in (FIRST, SECOND))
        codes = [
            machines.code_of(lambda: nv.nvmlDeviceGetName(second)),
            machines.code_of(lambda: nv.nvmlDeviceGetSerial(first)),
            machines.code_of(lambda: nv.nvmlDeviceGetNvLinkState(first, 1)),
            machines.code_of(lambda: nv.nvmlDeviceGetHandleByPciBusId("0000:77:00.0")),
        ]

    assert codes == [
        nv.NVML_ERROR_GPU_IS_LOST,
        nv.NVML_ERROR_FUNCTION_NOT_FOUND,
        nv.NVML_ERROR_NOT_SUPPORTED,
        nv.NVML_ERROR_NOT_FOUND,
    ]


def test_a_bus_id_may_be_spelled_otherwise_in_a_replay(replay: Simulation) -> None:
    """NVML reads all spellings alike."""
    with replay:
        nv.nvmlInit()
        gpu = nv.nvmlDeviceGetHandleByPciBusId("00000000:10:00.0")

        assert nv.nvmlDeviceGetName(gpu) == "NVIDIA Small"


def test_faults_clients_and_events_work_on_a_replay(replay: Simulation) -> None:
    """So that a user's machine can be put through what a simulated one is."""
    with machines.session(replay):
        gpu = nv.nvmlDeviceGetHandleByPciBusId(FIRST.bus_id)
        events = nv.nvmlEventSetCreate()
        nv.nvmlDeviceRegisterEvents(gpu, nv.nvmlEventTypeXidCriticalError, events)
        replay.xid(FIRST.bus_id, 79)
        event = nv.nvmlEventSetWait_v2(events, 0)
        name_of_sender = nv.nvmlDeviceGetName(event.device)
        clients = replay.clients()
        replay.fault(Return(code=nv.NVML_ERROR_RESET_REQUIRED), bus_id=FIRST.bus_id)
        sick = machines.code_of(lambda: nv.nvmlDeviceGetName(gpu))

    assert (event.eventData, name_of_sender, clients) == (79, "NVIDIA Small", 1)
    assert sick == nv.NVML_ERROR_RESET_REQUIRED


def test_a_fault_on_a_replayed_gpu_meets_its_mig_devices(tmp_path: Path) -> None:
    """The recording knows which handle came from which."""

    def read() -> None:
        nv.nvmlInit()
        gpu = nv.nvmlDeviceGetHandleByPciBusId(SECOND.bus_id)
        nv.nvmlDeviceGetName(nv.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0))

    with telling(tmp_path) as simulation:
        taken = recording.capture(read, simulation.host_root)
    again = Simulation.replay(taken, tmp_path / "again", name="again")
    again.fault(Return(code=nv.NVML_ERROR_IN_USE), "nvmlDeviceGetName", bus_id=SECOND.bus_id)

    with again:
        assert machines.code_of(read) == nv.NVML_ERROR_IN_USE


def test_a_recordings_gpus_cannot_be_changed(replay: Simulation) -> None:
    """They are what they were."""
    with pytest.raises(BadInput, match="is a recording"):
        replay.set_readings(FIRST.bus_id, gpu_celsius=1)


# anonymity

CLUSTER = "deadbeef-0000-4000-8000-0123456789ab"
UUID = "GPU-5e2c6a1f-6ad1-4b7c-9c1f-2f6b8a1d3e4f"
SERIAL = "1650522003820"


def telling(directory: Path) -> Simulation:
    """A machine whose identities are known: with a fabric, and one GPU cut by MIG."""
    fabric = FabricSpec(cluster_uuid=CLUSTER, clique_id=5)
    one = MigInstanceSpec(profile="1g.5gb", start=0, id=7)
    return machines.simulation(
        directory,
        machines.gpu(0, uuid=UUID, serial=SERIAL, fabric=fabric),
        machines.gpu(1, fabric=fabric, mig=True, instances=(one,)),
        models={"small": machines.model(fabric=True)},
    )


def test_an_anonymous_recording_differs_in_identities_alone(tmp_path: Path) -> None:
    """UUIDs, serials and clusters are others, of the same form; all else is as it was."""
    taken, seen = recorded(telling(tmp_path))

    again = replayed(recording.anonymise(taken), tmp_path)

    assert seen.node is not None
    assert again.node is not None
    assert again.samples == seen.samples
    for then, now in zip(seen.node.gpus, again.node.gpus, strict=True):
        fabric, before = build.nvidia(now).fabric, build.nvidia(then).fabric
        assert fabric is not None
        assert before is not None
        assert now.uuid != then.uuid
        assert now.serial != then.serial
        assert fabric.cluster_uuid != before.cluster_uuid
        devices = zip(now.mig_devices, then.mig_devices, strict=True)
        assert all(one.uuid != other.uuid for one, other in devices)
        assert len(now.serial or "") == len(then.serial or "")
    assert _nameless(again.node) == _nameless(seen.node)


def test_equal_identities_stay_equal_and_others_stay_apart(tmp_path: Path) -> None:
    """One cluster for all, a UUID and a serial for each."""
    taken, _ = recorded(telling(tmp_path))

    node = replayed(recording.anonymise(taken), tmp_path).node

    assert node is not None
    first, second = node.gpus
    assert build.nvidia(first).fabric == build.nvidia(second).fabric
    assert len({first.uuid, second.uuid, second.mig_devices[0].uuid}) == 3
    assert first.serial != second.serial


def test_no_identity_is_left_in_an_anonymous_file(tmp_path: Path) -> None:
    """Nor a hash of one: the same machine under other identities gives the same file."""
    told = recording.anonymise(recorded(telling(tmp_path / "a"))[0])
    other = telling(tmp_path / "b")
    gpus = (
        msgspec.structs.replace(_machine(other).gpus[0], uuid=UUID[:-1] + "0", serial="7" * 13),
    )
    other.edit(
        lambda state: msgspec.structs.replace(
            state,
            name="another",
            machine=msgspec.structs.replace(
                _machine(other), gpus=(*gpus, *_machine(other).gpus[1:])
            ),
        )
    )
    text = msgspec.json.encode(told).decode()

    assert not [secret for secret in (UUID, UUID[4:], SERIAL) if secret in text]
    assert str(list(bytes.fromhex(CLUSTER.replace("-", "")))).replace(" ", "") not in text
    assert _steady(recording.anonymise(recorded(other)[0])) == _steady(told)


def test_replayed_identities_find_their_gpus(tmp_path: Path) -> None:
    """A look-up by UUID is recorded under the name that the GPU has in the recording."""

    def read() -> None:
        nv.nvmlInit()
        gpu = nv.nvmlDeviceGetHandleByIndex(0)
        nv.nvmlDeviceGetHandleByUUID(nv.nvmlDeviceGetUUID(gpu))

    with telling(tmp_path) as simulation:
        taken = recording.anonymise(recording.capture(read, simulation.host_root))

    with Simulation.replay(taken, tmp_path / "again", name="again"):
        read()


# files


def test_the_file_is_readable_and_names_its_schema(tmp_path: Path) -> None:
    """Entry points and arguments by their names in C, handles as small numbers."""
    taken, _ = recorded(machines.simulation(tmp_path, FIRST))
    recording.save_recording(taken, tmp_path / "taken.json")

    document = json.loads((tmp_path / "taken.json").read_text())
    name = next(call for call in document["calls"] if call["entry"] == "nvmlDeviceGetName")

    assert document["schema"] == "gpuscape-recording/1"
    assert name == {
        "entry": "nvmlDeviceGetName",
        "inputs": {"device": 1},
        "outputs": {"name": "NVIDIA Small"},
    }


def test_host_files_are_those_of_gpus_and_nics_and_the_way_to_them(tmp_path: Path) -> None:
    """Bridges included, so that the PCIe matrix is the same; no file of other devices."""
    simulation = Simulation.create("hgx-h100-rdma", tmp_path)

    host = recording.capture(lambda: None, simulation.host_root).host

    machine = load_machine("hgx-h100-rdma")
    devices: list[Gpu | SimulatedNic] = [*machine.gpus, *machine.nics]
    wanted = {device.bus_id for device in devices}
    bridges = {bridge for device in devices for bridge in device.path}
    listed = {Path(path).name for path in host.links if path.startswith("sys/bus/pci/devices/")}
    switches = {one.bus_id for one in machine.functions}
    assert wanted | bridges <= listed
    assert {Path(path).parts[-2] for path in host.configs} == {
        gpu.bus_id for gpu in machine.gpus
    } | switches
    assert any(path.startswith("sys/class/infiniband/") for path in host.links)


@pytest.mark.parametrize(
    "host",
    [
        {"texts": {"../outside": "x"}},
        {"texts": {"/etc/outside": "x"}},
        {"texts": {"sys/../../outside": "x"}},
        {"texts": {"home/outside": "x"}},
        {"links": {"sys/a": "../../outside"}},
        {"links": {"sys/a": "/etc"}},
        {"links": {"sys/a": "sys", "sys/a/a/a/b": "proc/outside"}},
        {"texts": {"sys/a/b": "x"}, "links": {"sys/a": "proc"}},
        {"configs": {"proc/../../outside": "00"}},
        {"configs": {"sys/config": "no hex"}},
        {"texts": {"": "x"}},
    ],
)
def test_a_recording_cannot_write_outside_its_host_tree(
    tmp_path: Path, host: dict[str, Any]
) -> None:
    """It may come from anybody."""
    file = tmp_path / "bad.json"
    file.write_text(json.dumps({"schema": "gpuscape-recording/1", "host": host}))

    with pytest.raises(BadInput, match=r"bad\.json: .*record anew"):
        recording.load_recording(file)


def test_host_files_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    """A file where a folder would have to be."""
    host = HostFiles(texts={"sys/a": "x", "sys/a/b": "x"})

    with pytest.raises(BadInput, match="contradict"):
        Simulation.replay(Recording(host=host), tmp_path, name="bad")


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda text: text[: len(text) // 2], r"taken.json:\d+: not valid JSON"),
        (lambda text: text.replace("recording/1", "recording/9"), "this version reads"),
        (lambda text: text.replace('"entry"', '"enrty"', 1), r"calls\[0\]\.enrty: .*'entry'"),
        (lambda text: text.replace('"flags"', '"flag"', 1), r"calls\[0\]: .*record anew"),
        (lambda text: text.replace("nvmlInitWithFlags", "nvmlFly", 1), "nvmlFly.*use a newer one"),
    ],
)
def test_a_damaged_recording_is_named_with_what_is_wrong(
    tmp_path: Path, spoil: Callable[[str], str], why: str
) -> None:
    """File, line or key, in one sentence."""
    file = tmp_path / "taken.json"
    taken, _ = recorded(machines.simulation(tmp_path, FIRST))
    recording.save_recording(taken, file)
    file.write_text(spoil(file.read_text()))

    with pytest.raises(BadInput, match=why) as raised:
        recording.load_recording(file)

    assert "\n" not in str(raised.value)


def test_a_recording_that_cannot_be_written_says_where(tmp_path: Path) -> None:
    """A folder stands there."""
    with pytest.raises(BadInput, match="cannot write the recording"):
        recording.save_recording(Recording(), tmp_path)


def _ignoring(call: Callable[[], object]) -> None:
    machines.code_of(call)


def _machine(simulation: Simulation) -> Any:
    return simulation.state.machine


def _nameless(node: NodeSnapshot) -> NodeSnapshot:
    """The node without what tells it from all others."""
    gpus = (
        build.changed(
            gpu,
            uuid=None,
            serial=None,
            fabric=nvidia.fabric and replace(nvidia.fabric, cluster_uuid=""),
            mig_devices=tuple(replace(one, uuid="") for one in gpu.mig_devices),
        )
        for gpu, nvidia in nvidia_gpus(node.gpus)
    )
    return replace(node, gpus=tuple(gpus))


def _steady(taken: Recording) -> dict[bytes, Any]:
    """Calls whose answers do not change by the second."""
    varying = ("Power", "Temperature", "Energy", "FieldValues", "MemoryInfo")
    return {
        msgspec.json.encode((call.entry, call.inputs)): call.outputs
        for call in taken.calls
        if not any(word in call.entry for word in varying)
    }
