# SPDX-License-Identifier: Apache-2.0
"""Base of typed Kubernetes objects, and the parts that all kinds share. Pure.

Every field has a default, and null counts as absent: Go's encoder writes null for an empty list, a
missing time or a pointer without a value. Keys without a field are ignored, so an object of a newer
API server is read too. Source: k8s.io/apimachinery, meta/v1/types.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

import msgspec

from base.errors import BadInput


class TypedObject(msgspec.Struct, frozen=True, rename="camel"):
    """Base of a Kubernetes object, or of a part of one."""

    @classmethod
    def from_object(cls, written: Mapping[str, Any]) -> Self:
        """Convert from JSON's values. Raises BadInput that names the key of a wrong type."""
        try:
            return msgspec.convert(written, cls)
        except msgspec.ValidationError:
            pass  # most objects have no null where a value is read: only the others pay for it
        try:
            return msgspec.convert(_without_nulls(written), cls)
        except (msgspec.ValidationError, RecursionError) as error:
            raise BadInput(str(error)) from error

    @classmethod
    def from_json(cls, text: bytes | bytearray) -> Self:
        """Decode from JSON. Raises BadInput."""
        try:
            try:
                return msgspec.json.decode(text, type=cls)
            except msgspec.ValidationError:
                return cls.from_object(msgspec.json.decode(text))
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise BadInput(str(error)) from error


class OwnerReference(TypedObject, frozen=True):
    """A reference to an owner of an object, which the object goes together with."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    """Whether this owner makes the object anew."""


class Metadata(TypedObject, frozen=True):
    """Identity, labels and annotations of an object."""

    name: str = ""
    namespace: str = ""
    """Empty for kinds without namespaces, such as Nodes."""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    """Empty until somebody deletes the object."""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()

    @property
    def full_name(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that makes this object anew."""
        return next((owner for owner in self.owner_references if owner.controller), None)


class Condition(TypedObject, frozen=True):
    """A condition in the status of an object."""

    type: str = ""
    status: str = ""
    """``True``, ``False`` or ``Unknown``."""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


def condition_of(conditions: Iterable[Condition], type_: str) -> Condition | None:
    """The condition of this type."""
    return next((condition for condition in conditions if condition.type == type_), None)


def is_true(conditions: Iterable[Condition], type_: str) -> bool:
    """Whether the condition of this type is there, and is true."""
    condition = condition_of(conditions, type_)
    return condition is not None and condition.status == "True"


def field_managers(metadata: Mapping[str, Any]) -> frozenset[str]:
    """Names of the field managers that have written a part of the object, by managedFields."""
    return frozenset(str(entry.get("manager")) for entry in metadata.get("managedFields") or ())


def _without_nulls(value: Any) -> Any:
    """The value without keys whose value is null, at any depth."""
    if isinstance(value, Mapping):
        return {key: _without_nulls(part) for key, part in value.items() if part is not None}
    return [_without_nulls(part) for part in value] if isinstance(value, list) else value
