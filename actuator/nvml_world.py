# SPDX-License-Identifier: Apache-2.0
"""The GPUs of this node through NVML, for a change of MIG layouts to read and to change.

A process has one such world at a time, since NVML's session is the process's.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self, TypeVar

from actuator.fabric_manager import why_no_single_reset
from actuator.gpu_holders import gpu_holders
from actuator.mig_world import RESET_PATIENCE_SECONDS, StepFailed
from actuator.mode_reset import is_reset, read_back
from actuator.smi_reset import reset_by_smi
from base.errors import BadInput, Transient
from discovery.driver_errors import GpuLost, MigChangeFailed, MigUnread
from discovery.host.device_files import (
    HARMLESS,
    PROC,
    openers,
    proc_folder,
    process_name,
)
from discovery.host.driver_load import boot_id, driver_load
from discovery.host.process_pods import hidden_own_pod, pod_of_process
from discovery.mig_state import CurrentInstance, MigGpu, UnreadMigGpu
from discovery.nvml.changing.gpu_use import programs_now
from discovery.nvml.changing.mig_changes import (
    create_compute_instance,
    create_gpu_instance,
    destroy_compute_instance,
    destroy_gpu_instance,
    set_mig_mode,
)
from discovery.nvml.mig_gpu import read_mig_gpu
from discovery.nvml.session import close_session, open_session
from discovery.reader.machine_access import allowed, listed_gpus
from discovery.reader.protocol import Start
from discovery.shared_identities import without_shared_mig
from kubelet.devices_checkpoint import KubeletDevices, read_kubelet_devices
from mig.steps import (
    CreateCompute,
    CreateInstance,
    DestroyCompute,
    DestroyInstance,
    MigStep,
    SetMode,
)
from mig.users.device_users import (
    DeviceUser,
    DeviceUsers,
    MigPart,
    UserKind,
    all_users,
    users_by_part,
)
from mig.users.pod_users import pod_users, unplaced_devices
from mig.users.process_users import process_users, program

log = logging.getLogger(__name__)

T = TypeVar("T")

SCAN_SECONDS: Final = 1.0
"""Shortest time between two scans for open device files, which read all open files of the node."""


class NvmlWorld:
    """An open session with the driver. The library must have been chosen before."""

    def __init__(
        self,
        start: Start,
        named: DeviceUsers | None = None,
        on_call: Callable[[str], None] = lambda _bus_id: None,
        pod_uid: str | None = None,
    ) -> None:
        """``named``: pods and pending pods that the caller knows of; ``pod_uid``: this process's
        own pod.

        ``on_call`` gets the bus id of a GPU before the driver is called for another GPU than last;
        an empty one before a call that is for none. Raises DriverAbsent, DriverMismatch or
        Transient where NVML cannot be initialised.
        """
        self._start = start
        self.root, self.simulated = Path(start.host_root), start.simulation is not None
        """The host's root, and whether the machine is simulated."""
        self._on_call = on_call
        self._called = ""
        self._named = named or {}
        self._pod_uid = pod_uid
        self._seen: dict[str, MigGpu] = {}
        self._places: dict[str, str] = {}
        """UUID to bus id of all GPUs that were read."""
        self.unread: dict[str, str] = {}
        """Bus id to reason of the GPUs that their last observation left out."""
        self.reset_patience_seconds = RESET_PATIENCE_SECONDS
        self._unplaced: set[str] = set()
        """Names of unplaced devices that have been logged."""
        self._openers: tuple[float, dict[int, frozenset[int]]] | None = None
        open_session()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the session with NVML."""
        close_session()

    def observe(self, gpus: Collection[str] = ()) -> Sequence[MigGpu]:
        """GPUs that can be read whole, in bus order; others are logged with the reason.

        Only those with these UUIDs, if all have been read before, also in another session: a GPU
        that is no longer at its bus id is then left out. Else all.
        """
        # the others are not called: one that hangs must not stop a change that leaves it alone
        known = [bus_id for uuid, bus_id in self._places.items() if uuid in gpus]
        alone = bool(gpus) and len(known) == len(gpus)
        try:
            listed = known if alone else self._listed()
            read = without_shared_mig([self._read(bus_id) for bus_id in listed])
        except Transient as error:
            raise StepFailed(str(error)) from error
        self._seen = {gpu.uuid: gpu for gpu in read if isinstance(gpu, MigGpu)}
        if not alone:
            self._places = {gpu.uuid: gpu.bus_id for gpu in self._seen.values()}
        unread = {gpu.bus_id: gpu.why for gpu in read if isinstance(gpu, UnreadMigGpu)}
        for bus_id, why in unread.items():
            if self.unread.get(bus_id) != why:
                log.warning("MIG GPU not read", extra={"bus_id": bus_id, "why": why})
        others = {bus_id: why for bus_id, why in self.unread.items() if bus_id not in listed}
        self.unread = others | unread if alone else unread
        return tuple(self._seen.values())

    def _read(self, bus_id: str) -> MigGpu | UnreadMigGpu:
        self.turn_to(bus_id)
        return read_mig_gpu(bus_id)

    def turn_to(self, bus_id: str) -> None:
        """The calls that follow are for this GPU; for none with an empty bus id."""
        if bus_id != self._called:
            self._called = bus_id
            self._on_call(bus_id)

    def _listed(self) -> Sequence[str]:
        """Bus ids of all GPUs that may be touched. Raises Transient where there is no list."""
        gpus = listed_gpus(self._start)
        if why := gpus.counts.why_not_listed:
            raise Transient(f"which GPUs there are is not known: {why}")
        return allowed(self._start, gpus.ours)

    def device_users(self) -> DeviceUsers:
        """Device users of the GPUs that were observed last: programs, and pods.

        Programs are those that the driver lists or that have device files open; pods are those
        to which the kubelet has given a device. A GPU whose programs the driver does not list
        counts as in use with all its instances. Raises StepFailed if there is no session with the
        driver any more, or the kubelet's devices cannot be read.
        """
        seen, kubelet = self._seen.values(), self._kubelet()
        self._report_unplaced(unplaced_devices(seen, kubelet))
        running, unlisted = [], []
        for gpu in seen:
            self.turn_to(gpu.bus_id)
            try:
                # now: a program may have begun since the GPU was observed
                running.append(replace(gpu, processes=programs_now(gpu.bus_id)))
            except (MigUnread, GpuLost) as error:
                unlisted.append(_all_held(gpu, str(error)))
            except Transient as error:
                raise StepFailed(str(error), passes=True) from error
        return all_users(
            process_users(running, process_name),
            *unlisted,
            self._opened(),
            pod_users(seen, kubelet),
            self._named,
        )

    def perform(self, step: MigStep) -> None:
        """Take a step on an observed GPU; see :mod:`discovery.nvml.changing.mig_changes`."""
        gpu = self._seen.get(step.gpu)
        if gpu is None:
            raise StepFailed(f"GPU {step.gpu}: it was not read before the step")
        if is_reset(gpu, step) and (why := self.why_together()):
            raise StepFailed(f"GPU {gpu.bus_id}: {why}")
        self.turn_to(gpu.bus_id)
        try:
            _perform(gpu, step)
        except MigChangeFailed as error:
            why = str(error)
            if error.in_use:
                why += f"; {gpu_holders(gpu, self.root, simulated=self.simulated)}"
            lacks = error.needs_reset and is_reset(gpu, step)
            raise StepFailed(why, passes=error.passes, needs_reset=lacks) from error
        if is_reset(gpu, step):
            back = read_back(gpu, self.reopen)
            log.info("MIG GPU reset", extra={"bus_id": gpu.bus_id, "minor": back.minor})

    def why_together(self) -> str:
        """Why no GPU here can be reset alone; empty where each one can."""
        return why_no_single_reset(self.root, simulated=self.simulated)

    def reset_by_smi(self, modes: Mapping[str, bool], note: Callable[[], None]) -> None:
        """Have nvidia-smi reset GPUs, for modes by UUID; see :func:`reset_by_smi`."""
        seen = {gpu.uuid: gpu for gpu in self.observe(modes.keys())}
        if missing := modes.keys() - seen.keys():
            raise StepFailed(f"GPU {', '.join(sorted(missing))}: it cannot be read")
        reset_by_smi(self, [(gpu, modes[gpu.uuid]) for gpu in seen.values()], note)

    def leave_mode(self, gpu: str, *, on: bool) -> bool:
        """Ask for a mode that comes with the next boot; see :func:`set_mig_mode`."""
        self.turn_to(self._seen[gpu].bus_id)
        try:
            return not set_mig_mode(self._seen[gpu], on=on, may_wait=True)
        except MigChangeFailed as error:
            raise StepFailed(str(error)) from error

    def reopen(self, bus_id: str = "") -> None:
        """End the session, and begin another; the calls that follow are for this GPU."""
        self.turn_to("")
        self.close()
        self._seen, self._openers = {}, None
        try:
            open_session()
        except Transient as error:
            raise StepFailed(str(error)) from error
        self.turn_to(bus_id)

    def pause(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)

    def boot(self) -> str:
        """The kernel's boot id; empty where it cannot be read."""
        return boot_id(self.root)

    def driver_load(self) -> str:
        """The boot, and the inode of the kernel module's folder: sysfs never uses one again."""
        return driver_load(self.root)

    def now(self) -> str:
        """Current time in RFC 3339, in UTC."""
        return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")

    def _kubelet(self) -> KubeletDevices:
        """Pods and their devices, as the kubelet has them."""
        try:
            return read_kubelet_devices(self.root, time.time())
        except BadInput as error:
            raise StepFailed(str(error), passes=True) from error

    def _report_unplaced(self, devices: Mapping[str, frozenset[str]]) -> None:
        """Log each device of a pod that may be on any GPU, once."""
        for name in sorted(devices.keys() - self._unplaced):
            facts = {"device": name, "pods": ", ".join(sorted(devices[name]))}
            log.warning("pod's GPU not known", extra=facts)
        self._unplaced |= devices.keys()

    def _opened(self) -> DeviceUsers:
        """Programs that have device files of a GPU open, as device users of the whole GPU.

        A container that sees the host's processes leaves those of pods to the driver: the device
        plugin has GPUs open all the time, and is paused if possible.
        """
        proc, opened = proc_folder(self.root), self._scanned()
        own_pod = hidden_own_pod(proc, self._pod_uid)
        return users_by_part(
            (MigPart(gpu.uuid, None), [program(pid, name)])
            for gpu in self._seen.values()
            for pid in opened.get(-1 if gpu.minor is None else gpu.minor, ())
            if (name := process_name(pid, proc)) not in HARMLESS
            if proc == PROC or not pod_of_process(proc, pid, own_pod)
        )

    def _scanned(self) -> dict[int, frozenset[int]]:
        now = time.monotonic()
        if self._openers is None or now - self._openers[0] > SCAN_SECONDS:
            self._openers = now, dict(openers(self.root, simulated=self.simulated))
        return self._openers[1]


