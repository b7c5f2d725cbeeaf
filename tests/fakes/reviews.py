# SPDX-License-Identifier: Apache-2.0
"""Reviews as an API server answers them: who asks, and whether somebody may do something."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kube.api import ACCESS_REVIEWS, SELF_ACCESS_REVIEWS, SELF_REVIEWS, ApiResource, Object
from tests.fakes.json_values import copied
from tests.fakes.server import Server

KINDS: Final = (SELF_REVIEWS, SELF_ACCESS_REVIEWS, ACCESS_REVIEWS)
VERSION: Final = ApiResource(group="", version="", kind="Version", namespaced=False)
"""In calls: what is no kind of object."""


def answered(server: Server, resource: ApiResource, body: Mapping[str, Any], user: str) -> Object:
    """The review with its status. Somebody may do what no denial of the server names."""
    answer = copied(dict(body))
    if resource == SELF_REVIEWS:
        answer["status"] = {"userInfo": {"username": user, "groups": ["system:authenticated"]}}
        return answer
    spec = body["spec"]
    asked = spec["resourceAttributes"]
    right = (spec.get("user", user), asked["verb"], asked["resource"])
    answer["status"] = {"allowed": right not in server.denied}
    return answer
