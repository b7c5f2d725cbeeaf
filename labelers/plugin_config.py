# SPDX-License-Identifier: Apache-2.0
"""The device plugin's configuration file, checked whole, and the part of it that decides labels.

One file configures the NVIDIA device plugin and its labels. What the plugin or its
gpu-feature-discovery refuses is refused here, and what they take is taken: keys in another case, a
key that stands twice, whole numbers with a point. Refused besides is what they pass over though it
was meant: a key that is nearly a known one, one that stands in the wrong part, a whole ConfigMap.
Import it where such a file is read, not before: the parser takes memory.

Source: NVIDIA k8s-device-plugin v0.20.0, api/config/v1, and validateFlags of both programs.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from api.mig_resources import MigStrategy
from base.yaml_places import Yaml11Loader, YamlValue, read_yaml
from labelers.groups.sharing import NOTHING_SHARED, SharedResource, Sharing, SharingStrategy
from labelers.label_settings import PluginConfig, SharedOffer
from labelers.plugin_config_values import (
    channels,
    check_devices,
    duration_value,
    flag_value,
    resource_name,
    text_value,
    texts,
    whole_number_value,
    word,
)

Check = Callable[[YamlValue], Any]
"""Reads one value; raises BadInput for what Go's reader or the plugin's checks refuse."""


def parse_plugin_config(text: str, name: str) -> PluginConfig:
    """Read the device plugin's configuration, which messages call ``name``.

    Raises BadInput naming file, line and key, and the fix or the key that was probably meant.
    """
    root = read_yaml(text, name, loader=Yaml11Loader, as_go=True)
    root.refuse_config_map()
    sections = _struct(_FILE)(root)
    sharing, flags = sections.get("sharing", {}), sections.get("flags", {})
    labels = flags.get("gfd", {})
    strategy = flags.get("migStrategy")
    if strategy == MigStrategy.MIXED and sharing.get("mps"):
        raise root.at(("sharing", "mps")).wrong("MPS does not go with migStrategy: mixed; drop one")
    return PluginConfig(
        sharing=_sharing(sharing),
        mig_strategy=None if strategy is None else MigStrategy(strategy),
        no_timestamp=labels.get("noTimestamp"),
        machine_type_file=labels.get("machineTypeFile"),
        offers=tuple(_offers(sharing)),
        ignored=tuple(_ignored(root)),
    )


def _sharing(part: Mapping[str, Any]) -> Sharing:
    """MPS wins where both are set; ``rename`` and ``devices`` of one resource change nothing."""
    shared = part.get("mps") or part.get("timeSlicing")
    if not shared:
        return NOTHING_SHARED
    return Sharing(
        strategy=SharingStrategy.MPS if part.get("mps") else SharingStrategy.TIME_SLICING,
        resources=tuple(
            SharedResource(
                name=entry["name"],
                replicas=entry["replicas"],
                renamed=shared.get("renameByDefault") or False,
            )
            for entry in shared["resources"]
        ),
    )


def _offers(part: Mapping[str, Any]) -> Iterator[SharedOffer]:
    """MPS refuses requests for several shares of one device, and time slicing does where asked."""
    sharing = _sharing(part)
    shared = part.get("mps") or part.get("timeSlicing") or {}
    refuses = shared.get("failRequestsGreaterThanOne")
    if refuses is None:
        refuses = sharing.strategy is SharingStrategy.MPS
    for resource in sharing.resources:
        yield SharedOffer(
            resource=resource.name,
            offered_as=f"{resource.name}.shared" if resource.renamed else resource.name,
            replicas=resource.replicas,
            strategy=sharing.strategy,
            one_share_a_request=refuses,
        )


def _ignored(root: YamlValue) -> Iterator[str]:
    """What the plugin itself leaves out, with a line in its log. Only for a file that is right.

    Source: NVIDIA k8s-device-plugin v0.20.0, api/config/v1, DisableResourceNamingInConfig.
    """
    resources = _entry(root, "resources")
    for part in map(partial(_entry, resources), ("gpus", "mig")):
        if part.items():
            yield f"{part.place}: the plugin names resources itself: it leaves this out"
    sharing = _entry(root, "sharing")
    slicing, mps = _entry(sharing, "timeSlicing"), _entry(sharing, "mps")
    if not (slicing.is_null or mps.is_null):
        yield f"{slicing.place}: MPS is configured too, and wins: this changes nothing"
    for shared in (slicing, mps):
        parts = shared.mapping()
        by_default = "renameByDefault" in parts and bool(flag_value(parts["renameByDefault"]))
        for entry in parts["resources"].items() if "resources" in parts else ():
            written = entry.mapping()
            if rename := written.get("rename"):
                usual = f"{resource_name(written['name'])}.shared" if by_default else None
                if resource_name(rename) != usual:
                    yield f"{rename.place}: the plugin leaves rename out: set renameByDefault"
            if (chosen := written.get("devices")) and not _is_all(chosen):
                yield f"{chosen.place}: the plugin leaves devices out: it shares all of them"


def _is_all(value: YamlValue) -> bool:
    return not value.is_list and value.text() == "all"


def _entry(value: YamlValue, key: str) -> YamlValue:
    """The entry of an object whose keys Go finds in any case; null without it."""
    named = [
        child
        for written, child in (value.merged().mapping() if value.is_mapping else {}).items()
        if written.casefold() == key.casefold()
    ]
    return named[-1] if named else _NOTHING


_NOTHING: Final = read_yaml("", "")


# what stands where


def _struct(checks: Mapping[str, Check]) -> Check:
    """An object whose keys Go finds in any case, and which may be null."""

    def read(value: YamlValue) -> dict[str, Any]:
        names = {key.casefold(): key for key in checks}
        read: dict[str, Any] = {}
        for written, child in value.merged().mapping().items():
            key = names.get(written.casefold())
            if key is None:
                _refuse_misplaced(written, child, checks)
            elif (content := checks[key](child)) is not None:
                read[key] = content
        return read

    return read


def _object(checks: Mapping[str, Check], *needed: str) -> Check:
    """An object that the plugin reads key by key: in this case alone, and with these keys."""

    def read(value: YamlValue) -> dict[str, Any]:
        entries = value.merged().mapping()
        for written, child in entries.items():
            if written not in checks:
                _refuse_misplaced(written, child, checks)
        for key in needed:
            if key not in entries:
                raise value.wrong(f"it needs {key}: write it too")
        return {key: check(entries[key]) for key, check in checks.items() if key in entries}

    return read


def _items(check: Check, *, at_least_one: str = "") -> Check:
    """A list, which may be null where it may be empty."""

    def read(value: YamlValue) -> tuple[Any, ...]:
        items = value.items()
        if at_least_one and not items:
            raise value.wrong(at_least_one)
        return tuple(map(check, items))

    return read


def _replicas(value: YamlValue) -> int:
    replicas = whole_number_value(value)
    if replicas is None or replicas < 2:
        raise value.wrong("write 2 or more")
    return replicas


_RESOURCES: Final = "name at least one resource and its replicas"
_SHARED: Final = _object(
    {
        "renameByDefault": flag_value,
        "failRequestsGreaterThanOne": flag_value,
        "resources": _items(
            _object(
                {"name": resource_name, "rename": resource_name, "devices": check_devices}
                | {"replicas": _replicas},
                *("name", "replicas"),
            ),
            at_least_one=_RESOURCES,
        ),
    },
    "resources",
)
_NAMED: Final = _items(_object({"pattern": text_value, "name": resource_name}, "pattern", "name"))


def _mps(value: YamlValue) -> Any:
    """Null is no MPS; of time slicing it is refused, as an object without resources."""
    return None if value.is_null else _SHARED(value)


def _version(value: YamlValue) -> None:
    if text_value(value) not in (None, "", "v1"):
        raise value.wrong("write v1")


_GFD: Final = {
    "oneshot": flag_value,
    "noTimestamp": flag_value,
    "sleepInterval": duration_value,
    "outputFile": text_value,
    "machineTypeFile": text_value,
}
_PLUGIN: Final = {
    "passDeviceSpecs": flag_value,
    "deviceListStrategy": texts("envvar", "volume-mounts", "cdi-annotations", "cdi-cri"),
    "deviceIDStrategy": word("uuid", "index"),
    "cdiAnnotationPrefix": text_value,
    "nvidiaCTKPath": text_value,
    "containerDriverRoot": text_value,
    "sharedDevicesAllocationPolicy": word("distributed", "packed"),
}
_FLAGS: Final = {
    "migStrategy": word(*MigStrategy),
    "failOnInitError": flag_value,
    "mpsRoot": text_value,
    "nvidiaDriverRoot": text_value,
    "nvidiaDevRoot": text_value,
    "gdrcopyEnabled": flag_value,
    "gdsEnabled": flag_value,
    "mofedEnabled": flag_value,
    "useNodeFeatureAPI": flag_value,
    "deviceDiscoveryStrategy": word("auto", "nvml", "tegra", "vfio"),
    "plugin": _struct(_PLUGIN),
    "gfd": _struct(_GFD),
}
_IMEX: Final = {"channelIDs": channels, "required": flag_value}
_SHARING: Final = {"timeSlicing": _SHARED, "mps": _mps}
_FILE: Final[Mapping[str, Check]] = {
    "version": _version,
    "flags": _struct(_FLAGS),
    "resources": _struct({"gpus": _NAMED, "mig": _NAMED}),
    "sharing": _struct(_SHARING),
    "imex": _struct(_IMEX),
}

_PLACES: Final[Mapping[str, str]] = {
    **dict.fromkeys(_FLAGS, "flags"),
    **dict.fromkeys(_PLUGIN, "flags.plugin"),
    **dict.fromkeys(_GFD, "flags.gfd"),
    **dict.fromkeys(_SHARING, "sharing"),
    **dict.fromkeys(_IMEX, "imex"),
    **dict.fromkeys(
        ("renameByDefault", "failRequestsGreaterThanOne"), "sharing.timeSlicing or sharing.mps"
    ),
    "replicas": "an entry of sharing.timeSlicing.resources",
    "resources": "sharing.timeSlicing or sharing.mps",
    "sharing": "the file's first level",
    "flags": "the file's first level",
}
"""Keys that belong elsewhere in the file, each with its place."""


def _refuse_misplaced(key: str, value: YamlValue, known: Mapping[str, Check]) -> None:
    """Raises BadInput for a key that the plugin ignores here, though it has a meaning elsewhere."""
    if near := difflib.get_close_matches(key, known, n=1, cutoff=0.8):
        raise value.wrong(f"unknown key; write {near[0]}")
    folded = key.casefold()
    places = (place for known_key, place in _PLACES.items() if known_key.casefold() == folded)
    if place := next(places, None):
        raise value.wrong(f"unknown key here; it belongs into {place}")
