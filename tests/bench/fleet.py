# SPDX-License-Identifier: Apache-2.0
"""What a fleet that starts together costs the API server."""

from __future__ import annotations

import tempfile
from pathlib import Path

from api import names
from tests.bench.page import Section
from tests.cluster import load
from tests.cluster.agents import Site
from tests.controlplane.plane import Plane


def section() -> Section:
    """Run it on a control plane of its own."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with Plane.start(place / "plane", controller_manager=False) as plane:
            (work := place / "work").mkdir()
            seen = load.whole(Site.create(plane, names.NAMESPACE), work)
    return Section(
        title="A fleet that starts together",
        text=(
            f"{load.FLEET} Nodes on a real API server and {load.AGENTS} agents: 5 processes, and "
            "the others without GPUs to read in one process. They start within "
            f"{load.START_WITHIN_SECONDS:g} s and write within {load.SPREAD_SECONDS:g} s more. "
            "Requests a "
            f"second are from the audit log, the most in {load.WINDOW_SECONDS} s, scaled to "
            f"{load.FLEET} agents."
        ),
        rows=(
            ("requests a second, dry runs left out (budget 250)", f"{seen.requests:.0f}"),
            ("dry runs a second, which try the admission policies", f"{seen.dry_runs:.0f}"),
            ("Node writes of each agent", f"{seen.node_writes / load.AGENTS:.2f}"),
        ),
    )
