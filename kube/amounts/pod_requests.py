# SPDX-License-Identifier: Apache-2.0
"""How much of each resource a pod requests, as the scheduler and quotas count it. Pure.

Source: k8s.io/component-helpers, resource/helpers.go (PodRequests), of 1.37; Kubernetes
documentation, "Sidecar containers", resource sharing within containers. Of a pod that is being
resized in place the new size counts here, and the larger of both in the scheduler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from base.errors import BadInput
from kube.amounts.quantities import CPU, HUGE_PAGES, MEMORY, Amount, counted_amount
from kube.objects.pod import Container, PodSpec, RequestedAmounts

Amounts = Mapping[str, int]
"""Resource to amount, as :func:`kube.amounts.quantities.counted_amount` counts it."""


def pod_requests(spec: PodSpec) -> Amounts:
    """The amounts that a pod requests, with overhead; limits count where there are no requests.

    Containers together, or the largest init container with the sidecars that began before it,
    if that is more. Amounts of the pod as a whole (1.34 and later) replace the sums of cpu, memory
    and huge pages. Raises BadInput that names the key of an amount that is no quantity.
    """
    running = sum_of(
        container_requests(container, f"spec.containers[{index}]")
        for index, container in enumerate(spec.containers)
    )
    sidecars: Counter[str] = Counter()
    starting: Counter[str] = Counter()
    for index, container in enumerate(spec.init_containers):
        step = container_requests(container, f"spec.initContainers[{index}]")
        if container.is_sidecar:
            sidecars += Counter(step)
            running += Counter(step)
            step = sidecars
        else:
            step = sum_of((step, sidecars))
        starting |= Counter(step)
    together = running | starting
    together.update(_of_pod(spec.resources, together))
    return sum_of((together, read_amounts(spec.overhead, "spec.overhead")))


def container_requests(container: Container, place: str) -> Amounts:
    """The amounts that a container requests; a limit without a request counts as the request.

    The API server fills in such requests. ``place`` names the container in an error. Raises
    BadInput.
    """
    limits = read_amounts(container.resources.limits, f"{place}.resources.limits")
    requests = read_amounts(container.resources.requests, f"{place}.resources.requests")
    return {**limits, **requests}


def read_amounts(written: Mapping[str, Amount], place: str) -> Amounts:
    """Amounts as they are counted. Raises BadInput that names the key under ``place``."""
    amounts = {}
    for resource, amount in written.items():
        try:
            amounts[resource] = counted_amount(resource, amount)
        except BadInput as error:
            raise BadInput(f"{place}.{resource}: {error}") from error
    return amounts


def sum_of(parts: Iterable[Amounts]) -> Counter[str]:
    """The sum of all parts, resource by resource."""
    total: Counter[str] = Counter()
    for amounts in parts:
        total.update(amounts)
    return total


def _of_pod(written: RequestedAmounts, together: Amounts) -> Amounts:
    """What to add to the sums over containers where the pod as a whole sets an amount.

    A limit of the pod counts only where no container requests the resource.
    """
    limits = read_amounts(written.limits, "spec.resources.limits")
    requests = read_amounts(written.requests, "spec.resources.requests")
    return {
        resource: amount - together.get(resource, 0)
        for resource, amount in {**limits, **together, **requests}.items()
        if resource in (CPU, MEMORY) or resource.startswith(HUGE_PAGES)
    }
