# SPDX-License-Identifier: Apache-2.0
"""What the site's generator reads of a clone, in a folder of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.pages import ROOT
from tools import site


def copied(made: Path) -> Path:
    """The same folder with the pages in it."""
    shutil.copytree(ROOT / "docs", made / "docs")
    for name in (site.CONFIGURATION, *site.FROM_THE_ROOT):
        shutil.copy(ROOT / name, made)
    return made


def built(clone: Path) -> Path:
    """The folder of its site. Fails where the generator does."""
    done = site.build(clone)
    assert done.returncode == 0, done.stdout.partition("Traceback")[0]
    return clone / site.SITE
