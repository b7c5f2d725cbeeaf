# SPDX-License-Identifier: Apache-2.0
"""Flags win over the environment, the environment over the file; mistakes name their place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from base.errors import BadInput
from tests.base.settings.tiny_program import TINY_SETTINGS, TinySettings

TINY_YAML = Path("tiny.yaml")


def load(
    flags: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    file: str | None = None,
) -> TinySettings:
    """Settings where ``file`` is the text of tiny.yaml, named by --config."""

    def read(path: Path) -> str:
        assert path == TINY_YAML
        assert file is not None
        return file

    named = {} if file is None else {"config": str(TINY_YAML)}
    return TINY_SETTINGS.load({**named, **(flags or {})}, environ or {}, read)


def refusal(file: str | None = None, **environ: str) -> str:
    """The sentence with which these are refused."""
    with pytest.raises(BadInput) as caught:
        load(environ=environ, file=file)
    return str(caught.value)


def test_flags_win_over_the_environment_and_the_environment_over_the_file() -> None:
    settings = load(
        {"deadline": "1s"},
        {"GPUSCAPE_DEADLINE": "2s", "GPUSCAPE_LOG_LEVEL": "debug"},
        "deadline: 3s\nlog-level: error\nlog-format: json\n",
    )
    assert settings == TinySettings(deadline_seconds=1.0, log_level="debug", log_format="json")


def test_values_of_every_plain_yaml_kind_read_as_their_text() -> None:
    settings = load(
        file="""
        deadline: 7            # a number
        standalone: true       # a boolean
        listen: ":9500"        # a string
        feature-file: null     # not given
        """
    )
    assert settings.deadline_seconds == 7.0
    assert settings.standalone
    assert settings.listen.port == 9500
    assert settings.feature_file is None


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n", "null"])
def test_an_empty_file_says_nothing(text: str) -> None:
    assert load(file=text) == TinySettings()


def test_the_file_can_be_named_by_the_environment() -> None:
    environ = {"GPUSCAPE_CONFIG": "tiny.yaml"}
    settings = TINY_SETTINGS.load({}, environ, lambda path: f"node-name: {path.stem}")
    assert settings.node_name == "tiny"


def test_the_node_name_that_manifests_set_is_read_after_our_own_variable() -> None:
    assert load(environ={"NODE_NAME": "a"}).node_name == "a"
    assert load(environ={"NODE_NAME": "a", "GPUSCAPE_NODE_NAME": "b"}).node_name == "b"
    assert load(environ={"NODE_NAME": "a", "GPUSCAPE_NODE_NAME": ""}).node_name == "a"


def test_an_unknown_key_names_file_line_and_the_nearest_known_key() -> None:
    assert refusal("standalone: true\ndiscover-intervall: 5s\n") == (
        "tiny.yaml:2: 'discover-intervall' is not a setting: did you mean discover-interval?"
    )


def test_an_unknown_variable_names_the_nearest_known_one() -> None:
    assert refusal(GPUSCAPE_DEADLNE="5s") == (
        "GPUSCAPE_DEADLNE is not a setting: did you mean GPUSCAPE_DEADLINE?"
    )


def test_an_unknown_word_like_no_other_is_refused_without_a_guess() -> None:
    assert refusal("qqqq: 1\n") == "tiny.yaml:1: 'qqqq' is not a setting"


@pytest.mark.parametrize(
    "name",
    [
        "GPUSCAPE_SERVICE_HOST",
        "GPUSCAPE_SERVICE_PORT",
        "GPUSCAPE_SERVICE_PORT_METRICS",
        "GPUSCAPE_PORT",
        "GPUSCAPE_PORT_9400_TCP",
        "GPUSCAPE_PORT_9400_TCP_ADDR",
        "GPUSCAPE_AGENT_SERVICE_HOST",
        "GPUSCAPE_AGENT_PORT_9400_TCP_PROTO",
    ],
)
def test_variables_that_the_kubelet_sets_for_a_service_are_no_mistakes(name: str) -> None:
    assert load(environ={name: "10.0.0.1"}) == TinySettings()


def test_other_variables_are_mistakes_next_to_those_of_a_service() -> None:
    environ = {"GPUSCAPE_PORT": "tcp://10.0.0.1:9400", "GPUSCAPE_DEADLNE": "5s"}
    assert refusal(**environ).startswith("GPUSCAPE_DEADLNE is not a setting")


@pytest.mark.parametrize("name", ["GPUSCAPE_", "GPUSCAPE_PORTS", "GPUSCAPE_SERVICE_HOSTS"])
def test_variables_that_only_begin_like_those_of_a_service_are_mistakes(name: str) -> None:
    assert refusal(**{name: "x"}).startswith(f"{name} is not a setting")


def test_a_wrong_value_in_the_file_names_file_line_and_key() -> None:
    assert refusal("\ndeadline: soon\n").startswith("tiny.yaml:2: deadline is 'soon': expected ")


def test_a_wrong_value_in_a_variable_names_the_variable() -> None:
    assert refusal(GPUSCAPE_MIG_STRATEGY="both") == (
        "GPUSCAPE_MIG_STRATEGY is 'both': expected none, single or mixed"
    )


def test_a_wrong_value_of_a_flag_names_the_flag() -> None:
    with pytest.raises(BadInput, match=r"^--jitter is '2': expected a number from 0 to 0\.5$"):
        load({"jitter": "2"})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("- a\n- b\n", "tiny.yaml:1: expected lines of key: value"),
        ("deadline\n", "tiny.yaml:1: expected lines of key: value"),
        ("deadline: [1, 2]\n", "tiny.yaml:1: deadline: expected one value"),
        ("deadline: 1s\ndeadline: 2s\n", "tiny.yaml:2: deadline: it stands twice: keep one"),
        ("a: b: c\n", "tiny.yaml:1: not valid YAML: mapping values are not allowed here"),
        ("? [a]\n: 1\n", "tiny.yaml:1: '' is not a setting"),
        ("a: \x07\n", "tiny.yaml: not valid YAML: "),
        ("a: 1\n---\nb: 2\n", "tiny.yaml:2: not valid YAML: "),
    ],
)
def test_a_file_that_is_no_list_of_settings_is_refused(text: str, sentence: str) -> None:
    assert refusal(text).startswith(sentence)
    assert "\n" not in refusal(text)


def test_a_file_that_cannot_be_read_names_who_asked_for_it_and_why(tmp_path: Path) -> None:
    missing = tmp_path / "none.yaml"
    with pytest.raises(BadInput) as caught:
        TINY_SETTINGS.load({}, {"GPUSCAPE_CONFIG": str(missing)})
    assert str(caught.value) == f"GPUSCAPE_CONFIG: cannot read {missing}: No such file or directory"


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match=r"--config: cannot read .*: it is not UTF-8 text"):
        TINY_SETTINGS.load({"config": str(file)}, {})
