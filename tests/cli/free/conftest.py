# SPDX-License-Identifier: Apache-2.0
"""The cluster that the command reads."""

from __future__ import annotations

import pytest

from cli.free import free_command
from kube.api import DEPLOYMENTS
from tests.cli.free.free_cluster import NOW, Api


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    """In place of the cluster of the kubeconfig."""
    made = Api()
    made.server.clock = lambda: NOW
    made.server.serve(DEPLOYMENTS)
    monkeypatch.setattr(free_command, "kubeconfig_client", lambda *_: made)
    return made
