# SPDX-License-Identifier: Apache-2.0
"""A good file of each kind, and faults that are planted in it, one at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cli.config_check.config_kinds import ConfigKind

MARK: Final = "PLANTED"
"""In every planted fault, so that a search of the text has the line."""

_HASH: Final = "$2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG"

GOOD: Final[Mapping[ConfigKind, str]] = {
    ConfigKind.DEVICE_PLUGIN: """\
# of one node pool
version: v1
flags:
  migStrategy: none
  plugin:
    deviceIDStrategy: uuid
  gfd:
    sleepInterval: 60s

sharing:
  timeSlicing:
    renameByDefault: true
    resources:
    - name: nvidia.com/gpu
      replicas: 4
""",
    ConfigKind.MIG: """\
version: v1
mig-configs:
  all-disabled:
    - devices: all
      mig-enabled: false

  halves:
    - device-filter: ["0x20B210DE", "0x233010DE"]
      devices: [0, 1]
      mig-enabled: true
      mig-devices:
        "3g.40gb": 2
""",
    ConfigKind.COUNTERS: """\
# name, type, help
DCGM_FI_DEV_GPU_TEMP, gauge, GPU temperature (in C).

DCGM_FI_DEV_SM_CLOCK, gauge, SM clock frequency (in MHz).
DCGM_FI_DRIVER_VERSION, label, Driver version.
""",
    ConfigKind.LABEL_RULES: """\
labels:
- key: example.com/gpu-memory
  value: "{memory-gib}Gi"
- key: example.com/gpu-type
  values:
  - match: {product: "*H100*"}
    value: fast
  - value: other
""",
    ConfigKind.WEB: f"""\
http_server_config:
  headers:
    X-Frame-Options: deny

basic_auth_users:
  alice: {_HASH}
rate_limit:
  interval: 1s
  burst: 10
""",
}

COUNTERS_YAML: Final = """\
version: 2
metrics:
  enableExporterMetrics: true
  fields:
    - name: DCGM_FI_DEV_GPU_TEMP
      prometheusType: gauge
      help: GPU temperature
server:
  maxConcurrentScrapes: 4
"""

_SUBSTITUTIONS: Final[Mapping[ConfigKind, tuple[tuple[str, str], ...]]] = {
    ConfigKind.DEVICE_PLUGIN: (
        ("version: v1", f"version: {MARK}"),
        ("migStrategy: none", f"migStrategy: {MARK}"),
        ("deviceIDStrategy: uuid", f"deviceIDStrategy: {MARK}"),
        ("sleepInterval: 60s", f"sleepInterval: {MARK}"),
        ("renameByDefault: true", f"renameByDefault: {MARK}"),
        ("name: nvidia.com/gpu", f"name: '{MARK}!'"),
        ("replicas: 4", f"replicas: {MARK}"),
        ("replicas: 4", f"replicas: 1 # {MARK}"),
        ("replicas: 4", f"replicas: 4\n      devices: {MARK}"),
        ("renameByDefault: true", f"renameByDefualt: true # {MARK}"),
        ("migStrategy: none", f"migStrategy: none {MARK}: x"),
    ),
    ConfigKind.MIG: (
        ("version: v1", f"version: {MARK}"),
        ("mig-enabled: false", f"mig-enabled: {MARK}"),
        ("devices: all", f"devices: {MARK}"),
        ('["0x20B210DE", "0x233010DE"]', f'["{MARK}"]'),
        ("devices: [0, 1]", f"devices: [] # {MARK}"),
        ('"3g.40gb": 2', f'"{MARK}": 2'),
        ('"3g.40gb": 2', f'"3g.40gb": {MARK}'),
        ("      mig-devices:", f"      mig-devies: # {MARK}"),
        ("  halves:", f"  all-disabled: # {MARK}"),
    ),
    ConfigKind.COUNTERS: (
        ("DCGM_FI_DEV_SM_CLOCK, gauge, SM clock frequency (in MHz).", f"{MARK}, gauge, x"),
        ("SM_CLOCK, gauge", f"SM_CLOCK, {MARK}"),
        ("SM_CLOCK, gauge, SM clock frequency (in MHz).", f"SM_CLOCK, gauge {MARK}"),
        ("clock frequency (in MHz).", f"clock, frequency {MARK}"),
        ("SM clock", f'"SM {MARK}" clock'),
    ),
    ConfigKind.LABEL_RULES: (
        ("key: example.com/gpu-memory", f"key: nvidia.com/{MARK}"),
        ('"{memory-gib}Gi"', f'"{{{MARK}}}Gi"'),
        ("value: fast", f"value: '{MARK} !'"),
        ('{product: "*H100*"}', f'{{product: "{MARK} H100"}}'),
        ("key: example.com/gpu-type", f"kye: example.com/{MARK}"),
    ),
    ConfigKind.WEB: (
        ("X-Frame-Options: deny", f"X-Frame-Options: {MARK}"),
        ("X-Frame-Options: deny", f"{MARK}: deny"),
        (f"alice: {_HASH}", f"alice: {MARK}"),
        ("interval: 1s", f"interval: {MARK}"),
        ("burst: 10", f"burst: {MARK}"),
        ("http_server_config:", f"http_sever_config: # {MARK}"),
    ),
}

FAULTS: Final = tuple(
    (kind, GOOD[kind].replace(old, new, 1))
    for kind, substitutions in _SUBSTITUTIONS.items()
    for old, new in substitutions
)
"""Kind, and its good file with one fault."""


def config_map(*texts: str) -> str:
    """A ConfigMap with the texts as its files ``file-0``, ``file-1``."""
    lines = ["apiVersion: v1", "kind: ConfigMap", "metadata:", "  name: configs", "data:"]
    for at, text in enumerate(texts):
        lines.append(f"  file-{at}: |")
        lines += [f"    {line}".rstrip() for line in text.splitlines()]
    return "\n".join(lines) + "\n"


def planted_line(text: str) -> int:
    """The line of the planted fault, by a search in the text."""
    (line,) = (at for at, line in enumerate(text.splitlines(), 1) if MARK in line)
    return line
