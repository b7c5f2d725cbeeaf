# SPDX-License-Identifier: Apache-2.0
"""A real API server counts the same: a ResourceQuota has what it admits of each resource."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest

from kube.amounts.gpu_amounts import gpu_requests
from kube.api import PODS as POD_RESOURCE
from kube.api import ApiResource
from kube.client import ApiClient
from kube.objects.pod import PodSpec
from tests.kube.amounts.gpu_pods import GPU, PODS, SHARED, SLICE
from tests.kube.clusters import MERGE_PATCH, client

if TYPE_CHECKING:
    from tests.controlplane.plane import Plane

pytestmark = pytest.mark.cluster

QUOTAS = ApiResource(group="", version="v1", kind="ResourceQuota")
LIMITED = {f"requests.{name}": "1000" for name in (GPU, SHARED, SLICE)}


@pytest.fixture(scope="module")
def admin(any_plane: Plane) -> tuple[ApiClient, str]:
    """A client, and a namespace whose quota limits all three resources."""
    namespace = f"requests-{secrets.token_hex(4)}"
    any_plane.account(namespace, "watched")
    api = client("admin", any_plane.kubeconfig())
    api.create(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": LIMITED}}, namespace=namespace)
    status = {"hard": LIMITED, "used": dict.fromkeys(LIMITED, "0")}
    path = f"/api/v1/namespaces/{namespace}/resourcequotas/q/status"
    answer = any_plane.request("PATCH", path, {"status": status}, content_type=MERGE_PATCH)
    assert answer.status == 200, answer.body
    return api, namespace


def used(api: ApiClient, namespace: str) -> dict[str, int]:
    quota = api.get(QUOTAS, "q", namespace=namespace)
    counts = quota["status"]["used"]
    return {name.removeprefix("requests."): int(count) for name, count in counts.items()}


@pytest.mark.parametrize("name", PODS)
def test_the_api_server_counts_what_a_pod_asks_for_alike(
    admin: tuple[ApiClient, str], name: str
) -> None:
    api, namespace = admin
    written, _ = PODS[name]
    before = used(api, namespace)
    body = {"metadata": {"name": f"p-{secrets.token_hex(4)}"}, "spec": written}
    made = api.create(POD_RESOURCE, body, namespace=namespace)
    after = used(api, namespace)
    counted = {key: after[key] - before[key] for key in after if after[key] != before[key]}
    assert gpu_requests(PodSpec.from_object(written)) == counted
    assert gpu_requests(PodSpec.from_object(made["spec"])) == counted
