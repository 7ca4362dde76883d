"""Rules that ask for events of packets (`decode-event`, `stream-event`): looked at only where there is an event."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowshunt_ids.events import NAMES, number
from flowshunt_ids.layout import GROUP, ROW_PASSED, SESSION_BYPASSED, SESSION_QUIET, Packets, RuleArrays
from flowshunt_ids.rules.rule import Rule
from flowshunt_ids.scanning import match_packets

_DIFFERENT = number("stream.reassembly_overlap_different_data")
_GAP = number("stream.reassembly_seq_gap")


class EventRules:
    """The rules of a set that ask for events.

    Attributes:
        decode: whether events of decoding are asked for, so that packets are looked at for them.
        overlaps: whether a rule asks for overlapping data that differs, so that it is compared.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._by_event: dict[int, list[int]] = {}
        self._anywhere: set[int] = set()
        for place, rule in enumerate(rules):
            for event in rule.events:
                self._by_event.setdefault(event, []).append(place)
            if rule.header.protocol == "pkthdr":
                self._anywhere.add(place)
        asked = {event for rule in rules for event in rule.events}
        self.decode = any(NAMES[event].startswith("decoder.") for event in asked)
        self.overlaps = _DIFFERENT in asked
        self._alone = {place for place, rule in enumerate(rules) if rule.events and not rule.payload}

    def __bool__(self) -> bool:
        return bool(self._by_event)

    def candidates(
        self,
        events: NDArray[Any],
        arrays: RuleArrays,
        packets: Packets,
        slot: NDArray[np.int32],
        row_group: NDArray[np.int32],
        row_flags: NDArray[np.uint8],
        sessions: NDArray[Any],
        out: NDArray[Any],
    ) -> Iterator[NDArray[Any]]:
        """CANDIDATE rows (each valid until the next is asked for) of the rules without payload, for EVENT rows.

        Rules of `pkthdr` are looked at for every packet that has the event, those of no flow and of no IP included.
        """
        group = np.zeros(1, GROUP)
        group["packet_count"] = 1
        everywhere = np.zeros(len(row_group), np.int32)
        flags = sessions["flags"][np.maximum(slot, 0)]
        done = (slot >= 0) & ((flags & (SESSION_BYPASSED | SESSION_QUIET)) != 0)
        inspected = np.where(done, row_flags, row_flags & np.uint8(0xFF ^ ROW_PASSED))
        seen: set[tuple[int, int]] = set()
        for event in np.unique(events["event"]).tolist():
            rows = np.unique(events["row"][events["event"] == event])
            for rule in self._by_event.get(event, ()):
                if rule not in self._alone:
                    continue
                wanted = rows
                if rule not in self._anywhere:
                    groups = np.where(row_flags[rows] & ROW_PASSED, -1, row_group[rows])
                    words = arrays.members[np.maximum(groups, 0), rule >> 6] >> np.uint64(rule & 63)
                    wanted = rows[(groups >= 0) & ((words & np.uint64(1)) != 0)]
                wanted = np.array([row for row in wanted.tolist() if (row, rule) not in seen], np.int32)
                if not len(wanted):
                    continue
                seen.update((row, rule) for row in wanted.tolist())
                one = arrays._replace(groups=group, lists=np.array([rule], np.int32))
                turn = 0
                while turn < len(wanted):
                    work = (packets, slot, everywhere, inspected, wanted, sessions, out)
                    turn, made = match_packets(one, turn, *work)
                    if made:
                        yield out[:made]


def needs_streams(rule: Rule) -> bool:
    """Whether a rule asks for events that are seen only where streams are put together and given to parsers."""
    return _GAP in rule.events or _DIFFERENT in rule.events


def by_row(events: NDArray[Any]) -> dict[int, frozenset[int]]:
    """The events of each row that has any."""
    found: dict[int, set[int]] = {}
    for row, event in events.tolist():
        found.setdefault(row, set()).add(event)
    return {row: frozenset(numbers) for row, numbers in found.items()}
