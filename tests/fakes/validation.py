# SPDX-License-Identifier: Apache-2.0
"""What the API server itself refuses in the objects that we write, admission policies apart.

Source: Kubernetes, apimachinery's validation of object metadata, and the strategies of
coordination.k8s.io and events.k8s.io; the contract suite holds it to the real server.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kube.api import EVENTS, LEASES, ApiResource
from kube.api_errors import Invalid

_LABEL = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9])?")
_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})(Z|[+-]\d\d:\d\d)")
_ANNOTATION_BYTES = 256 * 1024


def check(resource: ApiResource, new: Mapping[str, Any], old: Mapping[str, Any] | None) -> None:
    """Raises Invalid where the real server would answer 400 or 422; ``old`` None on create."""
    _check_metadata(new["metadata"])
    if resource == LEASES:
        _check_lease(new.get("spec", {}))
    if resource == EVENTS:
        _check_event(new, old)


def _check_metadata(meta: Mapping[str, Any]) -> None:
    if len(meta["name"]) > 253 or not _SUBDOMAIN.fullmatch(meta["name"]):
        raise Invalid(f"metadata.name: Invalid value: {meta['name']!r}")
    for part in ("labels", "annotations"):
        for key, value in (meta.get(part) or {}).items():
            if not isinstance(value, str):
                raise Invalid(f"cannot unmarshal into metadata.{part}.{key}, which is a string")
            if not _qualified(key):
                raise Invalid(f"metadata.{part}: Invalid value: {key!r}")
            if part == "labels" and not _LABEL.fullmatch(value):
                raise Invalid(f"metadata.labels: Invalid value: {value!r}")
    size = sum(len(k) + len(v) for k, v in (meta.get("annotations") or {}).items())
    if size > _ANNOTATION_BYTES:
        raise Invalid(f"metadata.annotations: Too long: may not be more than {_ANNOTATION_BYTES}")
    for owner in meta.get("ownerReferences") or ():
        for at in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(at):
                raise Invalid(f"metadata.ownerReferences[0].{at}: must not be empty")


def _qualified(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    return bool(_NAME.fullmatch(name)) and (
        not slash or (len(prefix) <= 253 and _SUBDOMAIN.fullmatch(prefix) is not None)
    )


def _check_lease(spec: Mapping[str, Any]) -> None:
    for at in ("acquireTime", "renewTime"):
        if spec.get(at) is not None and not _MICRO_TIME.fullmatch(str(spec[at])):
            raise Invalid(f"Lease in version v1 cannot be handled: spec.{at}: {spec[at]!r}")
    if spec.get("leaseDurationSeconds", 1) <= 0:
        raise Invalid("spec.leaseDurationSeconds: must be greater than 0")


def _check_event(new: Mapping[str, Any], old: Mapping[str, Any] | None) -> None:
    if old is not None:
        for at in sorted(set(new) | set(old)):
            if at not in ("metadata", "series") and new.get(at) != old.get(at):
                raise Invalid(f"{at}: Invalid value: field is immutable")
        return
    for at in ("eventTime", "reportingController", "reportingInstance", "action", "reason"):
        if not new.get(at):
            raise Invalid(f"{at}: Required value")
    if not _MICRO_TIME.fullmatch(new["eventTime"]):
        raise Invalid(f"Event in version v1 cannot be handled: eventTime: {new['eventTime']!r}")
    if new.get("type") not in ("Normal", "Warning"):
        raise Invalid("type: has invalid value")
    if len(new.get("note", "")) > 1024:
        raise Invalid("note: can have at most 1024 characters")
    about = new.get("regarding", {}).get("namespace")
    if not about and new["metadata"]["namespace"] not in ("default", "kube-system"):
        raise Invalid("involvedObject.namespace: does not match event.namespace")
