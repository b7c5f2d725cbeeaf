# SPDX-License-Identifier: Apache-2.0
"""What the values of a snapshot say of themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from discovery.model import Fabric, Gap, Mode, Reason, Topology
from tests import build


@pytest.mark.parametrize(
    ("there", "back", "links"), [(4, 2, 2), (2, 4, 2), (None, 4, None), (4, None, None), (0, 4, 0)]
)
def test_a_pair_has_the_links_that_both_ends_see(
    there: int | None, back: int | None, links: int | None
) -> None:
    assert Topology(nvlinks=((0, there), (back, 0))).effective(0, 1) == links


COMPLETED = Fabric(
    state=3, status=0, cluster_uuid="01234567-89ab-cdef-0123-456789abcdef", clique_id=0
)


@pytest.mark.parametrize(
    ("fabric", "registered", "unregistered", "attached"),
    [
        (COMPLETED, True, False, True),
        (replace(COMPLETED, cluster_uuid="00000000-0000-0000-0000-000000000000"),
         True, False, False),
        (replace(COMPLETED, status=999), False, True, False),
        (replace(COMPLETED, state=2), False, True, False),
        (replace(COMPLETED, state=1), False, True, False),
        (replace(COMPLETED, state=0), False, False, False),  # there is none to register with
    ],
)  # fmt: skip
def test_a_gpu_is_registered_once_that_was_completed_with_success(
    fabric: Fabric, registered: bool, unregistered: bool, attached: bool
) -> None:
    found = (fabric.registered, fabric.unregistered, fabric.attached)
    assert found == (registered, unregistered, attached)


@pytest.mark.parametrize(
    ("mig", "capable", "enabled"),
    [
        (None, False, False),
        (Mode(current=False, pending=True), True, False),
        (Mode(current=True, pending=False), True, True),
    ],
)
def test_mig_is_on_when_it_is_on_now(mig: Mode | None, capable: bool, enabled: bool) -> None:
    gpu = build.gpu(0, mig=mig)
    assert (gpu.mig_capable, gpu.mig_enabled) == (capable, enabled)


@pytest.mark.parametrize(
    ("reason", "kept", "misses"),
    [
        (Reason.FAILED, False, True),
        (Reason.FAILED, True, False),
        (Reason.UNSUPPORTED, False, False),
    ],
)
def test_a_gpu_misses_what_it_has_and_was_never_read(
    reason: Reason, kept: bool, misses: bool
) -> None:
    gap = Gap(what="mig", reason=reason, source="nvml", kept=kept)
    other = Gap(what="ecc", reason=Reason.UNSUPPORTED, source="nvml")
    gpu = build.gpu(0, gaps=(other, gap))
    assert gpu.gap("mig") == gap
    assert gpu.misses("mig") is misses
    assert (gpu.gap("serial"), gpu.misses("serial")) == (None, False)
