"""Certificates for a try-out: an authority of one's own, and a certificate for each island that it signs.

They are for a bench or a laboratory. In the field use those of an authority that somebody keeps.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from penstock.errors import LinkError
from penstock.runtime.files import make_folder, write_atomically

AUTHORITY = "authority"
LONGEST = 64
"""Letters of a name: a certificate has room for no more."""

VALID = datetime.timedelta(days=365)
PEM = serialization.Encoding.PEM


def write_certificates(folder: Path, names: Sequence[str]) -> list[Path]:
    """Write an authority, and a certificate and key for each name; return the files.

    An authority that is there already signs the new ones too, so that islands can be added later.

    Args:
        names: of islands: the host that others dial, such as hub.local or 192.168.1.7. Each is valid for this machine
            too.

    Raises:
        LinkError: when a name cannot be one, or what is there is no authority.
    """
    for name in names:
        odd = not name.isascii() or len(name) > LONGEST or any(letter.isspace() for letter in name)
        if not name or odd or name == AUTHORITY or Path(name).name != name or name.startswith("."):
            raise LinkError(f"{name!r} cannot be the name of an island's certificate: give a host, such as hub.local.")
    make_folder(folder)
    written: list[Path] = []
    if (folder / f"{AUTHORITY}.pem").exists():
        authority = _read(folder)
    else:
        authority = _new_authority()
        written += authority.write(folder, AUTHORITY)
    for name in names:
        written += _signed(name, authority).write(folder, name)
    return written


@dataclass(frozen=True)
class _Pair:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def write(self, folder: Path, name: str) -> list[Path]:
        """Write both; the key for nobody else to read."""
        secret = self.key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        files = [folder / f"{name}.pem", folder / f"{name}.key"]
        write_atomically(files[0], self.certificate.public_bytes(PEM))
        write_atomically(files[1], secret, private=True)
        return files


def _read(folder: Path) -> _Pair:
    try:
        certificate = x509.load_pem_x509_certificate((folder / f"{AUTHORITY}.pem").read_bytes())
        key = serialization.load_pem_private_key((folder / f"{AUTHORITY}.key").read_bytes(), None)
    except (OSError, ValueError) as error:
        raise LinkError(f"the authority in {folder} cannot be read: {error}. Choose another folder.") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise LinkError(f"the authority in {folder} is none that penstock certs made. Choose another folder.")
    return _Pair(certificate, key)


def _new_authority() -> _Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _named("Penstock test authority")
    made = _begun(name, name, key).add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return _Pair(made.sign(key, hashes.SHA256()), key)


def _signed(name: str, authority: _Pair) -> _Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    hosts = [_host(host) for host in dict.fromkeys((name, "localhost", "127.0.0.1"))]
    made = (
        _begun(_named(name), authority.certificate.subject, key)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    )
    return _Pair(made.sign(authority.key, hashes.SHA256()), key)


def _begun(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))  # clocks differ
        .not_valid_after(now + VALID)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
