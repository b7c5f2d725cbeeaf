# SPDX-License-Identifier: Apache-2.0
"""The ConfigMap that holds counters, as dcgm-exporter reads one."""

from __future__ import annotations

from base.errors import BadInput
from kube.api import CONFIG_MAPS, Api

COUNTERS_KEY = "metrics"
"""Key in a ConfigMap with counters. Source: dcgm-exporter's --configmap-data."""


def config_map_text(client: Api, named: str) -> bytes:
    """The key ``metrics`` of the ConfigMap ``namespace:name``. Raises ApiError and BadInput."""
    namespace, _, name = named.partition(":")
    data = client.get(CONFIG_MAPS, name, namespace=namespace).get("data") or {}
    if COUNTERS_KEY not in data:
        raise BadInput(f"it has no key {COUNTERS_KEY}")
    return str(data[COUNTERS_KEY]).encode("utf-8", "replace")
