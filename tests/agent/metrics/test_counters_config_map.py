# SPDX-License-Identifier: Apache-2.0
"""A ConfigMap that does not come keeps nothing waiting, and counts when it comes."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from agent.metrics.counters_config_map import CountersConfigMap
from base.errors import BadInput
from simulator.simulation import Simulation
from tests.agent.agent_process import running, until
from tests.fakes.scripted import Reply, Request, ScriptedServer, answer
from tests.fakes.thread_limit import allow_threads

TEXT = "DCGM_FI_DEV_SM_CLOCK, gauge, x"


def highest(_low: float, high: float) -> float:
    return high


class Reads:
    """What each read gives; counts them."""

    def __init__(self, *results: bytes | Exception) -> None:
        self.left = list(results)
        self.count = 0

    def __call__(self) -> bytes:
        self.count += 1
        result = self.left.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


def test_tries_are_made_at_growing_intervals_until_one_succeeds() -> None:
    reads = Reads(*[BadInput("away")] * 4, TEXT.encode())
    config_map = CountersConfigMap("a:b", reads, uniform=highest)
    config_map.begin()
    now, tried_at = 1000.0, []
    while not config_map.is_read:
        before = reads.count
        wait = config_map.poll(now)
        if reads.count > before:
            tried_at.append(now - 1000.0)
        now += wait

    assert tried_at == [0.0, 2.0, 6.0, 14.0]
    assert config_map.counters is not None
    assert [family.name for family in config_map.counters.families] == ["DCGM_FI_DEV_SM_CLOCK"]
    for _ in range(10):
        now += config_map.poll(now)
    assert reads.count == 5


def test_a_request_that_does_not_end_is_not_sent_again() -> None:
    may_end = threading.Event()
    count = 0

    def read() -> bytes:
        nonlocal count
        count += 1
        may_end.wait()
        return TEXT.encode()

    config_map = CountersConfigMap("a:b", read)
    config_map.begin(wait_seconds=0.0)
    for now in range(100):
        config_map.poll(float(now))
    assert (config_map.is_read, config_map.counters, count) == (False, None, 1)

    may_end.set()
    until(lambda: config_map.is_read)
    assert count == 1


def test_without_a_thread_the_first_tick_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    allow_threads(monkeypatch, 0)
    config_map = CountersConfigMap("a:b", Reads(TEXT.encode()))
    config_map.begin()
    assert not config_map.is_read
    config_map.poll(0.0)
    assert config_map.is_read


def test_the_agent_serves_while_the_api_server_does_not_answer_and_fills_in_later(
    tmp_path: Path,
) -> None:
    may_answer = threading.Event()
    body = {"metadata": {"name": "counters"}, "data": {"metrics": TEXT}}

    def script(_: Request) -> Reply:
        may_answer.wait()
        return answer(body)

    server = ScriptedServer(script)
    config = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server.url}}],
        "users": [{"name": "u", "user": {}}],
    }
    (tmp_path / "config").write_text(json.dumps(config))
    simulation = Simulation.create("a30-pair", tmp_path)
    options = ("--standalone", "--kubeconfig", str(tmp_path / "config"))
    with (
        server,
        running(simulation, *options, "--counters-from", "gpu:counters") as agent,
    ):
        until(lambda: "DCGM_FI_DEV_GPU_TEMP{" in agent.metrics())
        assert 'gpuscape_source_up{source="counters"} 0.0' in agent.metrics()

        may_answer.set()

        until(lambda: "DCGM_FI_DEV_GPU_TEMP{" not in agent.metrics())
        assert "DCGM_FI_DEV_SM_CLOCK{" in agent.metrics()
        until(lambda: 'gpuscape_source_up{source="counters"} 1.0' in agent.metrics())
