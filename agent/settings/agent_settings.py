"""The agent's settings: each option declared once, and how layers of text become one value.

Pure: :func:`settle` gets what others read from flags, environment and file. Flags, variable
names, file keys, help texts and the configuration page are all made from :data:`OPTIONS`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_type_hints

from api import names
from base.errors import BadInput
from base.settings import setting_kinds as kinds
from base.settings.setting_kinds import SettingKind
from base.words import closest
from exporters.dcgm.selection import FLEXIBLE, Selection
from exporters.dcgm.windows import DEFAULT_SECONDS as WINDOW_SECONDS
from exporters.gpuscape.core_families import ServedFamilies
from web.address import Address


@dataclass(frozen=True, slots=True)
class SettingSpec:
    """What is said of a setting beside its type and default."""

    kind: SettingKind
    help: str
    otherwise: str = ""
    """What holds where it is not given and there is no default."""
    also: tuple[str, ...] = ()
    """Variables that others set, read after our own."""


_HOSTNAME_LABEL = SettingKind(
    metavar="hostname|Hostname|none",
    expects="hostname, Hostname or none",
    parse={"hostname": "hostname", "Hostname": "Hostname", "none": None}.__getitem__,
)

_CONFIG_MAP = kinds.matching(
    "NAMESPACE:NAME", "namespace:name of a ConfigMap", r"[a-z0-9][a-z0-9-]*:[a-z0-9][a-z0-9.-]*"
)
_PREFIX = kinds.matching(
    "TEXT", "what a metric's name may begin with: letters, digits and _", r"[A-Za-z_][A-Za-z0-9_]*"
)

METRICS_ADDRESS = Address(host="", port=9400)
PROBE_ADDRESS = Address(host="", port=9401)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """Everything the agent may be told."""

    standalone: Annotated[bool, SettingSpec(kinds.FLAG, "Run without a cluster.")] = False
    node_name: Annotated[
        str | None,
        SettingSpec(kinds.text("NAME"), "This node's name.", "the host's name", ("NODE_NAME",)),
    ] = None
    sink: Annotated[
        str,
        SettingSpec(
            kinds.choice("node", "nodefeature", "none"),
            "Where labels go: on the Node, into a NodeFeature for nfd-master, or nowhere in the"
            " cluster. The topology annotation goes on the Node, but for none.",
        ),
    ] = "node"
    kubeconfig: Annotated[
        Path | None,
        SettingSpec(
            kinds.PATH, "How to reach the cluster.", "the pod's own token", ("KUBECONFIG",)
        ),
    ] = None
    service_account: Annotated[
        Path,
        SettingSpec(
            kinds.PATH, "Folder with the pod's token and the cluster's certificate authority."
        ),
    ] = Path("/var/run/secrets/kubernetes.io/serviceaccount")
    namespace: Annotated[
        str,
        SettingSpec(
            kinds.text("NAME"),
            "Namespace of the agent's Lease and NodeFeature.",
            "",
            ("POD_NAMESPACE",),
        ),
    ] = names.NAMESPACE
    pod_name: Annotated[
        str | None,
        SettingSpec(kinds.text("NAME"), "The agent's own pod.", "none", ("POD_NAME",)),
    ] = None
    pod_uid: Annotated[
        str | None,
        SettingSpec(
            kinds.text("UID"),
            "By what the agent's Lease tells it from other agents on the node.",
            "a random one",
            ("POD_UID",),
        ),
    ] = None
    start_spread_seconds: Annotated[
        float,
        SettingSpec(
            kinds.duration("0s"),
            "A starting agent writes for the first time at a random moment within this, so that"
            " thousands of them do not overload the API server; 0 is right for small clusters.",
        ),
    ] = 90.0
    allow_unconfined: Annotated[
        bool,
        SettingSpec(
            kinds.FLAG,
            "Write even where no admission policy is seen to hold this agent to its own node.",
        ),
    ] = False
    pod_resources_socket: Annotated[
        Path,
        SettingSpec(kinds.PATH, "The kubelet's socket that tells which pod holds which GPU."),
    ] = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    resource_slices: Annotated[
        bool,
        SettingSpec(
            kinds.FLAG,
            "Ask ResourceSlices for the GPUs of DRA claims whose names do not tell them; it takes"
            " a right of its own.",
        ),
    ] = False
    driver_ready_file: Annotated[
        Path,
        SettingSpec(
            kinds.PATH,
            "The GPU operator's file below the host root; once it was there and goes, all NVML"
            " handles are released.",
        ),
    ] = Path("run/nvidia/validations/driver-ready")

    discover_interval_seconds: Annotated[
        float,
        SettingSpec(kinds.duration("1s"), "How often GPUs and links are read and labels decided."),
    ] = 60.0
    sample_interval_seconds: Annotated[
        float,
        SettingSpec(
            kinds.duration("100ms"), "How often temperatures, clocks and counters are read."
        ),
    ] = 10.0
    jitter_ratio: Annotated[
        float,
        SettingSpec(kinds.ratio(0.5), "Random part of each interval, so that nodes spread out."),
    ] = 0.1
    deadline_seconds: Annotated[
        float,
        SettingSpec(kinds.duration("100ms"), "Time to answer, after which a GPU counts as hung."),
    ] = 5.0

    listen: Annotated[
        Address, SettingSpec(kinds.ADDRESS, "Where /metrics is served; port 0 is any free one.")
    ] = METRICS_ADDRESS
    probe_listen: Annotated[
        Address,
        SettingSpec(kinds.ADDRESS, "Where /livez and /readyz are served; port 0 is any free one."),
    ] = PROBE_ADDRESS
    web_config_file: Annotated[
        Path | None,
        SettingSpec(
            kinds.PATH,
            "TLS, client certificates and passwords for /metrics, in the format of Prometheus'"
            " exporter-toolkit; changes of it and of its certificates count at once.",
            "plain HTTP for everybody",
        ),
    ] = None

    counters: Annotated[
        Path | None,
        SettingSpec(
            kinds.PATH,
            "Which DCGM families are served: a CSV file in dcgm-exporter's format; changes of it"
            " count at once.",
            "dcgm-exporter's default families",
        ),
    ] = None
    counters_from: Annotated[
        str | None,
        SettingSpec(
            _CONFIG_MAP,
            "The same from the key metrics of a ConfigMap; counters is for when it is not there.",
        ),
    ] = None
    own_families: Annotated[
        str,
        SettingSpec(
            kinds.choice(*ServedFamilies),
            "Which gpuscape_ families are served, and read: all; core, what the shipped rules and"
            " dashboards read; or none.",
        ),
    ] = ServedFamilies.CORE.value
    devices: Annotated[
        Selection,
        SettingSpec(
            kinds.DEVICES,
            "What has DCGM series: f, a GPU's instances where it has some, else the GPU; g, GPUs;"
            " i, GPU instances; g+i, both.",
        ),
    ] = FLEXIBLE
    prefix: Annotated[
        str | None,
        SettingSpec(_PREFIX, "Put before the names of DCGM families, to run beside dcgm-exporter."),
    ] = None
    hostname_label: Annotated[
        Literal["hostname", "Hostname"] | None,
        SettingSpec(
            _HOSTNAME_LABEL, "Label with the node's name; Hostname as before dcgm-exporter 4.8.3."
        ),
    ] = "hostname"
    old_namespace: Annotated[
        bool,
        SettingSpec(
            kinds.FLAG, "Use the label names of dcgm-exporter 1: uuid, pod_name and so on."
        ),
    ] = False
    replace_blanks: Annotated[
        bool, SettingSpec(kinds.FLAG, "Put dashes in place of blanks in the label modelName.")
    ] = False
    xid_window_seconds: Annotated[
        float,
        SettingSpec(
            kinds.duration("1s"), "For how long DCGM_EXP_XID_ERRORS_COUNT counts an error."
        ),
    ] = WINDOW_SECONDS
    clock_events_window_seconds: Annotated[
        float,
        SettingSpec(
            kinds.duration("1s"), "For how long DCGM_EXP_CLOCK_EVENTS_COUNT counts an event."
        ),
    ] = WINDOW_SECONDS
    kernel_log: Annotated[
        bool,
        SettingSpec(
            kinds.FLAG,
            "Read XIDs that NVML does not tell, and errors of NVSwitches, from the kernel log below"
            " the host root; a container has to be privileged for that.",
        ),
    ] = False

    pods: Annotated[
        bool | None,
        SettingSpec(
            kinds.FLAG,
            "Say on each series which pod holds the GPU, as the kubelet's socket tells.",
            "true, but for standalone",
        ),
    ] = None
    pod_uid_label: Annotated[
        bool, SettingSpec(kinds.FLAG, "Add the pod's UID; it takes the right to read pods.")
    ] = False
    pod_labels: Annotated[
        bool, SettingSpec(kinds.FLAG, "Add the pod's labels; it takes the right to read pods.")
    ] = False
    pod_label_allowlist: Annotated[
        tuple[re.Pattern[str], ...],
        SettingSpec(
            kinds.PATTERNS, "Only labels in whose key one of these is found.", "all labels"
        ),
    ] = ()
    virtual_gpus: Annotated[
        bool,
        SettingSpec(
            kinds.FLAG,
            "One series for each pod that shares a GPU, told apart by the label vgpu, with what its"
            " processes use; else one of the pods is named.",
        ),
    ] = False
    resource_names: Annotated[
        tuple[str, ...],
        SettingSpec(
            kinds.NAMES,
            "Resources that are GPUs too, such as nvidia.com/a100; those of the device plugin are"
            " known.",
            "none",
        ),
    ] = ()
    processes: Annotated[
        bool,
        SettingSpec(
            kinds.FLAG,
            "Tell the memory of each process, with its pod; a container needs the host's PIDs.",
        ),
    ] = False
    hpc_jobs: Annotated[
        Path | None,
        SettingSpec(
            kinds.PATH, "Folder in which a batch system's scripts write each GPU's job ids."
        ),
    ] = None

    mig_strategy: Annotated[
        str | None,
        SettingSpec(
            kinds.choice("none", "single", "mixed"),
            "How MIG devices appear in labels.",
            "what sharing-config says, else none",
        ),
    ] = None
    sharing_config: Annotated[
        Path | None,
        SettingSpec(
            kinds.PATH, "The device plugin's configuration file, for what it says of labels."
        ),
    ] = None
    timestamp: Annotated[
        bool | None,
        SettingSpec(
            kinds.FLAG,
            "Write the label nvidia.com/gfd.timestamp.",
            "what sharing-config says, else true",
        ),
    ] = None
    machine_type_file: Annotated[
        Path | None,
        SettingSpec(
            kinds.PATH,
            "File below the host root that holds the machine type.",
            "what sharing-config says, else the DMI product name",
        ),
    ] = None
    feature_file: Annotated[
        Path | None,
        SettingSpec(kinds.PATH, "Write labels to this feature file of Node Feature Discovery."),
    ] = None
    print_labels: Annotated[
        bool, SettingSpec(kinds.FLAG, "Print labels to standard output whenever they change.")
    ] = False

    log_level: Annotated[
        str,
        SettingSpec(kinds.choice("debug", "info", "warning", "error"), "The least that is logged."),
    ] = "info"
    log_format: Annotated[
        str, SettingSpec(kinds.choice("text", "json"), "Log lines for people or for programs.")
    ] = "text"

    simulate: Annotated[
        str | None,
        SettingSpec(kinds.text("MACHINE|FILE"), "Look at a simulated machine or a recording."),
    ] = None
    host_root: Annotated[
        Path,
        SettingSpec(
            kinds.PATH, "Where the host's file system is mounted: sys and dev lie below it."
        ),
    ] = Path("/")
    library: Annotated[
        Path | None,
        SettingSpec(kinds.PATH, "The driver's libnvidia-ml.so.1.", "where the loader finds it"),
    ] = None

    def __post_init__(self) -> None:
        """Raises BadInput where two settings contradict each other."""
        if self.listen == self.probe_listen and self.listen.port:
            raise BadInput(
                f"listen and probe-listen are both {self.listen}: give each a port of its own"
            )
        if self.simulate is not None and self.library is not None:
            raise BadInput("simulate and library exclude each other: give one of them")

    @property
    def shows_pods(self) -> bool:
        """Series name the pods that hold GPUs: the kubelet's socket is asked."""
        return not self.standalone if self.pods is None else self.pods

    @property
    def follows_pods(self) -> bool:
        """The API server is asked about pods, in a cluster or standalone."""
        return self.needs_pods or self.tells_pods_apart

    @property
    def needs_pods(self) -> bool:
        """What is asked for cannot be shown without the API server."""
        return self.shows_pods and (self.pod_uid_label or self.pod_labels)

    @property
    def tells_pods_apart(self) -> bool:
        """Pods that share a GPU are shown with what their processes have, as far as it is known."""
        return self.shows_pods and self.virtual_gpus


