"""Keywords and protocols that Suricata has and this engine has not: why a rule that names one is not loaded."""

import re

_PROTOCOLS = {
    "bittorrent-dht": "bittorrent-dht",
    "cip": "enip",
    "dce": "dcerpc",
    "dcerpc": "dcerpc",
    "dhcp": "dhcp",
    "dnp3": "dnp3",
    "dns": "dns",
    "doh2": "doh2",
    "email": "smtp",
    "enip": "enip",
    "file": "http",
    "ftp": "ftp",
    "ftp-data": "ftp-data",
    "ftpbounce": "ftp",
    "ftpdata": "ftp-data",
    "hassh": "ssh",
    "http": "http",
    "http1": "http",
    "http2": "http2",
    "ike": "ike",
    "ikev1": "ike",
    "ikev2": "ike",
    "imap": "imap",
    "ja3": "tls",
    "ja3s": "tls",
    "ja4": "tls",
    "krb5": "krb5",
    "ldap": "ldap",
    "mdns": "mdns",
    "modbus": "modbus",
    "mqtt": "mqtt",
    "nfs": "nfs",
    "ntp": "ntp",
    "pgsql": "pgsql",
    "pop3": "pop3",
    "quic": "quic",
    "rdp": "rdp",
    "rfb": "rfb",
    "sip": "sip",
    "smb": "smb",
    "smtp": "smtp",
    "snmp": "snmp",
    "ssh": "ssh",
    "ssl": "tls",
    "telnet": "telnet",
    "tftp": "tftp",
    "tls": "tls",
    "uricontent": "http",
    "urilen": "http",
    "vxlan": "vxlan",
    "websocket": "websocket",
}


def protocol_of(name: str) -> str | None:
    """The protocol that a keyword or a protocol's name belongs to; None: not known."""
    return _PROTOCOLS.get(name) or _PROTOCOLS.get(re.split(r"[._]", name, maxsplit=1)[0])


def why_absent(name: str) -> str | None:
    """Why a keyword or protocol of Suricata's can't be used; None where Suricata doesn't know it either."""
    protocol = protocol_of(name)
    return None if protocol is None else f"protocol {protocol}: not supported"
