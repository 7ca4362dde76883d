"""What EVE tells of a transaction: its own event, and one for each of its files."""

from typing import Any

from flowshunt_ids.app.contract import TO_SERVER, AppProtocol
from flowshunt_ids.app.files import magic


def events_of(protocol: AppProtocol, transaction: Any) -> list[tuple[int, str, dict[str, Any]]]:
    """A transaction's events: the direction whose sender is their source, the type, and the fields."""
    if protocol.eve is None:
        return []
    own = protocol.eve(transaction)
    made: list[tuple[int, str, dict[str, Any]]] = []
    beside = protocol.eve_further(transaction) if protocol.eve_further is not None else {}
    if own is not None:
        kind, fields = own
        made.append((TO_SERVER, kind, {"tx_id": transaction.number, kind: fields, **beside}))
    for file in transaction.files:
        info: dict[str, Any] = {
            "filename": file.name.decode("utf-8", "replace"),
            "gaps": False,
            "state": file.state.upper() if file.state != "open" else "UNKNOWN",
            "stored": False,
            "size": file.size,
            "tx_id": transaction.number,
            **file.digests,
        }
        if file.data:
            info["magic"] = magic(file)
        about = {own[0]: own[1]} if own is not None else {}
        made.append((file.direction, "fileinfo", {**about, **beside, "app_proto": protocol.name, "fileinfo": info}))
    return made
