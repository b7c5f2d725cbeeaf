# SPDX-License-Identifier: Apache-2.0
"""Frames survive any cutting; what is not the protocol is refused."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discovery.driver_errors import ProtocolViolation
from discovery.reader.protocol import (
    MAX_FRAME_BYTES,
    Discover,
    Done,
    GpuFrame,
    Sample,
    Start,
    Touching,
    XidSeen,
    frame,
    from_agent,
    from_reader,
)
from discovery.sample import ReadingGroup
from tests import build

ANSWERS = (
    Touching(request=1, bus_id=None),
    GpuFrame(request=1, gpu=build.gpu(3, mig=build.SPLIT, mig_devices=(build.mig_device(),))),
    XidSeen(bus_id="0000:1b:00.0", code=79),
    Done(request=1),
)


@given(st.lists(st.integers(min_value=1, max_value=5000), max_size=50))
def test_messages_arrive_whole_and_in_order_however_the_stream_is_cut(cuts: list[int]) -> None:
    stream = b"".join(frame(answer) for answer in ANSWERS)
    framer = from_reader()
    arrived = []
    for cut in [*cuts, len(stream)]:
        arrived += framer.feed(stream[:cut])
        stream = stream[cut:]
    assert tuple(arrived) == ANSWERS


def test_the_reader_understands_every_request() -> None:
    sent = (
        Start(skip=("0000:1b:00.0",), only=None),
        Discover(request=7),
        Sample(request=8),
        Sample(request=9, groups=tuple(ReadingGroup)),
    )
    assert tuple(from_agent().feed(b"".join(frame(message) for message in sent))) == sent


def test_a_frame_above_the_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(ProtocolViolation, match=str(MAX_FRAME_BYTES)):
        from_reader().feed(struct.pack(">I", MAX_FRAME_BYTES + 1))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"\xff\xfe",
        b'{"type":"Nonsense","request":1}',
        b'{"type":"Done","request":"1"}',
        b'{"type":"Done","request":1,"more":1}',
        b'{"type":"GpuFrame","request":1,"gpu":{"bus_id":5}}',
        b'{"type":"Start"}',
        b'{"type":"Sample","request":1,"groups":["everything"]}',
    ],
)
def test_a_frame_that_does_not_match_the_schema_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolViolation, match="does not match the schema"):
        from_reader().feed(struct.pack(">I", len(body)) + body)
