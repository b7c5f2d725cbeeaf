# SPDX-License-Identifier: Apache-2.0
"""``gpuscape doctor pod``: why a pod is pending, was refused, or is not made."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import click

from agent.settings.agent_settings import AgentSettings
from base.errors import BadInput
from cli import options
from cli.doctor import doctor_report
from cli.mig.cluster.cluster_nodes import timeout_option
from cli.options import Load
from diagnosis.facts import cluster_facts
from diagnosis.facts.pod_facts import read_pod
from diagnosis.finding import examine
from diagnosis.finding_catalog import POD_CHECKS

if TYPE_CHECKING:
    from kube.client import ApiClient

_ME: Final = "gpuscape-doctor"


@click.command(
    epilog="""\b
Examples:
  gpuscape doctor pod team-a/train-0
  gpuscape doctor pod train-0 -n team-a -o json
  gpuscape doctor pod train -n team-a       a Job whose pods are not created

\b
The command filters nodes as kube-scheduler does, and considers only nodes with enough GPUs;
`gpuscape scheduler explain POD` shows every node. It does not check volumes, affinity to other
pods and resource claims. It reads pods, Nodes and Events with your own rights.

\b
Exit codes:
  0  nothing found except notes
  1  an error or a warning was found
  2  bad input, a pod that does not exist
  4  the cluster could not be read, or nothing was found but a check could not be made"""
)
@click.argument("pod", metavar="[NAMESPACE/]NAME")
@click.option("-n", "--namespace", metavar="NAME", help="Namespace of the pod.  [default: default]")
@timeout_option
@options.output("table", "wide", "json", "yaml")
@options.settings("kubeconfig")
def command(load: Load, pod: str, namespace: str | None, timeout: float, output: str) -> None:
    """Find out why a pod does not run. NAME may be a Job, ReplicaSet or StatefulSet too."""
    place, name = _named(pod, namespace)
    with contextlib.closing(_client(load())) as api:
        facts = read_pod(api, place, name, timeout)
    examination = examine(POD_CHECKS, facts)
    doctor_report.show_examination(
        f"{facts.maker or 'Pod'} {facts.title}",
        examination,
        {"Kubernetes": facts.server.info.version},
        output,
    )
    doctor_report.exit_by_findings(examination)


def _named(pod: str, namespace: str | None) -> tuple[str, str]:
    """Namespace and name. Raises BadInput where two namespaces are given."""
    place, slash, name = pod.rpartition("/")
    if slash and namespace is not None and namespace != place:
        raise BadInput(f"two namespaces: {place} in {pod}, and -n {namespace}: give one")
    if not name or (slash and not place) or "/" in place:
        raise BadInput(f"{pod!r} is no pod: write NAMESPACE/NAME, or NAME and -n NAMESPACE")
    return place or namespace or "default", name


def _client(settings: AgentSettings) -> ApiClient:
    return cluster_facts.doctor_client(_ME, cluster_facts.cluster_access(settings))
