# SPDX-License-Identifier: Apache-2.0
"""Verdicts on two sides' metrics, worked out by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from exporters.compare.comparison import Comparison, TooManySeries
from exporters.compare.exposition_parser import parse_exposition
from exporters.compare.series_match import Matching
from exporters.compare.tolerance import Tolerance, ToleranceOverride
from exporters.compare.verdict import Compared, ComparisonResult, MetricVerdict, SideActivity

STEP_SECONDS = 10.0

GPU0 = 'gpu="0",UUID="GPU-0"'
GPU1 = 'gpu="1",UUID="GPU-1"'


def series(labels: str, *values: float | None, name: str = "x") -> list[str]:
    """One series' lines, round by round; empty where it is not there."""
    return ["" if value is None else f"{name}{{{labels}}} {value}\n" for value in values]


def side(*all_of_it: Sequence[str], kind: str = "gauge", name: str = "x") -> list[bytes]:
    """What a side serves, round by round."""
    announced = f"# TYPE {name} {kind}\n" if kind else ""
    return [(announced + "".join(lines)).encode() for lines in zip(*all_of_it, strict=True)]


def outcome(
    left: Iterable[bytes], right: Iterable[bytes], comparison: Comparison
) -> ComparisonResult:
    for number, (one, other) in enumerate(zip(left, right, strict=True)):
        comparison.add(parse_exposition(one), parse_exposition(other), number * STEP_SECONDS)
    return comparison.outcome()


def compared(
    left: Iterable[bytes], right: Iterable[bytes], comparison: Comparison | None = None
) -> Compared:
    """The only metric of a run."""
    (metric,) = outcome(left, right, comparison or Comparison(Matching())).metrics
    return metric


def numbers(*values: float, kind: str = "gauge", name: str = "x") -> list[bytes]:
    """One series of GPU 0."""
    return side(series(GPU0, *values, name=name), kind=kind, name=name)


SAME, VALUES = MetricVerdict.SAME, MetricVerdict.VALUES
STALE_LEFT, STALE_RIGHT = MetricVerdict.STALE_LEFT, MetricVerdict.STALE_RIGHT

GAUGES = [
    # means of 100 and 109: 9 % of the larger is 10.9, and 9 is less
    ([100, 100], [109, 109], SAME),
    ([100, 100], [112, 112], VALUES),
    # means 50 and 60, variances 1600 and 2400, 4 values each that all changed:
    # 6 by tolerance, 2 x sqrt(400 + 600) = 63 by chance
    ([10, 90, 10, 90], [0, 120, 0, 120], SAME),
    # as far apart, and hardly any noise: 6 by tolerance, 2 x sqrt(2 x 0.0625) = 0.7 by chance
    ([50, 50.5, 50, 50.5], [60, 60.5, 60, 60.5], VALUES),
    ([0, 0, 0, 0], [0, 0, 0, 0], SAME),
    ([0, 0, 0, 0], [1, 1, 1, 1], VALUES),
    # one stands still while the other changes three times, by more than 10 % of 40
    ([10, 20, 30, 40], [25, 25, 25, 25], STALE_RIGHT),
    ([25, 25, 25, 25], [10, 20, 30, 40], STALE_LEFT),
    # two changes are too few, and 2 x sqrt(50 / 3) is 8.2 by chance
    ([10, 20, 30, 30], [25, 25, 25, 25], SAME),
    # three that stay within 10 % are no sign either
    ([40, 41, 40, 41], [40, 40, 40, 40], SAME),
    ([float("nan"), float("nan")], [float("nan"), float("nan")], SAME),
    ([float("nan"), float("nan")], [1, 1], VALUES),
    ([float("inf"), float("inf")], [float("inf"), float("inf")], SAME),
    ([float("inf")], [1e308], VALUES),
]