_UNITS = ("_seconds", "_ratio")


_SUBJECTS = {
    "standalone": "Cluster",
    "discover_interval_seconds": "Readings",
    "listen": "Addresses and access",
    "counters": "Metrics",
    "pods": "Pods, processes and jobs on series",
    "mig_strategy": "Labels",
    "log_level": "Log",
    "simulate": "Machine",
}
"""The first field of each subject; those after it are of the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One setting as people write it."""

    field: str
    """Field of :class:`AgentSettings`."""
    default: object
    said: SettingSpec
    subject: str
    """What it is about, a heading in help texts."""

    @property
    def name(self) -> str:
        """Key in the file and, behind two dashes, the flag; units are left to the value."""
        word = self.field
        for unit in _UNITS:
            word = word.removesuffix(unit)
        return word.replace("_", "-")

    @property
    def variables(self) -> tuple[str, ...]:
        """Environment variables that set it, the first one given wins."""
        return (variable(self.name), *self.said.also)

    @property
    def default_text(self) -> str | None:
        """The default as one would write it, or what holds otherwise; None where neither is."""
        if self.default is None or self.default == ():
            return self.said.otherwise or None
        return self.said.kind.show(self.default)

    @property
    def is_flag(self) -> bool:
        """On the command line it is ``--name`` or ``--no-name``, without a value."""
        return self.said.kind is kinds.FLAG


