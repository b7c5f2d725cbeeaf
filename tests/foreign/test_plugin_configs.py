# SPDX-License-Identifier: Apache-2.0
"""The device plugin's configurations: gpu-feature-discovery takes and refuses the same files.

It reads the whole file by the plugin's own package, so that it judges the plugin's part as well.
"""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.mig_resources import MigStrategy
from base.errors import BadInput
from cli.config_check.config_checks import check_config
from cli.config_check.config_kinds import ConfigKind
from cli.config_check.config_texts import config_texts
from tests.conftest import SCALE
from tests.controlplane.builds import binaries
from tests.controlplane.families import KUBERNETES
from tests.foreign.foreign_programs import Foreign, foreign
from tests.foreign.gpu_feature_discovery import RefusedError, feature_discovery, our_labels

pytestmark = pytest.mark.cluster

UUID = "b1028956-cfa2-0990-bf4a-5da9abb51763"
_HEAD = "sharing:\n  timeSlicing:\n    resources:\n    - "


def _shared(entry: str) -> str:
    return f"{_HEAD}{{name: nvidia.com/gpu, replicas: 4, {entry}}}\n"


def _named(name: str) -> str:
    return f"{_HEAD}{{name: {name}, replicas: 4}}\n"


def _counted(replicas: str) -> str:
    return f"{_HEAD}{{name: nvidia.com/gpu, replicas: {replicas}}}\n"


CASES = (
    *(
        _shared(f"devices: {devices}")
        for devices in (
            *("all", "some", "3", "0", "-1", "2.0", "2.5", "true", "null", "''", "{}", "[]"),
            *("[0]", "['0']", "[-1]", "['-1']", "[1.0]", "[1.5]", "[null]", "[true]", "[GPU0]"),
            *(
                "[0:1]",
                "[1:0]",
                "['1:0']",
                "['1:a']",
                f"[GPU-{UUID}]",
                f"[MIG-{UUID}]",
                f"[{UUID}]",
            ),
            *(f"[MIG-GPU-{UUID}/3/0]", f"[MIG-GPU-{UUID}/3]", f"[gpu-{UUID}]", "[GPU-1]", "[[0]]"),
            *("['+1']", "['1_0']", "[1_0]", "[0x1]", "[010]", "['00']", "all ", "ALL", "yes"),
        )
    ),
    *(
        _shared(f"rename: {name}")
        for name in ("gpu.shared", "'not a name!'", "null", "5", "''", "nvidia.com/x", "a/b")
    ),
    *(
        _named(name)
        for name in (
            *(
                "gpu",
                "nvidia.com/gpu",
                "example.com/gpu",
                "GPU",
                "'a.'",
                "a..b",
                "-a",
                "a-",
                "'1'",
                "1",
            ),
            *(
                "x" * 52,
                "x" * 53,
                "nvidia.com/" + "y" * 53,
                "nvidia.com",
                "nvidia.com/",
                "''",
                "null",
            ),
            *("yes", "2001-01-01", "a_b", "mig-1g.5gb", "'a b'", "ä", "nvidia.com/nvidia.com/gpu"),
        )
    ),
    *(
        _counted(count)
        for count in (
            *(
                "4.0",
                "4.5",
                "1",
                "0",
                "-2",
                "'4'",
                "null",
                "true",
                "1e1",
                "0x10",
                "010",
                "08",
                "1_0",
            ),
            *("0o10", "0b11", "1:30", ".inf", ".nan", "[4]", "{}", "2"),
        )
    ),
    *(
        f"flags: {{gfd: {{{key}: {value}}}}}\n"
        for key in ("oneshot", "noTimestamp", "sleepInterval", "outputFile", "machineTypeFile")
        for value in (
            *("true", "'no'", "no", "y", "null", "60", "1.5", "sixty", "60s", "1m30s", "-1s", "''"),
            *("'0'", "1.5h", ".5s", "1us", "1µs", "5 s", "s", "[]", "{}", "1:30"),
        )
    ),
    *(
        f"flags: {{{key}: {value}}}\n"
        for key in (
            "failOnInitError",
            "useNodeFeatureAPI",
            "gdsEnabled",
            "plugin",
            "gfd",
            "mpsRoot",
        )
        for value in ("false", "null", "'false'", "5", "[]", "{}", "off")
    ),
    *(f"version: {value}\n" for value in ("v1", "null", "''", "v2", "1", "V1", "[v1]")),
    *(
        f"{text}\n"
        for text in (
            *("sharing:", "sharing: []", "sharing: {timeSlicing: }", "sharing: {timeSlicing: {}}"),
            *("sharing: {mps: }", "sharing: {mps: {}}", "sharing: {mps: []}", "sharing: 5"),
            *("sharing: {timeSlicing: {resources: }}", "sharing: {timeSlicing: {resources: []}}"),
            *(
                "sharing: {timeSlicing: {resources: {}}}",
                "sharing: {timeSlicing: {resources: [5]}}",
            ),
            *("sharing: {timeSlicing: {resources: [{name: gpu}]}}",),
            *("sharing: {timeSlicing: {resources: [{replicas: 2}]}}",),
            *("sharing: {timeSlicing: {Resources: [{name: gpu, replicas: 2}]}}",),
            *("sharing: {timeSlicing: {resources: [{Name: gpu, replicas: 2}]}}",),
            *("sharing: {timeslicing: {resources: [{name: gpu, replicas: 2}]}}",),
            *("SHARING: {TIMESLICING: {resources: [{name: gpu, replicas: 2}]}}",),
            *("Flags: {GFD: {NoTimestamp: true}}", "flags:", "flags: []", "Version: v1"),
            *("resources: []", "resources: {gpus: []}", "resources: {gpus: }", "resources:"),
            *(
                "resources: {gpus: [{pattern: A100, name: gpu}]}",
                "resources: {gpus: [{name: gpu}]}",
            ),
            *(
                "resources: {mig: [{pattern: x}]}",
                "resources: {gpus: {}}",
                "resources: {gpus: [5]}",
            ),
            *("resources: {gpus: [{pattern: '*', name: 'not a name!'}]}",),
            *("imex: {required: true}", "imex: {required: 'true'}", "imex: {channelIDs: [0]}"),
            *("imex: {channelIDs: [x]}", "imex: {channelIDs: 0}", "imex:", "imex: []"),
            *("version: v1\nversion: v1", "version: v2\nversion: v1", "version: v1\nversion: v2"),
            *("version: v1\n---\nversion: v2", "---\nversion: v1\n...\n", "version: v1\n---\na: ["),
            *(
                "# nothing",
                "",
                "{}",
                "null",
                "5",
                "[]",
                "a: [",
                "a: b: c",
                "\ta: 1",
                "1: 2",
                "~: 1",
            ),
            *(
                "base: &b {noTimestamp: true}\nflags: {gfd: {<<: *b}}",
                "health: {new: 1}",
                '{"a": 1}',
            ),
            *('{"version": "v1", "flags": {"migStrategy": null}}', "flags: {migStrategy: single}"),
        )
    ),
)


