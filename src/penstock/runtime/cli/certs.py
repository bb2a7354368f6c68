"""The command `penstock certs`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.errors import require
from penstock.runtime.cli.parsing import parser_of


def penstock_certs(arguments: Sequence[str]) -> None:
    """Create certificates for development: an authority, and a certificate for each island."""
    parser = parser_of(penstock_certs, "penstock certs certificates/ hub.local 192.168.1.7")
    parser.add_argument("folder", type=Path, help="output folder; an authority in it signs the new certificates too")
    parser.add_argument(
        "names", nargs="+", metavar="HOST", help="host name or IP address of an island; replaces its certificate"
    )
    args = parser.parse_args(arguments)
    require("penstock.runtime.islands.ops.certificates", extra="certs")
    from penstock.runtime.islands.ops.certificates import write_certificates

    before = set(args.folder.glob("*"))
    for path in write_certificates(args.folder, args.names):
        print(f"{'Replaced' if path in before else 'Created'} {path}")
