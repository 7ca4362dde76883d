"""classification.config and reference.config: classes with their priorities, and reference systems."""

import re
from collections.abc import Mapping

import attrs

DEFAULT_PRIORITY = 3

DEFAULT_CLASSES: Mapping[str, tuple[str, int]] = {
    "not-suspicious": ("Not Suspicious Traffic", 3),
    "unknown": ("Unknown Traffic", 3),
    "bad-unknown": ("Potentially Bad Traffic", 2),
    "attempted-recon": ("Attempted Information Leak", 2),
    "successful-recon-limited": ("Information Leak", 2),
    "successful-recon-largescale": ("Large Scale Information Leak", 2),
    "attempted-dos": ("Attempted Denial of Service", 2),
    "successful-dos": ("Denial of Service", 2),
    "attempted-user": ("Attempted User Privilege Gain", 1),
    "unsuccessful-user": ("Unsuccessful User Privilege Gain", 1),
    "successful-user": ("Successful User Privilege Gain", 1),
    "attempted-admin": ("Attempted Administrator Privilege Gain", 1),
    "successful-admin": ("Successful Administrator Privilege Gain", 1),
    "rpc-portmap-decode": ("Decode of an RPC Query", 2),
    "shellcode-detect": ("Executable code was detected", 1),
    "string-detect": ("A suspicious string was detected", 3),
    "suspicious-filename-detect": ("A suspicious filename was detected", 2),
    "suspicious-login": ("An attempted login using a suspicious username was detected", 2),
    "system-call-detect": ("A system call was detected", 2),
    "tcp-connection": ("A TCP connection was detected", 4),
    "trojan-activity": ("A Network Trojan was detected", 1),
    "unusual-client-port-connection": ("A client was using an unusual port", 2),
    "network-scan": ("Detection of a Network Scan", 3),
    "denial-of-service": ("Detection of a Denial of Service Attack", 2),
    "non-standard-protocol": ("Detection of a non-standard protocol or event", 2),
    "protocol-command-decode": ("Generic Protocol Command Decode", 3),
    "web-application-activity": ("access to a potentially vulnerable web application", 2),
    "web-application-attack": ("Web Application Attack", 1),
    "misc-activity": ("Misc activity", 3),
    "misc-attack": ("Misc Attack", 2),
    "icmp-event": ("Generic ICMP event", 3),
    "inappropriate-content": ("Inappropriate Content was Detected", 1),
    "policy-violation": ("Potential Corporate Privacy Violation", 1),
    "default-login-attempt": ("Attempt to login by a default username and password", 2),
}
"""For a run whose configuration names no classification file; a rule's own `priority` goes first anyway."""

DEFAULT_REFERENCES: Mapping[str, str] = {
    "bugtraq": "http://www.securityfocus.com/bid/",
    "cve": "https://www.cve.org/CVERecord?id=",
    "url": "http://",
}


@attrs.frozen
class Classification:
    """Classes: short name to (description, priority). References: system to the prefix of its addresses."""

    classes: Mapping[str, tuple[str, int]] = DEFAULT_CLASSES
    references: Mapping[str, str] = DEFAULT_REFERENCES


_CLASS = re.compile(r"config\s+classification\s*:\s*([^,\s]+)\s*,\s*([^,]+?)\s*,\s*(\d{1,3})\s*")
_REFERENCE = re.compile(r"config\s+reference\s*:\s*(\S+)\s+(\S+)\s*")


def read_classes(text: str) -> dict[str, tuple[str, int]]:
    """The classes of a classification.config. Lines of another form are passed over; the first of a name counts."""
    classes: dict[str, tuple[str, int]] = {}
    for line in text.splitlines():
        found = _CLASS.fullmatch(line.strip())
        if found:
            classes.setdefault(found[1].lower(), (found[2], int(found[3])))
    return classes


def read_references(text: str) -> dict[str, str]:
    """The systems of a reference.config, by name in lower case."""
    references: dict[str, str] = {}
    for line in text.splitlines():
        found = _REFERENCE.fullmatch(line.strip())
        if found:
            references.setdefault(found[1].lower(), found[2])
    return references
