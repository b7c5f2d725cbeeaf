# SPDX-License-Identifier: Apache-2.0
"""All objects of a kind as they are now, read once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kube.api import Api, ApiResource, Object
from kube.api_errors import Unreachable


def present_objects(
    api: Api,
    resource: ApiResource,
    *,
    namespace: str | None = None,
    fields: Mapping[str, str] | None = None,
    metadata_only: bool = False,
) -> Iterator[Object]:
    """The objects that a watch with these arguments begins with: a bookmark stands behind them.

    Raises ApiError as :meth:`kube.api.Api.watch`, and Unreachable for a watch that ends before its
    bookmark: what it has sent is not all there is.
    """
    watch = api.watch(resource, namespace=namespace, fields=fields, metadata_only=metadata_only)
    try:
        for change in watch:
            if change.type == "BOOKMARK":
                return
            yield change.object
    finally:
        watch.close()
    raise Unreachable(f"list {resource.plural}: the server ended its answer too early")
