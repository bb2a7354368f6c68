"""decode(encode(m)) == m; no bytes crash it; and protobuf's own compiler reads the same."""

import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import WireError
from penstock.runtime.islands import protocol as wire

U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
FLOATS = st.lists(st.floats(width=32, allow_nan=False), max_size=9).map(tuple)
FRAMES = st.builds(
    wire.Frame, U64, U64, U64, U64, st.binary(max_size=300), st.sampled_from(wire.Coding), U32, st.booleans()
)
ANSWERS = st.builds(wire.Answer, U64, U64, U32, U32, st.booleans(), FLOATS, FLOATS, st.booleans())
UPS = st.one_of(st.builds(wire.Hello, st.binary(max_size=40), U32, U32), FRAMES)
DOWNS = st.one_of(
    st.builds(wire.Welcome, U32, U32),
    ANSWERS,
    st.builds(wire.Dropped, U64, U64, st.sampled_from(wire.DropReason)),
    st.builds(wire.Refused, st.sampled_from(wire.Fault), st.text(max_size=30), U64, U64),
    st.builds(wire.Goodbye, st.text(max_size=30)),
    st.builds(wire.Accepted, U64, U64),
)


@settings(max_examples=300, deadline=None)
@given(up=UPS, down=DOWNS)
def test_what_is_read_is_what_was_written(up, down):
    assert wire.decode_client(wire.encode(up)) == up
    assert wire.decode_server(wire.encode(down)) == down


@settings(max_examples=1000, deadline=None)
@given(content=st.one_of(st.binary(max_size=200), st.tuples(FRAMES, st.integers(0, 60), st.binary(max_size=6))))
def test_no_bytes_crash_it(content):
    if isinstance(content, tuple):  # a frame with some bytes changed
        frame, at, new = content
        whole = wire.encode(frame)
        content = whole[:at] + new + whole[at + len(new) :]
    for read in (wire.decode_client, wire.decode_server):
        try:
            message = read(content)
        except WireError:
            continue
        assert isinstance(message, wire.MESSAGES)


def test_the_bytes_are_these():
    """Written down, so that no change of a library or of ours goes unseen."""
    frame = wire.Frame(0x0102030405060708, 0x1112131415161718, 300, 0x2122232425262728, b"\x00\xff", shadow=True)
    assert wire.encode(frame).hex(" ") == (
        "12 24 09 08 07 06 05 04 03 02 01 11 18 17 16 15 14 13 12 11 18 ac 02 "
        "21 28 27 26 25 24 23 22 21 2a 02 00 ff 40 01"
    )
    assert wire.encode(wire.Hello(b"\x01" * 32, 2)).hex(" ") == "0a 26 0a 20" + " 01" * 32 + " 10 02 18 02"
    answer = wire.Answer(1, 2, 3, 1, True, (0.5,))
    assert wire.encode(answer).hex(" ") == "12 17 09 01 00 00 00 00 00 00 00 10 02 18 03 20 01 28 01 32 04 00 00 00 3f"


@pytest.mark.parametrize("kept", [1, 120, 3136])
def test_headers_of_a_frame_are_small(kept):
    """The issue's reach: all headers, gRPC's five bytes and HTTP/2's nine among them, in 64 bytes."""
    frame = wire.Frame(2**64 - 1, 2**64 - 1, 2**32, 2**61, bytes(kept), deadline_ms=2000)
    assert len(wire.encode(frame)) + 5 + 9 <= kept + 64


FOLDER = Path(wire.__file__).parent


def protoc(folder, *options):
    pytest.importorskip("grpc_tools", reason="grpcio-tools is not installed")
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", *options, "penstock.proto"]
    subprocess.run(command, check=True)


def test_the_compiled_schema_is_that_of_the_proto_file(tmp_path):
    protoc(FOLDER, f"--descriptor_set_out={tmp_path / 'penstock.desc'}")
    compiled, stored = (
        descriptor_pb2.FileDescriptorSet.FromString((folder / "penstock.desc").read_bytes())
        for folder in (tmp_path, FOLDER)
    )
    assert compiled == stored, "compile penstock.proto again: the command is in its first lines"


