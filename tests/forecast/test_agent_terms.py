# SPDX-License-Identifier: Apache-2.0
"""How agents treat MIG, as their DaemonSets tell."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import yaml

from api.mig_mode_change import ModeChange
from forecast.agent_terms import AgentTerms, ConfigMapKey, agent_terms
from forecast.coordinator_terms import coordinator_terms, deployed_settings
from forecast.scheduler_terms import deployed_product_order
from kube.api import Object
from mig.configs.config_overlap import Overlap
from scheduler.placement_aims import ProductOrder
from tests.deploy.daemonset import DEPLOY
from tests.deploy.deployments import set_deployment


def shipped() -> Object:
    """The DaemonSet as it is shipped."""
    made: Object = yaml.safe_load((DEPLOY / "base" / "daemonset.yaml").read_text())
    return made


def with_setting(
    *arguments: str, volumes: Any = (), mounts: Any = (), **environment: str
) -> Object:
    made = shipped()
    spec = made["spec"]["template"]["spec"]
    container = spec["containers"][0]
    container["args"] += arguments
    container["env"] += [{"name": name, "value": value} for name, value in environment.items()]
    spec["volumes"] += volumes
    container["volumeMounts"] += mounts
    return made


VOLUME = {"name": "mig", "configMap": {"name": "layouts"}}
MOUNT = {"name": "mig", "mountPath": "/etc/mig"}
FILE = "/etc/mig/config.yaml"


def test_what_is_shipped_only_plans_with_the_default_configurations() -> None:
    assert agent_terms([shipped()]) == AgentTerms(mode="observe", namespace="gpuscape")


@pytest.mark.parametrize(
    "made",
    [
        with_setting(
            "--mig-mode", "enforce", volumes=[VOLUME], mounts=[MOUNT], GPUSCAPE_MIG_CONFIG=FILE
        ),
        with_setting(
            "--mig-mode=enforce", f"--mig-config={FILE}", volumes=[VOLUME], mounts=[MOUNT]
        ),
        with_setting(
            "--mig-mode=enforce",
            volumes=[VOLUME],
            mounts=[MOUNT],
            GPUSCAPE_MIG_MODE="off",
            GPUSCAPE_MIG_CONFIG=FILE,
        ),
    ],
)
def test_settings_are_read_from_arguments_before_the_environment(made: Object) -> None:
    source = ConfigMapKey(namespace="gpuscape", name="layouts", key="config.yaml")
    terms = AgentTerms(mode="enforce", config=FILE, source=source, namespace="gpuscape")
    assert agent_terms([made]) == terms


def test_agents_may_let_the_last_entry_decide() -> None:
    made = with_setting(
        f"--mig-config={FILE}",
        volumes=[VOLUME],
        mounts=[MOUNT],
        GPUSCAPE_MIG_CONFIG_OVERLAP="last",
    )
    assert agent_terms([made]).overlap is Overlap.LAST


def test_a_canary_is_an_agent_too_and_an_empty_variable_sets_nothing() -> None:
    canary = with_setting(GPUSCAPE_MIG_CONFIG="", GPUSCAPE_MIG_MODE="")
    canary["metadata"]["labels"]["app.kubernetes.io/component"] = "agent-canary"
    assert agent_terms([shipped(), canary]) == agent_terms([shipped()])
    enforcing = with_setting("--mig-mode=enforce")
    enforcing["metadata"]["labels"]["app.kubernetes.io/component"] = "agent-canary"
    assert agent_terms([shipped(), enforcing]).unknown


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), ModeChange.OFF),
        (("--mig-mode-change=driver",), ModeChange.DRIVER),
        (("--mig-mode-change=off",), ModeChange.OFF),
        (("--mig-mode-change=later",), ModeChange.OFF),
    ],
)
def test_resets_are_foretold_where_the_agents_may_have_them_made(
    arguments: tuple[str, ...], expected: ModeChange
) -> None:
    """What is not known counts as off: the agent itself says more."""
    assert agent_terms([with_setting(*arguments)]).mode_change is expected


coordinator = partial(set_deployment, "coordinator")
scheduler = partial(set_deployment, "scheduler")


@pytest.mark.parametrize(
    ("made", "order"),
    [
        ([scheduler()], ProductOrder.FASTEST),
        ([coordinator(), scheduler("--product-order=cheapest")], ProductOrder.CHEAPEST),
        ([scheduler("--product-order", "off")], ProductOrder.OFF),
        ([scheduler(GPUSCAPE_PRODUCT_ORDER="cheapest")], ProductOrder.CHEAPEST),
        ([scheduler("--config=/f", "--product-order=off")], ProductOrder.OFF),
        ([scheduler("--config=/f")], None),
        ([scheduler("--product-order=slow")], None),
        ([scheduler(), scheduler()], None),
        ([coordinator()], None),
        ([], None),
    ],
)
def test_the_order_of_products_is_read_from_the_extenders_deployment(
    made: list[Object], order: ProductOrder | None
) -> None:
    assert deployed_product_order(made) is order


def test_how_the_coordinator_has_pods_leave_is_read_from_its_deployment() -> None:
    assert coordinator_terms([coordinator()]).drain == "wait"
    assert coordinator_terms([coordinator("--drain=evict")]).drain == "evict"
    assert coordinator_terms([coordinator(GPUSCAPE_DRAIN="node")]).drain == "node"
    assert coordinator_terms([coordinator(GPUSCAPE_CONFIG="/f")]).drain == ""
    assert coordinator_terms([coordinator(), coordinator()]).drain == ""
    assert coordinator_terms([shipped()]).drain == ""


@pytest.mark.parametrize(
    ("made", "ignores"),
    [
        (coordinator(), False),
        (coordinator("--ignore-autoscaler-marks"), True),
        (coordinator("--ignore-autoscaler-marks", "--drain=evict"), True),
        (coordinator(GPUSCAPE_IGNORE_AUTOSCALER_MARKS="True"), True),
        (coordinator(GPUSCAPE_IGNORE_AUTOSCALER_MARKS="false"), False),
        (coordinator(GPUSCAPE_CONFIG="/f"), False),
    ],
)
def test_marks_of_autoscalers_count_unless_the_coordinator_is_seen_to_ignore_them(
    made: Object, ignores: bool
) -> None:
    assert coordinator_terms([made]).evictions.ignore_autoscaler_marks is ignores


def test_all_settings_of_the_coordinator_are_read_from_its_deployment() -> None:
    settings = deployed_settings([coordinator("--slots=4", "--window=mon-fri 22:00-05:00")])
    assert settings is not None
    assert settings.slots == 4
    assert settings.windows
    assert settings.canary_seconds == 600.0
    marks = deployed_settings([coordinator("--ignore-autoscaler-marks", GPUSCAPE_SETTLE="7s")])
    assert marks is not None
    assert marks.ignore_autoscaler_marks
    assert marks.settle_seconds == 7.0


@pytest.mark.parametrize(
    "made", [[], [coordinator(GPUSCAPE_CONFIG="/f")], [coordinator("--slots=many")]]
)
def test_settings_that_cannot_be_known_are_none(made: list[Object]) -> None:
    assert deployed_settings(made) is None
    assert deployed_settings([coordinator(), coordinator()]) is None


def test_a_key_under_another_path_is_found_by_its_item() -> None:
    items = [{"key": "other", "path": "x"}, {"key": "fleet", "path": "config.yaml"}]
    volume = {"name": "mig", "configMap": {"name": "layouts", "items": items}}
    made = with_setting(volumes=[volume], mounts=[MOUNT], GPUSCAPE_MIG_CONFIG=FILE)
    assert agent_terms([made]).source == ConfigMapKey(
        namespace="gpuscape", name="layouts", key="fleet"
    )


@pytest.mark.parametrize(
    ("sets", "why"),
    [
        ([], "no DaemonSet of gpuscape's agent is seen"),
        ([with_setting(GPUSCAPE_MIG_CONFIG="/host/x")], "comes from no ConfigMap"),
        ([with_setting(GPUSCAPE_CONFIG="/etc/g.yaml")], "a settings file, which is not read here"),
        ([shipped(), with_setting("--mig-mode=enforce")], "with different settings"),
    ],
)
def test_what_cannot_be_seen_is_not_known(sets: list[Object], why: str) -> None:
    found = agent_terms(sets)
    assert why in found.unknown
    assert found.source is None
    assert found.mode == ("observe" if "host" in why or "ConfigMap" in why else None)
