# SPDX-License-Identifier: Apache-2.0
"""What is decided reaches every sink, changes are counted, and each failure is logged once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from agent.publish import NodeDecision, Publisher, to_feature_file, to_stream
from api import keys
from base.errors import Permanent, Transient
from discovery.model import Driver, Gap, GpuState, Reason, Xid
from labelers.decision import Decisions, Keep, Value
from labelers.diff import applied
from labelers.label_settings import LabelSettings
from tests import build
from tests.log_lines import log_lines

GPU = build.gpu(0)
COUNT = "nvidia.com/gpu.count"
HUNG = Driver(gaps=(Gap(what="version", reason=Reason.HUNG, source="device reader"),))


def labels(**texts: str) -> NodeDecision:
    return NodeDecision(
        labels={key: Value(text=text) for key, text in texts.items()}, annotations={}
    )


class Taken:
    """A sink that takes all, or fails while it has an error."""

    def __init__(self) -> None:
        self.decided: list[NodeDecision] = []
        self.error: Exception | None = None

    def __call__(self, decided: NodeDecision) -> None:
        if self.error is not None:
            raise self.error
        self.decided.append(decided)

    @property
    def labels(self) -> dict[str, str]:
        texts: dict[str, str] = {}
        for decided in self.decided:
            texts = applied(texts, decided.labels)
        return texts


def test_changes_are_counted_from_the_publication_before() -> None:
    taken = Taken()
    publisher = Publisher(LabelSettings(), {"cluster": taken})
    first = publisher.publish(build.node([GPU]))
    assert first.changed == len(taken.labels) > 0
    assert (first.failures, first.reached) == ((), {"cluster": True})
    assert publisher.publish(build.node([GPU])).changed == 0
    publisher.publish(build.node([GPU, build.gpu(1)]))
    assert taken.labels[COUNT] == "2"


def test_a_publisher_with_other_settings_goes_on_from_the_one_before() -> None:
    """Labels, the GPUs that were there and a first stall of the driver."""
    taken = Taken()
    before = Publisher(LabelSettings(), {})
    before.publish(build.node([GPU]))
    before.publish(build.node([GPU], driver=HUNG))
    after = Publisher(LabelSettings(timestamp_seconds=1), {"cluster": taken}, before)
    hung = build.silent(0, GpuState.HUNG)
    assert after.publish(build.node([hung], driver=HUNG)).reached == {"cluster": True}  # a second
    after = Publisher(LabelSettings(timestamp_seconds=1), {"cluster": taken}, before)
    assert after.publish(build.node([hung]), {GPU.bus_id}).changed == 1  # the timestamp alone


def test_an_error_of_a_gpu_that_missed_one_deadline_counts_though_the_gpu_is_as_before() -> None:
    taken = Taken()
    publisher = Publisher(LabelSettings(), {"cluster": taken})
    publisher.publish(build.node([GPU]))
    hung = build.silent(0, GpuState.HUNG, xids=(Xid(code=79, count=1),))
    publisher.publish(build.node([hung]), {GPU.bus_id})
    assert (taken.labels[keys.HEALTH], taken.labels[keys.HEALTH_REASON]) == ("unhealthy", "xid-79")


def test_the_first_stall_of_the_driver_publishes_nothing() -> None:
    taken = Taken()
    published = Publisher(LabelSettings(), {"cluster": taken}).publish(build.node(driver=HUNG))
    assert (published.changed, published.failures, published.reached) == (0, (), {})
    assert taken.decided == []


def test_a_labeler_that_fails_is_named_in_log_and_result_and_leaves_the_others_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    taken = Taken()
    wrong: Any = (12,)
    node = build.node([GPU], driver=Driver(version="400.300", cuda_version=wrong))
    published = Publisher(LabelSettings(), {"cluster": taken}).publish(node)
    assert taken.labels[COUNT] == "1"
    ((level, message, fields),) = log_lines(caplog)
    (failure,) = published.failures
    assert (level, message) == ("ERROR", "labeler failed")
    assert fields == {"labeler": "driver", "why": failure.error}
    assert failure.labeler == "driver"


def test_a_sink_that_fails_is_tried_again_and_logged_once_for_each_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    taken, well = Taken(), Taken()
    publisher = Publisher(LabelSettings(), {"file": taken, "cluster": well})
    reached = []
    for error in (Permanent("no folder"), Permanent("no folder"), Transient("full"), None, None):
        taken.error = error
        reached.append(publisher.publish(build.node([GPU])).reached)
    taken.error = Transient("full")
    publisher.publish(build.node([GPU]))
    assert [it["file"] for it in reached] == [False, False, False, True, True]
    assert all(it["cluster"] for it in reached)
    assert log_lines(caplog) == [
        ("ERROR", "labels not written", {"sink": "file", "why": why})
        for why in ("no folder", "full", "full")
    ]


def test_labels_are_printed_whole_whenever_they_change() -> None:
    printed: list[str] = []
    write = to_stream(printed.extend)
    for decided in (labels(a="1", b="2"), labels(a="1", b="2"), labels(b="3")):
        write(decided)
    assert printed == ["a=1", "b=2", "a=1", "b=3"]


def test_labels_that_an_output_refuses_are_printed_when_it_takes_them() -> None:
    printed: list[str] = []
    refuses = True

    def write_lines(lines: Iterable[str]) -> None:
        if refuses:
            raise Transient("blocked")
        printed.extend(lines)

    write = to_stream(write_lines)
    with pytest.raises(Transient):
        write(labels(a="1"))
    refuses = False
    write(labels(a="1"))
    assert printed == ["a=1"]


def test_the_feature_file_has_the_labels_and_keeps_those_to_be_kept(tmp_path: Path) -> None:
    file = tmp_path / "features"
    sink = to_feature_file(file)
    wanted: Decisions = {COUNT: Value(text="2")}
    sink(NodeDecision(labels=wanted, annotations={"other": Value(text="x")}))
    sink(NodeDecision(labels={COUNT: Keep(reason="not known now")}, annotations={}))
    lines = [it for it in file.read_text().splitlines() if not it.startswith("#")]
    assert lines == [f"{COUNT}=2"]


@pytest.mark.parametrize(
    ("settling", "count", "health"), [(True, "8", "unhealthy"), (False, "1", "healthy")]
)
def test_while_the_node_is_not_read_no_label_changes_for_a_minute(
    settling: bool, count: str, health: str
) -> None:
    """There may be more GPUs than these; the cluster is not written to, however long it takes."""
    taken = Taken()
    publisher = Publisher(LabelSettings(), {"file": taken})
    lost = build.node([*map(build.gpu, range(7)), build.silent(7, model="MOCKMODEL")])
    publisher.publish(lost)
    early = build.node([GPU], awaits_record=True, settling=settling)
    publisher.publish(early)
    assert (taken.labels[COUNT], taken.labels[keys.HEALTH]) == (count, health)
    assert [it.awaits_record for it in taken.decided] == [False, True]


def test_a_sink_without_labels_gets_what_is_known_while_the_node_is_not_read() -> None:
    taken = Taken()
    early = build.node([GPU], awaits_record=True, settling=True)
    Publisher(LabelSettings(), {"file": taken}).publish(early)
    assert taken.labels[COUNT] == "1"
    assert keys.HEALTH not in taken.labels
