# SPDX-License-Identifier: Apache-2.0
"""Requests of kube-scheduler to an HTTP extender, and the answers that it accepts. Pure.

Source: k8s.io/kube-scheduler, extender/v1/types.go, whose fields have no tags, so Go's names are
the keys; pkg/scheduler/extender.go. Measured with 1.36: an answer with a float in it is dropped
whole, a host that stands in it twice has its scores added, and one that is missing has 0.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from base.errors import BadInput
from kube.objects.pod import Pod
from kube.objects.typed_object import TypedObject
from scheduler.rank_levels import BEST

MOST_BYTES: Final = 8 << 20
"""Size of a request: :data:`MOST_NAMES` names, or :data:`MOST_NODES` Nodes, and the pod."""
MOST_NAMES: Final = 20_000
"""Names in one request: a body of that size could have a million, which take 200 MiB as objects."""
MOST_NODES: Final = 200
"""Whole Nodes in one request; above that, reading them costs more than they are worth."""
SHORT: Final = 500
"""Candidates, above which scores are relative to the most frequent rank, whose nodes are left out:
reading a list of thousands costs the scheduler more than all that we do."""
_FEW_BYTES: Final = 128 << 10
"""A body of that size has no list that is worth counting before it is read."""
_MOST_METADATA: Final = 20 * MOST_NODES
"""Keys of this name in the text of whole Nodes, which have a few inside, too."""
_SEND_NAMES: Final = "set nodeCacheCapable: true for this extender, so that only names are sent"

NEUTRAL: Final = b"[]"
"""No scores: the scheduler's other opinions decide."""


class TooLarge(BadInput):
    """The request has more than the extender reads."""


class NodeMeta(msgspec.Struct, frozen=True):
    """The part of a Node's metadata that the extender reads."""

    name: str


class WholeNode(msgspec.Struct, frozen=True):
    """A whole Node, of which only the name counts: the rest is known from watches."""

    metadata: NodeMeta


class NodeList(msgspec.Struct, frozen=True):
    """Whole Nodes."""

    items: list[WholeNode] | None = None


class ExtenderArgs(TypedObject, frozen=True, rename="pascal"):
    """The body of a request: a pod and the candidate nodes."""

    pod: Pod
    node_names: list[str] | None = None
    """Names of the candidates, sent with ``nodeCacheCapable: true``."""
    nodes: NodeList | None = None
    """Whole candidates, sent without ``nodeCacheCapable``."""


class HostPriority(msgspec.Struct, frozen=True, rename="pascal"):
    """The score of a host."""

    host: str
    score: Annotated[int, Meta(ge=-BEST, le=BEST)]
    """The rank, 0 to 10; among more than 500 candidates less the most frequent rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderCall:
    """A request that was read: the pod, and the names of the candidate nodes."""

    pod: Pod
    nodes: Sequence[str] | None
    """Each once, as they came; None where the request names none at all."""


def read_extender_call(body: bytes | bytearray) -> ExtenderCall:
    """The request in ``body``. Raises BadInput that names the key, TooLarge for too many Nodes."""
    try:
        if len(body) > _FEW_BYTES:
            _check_sizes(_LISTS.decode(body))
        args = ExtenderArgs.from_json(body)
    except TooLarge:
        raise
    except (BadInput, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadInput(f"the body is no ExtenderArgs: {error}") from error
    return ExtenderCall(pod=args.pod, nodes=_names(args))


class _Lists(msgspec.Struct, frozen=True, rename="pascal"):
    """The lists of a request as text."""

    node_names: msgspec.Raw = msgspec.Raw(b"")
    nodes: msgspec.Raw = msgspec.Raw(b"")


# before there is a thread: msgspec looks at a type where it is first decoded, and where two threads
# do so at once the process ends by SIGSEGV (0.22.0)
msgspec.json.decode(b'{"Pod":{}}', type=ExtenderArgs)
_LISTS: Final = msgspec.json.Decoder(_Lists)


def _check_sizes(lists: _Lists) -> None:
    """Raises TooLarge for lists that take far more memory as objects than as text."""
    names = bytes(lists.node_names).count(b",") + 1
    if names > MOST_NAMES:
        raise TooLarge(f"{names} names, more than {MOST_NAMES}")
    nodes = bytes(lists.nodes).count(b'"metadata"')
    if nodes > _MOST_METADATA:
        raise TooLarge(f"about {nodes} whole Nodes, more than {MOST_NODES}: {_SEND_NAMES}")


def _names(args: ExtenderArgs) -> Sequence[str] | None:
    """Names of the candidates, each once, in order: those listed, else those of the whole Nodes; a
    scheduler sends only one of both."""
    nodes = None if args.nodes is None else args.nodes.items or ()
    if nodes is not None and len(nodes) > MOST_NODES:
        raise TooLarge(f"{len(nodes)} whole Nodes, more than {MOST_NODES}: {_SEND_NAMES}")
    names = args.node_names
    if names is None and nodes is not None:
        names = [node.metadata.name for node in nodes]
    # a scheduler repeats none: the check costs half of making a list
    if names is None or len(set(names)) == len(names):
        return names
    return list(dict.fromkeys(names))


def answer(nodes: Sequence[str], ranks: Sequence[int]) -> bytes:
    """A HostPriorityList of these ranks, which are 0 to 10 in it whatever was computed: more would
    be taken, and outweigh every other opinion.

    Where all are equal it is empty. Above :data:`SHORT` nodes the most frequent rank is taken off
    all of them, and nodes with it are left out, which is the same as 0. Only differences count for
    the scheduler, and these are the same, whatever the weight.
    """
    if not ranks or min(ranks) == max(ranks):
        return NEUTRAL
    scores = {rank: min(max(int(rank), 0), BEST) for rank in set(ranks)}
    if len(ranks) > SHORT:
        base = scores[Counter(ranks).most_common(1)[0][0]]
        scores = {rank: score - base for rank, score in scores.items()}
    scored: Iterable[tuple[str, int]] = zip(nodes, map(scores.__getitem__, ranks), strict=True)
    if len(ranks) > SHORT:
        scored = (host_score for host_score in scored if host_score[1])
    return msgspec.json.encode(list(itertools.starmap(HostPriority, scored)))
