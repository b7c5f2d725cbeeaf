# SPDX-License-Identifier: Apache-2.0
"""Label selectors: what matches, what is refused, and the same on a real API server."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from base.errors import BadInput
from kube.api import NODES
from kube.label_selector import parse_label_selector
from tests.kube.clusters import client

if TYPE_CHECKING:
    from tests.controlplane.plane import Plane

LABELS = {
    "a100": {"pool": "a100", "zone": "a", "example.com/tier": "prod"},
    "h100": {"pool": "h100", "zone": "b", "spot": ""},
    "bare": {},
    "dev": {"pool": "a100", "zone": "b", "example.com/tier": "dev", "spot": "true"},
}
SELECTED = {
    "": {"a100", "h100", "bare", "dev"},
    "pool=a100": {"a100", "dev"},
    "pool==a100,zone=b": {"dev"},
    " pool = a100 , zone != b ": {"a100"},
    "pool!=a100": {"h100", "bare"},
    "example.com/tier!=dev": {"a100", "h100", "bare"},
    "pool in (a100, h100),zone in (b)": {"h100", "dev"},
    "pool notin (a100,b200)": {"h100", "bare"},
    "spot": {"h100", "dev"},
    "!spot": {"a100", "bare"},
    "spot=": {"h100"},
    "spot in (,true)": {"h100", "dev"},
    "pool,!spot,zone notin (b)": {"a100"},
}
FAULTY = ["pool=a b", "=a100", "pool in a100", "pool in (a 100)", "a,,b", "p/q/r=1", "!", "-x=1"]


@pytest.mark.parametrize("text", SELECTED)
def test_it_selects_the_nodes_that_fit(text: str) -> None:
    selector = parse_label_selector(text)
    assert {name for name, labels in LABELS.items() if selector.matches(labels)} == SELECTED[text]


@pytest.mark.parametrize("text", FAULTY)
def test_what_is_no_selector_is_refused_by_its_part(text: str) -> None:
    with pytest.raises(BadInput, match="label selector: '"):
        parse_label_selector(text)


@pytest.mark.cluster
def test_an_api_server_selects_and_refuses_the_same(plane: Plane) -> None:
    mark = uuid.uuid4().hex[:8]
    api = client("kubectl", plane.kubeconfig())
    for name, labels in LABELS.items():
        api.create(
            NODES, {"metadata": {"name": f"{name}-{mark}", "labels": labels | {"run": mark}}}
        )
    path = "/api/v1/nodes?labelSelector="
    for text, names in SELECTED.items():
        mine = quote(f"run={mark}" + (f",{text}" if text else ""))
        found = {node["metadata"]["name"] for node in plane.demand("GET", path + mine)["items"]}
        assert found == {f"{name}-{mark}" for name in names}, text
    for text in FAULTY:
        with pytest.raises(AssertionError, match="400"):
            plane.demand("GET", path + quote(text))