COUNTERS = [
    # 30 in 30 s against 32: 7 % apart
    ([0, 10, 20, 30], [500, 510, 520, 532], SAME),
    # 30 against 90 in 30 s; each may be wrong by one of its three steps: 0.1 + 1/3 + 1 < 2
    ([0, 10, 20, 30], [0, 30, 60, 90], VALUES),
    # a factor of 1000, as when joules are taken for millijoules
    ([0, 10, 20, 30], [0, 1e4, 2e4, 3e4], VALUES),
    # renewed every 30 s only, and so a step behind
    ([0, 10, 20, 30, 40, 50, 60], [0, 0, 0, 30, 30, 30, 30], SAME),
    # began again at zero: 10 + 10 + 5 + 10
    ([100, 110, 120, 5, 15], [0, 10, 20, 30, 40], SAME),
    ([7, 7, 7, 7], [7, 7, 7, 7], SAME),
    ([7, 7, 7, 7], [8, 8, 8, 8], VALUES),  # they stand still and differ
    ([0, 10, 20, 30], [5, 5, 5, 5], STALE_RIGHT),
    ([1e9, 1e9, 1e9, 1e9], [1e9, 1e9 + 1, 1e9 + 2, 1e9 + 3], STALE_LEFT),
    # one round has no rate: the values are 9 % apart, or 12 %
    ([100], [109], SAME),
    ([100], [113], VALUES),
]


@pytest.mark.parametrize(
    ("kind", "left", "right", "verdict"),
    [("gauge", *case) for case in GAUGES]
    + [("", *case) for case in GAUGES]
    + [("counter", *case) for case in COUNTERS],
)
def test_values_are_judged_over_the_run(
    kind: str, left: list[float], right: list[float], verdict: MetricVerdict
) -> None:
    assert compared(numbers(*left, kind=kind), numbers(*right, kind=kind)).verdict is verdict


@pytest.mark.parametrize(
    ("name", "left", "right", "verdict"),
    [
        ("DCGM_FI_DEV_GPU_TEMP", 30, 33, SAME),
        ("DCGM_FI_DEV_GPU_TEMP", 30, 34, VALUES),
        ("DCGM_FI_DEV_XID_ERRORS", 79, 79, SAME),
        ("DCGM_FI_DEV_XID_ERRORS", 79, 80, VALUES),
        ("DCGM_FI_DEV_FB_TOTAL", 81920, 81919, VALUES),
        ("DCGM_FI_DEV_FB_USED", 1000, 1064, SAME),
        ("DCGM_FI_DEV_FB_USED", 1000, 1065, VALUES),
        ("DCGM_FI_PROF_SM_ACTIVE", 0.5, 0.55, SAME),
        ("DCGM_FI_PROF_SM_ACTIVE", 0.5, 0.6, VALUES),
        ("DCGM_FI_DEV_POWER_USAGE", 10, 15, SAME),
        ("DCGM_FI_DEV_GPU_UTIL", 3, 0, SAME),
        ("DCGM_FI_DEV_SM_CLOCK_HERTZ", 100e6, 130e6, SAME),
        ("DCGM_FI_DEV_SM_CLOCK_HERTZ", 100e6, 131e6, VALUES),
        ("DCGM_FI_DEV_SM_MAX_CLOCK_HERTZ", 1980e6, 1979e6, VALUES),
        ("DCGM_FI_DEV_BAR1_USED_BYTES", 2**30, 2**30 + 2**26, SAME),
        ("dcgm_gpu_temp", 30, 33, SAME),
        ("dcgm_gpu_temp", 30, 34, VALUES),
        ("dcgm_gpu_utilization", 3, 0, SAME),
        ("dcgm_fb_used", 1000, 1064, SAME),
        ("gpuscape_build_info", 1, 1, SAME),
    ],
)
def test_metrics_have_the_tolerance_of_what_they_measure(
    name: str, left: float, right: float, verdict: MetricVerdict
) -> None:
    assert compared(numbers(left, name=name), numbers(right, name=name)).verdict is verdict