def _all_held(gpu: MigGpu, why: str) -> DeviceUsers:
    """An unknown program that may be anywhere on the GPU, as device user of all its parts."""
    parts = (None, *(instance.id for instance in gpu.instances))
    user = DeviceUser(UserKind.PROCESS, f"unknown ({why})")
    return {MigPart(gpu.uuid, part): frozenset({user}) for part in parts}


def _perform(gpu: MigGpu, step: MigStep) -> None:
    match step:
        case SetMode():
            set_mig_mode(gpu, on=step.on)
        case CreateInstance():
            profile = gpu.profile(step.profile)
            if profile is None or profile.size != step.size:
                raise StepFailed(f"GPU {gpu.bus_id}: the driver has no profile {step.profile} now")
            create_gpu_instance(gpu, profile, step.start)
        case CreateCompute():
            at_place = (instance for instance in gpu.instances if instance.start == step.start)
            why = f"GPU {gpu.bus_id}: no GPU instance at memory unit {step.start}"
            create_compute_instance(gpu, _first(at_place, why), step.slices, step.first)
        case DestroyInstance():
            instance = _instance(gpu, step.instance)
            # ids are used again: another program may have replaced the instance since the plan
            if (instance.profile, instance.start) != (step.profile, step.start):
                raise StepFailed(
                    f"GPU {gpu.bus_id}: GPU instance {step.instance} is a {instance.profile} at"
                    f" memory unit {instance.start}, and not what was to be destroyed"
                )
            destroy_gpu_instance(gpu, instance)
        case DestroyCompute():
            instance = _instance(gpu, step.instance)
            with_id = (compute for compute in instance.compute if compute.id == step.compute)
            holder = f"GPU {gpu.bus_id}: GPU instance {step.instance}"
            why = f"{holder} has no compute instance {step.compute}"
            destroy_compute_instance(gpu, instance, _first(with_id, why))


def _instance(gpu: MigGpu, number: int) -> CurrentInstance:
    with_id = (instance for instance in gpu.instances if instance.id == number)
    return _first(with_id, f"GPU {gpu.bus_id}: there is no GPU instance {number}")


def _first(parts: Iterable[T], why_none: str) -> T:
    """The first of these. Raises StepFailed where there is none."""
    for part in parts:
        return part
    raise StepFailed(why_none)
