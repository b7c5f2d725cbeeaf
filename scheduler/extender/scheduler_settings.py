"""What the scheduler's helper may be told. How it is written is said beside the command line."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from api import names
from base.errors import BadInput
from scheduler.cluster.pod_objects import GPU
from scheduler.scores.kubelet_model import DevicePluginPolicy, Policies, Scope, TopologyManager
from web.address import Address


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """Everything, with the values that hold where nothing is said, but for the address."""

    listen: Address
    kubeconfig: Path | None = None
    """None: the pod's own token, else kubectl's file."""
    namespace: str = names.NAMESPACE
    """Where the agents' Leases are."""

    tls_cert_file: Path | None = None
    tls_private_key_file: Path | None = None
    client_ca_file: Path | None = None
    """Authorities whose certificates a client has to show for all but probes and metrics."""
    client_names: tuple[str, ...] = ()
    """Common or DNS names, of which a client's certificate needs one; none: any."""

    gpu_resource: str = GPU
    """Extended resource that is whole GPUs."""
    nic_resources: tuple[str, ...] = ()
    """Extended resources that are RDMA NICs: a pod that asks for one likes GPUs close to it."""
    topology_manager: TopologyManager = TopologyManager.NONE
    """The kubelets' TopologyManager policy."""
    topology_manager_scope: Scope = Scope.CONTAINER
    """Of that policy, on all nodes."""
    allocation: DevicePluginPolicy = DevicePluginPolicy.BEST_EFFORT
    """The device plugin's allocation policy."""
    budget_seconds: float = 0.05
    """From a request's last byte; past it the answer is neutral."""
    events: bool = True
    """Write an Event on a pod that asked for linked GPUs and did not get them."""
    instance: str | None = None
    """What Events call this replica; None: the host's name."""

    log_level: str = "info"
    log_format: str = "text"

    @property
    def policies(self) -> Policies:
        """Of all nodes."""
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
