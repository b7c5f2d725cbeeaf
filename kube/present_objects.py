# SPDX-License-Identifier: Apache-2.0
"""Objects as they are now, read once: all of a kind, or one that may not be there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kube.api import Api, ApiResource, Object
from kube.api_errors import NotFound, Unreachable


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


def present_object(
    api: Api, resource: ApiResource, name: str, *, namespace: str | None = None
) -> Object | None:
    """The object of this name; None where there is none. Raises ApiError as :meth:`Api.get`."""
    try:
        return api.get(resource, name, namespace=namespace)
    except NotFound:
        return None
