# SPDX-License-Identifier: Apache-2.0
"""The agent's settings: each declared once, with type, default, kind and help text. Pure.

Flags, variables, keys of the settings file, help texts and the configuration page are all made
from :data:`AGENT_SETTINGS`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from agent.settings.tick_bounds import refuse_short_limit
from api import names
from api.mig_mode_change import ModeChange
from base.errors import BadInput
from base.settings import setting_kinds as kinds
from base.settings.common_settings import (
    duration,
    flag,
    kubeconfig,
    namespace,
    optional_path,
    pod_name,
)
from base.settings.log_settings import log_format, log_level
from base.settings.option import setting
from base.settings.program_settings import ProgramSettings
from exporters.dcgm.peer.peer_releases import DEFAULT_RELEASE
from exporters.dcgm.selection import FLEXIBLE, Selection
from exporters.dcgm.series_setting_kinds import (
    COMPAT_RELEASE,
    CONFIG_MAP,
    DEVICES,
    HOSTNAME_LABEL,
    PREFIX,
)
from exporters.dcgm.windows import DEFAULT_SECONDS as WINDOW_SECONDS
from exporters.gpuscape.core_families import ServedFamilies
from mig.configs.config_overlap import Overlap
from web.address import ADDRESS, Address

METRICS_ADDRESS = Address(host="", port=9400)
PROBE_ADDRESS = Address(host="", port=9401)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """All settings of the agent."""

    standalone: bool = flag("Run without a cluster.", subject="Cluster")
    node_name: str | None = setting(
        None,
        kinds.text_kind("NAME"),
        "This node's name.",
        unset="the host's name",
        variables=("NODE_NAME",),
    )
    sink: str = setting(
        "node",
        kinds.choice_kind("node", "nodefeature", "none"),
        "Where labels go: on the Node, into a NodeFeature for nfd-master, or nowhere in the"
        " cluster. With node and nodefeature the topology annotation goes on the Node.",
    )
    kubeconfig: Path | None = kubeconfig(unset="the pod's own token")
    service_account: Path = setting(
        Path("/var/run/secrets/kubernetes.io/serviceaccount"),
        kinds.PATH,
        "Folder with the pod's token and the cluster's certificate authority.",
    )
    namespace: str = namespace(names.NAMESPACE, "Namespace of the agent's Lease and NodeFeature.")
    pod_name: str | None = pod_name("The agent's own pod.", unset="none")
    pod_uid: str | None = setting(
        None,
        kinds.text_kind("UID"),
        "Holder of the agent's Lease: a UID that no other agent on the node has.",
        unset="a random one",
        variables=("POD_UID",),
    )
    start_spread_seconds: float | None = setting(
        None,
        kinds.duration_kind("0s"),
        "Longest random wait of a starting agent before its first write, so that thousands of"
        " agents do not overload the API server.",
        unset="25 ms for each agent that its DaemonSet counts",
    )
    allow_unconfined: bool = flag(
        "Write even if no admission policy is seen that restricts this agent to its own node."
    )
    pod_resources_socket: Path = setting(
        Path("/var/lib/kubelet/pod-resources/kubelet.sock"),
        kinds.PATH,
        "The kubelet's pod-resources socket, which reports the GPUs of each pod.",
    )
    resource_slices: bool = flag(
        "Read ResourceSlices to find the GPUs of DRA claims whose device names do not identify"
        " them; the agent needs an extra right for this."
    )
    driver_ready_file: Path = setting(
        Path("run/nvidia/validations/driver-ready"),
        kinds.PATH,
        "The GPU operator's file below the host root; when it is removed, all NVML handles are"
        " released.",
    )

    discover_interval_seconds: float = duration(
        60.0, "1s", "How often GPUs and links are read and labels decided.", subject="Readings"
    )
    sample_interval_seconds: float = duration(
        10.0, "100ms", "How often temperatures, clocks and counters are read."
    )
    jitter_ratio: float = setting(
        0.1, kinds.ratio_kind(0.5), "Random part of each interval, so that nodes spread out."
    )
    deadline_seconds: float = duration(
        5.0, "100ms", "Time to answer, after which a GPU counts as hung."
    )
    init_deadline_seconds: float = duration(
        30.0,
        "100ms",
        "Time for the first answers of the driver and of each GPU to a new device reader; without"
        " persistence mode a GPU is initialised then.",
    )
    tick_limit_seconds: float = duration(
        600.0,
        "1s",
        "How long one run of a part of the agent may take, such as one reading of all GPUs;"
        " after that the agent ends with exit code 70. At least 17 times the longer deadline.",
    )

    reader_memory_mebibytes: int = setting(
        96, kinds.count_kind(65_536), "Private MiB at which a reader is replaced; 0: no limit."
    )
    reader_descriptors: int = setting(
        512, kinds.count_kind(1_000_000), "Open files at which a reader is replaced; 0: no limit."
    )
    reader_age_seconds: float = duration(
        86_400.0, "1m", "Age at which a device reader is replaced."
    )

    listen: Address = setting(
        METRICS_ADDRESS,
        ADDRESS,
        "Where /metrics is served; port 0 is any free one.",
        subject="Addresses and access",
    )
    probe_listen: Address = setting(
        PROBE_ADDRESS, ADDRESS, "Where /livez and /readyz are served; port 0 is any free one."
    )
    web_config_file: Path | None = optional_path(
        "TLS, client certificates and passwords for /metrics, in the format of Prometheus'"
        " exporter-toolkit; changes of it and of its certificates take effect at once.",
        unset="plain HTTP for everybody",
    )

    health_needs_gpus: bool = flag("Answer /health with 503 while the machine shows no GPU.")

    counters: Path | None = optional_path(
        "Which DCGM families are served: a CSV file in dcgm-exporter's format; changes of it take"
        " effect at once.",
        unset="dcgm-exporter's default families",
        subject="Metrics",
    )
    counters_from: str | None = setting(
        None,
        CONFIG_MAP,
        "ConfigMap with DCGM families under its key metrics; without it, counters applies.",
    )
    own_families: str = setting(
        ServedFamilies.CORE.value,
        kinds.choice_kind(*ServedFamilies),
        "Which gpuscape_ families are read and served: all; core, those that the shipped rules and"
        " dashboards use; or none.",
    )
    devices: Selection = setting(
        FLEXIBLE,
        DEVICES,
        "Devices with DCGM series: f, a GPU's instances, or the GPU if it has none; g, GPUs; i,"
        " GPU instances; g+i, both.",
    )
    prefix: str | None = setting(
        None, PREFIX, "Put before the names of DCGM families, to run next to dcgm-exporter."
    )
    compat_release: str = setting(
        DEFAULT_RELEASE, COMPAT_RELEASE, "dcgm-exporter's release with the types and labels served."
    )
    hostname_label: str | None = setting(
        None,
        HOSTNAME_LABEL,
        "Label with the node's name.",
        unset="as in compat-release: hostname since 4.8.3, Hostname before",
    )
    old_namespace: bool = flag("Use the label names of dcgm-exporter 1: uuid, pod_name and so on.")
    replace_blanks: bool = flag("Put dashes in place of blanks in the label modelName.")
    xid_window_seconds: float = duration(
        WINDOW_SECONDS, "1s", "For how long DCGM_EXP_XID_ERRORS_COUNT counts an error."
    )
    clock_events_window_seconds: float = duration(
        WINDOW_SECONDS, "1s", "For how long DCGM_EXP_CLOCK_EVENTS_COUNT counts an event."
    )
    kernel_log: bool = flag(
        "Read XIDs that NVML does not report, and errors of NVSwitches, from the kernel log below"
        " the host root; a container must be privileged for this."
    )

    pods: bool | None = setting(
        None,
        kinds.FLAG,
        "Label each series with the pod that uses the GPU, as the kubelet reports it.",
        unset="true; false if standalone",
        subject="Pods, processes and jobs on series",
    )
    pod_uid_label: bool = flag("Add the pod's UID; the agent needs the right to read pods.")
    pod_labels: bool = flag("Add the pod's labels; the agent needs the right to read pods.")
    pod_label_allowlist: tuple[re.Pattern[str], ...] = setting(
        (), kinds.PATTERNS, "Show only labels whose key matches one of these.", unset="all labels"
    )
    virtual_gpus: bool = flag(
        "One series for each pod that shares a GPU, distinguished by the label vgpu, with what its"
        " processes use; without it the series name one of the pods."
    )
    resource_names: tuple[str, ...] = setting(
        (),
        kinds.NAMES,
        "Further resources that are GPUs, such as nvidia.com/a100; those of the device plugin are"
        " known.",
        unset="none",
    )
    processes: bool = flag(
        "Report the memory of each process, with its pod; a container needs the host's PIDs."
    )
    hpc_jobs: Path | None = optional_path(
        "Folder in which a batch system's scripts write each GPU's job ids."
    )

    mig_strategy: str | None = setting(
        None,
        kinds.choice_kind("none", "single", "mixed"),
        "How MIG devices appear in labels.",
        unset="as in sharing-config, else none",
        subject="Labels",
    )
    sharing_config: Path | None = optional_path(
        "The device plugin's configuration file; its settings for labels apply here too."
    )
    label_rules: Path | None = optional_path(
        "File with rules for labels under prefixes of your own, such as example.com/gpu-type; the"
        " admission policies must allow their keys.",
        unset="no such labels",
    )
    timestamp: bool | None = setting(
        None,
        kinds.FLAG,
        "Write the label nvidia.com/gfd.timestamp.",
        unset="as in sharing-config, else true",
    )
    machine_type_file: Path | None = optional_path(
        "File below the host root that holds the machine type.",
        unset="as in sharing-config, else the DMI product name",
    )
    feature_file: Path | None = optional_path(
        "Write labels to this feature file of Node Feature Discovery."
    )
    print_labels: bool = flag("Print labels to standard output whenever they change.")

    mig_mode: str = setting(
        "observe",
        kinds.choice_kind("off", "observe", "enforce"),
        "What the agent does about the Node's desired MIG layout: off, nothing; observe, show the"
        " plan on the Node and change nothing; enforce, have the actuator change the GPUs, with"
        " the coordinator's permit.",
        subject="MIG",
    )
    actuator_socket: Path = setting(
        Path(names.ACTUATOR_SOCKET), kinds.PATH, "The actuator's socket, where mig-mode is enforce."
    )
    mig_config: Path | None = optional_path(
        "File with MIG configurations, in mig-parted's format; changes of it take effect at once.",
        unset="the default ones for the GPUs of the machine",
    )
    mig_config_overlap: Overlap = setting(
        Overlap.REFUSE,
        kinds.member_kind(Overlap),
        "What happens if entries of one MIG configuration give a GPU different layouts: refuse, the"
        " desired layout is refused; last, the last of them decides, as for nvidia-mig-parted.",
    )
    mig_mode_change: str = setting(
        ModeChange.OFF.value,
        kinds.choice_kind(*(change.value for change in ModeChange)),
        "Whether MIG may be turned on and off on GPUs that need a reset for it (A100, A30): off,"
        " never; driver, the driver resets the GPU once nothing uses it. The Node's annotation"
        " gpuscape.io/mig-mode-change wins.",
    )
    mig_deadline: float | None = setting(
        None,
        kinds.duration_kind("1m"),
        "How long a MIG change may wait for a permit; then its outcome is expired, until a layout"
        " is desired anew.",
        unset="for ever",
    )

    log_level: str = log_level()
    log_format: str = log_format()

    state_file: Path | None = optional_path(
        "File that keeps GPUs, their places, their XIDs and how long pods used them across a"
        " restart of the agent; valid for one boot and one driver.",
        unset="none: a restart forgets these",
        subject="Machine",
    )
    exchange_folder: Path | None = optional_path(
        "Folder for the file that `gpuscape devices` reads: GPUs, MIG devices, their health and"
        " links. The agent makes it if its parent is there, and lets only its own user in.",
        unset="none: the file is not written",
    )
    simulate: str | None = setting(
        None,
        kinds.text_kind("MACHINE|FILE"),
        "Read a simulated machine or a recording instead of this machine.",
    )
    refuse_driver: bool = flag(
        "End at the start if an NVIDIA driver is loaded, so that a simulated machine in a cluster"
        " is never mistaken for a node's real GPUs."
    )
    host_root: Path = setting(
        Path("/"), kinds.PATH, "Where the host's file system is mounted: sys and dev lie below it."
    )
    library: Path | None = optional_path(
        "The driver's libnvidia-ml.so.1.", unset="where the loader finds it"
    )

    def __post_init__(self) -> None:
        """Raises BadInput where two settings contradict each other."""
        if self.listen == self.probe_listen and self.listen.port:
            raise BadInput(f"listen and probe-listen are both {self.listen}: set different ports")
        if self.simulate is not None and self.library is not None:
            raise BadInput("simulate and library exclude each other: set only one of them")
        if self.refuse_driver and self.simulate is None:
            raise BadInput(
                "refuse-driver is for simulated machines: give simulate, or leave it out"
            )
        refuse_short_limit(
            self.tick_limit_seconds, self.deadline_seconds, self.init_deadline_seconds
        )

    @property
    def shows_pods(self) -> bool:
        """Series name the pods that hold GPUs, as the kubelet reports them."""
        return not self.standalone if self.pods is None else self.pods

    @property
    def follows_pods(self) -> bool:
        """Pods are read from the API server, in a cluster or standalone."""
        return self.needs_pods or self.distinguishes_pods

    @property
    def needs_pods(self) -> bool:
        """Some label of series cannot be shown without the API server."""
        return self.shows_pods and (self.pod_uid_label or self.pod_labels)

    @property
    def distinguishes_pods(self) -> bool:
        """Pods that share a GPU have a series each, with what their processes use."""
        return self.shows_pods and self.virtual_gpus


AGENT_SETTINGS = ProgramSettings(AgentSettings)
