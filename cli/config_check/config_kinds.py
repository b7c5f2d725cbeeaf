# SPDX-License-Identifier: Apache-2.0
"""Kinds of configuration files, and which of them a text is. Pure.

Each kind has keys on its first level that no other kind has. A key that is nearly one of them
counts where no key is exactly one, so that a slip of the pen does not end the check.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from typing import Final

from base.errors import BadInput
from base.words import closest
from base.yaml_places import Yaml11Loader, read_yaml


class ConfigKind(StrEnum):
    """Kinds of files, by the words of ``--kind``."""

    DEVICE_PLUGIN = "device-plugin"
    MIG = "mig"
    COUNTERS = "counters"
    LABEL_RULES = "label-rules"
    WEB = "web"


TITLES: Final[Mapping[ConfigKind, str]] = {
    ConfigKind.DEVICE_PLUGIN: "device plugin configuration",
    ConfigKind.MIG: "MIG configurations",
    ConfigKind.COUNTERS: "counters",
    ConfigKind.LABEL_RULES: "rules for labels",
    ConfigKind.WEB: "web config",
}

_KEYS: Final[Mapping[ConfigKind, Collection[str]]] = {
    ConfigKind.DEVICE_PLUGIN: ("flags", "sharing", "resources", "imex"),
    ConfigKind.MIG: ("mig-configs",),
    ConfigKind.COUNTERS: ("metrics", "collection", "collections", "sources", "server"),
    ConfigKind.LABEL_RULES: ("labels",),
    ConfigKind.WEB: (
        *("tls_server_config", "http_server_config", "basic_auth_users", "rate_limit"),
    ),
}
"""Keys of the first level; ``version`` is of several kinds, and decides nothing."""

_ROW: Final = re.compile(r"\s*(?:DCGM_|dcgm_)\w+\s*(?:,|$)|[^,:]+,[^,]+,", re.MULTILINE)
_KEY: Final = re.compile(r"""^["']?([A-Za-z_-]+)["']?[ \t]*:(?:\s|$)""", re.MULTILINE)


def likeliest_kind(text: str) -> ConfigKind | None:
    """The kind that a text is most like; None where it is like none, or like two equally."""
    keys = set(_first_level(text))
    if not keys:
        lines = (line for line in text.splitlines() if line.strip() and line.lstrip()[0] != "#")
        return ConfigKind.COUNTERS if any(map(_ROW.match, lines)) else None
    exact = _most({kind: len(_named(keys, kind)) for kind in ConfigKind})
    return exact or _most({kind: len(_meant(keys, kind)) for kind in ConfigKind})


def _first_level(text: str) -> Iterator[str]:
    """Keys of the first level, also of a text that is not right further down."""
    try:
        root = read_yaml(text, "", loader=Yaml11Loader, as_go=True)
    except BadInput:
        yield from _KEY.findall(text)
    else:
        yield from root.mapping() if root.is_mapping else ()


def _named(keys: Collection[str], kind: ConfigKind) -> set[str]:
    return {key.casefold() for key in keys} & set(_KEYS[kind])


def _meant(keys: Collection[str], kind: ConfigKind) -> set[str]:
    return {key for key in keys if key != "version" and closest(key, _KEYS[kind])}


def _most(counts: Mapping[ConfigKind, int]) -> ConfigKind | None:
    best = max(counts.values())
    kinds = [kind for kind, count in counts.items() if count == best]
    return kinds[0] if best and len(kinds) == 1 else None
