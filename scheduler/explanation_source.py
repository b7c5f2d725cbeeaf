# SPDX-License-Identifier: Apache-2.0
"""Explanations of scores, from a running extender or from the cluster itself."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from base.errors import BadInput, Unreadable
from base.files import read_text
from base.words import did_you_mean
from kube.api import PRIORITY_CLASSES, Api, Object
from kube.api_errors import ApiError
from kube.objects.pod import Pod
from kube.objects.priority_class import PriorityClass, with_priority
from kube.present_objects import present_objects
from placement.class_tables import ScoreTables
from scheduler.cluster.cluster_reading import ClusterReading, wait_until
from scheduler.cluster.node_cache import NodeCache
from scheduler.cluster.pod_gpu_request import Rules, ask
from scheduler.cluster.watches import Watches
from scheduler.extender.extender_messages import SHORT
from scheduler.extender.scheduler_settings import SchedulerSettings
from scheduler.filters import node_filters
from scheduler.filters.filter_notes import NOT_APPLIED, notes
from scheduler.filters.node_filters import FilteredNodes
from scheduler.node_ranking import NodeRanker
from scheduler.score_explanation import Explanation, explain_ranks, nothing_requested

WORKLOADS: Final = ("Deployment", "Job", "ReplicaSet", "StatefulSet")
"""Kinds whose controllers make pods from a template at ``spec.template``."""
RELATIVE: Final = (
    f"Of more than {SHORT} candidates the extender answers how far each rank is from the most "
    "frequent one: differences stay the same."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderClient:
    """A running extender, with its URL and the files for TLS."""

    server: str
    """URL, with or without the path under which it is configured."""
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None

    @property
    def url(self) -> str:
        """URL at which the extender explains scores."""
        return f"{self.server.rstrip('/').removesuffix('/v1')}/v1/explain"


def read_pod_manifest(file: Path) -> Object:
    """The pod in a file of YAML or JSON, or the pod that its Job or Deployment would make.

    Raises BadInput.
    """
    from base.yaml_places import CoreLoader, read_yaml

    read = read_yaml(read_text(file), str(file), loader=CoreLoader).content()
    pod = _pod_in(read)
    if pod is None:
        kinds = f"{', '.join(WORKLOADS[:-1])} or {WORKLOADS[-1]}"
        raise BadInput(f"{file} holds no Pod: give one manifest with kind: Pod, {kinds}")
    typed_pod = _read(pod, str(file))
    try:
        node_filters.check_constraints(typed_pod)
    except BadInput as error:
        raise BadInput(f"{file}: {error}") from error
    return pod


def _pod_in(content: Any) -> Object | None:
    """The pod in a manifest; None where it holds neither a pod nor a workload.

    A workload's pod has the template's metadata and specification, and the workload's name.
    """
    match content:
        case {"kind": "Pod"}:
            pod: Object = content
            return pod
        case {
            "kind": kind,
            "metadata": dict() as metadata,
            "spec": {"template": dict() as template},
        }:
            template_metadata = template.get("metadata", {})
            if kind in WORKLOADS and "spec" in template and isinstance(template_metadata, dict):
                identity = {key: metadata[key] for key in ("name", "namespace") if key in metadata}
                return {
                    "kind": "Pod",
                    "metadata": {**template_metadata, **identity},
                    "spec": template["spec"],
                }
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedPod:
    """A pod to explain: as the API server has it, or as a manifest does."""

    manifest: Object
    is_there: bool
    """The pod is in the cluster: the node that it is bound to is no constraint."""

    @property
    def constraints(self) -> Pod:
        """The pod as the filters read it, not bound to a node. Raises BadInput."""
        pod = _read(self.manifest, "the pod")
        if not self.is_there:
            return pod
        return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))


def candidate_nodes(api: Api, pod: ExplainedPod, timeout_seconds: float) -> FilteredNodes:
    """The cluster's nodes, as the scheduler's filters divide them for the pod.

    Raises Unreadable where not all of the cluster could be read in time.
    """
    constraints = _with_priority(api, pod.constraints)
    with closing(ClusterReading(api)) as reading:
        wait_until(lambda: reading.is_whole, lambda: reading.why_not, timeout_seconds)
        return reading.filtered(constraints)


def extender_explanation(
    extender: ExtenderClient,
    pod: ExplainedPod,
    filtered_nodes: FilteredNodes | None,
    timeout_seconds: float,
) -> Explanation:
    """The explanation of a running extender for the candidates, for all nodes without filters.

    Raises Unreadable where it does not answer, or answers something else.
    """
    import urllib3

    names = None if filtered_nodes is None else filtered_nodes.candidates
    body = msgspec.json.encode({"Pod": pod.manifest, "NodeNames": names})
    files = (extender.ca_file, extender.cert_file, extender.key_file)
    ca, certificate, key = (None if file is None else str(file) for file in files)
    try:
        with urllib3.PoolManager(ca_certs=ca, cert_file=certificate, key_file=key) as pool:
            answer = pool.request(
                "POST",
                extender.url,
                body=body,
                headers={"Content-Type": "application/json"},
                timeout=timeout_seconds,
                retries=False,
                redirect=False,
            )
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise Unreadable(f"{extender.url} does not answer: {error}") from error
    if answer.status != 200:
        text = answer.data[:200].decode(errors="replace").strip()
        raise Unreadable(f"{extender.url} answers {answer.status}: {text}")
    try:
        explained = msgspec.json.decode(answer.data, type=Explanation)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise Unreadable(f"{extender.url} is no extender of ours: {error}") from error
    return _with_filters(explained, pod, filtered_nodes)


def cluster_explanation(
    api: Api,
    pod: ExplainedPod,
    settings: SchedulerSettings,
    *,
    filters: bool,
    timeout_seconds: float,
) -> Explanation:
    """The explanation of an extender with these settings, from the cluster as it is now.

    The pod counts as not yet on a node. Without ``filters`` all nodes are candidates. Raises
    Unreadable where not all of the cluster could be read in time.
    """
    constraints = pod.constraints
    rules = Rules(gpu=settings.gpu_resource, nics=frozenset(settings.nic_resources))
    request = ask(constraints, rules)
    if request is None:
        return nothing_requested(constraints.metadata.full_name)
    if filters:
        constraints = _with_priority(api, constraints)
    tables = ScoreTables(policies=settings.policies)
    cache = NodeCache(tables)
    watches = Watches(api, cache, namespace=settings.namespace, rules=rules)
    with ExitStack() as stack:
        stack.enter_context(closing(watches))
        watches.start()
        reading = stack.enter_context(closing(ClusterReading(api))) if filters else None
        wait_until(
            lambda: cache.synced and (reading is None or reading.is_whole),
            lambda: "; ".join(watches.down.values()) or (reading.why_not if reading else ""),
            timeout_seconds,
        )
        filtered_nodes = reading.filtered(constraints) if reading else None
    cache.pod_gone(request.uid)
    names = sorted(cache.names()) if filtered_nodes is None else filtered_nodes.candidates
    verdicts = NodeRanker(cache, tables, settings.product_order).judge(request, names)
    return _with_filters(explain_ranks(request, verdicts, tables), pod, filtered_nodes)


def limited_to_nodes(explanation: Explanation, names: Sequence[str]) -> Explanation:
    """The explanation with these nodes alone, ranked among all candidates; all where none is named.

    Raises BadInput for a node that is not in it.
    """
    if not names or not explanation.containers:
        return explanation
    node_names = sorted(
        [node.node for node in explanation.nodes] + [node.node for node in explanation.left_out]
    )
    for name in names:
        if name not in node_names:
            raise BadInput(
                f"there is no node {name} in the cluster{did_you_mean(name, node_names)}"
            )
    return msgspec.structs.replace(
        explanation,
        nodes=tuple(node for node in explanation.nodes if node.node in names),
        left_out=tuple(node for node in explanation.left_out if node.node in names),
    )


def _with_filters(
    explained: Explanation, pod: ExplainedPod, filtered_nodes: FilteredNodes | None
) -> Explanation:
    if not explained.containers:
        return explained
    if filtered_nodes is None:
        return msgspec.structs.replace(explained, filtered=False, notes=(NOT_APPLIED,))
    is_short = len(filtered_nodes.candidates) > SHORT
    return msgspec.structs.replace(
        explained,
        filtered=True,
        left_out=filtered_nodes.left_out,
        notes=(*notes(pod.constraints, filtered_nodes), *((RELATIVE,) if is_short else ())),
    )


def _with_priority(api: Api, pod: Pod) -> Pod:
    """The pod with the priority that admission would give it; unchanged where none can be read."""
    if pod.spec.priority is not None:
        return pod
    try:
        classes = [
            PriorityClass.from_object(found) for found in present_objects(api, PRIORITY_CLASSES)
        ]
    except ApiError:
        return pod  # most people may not read them: what follows from it is left open
    return msgspec.structs.replace(pod, spec=with_priority(pod.spec, classes))


def _read(pod: Object, source: str) -> Pod:
    try:
        return Pod.from_object(pod)
    except BadInput as error:
        raise BadInput(f"{source} is not as a Pod should be: {error}") from error
