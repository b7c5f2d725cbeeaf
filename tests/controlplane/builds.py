# SPDX-License-Identifier: Apache-2.0
"""Binaries of a family: found where they are, or built once and kept by content.

They lie in ``gpuscape/controlplane/<family>-<hash>/`` in the user's cache folder. The hash
covers the family's files and how it is built, so a folder that is there is never stale. A
folder that CONTROLPLANE names is used instead; there the hash may be left off.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.controlplane.debian import (
    NoLibraryError,
    NoPackageError,
    compiler_settings,
    unpack,
)
from tests.controlplane.families import PACKAGES, Family
from tests.controlplane.lifetime import end_with_parent
from tests.controlplane.toolchain import NODE, environment, npm_command

GIVEN = "CONTROLPLANE"
NOTE_SECONDS = 15.0
LAST_LINES = 6

Say = Callable[[str], None]


class BuildError(Exception):
    """A family could not be built; the text ends with the last lines that the tool wrote."""


class NotPreparedError(Exception):
    """A family is not built, or a machine lacks what tests run on; the text has the way out."""


def cache() -> Path:
    """Where builds are kept."""
    user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(user) / "gpuscape" / "controlplane"


def given() -> Path | None:
    """The folder of binaries that somebody brought, if so."""
    named = os.environ.get(GIVEN)
    return Path(named) if named else None


def key(family: Family) -> str:
    """The family's name with a hash of all that decides what its binaries are.

    The Go version is not part of it: a new compiler makes no other control plane.
    """
    built = (family.programs, family.variables, family.files, family.cgo, *family.tags)
    linked = tuple(part for part in (family.library, family.packages, family.c_linker) if part)
    recipe = (platform.machine(), *built, *linked)
    hashed = hashlib.sha256(repr(recipe).encode())
    for file in sorted(family.folder.iterdir()):
        hashed.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return f"{family.name}-{hashed.hexdigest()[:16]}"


def find(family: Family) -> Path | None:
    """The folder of its binaries, or None where they have to be built."""
    kept = given() or cache()
    names = (key(family), family.name) if given() else (key(family),)
    return next((kept / name for name in names if (kept / name).is_dir()), None)


def binaries(family: Family) -> Path:
    """The folder of its binaries. Raises NotPreparedError."""
    folder = find(family)
    if folder is None:
        raise NotPreparedError(
            f"{family.name} is not built: make controlplane (once, docs/testing.md says more)"
        )
    return folder


def build(family: Family, tool: Path, say: Say) -> Path:
    """Build it into the cache unless it is there; two at once do it once.

    ``tool`` is the family's program. Whole or not at all: what was killed half-way is no folder
    of that name. Raises BuildError.
    """
    with _locked(family, say):
        if found := find(family):
            return found
        made = cache() / f".{family.name}"
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir()
        log = cache() / f"{family.name}.log"
        log.unlink(missing_ok=True)
        if family.tool == NODE:
            _install_packages(family, tool, made, log, say)
        else:
            _build_programs(family, tool, made, log, say)
        return made.rename(cache() / key(family))


@contextlib.contextmanager
def _locked(family: Family, say: Say) -> Iterator[None]:
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f"{family.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("somebody else is building it; waiting")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install_packages(family: Family, node: Path, made: Path, log: Path, say: Say) -> None:
    """What npm installs by the family's lock file, scripts of packages left alone."""
    for file in family.folder.iterdir():
        shutil.copyfile(file, made / file.name)
    path = f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    _run(family, [*npm_command(node), "ci"], made, {**os.environ, "PATH": path}, log, say)


def _build_programs(family: Family, go: Path, made: Path, log: Path, say: Say) -> None:
    for package, names in family.programs.items():
        _compile(family, go, package, made / names[0], log, say)
        for other in names[1:]:
            (made / other).symlink_to(names[0])
    for module, files in family.files.items():
        source = _module_folder(family, go, module)
        for file in files:
            shutil.copyfile(source / file, made / Path(file).name)
    try:
        unpack(family.packages, made / PACKAGES)
    except NoPackageError as error:
        raise BuildError(f"{family.name} could not be built: {error}") from error


def _compile(family: Family, go: Path, package: str, to: Path, log: Path, say: Say) -> None:
    variables = " ".join(f"-X {name}={value}" for name, value in family.variables.items())
    command: list[str | Path] = ["nice", "-n", "10", go, "build", "-v", "-trimpath", "-ldflags"]
    linker = f' "-extldflags={family.c_linker}"' if family.c_linker else ""
    command += [f"-s -w {variables}{linker}", "-tags", ",".join(family.tags), "-o", to, package]
    # what Go leaves where it is killed goes away with the folder, before the next build
    settings = environment(cgo=family.cgo) | {"GOTMPDIR": str(to.parent)}
    if family.library:
        try:
            settings |= compiler_settings(family.library, cache(), say)
        except NoLibraryError as error:
            raise BuildError(f"{family.name} could not be built: {error}") from error
    _run(family, command, family.folder, settings, log, say)


def _run(
    family: Family,
    command: Sequence[str | Path],
    folder: Path,
    variables: Mapping[str, str],
    log: Path,
    say: Say,
) -> None:
    """Have the tool do its work in ``folder``. Raises BuildError."""
    with log.open("ab") as output:
        started = subprocess.Popen(
            command,
            cwd=folder,
            env=variables,
            stdout=output,
            stderr=output,
            preexec_fn=end_with_parent(signal.SIGTERM),
        )
    _follow(started, log, say)
    if started.returncode:
        raise BuildError(_explained(family, log))


def _follow(started: subprocess.Popen[bytes], log: Path, say: Say) -> None:
    begin = time.monotonic()
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            started.wait(NOTE_SECONDS)
        if started.returncode is not None:
            return
        minutes, seconds = divmod(round(time.monotonic() - begin), 60)
        # -v names each package that Go compiles, one a line
        packages = sum(" " not in line for line in log.read_text().splitlines())
        compiled = f", {packages} packages compiled" if packages else ""
        say(f"{minutes}m{seconds:02d}s{compiled}")


def _explained(family: Family, log: Path) -> str:
    said = [line for line in log.read_text(errors="replace").splitlines() if " " in line]
    what = "\n".join(f"    {line[:300]}" for line in said[-LAST_LINES:]) or "    nothing at all"
    return f"{family.name} could not be built; the last lines of {family.tool.name}:\n{what}"


def _module_folder(family: Family, go: Path, module: str) -> Path:
    """Where Go keeps the module, fetched if no package of it was needed so far."""
    where = ["list", "-m", "-f", "{{.Dir}}", module]
    told = _said(family, go, where)
    if not told.stdout.strip():
        _said(family, go, ["mod", "download", module])
        told = _said(family, go, where)
    if told.returncode or not told.stdout.strip():
        raise BuildError(f"{family.name}: Go does not say where {module} is: {told.stderr.strip()}")
    return Path(told.stdout.strip())


def _said(family: Family, go: Path, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [go, *arguments],
        cwd=family.folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
