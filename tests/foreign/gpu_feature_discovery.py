# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's gpu-feature-discovery on a simulated machine, and our labels of the same."""

from __future__ import annotations

from pathlib import Path

from api.mig_resources import MigStrategy
from labelers.compose import decide_labels
from labelers.label_settings import LabelSettings
from labelers.plugin_config import parse_plugin_config
from tests.expected_keys import nvidia
from tests.foreign.foreign_programs import Foreign
from tests.observed import look_at

Labels = dict[str, str]

NO_CONFIG = "version: v1\n"
"""The device plugin's configuration that sets nothing."""


class RefusedError(Exception):
    """gpu-feature-discovery ended without labels; the text is its last line."""


def feature_discovery(
    there: Foreign, programs: Path, strategy: MigStrategy, config: str = NO_CONFIG
) -> Labels:
    """The labels that NVIDIA's program writes. Raises RefusedError."""
    output, file = there.machine.driver_root / "labels", there.machine.driver_root / "config.yaml"
    output.unlink(missing_ok=True)
    file.write_text(config, "utf-8")
    done = there.run(
        programs / "gpu-feature-discovery",
        *("--oneshot", "--no-timestamp", "--use-node-feature-api=false"),
        f"--config-file={file}",
        f"--mig-strategy={strategy}",
        f"--output-file={output}",
        "--machine-type-file=/sys/class/dmi/id/product_name",
    )
    if done.returncode:
        raise RefusedError(done.stderr.strip().splitlines()[-1])
    return dict(line.split("=", 1) for line in output.read_text("utf-8").splitlines())


def our_labels(there: Foreign, strategy: MigStrategy, config: str = NO_CONFIG) -> Labels:
    """Those of ours that are to be the same."""
    snapshot = look_at(there.simulation, "node-a").snapshot
    sharing = parse_plugin_config(config, "config.yaml").sharing
    values = decide_labels(snapshot, LabelSettings(mig_strategy=strategy, sharing=sharing)).values
    return {key: values[key] for key in nvidia(values)}
