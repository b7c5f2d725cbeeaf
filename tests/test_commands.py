# SPDX-License-Identifier: Apache-2.0
"""Every command of the pages is run by a test, or stands on docs/commands.md with the reason."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
import pytest

from cli.main import main as gpuscape
from tests import pages
from tests.pages import ROOT

SHELLS: Final = ("sh", "bash", "console")
LIST: Final = "docs/commands.md"
RECORDINGS: Final = ("docs/mig-mode-recording.md", "docs/mig-recording.md", "docs/two-users.md")
"""Written whole by a test that ran the commands."""
THE_SAME: Final = {"docs/ko/start.md": "docs/start/laptop.md"}
"""A translation, and the page whose commands it has."""
PAGES: Final = sorted(
    str(file.relative_to(ROOT))
    for file in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"))
)
RUN: Final = {
    ("README.md", "path"): "tests/test_readme.py",
    ("README.md", "cluster"): "tests/test_readme.py",
    ("README.md", "helm"): "tests/test_readme.py",
    ("docs/helm.md", "label"): "tests/test_readme.py",
    ("docs/helm.md", "scheduler"): "tests/test_readme.py",
    ("docs/helm.md", "stop"): "tests/test_readme.py",
    ("docs/helm.md", "policies"): "tests/node/test_network_policies.py",
    ("docs/helm.md", "remove"): "tests/test_readme.py",
    ("docs/install.md", "another namespace"): "tests/deploy/test_manifests.py",
    ("docs/install.md", "coordinators bounds"): "tests/deploy/test_manifests.py",
    ("docs/examples.md", "cluster"): "tests/cluster/example_teams.py",
    ("docs/examples.md", "teams"): "tests/cluster/test_examples.py",
    ("docs/install.md", "take-over"): "tests/node/test_moving_on_nodes.py",
    ("docs/install.md", "hand-back"): "tests/node/test_moving_on_nodes.py",
    ("docs/upgrade.md", "helm"): "tests/node/test_upgrade_on_nodes.py",
    ("docs/upgrade.md", "helm-back"): "tests/node/test_upgrade_on_nodes.py",
    ("docs/dcgm-exporter.md", "chart"): "tests/node/test_dcgm_exporter_on_nodes.py",
    ("docs/dcgm-exporter.md", "chart-back"): "tests/node/test_dcgm_exporter_on_nodes.py",
    ("docs/workloads.md", "queue"): "tests/cluster/test_queues.py",
    ("docs/mig-manager.md", "to gpuscape"): "tests/cluster/test_mig_manager.py",
    ("docs/mig-manager.md", "back"): "tests/cluster/test_mig_manager.py",
    ("docs/scheduler.md", "another namespace"): "tests/deploy/test_scheduler_manifests.py",
    ("docs/scheduler.md", "certificates"): "tests/cluster/test_scheduler_install.py",
    ("docs/scheduler.md", "new authority"): "tests/cluster/test_scheduler_certificates.py",
    ("docs/security.md", "check it yourself"): "tests/access/test_page.py",
    ("docs/concepts.md", "links"): "tests/test_start_pages.py",
    ("docs/labels.md", "own labels"): "tests/test_start_pages.py",
    ("docs/labels.md", "own keys"): "tests/test_start_pages.py",
    ("docs/monitoring.md", "dashboard"): "tests/test_start_pages.py",
    ("docs/monitoring.md", "rules"): "tests/test_start_pages.py",
    ("docs/usage.md", "as json"): "tests/test_start_pages.py",
    ("docs/usage.md", "record"): "tests/test_start_pages.py",
    ("docs/start/admin.md", "install"): "tests/cluster/test_start_pages.py",
    ("docs/start/admin.md", "verify"): "tests/cluster/test_start_pages.py",
    ("docs/start/admin.md", "remove"): "tests/cluster/test_start_pages.py",
    ("docs/start/laptop.md", "machines"): "tests/test_start_pages.py",
    ("docs/start/laptop.md", "cluster"): "tests/cluster/test_start_pages.py",
    ("docs/start/ml-engineer.md", "linked"): "tests/cluster/test_start_pages.py",
    ("docs/start/ml-engineer.md", "mig"): "tests/cluster/test_start_pages.py",
    ("docs/start/ml-engineer.md", "pending"): "tests/cluster/test_start_pages.py",
    ("docs/start/sre.md", "scrape"): "tests/test_start_pages.py",
    ("docs/start/sre.md", "monitoring"): "tests/cluster/test_start_pages.py",
}
"""Page and marker of a block, and the module whose tests run it."""

_INLINE: Final = re.compile(r"`(?:kubectl )?gpuscape ([^`\n|\\]+)[^`\n]*`")
_TYPED: Final = re.compile(r"(?:^|[|;&(] ?)(?:kubectl |\$ )?gpuscape ([^|;&)#]+)")
_WORD: Final = re.compile(r"[a-z][a-z-]+")
_FENCE: Final = re.compile(r"^ *```(\w*)$")
_MARKER: Final = re.compile(r"^ *<!-- run: (.+) -->$")
_ROW: Final = re.compile(r"^\| \[[^]]+\]\((?P<page>[^)]+)\) \| `(?P<line>.+?)` \| (?P<why>.+) \|$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Commands on a page."""

    page: str
    line: str
    """The first one, without what only makes it readable."""
    marker: str | None


