# SPDX-License-Identifier: Apache-2.0
"""What a support bundle holds: texts without secrets, each within a bound."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from agent.settings.agent_settings import AGENT_SETTINGS, AgentSettings
from agent.single_reading import take_snapshot
from api import names
from base.errors import BadInput, GpuscapeError
from base.files import read_text
from cli.doctor.bundle.redaction import Redaction
from discovery.snapshot_document import snapshot_document
from kubelet.devices_checkpoint import LOGS

MOST_ENTRY_BYTES: Final = 4 << 20
MOST_BUNDLE_BYTES: Final = 24 << 20
"""Size of all entries together, before they are compressed."""
MOST_LOG_BYTES: Final = 1 << 20
"""Size of the end of a log file that is taken."""
MOST_LOGS: Final = 6
RECORD_SECONDS: Final = 120.0
"""Time for the recording; it is made in a process of its own, because a driver may hang."""
FINDINGS: Final = "findings.json"
RECORDING: Final = "recording.json"
SNAPSHOT: Final = "snapshot.json"
SETTINGS: Final = "settings.json"
WEB_CONFIG: Final = "web-config.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleEntry:
    """A file of a bundle."""

    name: str
    summary: str
    text: str

    @property
    def size_bytes(self) -> int:
        """Size of the file before compression."""
        return len(self.text.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class SupportBundle:
    """All files of a bundle by name, and those that are left out."""

    entries: tuple[BundleEntry, ...]
    left_out: Mapping[str, str]
    """Name to the reason."""


def gather_bundle(settings: AgentSettings, findings: Mapping[str, Any]) -> SupportBundle:
    """Gather the files of a bundle; ``findings``: the document of the examination."""
    redaction, left_out = Redaction(), dict[str, str]()
    entries: list[BundleEntry] = []
    total = 0
    for name, summary, read in sorted(_parts(settings, findings), key=lambda part: part[0]):
        try:
            entry = BundleEntry(name=name, summary=summary, text=redaction.text(read()))
        except GpuscapeError as error:
            left_out[name] = redaction.text(str(error))
            continue
        if entry.size_bytes > MOST_ENTRY_BYTES or total + entry.size_bytes > MOST_BUNDLE_BYTES:
            left_out[name] = f"{entry.size_bytes >> 20} MiB are too large for a bundle"
            continue
        total += entry.size_bytes
        entries.append(entry)
    return SupportBundle(entries=tuple(entries), left_out=left_out)


Part = tuple[str, str, Callable[[], str]]
"""Name and summary of a file, and the function that reads it."""


def _parts(settings: AgentSettings, findings: Mapping[str, Any]) -> Iterator[Part]:
    yield FINDINGS, "findings, checks and versions", lambda: _json(findings)
    yield SETTINGS, "the agent's settings", lambda: _json(_settings(settings))
    recorded = _Recorded(settings)
    summary = "the driver's answers and /sys, as `gpuscape record` anonymises them"
    yield RECORDING, summary, recorded.text
    yield SNAPSHOT, "the GPUs, read from the recording", lambda: _snapshot(recorded.text())
    if settings.web_config_file is not None:
        file = settings.web_config_file
        yield WEB_CONFIG, "the web config file", lambda: read_text(file, "web config file")
    yield from _logs(settings)


class _Recorded:
    """The recording, taken once."""

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._taken: str | BadInput | None = None

    def text(self) -> str:
        """The recording's text. Raises BadInput with the reason where there is none."""
        if self._taken is None:
            try:
                self._taken = _record(self._settings)
            except BadInput as error:
                self._taken = error
        if isinstance(self._taken, BadInput):
            raise self._taken
        return self._taken


def _record(settings: AgentSettings) -> str:
    options = {
        "simulate": settings.simulate,
        "host-root": settings.host_root,
        "library": settings.library,
    }
    flags = [f"--{name}={value}" for name, value in options.items() if value is not None]
    command = [sys.executable, "-P", "-m", "gpuscape", "record", *flags, "-"]
    try:
        done = subprocess.run(  # noqa: S603  # a program of our own
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=RECORD_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise BadInput(f"the driver did not answer within {RECORD_SECONDS:g} s") from error
    except OSError as error:
        raise BadInput(f"no process for it: {error.strerror}") from error
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()
        raise BadInput(last[-1] if last else f"gpuscape record ended with {done.returncode}")
    return done.stdout.decode()


def _snapshot(recording: str) -> str:
    try:
        with tempfile.TemporaryDirectory(prefix="gpuscape-") as folder:
            file = Path(folder) / RECORDING
            file.write_text(recording, "utf-8")
            snapshot = take_snapshot(replace(AgentSettings(), simulate=str(file)))
            return _json(snapshot_document(snapshot))
    except OSError as error:  # a container may have no place to write to
        raise BadInput(f"no folder for a moment: {error.strerror}: name one in TMPDIR") from error


def _settings(settings: AgentSettings) -> dict[str, str]:
    """Name to value as text; files are named, never read."""
    return {option.name: str(getattr(settings, option.field)) for option in AGENT_SETTINGS.options}


def _logs(settings: AgentSettings) -> Iterator[Part]:
    """The newest logs of gpuscape's containers on this host, where they are at hand."""
    folder = settings.host_root / LOGS
    files = sorted(
        folder.glob(f"{settings.namespace}_{names.AGENT}*/*/*.log"), key=_age, reverse=True
    )
    for file in files[:MOST_LOGS]:
        name = f"logs/{'-'.join(file.relative_to(folder).parts)}"
        yield name, "the end of a container's log", _tail_of(file)


def _age(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _tail_of(file: Path) -> Callable[[], str]:
    def read() -> str:
        try:
            with file.open("rb") as log:
                size = log.seek(0, 2)
                log.seek(max(0, size - MOST_LOG_BYTES))
                if size > MOST_LOG_BYTES:
                    log.readline()  # the rest of one that was cut
                return log.read(MOST_LOG_BYTES).decode(errors="replace")
        except OSError as error:
            raise BadInput(f"cannot read {file}: {error.strerror}") from error

    return read


def _json(value: object) -> str:
    return json.dumps(msgspec.to_builtins(value), indent=1) + "\n"
