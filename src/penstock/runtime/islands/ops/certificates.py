"""Certificates for development: an authority of your own, and a certificate for each island that it signs.

trustme issues them; this module keeps them in a folder. In production, use certificates of a managed authority.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

import trustme
from cryptography.x509 import ExtensionNotFound

from penstock.errors import LinkError
from penstock.runtime.files import make_folder, write_atomically

AUTHORITY = "authority"
MAX_NAME = 64  # characters in the common name of a certificate
VALID = datetime.timedelta(days=365)
CLOCK_SKEW = datetime.timedelta(minutes=5)


def write_certificates(folder: Path, names: Sequence[str]) -> list[Path]:
    """Write an authority, and a certificate and key for each name; return the files written.

    An authority that is already in the folder signs the new certificates, so that islands can be added later.

    Args:
        names: host names or IP addresses that clients connect to, such as hub.local or 192.168.1.7. Each certificate
            is also valid for localhost and 127.0.0.1.

    Raises:
        LinkError: if a name is not a host, or the authority in the folder cannot be used.
    """
    for name in names:
        is_odd = not name.isascii() or len(name) > MAX_NAME or any(letter.isspace() for letter in name) or "@" in name
        if not name or is_odd or name == AUTHORITY or Path(name).name != name or name.startswith("."):
            raise LinkError(f"invalid certificate name {name!r}: expected a host, such as hub.local.")
    make_folder(folder)
    written: list[Path] = []
    if (folder / f"{AUTHORITY}.pem").exists():
        authority = _read_authority(folder)
    else:
        authority = trustme.CA(path_length=0, organization_name="Penstock development authority")
        written += _write(folder, AUTHORITY, authority.cert_pem, authority.private_key_pem)
    now = datetime.datetime.now(datetime.timezone.utc)
    for name in names:
        hosts = dict.fromkeys((name, "localhost", "127.0.0.1"))
        try:
            leaf = authority.issue_cert(*hosts, common_name=name, not_before=now - CLOCK_SKEW, not_after=now + VALID)
        except (ValueError, ExtensionNotFound) as error:  # the name is not a host, or trustme cannot use the authority
            raise LinkError(f"cannot issue a certificate for {name!r}: {error}") from error
        written += _write(folder, name, leaf.cert_chain_pems[0], leaf.private_key_pem)
    return written


def _read_authority(folder: Path) -> trustme.CA:
    certificate, key = folder / f"{AUTHORITY}.pem", folder / f"{AUTHORITY}.key"
    try:
        return trustme.CA.from_pem(certificate.read_bytes(), key.read_bytes())
    except (OSError, ValueError, TypeError) as error:
        raise LinkError(f"cannot read the authority in {folder}: {error}. Choose another folder.") from error


def _write(folder: Path, name: str, certificate: trustme.Blob, key: trustme.Blob) -> list[Path]:
    """Write a certificate, and its key readable by its owner only."""
    files = [folder / f"{name}.pem", folder / f"{name}.key"]
    write_atomically(files[0], certificate.bytes())
    write_atomically(files[1], key.bytes(), private=True)
    return files
