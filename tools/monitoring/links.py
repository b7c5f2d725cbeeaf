# SPDX-License-Identifier: Apache-2.0
"""Links of panels: from the fleet to a node, from there to a pod, from alerts to runbooks.

Data source, cluster and the time shown go along. Source: Grafana's manual, "Configure data links
and actions", on the variables of links.
"""

from __future__ import annotations

from tools.monitoring.grafana import Link

_ALONG = "${datasource:queryparam}&${cluster:queryparam}&${__url_time_range}"
_CELL = "${__value.raw}"


def _to(dashboard: str, **chosen: str) -> str:
    """The address of a dashboard by its uid, with this chosen of its variables."""
    variables = "".join(f"&var-{name}={value}" for name, value in chosen.items())
    return f"/d/{dashboard}?{_ALONG}{variables}"


NODE_OF_CELL = Link(title="Open the node", url=_to("gpuscape-node", instance=_CELL))
"""Link of a table's column with names of nodes."""

NODE_OF_SERIES = Link(
    title="Open the node", url=_to("gpuscape-node", instance="${__field.labels.instance}")
)

POD_OF_CELL = Link(
    title="Open the pod",
    url=_to("gpuscape-pods", namespace="${__data.fields.Namespace}", pod=_CELL),
)
"""Link of a table's column with names of pods, if another column is called Namespace."""

POD_OF_SERIES = Link(
    title="Open the pod",
    url=_to("gpuscape-pods", namespace="${__field.labels.namespace}", pod="${__field.labels.pod}"),
)

NAMESPACE_OF_SERIES = Link(
    title="Open the namespace",
    url=_to("gpuscape-pods", namespace="${__field.labels.namespace}"),
)

PODS = Link(title="Open the pods", url=_to("gpuscape-pods"))

RUNBOOK_OF_CELL = Link(title="Open the alert and its runbook", url=f"/alerting/list?search={_CELL}")
"""Link of a column with names of alerts, to Grafana's own page of the rule, which has the runbook's
address; :func:`with_runbooks` makes it lead to the runbook itself."""


def with_runbooks(dashboard: str, folder: str) -> str:
    """A dashboard's text in which alerts lead to the runbooks in that folder, a URL."""
    return dashboard.replace(RUNBOOK_OF_CELL.url, f"{folder}{_CELL}.md")
