"""Messages on a link, as bytes: protobuf, so that a phone has a client of its own. docs/wire.md specifies them.

    who sends frames says:      Hello, then Frame after Frame
    who receives them says:     Welcome, then for each Frame perhaps Accepted, and one Answer, Dropped or Refused;
                                Goodbye before it ends

The messages are listed once, in `SCHEMA`. The classes that protobuf reads and writes with are made from it when this
module is imported, and so is the text of a .proto file (`proto_file`): nothing generated is kept that could grow old.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import IntEnum
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from penstock.errors import WireError

VERSION = 1
"""Of the protocol."""

PACKAGE = "penstock"

MOST_SEQUENCE = (1 << 64) - 1


class Coding(IntEnum):
    """How a payload is written."""

    RAW = 0
    DEFLATE = 1


class Reason(IntEnum):
    """Why a frame has no answer."""

    UNKNOWN = 0
    BUFFER_FULL = 1
    TOO_LATE = 2
    ENDED = 3
    FAILED = 4


class Fault(IntEnum):
    """What is wrong with a message."""

    UNKNOWN = 0
    GARBAGE = 1
    FOREIGN_BUNDLE = 2
    WRONG_STAGE = 3
    WRONG_SIZE = 4
    WRONG_VERSION = 5
    UNEXPECTED = 6


class Hello(NamedTuple):
    """The first message of a sender: what it is about to send frames for.

    Attributes:
        bundle: the id of the bundle, 32 bytes.
        stage: that the frames are for, counted from 1.
        version: of the protocol.
    """

    bundle: bytes
    stage: int
    version: int = VERSION


class Frame(NamedTuple):
    """One sample on its way.

    Attributes:
        bundle: the first eight bytes of the bundle's id, as a number.
        stream: where it comes from; a number that a source draws at random when it starts.
        sequence: counts the frames of a stream.
        captured_us: when the sample was taken, in microseconds since 1970.
        payload: what the stage before gave.
        coding: how the payload is written.
        deadline_ms: so long after that an answer is of use; 0 for ever.
        audit: a gate stopped it, and it was let through to see what becomes of it: no gate stops it now.
    """

    bundle: int
    stream: int
    sequence: int
    captured_us: int
    payload: bytes
    coding: Coding = Coding.RAW
    deadline_ms: int = 0
    audit: bool = False


class Welcome(NamedTuple):
    """The first message of a receiver: it takes frames, so many at a time that are neither accepted nor answered."""

    window: int
    version: int = VERSION


class Answer(NamedTuple):
    """What became of a frame.

    Attributes:
        label: the class; the background's if it was stopped.
        stopped_by: the stage whose gate stopped it, counted from 1; 0 if it reached the end.
        scores: of the gates that it passed or was stopped by, from the receiving stage on: probabilities.
        logits: of the classes; empty if it was stopped.
        audit: that of the frame.
    """

    stream: int
    sequence: int
    label: int
    stopped_by: int = 0
    scores: tuple[float, ...] = ()
    logits: tuple[float, ...] = ()
    audit: bool = False


class Accepted(NamedTuple):
    """A frame that has no answer yet, but is in good hands: it passed here, and waits for the next island."""

    stream: int
    sequence: int


class Dropped(NamedTuple):
    """A frame that gets no answer, and why."""

    stream: int
    sequence: int
    reason: Reason


class Refused(NamedTuple):
    """A message that was not accepted, and why. What it was about is 0 where that could not be read."""

    fault: Fault
    text: str
    stream: int = 0
    sequence: int = 0


class Goodbye(NamedTuple):
    """The receiver takes no more frames, and ends when the others are answered: send the rest to who comes after it."""

    text: str = ""


Up: TypeAlias = Hello | Frame
"""What a sender of frames says."""

Down: TypeAlias = Welcome | Answer | Dropped | Refused | Goodbye | Accepted
"""What a receiver of frames says."""

# name of a message -> (field, number, type)
SCHEMA: dict[str, tuple[tuple[str, int, str], ...]] = {
    "Hello": (("bundle", 1, "bytes"), ("stage", 2, "uint32"), ("version", 3, "uint32")),
    "Frame": (
        ("bundle", 1, "fixed64"),
        ("stream", 2, "fixed64"),
        ("sequence", 3, "uint64"),
        ("captured_us", 4, "fixed64"),
        ("payload", 5, "bytes"),
        ("coding", 6, "uint32"),
        ("deadline_ms", 7, "uint32"),
        ("audit", 8, "bool"),
    ),
    "Welcome": (("window", 1, "uint32"), ("version", 2, "uint32")),
    "Answer": (
        ("stream", 1, "fixed64"),
        ("sequence", 2, "uint64"),
        ("label", 3, "uint32"),
        ("stopped_by", 4, "uint32"),
        ("scores", 5, "repeated float"),
        ("logits", 6, "repeated float"),
        ("audit", 7, "bool"),
    ),
    "Dropped": (("stream", 1, "fixed64"), ("sequence", 2, "uint64"), ("reason", 3, "uint32")),
    "Refused": (("fault", 1, "uint32"), ("text", 2, "string"), ("stream", 3, "fixed64"), ("sequence", 4, "uint64")),
    "Goodbye": (("text", 1, "string"),),
    "Accepted": (("stream", 1, "fixed64"), ("sequence", 2, "uint64")),
}

# a message that is one of others -> (field, number, message)
EITHER: dict[str, tuple[tuple[str, int, str], ...]] = {
    "Up": (("hello", 1, "Hello"), ("frame", 2, "Frame")),
    "Down": (
        ("welcome", 1, "Welcome"),
        ("answer", 2, "Answer"),
        ("dropped", 3, "Dropped"),
        ("refused", 4, "Refused"),
        ("goodbye", 5, "Goodbye"),
        ("accepted", 6, "Accepted"),
    ),
}

SERVICE, METHOD = "Island", "Stream"
"""rpc Stream(stream Up) returns (stream Down)"""


def encode(message: Up | Down) -> bytes:
    """Return a message as it crosses a link."""
    field, whole = _HOMES[type(message)]
    return whole(**{field: message._asdict()}).SerializeToString()  # type: ignore[no-any-return]


def decode_up(content: bytes) -> Up:
    """Read what a sender said.

    Raises:
        WireError: when it is no message.
    """
    return _decode("Up", content)  # type: ignore[return-value]


def decode_down(content: bytes) -> Down:
    """Read what a receiver said.

    Raises:
        WireError: when it is no message.
    """
    return _decode("Down", content)  # type: ignore[return-value]


def with_payload(frame: Frame, values: bytes, *, deflate: bool = False) -> Frame:
    """Return the frame with these values, deflated where that is smaller."""
    if deflate:
        smaller = zlib.compress(values, 6)
        if len(smaller) < len(values):
            return frame._replace(payload=smaller, coding=Coding.DEFLATE)
    return frame._replace(payload=values, coding=Coding.RAW)


def values_of(frame: Frame, payload_bytes: int) -> bytes:
    """Return the values of a frame, which must be so many bytes; no more than those are ever unpacked.

    Raises:
        WireError: when they are not.
    """
    values = frame.payload
    if frame.coding not in Coding._value2member_map_:
        raise WireError(f"a payload is written in a way that is not known here: coding {frame.coding}.")
    if frame.coding == Coding.DEFLATE:
        values = _inflate(values, payload_bytes)
    if len(values) != payload_bytes:
        raise WireError(f"a payload of {len(values)} bytes came; this stage takes {payload_bytes}.")
    return values


def _inflate(content: bytes, most: int) -> bytes:
    unpacking = zlib.decompressobj()
    try:
        values = unpacking.decompress(content, most + 1)
    except zlib.error as error:
        raise WireError(f"a payload is damaged: {error}.") from error
    if not unpacking.eof or unpacking.unused_data:
        raise WireError(f"a payload is cut off, or unpacks to more than the {most} bytes that this stage takes.")
    return values


def proto_file() -> str:
    """Return the schema as a .proto file, to make clients from."""
    lines = ['syntax = "proto3";', "", f"package {PACKAGE};", ""]
    lines += [f"service {SERVICE} {{", f"  rpc {METHOD}(stream Up) returns (stream Down);", "}", ""]
    for name, choices in EITHER.items():
        lines += [f"message {name} {{", "  oneof message {"]
        lines += [f"    {kind} {field} = {number};" for field, number, kind in choices]
        lines += ["  }", "}", ""]
    for name, fields in SCHEMA.items():
        lines += [f"message {name} {{", *(f"  {kind} {field} = {number};" for field, number, kind in fields), "}", ""]
    return "\n".join(lines)


def _classes() -> dict[str, Any]:
    """Make the classes that protobuf reads and writes with."""
    proto = descriptor_pb2.FileDescriptorProto(name="penstock.proto", package=PACKAGE, syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in SCHEMA.items():
        made = proto.message_type.add(name=name)
        for field, number, kind in fields:
            label = kinds.LABEL_REPEATED if kind.startswith("repeated ") else kinds.LABEL_OPTIONAL
            type_ = getattr(kinds, f"TYPE_{kind.removeprefix('repeated ').upper()}")
            made.field.add(name=field, number=number, type=type_, label=label)
    for name, choices in EITHER.items():
        made = proto.message_type.add(name=name)
        made.oneof_decl.add(name="message")
        for field, number, kind in choices:
            made.field.add(
                name=field,
                number=number,
                type=kinds.TYPE_MESSAGE,
                type_name=f".{PACKAGE}.{kind}",
                label=kinds.LABEL_OPTIONAL,
                oneof_index=0,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(proto)
    names = (*SCHEMA, *EITHER)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in names}


_CLASSES = _classes()
_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (Hello, Frame, Welcome, Answer, Dropped, Refused, Goodbye, Accepted)
}
_HOMES = {_KINDS[kind]: (field, _CLASSES[whole]) for whole, choices in EITHER.items() for field, _, kind in choices}
_READERS = {
    field: (_KINDS[kind], attrgetter(*_KINDS[kind]._fields))
    for choices in EITHER.values()
    for field, _, kind in choices
}


def _decode(whole: str, content: bytes) -> Up | Down:
    try:
        made = _CLASSES[whole].FromString(content)
    except (DecodeError, ValueError) as error:
        raise WireError(f"{len(content)} bytes came that are no message: {error}.") from error
    field = made.WhichOneof("message")
    if field is None:
        raise WireError(f"{len(content)} bytes came that are no message that is known here.")
    kind, fields = _READERS[field]
    values = fields(getattr(made, field))
    message = kind(*values) if isinstance(values, tuple) else kind(values)  # of one field there is no tuple
    return _NAMED[kind](message) if kind in _NAMED else message  # type: ignore[no-any-return]


def _named(kind: type[IntEnum], value: int) -> Any:
    """Return a number by its name; one of the future is the first of them, which says that it is not known."""
    return kind(value) if value in kind._value2member_map_ else kind(0)


_CODINGS = {int(coding): coding for coding in Coding}
_NAMED: dict[type[Any], Callable[[Any], Any]] = {
    Frame: lambda frame: frame._replace(coding=_CODINGS.get(frame.coding, frame.coding)) if frame.coding else frame,
    Answer: lambda answer: Answer._make((*answer[:4], tuple(answer.scores), tuple(answer.logits), answer.audit)),
    Dropped: lambda dropped: dropped._replace(reason=_named(Reason, dropped.reason)),
    Refused: lambda refused: refused._replace(fault=_named(Fault, refused.fault)),
}
"""What is left to do to a message that was read."""
