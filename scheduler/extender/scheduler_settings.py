# SPDX-License-Identifier: Apache-2.0
"""The scheduler's settings: each declared once, with type, default, kind and help text. Pure."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from api import names
from base.errors import BadInput
from base.settings import setting_kinds as kinds
from base.settings.common_settings import duration, kubeconfig, namespace, optional_path, pod_name
from base.settings.log_settings import log_format, log_level
from base.settings.option import setting
from base.settings.program_settings import ProgramSettings
from placement.kubelet_model import DevicePluginPolicy, Policies, Scope, TopologyManager
from scheduler.cluster.pod_gpu_request import GPU
from scheduler.placement_aims import ProductOrder
from web.address import ADDRESS, Address


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """All settings of the scheduler extender."""

    listen: Address = setting(
        Address(host="127.0.0.1", port=8888),
        ADDRESS,
        "Where it is served; port 0 is any free one. Any address but loopback needs TLS.",
        subject="Addresses and access",
    )
    tls_cert_file: Path | None = optional_path(
        "The server's certificate, PEM; changed files take effect within seconds.",
        unset="plain HTTP, on loopback only",
    )
    tls_private_key_file: Path | None = optional_path(
        "The key of that certificate, PEM, not encrypted."
    )
    client_ca_file: Path | None = optional_path(
        "Authorities, PEM, one of which has to have signed a client's certificate; probes,"
        " metrics and the API's description are served without.",
        unset="everybody is served",
    )
    client_names: tuple[str, ...] = setting(
        (),
        kinds.NAMES,
        "Common or DNS names, of which a client's certificate has to carry one.",
        unset="any",
    )

    kubeconfig: Path | None = kubeconfig(subject="Cluster")
    namespace: str = namespace(names.NAMESPACE, "Namespace of the agents' Leases.")
    events: bool = setting(
        True, kinds.FLAG, "Write an Event on a pod that requested linked GPUs and did not get them."
    )
    instance: str | None = pod_name("What Events call this replica.", unset="the host's name")

    gpu_resource: str = setting(
        GPU,
        kinds.text_kind("NAME"),
        "The resource by which pods ask for whole GPUs.",
        subject="Scores",
    )
    nic_resources: tuple[str, ...] = setting(
        (),
        kinds.NAMES,
        "Resources that are RDMA NICs: a pod that asks for one is sent where its GPUs are close"
        " to a NIC, as with the annotation gpuscape.io/nic.",
        unset="none",
    )
    topology_manager: TopologyManager = setting(
        TopologyManager.NONE,
        kinds.member_kind(TopologyManager),
        "The kubelets' TopologyManager policy.",
    )
    topology_manager_scope: Scope = setting(
        Scope.CONTAINER,
        kinds.member_kind(Scope),
        "The scope of that policy in the kubelets' configuration.",
    )
    allocation: DevicePluginPolicy = setting(
        DevicePluginPolicy.BEST_EFFORT,
        kinds.member_kind(DevicePluginPolicy),
        "How the device plugin chooses GPUs; NVIDIA's own is best-effort.",
    )
    product_order: ProductOrder = setting(
        ProductOrder.FASTEST,
        kinds.member_kind(ProductOrder),
        "The GPU model to which pods of several GPUs go first. fastest: the one with the fastest"
        " free set. cheapest: the slowest one. off: none. Pods of one GPU always go to the slowest"
        " one.",
    )
    budget_seconds: float = duration(
        0.05,
        "1ms",
        "Time for an answer, past which it is empty and the scheduler's other opinions decide;"
        " keep it below the scheduler's httpTimeout.",
    )

    log_level: str = log_level()
    log_format: str = log_format()

    @property
    def policies(self) -> Policies:
        """The kubelets' and the device plugins' policies, of all nodes."""
        return Policies(
            tm=self.topology_manager, scope=self.topology_manager_scope, al=self.allocation
        )

    def __post_init__(self) -> None:
        """Raises BadInput where settings contradict each other."""
        if (self.tls_cert_file is None) is not (self.tls_private_key_file is None):
            raise BadInput(
                "tls-cert-file and tls-private-key-file belong together: give both or none"
            )
        if self.client_ca_file is not None and self.tls_cert_file is None:
            raise BadInput(
                "client-ca-file needs TLS: give tls-cert-file and tls-private-key-file too"
            )
        if self.client_names and self.client_ca_file is None:
            raise BadInput(
                "client-names needs client-ca-file: without it no certificate is verified"
            )
        if self.tls_cert_file is None and not _is_loopback(self.listen.host):
            raise BadInput(
                f"listen is {self.listen}, which other machines reach, and there is no TLS:"
                " give tls-cert-file and tls-private-key-file, or listen on 127.0.0.1"
            )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


SCHEDULER_SETTINGS = ProgramSettings(SchedulerSettings)
