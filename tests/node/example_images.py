# SPDX-License-Identifier: Apache-2.0
"""The images of ``examples/`` on real nodes, where no registry has them: the one place for that.

So the files are applied as they stand. Each image has the same small program
(``example_program.c``) under the name that the files give it; that of the experiments does not end
when it is asked to.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tests import examples
from tests.node import images
from tests.node.chart_cluster import offer
from tests.node.real_node import RealNode

SOURCE: Final = Path(__file__).with_name("example_program.c")
_PROGRAM: Final = "/example"
_STUBBORN: Final = "registry.example/experiment:1.0"


def image_names() -> frozenset[str]:
    """Of all containers in the files that teams apply, and in those that wait in a queue."""
    specs = [_pod_spec(examples.only(name)) for name in (*examples.USERS, *examples.QUEUED)]
    return frozenset(it["image"] for spec in specs for it in spec["containers"])


def provide(nodes: list[RealNode], folder: Path) -> None:
    """Have them on these nodes as if they had been pulled. Raises CalledProcessError."""
    root = folder / "example-root"
    images.place_program(SOURCE, root, _PROGRAM)
    stubborn = {"Entrypoint": [_PROGRAM, "stubborn"]}
    willing = sorted(image_names() - {_STUBBORN})
    files = (
        images.write(folder / "stubborn.tar", _STUBBORN, root, stubborn),
        images.write(folder / "willing.tar", willing[0], root, {"Entrypoint": [_PROGRAM]}),
    )
    for node in nodes:
        for file in files:
            node.import_image(file)
        for name in willing[1:]:
            offer(node, willing[0], name)


def _pod_spec(of: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = of["spec"]
    if "replicatedJobs" in spec:
        (only,) = spec["replicatedJobs"]
        return _pod_spec(only["template"])
    return _pod_spec(spec["template"]) if "template" in spec else spec
