# SPDX-License-Identifier: Apache-2.0
"""The support bundle as a file: listed before it is written, equal bytes for equal content."""

from __future__ import annotations

import gzip
import io
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from agent.settings.agent_settings import AgentSettings
from base.errors import BadInput
from base.files import cannot_write, replace_file
from cli import terminal
from cli.doctor.bundle.bundle_contents import SupportBundle, gather_bundle
from cli.terminal import TextTable

STANDARD_OUTPUT: Final = "-"
_MODE: Final = 0o600
_WITHOUT: Final = (
    "Secrets, serial numbers and UUIDs are taken out. Names of this node, of its pods and"
    " namespaces are in it."
)


def offer_bundle(
    file: Path, settings: AgentSettings, findings: Mapping[str, Any], *, yes: bool
) -> None:
    """Gather, list, ask, write. Raises BadInput where it cannot be written, or nobody is asked."""
    is_output = str(file) == STANDARD_OUTPUT
    if not is_output:
        refuse_bad_path(file)
    if not yes and (is_output or not sys.stdin.isatty()):
        raise BadInput("no terminal for the question: add --yes to write the bundle")
    bundle = gather_bundle(settings, findings)
    if is_output:
        _list_plainly(bundle)
        terminal.write_archive(pack_bundle(bundle))
        return
    terminal.show_table(entry_table(bundle))
    for name, why in bundle.left_out.items():
        terminal.note(f"left out: {name}: {why}")
    terminal.note("", _WITHOUT)
    if not yes and not terminal.confirm(f"Write {file}?"):
        terminal.note("Nothing was written.")
        return
    try:
        replace_file(file, pack_bundle(bundle), mode=_MODE)
    except OSError as error:
        raise BadInput(cannot_write(f"the bundle {file}", error)) from error
    terminal.note(f"{file}: {len(bundle.entries)} files")


def _list_plainly(bundle: SupportBundle) -> None:
    """List the files on standard error, because the archive goes to standard output."""
    for entry in bundle.entries:
        terminal.note(f"{entry.name}: {entry.size_bytes} bytes: {entry.summary}", err=True)
    for name, why in bundle.left_out.items():
        terminal.note(f"left out: {name}: {why}", err=True)
    terminal.note(_WITHOUT, err=True)


def refuse_bad_path(file: Path) -> None:
    """Raises BadInput for a file that would not be written, before anything is gathered."""
    if not file.name.endswith((".tar.gz", ".tgz")):
        raise BadInput(f"{file} is to be a tar.gz: end its name so")
    if not file.parent.is_dir():
        raise BadInput(f"cannot write {file}: there is no folder {file.parent}: create it")
    if file.exists():
        raise BadInput(f"{file} is there already: name another file")


def entry_table(bundle: SupportBundle) -> TextTable:
    """A row for each file, in the order of the archive."""
    return TextTable(
        header=("FILE", "KIB", "WHAT"),
        rows=tuple(
            (entry.name, f"{entry.size_bytes / 1024:.1f}", entry.summary)
            for entry in bundle.entries
        ),
        right=frozenset({1}),
    )


def pack_bundle(bundle: SupportBundle) -> bytes:
    """The archive: no times, no owners, entries by name."""
    written = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=written, mode="wb", mtime=0, filename="") as squeezed,
        tarfile.open(fileobj=squeezed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for entry in bundle.entries:
            content = entry.text.encode()
            member = tarfile.TarInfo(f"gpuscape-bundle/{entry.name}")
            member.size, member.mode = len(content), _MODE
            archive.addfile(member, io.BytesIO(content))
    return written.getvalue()
