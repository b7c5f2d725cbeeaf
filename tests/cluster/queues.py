# SPDX-License-Identifier: Apache-2.0
"""The real Kueue and JobSet controllers on a plane of one's own, as the cluster's admin.

Their webhooks are called at loopback addresses, with the API server's certificate: no Service
leads anywhere here, so they run in the API server's network. Those for kinds that nothing has
installed are left out, since the API server would refuse pods and Deployments that they cannot
judge.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tests.agent.agent_process import until
from tests.controlplane import components
from tests.controlplane.builds import binaries
from tests.controlplane.families import JOBSET, KUEUE, Family
from tests.controlplane.plane import Plane
from tests.controlplane.programs import Programs
from tests.foreign.foreign_programs import mount_namespace

JOBSET_PROGRAM: Final = "jobset"
KUEUE_PROGRAM: Final = "kueue"
_GROUPS: Final = ("batch", "jobset.x-k8s.io", "kueue.x-k8s.io")
"""Of the kinds that are judged."""
_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_LISTENS: Final = "Serving webhook server"
"""In a log, once the port is open. Source: controller-runtime 0.20, pkg/webhook/server.go."""


def start_jobset(plane: Plane, programs: Programs, kubeconfig: Path | None = None) -> None:
    """Start the JobSet controller; ready when this returns. Raises ProgramError.

    ``kubeconfig``: by which it reaches the API server, where the admin's does not lead there.
    """
    configuration = {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "metrics": {"bindAddress": "0"},
    }
    _start(plane, programs, JOBSET, JOBSET_PROGRAM, configuration, kubeconfig)


def start_kueue(plane: Plane, programs: Programs, kubeconfig: Path | None = None) -> None:
    """Start Kueue for Jobs and JobSets, whose controller has to be there; ready when this returns.

    ``kubeconfig``: as for :func:`start_jobset`. Raises ProgramError.
    """
    configuration = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": "default",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "metrics": {"bindAddress": "0"},
        "integrations": {"frameworks": ["batch/job", "jobset.x-k8s.io/jobset"]},
    }
    # its API of pending workloads would listen on every address
    flag = "--feature-gates=VisibilityOnDemand=false"
    _start(plane, programs, KUEUE, KUEUE_PROGRAM, configuration, kubeconfig, flag)


def _start(
    plane: Plane,
    programs: Programs,
    family: Family,
    name: str,
    configuration: Mapping[str, Any],
    kubeconfig: Path | None,
    *flags: str,
) -> None:
    there = binaries(family)
    definitions = sorted(there.glob("*.x-k8s.io_*.yaml"))
    plane.kubectl("apply", "--server-side", *(arg for file in definitions for arg in ("-f", file)))
    until(lambda: all(_is_served(plane, file) for file in definitions))
    port, health = components.free_port(), components.free_port()
    folder = programs.folder / name
    folder.mkdir()
    for file in ("tls.crt", "tls.key"):
        (folder / file).write_bytes(plane.pki.server.certificate_file.read_bytes())
    written = folder / "configuration.yaml"
    webhook = {"host": components.LOOPBACK, "port": port, "certDir": str(folder)}
    probes = {"healthProbeBindAddress": f"{components.LOOPBACK}:{health}"}
    written.write_text(yaml.safe_dump({**configuration, "webhook": webhook, "health": probes}))
    programs.start(
        name,
        [*_own_etc(folder), there / name, f"--config={written}", *flags],
        environment={"KUBECONFIG": str(kubeconfig or plane.kubeconfig())},
    )
    log = programs.log(name)
    programs.wait(name, lambda: _LISTENS in log.read_text(encoding="utf-8"))
    for each in webhooks(there / "manifests.yaml", plane.pki.ca_file, port, name):
        plane.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump(each))


def _own_etc(folder: Path) -> list[str | Path]:
    """What starts a program with certificates where Kueue looks for those of its metrics."""
    certificates = folder / "etc" / "kueue" / "metrics" / "certs"
    certificates.mkdir(parents=True)
    for file in ("tls.crt", "tls.key"):
        (certificates / file).write_bytes((folder / file).read_bytes())
    script = 'mount --bind "$0" /etc && exec "$@"'
    return [*mount_namespace(), "sh", "-c", script, folder / "etc"]


def webhooks(manifest: Path, authority: Path, port: int, name: str) -> Iterator[dict[str, Any]]:
    """The configurations of a module's manifest, called at that port of this machine."""
    bundle = base64.b64encode(authority.read_bytes()).decode()
    for found in yaml.safe_load_all(manifest.read_text(encoding="utf-8")):
        found["metadata"]["name"] = f"{name}-{found['metadata']['name']}"
        found["webhooks"] = [it for it in found["webhooks"] if _is_judged(it)]
        for it in found["webhooks"]:
            path = it["clientConfig"]["service"]["path"]
            url = f"https://{components.LOOPBACK}:{port}{path}"
            it["clientConfig"] = {"url": url, "caBundle": bundle}
        yield found


def _is_served(plane: Plane, definition: Path) -> bool:
    """Whether a kind is there, whose definition's file has its group and name."""
    group, _, plural = definition.stem.partition("_")
    found = plane.demand("GET", f"{_DEFINITIONS}/{plural}.{group}").get("status", {})
    conditions = {it["type"]: it["status"] for it in found.get("conditions") or ()}
    return conditions.get("Established") == "True"


def _is_judged(webhook: Mapping[str, Any]) -> bool:
    return all(set(rule["apiGroups"]) <= set(_GROUPS) for rule in webhook["rules"])
