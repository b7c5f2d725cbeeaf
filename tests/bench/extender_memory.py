# SPDX-License-Identifier: Apache-2.0
"""Memory of the extender after many requests of all kinds, in a large fleet that changes.

The real program, over TLS, beside an API server of our own that has nothing but watches: so pods
come and go as fast as requests do.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import random
import ssl
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from api import keys
from api.gpu_request import Link
from tests.agent.agent_process import SOON, until
from tests.bench.extender import settle
from tests.bench.page import Section
from tests.cluster.scheduling import GPU
from tests.scheduler.extender_process import ExtenderProcess, running
from tests.scheduler.extenders import HOST
from tests.scheduler.streamed_cluster import StreamedCluster, kubeconfig
from tests.web.certificates import authority, issued

MACHINES = ("dgx1-v100", "a100-pcie-pairs", "hgx-h100", "hgx-16")
"""Topology classes: a mesh, pairs, NVSwitch, and NVSwitch with 16 GPUs."""
NODES = 5000
REQUESTS = 100_000
EACH_CHANGE = 4
"""Requests for each change of a node."""
BUDGET_MIB = 150
FEWEST_NAMES = 5
_MOST_GPUS = 16
_SIZES = (1, 1, 1, 2, 2, 2, 3, 4, 4, *range(5, _MOST_GPUS + 1))
"""GPUs of a container."""
_WISHES = (*(None,) * 7, Link.NVLINK, Link.NVLINK, Link.NUMA)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the requests came to, and what they took."""

    requests: int
    scored: int
    """Requests whose answer had scores in it."""
    names: int
    """Of all requests together."""
    changes: int
    free_sets: dict[str, int]
    """Machine to how many different sets of free GPUs its nodes had."""
    ready_mib: float
    """Resident once all of the fleet was read."""
    after_mib: float
    peak_mib: float
    """Most resident at any time, as the kernel keeps it."""


def measure(nodes: int = NODES, requests: int = REQUESTS, *, seed: int = 1) -> Measured:
    """Ask so often, with so many nodes.

    Raises AssertionError where an answer is no 200, and where the extender does not know all
    that is free at the end.
    """
    chance = random.Random(seed)  # noqa: S311  # has to repeat
    cluster = StreamedCluster(MACHINES, nodes, seed=seed)
    asked = scored = changes = 0
    with _extender(cluster) as (helper, connection):
        pid = helper.process.pid
        ready_mib = _status_mib(pid, "VmRSS")
        encoded = [json.dumps(name).encode() for name in cluster.names]
        for number in range(requests):
            if number % EACH_CHANGE == 0:
                cluster.change()
                changes += 1
            some = _some(encoded, chance)
            asked += len(some)
            scored += b'"Score"' in _answer(connection, _body(_pod(chance), some))
        until(lambda: _free_gpus(connection) == cluster.free_gpus)  # the last changes reached it
        return Measured(
            requests=requests,
            scored=scored,
            names=asked,
            changes=changes,
            free_sets={machine: len(found) for machine, found in cluster.free_sets.items()},
            ready_mib=ready_mib,
            after_mib=_status_mib(pid, "VmRSS"),
            peak_mib=_status_mib(pid, "VmHWM"),
        )


def section() -> Section:
    """Measure, and say it."""
    seen = measure()
    return Section(
        title="Memory of the scheduler extender",
        text=(
            f"{NODES:,} nodes in {len(MACHINES)} topology classes, one of them with 16 GPUs, "
            "watched through an API server that has nothing but these watches. "
            f"{seen.requests:,} requests over TLS with a client certificate, one after the "
            f"other, of {FEWEST_NAMES} to {NODES:,} names ({seen.names / seen.requests:.0f} on "
            f"average), for pods of 1 to {_MOST_GPUS} GPUs in up to four containers, some with a "
            f"wish for links or a NIC. Beside them pods come and go, {seen.changes:,} in all, on "
            "any free GPUs, which left "
            f"{max(seen.free_sets.values()):,} different sets of free GPUs on nodes of 16. "
            "Memory is all that is resident, shared files too; the peak is the kernel's."
        ),
        rows=(
            ("ready", f"{seen.ready_mib:.0f} MiB"),
            (f"after these requests (budget {BUDGET_MIB} MiB)", f"{seen.after_mib:.0f} MiB"),
            ("peak", f"{seen.peak_mib:.0f} MiB"),
            ("requests that were answered with scores", f"{seen.scored:,}"),
        ),
    )


