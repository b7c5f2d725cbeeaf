# SPDX-License-Identifier: Apache-2.0
"""Turns an answer of the API server into the error that decides what the caller does next."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from kube.api import ApiResource
from kube.api_errors import (
    AdmissionRefused,
    ApiError,
    BudgetRefused,
    Busy,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NamespaceTerminating,
    NotFound,
    SeveralBudgets,
    Unauthorized,
    Unreachable,
)
from kube.request_limits import LONGEST_HOLD_SECONDS

LONGEST_CAUSE = 500
_NO_SUCH_PATH = b"404 page not found"
"""Answer of an API server for a group of resources that it does not have."""

# A policy's refusal looks like the object's own validation but for these words.
# Source: kube-apiserver 1.32 and 1.37, plugin validatingadmissionpolicy; admission refusals
# carry the policy's own reason: 422 by default, 403 where it says Forbidden.
# A webhook's has these words before its own, and whatever code it chose.
_POLICY = re.compile(
    r"ValidatingAdmissionPolicy '([^']+)'.* denied request"
    r'|admission webhook "([^"]+)" denied the request'
)
# Causes of the status, and the message of an eviction that has none.
# Source: kube-apiserver 1.32 and 1.37, registry/core/pod/storage/eviction.go; k8s.io/api/core/v1.
_BUDGET = "DisruptionBudget"
_NAMESPACE = "NamespaceTerminating"
_SEVERAL_BUDGETS = "more than one PodDisruptionBudget"
_BY_CODE: dict[int, type[ApiError]] = {403: Forbidden, 404: NotFound, 409: Conflict, 410: Expired}


def request_name(verb: str, resource: ApiResource, namespace: str | None, name: str | None) -> str:
    """The request in words, for messages: ``patch Node node-a``, ``watch leases in gpuscape``."""
    if name is None:
        place = f" in {namespace}" if namespace else ""
        return f"{verb} {resource.plural}{place}"
    place = f"{namespace}/" if namespace else ""
    return f"{verb} {resource.kind} {place}{name}"


def decoded(action: str, body: bytes) -> dict[str, Any]:
    """The object in the body; raises Unreachable where the body is no JSON object."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise not_from_a_server(action, body[:80].decode("utf-8", "replace"))
    return document


def checked(action: str, answer: dict[str, Any], name: str) -> dict[str, Any]:
    """The answer, which must be the object ``name``; with an empty name any object.

    Raises Unreachable for another answer: a proxy or a login page has sent it, with status 200.
    """
    if name and metadata_of(answer).get("name") != name:
        raise not_from_a_server(action, str(answer))
    return answer


def listed(action: str, answer: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The objects and the metadata of a list; raises Unreachable for another answer."""
    items, metadata = answer.get("items"), metadata_of(answer)
    # servers written in Go may have null for an empty list
    if "items" not in answer or not isinstance(metadata.get("resourceVersion"), str):
        raise not_from_a_server(action, str(answer))
    return items or [], metadata


def served_versions(action: str, answer: dict[str, Any]) -> frozenset[str]:
    """The versions of a discovered API group; raises Unreachable for another answer."""
    versions = answer.get("versions")
    if answer.get("kind") != "APIGroup" or not isinstance(versions, list):
        raise not_from_a_server(action, str(answer))
    names = (entry.get("version") for entry in versions if isinstance(entry, dict))
    return frozenset(name for name in names if isinstance(name, str))


def metadata_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of an object or a list; empty where there is none."""
    metadata = document.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def not_from_a_server(action: str, text: str) -> Unreachable:
    """The error of an answer that no API server makes, whatever its status."""
    return Unreachable(
        f"{action}: the answer is not from an API server: {one_line(text)[:80] or 'nothing'}"
    )


def error(
    action: str,
    status: int,
    body: bytes,
    *,
    headers: Mapping[str, str] | None = None,
    account: str = "",
) -> ApiError:
    """The error of an answer whose status is not 2xx; ``account`` is named where it matters."""
    try:
        status_object = json.loads(body)
    except (ValueError, RecursionError):
        status_object = None
    if not isinstance(status_object, dict):
        if status == 404 and not body.startswith(_NO_SUCH_PATH):
            # or a proxy without a route would prove that the Node is gone
            return not_from_a_server(f"{action}: 404", body[:80].decode("utf-8", "replace"))
        status_object = {"message": body[:LONGEST_CAUSE].decode("utf-8", "replace")}
    return error_of(action, status, status_object, headers=headers or {}, account=account)


def error_of(
    action: str,
    code: int,
    status_object: Mapping[str, Any],
    *,
    headers: Mapping[str, str],
    account: str = "",
) -> ApiError:
    """The error of a Status object, which a watch may carry too."""
    cause = status_object.get("message") or status_object.get("reason") or "no reason given"
    whole = " ".join(str(cause).split())
    message = one_line(whole)
    text = f"{action}: {code}: {message}"
    if policy := _POLICY.search(message):
        return AdmissionRefused(text, policy=policy[1] or policy[2], message=whole)
    if code == 401:
        return Unauthorized(f"{action}: 401: the credentials{_of(account)} are not accepted")
    if code == 403 and account and account not in message:
        text += f" (as {account})"
    causes = _causes(status_object)
    if code == 429 and _BUDGET in causes:
        return BudgetRefused(text, retry_after_seconds=_retry_after(headers, status_object))
    if code == 500 and _SEVERAL_BUDGETS in message:
        return SeveralBudgets(text)
    if code == 429 or code >= 500:
        return Busy(text, retry_after_seconds=_retry_after(headers, status_object))
    if code == 403 and _NAMESPACE in causes:
        return NamespaceTerminating(text)
    return _BY_CODE.get(code, Invalid)(text)


def one_line(text: str) -> str:
    """Text without line breaks, cut to at most 500 characters."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_CAUSE else f"{line[:LONGEST_CAUSE]}…"


def _of(account: str) -> str:
    return f" of {account}" if account else ""


def _causes(status_object: Mapping[str, Any]) -> frozenset[str]:
    """The reasons that the status lists."""
    details = status_object.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    reasons = (cause.get("reason") for cause in causes or () if isinstance(cause, dict))
    return frozenset(reason for reason in reasons if isinstance(reason, str))


def _retry_after(headers: Mapping[str, str], status_object: Mapping[str, Any]) -> float | None:
    """Seconds to wait before the next request, 5 minutes at most whatever the server says.

    None without such a header or detail. A header with a date counts as none, since no API server
    sends it.
    """
    details = status_object.get("details")
    seconds = headers.get("Retry-After") or (
        details.get("retryAfterSeconds") if isinstance(details, dict) else None
    )
    try:
        return None if seconds is None else min(max(0.0, float(seconds)), LONGEST_HOLD_SECONDS)
    except (TypeError, ValueError):
        return None