def shell_blocks(page: str, text: str) -> Iterator[Block]:
    """Blocks of commands that somebody wrote; generated ones show what a program printed."""
    lines = iter(text.splitlines())
    generated, marker = False, None
    for line in lines:
        generated = (generated or line.startswith("<!-- generated: ")) and line != "<!-- end -->"
        if found := _FENCE.match(line):
            inside = []
            for each in lines:
                if _FENCE.match(each):
                    break
                inside.append(each.strip())
            if found[1] in SHELLS and not generated:
                yield Block(page=page, line=_first(inside), marker=marker)
            marker = None
        elif line.strip():
            marker = named[1] if (named := _MARKER.match(line)) else None


def _first(lines: list[str]) -> str:
    """The first line without prompt, comment and the backslash that goes on."""
    first = next(line for line in lines if line)
    return re.sub(r"^\$ |\s+#.*$|\s*\\$", "", first).strip().removesuffix("\\").strip()


def listed(text: str) -> dict[tuple[str, str], str]:
    """Of the list: page and first line, and why no test runs them."""
    rows = (_ROW.match(line) for line in text.splitlines())
    return {
        (_from_root(row["page"]), row["line"].replace(r"\|", "|")): row["why"]
        for row in rows
        if row
    }


def _from_root(target: str) -> str:
    return str((ROOT / "docs" / target).resolve().relative_to(ROOT))


BLOCKS: Final = [
    block
    for page in PAGES
    if page not in RECORDINGS and page not in THE_SAME
    for block in shell_blocks(page, pages.page(page))
]


def unaccounted(blocks: list[Block], of: dict[tuple[str, str], str]) -> list[Block]:
    """Those that no test runs and that the list does not have."""
    return [
        block
        for block in blocks
        if (block.page, block.marker) not in RUN and (block.page, block.line) not in of
    ]


def gpuscape_commands(text: str) -> Iterator[str]:
    """What follows ``gpuscape`` in the sentences of a page and in its blocks of commands."""
    yield from _INLINE.findall(text)
    for language in SHELLS:
        for block in pages.blocks(text, language):
            for line in block.replace("\\\n", " ").splitlines():
                yield from _TYPED.findall(line)


def unknown_words(words: list[str]) -> str:
    """What gpuscape does not know of a command; empty where it knows the command and its options.

    Values are not looked at: a page may have ``NODE`` in their place.
    """
    command: click.Command = gpuscape
    while True:
        parser = command.make_parser(click.Context(command))
        try:
            _, words, _ = parser.parse_args(list(words))
        except click.NoSuchOption as error:
            return str(error)
        except click.BadOptionUsage:  # an option is named without its value
            return ""
        if not isinstance(command, click.Group) or not words or not _WORD.fullmatch(words[0]):
            return ""
        found = command.get_command(click.Context(command), words[0])
        if found is None:
            return f"no command {words[0]}"
        if words[0] == "dcgm-exporter":  # it takes the flags of the program of that name
            return ""
        command, words = found, words[1:]


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_gpuscape_on_a_page_is_there_with_its_options(page: str) -> None:
    """Whether a test runs it or not."""
    commands = set(gpuscape_commands(pages.page(page)))
    found = {it: unknown_words(shlex.split(it)) for it in commands if it.count('"') != 1}
    assert {it: why for it, why in found.items() if why} == {}


def test_a_command_with_a_word_that_is_not_known_is_noticed() -> None:
    text = "`gpuscape free 4 --wide`, `gpuscape mig X`\n\n```sh\nx | gpuscape tipo -o json\n```\n"
    wide, mig, tipo = (unknown_words(it.split()) for it in gpuscape_commands(text))
    assert ("--wide" in wide, mig, tipo) == (True, "", "no command tipo")


def test_every_command_is_run_by_a_test_or_listed_with_the_reason() -> None:
    assert len(BLOCKS) > 60
    assert unaccounted(BLOCKS, listed(pages.page(LIST))) == []


def test_the_list_has_no_command_that_is_gone_or_that_a_test_runs() -> None:
    not_run = {
        (block.page, block.line) for block in BLOCKS if (block.page, block.marker) not in RUN
    }
    assert set(listed(pages.page(LIST))) == not_run


@pytest.mark.parametrize(("page", "marker"), RUN)
def test_a_test_asks_for_the_block_by_its_marker(page: str, marker: str) -> None:
    assert marker in {block.marker for block in BLOCKS if block.page == page}
    test = Path(ROOT, RUN[page, marker]).read_text("utf-8")
    assert f'"{marker}"' in test or f"<!-- run: {marker} -->" in test


def test_a_block_without_a_marker_of_a_test_is_unaccounted() -> None:
    text = "<!-- run: path -->\n\n```sh\nls\n```\n\n```sh\n$ ls -l \\\n  -a  # all\n```\n"
    found = list(shell_blocks("README.md", text))
    assert [(block.line, block.marker) for block in found] == [("ls", "path"), ("ls -l", None)]
    assert [block.line for block in unaccounted(found, {})] == ["ls -l"]
    assert unaccounted(found, {("README.md", "ls -l"): "why"}) == []


def test_what_stands_between_marker_and_block_parts_them() -> None:
    text = "<!-- run: path -->\n\nwords\n\n```sh\nls\n```\n"
    assert [block.marker for block in shell_blocks("README.md", text)] == [None]


@pytest.mark.parametrize(("translation", "original"), THE_SAME.items())
def test_a_translation_has_the_commands_of_its_page(translation: str, original: str) -> None:
    commands = pages.blocks(pages.page(original), "sh")
    assert pages.blocks(pages.page(translation), "sh") == commands
    assert len(commands) > 3
