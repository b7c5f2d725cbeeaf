# SPDX-License-Identifier: Apache-2.0
"""The device plugin's configuration file: the part that decides labels.

One file configures the NVIDIA device plugin and its labels; read here are
``sharing``, ``flags.migStrategy``, ``flags.gfd.noTimestamp`` and
``flags.gfd.machineTypeFile``. The rest is the plugin's own and passes unread, but
a key that is nearly a known one is taken for a slip of the pen.
Import it where such a file is read, not before: the parser takes memory.

Source: NVIDIA k8s-device-plugin v0.20.0, api/config/v1.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec

from api.mig_resources import MigStrategy
from base.errors import BadInput
from base.yaml_places import YamlValue, misfit, read_yaml
from labelers.groups.sharing import NOTHING_SHARED, SharedResource, Sharing, SharingStrategy
from labelers.label_settings import PluginConfig

_PREFIX = "nvidia.com/"


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base: keys are spelt in camel case, unknown ones are ignored."""


class _Resource(_Part, frozen=True, kw_only=True):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    replicas: Annotated[int, msgspec.Meta(ge=2)]
    rename: Any = None  # the plugin reads and resets both
    devices: Any = None


class _Shared(_Part, frozen=True, kw_only=True):
    resources: Annotated[tuple[_Resource, ...], msgspec.Meta(min_length=1)]
    rename_by_default: bool = False
    fail_requests_greater_than_one: bool | None = None


class _Sharing(_Part, frozen=True, kw_only=True):
    time_slicing: _Shared | None = None
    mps: _Shared | None = None


class _Labels(_Part, frozen=True, kw_only=True):
    no_timestamp: bool | None = None
    machine_type_file: str | None = None
    oneshot: Any = None
    sleep_interval: Any = None
    output_file: Any = None


class _Flags(_Part, frozen=True, kw_only=True):
    mig_strategy: MigStrategy | None = None
    gfd: _Labels | None = None
    plugin: Any = None


class _File(_Part, frozen=True, kw_only=True):
    version: Literal["v1"] = "v1"
    flags: _Flags | None = None
    sharing: _Sharing | None = None
    resources: Any = None
    imex: Any = None


def parse(text: str, name: str) -> PluginConfig:
    """Read the settings of labels in the device plugin's configuration; messages name ``name``.

    Raises BadInput naming file, line and key, and the key that was probably meant.
    """
    written = read_yaml(text, name)
    for line, path, meant in _slips(written, _SCHEMA, ""):
        raise BadInput(f"{name}:{line}: unknown key {path}; write {meant}")
    try:
        file = msgspec.convert({} if written.is_null else written.content(), _File)
    except msgspec.ValidationError as error:
        raise _misfit(error, written) from error
    flags = file.flags or _Flags()
    labels = flags.gfd or _Labels()
    return PluginConfig(
        sharing=_sharing(file.sharing or _Sharing()),
        mig_strategy=flags.mig_strategy,
        no_timestamp=labels.no_timestamp,
        machine_type_file=labels.machine_type_file,
    )


def _sharing(part: _Sharing) -> Sharing:
    """MPS wins where both are set; ``rename`` and ``devices`` of one resource change nothing."""
    shared = part.mps or part.time_slicing
    if shared is None:
        return NOTHING_SHARED
    return Sharing(
        strategy=SharingStrategy.MPS if part.mps else SharingStrategy.TIME_SLICING,
        resources=tuple(
            SharedResource(
                name=entry.name if entry.name.startswith(_PREFIX) else _PREFIX + entry.name,
                replicas=entry.replicas,
                renamed=shared.rename_by_default,
            )
            for entry in shared.resources
        ),
    )


def _slips(value: YamlValue, schema: object, path: str) -> Iterator[tuple[int, str, str]]:
    """Keys that are nearly known ones: line, path, and the key meant."""
    fields = _fields(schema)
    for item in value.items() if value.is_list else (value,):
        for key, child in item.mapping().items() if item.is_mapping else ():
            here = f"{path}.{key}" if path else key
            if key in fields:
                yield from _slips(child, fields[key], here)
            elif near := difflib.get_close_matches(key, fields, n=1, cutoff=0.8):
                yield child.line, here, near[0]


def _fields(schema: object) -> dict[str, object]:
    """Keys and their types of the object that ``schema`` is, may be, or lists; else none."""
    match schema:
        case msgspec.inspect.StructType():
            return {field.encode_name: field.type for field in schema.fields}
        case msgspec.inspect.UnionType():
            return {key: of for one in schema.types for key, of in _fields(one).items()}
        case msgspec.inspect.VarTupleType():
            return _fields(schema.item_type)
    return {}


def _misfit(error: msgspec.ValidationError, file: YamlValue) -> BadInput:
    problem, place = misfit(str(error))
    value = file.at(place)
    fix = next((fix for last, fix in _FIXES.items() if value.key.endswith(last)), "correct it")
    problem = problem[:1].lower() + problem[1:]
    where = f"{value.file}:{value.line}: {value.key or 'the whole file'}"
    return BadInput(f"{where}: {problem}; {fix}")


_SCHEMA = msgspec.inspect.type_info(_File)

_FIXES = {
    "version": "write v1",
    "migStrategy": "write none, single or mixed",
    "replicas": "write 2 or more",
    "resources": "name at least one resource and its replicas",
}
"""What to write, by the last part of the key."""
