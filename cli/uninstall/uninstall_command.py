# SPDX-License-Identifier: Apache-2.0
"""``gpuscape uninstall``: removes what the programs have left in a cluster, names what stays."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import click

from cli import options, terminal
from cli.agreement import require_agreement
from cli.failures import REFUSED, CommandFailure
from cli.mig.cluster.cluster_nodes import kubeconfig_client
from cli.options import Load
from cli.terminal import Cell, Styled, TextTable
from cli.uninstall.cluster_traces import ClusterTraces, TraceReader
from cli.uninstall.node_traces import Kept
from cli.uninstall.trace_removal import remove_traces

_ME: Final = "gpuscape-uninstall"
_PATIENCE_SECONDS: Final = 120.0
"""Time to wait for pods that end: an actuator's pod, the slowest, has 90 s."""
_POLL_SECONDS: Final = 1.0


@click.command(
    epilog="""\b
Examples:
  gpuscape uninstall --dry-run           what goes, what stays and why; nothing is written
  helm uninstall gpuscape -n gpuscape    first: a program that runs writes again
  gpuscape uninstall
  gpuscape uninstall --yes --admin-keys -o json

\b
What goes: labels and annotations that the agent or the coordinator has written on Nodes, their
Leases, and NodeFeatures. A MIG change that was left open is undone by its record: the cordon and
the guards that the coordinator set, and the labels of the GPU operator that it paused. A key that
another program may have written stays, by the Node's managedFields. The GPUs keep their layouts.

\b
What stays is listed with the reason: what you wrote yourself (--admin-keys removes it), roles and
policies, which whatever installed them removes, and files on the nodes.

\b
It waits up to two minutes for pods that end. It works with your own rights: get, list, watch
and patch of Nodes, list and delete of Leases and NodeFeatures. Interrupted, it goes on where it
is run again.

\b
Exit codes:
  0  done, or shown with --dry-run
  2  bad input
  4  the cluster could not be read
  5  refused: programs still run, or you said no; nothing was written
  7  some of it could not be removed: run it again"""
)
@click.option("--admin-keys", is_flag=True, help="Also what you wrote: gpuscape.io/mig-layout, …")
@click.option("--dry-run", is_flag=True, help="Have the API server try each write; write nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@options.namespace("Where gpuscape was installed.")
@options.output("table", "json", "yaml")
@options.settings("kubeconfig")
def command(
    load: Load, admin_keys: bool, dry_run: bool, yes: bool, namespace: str, output: str
) -> None:
    """Remove what gpuscape has left in the cluster, once its programs are gone."""
    with contextlib.closing(kubeconfig_client(_ME, load().kubeconfig)) as api:

        def read_traces() -> ClusterTraces:
            return TraceReader(api, namespace, time.time()).read(admin_keys=admin_keys)

        traces = read_traces() if dry_run else _when_ended(read_traces, output)
        _show(traces, output)
        count = _count(traces)
        if not dry_run:
            _require_stopped(traces, namespace)
        if not count:
            _note("", "Nothing to remove.", output=output)
            return
        if not dry_run:
            question = f"Writes: {count}. Remove all that goes?"
            require_agreement(question, purpose=f" (writes: {count})", yes=yes, output=output)
        remove_traces(api, traces, read_traces, dry_run=dry_run)
    tried = f"The API server would take all {count} writes; nothing was written."
    _note("", tried if dry_run else f"Removed: {_words(traces)}.", output=output)


def _when_ended(read_traces: Callable[[], ClusterTraces], output: str) -> ClusterTraces:
    """The traces once the last pods have ended, or when the time to wait is over."""
    traces, deadline = read_traces(), time.monotonic() + _PATIENCE_SECONDS
    if traces.ending and not traces.running:
        _note(f"Waiting for pods to end: {_some(traces.ending)}", output=output)
    while traces.ending and not traces.running and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        traces = read_traces()
    return traces


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


def _require_stopped(traces: ClusterTraces, namespace: str) -> None:
    """Raises CommandFailure while something would write again."""
    programs = _some(traces.running or traces.ending)
    if not programs:
        return
    if traces.open_changes:
        raise CommandFailure(
            f"MIG changes are not over on {', '.join(traces.open_changes)}: run gpuscape mig"
            " rollout pause, and wait until gpuscape mig nodes shows none in change; then remove"
            f" the programs in namespace {namespace}, and run this again",
            REFUSED,
        )
    raise CommandFailure(
        f"gpuscape still runs in namespace {namespace} ({programs}) and would write again:"
        f" remove it first (helm uninstall gpuscape -n {namespace}, or kubectl delete -k with your"
        " kustomization)",
        REFUSED,
    )


def _show(traces: ClusterTraces, output: str) -> None:
    if output in ("json", "yaml"):
        terminal.print_data(_document(traces), output)
        return
    rows = tuple(_rows(traces))
    if rows:
        terminal.show_table(TextTable(header=("OBJECT", "FATE", "WHAT", "WHY"), rows=rows))
    for why in traces.unread_kinds:
        terminal.note(f"Not looked at: {why}")


def _rows(traces: ClusterTraces) -> Iterator[tuple[Cell, ...]]:
    goes, stays = Styled("goes", "yellow"), Styled("stays", "dim")
    for node in traces.nodes:
        name = Styled(f"Node {node.node}", "bold")
        if node.goes:
            yield name, goes, _several(node.goes), ""
        for kept in node.stays:
            yield name, stays, kept.subject, kept.why
    for whole_object in traces.objects:
        title = f"{whole_object.resource.kind} {whole_object.namespace}/{whole_object.name}"
        yield title, goes, "all of it", ""
    for kept in traces.stays:
        yield kept.subject, stays, "all of it", kept.why


def _several(keys: tuple[str, ...]) -> str:
    return keys[0] if len(keys) == 1 else f"{len(keys)} keys: {keys[0]}, … (-o yaml has all)"


def _document(traces: ClusterTraces) -> dict[str, Any]:
    return {
        "nodes": [
            {
                "node": node.node,
                "goes": list(node.goes),
                "stays": [_kept(kept) for kept in node.stays],
            }
            for node in traces.nodes
        ],
        "objects": [
            {
                "kind": whole_object.resource.kind,
                "namespace": whole_object.namespace,
                "name": whole_object.name,
            }
            for whole_object in traces.objects
        ],
        "stays": [_kept(kept) for kept in traces.stays],
        "running": [*traces.running, *traces.ending],
        "open_mig_changes": list(traces.open_changes),
        "not_looked_at": list(traces.unread_kinds),
    }


def _kept(kept: Kept) -> dict[str, str]:
    return {"what": kept.subject, "why": kept.why}


def _count(traces: ClusterTraces) -> int:
    return len(traces.objects) + sum(1 for node in traces.nodes if node.patch is not None)


def _words(traces: ClusterTraces) -> str:
    nodes = [node for node in traces.nodes if node.patch is not None]
    keys = sum(len(node.goes) for node in nodes)
    return f"{keys} keys of {len(nodes)} Nodes, {len(traces.objects)} objects"


def _note(*texts: str, output: str) -> None:
    if output == "table":
        terminal.note(*texts)
