# SPDX-License-Identifier: Apache-2.0
"""The scheduler's settings, and the errors about mistakes in them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from base.errors import BadInput
from placement.kubelet_model import DevicePluginPolicy, TopologyManager
from scheduler.extender.scheduler_settings import SCHEDULER_SETTINGS, SchedulerSettings
from scheduler.placement_aims import ProductOrder
from web.address import Address

LOOPBACK = Address(host="127.0.0.1", port=8888)
TLS: dict[str, Any] = {"tls-cert-file": "a.crt", "tls-private-key-file": "a.key"}


def settings(
    environ: Mapping[str, str] | None = None, file: str = "", **flags: str
) -> SchedulerSettings:
    """As they come from these layers; underscores in a flag's name stand for dashes."""
    given = {name.replace("_", "-"): text for name, text in flags.items()}
    named = {"config": "scheduler.yaml"} if file else {}
    return SCHEDULER_SETTINGS.load({**given, **named}, environ or {}, lambda _: file)


def refusal(environ: Mapping[str, str] | None = None, file: str = "", **flags: str) -> str:
    with pytest.raises(BadInput) as caught:
        settings(environ, file, **flags)
    return str(caught.value)


def test_every_setting_can_be_given_and_is_explained() -> None:
    fields = [field.name for field in dataclasses.fields(SchedulerSettings)]
    assert [option.field for option in SCHEDULER_SETTINGS.options] == fields
    assert all(option.spec.help.endswith(".") for option in SCHEDULER_SETTINGS.options)


def test_without_any_it_listens_on_loopback_with_the_defaults() -> None:
    assert settings() == SchedulerSettings(listen=LOOPBACK)


def test_defaults_read_back_as_they_are_shown() -> None:
    shown = {
        option.name: option.spec.kind.show(option.default)
        for option in SCHEDULER_SETTINGS.options
        if option.has_default
    }
    assert SCHEDULER_SETTINGS.load(shown, {}) == SchedulerSettings(listen=LOOPBACK)


def test_flags_win_over_the_environment_and_that_over_the_file() -> None:
    found = settings(
        {"GPUSCAPE_BUDGET": "20ms", "GPUSCAPE_LOG_LEVEL": "debug"},
        "budget: 30ms\nlog-level: error\ngpu-resource: nvidia.com/a100\nevents: false\n",
        budget="10ms",
        topology_manager="single-numa-node",
        allocation="random",
        product_order="cheapest",
        nic_resources="rdma/a, rdma/b",
    )
    assert found == SchedulerSettings(
        listen=LOOPBACK,
        budget_seconds=0.01,
        log_level="debug",
        gpu_resource="nvidia.com/a100",
        events=False,
        topology_manager=TopologyManager.SINGLE_NUMA_NODE,
        allocation=DevicePluginPolicy.RANDOM,
        product_order=ProductOrder.CHEAPEST,
        nic_resources=("rdma/a", "rdma/b"),
    )


def test_what_pods_are_told_of_themselves_counts() -> None:
    found = settings({"POD_NAMESPACE": "gpus", "POD_NAME": "scheduler-0", "KUBECONFIG": "/k"})
    assert (found.namespace, found.instance, found.kubeconfig) == (
        "gpus",
        "scheduler-0",
        Path("/k"),
    )


@pytest.mark.parametrize(
    ("refused", "named"),
    [
        (refusal({"GPUSCAPE_BUDGETS": "1s"}), "GPUSCAPE_BUDGETS is not a setting"),
        (refusal(file="budgets: 1s\n"), "scheduler.yaml:1: 'budgets' is not a setting: did you"),
        (refusal(budget="0s"), "--budget is '0s': expected a duration from 1ms"),
        (refusal(topology_manager="strict"), "expected none, best-effort, restricted or single-"),
        (refusal(listen=":8443"), "there is no TLS"),
        (refusal(listen="10.0.0.1:8443"), "10.0.0.1:8443"),
        (refusal(listen="node-a:8443"), "node-a:8443"),
        (refusal(tls_cert_file="a.crt"), "tls-private-key-file"),
        (refusal(tls_private_key_file="a.key"), "tls-cert-file"),
        (refusal(client_ca_file="ca.crt"), "client-ca-file needs TLS"),
        (refusal(client_names="a", **TLS), "client-names needs client-ca-file"),
    ],
)
def test_mistakes_name_the_setting_and_the_fix(refused: str, named: str) -> None:
    assert named in refused


@pytest.mark.parametrize(
    ("settings_of", "sentence"),
    [
        (
            {"tls_cert_file": Path("a")},
            "tls-cert-file and tls-private-key-file belong together: give both or none",
        ),
        (
            {"client_ca_file": Path("a")},
            "client-ca-file needs TLS: give tls-cert-file and tls-private-key-file too",
        ),
        (
            {"client_names": ("a",)},
            "client-names needs client-ca-file: without it no certificate is verified",
        ),
        (
            {"listen": Address(host="::", port=1)},
            "listen is [::]:1, which other machines reach, and there is no TLS:"
            " give tls-cert-file and tls-private-key-file, or listen on 127.0.0.1",
        ),
    ],
)
def test_a_contradiction_is_refused_in_one_whole_sentence(
    settings_of: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(BadInput) as caught:
        SchedulerSettings(**settings_of)
    assert str(caught.value) == sentence


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1"])
def test_loopback_needs_no_tls(address: str) -> None:
    assert settings(listen=address).listen.port == 1


def test_any_address_is_served_with_tls() -> None:
    assert settings(listen=":8443", **TLS).listen == Address(host="", port=8443)
