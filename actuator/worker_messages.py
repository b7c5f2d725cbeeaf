# SPDX-License-Identifier: Apache-2.0
"""Messages between the supervisor of MIG changes and its worker, one line of JSON each. Values.

The order is the worker's whole standard input; log lines and the result come on its standard
output.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from actuator.boots.reboot_sentinel import RebootSentinel
from actuator.change import ChangeResult
from actuator.journal import JournalBusy, JournalUnusable
from actuator.mig_world import StepFailed
from actuator.selftest import SelftestEvent
from api.actuator.actuator_messages import PodOnGpu, PodsOnGpus
from api.mig_mode_change import NO_FALLBACK, ModeChange, ResetFallback
from api.mig_resources import MigStrategy
from base.errors import BadInput, GpuscapeError, Transient
from discovery.driver_errors import DriverAbsent, DriverMismatch
from discovery.reader.protocol import Start
from mig.gpu_layout import GpuLayout
from mig.users.device_users import DeviceUser, DeviceUsers, MigPart, UserKind, users_by_part

MOST_MESSAGE_BYTES: Final = 1 << 20
"""Size of a line at most; a refusal that names device users on sixteen GPUs has 20 KiB."""
COLLECT_SECONDS: Final = 5.0
"""Time for a worker to end after its last message, and for a killed one to be gone. It ends itself
so long after its deadline, in case its supervisor is gone."""


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base: unknown keys are errors."""


class ChangeRequest(_Strict, frozen=True, kw_only=True):
    """A request for a change of MIG layouts."""

    desired: dict[str, GpuLayout]
    """Desired layouts by GPU UUID; other GPUs stay as they are."""
    change: str = ""
    """Id of the change in journal and history; if empty, the worker makes one."""
    origin: str
    """Origin of the layouts, for people: ``all-1g.10gb of config.yaml``."""
    strategy: MigStrategy | None = None
    """The device plugin's strategy; None if there is no plugin."""
    as_is: bool = False
    """Only verify and remember the layouts: the caller has found that no step is needed."""
    mode_change: ModeChange = ModeChange.OFF
    """What may be done about modes that need a reset."""
    fallback: ResetFallback = NO_FALLBACK
    """What may follow where the driver makes no such reset."""


class SelftestRequest(_Strict, frozen=True, kw_only=True):
    """A request for a self-test."""

    gpu: str
    """UUID."""
    seconds: float
    """Time after which no further layout is tried."""
    until: int
    """Descriptor that ends the test, as soon as it is readable or its other end is closed."""


class Order(_Strict, frozen=True, kw_only=True):
    """The task of a worker."""

    start: Start
    journal: str
    request: ChangeRequest | None = None
    """The change to carry out; None: end the open changes only."""
    selftest: SelftestRequest | None = None
    """The self-test to carry out, instead of a change."""
    users: PodsOnGpus = ()
    """The pods that use GPUs, and the pending ones: the driver knows neither."""
    change: str = ""
    """Without a request: the change whose result is wanted, if it is in the journal."""
    give_up: tuple[str, ...] = ()
    """UUIDs of GPUs to take out of the changes that are open, first of all."""
    hung: tuple[str, ...] = ()
    """Bus ids of GPUs for which no call is made, since one did not return: a change is stuck there.
    """
    sentinel: RebootSentinel | None = None
    """The file that asks for a boot of the node; None where no boot may be asked for."""
    owner: bool = False
    """Whether the worker belongs to the actuator that owns the journal's folder."""
    pod_uid: str | None = None
    """UID of the pod that the worker runs in, if it is known."""
    deadline_seconds: float
    """Time for each GPU; past it the supervisor kills the worker."""


class Logged(_Strict, frozen=True, kw_only=True, tag=True):
    """A line for the supervisor's log."""

    logger: str
    level: int
    message: str
    facts: dict[str, str]


class Calling(_Strict, frozen=True, kw_only=True, tag=True):
    """The driver is called for another GPU than before."""

    bus_id: str
    """Empty: for no GPU."""


class Failed(_Strict, frozen=True, kw_only=True, tag=True):
    """The last message: an error that is raised again in the supervisor."""

    kind: str
    text: str


WorkerMessage = Logged | Calling | SelftestEvent | ChangeResult | Failed

_ERRORS: Final[dict[str, type[GpuscapeError]]] = {
    error.__name__: error
    for error in (
        JournalBusy,
        JournalUnusable,
        StepFailed,
        DriverAbsent,
        DriverMismatch,
        BadInput,
    )
}


def raised(message: Failed) -> GpuscapeError:
    """A message as the error that it was; one that nobody tells apart as Transient."""
    return _ERRORS.get(message.kind, Transient)(message.text)


def by_part(pods: Iterable[PodOnGpu]) -> DeviceUsers:
    """Device users by the part of a GPU that they use, for the planner."""
    return users_by_part(
        (
            MigPart(pod.gpu, pod.instance, pod.compute),
            [DeviceUser(UserKind(pod.kind), pod.name)],
        )
        for pod in pods
    )
