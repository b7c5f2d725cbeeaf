# SPDX-License-Identifier: Apache-2.0
"""What the settings have the agent ask of others, and what it does without."""

from __future__ import annotations

import contextlib
import logging

import pytest

from agent import parts_from_settings as parts
from agent.metrics import metric_settings
from agent.settings.agent_settings import AgentSettings
from base.errors import BadInput
from discovery.sample import ReadingGroup
from exporters.dcgm.counters_format import DEFAULT_COUNTERS
from kube.api import CONFIG_MAPS
from kube.api_errors import Unreachable
from tests.fakes.api import FakeApi

SHARED = AgentSettings(standalone=True, pods=True, virtual_gpus=True)


@pytest.mark.parametrize(
    ("settings", "read"),
    [
        (SHARED, True),
        (AgentSettings(processes=True), True),
        (AgentSettings(standalone=True, virtual_gpus=True), False),  # no pods are shown
        (AgentSettings(), False),
    ],
)
def test_processes_are_read_where_pods_on_a_gpu_are_told_apart(
    settings: AgentSettings, read: bool
) -> None:
    assert (ReadingGroup.PROCESSES in metric_settings.groups(settings, DEFAULT_COUNTERS)) is read


def test_without_a_cluster_pods_that_share_a_gpu_are_not_told_apart_and_the_rest_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    with contextlib.ExitStack() as ending:
        assert parts.client(SHARED, ending) is None
    assert [line.message for line in caplog.records] == ["pods on shared GPUs not distinguished"]


def test_what_cannot_be_shown_without_a_cluster_ends_the_start() -> None:
    settings = AgentSettings(standalone=True, pods=True, virtual_gpus=True, pod_labels=True)
    with contextlib.ExitStack() as ending, pytest.raises(BadInput):
        parts.client(settings, ending)


def test_a_config_map_that_cannot_be_read_any_more_leaves_what_was_read() -> None:
    """Where it never could be, the default holds."""
    settings = AgentSettings(standalone=True, counters_from="default:counters")
    server = FakeApi()
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "counters", "namespace": "default"},
        "data": {"metrics": "DCGM_FI_DEV_SM_CLOCK, gauge, x"},
    }
    assert parts.counters(settings, server) == (DEFAULT_COUNTERS, None)
    server.create(CONFIG_MAPS, body, namespace="default")
    read, file = parts.counters(settings, server)
    assert read != DEFAULT_COUNTERS
    server.fail("get", Unreachable("get"), times=None)
    assert parts.counters(settings, server, read) == (read, file)
    assert parts.counters(settings, server) == (DEFAULT_COUNTERS, None)
