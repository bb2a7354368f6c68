"""Messages between islands, and their encoding as protobuf.

    client:  Hello, then Frame after Frame
    server:  Welcome, then for each Frame perhaps Accepted, and one Answer, Dropped or Refused; Goodbye before it ends

penstock.proto is the schema. penstock.desc is that file compiled by protoc: a descriptor set, which every version of
the protobuf runtime can read, unlike generated Python code. The named tuples below are what the rest of the package
works with; their fields are those of the .proto (a test compares them).
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from enum import IntEnum
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from penstock.errors import WireError

VERSION = 2  # the protocol version
METHOD = "/penstock.Island/Stream"  # the path of the RPC
MAX_SEQUENCE = (1 << 64) - 1


class Coding(IntEnum):
    """How a payload is encoded."""

    RAW = 0
    DEFLATE = 1


class DropReason(IntEnum):
    """Why a frame has no answer."""

    UNKNOWN = 0
    BUFFER_FULL = 1
    TOO_LATE = 2
    ENDED = 3
    FAILED = 4


class Fault(IntEnum):
    """Why a message was refused."""

    UNKNOWN = 0
    GARBAGE = 1
    FOREIGN_BUNDLE = 2
    WRONG_STAGE = 3
    BAD_PAYLOAD = 4
    WRONG_VERSION = 5
    UNEXPECTED = 6


class Hello(NamedTuple):
    """The first message of a client: the bundle (its 32-byte id) and the stage that its frames are for."""

    bundle: bytes
    stage: int
    version: int = VERSION


class Frame(NamedTuple):
    """One sample on its way to a stage. The fields are described in penstock.proto."""

    bundle: int
    stream: int
    sequence: int
    captured_us: int
    payload: bytes
    coding: Coding = Coding.RAW
    deadline_ms: int = 0
    shadow: bool = False


class Welcome(NamedTuple):
    """The server's reply to Hello: how many frames may be in flight."""

    window: int
    version: int = VERSION


class Answer(NamedTuple):
    """The result of a frame."""

    stream: int
    sequence: int
    label: int  # the class index; the background class if a gate stopped the frame
    exit_stage: int  # the stage where it ended, counted from 1; the last stage if it went through
    stopped: bool = False  # whether a gate stopped it
    scores: tuple[float, ...] = ()  # gate probabilities, from the receiving stage on
    logits: tuple[float, ...] = ()  # class logits; empty if stopped
    shadow: bool = False  # whether the frame was a shadow sample


class Accepted(NamedTuple):
    """A frame that passed the gate and waits for the next island."""

    stream: int
    sequence: int


class Dropped(NamedTuple):
    """A frame that will not be answered."""

    stream: int
    sequence: int
    reason: DropReason


class Refused(NamedTuple):
    """A message that was not accepted; stream and sequence are 0 if it could not be decoded."""

    fault: Fault
    text: str
    stream: int = 0
    sequence: int = 0


class Goodbye(NamedTuple):
    """The server accepts no more frames and closes once it has answered those it has."""

    text: str = ""


ClientMessage: TypeAlias = Hello | Frame
ServerMessage: TypeAlias = Welcome | Answer | Dropped | Refused | Goodbye | Accepted
MESSAGES: tuple[type[Any], ...] = (Hello, Frame, Welcome, Answer, Dropped, Refused, Goodbye, Accepted)


def encode(message: ClientMessage | ServerMessage) -> bytes:
    """Encode a message for a link."""
    field, envelope = _ENVELOPES[type(message)]
    return envelope(**{field: message._asdict()}).SerializeToString()  # type: ignore[no-any-return]


def decode_client(content: bytes) -> ClientMessage:
    """Decode a message of a client; raise a WireError if it is not one."""
    return _decode(_CLIENT, content)  # type: ignore[return-value]


def decode_server(content: bytes) -> ServerMessage:
    """Decode a message of a server; raise a WireError if it is not one."""
    return _decode(_SERVER, content)  # type: ignore[return-value]


