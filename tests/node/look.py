# SPDX-License-Identifier: Apache-2.0
"""The cluster that tests have, for a person: ``.venv/bin/python -m tests.node.look [NODES]``.

It prints how to look into it, and ends with Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path

from tests.controlplane import prepare
from tests.controlplane.builds import NotPreparedError, binaries
from tests.controlplane.families import CONTROLLER_MANAGER_MINOR, ETCD, KUBERNETES, NODE_PROGRAMS
from tests.node import needs
from tests.node.real_cluster import RealCluster
from tests.node.real_node import NAMESPACES


def main(nodes: int) -> int:
    """Run it until somebody ends it; the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):  # SIGINT is ignored in a shell's background
        signal.signal(number, signal.default_int_handler)
    try:
        needs.demand()
        families = (ETCD, KUBERNETES[CONTROLLER_MANAGER_MINOR], *NODE_PROGRAMS)
        if code := prepare.main(["--only", ",".join(it.name for it in families)]):
            return code
        prepare.say("starting the control plane and the nodes")
        with (
            tempfile.TemporaryDirectory(prefix="gpuscape-real-") as folder,
            RealCluster.start(Path(folder), nodes=nodes) as cluster,
        ):
            cluster.install()
            prepare.say(advice(cluster))
            signal.pause()
    except NotPreparedError as error:
        prepare.say(str(error))
        return 1
    except KeyboardInterrupt:
        prepare.say("ended")
    return 0


def advice(cluster: RealCluster) -> str:
    """What to type to look into it."""
    kubectl = binaries(KUBERNETES[CONTROLLER_MANAGER_MINOR])
    lines = [
        f"export KUBECONFIG={cluster.plane.kubeconfig()} PATH={kubectl}:$PATH",
        "kubectl -n gpuscape get pods -o wide",
    ]
    for node in cluster.nodes.values():
        enter = f"nsenter --target={node.first_process} {' '.join(NAMESPACES)}"
        ctr = f"{enter} {node.program('ctr')} --namespace=k8s.io"
        lines += [
            f"# {node.name}: {node.folder}/logs, {node.folder}/var-log/pods",
            f"{ctr} containers ls",
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else 2))
