# SPDX-License-Identifier: Apache-2.0
"""Layers of text become one frozen value; every default survives the way through text."""

from __future__ import annotations

import pytest

from agent.settings.agent_settings import AGENT_SETTINGS, AgentSettings
from base.errors import BadInput
from base.settings.layers import Layer, WrittenValue
from base.settings.option import Option
from exporters.dcgm.selection import Level, LevelSelection, Selection

PARTICULAR = [
    option
    for option in AGENT_SETTINGS.options
    if option.spec.kind.expects not in ("text", "a path")
]
WITH_DEFAULT = [option for option in AGENT_SETTINGS.options if option.has_default]


def layer(source: str, **texts: str) -> Layer:
    """A layer whose values all come from one source."""
    return {
        name.replace("_", "-"): WrittenValue(text=text, source=source)
        for name, text in texts.items()
    }


def test_nothing_given_gives_the_defaults() -> None:
    assert AGENT_SETTINGS.settle([{}, {}, {}]) == AgentSettings()


def test_the_first_layer_that_gives_a_value_wins() -> None:
    settings = AGENT_SETTINGS.settle(
        [
            layer("flag", deadline="1s"),
            layer("variable", deadline="2s", log_level="debug"),
            layer("file", deadline="3s", log_level="error", log_format="json"),
        ]
    )
    assert settings == AgentSettings(deadline_seconds=1.0, log_level="debug", log_format="json")


def test_empty_text_counts_as_not_given() -> None:
    settings = AGENT_SETTINGS.settle(
        [layer("flag", deadline="  "), layer("variable", deadline="2s")]
    )
    assert settings.deadline_seconds == 2.0


@pytest.mark.parametrize("option", WITH_DEFAULT, ids=lambda option: option.name)
def test_a_default_is_written_as_text_that_gives_it_back(option: Option) -> None:
    assert option.spec.kind.read(option.default_text) == option.default


@pytest.mark.parametrize("option", PARTICULAR, ids=lambda option: option.name)
def test_a_wrong_value_names_its_source_and_what_is_expected(option: Option) -> None:
    with pytest.raises(BadInput) as caught:
        AGENT_SETTINGS.settle([{option.name: WrittenValue(text="(wröng", source="THE-SOURCE")}])
    assert str(caught.value) == f"THE-SOURCE is '(wröng': expected {option.spec.kind.expects}"


def test_a_wrong_value_is_told_even_where_a_higher_layer_hides_it() -> None:
    with pytest.raises(BadInput, match="GPUSCAPE_DEADLINE"):
        AGENT_SETTINGS.settle(
            [layer("--deadline", deadline="1s"), layer("GPUSCAPE_DEADLINE", deadline="soon")]
        )


def test_one_address_for_two_servers_is_refused() -> None:
    with pytest.raises(BadInput, match="listen and probe-listen are both :9400"):
        AGENT_SETTINGS.settle([layer("flag", probe_listen=":9400")])


def test_any_free_port_twice_is_no_conflict() -> None:
    AGENT_SETTINGS.settle([layer("flag", listen="127.0.0.1:0", probe_listen="127.0.0.1:0")])


def test_a_library_beside_a_simulation_is_refused() -> None:
    with pytest.raises(BadInput, match="simulate and library exclude each other"):
        AGENT_SETTINGS.settle([layer("flag", simulate="dgx-a100", library="/x/libnvidia-ml.so.1")])


def test_the_hostname_label_can_be_left_out() -> None:
    assert AgentSettings().hostname_label is None
    assert AGENT_SETTINGS.settle([layer("flag", hostname_label="none")]).hostname_label == "none"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({}, True),
        ({"standalone": "true"}, False),
        ({"standalone": "true", "pods": "true"}, True),
        ({"pods": "false"}, False),
    ],
)
def test_pods_are_shown_in_a_cluster_unless_it_is_said(given: dict[str, str], shown: bool) -> None:
    assert AGENT_SETTINGS.settle([layer("flag", **given)]).shows_pods is shown


@pytest.mark.parametrize(
    ("given", "followed"),
    [
        ({}, False),
        ({"pod_labels": "true"}, True),
        ({"pod_uid_label": "true"}, True),
        ({"pod_labels": "true", "pods": "false"}, False),
        ({"pod_labels": "true", "standalone": "true", "pods": "true"}, True),
        ({"virtual_gpus": "true"}, True),
        ({"virtual_gpus": "true", "pods": "false"}, False),
    ],
)
def test_pods_are_asked_about_only_for_what_is_shown_of_them(
    given: dict[str, str], followed: bool
) -> None:
    assert AGENT_SETTINGS.settle([layer("flag", **given)]).follows_pods is followed


@pytest.mark.parametrize("text", ["a", "a:b:c", "A:b", "a/b", ":", "a:", ":b", "a :b"])
def test_a_config_map_is_named_with_its_namespace(text: str) -> None:
    with pytest.raises(BadInput, match="namespace:name"):
        AGENT_SETTINGS.settle([layer("flag", counters_from=text)])


@pytest.mark.parametrize("text", ["1a", "a-b", "a:b", "a b", "ä"])
def test_a_prefix_is_what_a_name_may_begin_with(text: str) -> None:
    with pytest.raises(BadInput, match="letters, digits and _"):
        AGENT_SETTINGS.settle([layer("flag", prefix=text)])


def test_the_settings_of_series_have_their_types() -> None:
    settings = AGENT_SETTINGS.settle(
        [
            layer(
                "flag",
                counters_from="gpu:families",
                devices="g:0,2-3",
                pod_label_allowlist="^app$, team/.*",
                resource_names="nvidia.com/a100,",
                prefix="shadow_",
                xid_window="1m",
            )
        ]
    )

    assert settings.counters_from == "gpu:families"
    chosen = LevelSelection(level=Level.GPUS, ids=frozenset({0, 2, 3}))
    assert settings.devices == Selection(choices=(chosen,))
    assert [each.pattern for each in settings.pod_label_allowlist] == ["^app$", "team/.*"]
    assert settings.resource_names == ("nvidia.com/a100",)
    assert (settings.prefix, settings.xid_window_seconds) == ("shadow_", 60.0)


@pytest.mark.parametrize(
    ("deadlines", "needed"),
    [
        ({"init_deadline": "30s"}, 510),
        ({"init_deadline": "1s"}, 85),  # by the deadline of 5 s
        ({"deadline": "40s"}, 680),
        ({"init_deadline": "500ms", "deadline": "100ms"}, 8.5),
    ],
)
def test_a_tick_limit_that_would_end_the_agent_while_gpus_initialise_is_refused(
    deadlines: dict[str, str], needed: float
) -> None:
    """The driver and 16 GPUs, one after the other: 17 first answers."""
    AGENT_SETTINGS.settle([layer("file", **deadlines, tick_limit=f"{needed:g}s")])
    with pytest.raises(BadInput, match=r"tick-limit is .*: raise tick-limit or lower (init-)?dead"):
        AGENT_SETTINGS.settle([layer("file", **deadlines, tick_limit=f"{needed * 0.99:g}s")])


def test_the_deadline_that_is_too_long_for_the_tick_limit_is_named() -> None:
    for name in ("deadline", "init-deadline"):
        with pytest.raises(BadInput, match=rf"with a {name} of 60s .* 1020s .* lower {name}$"):
            AGENT_SETTINGS.settle([layer("file", **{name.replace("-", "_"): "60s"})])
