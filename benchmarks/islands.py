"""Bundles and islands: how fast, how small, and that nothing is lost, whatever is killed, cut or garbled."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import numpy as np
import torch
from torch import nn

import penstock as ps
from benchmarks.figures import Figure
from penstock.errors import BundleError
from penstock.evaluation.timing import best_seconds
from penstock.export import Int8
from penstock.models.resnet import resnet8
from penstock.runtime.bundle.bundle import Bundle
from penstock.runtime.engines import load_engines
from penstock.runtime.islands.client import Client
from penstock.runtime.islands.island import Island
from penstock.runtime.islands.links.grpc import GrpcServer, grpc_connector
from penstock.runtime.islands.protocol import (
    MAX_SEQUENCE,
    Answer,
    Coding,
    Dropped,
    Frame,
    Hello,
    Refused,
    decode_server,
    encode,
)
from penstock.runtime.islands.uplink import Backoff
from penstock.runtime.pipeline import Pipeline

BOMB = zlib.compress(bytes(10_000_000), 9)
MAIN = "from penstock.cli import main; main()"
GRPC_BYTES, HTTP2_BYTES = 5, 9
"""Of headers that gRPC and HTTP/2 put before each message."""


def network(at: Any, *, kept: float = 0.03, samples: int = 256) -> tuple[ps.GatedNetwork, torch.Tensor]:
    """Return the paper's 8 blocks, gates that let a tenth pass in all, masks that keep this share, and samples."""
    torch.manual_seed(0)
    x = torch.randn(samples, 1, 28, 28)
    net = ps.gate(resnet8().eval(), x[:2], at=at).eval()
    with torch.no_grad():
        for layer in net.layers:
            chosen = torch.randperm(layer.compression.phi.numel())[: round(kept * layer.compression.phi.numel())]
            layer.compression.phi.zero_().flatten()[chosen] = 1.0
        passing, thresholds = torch.ones(samples, dtype=torch.bool), []
        for logits in net(x).gates:
            share = 1 - 0.1 ** (1 / len(net.layers))
            thresholds.append(logits[passing].double().quantile(share).item())
            passing &= logits >= thresholds[-1]
        net.thresholds = thresholds
    return net, x