def test_messages_and_enums_are_those_of_the_proto_file():
    messages = {kind.__name__: kind._fields for kind in wire.MESSAGES}
    schema = {
        name: tuple(field.name for field in one.fields) for name, one in wire.SCHEMA.message_types_by_name.items()
    }
    envelopes = {name: schema.pop(name) for name in ("ClientMessage", "ServerMessage")}
    assert messages == schema
    assert sorted(field for fields in envelopes.values() for field in fields) == sorted(map(str.lower, messages))
    for kind, prefix in ((wire.Coding, "CODING"), (wire.DropReason, "DROP_REASON"), (wire.Fault, "FAULT")):
        values = {value.name: value.number for value in wire.SCHEMA.enum_types_by_name[kind.__name__].values}
        assert {f"{prefix}_{member.name}": member.value for member in kind} == values
    (service,) = wire.SCHEMA.services_by_name.values()
    assert f"/{service.full_name}/{service.methods[0].name}" == wire.METHOD


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """The classes that protobuf's own compiler generates."""
    folder = tmp_path_factory.mktemp("proto")
    (folder / "penstock.proto").write_text((FOLDER / "penstock.proto").read_text())
    protoc(folder, f"--python_out={folder}")
    sys.path.insert(0, str(folder))
    import penstock_pb2

    return penstock_pb2


@settings(max_examples=200, deadline=None)
@given(up=UPS, down=DOWNS)
def test_others_read_and_write_the_same(generated, up, down):
    for message, envelope in ((up, generated.ClientMessage), (down, generated.ServerMessage)):
        theirs = envelope.FromString(wire.encode(message))
        inner = getattr(theirs, theirs.WhichOneof("message"))
        assert type(inner).__name__ == type(message).__name__
        for name, value in message._asdict().items():
            decoded = getattr(inner, name)
            assert (tuple(decoded) if isinstance(value, tuple) else decoded) == value
        assert theirs.SerializeToString(deterministic=True) == wire.encode(message)


def test_a_message_of_the_future_is_read_as_far_as_it_is_known():
    frame = wire.Frame(1, 2, 3, 4, b"xy")
    whole = wire.encode(frame)
    inner = whole[2:] + b"\xa2\x06\x03new"  # field 100, of three bytes
    assert wire.decode_client(b"\x12" + bytes([len(inner)]) + inner) == frame
    with pytest.raises(WireError, match="5 bytes"):
        wire.decode_client(b"\xa2\x06\x02hi")
    with pytest.raises(WireError, match="coding 9"):
        wire.unpack_payload(wire.decode_client(wire.encode(frame._replace(coding=9))), 2)
    assert wire.decode_server(wire.encode(wire.Dropped(1, 2, 77))).reason is wire.DropReason.UNKNOWN


@given(values=st.binary(max_size=400))
def test_a_deflated_payload_is_taken_only_where_it_is_smaller(values):
    empty = wire.Frame(1, 2, 3, 4, b"")
    for deflate in (False, True):
        frame = wire.with_payload(empty, values, deflate=deflate)
        assert wire.unpack_payload(frame, len(values)) == values
        assert len(frame.payload) <= len(values)
        assert (frame.coding is wire.Coding.DEFLATE) == (len(frame.payload) < len(values))


def test_sparse_values_deflate_well():
    draw = np.random.default_rng(0)
    values = (draw.integers(0, 127, 3000) * (draw.random(3000) < 0.2)).astype(np.int8).tobytes()
    assert len(wire.with_payload(wire.Frame(1, 2, 3, 4, b""), values, deflate=True).payload) < len(values) / 2


def test_a_payload_of_another_size_is_refused_and_never_unpacked():
    frame = wire.Frame(1, 2, 3, 4, b"12345")
    with pytest.raises(WireError, match="4 bytes, got 5"):
        wire.unpack_payload(frame, 4)
    bomb = frame._replace(payload=zlib.compress(bytes(10**7)), coding=wire.Coding.DEFLATE)
    with pytest.raises(WireError, match="100 bytes"):
        wire.unpack_payload(bomb, 100)
    for damaged in (bomb.payload[:-5], bomb.payload + b"more"):
        with pytest.raises(WireError, match="truncated"):
            wire.unpack_payload(bomb._replace(payload=damaged), 10**7)
    with pytest.raises(WireError, match="damaged"):
        wire.unpack_payload(bomb._replace(payload=b"nonsense"), 100)
