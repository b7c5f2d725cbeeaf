# SPDX-License-Identifier: Apache-2.0
"""``gpuscape check-config``: what files mean, what is not checked, and how it ends."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent.layouts.mig_config_source import MigConfigSource
from agent.metrics.followed_counters import read_file
from agent.settings.agent_settings import AgentSettings
from agent.settings.labels_from_settings import label_rules, plugin_config
from base.errors import BadInput
from cli.config_check.config_kinds import ConfigKind, likeliest_kind
from cli.main import main
from mig.configs.config_overlap import Overlap
from mig.configs.known_mig_models import FAMILIES
from tests.cli.config_check.good_configs import FAULTS, GOOD, config_map
from tests.cli.hostile.hostile_documents import PAYLOADS
from tests.web import certificates
from web.web_config_file import WebConfigFile

SHARED = """\
version: v1
flags: {migStrategy: none}
sharing:
  mps:
    renameByDefault: true
    resources:
    - {name: nvidia.com/gpu, replicas: 3}
    - {name: nvidia.com/mig-3g.20gb, replicas: 2, devices: [0]}
resources:
  gpus: [{pattern: "*", name: gpu}]
"""


def check(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(main, ["check-config", *arguments], input=text)


def document(*arguments: str, text: str | None = None) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(check("-o", "json", *arguments, text=text).stdout)
    return found


def only(*arguments: str, text: str | None = None) -> dict[str, Any]:
    (found,) = document(*arguments, text=text)["configs"]
    assert isinstance(found, dict)
    return found


# device plugin


def test_shared_resources_have_the_names_under_which_pods_ask_for_them() -> None:
    found = only("-", text=SHARED)

    assert [
        (each["resource"], each["replicas"], each["sharing"], each["one_share_a_request"])
        for each in found["meaning"]["offers"]
    ] == [
        ("nvidia.com/gpu.shared", 3, "mps", True),
        ("nvidia.com/mig-3g.20gb.shared", 2, "mps", True),
    ]


def test_what_the_plugin_leaves_out_is_noted_with_its_line() -> None:
    notes = only("-", text=SHARED.replace("  mps:", "  timeSlicing:"))["notes"]

    assert [each["line"] for each in notes] == [10, 8]
    assert "leaves devices out" in notes[1]["reason"]


def test_time_slicing_beside_mps_is_noted() -> None:
    slicing = "  timeSlicing: {resources: [{name: gpu, replicas: 9}]}\n"
    both = SHARED.replace("resources:\n  gpus", f"{slicing}resources:\n  gpus")

    found = only("-", text=both)

    assert "MPS is configured too" in str(found["notes"])
    assert [each["replicas"] for each in found["meaning"]["offers"]] == [3, 2]


def test_a_machine_is_offered_as_many_as_its_devices_have_shares() -> None:
    text = SHARED.replace("  mps:", "  timeSlicing:").replace(": none", ": mixed")
    machine = ("--simulate", "dgx-a100-mig-mixed")

    offers = only(*machine, "-", text=text)["meaning"]["offers"]

    amounts = {each["resource"]: each["amount"] for each in offers}
    arguments = ["labels", "-o", "json", *machine, "--mig-strategy=mixed"]
    labels = json.loads(CliRunner().invoke(main, arguments).stdout)
    assert amounts["nvidia.com/gpu.shared"] == 3 * int(labels["nvidia.com/gpu.count"])
    assert amounts["nvidia.com/mig-3g.20gb.shared"] == 2 * int(
        labels["nvidia.com/mig-3g.20gb.count"]
    )
    assert {key for key in labels if key.endswith(".replicas")} == {
        f"{name.removesuffix('.shared')}.replicas" for name in amounts
    }


def test_the_labels_are_those_that_the_file_changes() -> None:
    labels = only("--simulate", "hgx-h100", "-", text=GOOD[ConfigKind.DEVICE_PLUGIN])["meaning"][
        "labels"
    ]

    assert labels == {
        "nvidia.com/gpu.replicas": "4",
        "nvidia.com/gpu.sharing-strategy": "time-slicing",
    }


def test_without_a_machine_no_amount_is_shown() -> None:
    result = check("-", text=GOOD[ConfigKind.DEVICE_PLUGIN])

    assert result.exit_code == 0
    assert "4 of each device" in result.stdout
    assert "OFFERED" not in result.stdout
    assert "OFFERED" in check("--simulate", "t4", "-", text=GOOD[ConfigKind.DEVICE_PLUGIN]).stdout


# MIG


def test_a_layout_fits_the_models_on_which_its_instances_find_places() -> None:
    text = GOOD[ConfigKind.MIG].replace('device-filter: ["0x20B210DE", "0x233010DE"]\n      ', "")

    disabled, halves = only("-", text=text)["meaning"]

    assert disabled["fits"] == [family.title for family in FAMILIES]
    assert halves["fits"] == [
        family.title for family in FAMILIES if "3g.40gb" in family.max_instances
    ]
    assert halves["layouts"] == ["2 x 3g.40gb"]


def test_a_layout_that_fits_no_model_is_refused_with_its_line() -> None:
    text = GOOD[ConfigKind.MIG].replace('"3g.40gb": 2', '"3g.40gb": 3')

    found = only("-", text=text)

    assert [each["line"] for each in found["refused"]] == [11]


def test_a_filter_for_models_that_are_not_known_is_no_fault() -> None:
    text = GOOD[ConfigKind.MIG].replace('["0x20B210DE", "0x233010DE"]', '["0xFFFF10DE"]')

    assert only("-", text=text)["refused"] == []


# counters


def test_a_line_that_only_we_do_not_serve_is_a_note() -> None:
    text = GOOD[ConfigKind.COUNTERS] + "DCGM_FI_DEV_PCIE_TX_THROUGHPUT, counter, x\n"

    found = only("-", text=text)

    assert found["refused"] == []
    assert [each["line"] for each in found["notes"]] == [6]
    assert found["meaning"]["families"] == [
        ["DCGM_FI_DEV_GPU_TEMP", "gauge"],
        ["DCGM_FI_DEV_SM_CLOCK", "gauge"],
    ]
    assert found["meaning"]["labels"] == ["DCGM_FI_DRIVER_VERSION"]


# web config


def test_the_secrets_of_a_web_config_are_not_shown(tmp_path: Path) -> None:
    certificates.authority().write(tmp_path)
    file = tmp_path / "web.yaml"
    tls = "tls_server_config: {cert_file: tls.crt, key_file: tls.key, min_version: TLS13}\n"
    file.write_text(GOOD[ConfigKind.WEB] + tls)

    results = [check(*output, str(file)) for output in ((), ("-o", "json"), ("-o", "yaml"))]

    assert [each.exit_code for each in results] == [0, 0, 0]
    assert all("$2y$" not in each.output and "PRIVATE" not in each.output for each in results)
    assert only(str(file))["meaning"] == {
        "tls": "TLS13",
        "client_certificate": "none",
        "users": ["alice"],
        "headers": ["X-Frame-Options"],
        "requests": "one in 1 s, 10 at once",
    }


def test_a_key_that_is_of_another_certificate_is_refused_with_the_line(tmp_path: Path) -> None:
    certificates.authority().write(tmp_path)
    certificates.authority().write(tmp_path, "other")
    file = tmp_path / "web.yaml"
    file.write_text("tls_server_config:\n  cert_file: tls.crt\n  key_file: other.key\n")

    (fault,) = only(str(file))["refused"]

    assert fault["line"] == 3
    assert "not that of the certificate" in fault["reason"]


def test_certificates_of_a_config_map_are_not_looked_for_here() -> None:
    text = config_map("tls_server_config:\n  cert_file: tls.crt\n  key_file: other.key\n")

    found = only("-", text=text)

    assert found["refused"] == []
    assert "where the file is mounted" in found["notes"][0]["reason"]


# ConfigMaps, Secrets, and what is none


def test_a_secrets_text_and_its_base64_are_checked() -> None:
    good, faulty = GOOD[ConfigKind.WEB], GOOD[ConfigKind.WEB].replace("burst: 10", "burst: x")
    encoded = base64.b64encode(faulty.encode()).decode()
    text = json.dumps(
        {"apiVersion": "v1", "kind": "Secret", "data": {"b": encoded}, "stringData": {"a": good}}
    )

    plain, decoded = document("-", text=text)["configs"]

    assert (plain["entry"], plain["refused"]) == ("Secret, key a", [])
    assert decoded["entry"] == "Secret, key b"
    assert "line 9 of this text: rate_limit.burst" in decoded["refused"][0]["reason"]


def test_another_object_in_the_file_is_passed_over() -> None:
    text = "apiVersion: v1\nkind: Service\nmetadata: {name: x}\n---\n" + config_map(
        GOOD[ConfigKind.MIG]
    )

    assert only("-", text=text)["kind"] == "mig"


def test_a_manifest_that_is_no_yaml_is_no_configuration() -> None:
    result = check("-", text=config_map(GOOD[ConfigKind.MIG]) + "  broken: [\n")

    assert result.exit_code == 2
    assert "not checked: standard input: standard input:" in result.stderr
    assert "not valid YAML" in result.stderr


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty"),
        ("hello", "--kind"),
        ("version: v1\n", "--kind"),
        ("labels: []\nsharing: {}\n", "--kind"),
        ("apiVersion: v1\nkind: Service\n", "it holds no file"),
        (config_map(), "it holds no file"),
        (config_map("hello"), "--kind"),
        ("apiVersion: v1\nkind: ConfigMap\ndata: {a: [1]}\n", ":3: data.a: "),
    ],
)
def test_what_is_of_no_kind_is_named_and_ends_with_2(text: str, reason: str) -> None:
    result = check("-", text=text)

    assert result.exit_code == 2
    assert "not checked: standard input" in result.stderr
    assert reason in result.stderr


def test_a_file_that_is_not_there_costs_the_others_nothing(tmp_path: Path) -> None:
    file = tmp_path / "mig.yaml"
    file.write_text(GOOD[ConfigKind.MIG])

    result = check(str(tmp_path / "none.yaml"), str(file))

    assert result.exit_code == 2
    assert "none.yaml: No such file" in result.stderr
    assert "mig.yaml: MIG configurations: right" in result.stdout


def test_bytes_that_are_no_text_are_named_with_their_line(tmp_path: Path) -> None:
    file = tmp_path / "counters.csv"
    file.write_bytes(b"# a\n# b\nDCGM_FI_DEV_GPU_TEMP, gauge, \xff\n")

    result = check(str(file))

    assert result.exit_code == 2
    assert f"{file}:3: it is not UTF-8" in result.stderr


def test_the_kind_can_be_named() -> None:
    result = check("--kind", "mig", "-", text="version: v1\n")

    assert result.exit_code == 1
    assert "mig-configs is missing" in result.stdout


@pytest.mark.parametrize("kind", ConfigKind)
def test_a_slip_in_the_first_key_does_not_hide_the_kind(kind: ConfigKind) -> None:
    words = {
        ConfigKind.DEVICE_PLUGIN: "version: v1\nsharng: {}\n",
        ConfigKind.MIG: "version: v1\nmig-config: {}\n",
        ConfigKind.COUNTERS: "version: 2\nmetrcs: {}\n",
        ConfigKind.LABEL_RULES: "label: []\n",
        ConfigKind.WEB: "tls_server_conf: {}\n",
    }

    assert likeliest_kind(words[kind]) is kind


# one reader for all


def agent_takes(kind: ConfigKind, file: Path) -> None:
    """Read a file as the agent does at its start. Raises BadInput."""
    match kind:
        case ConfigKind.DEVICE_PLUGIN:
            plugin_config(AgentSettings(sharing_config=file))
        case ConfigKind.LABEL_RULES:
            label_rules(AgentSettings(label_rules=file))
        case ConfigKind.MIG:
            MigConfigSource(file, Overlap.REFUSE).read()
        case ConfigKind.WEB:
            WebConfigFile(file)
        case ConfigKind.COUNTERS:
            if skipped := read_file(file).skipped:
                raise BadInput(f"{skipped[0].file}:{skipped[0].line}: {skipped[0].reason}")


@pytest.mark.parametrize(("kind", "text"), FAULTS)
def test_the_agent_refuses_with_the_sentence_that_the_check_shows(
    tmp_path: Path, kind: ConfigKind, text: str
) -> None:
    file = tmp_path / "file"
    file.write_text(text)

    with pytest.raises(BadInput) as refusal:
        agent_takes(kind, file)

    assert str(refusal.value) in check(str(file)).stdout


@pytest.mark.parametrize("kind", ConfigKind)
def test_the_agent_names_a_whole_config_map_and_the_mend(tmp_path: Path, kind: ConfigKind) -> None:
    file = tmp_path / "file"
    file.write_text(config_map(GOOD[kind]))

    with pytest.raises(BadInput, match=r"this is a ConfigMap.*name what stands below its data"):
        agent_takes(kind, file)


# hostile text


@pytest.mark.parametrize("payload", PAYLOADS)
def test_hostile_text_reaches_no_terminal(tmp_path: Path, payload: str) -> None:
    text = json.dumps(payload).replace(r"\udb40\udc41", r"\U000e0041")  # YAML has no pairs
    files = []
    for at, content in enumerate(
        (
            f"sharing: {{timeSlicing: {{resources: [{{name: {text}, replicas: 2}}]}}}}\n",
            f"version: v1\nmig-configs: {{{text}: [{{devices: all, mig-enabled: false}}]}}\n",
            f"labels: [{{key: example.com/x, value: {text}}}]\n",
            f"basic_auth_users: {{{text}: x}}\n",
            f"version: 2\nmetrics:\n  fields: [{{name: {text}, prometheusType: x, help: x}}]\n",
            f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {text}}}\ndata: {{{text}: a}}\n",
        )
    ):
        files.append(tmp_path / f"{at}.yaml")
        files[-1].write_text(content)

    done = subprocess.run(
        [sys.executable, "-m", "gpuscape", "check-config", *map(str, files)],
        capture_output=True,
        check=False,
    )

    shown = (done.stdout + done.stderr).decode()
    assert "HOSTILE" in shown
    assert all(each == "\n" or each.isprintable() for each in shown)
    assert not any(line.lstrip().startswith("injected") for line in shown.splitlines())
