# SPDX-License-Identifier: Apache-2.0
"""Nodes of jobs, counted by pod as these come and go. Pure."""

from __future__ import annotations

from typing import Generic, TypeVar

_Node = TypeVar("_Node")


class JobNodes(Generic[_Node]):
    """Nodes that have pods of each job. For one thread at a time."""

    def __init__(self) -> None:
        self._pods: dict[str, dict[_Node, int]] = {}
        """Job to its nodes, and how many of its pods each has."""

    def of(self, job: str) -> tuple[_Node, ...]:
        """Nodes that have pods of this job, those of its first pods first."""
        return tuple(self._pods.get(job, ()))

    def count(self, job: str | None, node: _Node, pods: int) -> None:
        """So many more pods of a job are on a node, or fewer; None: pods of no job."""
        if job is None:
            return
        nodes = self._pods.setdefault(job, {})
        nodes[node] = nodes.get(node, 0) + pods
        if not nodes[node]:
            del nodes[node]
        if not nodes:
            del self._pods[job]
