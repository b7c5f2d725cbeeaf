# SPDX-License-Identifier: Apache-2.0
"""Answers of the extender to its requests; no sockets here. For any thread."""

from __future__ import annotations

from typing import Final

import msgspec

from base.errors import BadInput
from placement.class_tables import ScoreTables
from scheduler.cluster.node_cache import NodeCache
from scheduler.cluster.pod_gpu_request import Rules, ask
from scheduler.extender import extender_messages
from scheduler.extender.extender_metrics import ExtenderMetrics, Neutral
from scheduler.extender.node_detail import described
from scheduler.node_ranking import NodeRanker
from scheduler.placement_aims import ProductOrder
from scheduler.score_explanation import explain_ranks, nothing_requested

_NO_NODES: Final = "the body is no ExtenderArgs: `NodeNames` and `Nodes` are missing"


class Extender:
    """Ranks nodes for pods, and says why. Nothing in it waits."""

    def __init__(
        self,
        cache: NodeCache,
        tables: ScoreTables,
        rules: Rules,
        measured: ExtenderMetrics,
        order: ProductOrder = ProductOrder.FASTEST,
    ) -> None:
        self._cache = cache
        self._tables = tables
        self._rules = rules
        self._metrics = measured
        self._judge = NodeRanker(cache, tables, order)

    @property
    def is_ready(self) -> bool:
        """Whether its answers rest on all Nodes, Leases and pods of the cluster."""
        return self._cache.synced

    def prioritize(self, body: bytes | bytearray, *, only_known: bool = False) -> bytes:
        """A HostPriorityList for ExtenderArgs, empty until it is ready. Raises BadInput.

        ``only_known``: raises OutcomeUnknown where an outcome has to be worked out for it first.
        """
        call = extender_messages.read_extender_call(body)
        if call.nodes is None:
            raise BadInput(_NO_NODES)
        request = ask(call.pod, self._rules)
        if request is None:
            return extender_messages.NEUTRAL
        if not self.is_ready:
            self._metrics.neutral(Neutral.UNSYNCED)
            return extender_messages.NEUTRAL
        ranking = self._judge.rank(request, call.nodes, only_known=only_known)
        self._metrics.judged(len(call.nodes), ranking.unseen)
        return extender_messages.answer(call.nodes, ranking.ranks)

    def explain(self, body: bytes | bytearray) -> bytes:
        """An Explanation for ExtenderArgs; without nodes in them of all there are. Raises BadInput.

        A pod that asks for no whole GPU has no containers and no nodes in it.
        """
        call = extender_messages.read_extender_call(body)
        request = ask(call.pod, self._rules)
        if request is None:
            return msgspec.json.encode(nothing_requested(call.pod.metadata.full_name))
        nodes = sorted(self._cache.names()) if call.nodes is None else call.nodes
        verdicts = self._judge.judge(request, nodes)
        return msgspec.json.encode(explain_ranks(request, verdicts, self._tables))

    def node(self, name: str) -> bytes | None:
        """All that is known of a node, as JSON; None for one that no watch has reported."""
        detail = self._cache.detail(name)
        return None if detail is None else msgspec.json.encode(described(name, detail))
