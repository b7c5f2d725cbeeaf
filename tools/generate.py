# SPDX-License-Identifier: Apache-2.0
"""Write generated pages, pictures, schemas and access rules, or with ``--check`` find stale ones.

In Markdown, what stands between ``<!-- generated: NAME -->`` and ``<!-- end -->`` is made by the
function registered under NAME; the rest of the page is written by hand. Schemas, roles
and admission policies are generated as whole files.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import click
import msgspec
from click.testing import CliRunner
from packaging.requirements import Requirement

from agent.settings.agent_settings import AGENT_SETTINGS
from api import (
    keys,
    mig_grant_annotation,
    mig_request_annotation,
    mig_status_annotation,
    state_annotation,
    topology_annotation,
)
from api.key_kinds import Key
from api.keys import LABELS, OTHERS
from api.mig_status_annotation import MigPhase, RequestEnd
from cli.main import main as gpuscape
from discovery.model import Driver, GpuState, Host, NodeSnapshot, Xid
from discovery.unread import unread_gpu
from exporters.dcgm.catalog import CATALOG, COUNTED, LABEL_ROWS
from exporters.dcgm.dcgm_family import AnyFamily, LabelRow, UnderMig
from exporters.gpuscape.agent_metrics import AgentMetrics, ProgramUse
from exporters.gpuscape.core_families import CORE, ServedFamilies
from exporters.gpuscape.families import FAMILIES
from exporters.mig_wish_metrics import MigWish
from labelers.deviations import DEVIATIONS
from labelers.health import RULES, XIDS
from tools import chart, live_views
from tools.access import files as access
from tools.explained import explained
from tools.figures import figures
from tools.findings import finding_rows
from tools.monitoring import files as monitoring
from tools.pictures import files as pictures

HERE = Path(__file__).resolve().parent.parent
ROOT = HERE
SCHEMAS = "docs/schemas"
WIDTH = 100
ENVIRONMENT = {"extra": "", "python_version": "3.11", "python_full_version": "3.11.0"} | {
    "sys_platform": "linux",
    "platform_machine": "x86_64",
}
"""For which packages' conditions are judged, whatever runs this."""
NUMBER = re.compile(r"(?<=_L)\d+|(?<=NVDEC|NVJPG|NVOFA)\d")
"""Of a link or an engine: their families differ in nothing else."""
WITH_MIG = {
    UnderMig.REPEATED: "the GPU's, on each instance",
    UnderMig.OWN: "each instance's own",
    UnderMig.ABSENT: "none",
}
PIPE = r"\|"
SECTION = re.compile(r"(<!-- generated: ([\w -]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> int:
    """Write or check; the number of stale files found by ``--check``, at most 1."""
    for name in [name for name in os.environ if name.startswith("GPUSCAPE_")] + ["FORCE_COLOR"]:
        os.environ.pop(name, None)  # the pages are the same, whoever generates them
    stale = {
        path: text for path, text in files() if not path.exists() or path.read_text("utf-8") != text
    }
    if sys.argv[1:] == ["--check"]:
        for path in stale:
            print(
                f"{path.relative_to(ROOT)} is stale: run `make docs` and commit it", file=sys.stderr
            )
        return bool(stale)
    for path, text in stale.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


def files() -> Iterator[tuple[Path, str]]:
    """Every generated file and what it should hold."""
    for name, content in schemas().items():
        yield ROOT / SCHEMAS / name, json.dumps(content, indent=2) + "\n"
    for path, text in {**access.files(), **live_views.files()}.items():
        yield ROOT / path, text
    watched = monitoring.files(HERE)
    for path, text in {**watched, **chart.files(watched), **pictures()}.items():
        yield ROOT / path, text
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        yield page, SECTION.sub(_section, page.read_text("utf-8"))


def _section(match: re.Match[str]) -> str:
    name, *arguments = match[2].split()
    return f"{match[1]}\n{SECTIONS[name](*arguments)}\n\n{match[3]}"


# What the sections hold


def schemas() -> Mapping[str, Any]:
    """JSON Schemas by file name."""
    return {
        "topology.schema.json": _cleaned(topology_annotation.json_schema()),
        "state.schema.json": _cleaned(state_annotation.json_schema()),
        "mig-status.schema.json": _cleaned(mig_status_annotation.json_schema()),
        "mig-request.schema.json": _cleaned(mig_request_annotation.json_schema()),
        "mig-grant.schema.json": _cleaned(mig_grant_annotation.json_schema()),
        "snapshot.schema.json": _cleaned(msgspec.json.schema(NodeSnapshot)),
    }


def _cleaned(part: Any) -> Any:
    """The schema with its descriptions unindented, as Python 3.13 keeps docstrings."""
    if isinstance(part, dict):
        return {
            key: inspect.cleandoc(value)
            if key == "description" and isinstance(value, str)
            else _cleaned(value)
            for key, value in part.items()
        }
    return [_cleaned(item) for item in part] if isinstance(part, list) else part


def sample(*command: str) -> str:
    """A command and what it prints."""
    result = CliRunner().invoke(gpuscape, list(command))
    if result.exit_code:
        raise SystemExit(f"gpuscape {' '.join(command)} failed: {result.output}")
    return code(f"$ gpuscape {' '.join(command)}\n{result.output}")


def explain_sample() -> str:
    """What explains a pod's placement, and what it prints."""
    return code(f"$ gpuscape scheduler explain train-0\n{explained()}")


def command_pages() -> str:
    """The help text of every command."""
    return "\n\n".join(_command_pages(gpuscape, "gpuscape", None))


def _command_pages(
    command: click.Command, name: str, parent: click.Context | None
) -> Iterator[str]:
    """That of one, and of the commands below it."""
    context = click.Context(command, info_name=name, parent=parent, **_PAGE)
    yield f"## {context.command_path}\n\n{code(command.get_help(context))}"
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            if found := command.get_command(context, below):
                yield from _command_pages(found, below, context)


def option_table() -> str:
    """Every setting in its spellings."""
    return table(
        ("key, `--flag`", "variable", "value", "default", "what it does"),
        (
            (
                f"`{option.name}`",
                ", ".join(f"`{name}`" for name in option.variables),
                option.spec.kind.expects,
                _quoted(option.default_text) if option.has_default else option.default_text,
                option.spec.help,
            )
            for option in AGENT_SETTINGS.options
        ),
    )


def label_table() -> str:
    """Every label on the Node."""
    rows = ((f"`{key.name}`", key.summary, _format(key), key.source) for key in LABELS)
    return table(("label", "what it says", "value", "source"), rows)


def other_key_table() -> str:
    """Every other key, and who alone writes it."""
    rows = ((f"`{key.name}`", key.where, key.writer, key.summary) for key in OTHERS)
    return table(("key", "on", "writer", "what it says"), rows)


def health_table() -> str:
    """What makes a GPU unhealthy, worst first."""
    return table(
        ("reason", "health", "what happened", "source"),
        (
            (f"`{rule.reason}`", rule.health.word, rule.meaning, rule.source)
            for rule in sorted(RULES, key=lambda rule: -rule.health)
        ),
    )


def xid_table() -> str:
    """How XID errors count, worst first."""
    return table(
        ("XIDs", "health", "what happened", "source"),
        (
            (", ".join(map(str, sorted(each.codes))), each.health.word, each.meaning, each.source)
            for each in sorted(XIDS, key=lambda each: -each.health)
        ),
    )


def deviation_table() -> str:
    """Where labels differ from gpu-feature-discovery's."""
    return table(
        ("about", "gpu-feature-discovery", "gpuscape", "why"),
        ((each.about, each.upstream, each.here, each.why) for each in DEVIATIONS),
    )


def metric_table(which: str) -> str:
    """The families named as dcgm-exporter names them: the ``default`` or the ``optional`` ones."""
    families: list[AnyFamily] = [*CATALOG, *COUNTED]
    alike: dict[str, list[AnyFamily]] = {}
    for family in families:
        if family.default == (which == "default"):
            alike.setdefault(NUMBER.sub("n", family.name), []).append(family)
    return table(
        ("name", "type", "meaning", "with MIG", "readings", "GPUs"),
        (
            (
                _names(same[0], same[-1]),
                same[0].kind,
                same[0].help if len(same) == 1 else re.sub(r"\b0\b", "n", same[0].help, count=1),
                WITH_MIG[same[0].under_mig],
                _quoted(same[0].group),
                same[0].gpus,
            )
            for same in alike.values()
        ),
    )


def metric_label_table() -> str:
    """The facts that can stand on every series."""
    return table(
        ("name", "meaning", "by default"),
        ((_names(row, row), row.help, "yes" if row.default else "") for row in LABEL_ROWS),
    )


def _names(first: AnyFamily | LabelRow, last: AnyFamily | LabelRow) -> str:
    """Both spellings, of one family or of many that are numbered."""
    to = "" if first is last else f" to `{last.name}`"
    since = "" if first is last else f" to `{last.renamed}`"
    renamed = f"<br>since DCGM 4.6 `{first.renamed}`{since}" if first.renamed else ""
    return f"`{first.name}`{to}{renamed}"


def own_metric_table() -> str:
    """What the agent serves about itself, read from its own exposition."""
    own, core = _own_metrics(ServedFamilies.ALL), _own_metrics(ServedFamilies.CORE)
    in_core = set(re.findall(r"^# TYPE (\w+) ", core, re.MULTILINE))
    types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", own, re.MULTILINE))
    helps = re.findall(r"^# HELP (\w+) (.*)$", own, re.MULTILINE)
    rows = (
        (f"`{name}`", "yes" if name in in_core else "", types[name], words)
        for name, words in sorted(helps)
    )
    return table(("name", "core", "type", "meaning"), rows)


_WISH = MigWish(
    phase=MigPhase.WAITING, since_seconds=0.0, retries={RequestEnd.PREVIOUS: 1}, enforced=True
)
"""With a series in each of its families."""


def _own_metrics(served: ServedFamilies) -> str:
    own = AgentMetrics("0", lambda: 0.0, served)
    gpu = replace(unread_gpu("0000:00:00.0", GpuState.PRESENT), xids=(Xid(code=1, count=1),))
    own.snapshot_taken(NodeSnapshot(host=Host(name=""), driver=Driver(), gpus=(gpu,)), at=0.0)
    own.samples_taken(0.0)
    own.programs_use({"agent": ProgramUse(cpu_seconds=0.0, resident_bytes=0)})
    own.mig_wished(_WISH)
    return (own.render() + own.render_now()).decode()


def own_family_table() -> str:
    """The families of our own about the node, and what each is computed from."""
    return table(
        ("name", "core", "type", "labels", "meaning", "computed from"),
        (
            (
                f"`{family.name}`",
                CORE[family.name].words if family.name in CORE else "",
                family.kind,
                ", ".join(f"`{label}`" for label in _shortened(family.labels)),
                family.help,
                family.source + "".join(f" (`{group}`)" for group in family.groups),
            )
            for family in FAMILIES
        ),
    )


def _shortened(labels: Sequence[str]) -> list[str]:
    """Of numbered labels the first one, and dots."""
    first, *more = [label for label in labels if label.startswith("to_")] or ["", ""]
    return [label if label != first else f"{label} …" for label in labels if label not in more]


def policy_table() -> str:
    """Every rule of every admission policy."""
    return table(
        ("policy", "rule", "what it says when it refuses"),
        (
            (f"`{policy.name}`", rule.name, rule.message)
            for policies in access.POLICIES.values()
            for policy in policies
            for rule in policy.rules
        ),
    )


def license_table() -> str:
    """Packages that gpuscape runs with, those they need included."""
    found = (metadata.distribution(name) for name in sorted(_run_time("gpuscape") - {"gpuscape"}))
    return table(
        ("package", "licence"), ((each.metadata["Name"], _license(each)) for each in found)
    )


SECTIONS: Mapping[str, Callable[..., str]] = {
    "commands": command_pages,
    "deviations": deviation_table,
    "explain": explain_sample,
    "figures": figures,
    "findings": lambda subject: table(*finding_rows(subject)),
    "health": health_table,
    "labels": label_table,
    "licenses": license_table,
    "metric-labels": metric_label_table,
    "metrics": metric_table,
    "options": option_table,
    "other-keys": other_key_table,
    "own-families": own_family_table,
    "own-metrics": own_metric_table,
    "policies": policy_table,
    "sample": sample,
    "xids": xid_table,
}

_PAGE: Mapping[str, Any] = {
    "terminal_width": WIDTH,
    "max_content_width": WIDTH,
    "help_option_names": gpuscape.context_settings["help_option_names"],
}


# How they are written


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', PIPE) for cell in line)} |" for line in lines
    )


