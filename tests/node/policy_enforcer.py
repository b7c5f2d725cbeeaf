# SPDX-License-Identifier: Apache-2.0
"""A network that enforces network policies: kube-router's controller on each node, not ours.

It writes rules for iptables and ipset into the node's own network namespace; routes and Services
are left as they are. Without it nothing of a NetworkPolicy holds on these nodes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from tests.controlplane import components
from tests.controlplane.builds import binaries
from tests.controlplane.families import KUBE_ROUTER, PACKAGES
from tests.node.network import SERVICE_IP
from tests.node.real_cluster import RealCluster
from tests.node.real_node import SOON, RealNode

PROGRAM: Final = "kube-router"
_PARTS: Final = ("--run-firewall=true", "--run-router=false", "--run-service-proxy=false")
_NO_PORTS: Final = ("--health-port=0", "--metrics-port=0")
_SYNCED: Final = "sync iptables took"
"""In its log, once rules are in place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEnforcer:
    """That of one node."""

    node: RealNode
    environment: Mapping[str, str]
    """In which iptables and ipset are found."""

    @classmethod
    def start(cls, cluster: RealCluster, node: RealNode) -> Self:
        """Have policies hold for the node's pods. Raises NotPreparedError and ProgramError."""
        plane, folder = cluster.plane, node.folder / PROGRAM
        folder.mkdir()
        started = cls(node=node, environment=_environment(folder))
        credential = plane.client(PROGRAM, ("system:masters",))
        user = {
            "client-certificate": str(credential.certificate_file),
            "client-key": str(credential.key_file),
        }
        written = components.kubeconfig(f"https://{SERVICE_IP}:443", plane.ca_file, user)
        (folder / "kubeconfig.json").write_text(json.dumps(written), encoding="utf-8")
        named = (f"--kubeconfig={folder}/kubeconfig.json", f"--hostname-override={node.name}")
        program = binaries(KUBE_ROUTER) / PROGRAM
        node.programs.start(
            PROGRAM,
            [program, *_PARTS, *_NO_PORTS, *named, "--v=1"],
            environment=started.environment,
        )
        log = node.programs.log(PROGRAM)
        node.programs.wait(PROGRAM, lambda: _SYNCED in log.read_text(), seconds=SOON)
        return started

    def translate(self, address: str, port: int, to: str) -> None:
        """Lead connections of the node's pods to a Service's address on to ``to``, ADDRESS:PORT, as
        kube-proxy does: whom they come from stays."""
        self._iptables("--flush", "PREROUTING")
        matched = ("--protocol", "tcp", "--destination", address, "--dport", str(port))
        self._iptables("--append", "PREROUTING", *matched, "--jump", "DNAT", "--to-destination", to)

    def _iptables(self, *words: str) -> None:
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        self.node.run("env", *variables, "iptables", "--wait", "--table", "nat", *words)


def _environment(folder: Path) -> Mapping[str, str]:
    """Where the programs of Debian's packages are, and for those their libraries."""
    root, programs = binaries(KUBE_ROUTER) / PACKAGES, folder / "bin"
    programs.mkdir()
    (libraries,) = (it.parent for it in root.rglob("libxtables.so.12"))
    for family in ("iptables", "ip6tables"):
        for suffix in ("", "-save", "-restore"):
            (programs / f"{family}{suffix}").symlink_to(root / "usr/sbin/xtables-legacy-multi")
    (programs / "ipset").symlink_to(root / "usr/sbin/ipset")
    return {
        "PATH": f"{programs}:/usr/sbin:/usr/bin:/sbin:/bin",
        "LD_LIBRARY_PATH": str(libraries),
        "XTABLES_LIBDIR": str(libraries / "xtables"),
    }