def with_payload(frame: Frame, values: bytes, *, deflate: bool = False) -> Frame:
    """Return the frame with these values as payload, deflated if that is smaller."""
    if deflate:
        deflated = zlib.compress(values, 6)
        if len(deflated) < len(values):
            return frame._replace(payload=deflated, coding=Coding.DEFLATE)
    return frame._replace(payload=values, coding=Coding.RAW)


def unpack_payload(frame: Frame, payload_bytes: int) -> bytes:
    """Return the values of a frame; never inflates more than ``payload_bytes``.

    Raises:
        WireError: if the payload is damaged, has an unknown coding, or is not ``payload_bytes`` long.
    """
    values = frame.payload
    if frame.coding == Coding.DEFLATE:
        values = _inflate(values, payload_bytes)
    elif frame.coding != Coding.RAW:
        raise WireError(f"unknown payload coding {int(frame.coding)}; expected 0 (raw) or 1 (deflate).")
    if len(values) != payload_bytes:
        raise WireError(f"expected a payload of {payload_bytes} bytes, got {len(values)}.")
    return values


def _inflate(content: bytes, limit: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        values = inflater.decompress(content, limit + 1)
    except zlib.error as error:
        raise WireError(f"the deflated payload is damaged: {error}.") from error
    if not inflater.eof or inflater.unused_data:
        raise WireError(f"the deflated payload is truncated, or inflates to more than {limit} bytes.")
    return values


def _load_schema() -> Any:
    """Return the file descriptor of penstock.proto, in a pool of its own."""
    compiled = Path(__file__).with_name("penstock.desc").read_bytes()
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(compiled).file:
        pool.Add(file)
    return pool.FindFileByName("penstock.proto")


SCHEMA = _load_schema()
_CLIENT = message_factory.GetMessageClass(SCHEMA.message_types_by_name["ClientMessage"])
_SERVER = message_factory.GetMessageClass(SCHEMA.message_types_by_name["ServerMessage"])
_BY_NAME = {kind.__name__: kind for kind in MESSAGES}
_ENVELOPES = {
    _BY_NAME[field.message_type.name]: (field.name, envelope)
    for envelope in (_CLIENT, _SERVER)
    for field in envelope.DESCRIPTOR.fields
}
_READERS = {name: (kind, attrgetter(*kind._fields)) for kind, (name, _) in _ENVELOPES.items()}


def _decode(envelope: Any, content: bytes) -> ClientMessage | ServerMessage:
    try:
        decoded = envelope.FromString(content)
    except (DecodeError, ValueError) as error:
        raise WireError(f"cannot decode a message of {len(content)} bytes: {error}.") from error
    field = decoded.WhichOneof("message")
    if field is None:
        raise WireError(f"cannot decode a message of {len(content)} bytes: its type is unknown.")
    kind, read = _READERS[field]
    values = read(getattr(decoded, field))
    message = kind(*values) if isinstance(values, tuple) else kind(values)  # attrgetter of one field returns no tuple
    return _CONVERTERS[kind](message) if kind in _CONVERTERS else message  # type: ignore[no-any-return]


def _to_enum(kind: type[IntEnum], value: int) -> Any:
    """Return the enum member; UNKNOWN for a value of a later version."""
    return kind(value) if value in kind._value2member_map_ else kind(0)


_CODINGS = {int(coding): coding for coding in Coding}
_CONVERTERS: dict[type[Any], Callable[[Any], Any]] = {
    Frame: lambda frame: frame._replace(coding=_CODINGS.get(frame.coding, frame.coding)) if frame.coding else frame,
    Answer: lambda answer: Answer._make((*answer[:5], tuple(answer.scores), tuple(answer.logits), answer.shadow)),
    Dropped: lambda dropped: dropped._replace(reason=_to_enum(DropReason, dropped.reason)),
    Refused: lambda refused: refused._replace(fault=_to_enum(Fault, refused.fault)),
}
"""From protobuf's values to Python's, for messages with enums or repeated fields."""


def now_us() -> int:
    """Return the current time as `Frame.captured_us` has it."""
    return time.time_ns() // 1000
