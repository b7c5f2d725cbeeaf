# SPDX-License-Identifier: Apache-2.0
"""Every reader of YAML refuses hostile files as bad input, and nothing else gets out of it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.settings.agent_settings import AGENT_SETTINGS, AgentSettings
from agent.settings.labels_from_settings import label_rules, plugin_config
from base.errors import BadInput
from base.files import read_text
from kube.kubeconfig import Kubeconfig
from mig.configs.mig_config_file import parse_mig_configs
from scheduler.explanation_source import read_pod_manifest
from scheduler.simulation import fleet_file
from simulator import recording_file
from simulator.description.machine_catalog import read_machine_file
from simulator.state.state_file import StateFile
from web.web_config_file import WebConfigFile

READERS: dict[str, Callable[[Path], object]] = {
    "settings": lambda path: AGENT_SETTINGS.load({"config": str(path)}, {}),
    "web config": WebConfigFile,
    "plugin config": lambda path: plugin_config(AgentSettings(sharing_config=path)),
    "label rules": lambda path: label_rules(AgentSettings(label_rules=path)),
    "machine": read_machine_file,
    "fleet": lambda path: fleet_file.read_node_groups(
        read_text(path, most_bytes=fleet_file.MOST_BYTES), str(path)
    ),
    "pod manifest": read_pod_manifest,
    "MIG configurations": lambda path: parse_mig_configs(read_text(path), str(path)),
}
JSON_READERS: dict[str, Callable[[Path], object]] = {
    "recording": recording_file.load_recording,
    "state file": lambda path: StateFile(path).read(),
}

_LEVELS = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 9))
_MERGES = "".join(f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 9)}]}}\n" for n in range(1, 9))
HOSTILE: dict[str, tuple[bytes, str]] = {
    "deep lists": (b"[" * 100_000, "nested too deeply"),
    "deep lists that end": (b"[" * 5000 + b"]" * 5000, "nested too deeply"),
    "deep mappings": (b"{a: " * 5000 + b"}" * 5000, "nested too deeply"),
    "deep blocks": (b"".join(b" " * n + b"a:\n" for n in range(900)), "nested too deeply"),
    "deep block lists": (b"- " * 5000, "nested too deeply"),
    "aliases of aliases": (b"l0: &l0 [x]\n" + _LEVELS.encode(), "aliases repeat too many"),
    "merges of merges": (b"m0: &m0 {k: v}\n" + _MERGES.encode(), "aliases repeat too many"),
    "an alias of itself": (b"a: &a [*a]\n", r"\*a contains itself"),
    "an alias of nothing": (b"a: *a\n", "alias"),
    "tabs": (b"a:\n\tb: 1\n", ":2: not valid YAML: .*cannot start any token"),
    "a key twice": (b"a: 1\nb: 2\na: 3\n", ":3: a: it stands twice"),
    "an inner key twice": (b"a:\n- b: 1\n  b: 2\n", r":3: a\[0\].b: it stands twice"),
    "no UTF-8": (b"a: \xff\xfe\n", "it is not UTF-8 text"),
    "UTF-16": ("a: 1\n".encode("utf-16"), "it is not UTF-8 text"),
    "NUL": (b"a: \0b\n", "not valid YAML: unacceptable character #x0000"),
    "an escaped NUL": (b'a: "\\0"\n', ":1: not valid YAML: a character that no text has"),
    "half a character": (b'a: "\\ud800"\n', ":1: not valid YAML: "),
    "two documents": (b"a: 1\n---\nb: 2\n", ":2: not valid YAML: "),
    "no end": (b"a: [1, 2\n", "not valid YAML"),
}
BUILT = {
    "an object": b"a: !!python/object/apply:os.system [x]\n",
    "a number that is none": b"a: !!int ''\n",
    "a flag that is none": b"a: !!bool x\n",
    "a date that is none": b"a: !!timestamp x\n",
    "a day that is none": b"a: 2001-99-99\n",
    "a number of very many digits": b"a: " + b"9" * 5000 + b"\n",
    "a list as a key": b"? [a]\n: 1\n",
    "nothing but space": b" \n\n",
}
"""Right as far as nodes go: most readers have other reasons to refuse it, some do not mind."""


def written(folder: Path, content: bytes) -> Path:
    file = folder / "file.yaml"
    file.write_bytes(content)
    return file


def test_an_agent_without_such_a_file_does_not_load_the_parser() -> None:
    script = "import sys, agent.agent_program; print('yaml' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


AS_GO = {"a key twice", "an inner key twice", "two documents"}
"""Taken of the device plugin's configuration, as the plugin takes them."""


@pytest.mark.parametrize(
    ("reader", "kind"),
    [
        (reader, kind)
        for reader in READERS
        for kind in HOSTILE
        if reader != "plugin config" or kind not in AS_GO
    ],
)
def test_a_hostile_file_is_bad_input_with_its_name_and_the_reason(
    tmp_path: Path, reader: str, kind: str
) -> None:
    content, reason = HOSTILE[kind]
    file = written(tmp_path, content)

    with pytest.raises(BadInput, match=reason) as caught:
        READERS[reader](file)

    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < len(str(file)) + 200


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", BUILT)
def test_values_that_cannot_be_built_are_bad_input_or_do_not_matter(
    tmp_path: Path, reader: str, kind: str
) -> None:
    file = written(tmp_path, BUILT[kind])
    with contextlib.suppress(BadInput):
        READERS[reader](file)


@pytest.mark.parametrize("reader", READERS)
def test_a_file_beyond_all_measure_is_refused_unread(tmp_path: Path, reader: str) -> None:
    file = written(tmp_path, b"")
    with file.open("r+b") as stream:
        stream.truncate(1 << 30)

    with pytest.raises(BadInput, match="larger than"):
        READERS[reader](file)


@pytest.mark.parametrize("kind", [kind for kind in HOSTILE if kind != "merges of merges"])
def test_a_kubeconfig_is_read_by_the_official_package_and_is_bad_input_too(
    tmp_path: Path, kind: str
) -> None:
    """Which has no bound for merges: a kubeconfig is the user's own and never the cluster's."""
    file = written(tmp_path, HOSTILE[kind][0])

    with pytest.raises(BadInput) as caught:
        Kubeconfig(str(file))

    assert str(file) in str(caught.value)


@pytest.mark.parametrize("levels", [900, 5000])
def test_a_recording_with_an_answer_that_is_nested_too_deeply_is_bad_input(
    tmp_path: Path, levels: int
) -> None:
    """Where the schema allows any value."""
    head = (
        b'{"schema": "gpuscape-recording/1", "calls": [{"entry": "nvmlInit_v2", "outputs": {"a": '
    )
    file = written(tmp_path, head + b"[" * levels + b"]" * levels + b"}}]}")

    with pytest.raises(BadInput) as caught:
        recording_file.load_recording(file)

    assert str(file) in str(caught.value)


@pytest.mark.parametrize("reader", JSON_READERS)
@pytest.mark.parametrize("kind", HOSTILE)
def test_where_json_is_expected_it_is_bad_input_too(tmp_path: Path, reader: str, kind: str) -> None:
    file = written(tmp_path, HOSTILE[kind][0])

    with pytest.raises(BadInput) as caught:
        JSON_READERS[reader](file)

    assert str(file) in str(caught.value)
