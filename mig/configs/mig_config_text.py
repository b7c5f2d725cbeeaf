# SPDX-License-Identifier: Apache-2.0
"""Writes configurations in mig-parted's format v1, as YAML and as JSON.

Import it where such a text is written, not before: the YAML package takes memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import yaml

from base.text.safe_text import safe_json
from mig.configs.mig_configs import MigConfig, MigConfigSpec


class _Quoted(str):
    """Text that stands in quotes: some readers take a plain ``y`` for true."""


class _InOneLine(list[Any]):
    """A list that stands in brackets."""


class _Writer(yaml.SafeDumper):
    """Writes values that stand in several places each time, without aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        """True for every value, so that no alias is written."""
        return data is not ...


_Writer.add_representer(
    _Quoted, lambda writer, text: writer.represent_scalar("tag:yaml.org,2002:str", text, style='"')
)
_Writer.add_representer(
    _InOneLine,
    lambda writer, items: writer.represent_sequence(
        "tag:yaml.org,2002:seq", items, flow_style=True
    ),
)


def mig_config_text(configs: Iterable[MigConfig]) -> str:
    """The file that mig-parted reads, and that reads back as the same configurations.

    Raises ValueError for a layout with placements, which the format does not have.
    """
    content = _content(configs)
    return str(
        yaml.dump(content, Dumper=_Writer, sort_keys=False, allow_unicode=True, width=10_000)
    )


def mig_config_json(configs: Iterable[MigConfig]) -> str:
    """The configurations as a JSON file, which is YAML too. Raises as :func:`mig_config_text`."""
    return safe_json(json.dumps(_content(configs), indent=2, ensure_ascii=False)) + "\n"


def _content(configs: Iterable[MigConfig]) -> dict[str, Any]:
    return {
        "version": "v1",
        "mig-configs": {
            _Quoted(config.name): [_spec(spec) for spec in config.specs] for config in configs
        },
    }


def _spec(spec: MigConfigSpec) -> dict[str, Any]:
    entry: dict[str, Any] = {}
    if spec.filters:
        entry["device-filter"] = _InOneLine(
            _Quoted(str(device_filter)) for device_filter in spec.filters
        )
    entry["devices"] = "all" if spec.devices is None else _InOneLine(sorted(spec.devices, key=int))
    entry["mig-enabled"] = spec.layout.mig
    if spec.layout.mig:
        if any(instance.start >= 0 for instance in spec.layout.instances):
            raise ValueError("mig-parted's format has no placements")
        entry["mig-devices"] = {
            _Quoted(name): count for name, count in sorted(spec.layout.devices().items())
        }
    return entry
