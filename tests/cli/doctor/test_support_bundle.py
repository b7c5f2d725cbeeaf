# SPDX-License-Identifier: Apache-2.0
"""The support bundle: what is in it, what is not, and how it is written."""

from __future__ import annotations

import io
import json
import stat
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from agent.settings.agent_settings import AgentSettings
from cli.doctor.bundle import bundle_contents
from cli.doctor.bundle.bundle_contents import (
    FINDINGS,
    RECORDING,
    SETTINGS,
    SNAPSHOT,
    WEB_CONFIG,
    BundleEntry,
    SupportBundle,
    gather_bundle,
)
from cli.doctor.bundle.redaction import GONE, Redaction
from cli.doctor.bundle.support_bundle import pack_bundle
from kubelet.devices_checkpoint import LOGS
from simulator import recording
from tests.cli.conftest import Run

TOKEN = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJzeXN0ZW06c2EifQ.MEUCIQDx-signature"  # noqa: S105  # of nobody
BCRYPT = "$2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG"
KEY = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqG\nSM49AgEGCCqGSM49\n-----END PRIVATE KEY-----"
UUID = "5e9f0a11-2b3c-4d5e-8f90-a1b2c3d4e5f6"


@pytest.fixture
def settings(tmp_path: Path) -> AgentSettings:
    """A simulated machine with a web config and an agent's log, both full of secrets."""
    web = tmp_path / "web.yaml"
    web.write_text(
        f"basic_auth_users:\n  admin: {BCRYPT}\ntls_server_config:\n  key: |\n    {KEY}\n"
    )
    log = tmp_path / "host" / LOGS / "gpuscape_gpuscape-agent-x_uid/agent/0.log"
    log.parent.mkdir(parents=True)
    log.write_text(f"Authorization: Bearer {TOKEN}\nGPU-{UUID} lost\npassword=hunter2\n")
    return AgentSettings(
        simulate="t4", host_root=tmp_path / "host", web_config_file=web, namespace="gpuscape"
    )


def test_a_bundle_holds_what_a_bug_report_needs(settings: AgentSettings) -> None:
    bundle = gather_bundle(settings, {"findings": [], "versions": {"gpuscape": "0.1.0"}})

    names = [each.name for each in bundle.entries]
    log = "logs/gpuscape_gpuscape-agent-x_uid-agent-0.log"
    assert names == sorted([FINDINGS, RECORDING, SETTINGS, SNAPSHOT, WEB_CONFIG, log])
    assert bundle.left_out == {}


def test_its_recording_is_anonymous_and_can_be_replayed(
    settings: AgentSettings, tmp_path: Path
) -> None:
    bundle = gather_bundle(settings, {})
    (text,) = [each.text for each in bundle.entries if each.name == RECORDING]
    file = tmp_path / "machine.json"
    file.write_text(text)

    read = recording.load_recording(file)

    assert read.anonymous
    assert len(read.calls) > 50
    (snapshot,) = [json.loads(each.text) for each in bundle.entries if each.name == SNAPSHOT]
    assert [gpu["model"] for gpu in snapshot["gpus"]][:1] == ["Tesla T4"]


def test_no_secret_is_in_it(settings: AgentSettings) -> None:
    text = "".join(each.text for each in gather_bundle(settings, {"token": TOKEN}).entries)

    for secret in (TOKEN, "signature", BCRYPT, "MIGHAgEAMBMGByqG", "SM49AgEGCCqGSM49", "hunter2"):
        assert secret not in text
    assert UUID not in text
    assert GONE in text


def test_what_cannot_be_had_is_named_with_the_reason(settings: AgentSettings) -> None:
    bundle = gather_bundle(replace(settings, simulate="no-driver"), {})

    assert "no NVIDIA driver" in bundle.left_out[RECORDING]
    assert SNAPSHOT in bundle.left_out
    assert FINDINGS in [each.name for each in bundle.entries]


def test_a_long_log_is_there_by_its_end(
    settings: AgentSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle_contents, "MOST_LOG_BYTES", 4003)
    (log,) = (settings.host_root / LOGS).rglob("*.log")
    log.write_text("".join(f"line {number}\n" for number in range(5000)))

    (text,) = [
        each.text for each in gather_bundle(settings, {}).entries if each.name.startswith("logs")
    ]

    assert text.endswith("line 4999\n")
    assert len(text) <= 4003
    assert text.startswith("line ")


def test_it_is_bounded(settings: AgentSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_contents, "MOST_ENTRY_BYTES", 1000)

    bundle = gather_bundle(settings, {})

    assert RECORDING in bundle.left_out
    assert all(each.size_bytes <= 1000 for each in bundle.entries)


