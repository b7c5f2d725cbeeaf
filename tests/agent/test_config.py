"""Layers of text become one frozen value; every default survives the way through text."""

from __future__ import annotations

import pytest

from agent.config import OPTIONS, Given, Layer, Option, Settings, settle
from discovery.errors import BadInput

PARTICULAR = [option for option in OPTIONS if option.said.kind.expects not in ("text", "a path")]
WITH_DEFAULT = [option for option in OPTIONS if option.default is not None]


def layer(source: str, **texts: str) -> Layer:
    """A layer whose values all come from one source."""
    return {name.replace("_", "-"): Given(text=text, source=source) for name, text in texts.items()}


def test_nothing_given_gives_the_defaults() -> None:
    assert settle([{}, {}, {}]) == Settings()


def test_the_first_layer_that_gives_a_value_wins() -> None:
    settings = settle(
        [
            layer("flag", deadline="1s"),
            layer("variable", deadline="2s", log_level="debug"),
            layer("file", deadline="3s", log_level="error", log_format="json"),
        ]
    )
    assert settings == Settings(deadline_seconds=1.0, log_level="debug", log_format="json")


def test_empty_text_counts_as_not_given() -> None:
    settings = settle([layer("flag", deadline="  "), layer("variable", deadline="2s")])
    assert settings.deadline_seconds == 2.0


@pytest.mark.parametrize("option", WITH_DEFAULT, ids=lambda option: option.name)
def test_a_default_is_written_as_text_that_gives_it_back(option: Option) -> None:
    assert option.default_text is not None
    assert option.said.kind.read(option.default_text) == option.default


@pytest.mark.parametrize("option", PARTICULAR, ids=lambda option: option.name)
def test_a_wrong_value_names_its_source_and_what_is_expected(option: Option) -> None:
    with pytest.raises(BadInput) as caught:
        settle([{option.name: Given(text="wröng", source="THE-SOURCE")}])
    assert str(caught.value) == f"THE-SOURCE is 'wröng': expected {option.said.kind.expects}"


def test_a_wrong_value_is_told_even_where_a_higher_layer_hides_it() -> None:
    with pytest.raises(BadInput, match="GPUSCAPE_DEADLINE"):
        settle([layer("--deadline", deadline="1s"), layer("GPUSCAPE_DEADLINE", deadline="soon")])


def test_one_address_for_two_servers_is_refused() -> None:
    with pytest.raises(BadInput, match="listen and probe-listen are both :9400"):
        settle([layer("flag", probe_listen=":9400")])


def test_any_free_port_twice_is_no_conflict() -> None:
    settle([layer("flag", listen="127.0.0.1:0", probe_listen="127.0.0.1:0")])


def test_a_library_beside_a_simulation_is_refused() -> None:
    with pytest.raises(BadInput, match="simulate and library exclude each other"):
        settle([layer("flag", simulate="dgx-a100", library="/x/libnvidia-ml.so.1")])


def test_the_hostname_label_can_be_left_out() -> None:
    assert Settings().hostname_label == "hostname"
    assert settle([layer("flag", hostname_label="none")]).hostname_label is None