@pytest.fixture(scope="module")
def there() -> Iterator[Foreign]:
    with foreign("a30-pair") as it:
        yield it


def _theirs(there: Foreign, programs: Path, config: str) -> object:
    try:
        return feature_discovery(there, programs, MigStrategy.NONE, config)
    except RefusedError:
        return "refused"


def _ours(there: Foreign, config: str) -> object:
    try:
        return our_labels(there, MigStrategy.NONE, config)
    except BadInput:
        return "refused"


@pytest.mark.parametrize("config", CASES)
def test_a_file_is_taken_with_the_same_labels_or_refused(
    config: str, there: Foreign, programs: Path
) -> None:
    assert _ours(there, config) == _theirs(there, programs, config)


# as a file of a ConfigMap

MAPPED = tuple(text for text in CASES[::7] if text.strip() and "'" not in text)
"""Some of each kind, as many as kubectl is started for in a minute."""


def _config_map(text: str) -> str:
    """A manifest with the text as its file ``any``, by an emitter that shares nothing with ours."""
    lines = "".join(f"    {line}\n" if line else "\n" for line in text.splitlines())
    head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: plugin-config}\n"
    return f"{head}data:\n  other: |\n    version: v1\n  any: |\n{lines}"


@pytest.fixture(scope="session")
def kubectl() -> Path:
    return binaries(KUBERNETES["1.37"]) / "kubectl"


def _as_kubernetes_reads_it(kubectl: Path, manifest: str) -> str:
    """The file ``any`` of the ConfigMap, as kubectl reads the manifest; no server is asked."""
    change = ("annotate", "--local", "-f", "-", "a=b", "-o", "json")
    done = subprocess.run(
        [kubectl, *change], input=manifest, capture_output=True, check=True, text=True
    )
    data: dict[str, str] = json.loads(done.stdout)["data"]
    return data["any"]


@pytest.mark.parametrize("config", MAPPED)
def test_an_entry_of_a_config_map_is_judged_as_the_file_that_kubernetes_makes_of_it(
    config: str, there: Foreign, programs: Path, kubectl: Path
) -> None:
    manifest = _config_map(config)
    mounted = _as_kubernetes_reads_it(kubectl, manifest)

    *_, entry = config_texts(manifest, "configmap.yaml")

    assert entry.entry == "ConfigMap plugin-config, key any"
    assert entry.text.lstrip("\n") == mounted.lstrip("\n")
    refused = bool(check_config(entry, ConfigKind.DEVICE_PLUGIN, None).refused)
    assert refused == (_theirs(there, programs, mounted) == "refused")


VALUES: tuple[Any, ...] = (
    *("all", "some", 0, 1, 2, 4, -1, 2.0, 2.5, None, True, "4", [], [0], ["0:1"], ["GPU0"], {}),
    *("nvidia.com/gpu", "gpu", "mig-1g.5gb", "example.com/gpu", "60s", "sixty", "single", "v1"),
)


def _drawn(random_: random.Random) -> str:
    """A good file with up to three places changed, or taken out."""
    entry = {"name": "gpu", "replicas": 4, "devices": "all", "rename": "nvidia.com/gpu.shared"}
    shared = {"renameByDefault": False, "resources": [entry]}
    gfd = {"noTimestamp": True, "sleepInterval": "60s"}
    file = {
        "version": "v1",
        "flags": {"failOnInitError": False, "gfd": gfd, "plugin": {"passDeviceSpecs": True}},
        "sharing": {"timeSlicing": shared},
        "resources": {"gpus": [{"pattern": "*", "name": "gpu"}]},
        "imex": {"channelIDs": [0], "required": False},
    }
    parts = [file, file["flags"], gfd, file["sharing"], shared, entry, file["imex"]]
    for _ in range(random_.randint(1, 3)):
        part = random_.choice(parts)
        assert isinstance(part, dict)
        key = random_.choice(sorted(part)) if part else "version"
        if random_.random() < 0.2:
            part.pop(key, None)
        else:
            part[key] = random_.choice(VALUES)
    return yaml.safe_dump(file)


@pytest.mark.parametrize("seed", range(20 * SCALE))
def test_drawn_files_are_taken_or_refused_by_both(
    seed: int, there: Foreign, programs: Path
) -> None:
    config = _drawn(random.Random(seed))  # noqa: S311  # no secret
    assert _ours(there, config) == _theirs(there, programs, config), config
