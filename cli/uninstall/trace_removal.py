# SPDX-License-Identifier: Apache-2.0
"""Removes what was found of a cluster's traces, Nodes first.

The record of an open change stands on a Lease: it goes after its Node was given back, so that a
run that is interrupted finds it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from cli.failures import UNFINISHED, CommandFailure
from cli.uninstall.cluster_traces import ClusterTraces, WholeObject
from cli.uninstall.node_traces import NodeTraces
from kube.api import NODES, DeletingApi
from kube.api_errors import ApiError, Conflict, NotFound

_TRIES: Final = 5


def remove_traces(
    api: DeletingApi, traces: ClusterTraces, again: Callable[[], ClusterTraces], *, dry_run: bool
) -> None:
    """Patch the Nodes, then delete the objects.

    ``again`` reads all anew, for Nodes that changed meanwhile: kubelets write theirs all the time.
    Raises CommandFailure that names what could not be removed, after all else was.
    """
    failed: dict[str, str] = {}
    conflicting = _patched(api, traces.nodes, failed, dry_run=dry_run)
    for _ in range(_TRIES):
        if not conflicting:
            break
        conflicting = _patched(
            api,
            (node for node in again().nodes if node.node in conflicting),
            failed,
            dry_run=dry_run,
        )
    failed.update((f"Node {node}", "it changes too often") for node in conflicting)
    are_back = not failed
    for whole_object in traces.objects:
        if are_back or (whole_object.node and f"Node {whole_object.node}" not in failed):
            _delete(api, whole_object, failed, dry_run=dry_run)
    if failed:
        raise CommandFailure(
            "this could not be removed; run it again when its cause is gone:",
            UNFINISHED,
            details=[f"{subject}: {why}" for subject, why in sorted(failed.items())],
        )


def _patched(
    api: DeletingApi, nodes: Iterable[NodeTraces], failed: dict[str, str], *, dry_run: bool
) -> set[str]:
    """Patch the Nodes; return the names of those that changed since they were read."""
    changed: set[str] = set()
    for node in nodes:
        if node.patch is None:
            continue
        try:
            api.patch(NODES, node.node, node.patch, dry_run=dry_run)
        except Conflict:
            changed.add(node.node)
        except NotFound:
            continue  # it is gone, with all that stood on it
        except ApiError as error:
            failed[f"Node {node.node}"] = str(error)
    return changed


def _delete(
    api: DeletingApi, whole_object: WholeObject, failed: dict[str, str], *, dry_run: bool
) -> None:
    try:
        api.delete(
            whole_object.resource,
            whole_object.name,
            uid=whole_object.uid,
            namespace=whole_object.namespace,
            dry_run=dry_run,
        )
    except NotFound:
        return
    except ApiError as error:
        name = f"{whole_object.resource.kind} {whole_object.namespace}/{whole_object.name}"
        failed[name] = str(error)
