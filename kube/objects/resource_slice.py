# SPDX-License-Identifier: Apache-2.0
"""ResourceSlices as the API server writes them, in each version that one serves. Pure.

Source: k8s.io/api, resource/v1, v1beta2 and v1beta1. In v1beta1 a device has its attributes under
``basic``, in the later versions itself; no version has both.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kube.objects.typed_object import Metadata, TypedObject


class DeviceAttribute(TypedObject, frozen=True):
    """The value of a device's attribute, where it is a text that is no version."""

    string: str = ""


class BasicDevice(TypedObject, frozen=True):
    """What a device of v1beta1 has but for its name."""

    attributes: Mapping[str, DeviceAttribute] = {}


class SliceDevice(TypedObject, frozen=True):
    """A device of a ResourceSlice."""

    name: str = ""
    attributes: Mapping[str, DeviceAttribute] = {}
    basic: BasicDevice = BasicDevice()

    def text(self, attribute: str) -> str:
        """The attribute's text in any version; empty without it, and for a value of another type.

        The driver's own attributes stand without its name in front.
        """
        attributes = self.attributes or self.basic.attributes
        return attributes.get(attribute, DeviceAttribute()).string


class ResourcePool(TypedObject, frozen=True):
    """The pool that the devices of a slice belong to."""

    name: str = ""


class ResourceSliceSpec(TypedObject, frozen=True):
    """Spec of a ResourceSlice, as its driver publishes it."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    devices: tuple[SliceDevice, ...] = ()


class ResourceSlice(TypedObject, frozen=True):
    """A ResourceSlice."""

    metadata: Metadata = Metadata()
    spec: ResourceSliceSpec = ResourceSliceSpec()


msgspec.convert({}, ResourceSlice)  # before there is a thread, as in kube.objects.pod
