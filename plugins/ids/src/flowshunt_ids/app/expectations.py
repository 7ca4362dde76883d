"""Flows that other flows announced, such as FTP's connections for data."""

from collections import OrderedDict
from typing import Any

from flowshunt_ids.app.contract import ExpectedFlow

TIMEOUT = 30 * 1_000_000_000
"""How long a flow is expected, in ns."""
MOST_OF_PAIR = 10
"""Flows that are expected between two hosts; of more, the oldest are given up."""
MOST_PAIRS = 1 << 14
"""Pairs of hosts that flows are expected between; of more, the oldest are given up."""


def address_of(record: Any, side: str) -> bytes:
    """An address of a FLOW row: 4 or 16 bytes. side: "source" or "destination"."""
    return bytes(record[side].tobytes()[: 4 if record["ip_version"] == 4 else 16])


def _pair(record: Any) -> tuple[bytes, ...]:
    return tuple(sorted((record["source"].tobytes(), record["destination"].tobytes())))


class Expectations:
    """What is expected, by pairs of hosts."""

    def __init__(self) -> None:
        self._pairs: OrderedDict[tuple[bytes, ...], list[tuple[int, ExpectedFlow]]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._pairs)

    def add(self, record: Any, expected: ExpectedFlow) -> None:
        """Note what a flow announced. record: its FLOW row."""
        known = self._pairs.setdefault(_pair(record), [])
        known.append((int(record["last"]), expected))
        del known[:-MOST_OF_PAIR]
        if len(self._pairs) > MOST_PAIRS:
            self._pairs.popitem(last=False)

    def take(self, record: Any, direction: int) -> ExpectedFlow | None:
        """What was announced of a flow of which data of a direction came; that is not expected any more then."""
        pair = _pair(record)
        known = self._pairs.get(pair)
        if known is None:
            return None
        now, port = int(record["last"]), int(record["destination_port"])
        known[:] = [each for each in known if now - each[0] <= TIMEOUT]
        found = None
        for at in range(len(known) - 1, -1, -1):
            expected = known[at][1]
            if expected.direction == direction and expected.port == port:
                found = expected
                del known[at]
                break
        if not known:
            del self._pairs[pair]
        return found
