# SPDX-License-Identifier: Apache-2.0
"""Why the GPUs are left alone."""

from __future__ import annotations

from typing import Any

import pytest

from agent.cluster.release_signals import DEPLOY, ReleaseSignals
from api import keys

FILE = "driver-ready"


def node(
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    *,
    state_by: str | None = None,
) -> dict[str, Any]:
    """A Node with these; ``state_by`` is who wrote the state of a MIG change."""
    fields: dict[str, Any] = {"f:metadata": {"f:labels": {f"f:{keys.MIG_CONFIG_STATE}": {}}}}
    entry = {"manager": state_by, "operation": "Update", "fieldsV1": fields}
    return {
        "metadata": {
            "labels": labels or {},
            "annotations": annotations or {},
            "managedFields": [entry] if state_by else [],
        }
    }


@pytest.mark.parametrize(
    ("shown", "causes"),
    [
        ({"metadata": {}}, ()),
        (node(annotations={keys.RELEASE: "driver  upgrade\n575"}),
         (f"annotation {keys.RELEASE}=driver upgrade 575",)),
        (node(annotations={keys.RELEASE: ""}), (f"annotation {keys.RELEASE}=",)),
        (node(annotations={keys.RELEASE: "False"}), ()),
        *(
            (node({key: "paused-for-driver-upgrade"}), (f"label {key}=paused-for-driver-upgrade",))
            for key in DEPLOY
        ),
        (node({DEPLOY[0]: "true-paused-for-mig-change"}),
         (f"label {DEPLOY[0]}=true-paused-for-mig-change",)),
        (node({DEPLOY[0]: "false", DEPLOY[1]: "true"}), ()),
        (node({"nvidia.com/gpu.deploy.mig-manager": "paused-for-x"}), ()),
        *(
            (node({keys.MIG_CONFIG_STATE: state}, state_by="mig-manager"), causes)
            for state, causes in (
                ("pending", (f"label {keys.MIG_CONFIG_STATE}=pending",)),
                ("rebooting", (f"label {keys.MIG_CONFIG_STATE}=rebooting",)),
                ("success", ()),
                ("failed", ()),
            )
        ),
        (node({keys.MIG_CONFIG_STATE: "pending"}),
         (f"label {keys.MIG_CONFIG_STATE}=pending",)),
        (node({keys.MIG_CONFIG_STATE: "pending"}, state_by="gpuscape-agent"), ()),
    ],
)  # fmt: skip
def test_each_cause_on_the_node_is_told_in_words(
    shown: dict[str, Any], causes: tuple[str, ...]
) -> None:
    assert ReleaseSignals(FILE).causes(shown, None) == causes


def test_several_causes_stand_together_and_each_ends_by_itself() -> None:
    releases = ReleaseSignals(FILE)
    releases.causes(None, True)
    paused = {DEPLOY[0]: "paused-for-driver-upgrade"}

    both = releases.causes(node(paused), False)
    one = releases.causes(node(), False)
    none = releases.causes(node(), True)

    assert both == (f"label {DEPLOY[0]}=paused-for-driver-upgrade", f"{FILE} is gone")
    assert one == (f"{FILE} is gone",)
    assert none == ()


def test_a_file_that_was_never_there_asks_for_nothing() -> None:
    releases = ReleaseSignals(FILE)

    assert releases.causes(node(), False) == ()
    assert releases.causes(node(), None) == ()


def test_what_is_not_known_stays_as_it_was() -> None:
    """An outage of the API, or of the file's folder, neither begins nor ends a release."""
    releases = ReleaseSignals(FILE)
    assert releases.causes(None, None) == ()

    releases.causes(node(annotations={keys.RELEASE: "x"}), True)
    begun = releases.causes(None, False)
    lasting = releases.causes(None, None)

    assert begun == lasting == (f"annotation {keys.RELEASE}=x", f"{FILE} is gone")


def test_what_people_wrote_is_cut_to_a_line() -> None:
    (cause,) = ReleaseSignals(FILE).causes(node(annotations={keys.RELEASE: "x" * 10_000}), None)

    assert len(cause) < 150