@contextmanager
def exported(net: ps.GatedNetwork, x: torch.Tensor, **options: Any) -> Iterator[tuple[Path, Any]]:
    """Export a network into a folder for a while."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder), ps.export_bundle(net, x[:16], folder, **options)


def chain() -> list[Figure]:
    """One process, batch 1, one thread: a 1:9 stream over its ideal, stage 1 and a tenth of the rest, each alone."""
    net, x = network(0.4)
    plain = ps.gate(ps.ungate(net), x[:2], at=0).eval()
    with exported(net, x) as (_, ours), exported(plain, x) as (_, theirs):
        ungated, gated = Pipeline(theirs.bundle), Pipeline(ours.bundle)
        first, rest = load_engines(ours.bundle)
        stream = [sample[None] for sample in x.numpy()]
        packed = [first.run(sample).values for sample in stream]
        seconds = best_seconds(
            {
                "plain": lambda: [ungated.predict(sample) for sample in stream],
                "chain": lambda: [gated.predict(sample) for sample in stream],
                "stage 1": lambda: [first.run(sample) for sample in stream],
                "rest": lambda: [rest.run(values) for values in packed],
            },
            rounds=60,
            warm_up=2,
        )
        passed = float((~gated.predict(x.numpy()).stopped).mean())
        worst = max(ours.errors + theirs.errors)
    ideal = seconds["stage 1"] + passed * seconds["rest"]
    details = seconds | {
        "pass_rate": passed,
        "ideal": ideal,
        "samples": len(stream),
        "chain_of_plain": seconds["chain"] / seconds["plain"],
        "ideal_of_plain": ideal / seconds["plain"],
    }
    name = "chain in one process on a 1:9 stream, batch 1, one thread / ideal (stage 1 + pass rate × the rest)"
    return [
        Figure(name, seconds["chain"] / ideal, "<=", 1.10, details),
        Figure("exported stages against PyTorch, float32: largest error / largest output", worst, "<=", 1e-5),
    ]


def wire() -> list[Figure]:
    """What a forwarded frame weighs, and what crosses the link of a window, at 97 % sparsity and 8 bits a value."""
    net, x = network(0.4)
    with exported(net, x, precision=Int8((x, torch.arange(len(x)) % 6))) as (_, ours):
        stage = ours.bundle.manifest.stages[0]
        answers = Pipeline(ours.bundle).predict(x.numpy())
    kept = stage.output.payload_bytes
    frame = Frame(2**64 - 1, 2**64 - 1, 20_000, 2**61, bytes(kept))
    frame_bytes = len(encode(frame)) + GRPC_BYTES + HTTP2_BYTES
    passed = float((~answers.stopped).mean())
    values = int(np.prod(net.layers[0].feature))
    details = {"kept": kept, "values": values, "frame_bytes": frame_bytes, "pass_rate": passed}
    name = "bytes over the link a window on a 1:9 stream / float32 values of the same cut, at 97 % sparsity"
    return [
        Figure(
            "a forwarded frame, 8 bits a kept value: bytes beside the kept values",
            frame_bytes - kept,
            "<=",
            64,
            details,
        ),
        Figure(name, passed * frame_bytes / (4 * values), "<=", 1 / 200, details),
    ]


PAIRS = 9  # of processes that a hop is measured on


def hop() -> list[Figure]:
    """A hop over gRPC to another process and back, over a bare echo stream of the same payload.

    Both take turns and each is its median; the ratio depends on which cores the processes got, so it is the median over
    several pairs of processes.
    """
    tiny = ps.gate(nn.Sequential(nn.Linear(94, 94), nn.ReLU(), nn.Linear(94, 2)), torch.zeros(2, 94), at=0).eval()
    with exported(tiny, torch.randn(16, 94)) as (folder, made):
        values = made.bundle.manifest.stages[0].input.payload_bytes
        pairs = [asyncio.run(_hops(folder, made.bundle, values)) for _ in range(PAIRS)]
    ratios = [pair["hop"] / pair["echo"] for pair in pairs]
    details = {name: [pair[name] for pair in pairs] for name in pairs[0]} | {"ratios": ratios}
    name = "hop over gRPC, median / a bare gRPC echo stream of the same payload"
    return [Figure(name, statistics.median(ratios), "<=", 1.5, details)]


async def _hops(
    folder: Path, bundle: Bundle, payload_bytes: int, rounds: int = 100, each: int = 50
) -> dict[str, float]:
    bundle_id = bytes.fromhex(bundle.manifest.id)
    short = int.from_bytes(bundle_id[:8], "big")
    payload = np.ones(payload_bytes // 4, np.float32).tobytes()
    seconds: dict[str, list[float]] = {"hop": [], "echo": []}
    with _process(["island", str(folder), "--stage", "1"]) as island, _echo() as echo:
        link = await grpc_connector(island)()
        await link.send(encode(Hello(bundle_id, 1)))
        await link.receive()
        async with grpc.aio.insecure_channel(echo) as channel:
            call = channel.stream_stream("/bare/Echo")()
            for number in range(rounds * each):
                content = encode(Frame(short, 1, number + 1, 0, payload))
                if number // each % 2:
                    began = time.perf_counter()
                    await call.write(content)
                    await call.read()
                    seconds["echo"].append(time.perf_counter() - began)
                else:
                    began = time.perf_counter()
                    await link.send(content)
                    assert isinstance(decode_server(await link.receive() or b""), Answer)
                    seconds["hop"].append(time.perf_counter() - began)
            call.cancel()
        await link.close()
    return {name: statistics.median(values[each:]) for name, values in seconds.items()}


ECHO = """
import asyncio, grpc, grpc.aio
async def echo(requests, context):
    while (content := await context.read()) is not grpc.aio.EOF:
        await context.write(content)
async def main():
    server = grpc.aio.server()
    handlers = {"Echo": grpc.stream_stream_rpc_method_handler(echo)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bare", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"listens at 127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()
asyncio.run(main())
"""


@contextmanager
def _process(arguments: list[str], code: str = MAIN) -> Iterator[str]:
    """Start a process that prints its address; end it."""
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]
    finally:
        process.kill()
        process.communicate()


def _echo() -> Any:
    return _process([], ECHO)


class Proxy:
    """A link that can be cut: it carries bytes between two ports, until it does not."""

    def __init__(self, to: int):
        self._to, self._writers = to, set()  # type: ignore[var-annotated]

    async def start(self) -> int:
        """Begin to carry; return the port."""
        self._server = await asyncio.start_server(self._meet, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    def cut(self) -> None:
        """Break all connections."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def stop(self) -> None:
        """End it."""
        self._server.close()
        self.cut()

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            downstream = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, downstream[1]}
        await asyncio.gather(_carry(reader, downstream[1]), _carry(downstream[0], writer))


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while content := await reader.read(1 << 16):
            writer.write(content)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.transport.abort()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


FRAMES, CUTS = 20_000, 10


class Counting(Client):
    """A source that counts what it is told of each frame."""

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self.told: Counter[int] = Counter()

    def _on_reply(self, frame: Frame, reply: Answer | Dropped) -> None:
        self.told[frame.sequence] += 1
        super()._on_reply(frame, reply)


