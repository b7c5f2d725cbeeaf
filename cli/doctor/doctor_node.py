# SPDX-License-Identifier: Apache-2.0
"""``gpuscape doctor node``: what is wrong with a Node, as the cluster shows it."""

from __future__ import annotations

import contextlib
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

import click

from agent.settings.agent_settings import AgentSettings
from cli import options
from cli.doctor import doctor_report
from cli.options import Load
from diagnosis.facts import cluster_facts
from diagnosis.facts.remote_node_facts import read_remote_node
from diagnosis.finding import examine
from diagnosis.finding_catalog import NODE_CHECKS

if TYPE_CHECKING:
    from kube.client import ApiClient

_ME: Final = "gpuscape-doctor"


@click.command(
    epilog="""\b
Examples:
  gpuscape doctor node gpu-7
  gpuscape doctor node gpu-7 -o json | jq -r '.findings[].name'

\b
The driver, the kubelet's files and its sockets can be checked only on the node:
  kubectl -n gpuscape exec POD -c agent -- gpuscape doctor
This command reads the Node, its pods, Leases, the agent's DaemonSet and admission policies with
your own rights, and writes nothing.

\b
Exit codes:
  0  nothing found except notes, and every check was made
  1  an error or a warning was found
  2  bad input, a node that does not exist
  4  the cluster could not be read, or nothing was found but a check could not be made"""
)
@click.argument("node")
@options.namespace("Where gpuscape is installed.")
@options.output("table", "wide", "json", "yaml")
@options.settings("kubeconfig")
def command(load: Load, node: str, namespace: str, output: str) -> None:
    """Find out what is wrong with a Node: agent, Lease, labels, GPUs offered, MIG, cordon."""
    with contextlib.closing(_client(load())) as api:
        facts = read_remote_node(api, node, namespace)
    examination = examine(NODE_CHECKS, facts)
    named = {"gpuscape": version("gpuscape"), "Kubernetes": facts.server.info.version}
    doctor_report.show_examination(f"Node {node}", examination, named, output)
    doctor_report.exit_by_findings(examination)


def _client(settings: AgentSettings) -> ApiClient:
    return cluster_facts.doctor_client(_ME, cluster_facts.cluster_access(settings))
