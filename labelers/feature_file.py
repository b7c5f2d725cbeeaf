# SPDX-License-Identifier: Apache-2.0
"""The NFD feature file: labels as a file that node-feature-discovery's worker reads.

Limits and syntax as its local source has them: 65,536 bytes, a name that does not
start with a dot, ``key=value`` lines. The file is replaced in one step and only
when its content changes. It is never deleted, on exit least of all: labels that
flap on a restart move pods. It carries no expiry time either, since an agent that
is down for an hour does not change the hardware.

Source: node-feature-discovery, source/local/local.go and docs/usage/customization-guide.md.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Mapping
from pathlib import Path

from api.key_kinds import is_rule_key
from base.errors import BadInput, Permanent, Transient
from base.files import replace_file
from labelers.decision import Absent, Decisions
from labelers.diff import applied
from labelers.label_rules import former_rule_labels

MAX_BYTES = 65_536
"""A larger file is ignored as a whole."""

_MODE = 0o644
_BY_RULES = "# by rules:"
"""Beginning of the line that names the labels which rules made: so they are known as such once
their rules are gone. NFD passes over comments."""
_NEEDS_SOMEBODY = (
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
)


def feature_file_content(labels: Mapping[str, str], by_rules: Collection[str] = ()) -> bytes:
    """The feature file's text, sorted by key; ``by_rules``: labels that rules made.

    Raises Permanent when it is too large for NFD.
    """
    lines = [f"{key}={text}" for key, text in sorted(labels.items())]
    if by_rules:
        lines.insert(0, " ".join((_BY_RULES, *sorted(by_rules))))
    content = "".join(f"{line}\n" for line in lines).encode()
    if len(content) > MAX_BYTES:
        raise Permanent(
            f"the labels take {len(content)} bytes, and NFD ignores a feature file above"
            f" {MAX_BYTES}; use another sink"
        )
    return content


def feature_file_labels(content: bytes) -> dict[str, str]:
    """The labels in a feature file; lines that are none, and comments, are passed over."""
    lines = (line.strip() for line in content.decode("utf-8", "replace").splitlines())
    pairs = (line.partition("=") for line in lines if "=" in line and not line.startswith("#"))
    return {key.strip(): text.strip() for key, _, text in pairs}


def rule_keys(content: bytes) -> frozenset[str]:
    """The labels in a feature file that rules made."""
    lines = content.decode("utf-8", "replace").splitlines()
    named = next((line for line in lines if line.startswith(_BY_RULES)), "")
    return frozenset(named.removeprefix(_BY_RULES).split())


def write_feature_file(path: Path, decisions: Decisions) -> bool:
    """Bring the file's labels to ``decisions``; True when it was changed.

    A label to be kept stays as it is in the file. A label by a rule is removed only where we wrote
    it, and as soon as no rule makes it. Raises BadInput for a name that
    NFD passes over, Permanent when somebody has to act (missing folder, no right,
    read-only), Transient otherwise; the old file is then untouched.
    """
    if path.name.startswith(".") or not path.name:
        raise BadInput(f"{path}: NFD passes over names that start with a dot; choose another name")
    try:
        before = _content(path)
        after = _after(before or b"", decisions)
        if after == before:
            return False
        replace_file(path, after, mode=_MODE)  # NFD passes over the name it is written under
    except OSError as error:
        raise _sorted_error(path, error) from error
    return True


def _after(content: bytes, decisions: Decisions) -> bytes:
    """The new content of a file that has ``content`` now."""
    present, written_before = feature_file_labels(content), rule_keys(content)
    by_rules = {key for key in decisions if is_rule_key(key)}
    foreign = [key for key in by_rules - written_before if isinstance(decisions[key], Absent)]
    own = {key: decision for key, decision in decisions.items() if key not in foreign}
    labels = applied(present, {**own, **former_rule_labels(written_before, decisions)})
    written = [
        key
        for key in by_rules & labels.keys()
        if key in written_before or labels[key] != present.get(key)
    ]
    return feature_file_content(labels, written)


def _content(path: Path) -> bytes | None:
    """The file's content; None without a file. A file too large for NFD counts as empty."""
    try:
        # a named pipe in its place is not waited for: it counts as empty, and is replaced
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        is_regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        content = (file.read(MAX_BYTES + 1) or b"") if is_regular else b""
    return content if len(content) <= MAX_BYTES else b""


def _sorted_error(path: Path, error: OSError) -> Permanent | Transient:
    """The error as the caller sorts it, with the fix."""
    problem = f"{path}: the feature file could not be written: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Transient(f"{problem}; free some space: it is tried again")
    if error.errno not in _NEEDS_SOMEBODY:
        return Transient(f"{problem}; trying again")
    if path.is_dir():
        return Permanent(f"{problem}; name a file in this folder")
    if not path.parent.is_dir():
        return Permanent(f"{problem}; create the folder, or mount NFD's features.d there")
    return Permanent(f"{problem}; let this user write to {path.parent}")
