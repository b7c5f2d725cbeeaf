# SPDX-License-Identifier: Apache-2.0
"""What counts as a GPU, and as asking for some, is the same on both sides of every table."""

from __future__ import annotations

import pytest

from base.errors import BadInput
from kube.amounts.gpu_amounts import asks_gpus, gpu_amounts, gpu_requests
from kube.objects.pod import PodSpec
from tests.kube.amounts.gpu_pods import GPU, PODS, SLICE, limits, spec


@pytest.mark.parametrize("name", PODS)
def test_a_pod_asks_for_what_it_requests_as_a_whole(name: str) -> None:
    written, wanted = PODS[name]
    read = PodSpec.from_object(written)
    assert gpu_requests(read) == wanted
    assert asks_gpus(read) is bool(wanted)


def test_overhead_of_gpus_is_asked_for_too() -> None:
    assert gpu_requests(PodSpec.from_object(spec(overhead={GPU: "1"}))) == {GPU: 1}


def test_only_the_names_that_are_configured_count() -> None:
    """One that ends in a dash or a slash is how names begin; each has its shared form."""
    written = PodSpec.from_object(spec(limits(gpu=1, slice=2, shared=3)))
    assert gpu_requests(written, ("nvidia.com/gpu",)) == {GPU: 1, f"{GPU}.shared": 3}
    assert gpu_requests(written, ("nvidia.com/mig-",)) == {SLICE: 2}
    assert len(gpu_requests(written, ("nvidia.com/",))) == 3
    assert gpu_requests(written, ("nvidia.com/mig",)) == {}


@pytest.mark.parametrize("amount", ["two", "", "1 GPU"])
def test_an_amount_that_is_none_counts_as_asking_and_is_named(amount: str) -> None:
    written = PodSpec.from_object(spec(limits(gpu=amount)))
    with pytest.raises(BadInput, match=r"spec\.containers\[0\]\.resources\.limits\.nvidia.com/gpu"):
        gpu_requests(written)
    assert asks_gpus(written)


def test_an_amount_of_another_type_is_named_when_the_spec_is_read() -> None:
    with pytest.raises(BadInput, match=r"\$\.containers\[0\]\.resources\.limits"):
        PodSpec.from_object(spec(limits(gpu=["1"])))


def test_a_null_amount_is_none_as_for_every_client() -> None:
    assert not asks_gpus(PodSpec.from_object(spec(limits(gpu=None))))


def test_a_nodes_gpus_are_those_of_which_there_are_some() -> None:
    listed = {GPU: "0", SLICE: "7", "nvidia.com/gpumem": "81920", "cpu": "4", f"{GPU}.shared": "?"}
    assert gpu_amounts(listed) == {SLICE: 7}
