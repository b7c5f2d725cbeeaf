# SPDX-License-Identifier: Apache-2.0
"""Command lines of the control plane's programs, and the files that they read.

Everything listens on loopback. Flags not explained here are what any cluster has.
"""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.controlplane import audit
from tests.controlplane.pki import Pki

LOOPBACK = "127.0.0.1"
ISSUER = "https://kubernetes.default.svc.cluster.local"
NFD_PORT = "-port=-1"
"""Its health server would listen on every address; it goes on without where it cannot listen."""

Command = list[str | Path]


def free_port() -> int:
    """A port nobody listens on, below those that outgoing connections take by themselves.

    Seconds may pass before a program listens there, so no other caller on the machine is given
    it while this process lives: an abstract socket of that name is open. Source: unix(7).
    """
    while True:
        port = random.randint(20000, 32000)  # noqa: S311 (no secret)
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0gpuscape-tests-port-{port}")
        except OSError:
            claim.close()
            continue
        claim.detach()  # stays open
        with socket.socket() as tried:
            # as servers do: a port whose last connections are fading is free
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind((LOOPBACK, port))
            except OSError:
                continue
            return port


def etcd(binary: Path, data: Path, port: int, peer_port: int) -> Command:
    """One member that does not wait for the disk: what it holds ends with the test."""
    client, peer = f"http://{LOOPBACK}:{port}", f"http://{LOOPBACK}:{peer_port}"
    urls = {
        "--listen-client-urls": client,
        "--advertise-client-urls": client,
        "--listen-peer-urls": peer,
        "--initial-advertise-peer-urls": peer,
        "--initial-cluster": f"default={peer}",
    }
    named = [f"{flag}={url}" for flag, url in urls.items()]
    return [binary, f"--data-dir={data}", *named, "--unsafe-no-fsync", "--log-level=warn"]


def apiserver(
    binary: Path, folder: Path, pki: Pki, *, port: int, etcd_port: int, flags: Sequence[str] = ()
) -> Command:
    """TLS, client certificates and account tokens, Node and RBAC, admission as in a cluster.

    NodeRestriction is the one plugin that is off by default.
    """
    policy = _written(folder / "audit-policy.json", audit.POLICY)
    return [
        binary,
        f"--etcd-servers=http://{LOOPBACK}:{etcd_port}",
        f"--bind-address={LOOPBACK}",
        f"--advertise-address={LOOPBACK}",
        f"--secure-port={port}",
        "--endpoint-reconciler-type=none",
        f"--tls-cert-file={pki.server.certificate_file}",
        f"--tls-private-key-file={pki.server.key_file}",
        f"--client-ca-file={pki.ca_file}",
        "--anonymous-auth=false",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--service-account-issuer={ISSUER}",
        f"--service-account-key-file={pki.account_key_file}",
        f"--service-account-signing-key-file={pki.account_key_file}",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--allow-privileged=true",
        f"--audit-policy-file={policy}",
        f"--audit-log-path={folder / 'audit.log'}",
        "--audit-log-maxsize=10000",  # megabytes: a log that is rotated cannot be read on
        *flags,
    ]


def controller_manager(
    binary: Path, pki: Pki, kubeconfig: Path, *, node_lifecycle: bool
) -> Command:
    """The controllers, each under its own account, but for those that write to a test's Nodes.

    The TTL controller annotates a Node some time after it was made. Without ``node_lifecycle``
    nobody taints the Nodes, whose kubelets do not exist.
    """
    off = ["-node-ipam-controller", "-ttl-controller"]
    if not node_lifecycle:
        off.append("-node-lifecycle-controller")
    return [
        binary,
        *(f"--{kind}kubeconfig={kubeconfig}" for kind in ("", "authentication-", "authorization-")),
        f"--controllers={','.join(['*', *off])}",
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={pki.account_key_file}",
        f"--root-ca-file={pki.ca_file}",
        "--secure-port=0",
    ]


def scheduler(
    binary: Path, folder: Path, kubeconfig: Path, configuration: Mapping[str, Any]
) -> Command:
    """A scheduler with that configuration, its client and leader election left to us."""
    whole = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        **configuration,
    }
    file = _written(folder / "scheduler.json", whole)
    return [binary, f"--config={file}", "--secure-port=0"]


def kwok(binaries: Path, kubeconfig: Path, node_annotation: str) -> Command:
    """Kubelets of all Nodes that carry the annotation, and what their pods do.

    It has no stages of its own: without those of its module it ends with "no stages found".
    """
    stages = (f"--config={file}" for file in sorted(binaries.glob("*.yaml")))
    return [
        binaries / "kwok",
        f"--kubeconfig={kubeconfig}",
        f"--manage-nodes-with-annotation-selector={node_annotation}",
        "--node-lease-duration-seconds=40",
        *stages,
    ]


def nfd_master(binaries: Path, kubeconfig: Path, namespaces: Collection[str] = ()) -> Command:
    """What turns NodeFeatures, those of these namespaces if any are named, into labels of Nodes."""
    command: Command = [binaries / "nfd-master", "-kubeconfig", kubeconfig, NFD_PORT]
    if namespaces:
        named = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [*namespaces]}
        selector = {"nodeFeatureNamespaceSelector": {"matchExpressions": [named]}}
        command.append(f"-options={json.dumps({'restrictions': selector})}")
    return command


def nfd_worker(binaries: Path, kubeconfig: Path) -> Command:
    """What turns feature files into a NodeFeature, and nothing else into one.

    It has no pod that could own the NodeFeature, and looks every second, not every minute.
    """
    flags = ("-feature-sources=local", "-label-sources=local", "-owner-refs=")
    often = '-options={"core": {"sleepInterval": "1s"}}'
    return [binaries / "nfd-worker", "-kubeconfig", kubeconfig, NFD_PORT, *flags, often]


def kubeconfig(server: str, ca_file: Path, user: Mapping[str, str]) -> dict[str, Any]:
    """One cluster, one user, one context."""
    cluster = {"server": server, "certificate-authority": str(ca_file)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "plane", "cluster": cluster}],
        "users": [{"name": "user", "user": dict(user)}],
        "contexts": [{"name": "plane", "context": {"cluster": "plane", "user": "user"}}],
        "current-context": "plane",
    }


def _written(file: Path, content: Mapping[str, Any]) -> Path:
    """As JSON, which is YAML too."""
    file.write_text(json.dumps(content), encoding="utf-8")
    return file