def test_all_files_together_are_bounded_too(
    settings: AgentSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle_contents, "MOST_BUNDLE_BYTES", 20_000)

    bundle = gather_bundle(settings, {})

    assert bundle.left_out
    assert sum(each.size_bytes for each in bundle.entries) <= 20_000


def test_equal_contents_make_equal_bytes() -> None:
    entries = tuple(
        BundleEntry(name=name, summary="", text=f"text of {name}")
        for name in ("a.json", "logs/b.log")
    )
    bundle = SupportBundle(entries=entries, left_out={})

    assert pack_bundle(bundle) == pack_bundle(bundle)
    assert pack_bundle(bundle)[4:8] == bytes(4), "RFC 1952: no time"


def test_it_is_listed_and_written_for_its_owner_alone(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "support.tar.gz"

    result = run("doctor", "--standalone", "--simulate", "t4", "--bundle", str(file), "--yes")

    assert result.exit_code == 0
    assert result.output.index(RECORDING) < result.output.index(str(file))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with tarfile.open(file) as archive:
        members = archive.getmembers()
    assert [each.name for each in members] == sorted(each.name for each in members)
    assert {each.mtime for each in members} == {0}
    assert {each.uname + each.gname for each in members} == {""}


def test_it_goes_to_standard_output_with_its_list_beside_it(run: Run) -> None:
    words = ("doctor", "--standalone", "--simulate", "t4", "--bundle", "-")

    result = run(*words, "--yes")

    assert result.exit_code == 0
    with tarfile.open(fileobj=io.BytesIO(result.stdout_bytes)) as archive:
        names = [name.removeprefix("gpuscape-bundle/") for name in archive.getnames()]
    assert names == [line.split(":")[0] for line in result.stderr.splitlines()[:-1]]
    assert run(*words).exit_code == 2, "nobody can answer"


def test_without_a_place_to_write_to_the_snapshot_alone_is_left_out(
    settings: AgentSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "TemporaryDirectory", _no_folder)

    assert "TMPDIR" in gather_bundle(settings, {}).left_out[SNAPSHOT]


def _no_folder(**_: object) -> object:
    raise OSError(30, "Read-only file system")


def test_without_yes_and_nobody_to_ask_nothing_is_written(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "support.tar.gz"

    result = run("doctor", "--standalone", "--simulate", "t4", "--bundle", str(file))

    assert result.exit_code == 2
    assert "add --yes" in result.output
    assert not file.exists()


@pytest.mark.parametrize(
    ("name", "why"),
    [("x.zip", "tar.gz"), ("no/folder/x.tar.gz", "create it"), ("there.tar.gz", "another file")],
)
def test_a_place_that_is_no_good_is_refused_before_anything_is_read(
    run: Run, tmp_path: Path, name: str, why: str
) -> None:
    (tmp_path / "there.tar.gz").touch()

    result = run(
        *("doctor", "--standalone", "--simulate", "t4"),
        *("--bundle", str(tmp_path / name), "--yes"),
    )

    assert result.exit_code == 2
    assert why in result.output


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"token: {TOKEN}", f"token: {GONE}"),
        (f"x {TOKEN} y", f"x {GONE} y"),
        ("Authorization: Bearer abc.def", f"Authorization: Bearer {GONE}"),
        ("https://me:pw@host/x", f"https://{GONE}@host/x"),
        ('{"clientSecret": "abc def", "a": 1}', f'{{"clientSecret": {GONE}, "a": 1}}'),
        (f"{KEY}\nrest", f"{GONE}\nrest"),
        ("AAAA\nBBBB\n-----END PRIVATE KEY-----\nrest", f"{GONE}\nrest"),
        ("-----BEGIN RSA PRIVATE KEY-----\nAAAA", GONE),
        (f"a {BCRYPT} b", f"a {GONE} b"),
        ("gpu 0 has 40 GiB", "gpu 0 has 40 GiB"),
    ],
)
def test_secrets_go_and_the_rest_stays(text: str, left: str) -> None:
    assert Redaction().text(text) == left


def test_equal_devices_stay_equal() -> None:
    redaction = Redaction()

    first, second = redaction.text(f"GPU-{UUID}"), redaction.text(f"again GPU-{UUID.upper()}")

    assert second == f"again {first}"
    assert redaction.text(f"MIG-{UUID}") == first.replace("GPU", "MIG")
    assert redaction.text("GPU-00000000-1111-2222-3333-444444444444") != first


@pytest.mark.parametrize("word", ["a", "token", "password-", "secret=", "eyJ", "://a:"])
def test_one_word_of_a_megabyte_is_searched_to_its_end(word: str) -> None:
    """A search that begins anew at each character would take days."""
    text = word * (1_000_000 // len(word))

    assert "hunter2" not in Redaction().text(f"{text} my.db_password_of-node: hunter2")
