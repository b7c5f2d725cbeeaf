# SPDX-License-Identifier: Apache-2.0
"""Differences to gpu-feature-discovery's labels, and why; the documentation is made from them.

Everything not listed here is the same, key for key and value for value.
Upstream is NVIDIA k8s-device-plugin v0.20.0.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """A deliberate difference between our labels and those of upstream."""

    about: str
    """The keys, or the situation."""
    upstream: str
    here: str
    why: str


DEVIATIONS: tuple[Deviation, ...] = (
    Deviation(
        about="gpu.product, gpu.count, gpu.memory, gpu.family, gpu.compute.* on mixed-model nodes",
        upstream="They name one of the models at random; it can change in each cycle.",
        here="They name the model with the most GPUs; of equal ones, the first by name.",
        why=(
            "Labels that change back and forth move pods. Upstream can produce each value, too."
            " gpuscape.io/count.<model> and gpuscape.io/memory.<model> have all models."
        ),
    ),
    Deviation(
        about="gpu.memory, gpu.family, gpu.compute.* on mixed-model nodes",
        upstream="A value that the named model does not report is taken from another model.",
        here="It is left out.",
        why="Memory of one model next to the name of another is wrong.",
    ),
    Deviation(
        about="one GPU that does not answer",
        upstream="The cycle fails, the process ends, the feature file is deleted.",
        here=(
            "gpu.count counts it, under the model that it had, else under the model of a GPU with"
            " the same PCI ids. The other labels describe the GPUs that answer; labels that depend"
            " on the silent GPU alone are kept. A node without labels gets those that are known"
            " after a minute."
        ),
        why=(
            "One broken GPU must not hide the others. gpuscape.io/gpu.expected and"
            " gpuscape.io/gpu.found keep the two counts apart."
        ),
    ),
    Deviation(
        about="no driver answers, or a fact cannot be read now",
        upstream="The process ends, or all labels but the timestamp are removed until a restart.",
        here="Labels stay until the fact is known to be gone. A driver that appears later is used.",
        why="A driver upgrade must not strip a node.",
    ),
    Deviation(
        about="mps.capable where MPS is configured and a GPU has MIG on",
        upstream="The cycle fails: no label at all.",
        here="mps.capable is left out with its reason; all other labels are written.",
        why="A contradiction about one label must not cost the others.",
    ),
    Deviation(
        about="gpu.clique while registration with the fabric is in progress",
        upstream="It is removed.",
        here="It is kept as it is.",
        why="The state is not known yet. A restart of Fabric Manager must not move pods.",
    ),
    Deviation(
        about="gpu.mode with a GPU in a PCI domain of more than four digits (VMD, some clouds)",
        upstream="unknown: the PCI class is looked up under a domain cut to four digits.",
        here="compute or graphics, by the GPU's own class.",
        why="Linux writes such a domain in full. The shortened one is another device or none.",
    ),
    Deviation(
        about="MIG devices of a GPU whose memory cannot be read",
        upstream="The cycle fails.",
        here="The driver's own name of the profile is used; without one the labels are kept.",
        why="A profile's name follows from the GPU's memory; a guess may be another profile.",
    ),
    Deviation(
        about="MIG profiles of three slices with graphics (Thor)",
        upstream="The cycle fails: the profile's number is not known.",
        here="Named with the suffix +gfx, as the driver does.",
        why="One unknown profile must not cost all labels.",
    ),
    Deviation(
        about="answers of the driver outside what is possible, such as 4294967295 slices",
        upstream="Written as they are: mig-4294967295g.…",
        here="They count as not read; the labels that depend on them are kept.",
        why="Impossible numbers in labels name resources that do not exist.",
    ),
    Deviation(
        about="the feature file",
        upstream="Written anew in each cycle, deleted when the process ends.",
        here="Replaced when a label changes, and never deleted.",
        why="A restart of the agent must not strip a node.",
    ),
    Deviation(
        about="the NodeFeature",
        upstream="Owned by the DaemonSet and by the pod that wrote it.",
        here="The same object by name, owned by the Node.",
        why="Kubernetes deletes an object with its owner: the labels would go with the pod.",
    ),
    Deviation(
        about="driver versions that are not of the form X.Y or X.Y.Z",
        upstream="The cycle fails.",
        here="The parts are left out; cuda.driver-version.full is written.",
        why="One unusual text must not cost the other labels.",
    ),
    Deviation(
        about="vgpu.host-driver-* where the vGPU has no host driver record",
        upstream="The cycle fails.",
        here="They are left out; vgpu.present is written.",
        why="One missing record must not cost the other labels.",
    ),
    Deviation(
        about="vgpu.* without the right to read the whole PCI configuration space",
        upstream="They are left out; upstream's container runs privileged to have this right.",
        here=(
            "vgpu.present comes from nvmlDeviceGetVirtualizationMode; vgpu.host-driver-* are kept"
            " as they are."
        ),
        why="This one fact does not justify a privileged container.",
    ),
    Deviation(
        about="vgpu.present where the host has no /sys/bus/pci (WSL2)",
        upstream="It is left out, since PCI configuration space cannot be searched.",
        here="It comes from nvmlDeviceGetVirtualizationMode.",
        why="The driver reports it.",
    ),
    Deviation(
        about="values that are no legal label, such as machine types that end in a dot",
        upstream="Written; NFD then drops the label.",
        here="Left out with the reason, in every sink.",
        why="One illegal value makes the API server refuse the whole patch of the Node.",
    ),
    Deviation(
        about="MIG devices of a profile on several models, strategy mixed",
        upstream="Product and sizes are those of the first device in NVML's order.",
        here="They are those of the first device in PCI bus order.",
        why="NVML's order may change; the order on the bus does not.",
    ),
    Deviation(
        about="an unknown MIG strategy or key in the configuration",
        upstream="A strategy is refused only once there is a GPU; a misspelt key is ignored.",
        here="Both are refused at start, with line and key.",
        why="A typing mistake should be reported where it was made.",
    ),
    Deviation(
        about="GPUs of integrated systems (Tegra) and GPUs bound to vfio-pci",
        upstream="Labels from CUDA or from PCI tables, with values such as unknown or -1.",
        here="Not supported: gpuscape reads NVML.",
        why="Without NVML neither links nor health can be read.",
    ),
)