@contextlib.contextmanager
def _extender(
    cluster: StreamedCluster,
) -> Iterator[tuple[ExtenderProcess, http.client.HTTPSConnection]]:
    """It follows this cluster and has read all of it; with a connection of a scheduler."""
    ours = authority("ours")
    with tempfile.TemporaryDirectory() as made, cluster.serving() as server:
        folder = Path(made)
        issued(ours, "server").write(folder)
        issued(ours, "system:kube-scheduler", ()).write(folder, "client")
        (folder / "ca.crt").write_bytes(ours.pem)
        options = {
            "tls-cert-file": folder / "tls.crt",
            "tls-private-key-file": folder / "tls.key",
            "client-ca-file": folder / "ca.crt",
            "budget": f"{SOON:g}s",  # no answer is left out because this machine is busy
        }
        context = ssl.create_default_context(cadata=ours.pem.decode())
        context.load_cert_chain(folder / "client.crt", folder / "client.key")
        named = [f"--{name}={value}" for name, value in options.items()]
        with running(kubeconfig(folder, server), *named) as helper:
            until(lambda: sum(entry["message"] == "cache synced" for entry in helper.logged) == 3)
            settle(helper.process.pid)  # score tables are worked out after the start
            connection = http.client.HTTPSConnection(
                HOST, helper.port, timeout=SOON, context=context
            )
            with contextlib.closing(connection):
                yield helper, connection


def _some(names: Sequence[bytes], chance: random.Random) -> Sequence[bytes]:
    """A part of these: as often tens as hundreds as thousands."""
    fewest = min(FEWEST_NAMES, len(names))
    count = round(math.exp(chance.uniform(math.log(fewest), math.log(len(names)))))
    first = chance.randrange(len(names))
    return [*names[first : first + count], *names[: max(0, first + count - len(names))]]


def _pod(chance: random.Random) -> dict[str, Any]:
    """One that asks for GPUs, in one container mostly."""
    left, containers = _MOST_GPUS, []
    for _ in range(chance.choice((1, 1, 1, 1, 2, 2, 3, 4))):
        gpus = min(chance.choice(_SIZES), left)
        containers.append({"resources": {"limits": {GPU: str(gpus)}}})
        left -= gpus
        if not left:
            break
    first = len(containers) // 3 if chance.random() < 0.3 else 0
    wished = chance.choice(_WISHES)
    annotations: dict[str, str] = {keys.LINK: wished} if wished else {}
    annotations |= {keys.NIC: "true"} if chance.random() < 0.1 else {}
    name = f"asked-{chance.randrange(10**9)}"
    return {
        "metadata": {"name": name, "namespace": "jobs", "uid": name, "annotations": annotations},
        "spec": {"initContainers": containers[:first], "containers": containers[first:]},
    }


def _body(pod: dict[str, Any], names: Sequence[bytes]) -> bytes:
    head = json.dumps({"Pod": pod, "Nodes": None}).encode()
    return b'%s,"NodeNames":[%s]}' % (head[:-1], b",".join(names))


def _answer(connection: http.client.HTTPSConnection, body: bytes) -> bytes:
    connection.request("POST", "/v1/prioritize", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = response.read()
    assert response.status == HTTPStatus.OK, (response.status, answer)
    return answer


def _free_gpus(connection: http.client.HTTPSConnection) -> int:
    """Of all nodes that the extender can score, by its own metrics."""
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    free = [line for line in lines if line.startswith("gpuscape_scheduler_class_free_gpus{")]
    return sum(round(float(line.rpartition(" ")[2])) for line in free)


def _status_mib(pid: int, row: str) -> float:
    """Source: /proc/<pid>/status, in kB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == row:
            return int(value.split()[0]) / 1024
    raise ValueError(f"process {pid} has no {row}")