def torture() -> list[Figure]:
    """Three islands and 20,000 frames at 1:9; each island is killed twice, and a link is cut ten times."""
    net, x = network([0.4, 0.6])
    with exported(net, x) as (folder, made):
        details = asyncio.run(_torture(folder, made.bundle, x.numpy()))
    bad = details["lost"] + details["wrong"] + details["twice"]
    name = (
        "3 islands, 20,000 frames at 1:9, each killed twice, links cut 10 times: frames lost, wrong or answered twice"
    )
    return [Figure(name, bad, "<=", 0, details)]


async def _torture(folder: Path, bundle: Bundle, x: np.ndarray) -> dict[str, Any]:
    ports = [_free_port() for _ in range(3)]
    proxies = [Proxy(port) for port in ports]
    doors = [await proxy.start() for proxy in proxies]

    def start(i: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", MAIN, "island", str(folder), "--stage", str(i + 1)]
        command += ["--listen", f"127.0.0.1:{ports[i]}"]
        command += ["--next", f"127.0.0.1:{doors[i + 1]}"] if i < 2 else []
        env = os.environ | {"GRPC_VERBOSITY": "NONE"}
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, env=env)

    islands = [start(i) for i in range(3)]
    expected = Pipeline(bundle).predict(x)
    done = asyncio.Event()

    async def trouble() -> None:
        steps = [("kill", i) for i in (0, 1, 2, 0, 1, 2)] + [("cut", i % 3) for i in range(CUTS)]
        random.Random(0).shuffle(steps)
        for what, i in steps:
            await asyncio.sleep(1.0)
            if what == "cut":
                proxies[i].cut()
            else:
                islands[i].send_signal(signal.SIGKILL)
                await asyncio.to_thread(islands[i].wait)
                await asyncio.sleep(0.3)
                islands[i] = start(i)
        done.set()

    began = time.perf_counter()
    try:
        connector = grpc_connector(f"127.0.0.1:{doors[0]}")
        async with Counting(bundle.manifest, connector, backoff=Backoff(0.02, 0.5)) as source:
            making = asyncio.ensure_future(trouble())
            futures = []
            for number in range(FRAMES):
                futures.append(await source.submit(x[number % len(x)]))
                if number % 20 == 0 and not done.is_set():
                    await asyncio.sleep(0.02)  # so that the stream lasts as long as the trouble
            answers = await asyncio.gather(*futures)
            await making
    finally:
        for island in islands:
            island.kill()
            island.wait()
        for proxy in proxies:
            await proxy.stop()
    right = [
        isinstance(answer, Answer)
        and answer.label == int(expected.label[number % len(x)])
        and answer.stopped == expected.stopped[number % len(x)]
        and answer.exit_stage == expected.exit_stage[number % len(x)]
        for number, answer in enumerate(answers)
    ]
    dropped = sum(isinstance(answer, Dropped) for answer in answers)
    return {
        "frames": FRAMES,
        "answered": len(answers) - dropped,
        "dropped": dropped,
        "lost": FRAMES - len(source.told),
        "wrong": len(right) - sum(map(bool, right)) - dropped,
        "twice": sum(count > 1 for count in source.told.values()),
        "resent_by_the_source": source.uplink.resent,
        "seconds": time.perf_counter() - began,
    }


MUTATED_FRAMES, MUTATED_BUNDLES = 100_000, 2_000


def garbage() -> list[Figure]:
    """Mutated frames at an island over gRPC, and mutated bundles: all get their reason, and memory does not grow."""
    net, x = network(0.4)
    with exported(net, x) as (folder, made):
        island = asyncio.run(_garbled(made.bundle))
        bundles = _mutated_bundles(folder, made.bundle)
    details = {"frames": island, "bundles": bundles}
    bad = island["without_reply"] + island["crashed"] + bundles["accepted"] + bundles["without_reason"]
    grown = max(island["grown_bytes"], bundles["grown_bytes"])
    what = "100,000 mutated frames and 2,000 mutated bundles"
    return [
        Figure(f"{what}: without a reply, a crash, accepted or without a reason", bad, "<=", 0, details),
        Figure(f"{what}: growth of memory, MiB", grown / 2**20, "<=", 32),
    ]


