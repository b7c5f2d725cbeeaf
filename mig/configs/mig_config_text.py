# SPDX-License-Identifier: Apache-2.0
"""Writes configurations in mig-parted's format v1, and a node's present layout as one of them.

Import it where such a text is written, not before: the YAML package takes memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import yaml

from base.errors import Permanent
from discovery.mig_state import MigGpu
from mig.configs.layout_claims import gpu_title
from mig.configs.mig_configs import MigConfig, MigConfigSpec
from mig.gpu_layout import GpuLayout
from mig.layout_difference import present_layout


class _Quoted(str):
    """Text that stands in quotes: some readers take a plain ``y`` for true."""


class _InOneLine(list[Any]):
    """A list that stands in brackets."""


class _Writer(yaml.SafeDumper):
    """Writes values that stand in several places each time, without aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        """Whatever it is."""
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
    content = {
        "version": "v1",
        "mig-configs": {
            _Quoted(config.name): [_spec(spec) for spec in config.specs] for config in configs
        },
    }
    return str(
        yaml.dump(content, Dumper=_Writer, sort_keys=False, allow_unicode=True, width=10_000)
    )


def present_config(gpus: Sequence[MigGpu], name: str = "current") -> MigConfig:
    """What the GPUs look like now, as a configuration; those without MIG are not in it.

    An entry names indices, unless all GPUs of the node are alike. Raises Permanent where the format
    cannot express a GPU's state: what was left out would be lost without a word; and where the
    node has no GPU with MIG.
    """
    indices: dict[GpuLayout, list[int]] = {}
    for gpu in gpus:
        if gpu.mode is None:
            continue
        layout = present_layout(gpu)
        if layout is None:
            raise Permanent(
                f"{gpu_title(gpu)} is between two layouts: its mode waits for a reset, or a GPU"
                " instance has no compute instance; no configuration says that"
            )
        indices.setdefault(layout, []).append(gpu.index)
    if not indices:
        raise Permanent("no GPU here has MIG: there is no layout to write")
    alike = len(indices) == 1 and all(gpu.mode is not None for gpu in gpus)
    return MigConfig(
        name=name,
        specs=tuple(
            MigConfigSpec(layout=layout, devices=None if alike else tuple(sorted(found)))
            for layout, found in indices.items()
        ),
    )


def _spec(spec: MigConfigSpec) -> dict[str, Any]:
    entry: dict[str, Any] = {}
    if spec.filters:
        entry["device-filter"] = _InOneLine(_Quoted(str(each)) for each in spec.filters)
    entry["devices"] = "all" if spec.devices is None else _InOneLine(spec.devices)
    entry["mig-enabled"] = spec.layout.mig
    if spec.layout.mig:
        if any(one.start >= 0 for one in spec.layout.instances):
            raise ValueError("mig-parted's format has no placements")
        entry["mig-devices"] = {
            _Quoted(name): count for name, count in sorted(spec.layout.devices().items())
        }
    return entry
