# SPDX-License-Identifier: Apache-2.0
"""``gpuscape doctor``: what is wrong on this node, and how to mend it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final

import click

from base.errors import BadInput
from base.process import process_signals
from cli import options
from cli.doctor import doctor_report
from cli.lazy_commands import LazyCommands, refuse_options
from cli.options import Load
from diagnosis.facts.cluster_facts import ClusterFacts
from diagnosis.facts.local_facts import LocalFacts, node_name, read_local_facts
from diagnosis.finding import examine
from diagnosis.finding_catalog import LOCAL_CHECKS
from discovery.model import NodeSnapshot
from kube.objects.node import Node

COMMANDS: Final[Mapping[str, str]] = {
    "pod": "cli.doctor.doctor_pod",
    "node": "cli.doctor.doctor_node",
}
"""Subcommand to the module that holds it as ``command``."""
SETTINGS: Final = (
    *("standalone", "node-name", "kubeconfig", "service-account", "namespace", "pod-uid", "sink"),
    *("allow-unconfined", "pod-resources-socket", "resource-slices", "web-config-file"),
    *("mig-mode", "mig-strategy", "sharing-config", "label-rules", "actuator-socket"),
    *("counters", "counters-from", "mig-config"),
    *options.READING,
)
"""Settings of the agent that checks depend on; its other settings are read too, but no options."""


class _Doctor(options.BySubject, LazyCommands):
    """A group that runs without a subcommand."""

    modules = COMMANDS


@click.command(
    cls=_Doctor,
    invoke_without_command=True,
    epilog="""\b
Examples:
  kubectl -n gpuscape exec POD -c agent -- gpuscape doctor
      in the agent's pod, with its settings and its account
  sudo gpuscape doctor --kubeconfig /etc/kubernetes/kubelet.conf
      on the host: also the kubelet's checkpoint, its plugins' sockets and its configuration
  gpuscape doctor --standalone -o wide       a machine without a cluster; all checks
  gpuscape doctor --bundle support.tar.gz    what a bug report needs; asks before it writes
  kubectl -n gpuscape exec POD -c agent -- gpuscape doctor --bundle - --yes > support.tar.gz
  gpuscape doctor pod team-a/train-0         why a pod is pending, or was refused
  gpuscape doctor node gpu-7                 a node as the cluster shows it

\b
Each finding has a name, a severity (error, warning, note), a cause, a fix and a page of the
documentation: docs/doctor.md lists all. A check that could not be made is listed with the reason
and does not count as healthy; -o wide lists every check.

\b
The command changes nothing. The device reader reads the GPUs and gives up after its deadlines;
while the Node requests the release of its GPUs, it reads none. The admission policies are
checked by dry runs, in the agent's pod only. No request takes longer than 10 seconds.

\b
Exit codes:
  0  nothing found except notes, and every check was made
  1  an error or a warning was found
  2  bad input
  4  nothing found, but a check could not be made""",
)
@click.option(
    "--bundle",
    metavar="FILE.tar.gz",
    type=click.Path(path_type=Path),
    help="Write findings, recording, settings, versions and logs into FILE, without secrets;"
    " - is standard output.",
)
@click.option("--yes", is_flag=True, help="Write the bundle without asking.")
@click.option(
    "--kubelet-config",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The kubelet's configuration.  [default: var/lib/kubelet/config.yaml below host-root]",
)
@options.output("table", "wide", "json", "yaml")
@options.settings(*SETTINGS)
@click.pass_context
def command(
    ctx: click.Context,
    load: Load,
    bundle: Path | None,
    yes: bool,
    kubelet_config: Path | None,
    output: str,
) -> None:
    """Find out what is wrong on this node: driver, GPUs, kubelet, API rights, policies in force.

    Without a subcommand it examines the node that it runs on, with the agent's settings.
    """
    if ctx.invoked_subcommand is not None:
        process_signals.release_signals()
        refuse_options(ctx, ctx.invoked_subcommand)
        return
    if bundle is None and yes:
        raise BadInput("--yes is for --bundle")
    settings = load()
    facts = read_local_facts(settings, kubelet_config=kubelet_config)
    examination = examine(LOCAL_CHECKS, facts)
    subject = node_name(settings) if settings.simulate is None else settings.simulate
    named = component_versions(facts)
    if bundle is not None:
        from cli.doctor.bundle.support_bundle import offer_bundle  # few need it

        offer_bundle(
            bundle,
            settings,
            doctor_report.examination_document(subject, examination, named),
            yes=yes,
        )
        return
    doctor_report.show_examination(subject, examination, named, output)
    doctor_report.exit_by_findings(examination)


def component_versions(facts: LocalFacts) -> dict[str, str]:
    """Versions of gpuscape, driver, Kubernetes, kubelet and runtime, as far as they are known."""
    return dict(_versions(facts))


def _versions(facts: LocalFacts) -> Iterator[tuple[str, str]]:
    yield "gpuscape", version("gpuscape")
    if isinstance(facts.machine, NodeSnapshot):
        driver = facts.machine.driver
        yield from ((name, text) for name, text in _of_driver(driver.version, driver.nvml_version))
    if isinstance(facts.cluster, ClusterFacts):
        yield "Kubernetes", facts.cluster.server.info.version
        if facts.cluster.agent_image:
            yield "image", facts.cluster.agent_image
        node = facts.cluster.node
        info = Node.from_object(node if isinstance(node, dict) else {}).status.node_info
        if info.kubelet_version:
            yield "kubelet", info.kubelet_version
        if info.container_runtime_version:
            yield "runtime", info.container_runtime_version


def _of_driver(driver: str | None, nvml: str | None) -> Iterator[tuple[str, str]]:
    if driver:
        yield "driver", driver
    if nvml:
        yield "NVML", nvml