async def _garbled(bundle: Bundle) -> dict[str, Any]:
    last = len(bundle.manifest.stages)
    island = Island(bundle, last)
    payload = island.stage.input.payload_bytes
    working = asyncio.ensure_future(island.run())
    server = GrpcServer(island.serve, "127.0.0.1:0", payload_bytes=payload)
    await server.start()
    bundle_id = bytes.fromhex(bundle.manifest.id)
    frame = Frame(int.from_bytes(bundle_id[:8], "big"), 1, 1, 0, np.ones(payload // 4, np.float32).tobytes())
    good = encode(frame)
    draw, replies, sent, before = random.Random(0), {"Refused": 0, "Answer": 0, "Dropped": 0}, 0, 0
    async with _greeted(server.address, bundle_id, last) as link:
        while sent < MUTATED_FRAMES:
            mutated = [_mutated(good, draw) if i % 2 else encode(_twisted(frame, draw)) for i in range(50)]
            for content in mutated:
                await link.send(content)
            for _ in mutated:
                reply = decode_server(await asyncio.wait_for(link.receive(), 10) or b"")
                replies[type(reply).__name__] += 1
                assert not isinstance(reply, Refused) or reply.text
            sent += len(mutated)
            if sent == MUTATED_FRAMES // 10:
                before = _resident()
        await link.send(good)
        crashed = not isinstance(decode_server(await link.receive() or b""), (Answer, Refused))
    grown = _resident() - before
    await server.stop()
    crashed |= working.done()
    working.cancel()
    faults = {fault.name.lower(): count for fault, count in island.stats.refused.items()}
    left = sent - sum(replies.values())
    return {"sent": sent, **replies, "faults": faults, "without_reply": left, "crashed": crashed, "grown_bytes": grown}


@asynccontextmanager
async def _greeted(address: str, bundle: bytes, stage: int) -> AsyncIterator[Any]:
    link = await grpc_connector(address)()
    await link.send(encode(Hello(bundle, stage)))
    await link.receive()
    yield link
    await link.close()


def _twisted(frame: Frame, draw: random.Random) -> Frame:
    """Change fields of a frame: what comes is protobuf, and may be wrong all the same."""
    payload = frame.payload
    wrong: dict[str, Callable[[], Any]] = {
        "bundle": lambda: draw.getrandbits(64),
        "captured_us": lambda: draw.choice((0, 1, MAX_SEQUENCE)),
        "payload": lambda: draw.choice(
            (b"", payload[:-1], payload + b"\0", 2 * payload, b"\xff" * len(payload), draw.randbytes(len(payload)))
        ),
        "coding": lambda: draw.choice((1, 2, 7, 2**31 - 1)),
        "deadline_ms": lambda: draw.choice((1, 2**32 - 1)),
        "shadow": lambda: True,
    }
    if draw.random() < 0.2:  # a payload that unpacks to more than a stage accepts, or to nothing
        bomb = draw.choice((BOMB, zlib.compress(payload)[:-3], zlib.compress(b"")))
        return frame._replace(sequence=draw.getrandbits(64), payload=bomb, coding=Coding.DEFLATE)
    names = draw.sample(sorted(wrong), draw.randint(1, 3))
    return frame._replace(sequence=draw.getrandbits(64), **{name: wrong[name]() for name in names})


def _mutated(content: bytes, draw: random.Random) -> bytes:
    """Change, cut out or put in some bytes; no longer than an island accepts."""
    made = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        at, size = draw.randrange(len(made) + 1), draw.randint(0, 12)
        made[at : at + draw.randint(0, 12)] = draw.randbytes(size)
        if not made:
            made += b"\0"
    return bytes(made)


def _mutated_bundles(folder: Path, bundle: Bundle) -> dict[str, Any]:
    draw, refused, accepted, silent, before = random.Random(1), 0, 0, 0, 0
    files = [folder / "manifest.json", *(folder / stage.file for stage in bundle.manifest.stages)]
    for number in range(MUTATED_BUNDLES):
        path = draw.choice(files)
        content = path.read_bytes()
        path.write_bytes(_mutated(content, draw))
        try:
            accepted += Bundle.read(folder) != bundle
        except BundleError as error:
            refused += 1
            silent += not str(error)
        finally:
            path.write_bytes(content)
        if number == MUTATED_BUNDLES // 10:
            before = _resident()
    assert Bundle.read(folder) == bundle
    grown = _resident() - before
    return {"refused": refused, "accepted": accepted, "without_reason": silent, "grown_bytes": grown}


def _resident() -> int:
    """Return the memory that this process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def start() -> list[Figure]:
    """Seconds until `import penstock` is done on a device, and until `penstock run` has its first answer."""
    net, x = network(0.4)
    with exported(net, x) as (folder, _):
        np.save(folder / "x.npy", x[:1].numpy())
        device = "import sys; sys.modules['torch'] = None; "
        run = f"{device}sys.argv = ['penstock', 'run', {str(folder)!r}, {str(folder / 'x.npy')!r}]; {MAIN}"
        commands = {"nothing": "pass", "import": f"{device}import penstock", "run": run}
        seconds = best_seconds(
            {
                name: lambda code=code: subprocess.run(
                    [sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL
                )
                for name, code in commands.items()
            },
            rounds=5,
        )
    return [
        Figure("import penstock on a device: seconds, with Python's own start", seconds["import"], "<=", 0.5, seconds),
        Figure("penstock run: seconds to the first answer", seconds["run"], "<=", 2.0, seconds),
    ]
