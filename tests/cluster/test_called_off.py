# SPDX-License-Identifier: Apache-2.0
"""A person calls off a MIG change by the command of docs/mig.md, on a real API server.

The coordinator runs as a program with its account's token, and the shipped policies hold it.
"""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from api import keys, names
from tests.agent.agent_process import until
from tests.cluster.agents import Site
from tests.cluster.mig_nodes import (
    NodeModel,
    coordinator_process,
    install_coordinator,
    modelled_nodes,
    slots_in_use,
    working,
)
from tests.fleet.test_called_off import command_of_the_page

pytestmark = pytest.mark.cluster

_NUMBERS: Final = itertools.count()
GUARD: Final = {names.SCALE_DOWN_GUARDS[0]: "false"}


def held_by(
    site: Site, instance: str, folder: Path
) -> AbstractContextManager[tuple[subprocess.Popen[bytes], str]]:
    """A coordinator whose nodes stay in phase hold, until somebody calls off the change."""
    return coordinator_process(site, instance, folder, settle="60s")


def condition(site: Site, name: str) -> dict[str, Any]:
    """What a change may touch, as it stands on the Node."""
    node = site.node(name)
    notes = node["metadata"].get("annotations") or {}
    agents = (keys.MIG_STATUS, keys.MIG_REQUEST)
    return {
        "cordoned": bool(node["spec"].get("unschedulable")),
        "annotations": {it: text for it, text in notes.items() if it not in agents},
        "deploy": {it: text for it, text in site.labels(name).items() if "gpu.deploy" in it},
    }


def phase_is(site: Site, name: str, phase: str) -> bool:
    """Whether the Node's permit says so."""
    return f'"phase":"{phase}"' in site.annotations(name).get(keys.MIG_PERMIT, "")


@contextmanager
def one_node(site: Site) -> Iterator[tuple[NodeModel, dict[str, Any]]]:
    """A node that works, and its condition before anything; no write is refused meanwhile."""
    install_coordinator(site)
    (model,) = modelled_nodes(site, 1, f"called-{next(_NUMBERS)}")
    site.edit(model.name, annotations=GUARD)
    before, mark = condition(site, model.name), site.plane.mark()
    try:
        with working([model]):
            yield model, before
    finally:
        site.plane.demand("DELETE", f"/api/v1/nodes/{model.name}")
    account = names.username(names.COORDINATOR, site.namespace)
    events = site.plane.audit(since=mark, user=account)
    assert [it for it in events if it["responseStatus"]["code"] in (403, 422)] == []


def call_off(site: Site, name: str) -> None:
    """As the page says, with kubectl."""
    site.plane.kubectl("annotate", "node", name, f"{command_of_the_page()}-")


def test_the_node_is_as_it_was_at_once_where_the_change_has_not_begun(
    site: Site, tmp_path: Path
) -> None:
    with one_node(site) as (model, before), held_by(site, "c", tmp_path):
        until(lambda: phase_is(site, model.name, "cordoned"))
        assert condition(site, model.name)["cordoned"]

        call_off(site, model.name)

        until(lambda: condition(site, model.name) == before)
        until(lambda: not slots_in_use(site))


def test_the_next_coordinator_puts_it_back_where_the_first_one_was_killed(
    site: Site, tmp_path: Path
) -> None:
    with one_node(site) as (model, before):
        with held_by(site, "first", tmp_path):
            until(lambda: phase_is(site, model.name, "cordoned"))
        call_off(site, model.name)
        assert condition(site, model.name)["cordoned"]
        with held_by(site, "second", tmp_path):
            until(lambda: condition(site, model.name) == before, 90)
            until(lambda: not slots_in_use(site))


def test_the_node_is_as_it_was_after_the_end_where_the_change_has_begun(
    site: Site, tmp_path: Path
) -> None:
    with one_node(site) as (model, before), coordinator_process(site, "c", tmp_path):
        model.may_end.clear()
        until(lambda: phase_is(site, model.name, "proceed"))
        until(lambda: model.is_changing)

        call_off(site, model.name)
        until(lambda: keys.MIG_PERMIT not in site.annotations(model.name))
        assert condition(site, model.name)["cordoned"]
        model.may_end.set()

        until(lambda: condition(site, model.name) == before)
        until(lambda: not slots_in_use(site))
        assert model.is_done


def test_a_node_whose_admin_keeps_it_cordoned_stays_so(site: Site, tmp_path: Path) -> None:
    with one_node(site) as (model, before), held_by(site, "c", tmp_path):
        until(lambda: phase_is(site, model.name, "cordoned"))
        site.edit(model.name, annotations={keys.KEEP_CORDONED: ""})

        call_off(site, model.name)

        until(lambda: not slots_in_use(site))
        site.edit(model.name, annotations={keys.KEEP_CORDONED: None})
        assert condition(site, model.name) == before | {"cordoned": True}
