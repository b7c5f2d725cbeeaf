# SPDX-License-Identifier: Apache-2.0
"""The coordinator's settings: each declared once, with type, default, kind and help text. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from api import names
from base.errors import BadInput
from base.settings import setting_kinds as kinds
from base.settings.common_settings import duration, flag, kubeconfig, namespace, pod_name
from base.settings.log_settings import log_format, log_level
from base.settings.option import setting
from base.settings.program_settings import ProgramSettings
from base.settings.setting_kinds import SettingKind
from fleet.drain.drain_plan import DrainSettings
from fleet.gpu_pod import GpuPodSelector, Selector
from fleet.mig_node import DrainMode
from fleet.rollout_settings import WINDOWS, RolloutSettings, Window
from fleet.slot_lease import MOST_SLOTS
from web.address import ADDRESS, Address

_LABEL: Final = re.compile(r"([A-Za-z0-9./_-]+)=([A-Za-z0-9._-]*)")


def _selectors(text: str) -> tuple[Selector, ...]:
    matches = [_LABEL.fullmatch(word.strip()) for word in text.split(",") if word.strip()]
    if not all(matches):
        raise ValueError(text)
    return tuple((match[1], match[2]) for match in matches if match is not None)


_SELECTORS: Final = SettingKind(
    metavar="LABEL=VALUE,…",
    expects="labels with their values, with commas between",
    parse=_selectors,
    show=lambda value: ",".join(f"{key}={text}" for key, text in value),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSettings:
    """All settings of the coordinator."""

    slots: int = setting(
        1,
        kinds.count_kind(MOST_SLOTS),
        "Nodes in change at the same time; 0: no change begins, and running ones end.",
        subject="Rollouts",
    )
    canary: float = duration(
        600.0, "0s", "Time from a rollout's first success until its other nodes may begin."
    )
    failures_in_row: int = setting(
        2,
        kinds.count_kind(1000),
        "A rollout stops for 2 minutes when this many of its nodes have failed in a row; then one"
        " node is tried alone.",
    )
    failures_in_all: int = setting(
        3, kinds.count_kind(1000), "A rollout stops when this many of its nodes have failed."
    )
    unavailable_limit: int = setting(
        5,
        kinds.count_kind(100_000),
        "A rollout stops while more than this many of its nodes are not ready, cordoned by others,"
        " upgraded or rebooted; up to this number they are skipped.",
    )
    window: tuple[Window, ...] = setting(
        (),
        WINDOWS,
        "Days and times, UTC, at which changes may begin.",
        unset="at any time",
    )
    drain: DrainMode = setting(
        DrainMode.WAIT,
        kinds.member_kind(DrainMode),
        "How pods leave before a change, unless the Node's annotation gpuscape.io/drain sets it.",
    )
    ignore_autoscaler_marks: bool = flag(
        "Evict also pods that an autoscaler must not evict: with karpenter.sh/do-not-disrupt, or"
        " with cluster-autoscaler.kubernetes.io/safe-to-evict: false."
    )
    cordoned_nodes: int = setting(
        0,
        kinds.count_kind(MOST_SLOTS),
        "Nodes that may wait for their pods while cordoned, with drain set to cordon; each has a"
        " slot meanwhile.",
    )

    settle: float = duration(
        5.0,
        "100ms",
        "Time from the cordon to the second check of the node's pods.",
        subject="Times of one change",
    )
    hold_deadline: float = duration(
        120.0,
        "10s",
        "How long a cordoned node waits to be idle again; then everything is reverted.",
    )
    cordoned_deadline: float = duration(
        86400.0,
        "1m",
        "How long a cordoned node waits for its pods; then everything is reverted, and the node is"
        " not cordoned again for the same time.",
    )
    change_deadline: float = duration(
        900.0,
        "1m",
        "Time from the permit to proceed until the agent reports the outcome. After it the change"
        " counts as failed, and the node stays as it is until the report comes. The slot is free"
        " after a third of it, for one such node of a rollout at a time.",
    )
    register_deadline: float = duration(
        60.0,
        "5s",
        "Time from a restart of the device plugin until the node offers its resources; it is"
        " restarted up to three times.",
    )
    retry: float = duration(
        60.0,
        "1s",
        "Time between a node's first and second attempt for the same layout; it doubles up to an"
        " hour.",
    )
    long_wait: float = duration(
        86400.0,
        "1m",
        "A node that waits longer than this for its change raises an alert; this has no other"
        " effect.",
    )

    gpu_resources: tuple[str, ...] = setting(
        ("nvidia.com/gpu", "nvidia.com/mig-"),
        kinds.NAMES,
        "Names of GPU resources, each also with the suffix .shared; a text that ends in -, . or /"
        " matches all names that begin with it.",
        subject="Cluster",
    )
    device_plugins: tuple[Selector, ...] = setting(
        (
            ("app", "nvidia-device-plugin-daemonset"),
            ("name", "nvidia-device-plugin-ds"),
            ("app.kubernetes.io/name", "nvidia-device-plugin"),
        ),
        _SELECTORS,
        "Pods with any of these labels are device plugins, and are restarted after a change.",
    )
    kubeconfig: Path | None = kubeconfig()
    namespace: str = namespace(names.NAMESPACE, "Namespace of the Leases.")
    instance: str | None = pod_name(
        "Unique name of this coordinator, for the Lease and for Events.", unset="the host's name"
    )
    listen: Address = setting(
        Address(host="", port=9402), ADDRESS, "Where /metrics, /livez and /readyz are served."
    )

    log_level: str = log_level()
    log_format: str = log_format()

    def __post_init__(self) -> None:
        """Raises BadInput where settings make no sense."""
        for name in ("failures_in_row", "failures_in_all"):
            if getattr(self, name) < 1:
                raise BadInput(
                    f"{name.replace('_', '-')} is 0: give the failures that stop a rollout"
                )
        if not self.gpu_resources:
            raise BadInput("gpu-resources is empty: every node would count as idle")

    @property
    def terms(self) -> RolloutSettings:
        """Settings of rollouts."""
        return RolloutSettings(
            slots=self.slots,
            drain=self.drain,
            evictions=DrainSettings(ignore_autoscaler_marks=self.ignore_autoscaler_marks),
            canary_seconds=self.canary,
            failures_in_row=self.failures_in_row,
            failures_in_all=self.failures_in_all,
            most_away=self.unavailable_limit,
            windows=self.window,
            settle_seconds=self.settle,
            most_cordoned=self.cordoned_nodes,
            cordoned_seconds=self.cordoned_deadline,
            hold_seconds=self.hold_deadline,
            end_seconds=self.change_deadline,
            register_seconds=self.register_deadline,
            retry_seconds=self.retry,
            long_wait_seconds=self.long_wait,
        )

    @property
    def pod_terms(self) -> GpuPodSelector:
        """Resources and labels by which pods count."""
        return GpuPodSelector(resources=self.gpu_resources, plugins=self.device_plugins)


COORDINATOR_SETTINGS = ProgramSettings(CoordinatorSettings)