@pytest.mark.parametrize(
    "name", ["DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "dcgm_nvlink_bandwidth_total"]
)
def test_a_rate_that_calls_itself_a_counter_is_compared_as_what_it_is(name: str) -> None:
    left = numbers(5000, 5100, 4900, 5000, name=name, kind="counter")
    right = numbers(4900, 5000, 5100, 5000, name=name, kind="counter")
    assert compared(left, right).verdict is SAME


@pytest.mark.parametrize(
    ("wishes", "verdict"),
    [
        ([ToleranceOverride(tolerance=Tolerance(ratio=0.3))], SAME),
        ([ToleranceOverride(tolerance=Tolerance(absolute=20))], SAME),
        (
            [
                ToleranceOverride(tolerance=Tolerance(ratio=0.3)),
                ToleranceOverride(tolerance=Tolerance(absolute=1)),
            ],
            VALUES,
        ),
        ([ToleranceOverride(tolerance=Tolerance(ratio=0.3), names="y*")], VALUES),
    ],
)
def test_a_wish_sets_the_tolerance(wishes: list[ToleranceOverride], verdict: MetricVerdict) -> None:
    comparison = Comparison(Matching(), overrides=wishes)
    assert compared(numbers(100), numbers(120), comparison).verdict is verdict


def test_what_has_to_be_equal_yields_to_its_own_name_only() -> None:
    name = "DCGM_FI_DEV_FB_TOTAL"
    for_all = Comparison(Matching(), overrides=[ToleranceOverride(tolerance=Tolerance(ratio=0.3))])
    for_it = Comparison(
        Matching(), overrides=[ToleranceOverride(tolerance=Tolerance(ratio=0.3), names=name)]
    )
    assert compared(numbers(100, name=name), numbers(99, name=name), for_all).verdict is VALUES
    assert compared(numbers(100, name=name), numbers(99, name=name), for_it).verdict is SAME


def test_a_metric_of_one_side_is_told_with_some_of_its_series() -> None:
    metric = compared(side(series(GPU0, 1), series(GPU1, 1)), [b""])
    assert (metric.verdict, metric.left.series, metric.right.series) == ("only-left", 2, 0)
    assert metric.findings[0].examples == ('UUID="GPU-0",gpu="0"', 'UUID="GPU-1",gpu="1"')
    assert compared([b""], numbers(1)).verdict is MetricVerdict.ONLY_RIGHT


def test_an_announced_metric_without_series_is_none() -> None:
    assert outcome([b"# TYPE x gauge\n"], [b""], Comparison(Matching())).metrics == ()


def test_series_of_one_side_are_missing_on_the_other() -> None:
    both, one = side(series(GPU0, 1), series(GPU1, 1)), numbers(1)
    missing = compared(both, one)
    assert (missing.verdict, missing.pairs) == (MetricVerdict.MISSING_RIGHT, 1)
    assert missing.findings[0].examples == ('UUID="GPU-1",gpu="1"',)
    assert compared(one, both).verdict is MetricVerdict.MISSING_LEFT


def test_another_gpu_is_not_the_same_series_with_other_labels() -> None:
    metric = compared(side(series(GPU0, 1)), side(series(GPU1, 1)))
    assert [it.verdict for it in metric.findings] == ["missing-right", "missing-left"]


def test_another_instance_of_the_same_gpu_is_not_the_same_series() -> None:
    left = side(series('gpu="0",GPU_I_ID="1"', 1))
    metric = compared(left, side(series('gpu="0",GPU_I_ID="2"', 1)))
    assert metric.verdict is MetricVerdict.MISSING_RIGHT


def test_a_series_that_came_and_went_is_not_missing() -> None:
    left = side(series(GPU0, 1, 1, 1, 1, 1), series(GPU0 + ',pod="a"', None, 1, 1, None, None))
    right = numbers(1, 1, 1, 1, 1)
    assert compared(left, right).verdict is SAME


def test_a_series_that_is_there_now_and_then_is_missing() -> None:
    left = numbers(1, 1, 1, 1, 1, 1, 1)
    right = side(series(GPU0, 1, 1, None, None, None, None, None))
    assert compared(left, right).verdict is MetricVerdict.MISSING_RIGHT
    assert compared(right, left).verdict is MetricVerdict.MISSING_LEFT


def test_series_that_never_stop_changing_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exporters.compare.comparison.MOST_TRACKS", 3)
    left = [f'x{{pod="{number}"}} 1\n'.encode() for number in range(4)]
    comparison = Comparison(Matching())
    outcome(left[:3], [b""] * 3, comparison)
    with pytest.raises(TooManySeries, match="more than 3 different series"):
        comparison.add(parse_exposition(left[3]), parse_exposition(b""), 30.0)


def test_more_on_the_right_can_be_allowed() -> None:
    left = side(series(GPU0, 1))
    right = [b"".join([*side(series(GPU0, 1), series(GPU1, 1)), *numbers(1, name="y")])]
    plain = outcome(left, right, Comparison(Matching()))
    allowing = outcome(left, right, Comparison(Matching(), allow_extra=True))
    assert [it.verdict for it in plain.metrics] == ["missing-left", "only-right"]
    assert [it.verdict for it in allowing.metrics] == ["same", "same"]
    assert (plain.same, allowing.same) == (False, True)
    assert not outcome(right, left, Comparison(Matching(), allow_extra=True)).same


LABELS = [
    ('gpu="0",modelName="A B"', 'gpu="0",modelName="A-B"', "modelName 'A B' against 'A-B'"),
    ('gpu="0"', 'gpu="0",pod="p"', "pod (right only)"),
    ('gpu="0",pod="p",x="1"', 'gpu="0",x="2"', "pod (left only), x '1' against '2'"),
]


@pytest.mark.parametrize(("left", "right", "detail"), LABELS)
def test_labels_that_differ_are_named(left: str, right: str, detail: str) -> None:
    metric = compared(side(series(left, 1)), side(series(right, 1)))
    assert (metric.verdict, metric.findings[0].detail) == (MetricVerdict.LABELS, detail)
    assert metric.pairs == 1


def test_values_are_compared_though_labels_differ() -> None:
    metric = compared(side(series('gpu="0",a="1"', 1)), side(series('gpu="0",a="2"', 5)))
    assert [it.verdict for it in metric.findings] == [MetricVerdict.LABELS, MetricVerdict.VALUES]


def test_pods_that_swapped_gpus_are_labels_that_differ() -> None:
    left = side(series('gpu="0",pod="a"', 1), series('gpu="1",pod="b"', 1))
    right = side(series('gpu="0",pod="b"', 1), series('gpu="1",pod="a"', 1))
    metric = compared(left, right)
    assert (metric.verdict, metric.pairs, metric.findings[0].series) == (MetricVerdict.LABELS, 2, 2)


def test_series_that_could_be_several_are_missing_rather_than_guessed() -> None:
    left = side(series('gpu="0"', 1))
    right = side(series('gpu="0",vgpu="0"', 1), series('gpu="0",vgpu="1"', 1))
    metric = compared(left, right)
    assert [it.verdict for it in metric.findings] == ["missing-right", "missing-left"]


SPELLINGS = [
    ('gpu="0",Hostname="n"', 'gpu="0",hostname="n"', "Hostname against hostname"),
    (
        'gpu="0",uuid="U",pod_name="p"',
        'gpu="0",UUID="U",pod="p"',
        "uuid against UUID; pod_name against pod",
    ),
    (
        'gpu="0",pod_namespace="a",container_name="c"',
        'gpu="0",namespace="a",container="c"',
        "container_name against container; pod_namespace against namespace",
    ),
]


@pytest.mark.parametrize(("left", "right", "detail"), SPELLINGS)
def test_series_with_older_spellings_are_pairs_whose_labels_differ(
    left: str, right: str, detail: str
) -> None:
    """A query by ``Hostname`` finds no series with ``hostname``."""
    metric = compared(side(series(left, 1)), side(series(right, 1)))

    assert (metric.verdict, metric.pairs) == (MetricVerdict.LABELS, 1)
    assert [finding.detail for finding in metric.findings] == [detail]


@pytest.mark.parametrize(("labels", "_right", "_detail"), SPELLINGS)
def test_the_same_spelling_on_both_sides_is_no_difference(
    labels: str, _right: str, _detail: str
) -> None:
    assert compared(side(series(labels, 1)), side(series(labels, 1))).verdict is SAME


def test_what_only_the_right_side_has_may_be_allowed_and_another_spelling_may_not() -> None:
    left, right = side(series('gpu="0",Hostname="n"', 1)), side(series('gpu="0",hostname="n"', 1))

    assert compared(left, right, Comparison(Matching(), allow_extra=True)).verdict is (
        MetricVerdict.LABELS
    )


def test_an_empty_label_is_as_none() -> None:
    left, right = side(series('gpu="0",pod=""', 1)), side(series('gpu="0"', 1))

    assert compared(left, right).verdict is SAME


def test_an_older_spelling_beside_todays_is_a_label_of_its_own() -> None:
    left, right = 'gpu="0",pod="p",pod_name="a"', 'gpu="0",pod="p",pod_name="b"'
    assert compared(side(series(left, 1)), side(series(left, 1))).verdict is SAME
    assert compared(side(series(left, 1)), side(series(right, 1))).verdict is MetricVerdict.LABELS


def test_ignored_labels_are_left_out_in_both_spellings() -> None:
    comparison = Comparison(Matching(ignored_labels=frozenset({"hostname", "pod"})))
    left = side(series('gpu="0",Hostname="n",pod="p"', 1))
    assert compared(left, side(series('gpu="0"', 1)), comparison).verdict is SAME


def test_series_that_ignored_labels_told_apart_collide() -> None:
    comparison = Comparison(Matching(ignored_labels=frozenset({"pod"})))
    left = side(series('gpu="0",pod="p"', 1), series('gpu="0",pod="q"', 1))
    assert compared(left, left, comparison).verdict is MetricVerdict.COLLIDING


def test_a_prefix_is_taken_off() -> None:
    comparison = Comparison(Matching(prefixes=("shadow_",)))
    metric = compared(numbers(1), numbers(1, name="shadow_x"), comparison)
    assert (metric.name, metric.verdict) == ("x", SAME)


def test_type_counts_and_help_does_not() -> None:
    left = [b"# HELP x one\n# TYPE x gauge\nx 1\n"]
    other_type = compared(left, [b"# HELP x one\n# TYPE x counter\nx 1\n"])
    assert (other_type.verdict, other_type.findings[0].detail) == ("type", "gauge against counter")
    other_help = compared(left, [b"# HELP x two\n# TYPE x gauge\nx 1\n"])
    assert (other_help.verdict, other_help.findings[0].verdict) == (SAME, MetricVerdict.HELP)
    assert compared([b"# TYPE x untyped\nx 1\n"], [b"x 1\n"]).verdict is SAME


def test_the_worst_finding_is_the_verdict() -> None:
    left = side(series(GPU0, 1), series(GPU1, 1), kind="counter")
    metric = compared(left, side(series(GPU0, 5)))
    assert [it.verdict for it in metric.findings] == ["type", "missing-right", "values"]
    assert metric.verdict is MetricVerdict.TYPE


def test_the_worst_series_is_told_first() -> None:
    left = side(series(GPU0, 10), series(GPU1, 10))
    metric = compared(left, side(series(GPU0, 12), series(GPU1, 100)))
    assert metric.findings[0].detail == "10 against 100"
    assert metric.findings[0].series == 2
    assert metric.findings[0].examples[0] == 'UUID="GPU-1",gpu="1"'


@pytest.mark.parametrize(
    ("left", "right", "detail"),
    [
        ([0, 10, 20, 30], [0, 100, 200, 300], "1/s against 10/s"),
        ([7, 7, 7, 7], [9, 9, 9, 9], "7 against 9, and neither moves"),
    ],
)
def test_counters_are_told_by_rate_or_where_they_stand(
    left: list[float], right: list[float], detail: str
) -> None:
    metric = compared(numbers(*left, kind="counter"), numbers(*right, kind="counter"))
    assert metric.findings[0].detail == detail


def test_histograms_are_compared_bucket_by_bucket() -> None:
    def histogram(low: int) -> bytes:
        return (
            f'# TYPE h histogram\nh_bucket{{le="1"}} {low}\nh_bucket{{le="+Inf"}} 9\n'
            f"h_sum 5\nh_count 9\n"
        ).encode()

    metric = compared([histogram(4)], [histogram(4)])
    assert (metric.verdict, metric.pairs) == (SAME, 4)
    assert compared([histogram(4)], [histogram(8)]).findings[0].examples == (
        '__name__="_bucket",le="1"',
    )


def test_the_pace_tells_which_side_stands_still() -> None:
    left = side(series(GPU0, 0, 10, 20, 30, 40), series(GPU1, 9, 9, 9, 9, 9), kind="counter")
    right = side(series(GPU0, 5, 5, 5, 5, 5), series(GPU1, 9, 9, 9, 9, 9), kind="counter")

    told = outcome(left, right, Comparison(Matching()))

    assert (told.left.moving, told.left.frozen, told.left.renewed_seconds) == (1, 0, 10.0)
    assert (told.right.moving, told.right.frozen, told.right.renewed_seconds) == (0, 1, None)
    assert (told.rounds, told.seconds, told.left.series) == (5, 40.0, 2)


def test_one_change_tells_no_pace() -> None:
    assert outcome(numbers(1, 1, 2), numbers(1, 1, 2), Comparison(Matching())).left == SideActivity(
        series=1, moving=1, frozen=0, renewed_seconds=None
    )


def test_only_what_is_wanted_is_compared() -> None:
    comparison = Comparison(Matching(prefixes=("p_",)), is_compared=lambda name: name == "x")
    left = [numbers(1, name="p_x")[0] + numbers(1, name="y")[0]]
    assert [it.name for it in outcome(left, numbers(1), comparison).metrics] == ["x"]


def test_values_are_means_over_the_series_of_both_sides() -> None:
    left = side(series(GPU0, 10, 20), series(GPU1, 30, 30))
    right = side(series(GPU0, 15, 15), series('gpu="7"', 900, 900))
    metric = compared(left, right)
    assert (metric.left.value, metric.right.value) == (15.0, 15.0)
    assert compared(left, [b"", b""]).left.value is None


@pytest.mark.parametrize(
    ("name", "wishes", "measure", "tolerance"),
    [
        ("x", [], "mean", "10%"),
        ("DCGM_FI_DEV_GPU_TEMP", [], "mean", "3"),
        ("DCGM_FI_DEV_FB_USED", [], "mean", "2% or 64"),
        ("x_info", [], "exact", "none"),
        ("x", [ToleranceOverride(tolerance=Tolerance())], "mean", "none"),
    ],
)
def test_a_verdict_names_its_measure_and_its_tolerance(
    name: str, wishes: list[ToleranceOverride], measure: str, tolerance: str
) -> None:
    metric = compared(
        numbers(1, name=name), numbers(1, name=name), Comparison(Matching(), overrides=wishes)
    )
    assert (metric.measure, metric.tolerance) == (measure, tolerance)


def test_findings_say_what_they_are_about() -> None:
    left = [b"# HELP x one\n# TYPE x gauge\nx 1\n"]
    (help_text,) = compared(left, [b"# HELP x two\n# TYPE x gauge\nx 1\n"]).findings
    assert (help_text.detail, help_text.series) == ("the help texts differ", 0)
    comparison = Comparison(Matching(ignored_labels=frozenset({"pod"})))
    both = side(series('gpu="0",pod="p"', 1), series('gpu="0",pod="q"', 1))
    (colliding,) = compared(both, both, comparison).findings
    assert colliding.detail == (
        "several series of one side are one by the labels they are matched by"
    )
    assert (colliding.series, colliding.examples) == (1, ('gpu="0"',))


def test_what_is_not_wanted_or_empty_hides_nothing_after_it() -> None:
    comparison = Comparison(Matching(), is_compared=lambda name: name != "a")
    body = b"# TYPE e gauge\na 1\nx 2\n"
    assert [it.name for it in outcome([body], [body], comparison).metrics] == ["x"]


@pytest.mark.parametrize(
    ("rounds_here", "rounds_there", "verdict"),
    [
        # more than twice as often, and STALE_ROUNDS (4) more
        (5, 1, MetricVerdict.MISSING_RIGHT),
        (4, 1, SAME),
        (8, 4, SAME),
        (9, 4, MetricVerdict.MISSING_RIGHT),
        # on one side alone, and for more than half of the 10 rounds, or for 4 of them
        (6, 0, MetricVerdict.MISSING_RIGHT),
        (3, 0, SAME),
    ],
)
def test_a_series_is_missing_where_one_side_has_it_far_more_often(
    rounds_here: int, rounds_there: int, verdict: MetricVerdict
) -> None:
    always = series(GPU1, *[1.0] * 10)

    def now_and_then(rounds: int) -> list[str]:
        return series(GPU0, *[1.0] * rounds, *[None] * (10 - rounds))

    left, right = side(now_and_then(rounds_here), always), side(now_and_then(rounds_there), always)
    assert compared(left, right).verdict is verdict
    mirrored = MetricVerdict.MISSING_LEFT if verdict is not SAME else SAME
    assert compared(right, left).verdict is mirrored


def test_the_worst_series_is_the_one_that_is_furthest_apart_for_its_size() -> None:
    """1000 against 1200 is a sixth, 1 against 2 a half; what is no number is worse than all."""
    left = side(series(GPU0, 1000), series(GPU1, 1))
    metric = compared(left, side(series(GPU0, 1200), series(GPU1, 2)))
    assert metric.findings[0].detail == "1 against 2"
    metric = compared(left, side(series(GPU0, float("nan")), series(GPU1, 2)))
    assert metric.findings[0].detail == "1000 against nan"


def test_the_first_prefix_that_a_name_has_is_taken_off() -> None:
    matching = Matching(prefixes=("", "b_", "a_", "a_a_"))
    assert [matching.name(name) for name in ("a_a_x", "b_x", "x", "xa_")] == [
        "a_x",
        "x",
        "x",
        "xa_",
    ]
