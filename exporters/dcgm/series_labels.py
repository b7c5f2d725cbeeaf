# SPDX-License-Identifier: Apache-2.0
"""The labels of a series: what dcgm-exporter writes, in its order, escaped. Pure.

Source of names and order: dcgm-exporter, ``render_metrics.go`` for the template,
``transformation/kubernetes.go`` for the labels of the pod that holds a device. Unlike upstream,
text is escaped, so no value can break the exposition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from discovery.bus_id import long_bus_id
from discovery.gpu_part import GpuPart
from discovery.model import GpuSnapshot
from exporters.device_user_names import ContainerUser
from exporters.prometheus_text import labels_text

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesIdentity:
    """Settings of the labels that name a series' node, its GPU and who holds it."""

    hostname: str
    """The node's name in the cluster, else the host's."""
    hostname_label: str | None = "hostname"
    """``Hostname`` for dashboards older than dcgm-exporter 4.8.3; None leaves the label out."""
    driver_version: bool = True
    """Put the driver's version on every series, where the counters have its row."""
    old_namespace: bool = False
    """Names from before dcgm-exporter 2: ``uuid``, ``pod_name`` and so on."""
    blanks_replaced: bool = False
    """Put dashes in place of blanks in the model's name."""
    pod_uid: bool = False
    """Add the UID of the pod that holds a device."""
    shares: bool = False
    """Series for each device user of a shared device, numbered by ``vgpu``; where a family
    has values of pods, by what their processes use, and one more that names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesPlace:
    """The labels that all families have in common on one entity for one of its device users."""

    entity: GpuPart
    first: Labels
    """In the order that upstream's template gives them."""
    labels: Labels = field(default_factory=dict)
    attributes: Labels = field(default_factory=dict)
    share_of: ContainerUser | None = None
    """The pod whose share of the device is shown, where a family can; None: the whole device."""
    unattributed: bool = False
    """Series of the device itself, for families with shares alone."""

    def text(self, labels: Labels | None = None, attributes: Labels | None = None) -> str:
        """All labels with those of one series: labels sorted, then attributes sorted.

        A name appears once: what comes first stands, an attribute takes the place of an
        equal-named label, and the labels of one series that of those of its place.
        """
        middle = {**self.labels, **(labels or {})}
        last = {**self.attributes, **(attributes or {})}
        series = dict(self.first)
        for name in sorted(middle.keys() - last.keys()):
            series.setdefault(name, middle[name])
        for name in sorted(last):
            series.setdefault(name, last[name])
        return labels_text(series)


def places(
    gpu: GpuSnapshot,
    entity: GpuPart,
    facts: Labels,
    identity: SeriesIdentity,
    users: Sequence[ContainerUser],
    jobs: Sequence[str],
) -> Iterator[SeriesPlace]:
    """Labels for the series of a GPU or GPU instance: one set, or one for each device user.

    ``facts`` are the labels that the counters ask for on every series.
    """
    first = _first(gpu, entity.gpu_instance_id, identity)
    shown: Sequence[ContainerUser | None] = _shown(users, identity)
    unattributed = identity.shares and bool(shown)
    for user in (None, *shown) if unattributed or not shown else shown:
        for job in jobs or (None,):
            attributes = {} if user is None else _attributes(user, identity)
            yield SeriesPlace(
                entity=entity,
                first=first,
                labels={**({} if user is None else dict(user.labels)), **facts},
                attributes=attributes if job is None else {**attributes, "hpc_job": job},
                share_of=user if identity.shares else None,
                unattributed=unattributed and user is None,
            )


def _first(gpu: GpuSnapshot, instance: int | None, identity: SeriesIdentity) -> Labels:
    """``device`` carries the index upstream too, not the minor number."""
    model = gpu.model
    if model is not None and identity.blanks_replaced:
        model = "-".join(model.split())
    named: dict[str, str | None] = {
        "gpu": None if gpu.index is None else str(gpu.index),
        "uuid" if identity.old_namespace else "UUID": gpu.uuid,
        "pci_bus_id": long_bus_id(gpu.bus_id),
        "device": None if gpu.index is None else f"nvidia{gpu.index}",
        "modelName": model,
    }
    if instance is not None:
        named |= {"GPU_I_PROFILE": _profile(gpu, instance), "GPU_I_ID": str(instance)}
    if identity.hostname_label is not None:
        named[identity.hostname_label] = identity.hostname
    return {name: value for name, value in named.items() if value is not None}


def _profile(gpu: GpuSnapshot, instance: int) -> str:
    """The GPU instance's own: that of a MIG device names compute slices too where they differ.

    ``1c.3g.20gb`` is one of three compute slices of a ``3g.20gb``.
    """
    profile = next(
        device.profile for device in gpu.mig_devices if device.gpu_instance_id == instance
    )
    slices, dot, rest = profile.partition("c.")
    return rest if dot and slices.isdigit() else profile


def _shown(users: Sequence[ContainerUser], identity: SeriesIdentity) -> Sequence[ContainerUser]:
    """All device users where shares are shown; else those with claims, or the last one.

    Of those that share a device by time upstream shows the one that the kubelet lists last, of
    those that share a claim each. The kubelet's order changes from answer to answer (it is that
    of a Go map), so the last by name is taken here: its series stay the same ones.
    """
    if identity.shares:
        return users
    return [user for user in users if user.claim is not None] or users[-1:]


def _attributes(user: ContainerUser, identity: SeriesIdentity) -> Labels:
    old = identity.old_namespace
    named: dict[str, str | None] = {
        "pod_name" if old else "pod": user.pod,
        "pod_namespace" if old else "namespace": user.namespace,
        "container_name" if old else "container": user.container,
        "pod_uid": user.uid if identity.pod_uid else None,
        "vgpu": user.share if identity.shares else None,
    }
    if (claim := user.claim) is not None:
        named |= {
            "dra_claim_name": claim.name,
            "dra_claim_namespace": claim.namespace,
            "dra_device_name": claim.device,
            "dra_driver_name": claim.driver,
            "dra_pool_name": claim.pool,
            "dra_mig_profile": claim.mig_profile,
            "dra_mig_device_uuid": claim.mig_uuid,
        }
    return {name: value for name, value in named.items() if value is not None}
