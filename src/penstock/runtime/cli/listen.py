"""`penstock listen`: run a bundle on a recording, standard input or a microphone, and show detections live."""

from __future__ import annotations

import argparse
import asyncio
import io
import math
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import DataError, PenstockError
from penstock.runtime.bundle.bundle import Bundle
from penstock.runtime.bundle.manifest import Manifest
from penstock.runtime.cli.island import require_links
from penstock.runtime.cli.listen_display import Display, JsonDisplay, TextDisplay
from penstock.runtime.cli.parsing import parser_of
from penstock.runtime.streaming.frontend import Sensor
from penstock.runtime.streaming.listener import Chunk, Listener, stream_config_of

if TYPE_CHECKING:  # imported by the command, so that others start quickly
    from penstock.runtime.streaming.remote import RemoteListener

BLOCK_S = 0.1  # sound per block; a detection may be this much later for it
ANSWER_TIMEOUT_S = 60.0  # for islands that process a recording; live sound waits for them forever


def penstock_listen(arguments: Sequence[str]) -> None:
    """Run a bundle on a recording, on raw sound from standard input, or on a microphone, and show detections live."""
    args = _parse(arguments)
    bundle = Bundle.read(args.bundle)
    config = stream_config_of(bundle.manifest)
    if isinstance(config.frontend, Sensor):
        raise DataError(
            f"penstock listen expects a bundle for sound, got one for a sensor of {config.frontend.axes} axes: push "
            "its samples to penstock.runtime.streaming.listener.Listener."
        )
    deployed = bundle.manifest  # islands know the bundle by its id, which another threshold would change
    if args.threshold is not None:
        config = replace(config, detector=config.detector.at(args.threshold))
        bundle = replace(bundle, manifest=replace(deployed, stream_config=config))
    blocks = _blocks(args, config.frontend.rate_hz)
    live = sys.stderr.isatty() and not args.quiet
    display = JsonDisplay() if args.json else TextDisplay(bundle.manifest, live=live)
    if args.islands is None:
        listener = Listener(bundle, threads=args.threads)
        with _closing(display, listener):
            for result in listener.listen(blocks):
                display.window(result)
    else:
        require_links()
        asyncio.run(_run_on_islands(bundle.manifest, deployed, args, blocks, display))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = parser_of(penstock_listen, "penstock listen bundle/ evening.wav")
    parser.add_argument("bundle", type=Path, help="bundle folder, from penstock wakeword train")
    parser.add_argument(
        "recording", nargs="?", help="wav, flac or ogg file; - for raw 16-bit little-endian sound on standard input"
    )
    parser.add_argument("--microphone", action="store_true", help="listen to the microphone, until Ctrl-C")
    parser.add_argument("--device", help="number or name of the microphone; python -m sounddevice lists them")
    parser.add_argument("--rate", type=int, help="sample rate of raw sound in Hz (default: 16000)")
    parser.add_argument("--channels", type=int, help="channels of raw sound (default: 1)")
    parser.add_argument("--threshold", type=float, help="log-odds that a word must reach (default: the bundle's)")
    parser.add_argument("--islands", metavar="HOST:PORT", help="run the stages on islands; address of the first one")
    parser.add_argument("--threads", type=int, default=1, help="threads per stage (default: 1)")
    parser.add_argument("--quiet", action="store_true", help="do not show the meter")
    parser.add_argument("--json", action="store_true", help="print a line of JSON per event, and one at the end")
    args = parser.parse_args(arguments)
    if (args.recording is None) != args.microphone:
        parser.error("give a recording, - for standard input, or --microphone: one of them")
    if args.recording != "-" and (args.rate is not None or args.channels is not None):
        parser.error("--rate and --channels apply to raw sound on standard input only")
    if args.device is not None and not args.microphone:
        parser.error("--device needs --microphone")
    if args.threads < 1:
        parser.error(f"--threads must be at least 1, got {args.threads}")
    if args.threshold is not None and not math.isfinite(args.threshold):
        raise DataError(f"--threshold must be a finite number, got {args.threshold}.")
    return args


def _blocks(args: argparse.Namespace, rate_hz: int) -> Iterator[Chunk]:
    from penstock.runtime.audio.file import recording
    from penstock.runtime.audio.microphone import microphone
    from penstock.runtime.audio.stdin import pipe

    block = round(BLOCK_S * rate_hz)
    if args.microphone:
        device = int(args.device) if args.device and args.device.isdigit() else args.device
        return microphone(rate_hz, device, block=block)
    if args.recording == "-":
        unbuffered = io.FileIO(sys.stdin.fileno(), closefd=False)  # a thread may still read it when the program ends
        rate, channels = 16_000 if args.rate is None else args.rate, 1 if args.channels is None else args.channels
        return pipe(unbuffered, rate_hz, rate, channels=channels, block=block)  # type: ignore[arg-type]
    return recording(Path(args.recording), rate_hz, block=block)


async def _run_on_islands(
    manifest: Manifest, deployed: Manifest, args: argparse.Namespace, blocks: Iterator[Chunk], display: Display
) -> None:
    """Listen with the stages on islands, which run the ``deployed`` bundle."""
    from penstock.runtime.islands.client import Client
    from penstock.runtime.islands.links.table import connector_for
    from penstock.runtime.streaming.remote import RemoteListener

    timeout_s = None if args.microphone or args.recording == "-" else ANSWER_TIMEOUT_S
    async with Client(deployed, connector_for(args.islands)) as client:
        listener = RemoteListener(manifest, client, timeout_s=timeout_s)
        with _closing(display, listener):
            async for result in listener.listen(_read_in_thread(blocks)):
                display.window(result)


@contextmanager
def _closing(display: Display, listener: Listener | RemoteListener) -> Iterator[None]:
    """Show the end of what is listened to: regular, by Ctrl-C, or before an error such as a truncated file."""
    try:
        yield
    except (KeyboardInterrupt, asyncio.CancelledError):  # Ctrl-C, the latter on islands
        display.interrupted()
        display.events(listener.end())
    except PenstockError:
        if listener.stats.windows:
            display.end(listener.stats)
        raise
    display.end(listener.stats)


async def _read_in_thread(blocks: Iterator[Chunk]) -> AsyncIterator[Chunk]:
    """Yield blocks that a thread reads, so that a stalled pipe blocks nothing, not even the end of the program."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Queue[Chunk | PenstockError | None] = asyncio.Queue(8)

    def put(item: Chunk | PenstockError | None) -> None:
        asyncio.run_coroutine_threadsafe(ready.put(item), loop).result()

    def read() -> None:
        with suppress(RuntimeError, CancelledError):  # the loop has ended
            try:
                for block in blocks:
                    put(block)
                put(None)
            except PenstockError as error:
                put(error)

    threading.Thread(target=read, daemon=True).start()
    while (item := await ready.get()) is not None:
        if isinstance(item, PenstockError):
            raise item
        yield item
