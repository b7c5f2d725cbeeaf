# SPDX-License-Identifier: Apache-2.0
"""Where the agent takes the driver's library for one that a container runtime put there."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from agent.agent_program import is_library_injected


@pytest.mark.parametrize(
    ("environ", "is_injected"),
    [
        ({}, False),
        ({"NVIDIA_VISIBLE_DEVICES": ""}, False),
        ({"NVIDIA_VISIBLE_DEVICES": "void"}, False),
        ({"NVIDIA_VISIBLE_DEVICES": "none"}, True),
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, True),
        ({"NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b"}, True),
        ({"NVIDIA_DRIVER_CAPABILITIES": "utility"}, False),
    ],
)
def test_a_library_is_injected_where_devices_are_named_that_are_not_void(
    environ: Mapping[str, str], *, is_injected: bool
) -> None:
    """With ``none`` there is a library without devices."""
    assert is_library_injected(environ) is is_injected
