# SPDX-License-Identifier: Apache-2.0
"""A process of gpuscape runs gpuscape's own code, and libraries of the Python it is installed in.

The packages have plain names (``agent``, ``cli``), which other distributions and people's folders
have too. This package alone has a name of its own, so it is loaded first, and makes sure of the
rest. Until it has, whatever is imported may come from the working folder: this module imports
only what Python itself has loaded by then.
"""

import os
import site
import sys
from importlib.machinery import ModuleSpec, PathFinder

PACKAGES = (
    "actuator",
    "agent",
    "api",
    "base",
    "cli",
    "devices",
    "diagnosis",
    "discovery",
    "exporters",
    "fleet",
    "forecast",
    "health",
    "kube",
    "kubelet",
    "labelers",
    "mig",
    "placement",
    "scheduler",
    "simulator",
    "web",
)
"""The other packages of gpuscape."""

MARK = "# A package of gpuscape."
"""A line in the ``__init__.py`` of each of these packages; a file without it is not gpuscape's."""

HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""The folder that gpuscape is installed in: site-packages, or a clone."""

REMEDY = "Install gpuscape again, into an environment of its own"


class OwnPackages:
    """Finds gpuscape's packages at home, whatever comes before it in ``sys.path``."""

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """The spec of a package of gpuscape; None for all other modules."""
        return PathFinder.find_spec(name, [HOME]) if name in PACKAGES else None


def isolate() -> None:
    """Have this process import gpuscape's packages from home, and nothing by way of PYTHONPATH.

    As with ``python -I``, the folder of the script, or the working folder, is left out too. Ends
    the process where a package is not gpuscape's.
    """
    _leave_out_folders_of_others()
    for package in PACKAGES:
        _check(package)
    sys.meta_path.insert(0, OwnPackages())


def _leave_out_folders_of_others() -> None:
    if not sys.flags.safe_path:
        del sys.path[0]
    if not sys.flags.ignore_environment:
        listed = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        installed = {HOME, os.path.dirname(os.__file__), *site.getsitepackages()}
        foreign_folders = {os.path.abspath(folder) for folder in listed} - installed
        sys.path[:] = [folder for folder in sys.path if folder not in foreign_folders]
    if HOME not in sys.path:  # gpuscape and its libraries, where somebody put them there
        sys.path.append(HOME)


def _check(package: str) -> None:
    file = os.path.join(HOME, package, "__init__.py")
    try:
        with open(file, "rb") as source:
            ours = MARK.encode() in source.read(1000)
    except OSError:
        sys.exit(f"Error: {file} is missing. {REMEDY}")
    if not ours:
        sys.exit(f"Error: {file} is not gpuscape's: it belongs to {_owner(package)}. {REMEDY}")
    loaded = getattr(sys.modules.get(package), "__file__", file)
    if loaded != file:
        sys.exit(
            f"Error: the package {package} was loaded from {loaded} before gpuscape started. "
            f"{REMEDY}"
        )


def _owner(package: str) -> str:
    """The names of other distributions that have this package, for messages."""
    from importlib.metadata import distributions  # costs time, and is needed here only

    owners = sorted(
        f"{distribution.name} {distribution.version}"
        for distribution in distributions(path=[HOME])
        if distribution.name != "gpuscape"
        and f"{package}/__init__.py" in map(str, distribution.files or ())
    )
    return " and ".join(owners) or "no distribution that is installed"
