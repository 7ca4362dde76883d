"""DNS as a protocol of the application layer: recognition, buffers, conditions, EVE."""

from typing import Any

from flowshunt_ids.app.contract import TO_CLIENT, TO_SERVER, AppProtocol, Buffer, ConditionKind, Probe
from flowshunt_ids.app.dns.message import AAAA, CNAME, MX, NS, NULL, PTR, SOA, SRV, SSHFP, TXT, A, Name, Record
from flowshunt_ids.app.dns.parser import DONE, DnsParser, DnsTransaction, recognized_datagram, recognized_stream
from flowshunt_ids.rules.keywords.builder import Keyword, RuleBuilder, whole_number
from flowshunt_ids.rules.rule import Condition

_TYPES = {
    1: "A", 2: "NS", 3: "MD", 4: "MF", 5: "CNAME", 6: "SOA", 7: "MB", 8: "MG", 9: "MR", 10: "NULL", 11: "WKS", 12:
    "PTR", 13: "HINFO", 14: "MINFO", 15: "MX", 16: "TXT", 17: "RP", 18: "AFSDB", 19: "X25", 20: "ISDN", 21: "RT",
    22: "NSAP", 23: "NSAPPTR", 24: "SIG", 25: "KEY", 26: "PX", 27: "GPOS", 28: "AAAA", 29: "LOC", 30: "NXT", 33:
    "SRV", 34: "ATMA", 35: "NAPTR", 36: "KX", 37: "CERT", 38: "A6", 39: "DNAME", 41: "OPT", 42: "APL", 43: "DS", 44:
    "SSHFP", 45: "IPSECKEY", 46: "RRSIG", 47: "NSEC", 48: "DNSKEY", 49: "DHCID", 50: "NSEC3", 51: "NSEC3PARAM", 52:
    "TLSA", 55: "HIP", 59: "CDS", 60: "CDNSKEY", 65: "HTTPS", 99: "SPF", 249: "TKEY", 250: "TSIG", 252: "MAILA",
    255: "ANY", 256: "URI",
}  # fmt: skip
_CODES = (
    "NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN", "YXRRSET", "NXRRSET", "NOTAUTH",
    "NOTZONE",
)  # fmt: skip
_FLAGS = (("qr", 0x8000), ("aa", 0x0400), ("tc", 0x0200), ("rd", 0x0100), ("ra", 0x0080), ("z", 0x0040))


def _queries(transaction: DnsTransaction, direction: int) -> list[bytes] | None:
    if transaction.direction != TO_SERVER or direction != TO_SERVER:
        return None
    return [question.name.value for question in transaction.message.questions]


def _opcode(transaction: DnsTransaction, direction: int, value: tuple[int, bool]) -> bool:
    wanted, negated = value
    return transaction.direction == direction and (transaction.message.opcode == wanted) != negated


def _read_opcode(rule: RuleBuilder, value: str) -> None:
    text = value.replace(" ", "").replace("\t", "")
    number = whole_number(text.removeprefix("!"), "dns.opcode", 0, 255)
    rule.add_condition(Condition("dns.opcode", (number, text.startswith("!"))), "dns")


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _type(number: int) -> str:
    return _TYPES.get(number, str(number))


def _data(record: Record) -> dict[str, Any]:
    data = record.data
    if record.type == A and len(data) == 4:
        return {"rdata": ".".join(map(str, data))}
    if record.type == AAAA and len(data) == 16:
        return {"rdata": data.hex(":", 2)}
    if record.type in (CNAME, NS, PTR, MX):
        return {"rdata": _text(data.value)}
    if record.type in (TXT, NULL):
        return {"rdata": _text(data)}
    if record.type in (SOA, SRV, SSHFP):
        fields = {name: _text(value.value) if isinstance(value, Name) else value for name, value in data.items()}
        return {{SOA: "soa", SRV: "srv", SSHFP: "sshfp"}[record.type]: fields}
    return {}


def _record(record: Record) -> dict[str, Any]:
    return {"rrname": _text(record.name.value), "rrtype": _type(record.type), "ttl": record.ttl, **_data(record)}


def event(transaction: DnsTransaction) -> tuple[str, dict[str, Any]] | None:
    """The `dns` event of a message (version 2 of its form)."""
    message = transaction.message
    if transaction.direction == TO_SERVER:
        if not message.questions:
            return None
        question = message.questions[0]
        return "dns", {
            "type": "query",
            "id": message.id,
            "rrname": _text(question.name.value),
            "rrtype": _type(question.type),
            "tx_id": transaction.number,
            "opcode": message.opcode,
        }
    code = message.flags & 15
    fields: dict[str, Any] = {"version": 2, "type": "answer", "id": message.id, "flags": f"{message.flags:x}"}
    fields.update({name: True for name, bit in _FLAGS if message.flags & bit})
    fields["opcode"] = message.opcode
    if message.questions:
        fields["rrname"] = _text(message.questions[0].name.value)
        fields["rrtype"] = _type(message.questions[0].type)
    fields["rcode"] = _CODES[code] if code < len(_CODES) else str(code)
    if message.answers:
        fields["answers"] = [_record(record) for record in message.answers]
        grouped: dict[str, list[Any]] = {}
        for record in message.answers:
            data = _data(record)
            if data:
                grouped.setdefault(_type(record.type), []).append(next(iter(data.values())))
        fields["grouped"] = grouped
    if message.authorities:
        fields["authorities"] = [_record(record) for record in message.authorities]
    return "dns", fields


DNS = AppProtocol(
    "dns",
    DnsParser,
    (DONE, DONE),
    transports=frozenset({6, 17}),
    probes=(
        Probe(recognized_datagram, (53,), TO_SERVER, frozenset({17})),
        Probe(recognized_datagram, (53,), TO_CLIENT, frozenset({17})),
        Probe(recognized_stream, (53,), TO_SERVER, frozenset({6})),
        Probe(recognized_stream, (53,), TO_CLIENT, frozenset({6})),
    ),
    events=frozenset(
        {
            "malformed_data", "not_request", "not_response", "z_flag_set", "invalid_opcode", "name_too_long",
            "infinite_loop", "too_many_labels",
        }
    ),
    eve=event,
    eve_types=frozenset({"dns"}),
)  # fmt: skip
BUFFERS = (Buffer("dns.query", ("dns",), _queries, (DONE, None), aliases=("dns_query",), multiple=True, chained=False),)
CONDITIONS = (ConditionKind("dns.opcode", ("dns",), (DONE, DONE), _opcode),)
KEYWORDS = {"dns.opcode": Keyword(_read_opcode)}
