"""The flow table: which flow each frame belongs to, exact counts, and a record of every flow that ended.

A flow is two endpoints (address and port), the outer and inner VLAN id, the protocol and the IP version of the
innermost IP header; both directions are one flow. ICMP and other protocols without ports have port 0. The initiator,
direction 0, is the sender of the first frame; of a first frame that is a SYN-ACK, its receiver.

Fragments belong to their datagram's flow: a later fragment takes the ports of its first (looked up by addresses,
protocol, IP identification and VLAN ids, for 60 s). One whose first fragment has not been seen goes to the flow of the
same addresses without ports. Every frame is counted once.

`flowshunt.flows.life_cycle` says what packet time is and how timers run, `flowshunt.flows.tcp` how TCP is followed.

**Memory** is bounded by the capacity: 212 bytes a row and 16 to 32 for the index, committed as rows come into use.
Rows never move, so views of `records` stay valid as long as the table.

**Eviction.** `track` keeps at most 7/8 of the capacity live; the rest lets ended flows stand until they are drained.
At that limit, a new flow ends another (reason DISPLACED): of the next 64 rows, a TCP flow that has closed, else one
that no NIC has taken over, else any; among equals the least recently seen; never a flow of the same batch. A frame that
finds no row free gets slot -1 and counts in `overflow`. Inserted flows may fill the whole capacity; they displace none.
"""

from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from flowshunt.errors import InputError
from flowshunt.flows import layout
from flowshunt.flows.counters import FlowCounters
from flowshunt.flows.edits import (
    ACCOUNT,
    END,
    FIND,
    FIND_ID,
    FULL,
    INSERT,
    INSERTED,
    MARK,
    OBSERVE,
    PRESENT,
    UNUSABLE,
    edit_rows,
)
from flowshunt.flows.fragment_table import DATAGRAM
from flowshunt.flows.key import KEY
from flowshunt.flows.life_cycle import ID_FACTOR, Rows
from flowshunt.flows.record import FLOW, Bypass, EndReason, FlowTimeouts
from flowshunt.flows.siphash import hash_key
from flowshunt.flows.slot_index import SMALLEST, index_of
from flowshunt.flows.tracking import AUTO_UNLEARN, BLOCK, CREATE, track_frames
from flowshunt.packets.batch import FrameBatch
from flowshunt.packets.headers import HEADER
from flowshunt.rows import clear_rows, join_rows, take_rows

__all__ = ["FULL", "INSERTED", "PRESENT", "UNUSABLE", "Ended", "FlowTable", "Tracking"]

_DATAGRAMS = 1 << 14
"""Fragmented datagrams that a table remembers the ports of."""
_PLACES = 1 << 16
"""Places of a large table's index at first: growing by small steps costs more than this address space."""

_MOST_ROWS = 1 << 30

_NO_FLOWS = np.empty(0, layout.FLOW_WORDS)
_NO_STATUS = np.empty(0, np.uint8)
_NO_SLOTS = np.empty(0, np.int32)


@attrs.frozen(eq=False)
class Tracking:
    """Where the frames of a batch belong, as columns of its length n.

    Attributes:
        slot: int32[n], the row of `FlowTable.records`; -1: no flow.
        direction: uint8[n], 0 from the flow's initiator, 1 to it.
        events: uint8[n], the bits `engine.NEW` and `engine.ESTABLISHED`.
    """

    slot: NDArray[np.int32]
    direction: NDArray[np.uint8]
    events: NDArray[np.uint8]


@attrs.frozen(eq=False)
class Ended:
    """Flows that have ended, in the order they did: their records FLOW[k] (copies), and int32[k] their slots."""

    records: NDArray[Any]
    slots: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.slots)


def _check_action(action: int) -> None:
    if not 0 <= action <= 0xFF:
        raise ValueError(f"actions are numbered from 0 to 255, not {action}")


