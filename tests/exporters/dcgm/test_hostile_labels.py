# SPDX-License-Identifier: Apache-2.0
"""Hostile label values in great numbers through the renderer and back, by two parsers."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from discovery.gpu_part import GpuPart
from exporters.dcgm.catalog import CATALOG
from exporters.dcgm.render import Renderer
from exporters.dcgm.series_labels import SeriesIdentity
from exporters.device_user_names import Claim, ContainerUser
from exporters.prometheus_text import MOST_LABEL_CHARACTERS
from tests import build, exposition
from tests.conftest import SCALE

VALUES = 10_000 * SCALE
VALUES_LONG = 100_000 * SCALE
"""A million where ``make long`` scales by 10."""

HOLDERS = 250
"""Of one GPU in one exposition, a series each."""

CLOCK = [family for family in CATALOG if family.name == "DCGM_FI_DEV_SM_CLOCK"]
CLAIM = Claim(namespace="", name="", driver="", pool="", device="")
LABELS = (
    "namespace",
    "pod",
    "container",
    "pod_uid",
    "dra_claim_namespace",
    "dra_claim_name",
    "dra_driver_name",
    "dra_pool_name",
    "dra_device_name",
    "label",
)
"""In which a device user's ten values stand, in their order."""

PIECES = (
    "\\",
    '"',
    "\n",
    r"\n",
    r"\"",
    "\r",
    "\t",
    "\0",
    "\x85",
    "\u2028",
    "{",
    "}",
    ",",
    "=",
    "#",
    " ",
    '",x="',
    '"} 1\n',
    "\n# TYPE x gauge\n",
    "NaN",
    b"\xff\xc3(".decode("utf-8", "surrogateescape"),
    "\ufeff",
    "\U0001f4a5",
)
"""What ends a value, a label or a line for a careless writer or reader, and what UTF-8 forbids."""


def hostile(chance: random.Random) -> str:
    """A few such pieces among any characters at all; one in a hundred is too long."""
    if chance.random() < 0.01:
        return chance.choice(PIECES) * 10_000
    pieces = chance.choices(PIECES, k=chance.randrange(8))
    pieces += [chr(chance.randrange(0x110000)) for _ in range(chance.randrange(4))]
    chance.shuffle(pieces)
    return "".join(pieces)


def user(share: int, values: list[str]) -> ContainerUser:
    namespace, pod, container, uid, *claimed, label = values
    names = ("namespace", "name", "driver", "pool", "device")
    return ContainerUser(
        namespace=namespace,
        pod=pod,
        container=container,
        uid=uid,
        share=str(share),  # legal, so that series are told apart by it
        claim=replace(CLAIM, **dict(zip(names, claimed, strict=True))),
        labels=(("label", label),),
    )


def exposed(given: list[list[str]]) -> bytes:
    gpu = build.gpu()
    users = tuple(user(share, values) for share, values in enumerate(given))
    return Renderer(CLOCK).render(
        build.node([gpu]),
        [build.sample(gpu)],
        (),
        SeriesIdentity(hostname="node-a", pod_uid=True, shares=True),
        {GpuPart(gpu.bus_id): users},
    )


def read_strictly(body: bytes) -> list[Mapping[str, str]]:
    (family,) = exposition.parse(body).values()
    return [dict(labels) for _, labels in family.series]


def read_by_the_library(body: bytes) -> list[Mapping[str, str]]:
    (family,) = text_string_to_metric_families(body.decode())
    return [sample.labels for sample in family.samples]


def as_told(value: str) -> str:
    return value[:MOST_LABEL_CHARACTERS].encode("utf-8", "replace").decode()


@pytest.mark.parametrize(
    "count", [VALUES, pytest.param(VALUES_LONG, marks=pytest.mark.long)], ids=["short", "long"]
)
@pytest.mark.timeout(1200)
def test_every_hostile_value_comes_back_through_the_exposition(count: int) -> None:
    each = HOLDERS * len(LABELS)
    for seed in range(-(-count // each)):
        chance = random.Random(seed)  # noqa: S311  # has to repeat
        given = [[hostile(chance) for _ in LABELS] for _ in range(HOLDERS)]

        body = exposed(given)

        for found in (read_strictly(body), read_by_the_library(body)):
            by_share = sorted(found, key=lambda labels: int(labels["vgpu"]))
            told = [[labels[name] for name in LABELS] for labels in by_share]
            assert told == [[as_told(value) for value in values] for values in given], seed
