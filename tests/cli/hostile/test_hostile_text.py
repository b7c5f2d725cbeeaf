# SPDX-License-Identifier: Apache-2.0
"""Hostile text in every text of every schema, through the commands that print it, byte by byte.

The schemas name the places, so that a new field is tried by itself. The judge of the bytes is the
interpreter's table of Unicode categories, not the code that escapes.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
import unicodedata
from functools import cache
from typing import Any

import jsonschema
import pytest
import yaml

from api import (
    mig_permit_annotation,
    mig_request_annotation,
    mig_status_annotation,
    state_annotation,
    topology_annotation,
)
from base.errors import BadInput
from tests.cli.hostile.hostile_documents import PAYLOADS, WORD, hostile_documents
from tests.cli.hostile.hostile_process import SEPARATOR

FORMATS = (
    topology_annotation,
    state_annotation,
    mig_status_annotation,
    mig_request_annotation,
    mig_permit_annotation,
)
STYLE = re.compile(rb"\x1b\[[0-9;]*m")
"""Bold and colours, which our own tables have on a terminal; no payload has one."""

CLUSTER = (
    "mig nodes",
    "mig nodes -o wide",
    "mig nodes -o json",
    "mig nodes -o yaml",
    *(f"mig why annotated-{number}" for number in range(0, 200, 13)),
    "mig why kubelet-1",
    "mig why kubelet-2 -o yaml",
    "mig cancel kubelet-3 --dry-run",
    "mig cancel kubelet-4 --dry-run -o json",
    "mig rollout start all-1g.10gb -l pool=a --dry-run",
    "mig rollout plan all-1g.10gb -l pool=a",
    "mig rollout plan all-1g.10gb -l pool=a -o json",
    "free",
    "free -o wide --pods",
    "free 2 -o wide",
    "free -o json",
    "free -o yaml",
    "uninstall --dry-run --admin-keys",
    "uninstall --dry-run -o yaml",
    "doctor node kubelet-0 -o wide",
    "doctor node kubelet-2 -o json",
    "doctor pod hostile-pod-1 -o wide",
    "doctor pod hostile-pod-3 -o yaml",
    "scheduler explain hostile-pod-0 -o wide",
)
MACHINE = (
    "discover -o wide",
    "discover -o json",
    "discover -o yaml",
    "topo",
    "topo -o json",
    "labels",
    "labels --explain",
    "labels -o json",
    f"discover --simulate {WORD}\x1b[2J\u202e",
    f"--debug mig nodes --kubeconfig {WORD}\x1b[2J\u202e",
    f"mig plan {WORD}\u202e\u2066 --simulate dgx-a100",
    f"{WORD}\x1b[2J",
)


@cache
def outputs(mode: str, *, on_terminal: bool) -> dict[str, str]:
    """Everything that each command writes, standard error too; on a terminal or into a pipe."""
    commands = (*CLUSTER, *MACHINE)
    words = [sys.executable, "-m", "tests.cli.hostile.hostile_process", mode, *commands]
    environment = {**os.environ, "COLUMNS": "300", "TERM": "xterm-256color"}
    run = _on_terminal if on_terminal else _in_pipe
    _, *parts = run(words, environment).decode().split(f"{SEPARATOR}\n")
    return dict(zip(commands, parts, strict=True))


def _in_pipe(words: list[str], environment: dict[str, str]) -> bytes:
    return subprocess.run(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, check=False
    ).stdout


def _on_terminal(words: list[str], environment: dict[str, str]) -> bytes:
    ours, theirs = pty.openpty()
    read = b""
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment):
        os.close(theirs)
        with contextlib.suppress(OSError):  # EIO: the other side has closed it
            while chunk := os.read(ours, 65536):
                read += chunk
    os.close(ours)
    return STYLE.sub(b"", read.replace(b"\r\n", b"\n"))


def unsafe(text: str) -> set[str]:
    """What a terminal would obey, or not show."""
    bad = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return {each for each in text if each != "\n" and unicodedata.category(each) in bad}


def check(output: str, command: str) -> None:
    other = ("rollout", "uninstall", "annotated")  # they may refuse the hostile text
    assert WORD in output or any(word in command for word in other), output
    assert unsafe(output) == set(), output
    assert not re.search(r"(?m)^\s*injected", output)
    assert "Traceback" not in output or "--debug" in command, output


@pytest.mark.parametrize("on_terminal", [False, True], ids=["pipe", "terminal"])
@pytest.mark.parametrize("command", [*CLUSTER, *MACHINE])
def test_no_command_prints_what_a_terminal_obeys(command: str, on_terminal: bool) -> None:
    """What prints holds alone: readers refuse nothing here."""
    check(outputs("printers", on_terminal=on_terminal)[command], command)


def test_documents_stay_faithful() -> None:
    """JSON and YAML have the hostile texts as they are, in the format's own escapes."""
    as_json = json.loads(outputs("printers", on_terminal=False)["mig nodes -o json"])
    as_yaml = yaml.safe_load(outputs("printers", on_terminal=False)["mig nodes -o yaml"])

    asked = {node["desired"] for node in as_json["nodes"]}
    reasons = {(node["status"] or {}).get("reason") for node in as_json["nodes"]}

    assert as_yaml == as_json
    assert set(PAYLOADS) <= asked
    assert set(PAYLOADS) <= reasons


def test_readers_show_no_hostile_status_at_all() -> None:
    found = json.loads(outputs("readers", on_terminal=False)["mig nodes -o json"])

    assert WORD not in json.dumps([node["status"] for node in found["nodes"]])
    assert WORD not in json.dumps([node["request"] for node in found["nodes"]])
    assert any("no plain text" in (node["problem"] or "") for node in found["nodes"])


@pytest.mark.parametrize("module", FORMATS, ids=lambda it: it.__name__)
def test_the_schema_and_our_reader_refuse_hostile_text_in_every_place(module: Any) -> None:
    schema = module.json_schema()
    validator = jsonschema.Draft202012Validator(schema)
    documents = list(hostile_documents(schema))

    assert documents or module is mig_permit_annotation
    for each in documents:
        if not any(it >= "\ue000" for it in json.dumps(each.content, ensure_ascii=False)):
            assert not validator.is_valid(each.content), each
        with pytest.raises(BadInput):
            module.decode(json.dumps(each.content))
