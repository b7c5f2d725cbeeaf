"""Settings from flags, environment and file, in this order of precedence."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from agent.settings.agent_settings import (
    OPTIONS,
    AgentSettings,
    Layer,
    Option,
    WrittenValue,
    nearest,
    settle,
    variable,
)
from base.errors import BadInput

CONFIG_VARIABLE = variable("config")

_SERVICE_LINK = re.compile(
    r"(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)"
)


def load_settings(
    flags: Mapping[str, str],
    environ: Mapping[str, str],
    read_file: Callable[[Path], str] = Path.read_text,
) -> AgentSettings:
    """The agent's settings as they stand now; call it again with the same flags to reload.

    ``flags`` holds what the command line gave, by option name, ``config`` too.
    Raises BadInput with one sentence that names the flag, variable, or file, line and key.
    """
    return settle(layers(flags, environ, read_file))


def layers(
    flags: Mapping[str, str],
    environ: Mapping[str, str],
    read_file: Callable[[Path], str] = Path.read_text,
    options: Sequence[Option] = OPTIONS,
    *,
    beside: Sequence[Option] = (),
) -> list[Layer]:
    """What was given for these options, the layer that wins first. Raises BadInput.

    Variables of the options ``beside`` are another program's: they may be there.
    """
    environment = environment_layer(environ, options, beside=beside)
    named = WrittenValue(text=flags.get("config", ""), source="--config")
    if not named.text:
        named = WrittenValue(text=environ.get(CONFIG_VARIABLE, ""), source=CONFIG_VARIABLE)
    flag_layer = {
        name: WrittenValue(text=text, source=f"--{name}")
        for name, text in flags.items()
        if name != "config"
    }
    return [flag_layer, environment, named_file_layer(named, read_file, options)]


def environment_layer(
    environ: Mapping[str, str],
    options: Sequence[Option] = OPTIONS,
    *,
    beside: Sequence[Option] = (),
) -> Layer:
    """What the environment says. Raises BadInput for an unknown ``GPUSCAPE_`` variable."""
    known = [name for option in (*options, *beside) for name in option.variables]
    for name in environ:
        if name.startswith("GPUSCAPE_") and name not in (*known, CONFIG_VARIABLE):
            if is_service_link(name, "GPUSCAPE_"):
                continue
            raise BadInput(f"{name} is not a setting{nearest(name, known)}")
    layer = {}
    for option in options:
        for name in option.variables:
            if environ.get(name, "").strip():
                layer[option.name] = WrittenValue(text=environ[name], source=name)
                break
    return layer


def is_service_link(name: str, prefix: str) -> bool:
    """The kubelet sets this variable in every pod, for a Service whose name begins like this.

    Source: Kubernetes documentation, "Service", section "Environment variables".
    """
    return _SERVICE_LINK.fullmatch(name.removeprefix(prefix)) is not None


def named_file_layer(
    named: WrittenValue,
    read_file: Callable[[Path], str] = Path.read_text,
    options: Sequence[Option] = OPTIONS,
) -> Layer:
    """What the settings file of this name says; without a name, nothing. Raises BadInput."""
    if not named.text:
        return {}
    try:
        text = read_file(Path(named.text))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadInput(f"{named.source}: cannot read {named.text}: {reason}") from error
    return file_layer(text, named.text, options)


def file_layer(text: str, file: str, options: Sequence[Option] = OPTIONS) -> Layer:
    """What a settings file says: one YAML mapping of option names to plain values.

    Raises BadInput naming file, line and key for anything else: unknown and repeated
    keys, lists and mappings as values, YAML that does not parse.
    """
    keys = tuple(option.name for option in options)
    layer: dict[str, WrittenValue] = {}
    for line, key, value in _entries(text, file):
        place = f"{file}:{line}"
        if key not in keys:
            raise BadInput(f"{place}: {key!r} is not a setting{nearest(key, keys)}")
        if key in layer:
            raise BadInput(f"{place}: {key} is given twice: keep one")
        if value is None:
            raise BadInput(f"{place}: {key} takes one value, not a list or mapping")
        layer[key] = WrittenValue(text=value, source=f"{place}: {key}")
    return layer


def _entries(text: str, file: str) -> Iterator[tuple[int, str, str | None]]:
    """Line, key and value as written; the value is empty for null, None where it is no scalar."""
    import yaml  # the agent has no other use for it, and mostly runs without a file

    def scalar(node: yaml.Node) -> str | None:
        if not isinstance(node, yaml.ScalarNode):
            return None
        return "" if node.tag == "tag:yaml.org,2002:null" else str(node.value)

    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise BadInput(f"{file}:{line}: not valid YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise BadInput(f"{file}: not valid YAML: {str(error).splitlines()[0]}") from error
    if root is None or scalar(root) == "":
        return
    if not isinstance(root, yaml.MappingNode):
        raise BadInput(f"{file}:{root.start_mark.line + 1}: expected lines such as deadline: 5s")
    for key, value in root.value:
        yield key.start_mark.line + 1, scalar(key) or "", scalar(value)
