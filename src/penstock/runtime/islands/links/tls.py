"""Certificates for mutual TLS."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import LinkError


@dataclass(frozen=True)
class TlsConfig:
    """Files for mutual TLS, in PEM, such as `penstock certs` writes.

    Attributes:
        certificate, key: of this end.
        authority: the certificate of the authority that signed the other end's.
    """

    certificate: Path | str
    key: Path | str
    authority: Path | str

    def read(self) -> tuple[bytes, bytes, bytes]:
        """Return the contents of certificate, key and authority.

        Raises:
            LinkError: if a file cannot be read, or is not what it should be.
        """
        try:
            certificate, key, authority = (
                Path(file).read_bytes() for file in (self.certificate, self.key, self.authority)
            )
        except OSError as error:
            raise LinkError(
                f"cannot read {error.filename}: {error.strerror}. Create certificates with penstock certs."
            ) from error
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_cert_chain(self.certificate, self.key, password="")  # an encrypted key fails, without a prompt
        except (ssl.SSLError, ValueError) as error:
            raise LinkError(
                f"{self.certificate} and {self.key} are not a certificate and its unencrypted key in PEM: {error}. "
                "Create them with penstock certs."
            ) from error
        try:
            context.load_verify_locations(self.authority)
        except (ssl.SSLError, ValueError) as error:
            raise LinkError(
                f"{self.authority} is not an authority's certificate in PEM: {error}. Create one with penstock certs."
            ) from error
        return certificate, key, authority
