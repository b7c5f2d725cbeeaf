# SPDX-License-Identifier: Apache-2.0
"""The dashboard of the scheduler extender: how fast, how blind and how right it is."""

from __future__ import annotations

from tools.monitoring.grafana import Bars, Color, Dashboard, Graph, Row, Unit
from tools.monitoring.grafana_tables import Column, Table
from tools.monitoring.panels import BAD_IF_ANY, graph, number, ratio_graph
from tools.monitoring.selectors import CLUSTER, REPLICA, ask

_DAY = 86400.0
_ENDS = "gpuscape_scheduler_certificate_expiry_timestamp_seconds{@replica} - time()"
_SCORES = '@replica, verb="prioritize"'

_NOW = (
    number(
        "Replicas",
        "Replicas that Prometheus scrapes.",
        "count(gpuscape_scheduler_build_info{@replica})",
        width=4,
    ),
    number(
        "Replicas without a view",
        "Replicas that have not read the whole cluster yet. They give no scores until then.",
        "sum(1 - gpuscape_scheduler_synced{@replica})",
        width=5,
        steps=BAD_IF_ANY,
    ),
    number(
        "Pods ranked",
        "Requests for scores per second. kube-scheduler sends no pods without GPUs.",
        f"sum(rate(gpuscape_scheduler_requests_total{{{_SCORES}}}[$__rate_interval]))",
        unit=Unit.REQUESTS_PER_SECOND,
        decimals=1,
        width=5,
        spark=True,
    ),
    number(
        "Answers without scores",
        "Share of all answers within the time shown. Causes: too slow, cluster not read, or a"
        " fault.",
        f"""sum(increase(gpuscape_scheduler_neutral_answers_total{{@replica}}[$__range]))
        / sum(increase(gpuscape_scheduler_requests_total{{{_SCORES}}}[$__range]))""",
        unit=Unit.RATIO,
        decimals=1,
        width=5,
        steps=((0.0, Color.GOOD), (0.1, Color.WARNING)),
    ),
    number(
        "First certificate to end",
        "Time until the first certificate ends. After that kube-scheduler works without the"
        " extender, and reports nothing.",
        f"min({_ENDS})",
        unit=Unit.SECONDS,
        minimum=None,
        width=5,
        steps=((-1e9, Color.BAD), (0.0, Color.WARNING), (30 * _DAY, Color.GOOD)),
    ),
)

_ANSWERS = (
    Graph(
        title="Time to answer",
        description="Requests for scores: half of them, and 99 of 100, took less than this. The"
        " limit is 50 ms.",
        queries=tuple(
            ask(
                f"""histogram_quantile({share}, sum by (le) (rate(
                gpuscape_scheduler_request_duration_seconds_bucket{{{_SCORES}}}[$__rate_interval])))""",
                legend,
            )
            for share, legend in ((0.5, "half"), (0.99, "99 of 100"))
        ),
        unit=Unit.SECONDS,
    ),
    graph(
        "Requests",
        "Requests per second, by verb and status of the answer.",
        """sum by (verb, code)
        (rate(gpuscape_scheduler_requests_total{@replica}[$__rate_interval]))""",
        "{{verb}} {{code}}",
        unit=Unit.REQUESTS_PER_SECOND,
    ),
    graph(
        "Answers without scores, by cause",
        "Answers per second. budget: a full answer would have taken too long; unsynced: the"
        " cluster is not read yet; fault: the log has the reason.",
        """sum by (cause)
        (rate(gpuscape_scheduler_neutral_answers_total{@replica}[$__rate_interval]))""",
        "{{cause}}",
        unit=Unit.REQUESTS_PER_SECOND,
    ),
    graph(
        "Clients refused",
        "Refusals per second, by reason. If the reason is a certificate, the client may be"
        " kube-scheduler.",
        """sum by (reason)
        (rate(gpuscape_scheduler_http_refusals_total{@replica}[$__rate_interval]))""",
        "{{reason}}",
        unit=Unit.EVENTS_PER_SECOND,
    ),
)

_SEEN = (
    Bars(
        title="Nodes by how they are seen",
        description="sure and unsure nodes are ranked; the others have rank 0 for the reason"
        " shown. The highest number of any replica counts.",
        queries=(ask("max by (view) (gpuscape_scheduler_nodes{@replica})", "{{view}}"),),
    ),
    Bars(
        title="Worth of free GPUs by class",
        description="Value of the free GPUs to pods that request linked GPUs, as a share of the"
        " best for this number of GPUs. 1 means no fragmentation.",
        queries=(
            ask(
                "min by (topology_class) (gpuscape_scheduler_class_worth_ratio{@replica})",
                "{{topology_class}}",
            ),
        ),
        unit=Unit.RATIO,
        maximum=1,
    ),
    ratio_graph(
        "Placements as fast as can be",
        "Share of pods with several GPUs whose set is as fast as the best set of the node.",
        """sum(rate(gpuscape_scheduler_placements_total{@replica, ideal="true"}
        [$__rate_interval]))
        / sum(rate(gpuscape_scheduler_placements_total{@replica}[$__rate_interval]))""",
        "ideal",
    ),
    ratio_graph(
        "Predictions that came true",
        "Share of pods that got one of the predicted sets.",
        """sum(rate(gpuscape_scheduler_predictions_total{@replica, result="hit"}
        [$__rate_interval]))
        / sum(rate(gpuscape_scheduler_predictions_total{@replica}[$__rate_interval]))""",
        "hit",
    ),
)

_CERTIFICATES = (
    Table(
        title="Certificates",
        description="Remaining time of the certificates in use: the server's own, the first to end"
        " of the clients' authorities, and that of the scheduler that connected last.",
        queries=(ask(f"min by (instance, certificate) ({_ENDS})"),),
        columns=(
            Column(label="instance", title="Replica"),
            Column(label="certificate", title="Certificate"),
            Column(label="Value", title="Ends in", unit=Unit.SECONDS),
        ),
    ),
)

SCHEDULER = Dashboard(
    uid="gpuscape-scheduler",
    title="gpuscape / Scheduler",
    description="The scheduler extender: whether it is called, answers in time, and is right.",
    variables=(CLUSTER, REPLICA),
    rows=(
        Row(title="Now", panels=_NOW),
        Row(title="Answers", panels=_ANSWERS),
        Row(title="What it sees and what comes of it", panels=_SEEN),
        Row(title="Certificates", panels=_CERTIFICATES),
    ),
)
