"""The links there are, by the scheme of an address."""

from __future__ import annotations

import difflib

from penstock.errors import LinkError, require
from penstock.runtime.islands.links.link import Connector, Link
from penstock.runtime.islands.links.tls import TlsConfig

# URL scheme -> (the module whose ``LINK`` it is, the extra that installs what it imports). A module is imported when an
# address uses its scheme.
LINKS = {
    "grpc": ("penstock.runtime.islands.links.grpc", "links"),
}
DEFAULT = "grpc"


def link_for(address: str) -> tuple[Link, str]:
    """Return the link of an address, and the address without its scheme; raise LinkError if either is unknown.

    >>> link_for("grpc://127.0.0.1:7001")[1], link_for("127.0.0.1:7001")[1]
    ('127.0.0.1:7001', '127.0.0.1:7001')
    """
    scheme, separator, rest = address.partition("://")
    if not separator:
        scheme, rest = DEFAULT, address
    if scheme not in LINKS:
        close = difflib.get_close_matches(scheme, LINKS) or sorted(LINKS)
        raise LinkError(f"no link for {scheme}:// in {address!r}; use {' or '.join(f'{name}://' for name in close)}.")
    module, extra = LINKS[scheme]
    link = require(module, extra=extra).LINK
    assert isinstance(link, Link)
    link.check_address(rest)
    return link, rest


def connector_for(address: str, *, tls: TlsConfig | None = None) -> Connector:
    """Return a connector to an address of any link; see `link_for`."""
    link, rest = link_for(address)
    return link.connector(rest, tls=tls)
