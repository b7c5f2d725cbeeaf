# SPDX-License-Identifier: Apache-2.0
"""What is broken on purpose, package by package, and which tests should notice it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_PROCESS: Final = "runs in a process of its own, which its tests start"
_STARTS_ACTUATORS: Final = "starts real actuators or workers"
_STARTS_AGENTS: Final = "starts real agents"


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package whose modules are broken, except those that are left out for a reason."""

    name: str
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Path of a module, or of a folder, to the reason."""
    tests_left_out: Mapping[str, str] = field(default_factory=dict)
    """Path of a test module, or of a folder, to the reason; tests marked cluster, gpu or long
    are never used."""
    more_tests: tuple[str, ...] = ()
    """Paths of test modules, or of folders, outside ``tests/NAME`` that test its modules too."""

    def modules(self, root: Path) -> list[str]:
        """Paths of the modules to break, in order, without generated ones."""
        paths = (str(path.relative_to(root)) for path in sorted((root / self.name).rglob("*.py")))
        return [
            path
            for path in paths
            if not path.endswith(("__init__.py", "_pb2.py"))
            and not any(_within(path, out) for out in self.left_out)
        ]


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


PACKAGES: Final = (
    Package(
        name="actuator",
        tests_left_out={
            "tests/actuator/test_actuator_program.py": _STARTS_ACTUATORS,
            "tests/actuator/test_killed_workers.py": _STARTS_ACTUATORS,
            "tests/actuator/test_socket_attacks.py": _STARTS_ACTUATORS,
        },
    ),
    Package(
        name="agent",
        left_out={
            "agent/agent_program.py": _PROCESS,
            "agent/agent_servers.py": _PROCESS,
        },
        tests_left_out={
            "tests/agent/test_client_limits.py": _STARTS_AGENTS,
            "tests/agent/test_defects.py": _STARTS_AGENTS,
            "tests/agent/test_faults.py": _STARTS_AGENTS,
            "tests/agent/test_process.py": _STARTS_AGENTS,
            "tests/agent/test_process_end.py": _STARTS_AGENTS,
            "tests/agent/test_reader_ends.py": _STARTS_AGENTS,
            "tests/agent/test_reload.py": _STARTS_AGENTS,
            "tests/agent/test_restart.py": _STARTS_AGENTS,
            "tests/agent/test_slow_driver.py": _STARTS_AGENTS,
            "tests/agent/test_soak.py": _STARTS_AGENTS,
            "tests/agent/test_stale_readings.py": _STARTS_AGENTS,
            "tests/agent/test_xid_ends.py": _STARTS_AGENTS,
        },
    ),
    Package(
        name="api",
        more_tests=(
            "tests/actuator/test_journal.py",
            "tests/actuator/test_socket_place.py",
            "tests/actuator/test_transactions.py",
            "tests/agent/layouts/test_label_adoption.py",
            "tests/kubelet",
            "tests/labelers/test_label_rules.py",
            "tests/labelers/test_node_patch.py",
            "tests/labelers/test_three_counts.py",
            "tests/mig/users/test_pod_users.py",
            "tests/mig/test_planner.py",
        ),
    ),
    Package(
        name="base",
        more_tests=(
            "tests/agent/metrics/test_followed_counters.py",
            "tests/test_yaml_readers.py",
            "tests/web/test_web_config_file.py",
        ),
    ),
    Package(name="devices"),
    Package(name="diagnosis", more_tests=("tests/cli/doctor",)),
    Package(
        name="discovery",
        left_out={
            "discovery/nvml_abi": "the ABI of the library that stands in for a driver in tests",
            "discovery/reader/reader_child.py": _PROCESS,
        },
        tests_left_out={"tests/discovery/nvml_abi": "tests of the simulator's library"},
    ),
    Package(
        name="exporters",
        more_tests=(
            "tests/agent/test_selected_devices.py",
            "tests/cli/config_check",
            "tests/cli/dcgm_exporter",
            "tests/cli/exporter_comparison",
        ),
    ),
    Package(name="fleet", left_out={"fleet/coordinator_program.py": _PROCESS}),
    Package(
        name="forecast",
        more_tests=("tests/cli/free", "tests/cli/mig/rollout/test_rollout_plan.py"),
    ),
    Package(name="health", more_tests=("tests/labelers/test_three_counts.py",)),
    Package(
        name="kube",
        left_out={
            "kube/official.py": "needs an API server of its client's version",
        },
    ),
    Package(
        name="labelers",
        more_tests=(
            "tests/api/test_state_annotation.py",
            "tests/api/test_topology_annotation.py",
        ),
    ),
    Package(name="kubelet"),
    Package(name="mig"),
    Package(name="placement"),
    Package(name="scheduler", left_out={"scheduler/extender/extender_program.py": _PROCESS}),
    Package(name="web"),
)
NOT_BROKEN: Final = {
    "cli": "texts for people at a terminal",
    "gpuscape": "the first lines of a process",
    "simulator": "stands in for a driver in tests",
}
"""Packages that have no row, with the reason."""
