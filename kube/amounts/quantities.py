# SPDX-License-Identifier: Apache-2.0
"""Amounts of resources as Kubernetes writes them: ``500m``, ``16Gi``, ``2``, ``1e3``.

Source: k8s.io/apimachinery, pkg/api/resource/quantity.go.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from base.errors import BadInput
from base.words import quoted

Amount = str | int | float
"""A quantity as it is written."""
CPU: Final = "cpu"
"""The only resource that is counted in thousandths: of a core."""
PODS: Final = "pods"
MEMORY: Final = "memory"
STORAGE: Final = "ephemeral-storage"
HUGE_PAGES: Final = "hugepages-"
"""Prefix of the names of huge pages: a resource for each page size."""

_FACTORS: Final[Mapping[str, Fraction]] = MappingProxyType(
    {
        **{unit: Fraction(1, 1000**power) for power, unit in enumerate("mun", 1)},
        **{unit: Fraction(1000**power) for power, unit in enumerate("kMGTPE", 1)},
        **{f"{unit}i": Fraction(1024**power) for power, unit in enumerate("KMGTPE", 1)},
    }
)
_WRITTEN: Final = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([KMGTPE]i|[numkMGTPE])|[eE]([+-]?[0-9]{1,2}))?"
)
_MOST_CHARACTERS: Final = 64
_GIB: Final = 1 << 30


def counted_amount(resource: str, written: Amount) -> int:
    """An amount as the scheduler counts it, rounded up; raises BadInput for other text.

    Thousandths of a core for ``cpu``, else whole units: bytes or devices.
    """
    return math.ceil(quantity(str(written)) * (1000 if resource == CPU else 1))


@lru_cache(maxsize=4096)
def quantity(text: str) -> Fraction:
    """The exact number of a quantity. Raises BadInput for text that is no quantity."""
    match = _WRITTEN.fullmatch(text) if len(text) <= _MOST_CHARACTERS else None
    if match is None:
        raise BadInput(f"{quoted(text)} is no quantity such as 2, 500m or 16Gi")
    number, suffix, exponent = match.groups()
    factor = _FACTORS[suffix] if suffix else Fraction(10) ** int(exponent or 0)
    return Fraction(number) * factor


def shown(resource: str, amount: int) -> str:
    """A counted amount for people: cores, GiB, or a number of devices."""
    if resource == CPU:
        return f"{amount / 1000:g}"
    if resource in (MEMORY, STORAGE) or resource.startswith(HUGE_PAGES):
        return f"{amount / _GIB:.1f} GiB"
    return str(amount)
