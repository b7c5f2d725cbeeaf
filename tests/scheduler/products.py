# SPDX-License-Identifier: Apache-2.0
"""Products whose best speeds are given, and fleets of them."""

from __future__ import annotations

from collections.abc import Mapping

from api.gpu_request import GpuRequest
from scheduler.fleet_products import FleetProducts


class Table:
    """A class with these best speeds, by size."""

    def __init__(self, best: Mapping[int, int | None]) -> None:
        self._best = best

    def known_best_speed(self, wish: GpuRequest) -> int | None:
        return self._best.get(min(wish.several), 0) if wish.several else 0


class Tables:
    """Those of all classes."""

    def __init__(self, **tables: Mapping[int, int | None]) -> None:
        self._tables = {gen: Table(best) for gen, best in tables.items()}

    def find(self, gen: str) -> Table | None:
        return self._tables.get(gen)


V, H = {2: 50, 4: 100, 8: 150}, {2: 450, 4: 450, 8: 450}
TWO = Tables(v=V, h=H)
BOTH = {"V": "v", "H": "h"}


def fleet(**nodes: int) -> FleetProducts:
    """So many nodes of 8 GPUs of each product; its class has its name in small letters."""
    products = FleetProducts()
    for product, count in nodes.items():
        for _ in range(count):
            products.add_node(product, product.lower(), 8, {})
    return products