def code(text: str) -> str:
    """A block that is shown as it stands."""
    return f"```text\n{text.strip()}\n```"


def _quoted(text: str | None) -> str:
    return f"`{text}`" if text else ""


def _format(key: Key) -> str:
    """The common value formats in words, others as their regular expression."""
    words = {keys.TEXT: "label text", keys.NUMBER: "number", keys.TRUTH: "`true` or `false`"}
    return words.get(key.value or "", _quoted(key.value))


def _run_time(name: str) -> set[str]:
    """The package and all that it needs, extras left out."""
    needed, ahead = set(), [name]
    while ahead:
        package = ahead.pop()
        if package in needed:
            continue
        needed.add(package)
        for line in metadata.requires(package) or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate(ENVIRONMENT):
                ahead.append(re.sub(r"[-_.]+", "-", requirement.name).lower())
    return needed


def _license(found: metadata.Distribution) -> str:
    """As the package declares it: the SPDX expression, else the field, else the classifier."""
    classifiers = found.metadata.get_all("Classifier") or []
    classified = [
        text.rpartition(" :: ")[2] for text in classifiers if text.startswith("License ::")
    ]
    fields = ("License-Expression", "License")
    declared = [found.metadata[field] for field in fields if field in found.metadata]
    return next(filter(None, declared), "") or ", ".join(classified) or "see the package"


if __name__ == "__main__":
    sys.exit(main())