class FlowTable:
    """Flows in rows. Not thread-safe.

    Results do not depend on the seed; give a random one where an attacker could choose the traffic.
    """

    def __init__(
        self, capacity: int, timeouts: FlowTimeouts | None = None, *, seed: int = 0, first_id: int = 1
    ) -> None:
        """Make an empty table of `capacity` rows (2 to 2^30) whose flows are numbered from `first_id` on.

        Raises InputError for a capacity out of range, CapabilityError where the system refuses the address space.
        """
        if not 2 <= capacity <= _MOST_ROWS:
            raise InputError(
                f"a flow table can't have {capacity} rows", way_out=f"choose a capacity from 2 to {_MOST_ROWS}"
            )
        if not 0 < first_id < 1 << 63:
            raise ValueError(f"flow ids start from 1, not {first_id}")
        self.records: NDArray[Any] = layout.reserve(FLOW, capacity)
        """FLOW[capacity]. A row holds a live flow, or one that ended and was not yet cleared (`end_reason` says so),
        or has id 0. Read it; change it through the methods only (`state` belongs to the flow's action)."""
        self.timeouts = timeouts or FlowTimeouts()
        seconds = [*attrs.astuple(self.timeouts), float("inf")]
        longest = float(1 << 61)
        places = min(max(SMALLEST, 1 << capacity.bit_length()), _PLACES)
        self._states = np.zeros(1, layout.STATE)
        self._state = self._states[0]
        self._state["limit"] = capacity - max(1, capacity // 8)
        self._state["next_id"] = first_id
        self._state["key_0"], self._state["key_1"] = hash_key(seed)
        self._rows = Rows(
            records=self.records.view(layout.FLOW_WORDS),
            life=layout.reserve(layout.LIFE, capacity),
            hashes=layout.reserve(np.uint32, capacity),
            spare=layout.reserve(np.int32, capacity),
            places=np.zeros(places, np.uint64),
            ids=np.zeros(1, np.uint64),
            wheel=np.zeros(layout.WHEEL + 1, np.int32),
            timeouts=np.array([int(min(max(s, 0.0) * layout.SECOND, longest)) for s in seconds], np.int64),
            state=self._states,
        )
        self._keys = np.zeros(BLOCK, KEY)
        self._datagrams = layout.reserve(DATAGRAM, _DATAGRAMS)
        self._stash: list[Ended] = []
        self._resting: list[NDArray[np.int32]] = []

    @property
    def capacity(self) -> int:
        """Rows."""
        return len(self.records)

    @property
    def active(self) -> int:
        """Live flows."""
        return int(self._state["active"])

    @property
    def clock(self) -> int:
        """Packet time in ns."""
        return int(self._state["clock"])

    @property
    def counters(self) -> FlowCounters:
        """The counters so far."""
        state = self._state
        return FlowCounters(
            active=int(state["active"]),
            created=int(state["created"]),
            ended={r: int(state["ended_by"][r]) for r in EndReason if r is not EndReason.NONE},
            overflow=int(state["overflow"]),
            fragments_matched=int(state["fragments_matched"]),
            fragments_unmatched=int(state["fragments_unmatched"]),
        )

    def track(self, batch: FrameBatch, headers: NDArray[Any]) -> Tracking:
        """Find or start the flow of each frame, count the frame (bytes on the wire), follow the flow's state.

        A frame that finds its flow idle for longer than its timeout ends it and starts another; so does a SYN on the
        tuple of a TCP flow that was reset, has closed, or was picked up in the middle. Frames of bypassed flows also
        count as bypassed. Frames without a readable IP header get slot -1.

        A row of a flow that ended is used again no sooner than after the next call of `drain` but one: frames that are
        tracked between two calls of `drain` have no row in common with the flows that the first of them gave out.
        """
        return self._run(batch, headers, CREATE)

    def match(self, batch: FrameBatch, headers: NDArray[Any], *, tcp_auto_unlearn: bool = True) -> Tracking:
        """Find the flow of each frame as `track` does, and count it there, but start none: others get slot -1.

        With `tcp_auto_unlearn` a TCP flow ends (TCP_END) with the frame that resets it or acknowledges its second FIN.
        Without, it ends when a SYN comes on its tuple, which then has no flow.
        """
        return self._run(batch, headers, AUTO_UNLEARN if tcp_auto_unlearn else 0)

    def _run(self, batch: FrameBatch, headers: NDArray[Any], mode: int) -> Tracking:
        count = len(batch)
        if headers.dtype != HEADER or headers.shape != (count,):
            raise ValueError(f"{count} frames need HEADER[{count}], not {headers.dtype}{list(headers.shape)}")
        self._state["batch"] = (self._state["batch"] + 1) & 0x7FFFFFFF
        slot = np.empty(count, np.int32)
        direction = np.empty(count, np.uint8)
        events = np.empty(count, np.uint8)
        columns = [
            np.ascontiguousarray(column)
            for column in (batch.data, batch.offset, batch.captured, batch.wire, batch.timestamp, batch.port, headers)
        ]
        done = 0
        while True:
            done = track_frames(self._rows, self._datagrams, self._keys, *columns, mode, done, slot, direction, events)
            if done == count:
                return Tracking(slot, direction, events)
            self._grow_index()

    def insert(self, flows: NDArray[Any], action: int) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """Put flows (FLOW[k]: key, id, TCP state and first/last kept, counters from 0) into the table.

        Returns int32[k] slots (-1: refused) and uint8[k] status: INSERTED, PRESENT, FULL or UNUSABLE. A flow of the
        same key under another id ends with UNLEARNED and makes place. Rows of flows that ended are used again at once.
        """
        _check_action(action)
        count = len(flows)
        given = np.ascontiguousarray(flows, FLOW).view(layout.FLOW_WORDS)
        slots = np.full(count, -1, np.int32)
        status = np.empty(count, np.uint8)
        done = 0
        while True:
            done = edit_rows(self._rows, INSERT, action, done, given, slots, status)
            if done == count:
                return slots, status
            if 2 * (self.active + 1) > len(self._rows.places):
                self._grow_index()
            elif not self._clear_ended():
                status[done] = FULL
                done += 1

    def find(self, flows: NDArray[Any]) -> NDArray[np.int32]:
        """The slots of flows by their key (FLOW[k], either way round), -1 where they are not in the table."""
        slots = np.empty(len(flows), np.int32)
        edit_rows(self._rows, FIND, 0, 0, np.ascontiguousarray(flows, FLOW).view(layout.FLOW_WORDS), slots, _NO_STATUS)
        return slots

    def find_ids(self, ids: NDArray[np.uint64]) -> NDArray[np.int32]:
        """The slots of flows by their id, -1 where they are not in the table. The first call builds an index."""
        if not self._state["by_id"]:
            self._state["by_id"] = 1
            live = np.flatnonzero(self._rows.life["bucket"][: int(self._state["high"])])
            hashes = (self.records["id"][live] * ID_FACTOR) >> np.uint64(32)
            entries = (hashes << np.uint64(32)) | (live + 1).astype(np.uint64)
            self._rows = self._rows._replace(ids=index_of(entries, len(self._rows.places)))
        wanted = np.zeros(len(ids), FLOW)
        wanted["id"] = ids
        slots = np.empty(len(ids), np.int32)
        edit_rows(self._rows, FIND_ID, 0, 0, wanted.view(layout.FLOW_WORDS), slots, _NO_STATUS)
        return slots

    def remove(self, slots: NDArray[np.int32], reason: EndReason) -> int:
        """End the flows in `slots`; rows without a live flow are passed over. Returns how many ended."""
        if reason == EndReason.NONE:
            raise ValueError("a flow ends for a reason, not for NONE")
        return int(self._edit(END, int(reason), slots))

    def bypass(self, slots: NDArray[np.int32], action: int, kind: Bypass) -> None:
        """Say who acts on the rest of the flows in `slots`, and how. Rows without a live flow are passed over.

        CAPTURE: a NIC; the flow has no timeout here until its NIC's record ends it. LOCAL: the host; the timeout is
        `timeouts.bypassed`. NONE: nobody any more. The time that counts for timeouts starts anew.
        """
        _check_action(action)
        self._edit(MARK, action | int(kind) << 8, slots)

    def account(self, slots: NDArray[np.int32], counted: NDArray[Any]) -> None:
        """Add what a NIC counted for the flows in `slots` to their totals and to their bypassed part.

        counted: FLOW[k], of which `packets`, `bytes` and `last` count. Rows without a live flow are passed over.
        """
        if len(slots) != len(counted):
            raise ValueError(f"{len(slots)} slots need as many records, not {len(counted)}")
        self._edit(ACCOUNT, 0, slots, np.ascontiguousarray(counted, FLOW).view(layout.FLOW_WORDS))

    def _edit(self, what: int, argument: int, slots: NDArray[Any], flows: NDArray[Any] = _NO_FLOWS) -> Any:
        return edit_rows(self._rows, what, argument, 0, flows, np.ascontiguousarray(slots, np.int32), _NO_STATUS)

    def expire(self, now: int) -> None:
        """Take a time in ns (of frames that went elsewhere) into packet time, and end idle flows.

        It is believed as a frame's would be. The time of a frame that was tracked just before tells nothing new.
        """
        self._edit(OBSERVE, now, _NO_SLOTS)

    def close(self) -> None:
        """End every flow (SHUTDOWN), in the order of their rows."""
        live = np.flatnonzero(self._rows.life["bucket"][: int(self._state["high"])])
        self._edit(END, int(EndReason.SHUTDOWN), live)

    def drain(self) -> Ended:
        """The flows that have ended since the last call, in the order they did; those of the last call are cleared."""
        self._free(self._resting)
        ended = self._take_ended()
        self._resting = [ended.slots]
        if not self._stash:
            return ended
        parts = [*self._stash, ended]
        self._stash = []
        return Ended(join_rows([p.records for p in parts]), np.concatenate([p.slots for p in parts]))

    def _take_ended(self) -> Ended:
        slots = self._rows.spare[self.capacity - int(self._state["ended"]) :][::-1].copy()
        self._state["ended"] = 0
        return Ended(take_rows(self.records, slots), slots)

    def _clear_ended(self) -> bool:
        """Free the rows of all flows that have ended; their records wait for `drain`. False: there was none."""
        ended = self._take_ended()
        self._stash.append(ended)
        lists = [*self._resting, ended.slots]
        self._resting = []
        self._free(lists)
        return any(map(len, lists))

    def _free(self, lists: list[NDArray[np.int32]]) -> None:
        for slots in lists:
            clear_rows(self.records, slots)
            clear_rows(self._rows.life, slots)
            free = int(self._state["free"])
            self._rows.spare[free : free + len(slots)] = slots
            self._state["free"] = free + len(slots)

    def _grow_index(self) -> None:
        size = 2 * len(self._rows.places)
        self._rows = self._rows._replace(places=index_of(self._rows.places, size))
        if self._state["by_id"]:
            self._rows = self._rows._replace(ids=index_of(self._rows.ids, size))
