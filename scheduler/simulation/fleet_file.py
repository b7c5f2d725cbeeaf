# SPDX-License-Identifier: Apache-2.0
"""A fleet to simulate, as a person writes it or as kubectl prints it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from api import keys, topology_annotation
from api.topology_annotation import TopologyAnnotation
from base.errors import BadInput

MOST_NODES: Final = 5000
MOST_BYTES: Final = 256 << 20
"""Size of a file at most: MOST_NODES Nodes as kubectl prints them, with 50 KiB each."""
_KEYS: Final = ("machine", "topology", "count")
_SHAPE: Final = (
    "a list of entries such as {machine: dgx-a100, count: 8}, or kubectl's list of Nodes"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Nodes of a fleet file that have the same topology."""

    count: int
    machine: str | None = None
    """Name of a simulated machine, or path of a machine's file."""
    topology: TopologyAnnotation | None = None
    """Topology of the nodes, where no machine is named."""


def read_node_groups(text: str, source: str) -> tuple[NodeGroup, ...]:
    """The groups of a fleet file, YAML or JSON; Nodes without our annotation are passed over.

    Raises BadInput that names the entry or Node, and the key.
    """
    from base.yaml_places import CoreLoader, read_yaml

    content = read_yaml(text, source, loader=CoreLoader, most_bytes=MOST_BYTES).content()
    if isinstance(content, dict) and isinstance(content.get("items"), list):
        groups = tuple(_of_nodes(content["items"], source))
        if not groups:
            raise BadInput(f"{source}: no Node carries {keys.TOPOLOGY}: does the agent run there?")
    elif isinstance(content, list) and content:
        groups = tuple(
            _group(entry, f"{source}: entry {index}") for index, entry in enumerate(content, 1)
        )
    else:
        raise BadInput(f"{source} is no fleet: write {_SHAPE}")
    nodes = sum(group.count for group in groups)
    if nodes > MOST_NODES:
        raise BadInput(f"{source} has {nodes} nodes, more than {MOST_NODES}")
    return groups


def _of_nodes(items: list[Any], source: str) -> Iterator[NodeGroup]:
    for node in items:
        try:
            meta = node["metadata"]
            name, text = meta["name"], (meta.get("annotations") or {}).get(keys.TOPOLOGY)
        except (TypeError, KeyError, AttributeError) as error:
            raise BadInput(f"{source}: its items are no Nodes: take kubectl's -o json") from error
        if text is not None:
            yield NodeGroup(count=1, topology=_topology(text, f"{source}: Node {name}"))


def _group(entry: Any, place: str) -> NodeGroup:
    if not isinstance(entry, Mapping) or not {"machine", "topology"} & entry.keys():
        raise BadInput(f"{place} names neither machine nor topology: write {_SHAPE}")
    unknown = [key for key in entry if key not in _KEYS]
    if unknown:
        raise BadInput(f"{place}: {unknown[0]!r} is no key; there are {', '.join(_KEYS)}")
    count = entry.get("count", 1)
    if not isinstance(count, int) or not 1 <= count <= MOST_NODES:
        raise BadInput(f"{place}: count is {count!r}, not a number of 1 to {MOST_NODES}")
    if "machine" not in entry:
        return NodeGroup(count=count, topology=_topology(entry["topology"], place))
    if "topology" in entry:
        raise BadInput(f"{place} names machine and topology: keep one")
    return NodeGroup(count=count, machine=str(entry["machine"]))


def _topology(text: Any, place: str) -> TopologyAnnotation:
    try:
        annotation = topology_annotation.decode(text) if isinstance(text, str) else None
    except BadInput as error:
        raise BadInput(f"{place}: {error}") from error
    if annotation is None or not annotation.n:
        raise BadInput(f"{place}: topology is no text of annotation {keys.TOPOLOGY} with GPUs")
    return annotation