def variable(name: str) -> str:
    """The environment variable of a setting: ``log-level`` gives ``GPUSCAPE_LOG_LEVEL``."""
    return f"GPUSCAPE_{name.upper().replace('-', '_')}"


def _options() -> tuple[Option, ...]:
    said = get_type_hints(AgentSettings, include_extras=True)
    found, subject = list[Option](), ""
    for field in dataclasses.fields(AgentSettings):
        subject = _SUBJECTS.get(field.name, subject)
        what = said[field.name].__metadata__[0]
        found.append(Option(field=field.name, default=field.default, said=what, subject=subject))
    return tuple(found)


OPTIONS = _options()
"""In the order of help texts and of the configuration page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenValue:
    """One value as somebody wrote it."""

    text: str
    """Empty counts as not given, as unset variables in manifests come out."""
    source: str
    """Where it stands, for messages: ``--deadline``, a variable, ``agent.yaml:3: deadline``."""


Layer = Mapping[str, WrittenValue]
"""Option names as :attr:`Option.name` has them, to what was given for them."""


def settle(layers: Sequence[Layer]) -> AgentSettings:
    """The settings from layers of text, the first layer that gives a value wins.

    Values that a higher layer hides are checked too, so that a mistake does not wait
    for the day the flag above it goes. Raises BadInput naming the source.
    """
    return AgentSettings(**values(layers, OPTIONS))  # type: ignore[arg-type]  # each Kind gives its own field's type


def values(layers: Sequence[Layer], options: Iterable[Option]) -> dict[str, object]:
    """What layers of text give, by the field of the option; as in :func:`settle`."""
    by_name = {option.name: option for option in options}
    found: dict[str, object] = {}
    for layer in reversed(layers):
        for name, given in layer.items():
            if given.text.strip():
                found[by_name[name].field] = _value(by_name[name], given)
    return found


def _value(option: Option, given: WrittenValue) -> object:
    try:
        return option.said.kind.read(given.text.strip())
    except ValueError as error:
        raise BadInput(f"{given.source} is {given.text!r}: {error}") from None


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown word: the known one it resembles, else nothing."""
    close = closest(word, known)
    return f": did you mean {close}?" if close else ""
