# SPDX-License-Identifier: Apache-2.0
"""The site: ``python -m tools.site`` builds it from docs/ into build/site and prints where.

The pages are those of docs/, as a forge shows them, and a few that stand at the root. Those are
copied next to the others under a name of the site's, and links to them follow. The generator runs
in strict mode: a link to a page or heading that is not there ends it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from posixpath import dirname, normpath, relpath
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
CONFIGURATION: Final = "mkdocs.yml"
PAGES: Final = "build/pages"
SITE: Final = "build/site"
FROM_THE_ROOT: Final[Mapping[str, str]] = {
    "CHANGELOG.md": "docs/changelog.md",
    "CODE_OF_CONDUCT.md": "docs/code-of-conduct.md",
    "CONTRIBUTING.md": "docs/contributing.md",
    "SECURITY.md": "docs/security-policy.md",
    "README.md": "docs/index.md",
}
"""Pages at the root, and where the site has them; the README's place has the site's home."""
NOT_COPIED: Final = "README.md"

_LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?\)")
_BLOCK: Final = re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)


def pages(root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """Each page of the site, by its path below docs/, with links as the site needs them."""
    for file in sorted((root / "docs").rglob("*.md")):
        path = file.relative_to(root).as_posix()
        yield path.removeprefix("docs/"), placed(file.read_text("utf-8"), path, path)
    for path, site_path in FROM_THE_ROOT.items():
        if path != NOT_COPIED:
            text = placed((root / path).read_text("utf-8"), path, site_path)
            yield site_path.removeprefix("docs/"), text


def placed(text: str, path: str, site_path: str) -> str:
    """A page that stands at ``path``, as it has to be at ``there``.

    A link to a page follows it. A link to another file of the repository, which the site does not
    have, becomes the file's name; a file that is not there keeps its link, for strict mode to find.
    """

    def link(match: re.Match[str]) -> str:
        picture, words, target, anchor = match[1], match[2], match[3], match[4] or ""
        aim = normpath(f"{dirname(path)}/{target}" if dirname(path) else target)
        aim = FROM_THE_ROOT.get(aim, aim)
        if not aim.startswith("docs/"):
            return words if (ROOT / aim).exists() else match[0]
        if (ROOT / aim).is_dir():
            return words
        return f"{picture}[{words}]({relpath(aim, dirname(site_path))}{anchor})"

    parts, start = [], 0
    for block in _BLOCK.finditer(text):
        parts += [_LINK.sub(link, text[start : block.start()]), block[0]]
        start = block.end()
    return "".join([*parts, _LINK.sub(link, text[start:])])


def stage(root: Path = ROOT) -> None:
    """Write what the generator reads."""
    folder = root / PAGES
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(root / "docs", folder, ignore=shutil.ignore_patterns("*.md"))
    for path, text in pages(root):
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")


def build(root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Build the site of a clone; what the generator prints is its output."""
    stage(root)
    shutil.rmtree(root / SITE, ignore_errors=True)
    command = [str(Path(sys.executable).with_name("zensical")), "build", "--strict", "--clean"]
    return subprocess.run(
        [*command, "--config-file", CONFIGURATION],
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def main() -> int:
    """Build it; the exit code."""
    done = build()
    if done.returncode:
        sys.stderr.write(done.stdout.partition("Traceback")[0])
        print(f"the site is not built: mend the pages in docs/ (above: {PAGES})", file=sys.stderr)
        return 1
    print(ROOT / SITE / "index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
