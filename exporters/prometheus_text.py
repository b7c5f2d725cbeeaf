# SPDX-License-Identifier: Apache-2.0
"""Parts of Prometheus text that all families share: their kinds, and escaped labels. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

MOST_LABEL_CHARACTERS = 256
"""Longer label values are cut; the longest legal one is a node name of 253."""

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class MetricType(StrEnum):
    """Type of a metric, as it stands behind ``# TYPE``."""

    GAUGE = "gauge"
    COUNTER = "counter"


def labels_text(labels: Mapping[str, str | None]) -> str:
    """``name="value",…`` in the order of the mapping; a label whose value is None is left out.

    Text from a driver or a file may hold what UTF-8 cannot encode: it becomes question marks.
    """
    text = ",".join(
        f'{name}="{value[:MOST_LABEL_CHARACTERS].translate(_ESCAPES)}"'
        for name, value in labels.items()
        if value is not None
    )
    return text.encode("utf-8", "replace").decode()
