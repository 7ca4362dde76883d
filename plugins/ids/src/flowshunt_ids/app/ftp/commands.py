"""FTP's commands, and the addresses and ports that commands and replies name (RFC 959, RFC 2428)."""

import re

COMMANDS = (
    "PORT", "EPRT", "AUTH TLS", "PASV", "RETR", "EPSV", "STOR", "ABOR", "ACCT", "ALLO", "APPE", "CDUP", "CHMOD", "CWD",
    "DELE", "HELP", "IDLE", "LIST", "MAIL", "MDTM", "MKD", "MLFL", "MODE", "MRCP", "MRSQ", "MSAM", "MSND", "MSOM",
    "NLST", "NOOP", "PASS", "PWD", "QUIT", "REIN", "REST", "RMD", "RNFR", "RNTO", "SITE", "SIZE", "SMNT", "STAT",
    "STOU", "STRU", "SYST", "TYPE", "UMASK", "USER",
)  # fmt: skip
_COMMAND = re.compile("|".join(COMMANDS).encode(), re.IGNORECASE)
_PORT = re.compile(rb"PORT (?:\d{1,10},){4}(\d{1,5}),(\d{1,5})", re.IGNORECASE)
_PASSIVE = re.compile(rb"227[^(]*\((?:\d{1,10},){4}(\d{1,5}),(\d{1,5})\)")
_EXTENDED = re.compile(rb"EPRT \|[12]\|[^|]{0,64}\|(\d{1,5})\|", re.IGNORECASE)
_EXTENDED_PASSIVE = re.compile(rb"229[^|]*\|\|\|(\d{1,5})\|")
_ADDRESS = re.compile(rb"\D*(\d{1,3})\s*,(\d{1,3})\s*,(\d{1,3})\s*,(\d{1,3})\s*,")


def command_of(line: bytes) -> str | None:
    """The command of a line: the first that stands anywhere in it, as Suricata looks for it; None: none does."""
    found = _COMMAND.search(line)
    return found[0].decode().upper() if found else None


def _pair(expression: "re.Pattern[bytes]", line: bytes) -> int:
    found = expression.match(line)
    if found is None:
        return 0
    high, low = int(found[1]), int(found[2])
    return high << 8 | low if high < 256 and low < 256 else 0


def _single(expression: "re.Pattern[bytes]", line: bytes) -> int:
    found = expression.match(line)
    port = int(found[1]) if found is not None else 0
    return port if port < 65536 else 0


def active_port(line: bytes) -> int:
    """The port of a PORT command; 0 where there is none."""
    return _pair(_PORT, line)


def extended_port(line: bytes) -> int:
    """The port of an EPRT command; 0 where there is none."""
    return _single(_EXTENDED, line)


def passive_port(line: bytes) -> int:
    """The port of a reply to PASV; 0 where there is none."""
    return _pair(_PASSIVE, line)


def extended_passive_port(line: bytes) -> int:
    """The port of a reply to EPSV; 0 where there is none."""
    return _single(_EXTENDED_PASSIVE, line)


def bounces(line: bytes, client: bytes) -> bool:
    """Whether a PORT command names another IPv4 address than its sender's (4 bytes)."""
    found = _ADDRESS.match(line)
    if found is None or len(line) < 7:
        return False
    numbers = [int(each) for each in found.groups()]
    return max(numbers) <= 255 and bytes(numbers) != client
