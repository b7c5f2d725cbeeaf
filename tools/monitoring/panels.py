# SPDX-License-Identifier: Apache-2.0
"""Panels, columns and colours that several dashboards have."""

from __future__ import annotations

from tools.monitoring.grafana import Color, Graph, Link, Number, Unit
from tools.monitoring.grafana_tables import Column, Table
from tools.monitoring.links import NODE_OF_CELL, POD_OF_CELL, RUNBOOK_OF_CELL
from tools.monitoring.selectors import ask

BAD_IF_ANY = ((0.0, Color.GOOD), (1.0, Color.BAD))
WARNING_IF_ANY = ((0.0, Color.GOOD), (1.0, Color.WARNING))

NODE_COLUMN = Column(label="instance", title="Node", link=NODE_OF_CELL)
GPU_BUS_COLUMN = Column(label="pci_bus_id", title="GPU")
GPU_INDEX_COLUMN = Column(label="index", title="GPU", is_number=True)
NAMESPACE_COLUMN = Column(label="namespace", title="Namespace")
POD_COLUMN = Column(label="pod", title="Pod", link=POD_OF_CELL)
INSTANCE_COLUMN = Column(label="gpu_instance_id", title="Instance")
HEALTH_COLUMNS = (Column(label="health", title="Health"), Column(label="reason", title="Reason"))


def number(
    title: str,
    description: str,
    expression: str,
    *,
    width: int,
    unit: Unit = Unit.COUNT,
    decimals: int | None = None,
    minimum: float | None = 0,
    steps: tuple[tuple[float, Color], ...] = (),
    link: Link | None = None,
    spark: bool = False,
) -> Number:
    """A number of the row "Now" that every dashboard begins with."""
    return Number(
        title=title,
        description=description,
        queries=(ask(expression),),
        width=width,
        height=4,
        unit=unit,
        decimals=decimals,
        minimum=minimum,
        steps=steps,
        link=link,
        spark=spark,
    )


def ratio(
    title: str, description: str, expression: str, *, width: int, spark: bool = False
) -> Number:
    """Such a number for a share of a whole."""
    return number(
        title, description, expression, width=width, unit=Unit.RATIO, decimals=0, spark=spark
    )


def held_by_pods(title: str, description: str, *, link: Link | None = None) -> Number:
    """GPUs that pods hold, in a row "Now"; 0 where a kubelet is read and no pod has any."""
    expression = "count(@held) or count(gpuscape_free_gpus{@node}) * 0"
    return number(title, description, expression, width=3, link=link)


def activity(description: str) -> Number:
    """How busy the chosen GPUs are, in a row "Now"."""
    expression = "avg(gpuscape_gpu_active_ratio{@node})"
    return ratio("Activity", description, expression, width=3, spark=True)


def power(*, width: int) -> Number:
    """What the chosen GPUs draw, in a row "Now"."""
    description = "Power draw of all GPUs together, each board counted once."
    return number("Power", description, "sum(@boards)", width=width, unit=Unit.WATTS, spark=True)


def graph(
    title: str,
    description: str,
    expression: str,
    legend: str,
    *,
    unit: Unit = Unit.COUNT,
    maximum: float | None = None,
    width: int = 12,
    stacked: bool = False,
    link: Link | None = None,
) -> Graph:
    """A graph of one query."""
    return Graph(
        title=title,
        description=description,
        queries=(ask(expression, legend),),
        unit=unit,
        maximum=maximum,
        width=width,
        stacked=stacked,
        link=link,
    )


def ratio_graph(
    title: str, description: str, expression: str, legend: str, *, link: Link | None = None
) -> Graph:
    """Such a graph for shares of a whole."""
    return graph(title, description, expression, legend, unit=Unit.RATIO, maximum=1, link=link)


def xid_errors(*gpu: Column) -> Table:
    """XID errors by code, of the GPU that these columns name."""
    labels = ", ".join((*(column.label for column in gpu), "xid"))
    return Table(
        title="XID errors",
        description="Errors by GPU and code, since the agent started.",
        queries=(
            ask(f"sum by ({labels}) (gpuscape_xid_errors_total{{@node}})"),
            ask(f"time() - max by ({labels}) (gpuscape_xid_last_timestamp_seconds{{@node}})"),
        ),
        columns=(
            *gpu,
            Column(label="xid", title="XID", is_number=True),
            Column(label="Value #A", title="Errors"),
            Column(label="Value #B", title="Newest, ago", unit=Unit.SECONDS),
        ),
    )


def firing_alerts(matchers: str, column: Column) -> Table:
    """Alerts about GPUs that fire, of the series that the matchers name."""
    return Table(
        title="Alerts that fire",
        description="Firing alerts of gpuscape's rules, if Prometheus has loaded them.",
        queries=(ask(f"max by (alertname, severity, {column.label}) (ALERTS{{{matchers}}})"),),
        columns=(
            Column(label="severity", title="Severity"),
            Column(label="alertname", title="Alert", link=RUNBOOK_OF_CELL),
            column,
        ),
    )
