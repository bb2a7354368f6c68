"""The commands of a device, one file each: argparse alone, and a command loads only what it needs."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

COMMANDS = {
    "run": "Run a bundle on pictures or samples, stage by stage, stopping at the gates.",
    "listen": "Listen to a recording, standard input or a microphone, and print detections live.",
    "island": "Serve one stage over gRPC: answer frames, or forward them to the next island.",
    "up": "Run all islands of a bundle on this machine, with a live table.",
    "certs": "Create certificates for development: an authority, and one for each island.",
    "serve": "Serve one stage over gRPC, on Ray Serve replicas that scale with the load.",
}
"""`penstock run` is the function `penstock_run` in the module run, and so on."""


def run_command(name: str, arguments: Sequence[str]) -> None:
    """Run one of `COMMANDS`."""
    getattr(import_module(f"penstock.runtime.cli.{name}"), f"penstock_{name}")(arguments)
