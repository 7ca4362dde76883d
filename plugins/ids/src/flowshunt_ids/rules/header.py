"""A rule's header: action, protocol, addresses, ports, direction."""

import attrs

from flowshunt_ids.rules.language import Language
from flowshunt_ids.rules.lexer import RawRule, RuleError
from flowshunt_ids.rules.rule import Action, Header
from flowshunt_ids.rules.variables import Addresses, Variables, parse_addresses, parse_ports

ACTIONS = {
    "alert": Action.ALERT,
    "pass": Action.PASS,
    "drop": Action.DROP,
    "reject": Action.REJECT,
    "rejectsrc": Action.REJECT,
    "rejectdst": Action.REJECT,
    "rejectboth": Action.REJECT,
    "config": Action.CONFIG,
}

TCP = 6
UDP = 17
ICMP = 1
ICMPV6 = 58
SCTP = 132

PROTOCOLS: dict[str, frozenset[int] | None] = {
    "ip": None,
    "pkthdr": None,
    "ip4": None,
    "ipv4": None,
    "ip6": None,
    "ipv6": None,
    "tcp": frozenset({TCP}),
    "tcp-pkt": frozenset({TCP}),
    "tcp-stream": frozenset({TCP}),
    "udp": frozenset({UDP}),
    "icmp": frozenset({ICMP, ICMPV6}),
    "icmpv4": frozenset({ICMP}),
    "icmpv6": frozenset({ICMPV6}),
    "sctp": frozenset({SCTP}),
}


def parse_header(raw: RawRule, variables: Variables, language: Language) -> Header:
    """Read a rule's first seven words. Raises `RuleError`."""
    action = ACTIONS.get(raw.action)
    if action is None:
        raise RuleError(
            f"{raw.action!r} is not an action (alert, pass, drop, reject, rejectsrc, rejectdst, rejectboth, config)"
        )
    protocol = raw.protocol.lower()
    app_protocol = None
    if protocol in PROTOCOLS:
        protocols = PROTOCOLS[protocol]
    else:
        application = language.protocol(protocol)
        app_protocol, protocols = application.name, application.ip_protocols
    if raw.direction not in ("->", "<>"):
        raise RuleError(f"{raw.direction!r} is not a direction ('->' or '<>')")
    source = parse_addresses(raw.source, variables.addresses)
    destination = parse_addresses(raw.destination, variables.addresses)
    if protocol in ("ip4", "ipv4", "icmpv4"):
        source, destination = (_only(source, 4), _only(destination, 4))
    elif protocol in ("ip6", "ipv6", "icmpv6"):
        source, destination = (_only(source, 6), _only(destination, 6))
    return Header(
        action,
        raw.action,
        protocol,
        protocols,
        source,
        parse_ports(raw.source_ports, variables.ports),
        destination,
        parse_ports(raw.destination_ports, variables.ports),
        raw.direction == "<>",
        app_protocol,
    )


def _only(addresses: Addresses, version: int) -> Addresses:
    kept = attrs.evolve(addresses, ipv6=()) if version == 4 else attrs.evolve(addresses, ipv4=())
    if not kept.ipv4 and not kept.ipv6:
        raise RuleError(f"no IPv{version} address is left for a protocol of IPv{version}")
    return kept
