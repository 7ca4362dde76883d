"""SSH as a protocol of the application layer: recognition, EVE, bypass."""

from collections.abc import Mapping
from typing import Any, Final

from flowshunt_ids.app.contract import TO_CLIENT, TO_SERVER, AppProtocol, BypassWish, DetectionPattern
from flowshunt_ids_ssh.parser import FINISHED, Side, SshParser, SshTransaction

_EVENTS: Final = frozenset({"invalid_banner", "long_banner", "invalid_record"})


def _side(side: Side) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if side.protocol is not None and side.software is not None:
        fields["proto_version"] = side.protocol.decode("utf-8", "replace")
        fields["software_version"] = side.software.decode("utf-8", "replace")
    if side.hassh is not None:
        fields["hassh"] = {"hash": side.hassh_hash, "string": side.hassh}
    return fields


def event(transaction: SshTransaction) -> tuple[str, dict[str, Any]] | None:
    """The `ssh` event of a connection; None where no banner was seen."""
    sides = {"client": transaction.sides[TO_SERVER], "server": transaction.sides[TO_CLIENT]}
    fields = {name: told for name, side in sides.items() if (told := _side(side))}
    return ("ssh", fields) if fields else None


def encrypted(parser: SshParser, settings: Mapping[str, Any]) -> str:
    """What `encryption-handling` says of flows whose keys are agreed: "bypass" lets go of them."""
    return "ssh encrypted" if parser.bypass and settings.get("encryption-handling") == "bypass" else ""


SSH = AppProtocol(
    "ssh",
    SshParser,
    (FINISHED, FINISHED),
    patterns=(DetectionPattern(b"SSH-", TO_SERVER), DetectionPattern(b"SSH-", TO_CLIENT)),
    events=_EVENTS,
    eve=event,
    eve_types=frozenset({"ssh"}),
)
BYPASS = BypassWish("ssh", encrypted)
