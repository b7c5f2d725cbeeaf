# SPDX-License-Identifier: Apache-2.0
"""Why the GPUs are to be left alone, as the Node and the GPU operator's file ask for it.

Nobody's driver upgrade or MIG change may wait for an agent that holds NVML handles.
Pure, but for what has to be remembered and :func:`is_there`.
Source: NVIDIA/gpu-operator, controllers/state_manager.go (the labels); NVIDIA/mig-parted v0.15,
pkg/mig/reconfigure; NVIDIA/k8s-driver-manager.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from api import keys, names
from api.key_kinds import KeyLocation
from kube.objects.typed_object import Metadata
from labelers.node_patch import writers

PAUSED = "paused-for-"
"""Part of a deploy label's value while somebody stops this part of the operator."""
DEPLOY = tuple(
    f"nvidia.com/gpu.deploy.{part}"
    for part in ("driver", "device-plugin", "gpu-feature-discovery", "dcgm-exporter", "client")
)
CHANGING = ("pending", "rebooting")
"""States of a MIG change in which mig-manager wants nobody to hold a GPU."""
_LONGEST_TEXT = 80


class ReleaseSignals:
    """The causes that stand. What cannot be known now stays as it was."""

    def __init__(self, file: str, *, manager: str = names.AGENT) -> None:
        """``file``: name of the operator's driver-ready file, for people; ``manager``: ours."""
        self._file = file
        self._manager = manager
        self._node_causes: tuple[str, ...] = ()
        self._file_causes: tuple[str, ...] = ()
        self._file_seen = False

    def causes(self, node: Mapping[str, Any] | None, file_there: bool | None) -> tuple[str, ...]:
        """All causes, each in words for people; none: the GPUs may be used.

        ``node`` None: not known, as without a connection. ``file_there`` None: not known.
        The file counts once it was there: who has no operator never has one.
        """
        if node is not None:
            self._node_causes = tuple(_causes_on_node(node["metadata"], self._manager))
        if file_there is not None:
            self._file_seen |= file_there
            gone = self._file_seen and not file_there
            self._file_causes = (f"{self._file} is gone",) if gone else ()
        return self._node_causes + self._file_causes


def _causes_on_node(meta: Mapping[str, Any], manager: str) -> Iterator[str]:
    typed_meta = Metadata.from_object(meta)
    release, labels = typed_meta.annotations.get(keys.RELEASE), typed_meta.labels
    if release is not None and release.lower() != "false":
        yield f"annotation {keys.RELEASE}={_short(release)}"
    for key in DEPLOY:
        if PAUSED in labels.get(key, ""):
            yield f"label {key}={labels[key]}"
    state = labels.get(keys.MIG_CONFIG_STATE)
    if state in CHANGING and manager not in writers(
        meta, KeyLocation.NODE_LABEL, keys.MIG_CONFIG_STATE
    ):
        yield f"label {keys.MIG_CONFIG_STATE}={state}"


def _short(text: str) -> str:
    """A person's text on one line, cut to its longest length."""
    return " ".join(text.split())[:_LONGEST_TEXT]


def is_there(file: Path) -> bool | None:
    """Whether the file exists; None where that is not known."""
    try:
        return file.exists()
    except OSError:
        return None
