"""The parser of one TLS connection: records, handshake messages, what is encrypted from where on."""

from typing import Any, Final

import attrs

from flowshunt_ids.app.contract import TO_CLIENT, TO_SERVER, Context, Transaction
from flowshunt_ids_tls.certificate import Certificate, CertificateError, read_certificate
from flowshunt_ids_tls.hello import Hello, HelloError, read_hello

HELLO, CERTIFICATES, HANDSHAKE, FINISHED = 1, 2, 3, 4
"""Progress of a direction: its hello was seen, its certificates (or that there are none), all that is not encrypted."""

CHANGE_CIPHER, ALERT, HANDSHAKE_RECORD, DATA, HEARTBEAT = 20, 21, 22, 23, 24
CLIENT_HELLO, SERVER_HELLO, CERTIFICATE_MESSAGE, SERVER_DONE, CLIENT_KEY = 1, 2, 11, 14, 16
TLS13: Final = 0x0304
_MOST_HANDSHAKE: Final = 1 << 18
_LARGEST_RECORD: Final = (1 << 14) + 2048
_MOST_CERTIFICATES: Final = 32


@attrs.define
class Side:
    """What one direction has said.

    Attributes:
        version: of its records. certificates: DER bytes, the end entity's first; first: that one, read.
        encrypted: whether what follows is. data: whether application data was seen.
    """

    version: int = 0
    hello: Hello | None = None
    certificates: list[bytes] = attrs.field(factory=list)
    first: Certificate | None = None
    states: set[str] = attrs.field(factory=set)
    encrypted: bool = False
    data: bool = False


class TlsTransaction(Transaction):
    """A connection: all of it is one transaction."""

    __slots__ = ("sides",)

    def __init__(self) -> None:
        super().__init__(0)
        self.sides = (Side(), Side())

    @property
    def version(self) -> int:
        """The version that is spoken, as far as known."""
        for side in (self.sides[TO_CLIENT], self.sides[TO_SERVER]):
            if side.hello is not None:
                return side.hello.chosen
        return self.sides[TO_CLIENT].version or self.sides[TO_SERVER].version

    def reach(self, direction: int, progress: int) -> None:
        """Note progress of a direction."""
        if progress > self.progress[direction]:
            self.progress[direction] = progress
            self.changed[direction] = True


class TlsParser:
    """See `flowshunt_ids.app.contract.Parser`."""

    def __init__(self, context: Context) -> None:
        self._transaction = TlsTransaction()
        self.transactions: list[Any] = [self._transaction]
        self.bypass = False
        self.becomes: str | None = None
        self._pending = (bytearray(), bytearray())
        self._messages = (bytearray(), bytearray())
        self._skip = [0, 0]
        self._given_up = [False, False]

    def data(self, direction: int, data: bytes) -> None:
        """The next bytes of a direction."""
        if self._given_up[direction]:
            return
        skip = min(self._skip[direction], len(data))
        self._skip[direction] -= skip
        if skip == len(data):
            return
        pending = self._pending[direction]
        pending += memoryview(data)[skip:]
        at = 0
        while len(pending) - at >= 5:
            kind, version, size = (
                pending[at],
                pending[at + 1] << 8 | pending[at + 2],
                pending[at + 3] << 8 | pending[at + 4],
            )
            wrong = _wrong(kind, version, size)
            if wrong:
                self._transaction.event(direction, wrong)
                self._give_up(direction)
                return
            side = self._transaction.sides[direction]
            side.version = side.version or version
            if kind == DATA or (side.encrypted and kind == HANDSHAKE_RECORD):
                # What is encrypted is passed over as it comes, without waiting for the rest of its record.
                self._encrypted(direction, kind)
                have = len(pending) - at - 5
                if have < size:
                    self._skip[direction] = size - have
                    at = len(pending)
                    break
                at += 5 + size
                continue
            if len(pending) - at - 5 < size:
                break
            self._record(direction, kind, bytes(pending[at + 5 : at + 5 + size]))
            if self._given_up[direction]:
                return
            at += 5 + size
        del pending[:at]

    def gap(self, direction: int, size: int) -> None:
        """Pass over what is lost of a record that is not looked at; else the direction can't be followed."""
        if self._skip[direction] >= size:
            self._skip[direction] -= size
            return
        self._give_up(direction)

    def end(self, direction: int) -> None:
        """Nothing more comes."""
        self._transaction.reach(direction, FINISHED)

    def _give_up(self, direction: int) -> None:
        self._given_up[direction] = True
        self._pending[direction].clear()
        self._messages[direction].clear()
        self._transaction.reach(direction, FINISHED)

    def _encrypted(self, direction: int, kind: int) -> None:
        transaction = self._transaction
        side = transaction.sides[direction]
        side.encrypted = True
        side.data = side.data or kind == DATA
        transaction.reach(direction, HANDSHAKE)
        if all(each.encrypted for each in transaction.sides) and any(each.data for each in transaction.sides):
            for each in (TO_SERVER, TO_CLIENT):
                transaction.reach(each, HANDSHAKE)
            self.bypass = True

    def _record(self, direction: int, kind: int, data: bytes) -> None:
        transaction = self._transaction
        side = transaction.sides[direction]
        if kind == CHANGE_CIPHER:
            side.encrypted = True
            transaction.reach(direction, CERTIFICATES)
        elif kind == HANDSHAKE_RECORD:
            messages = self._messages[direction]
            if len(messages) + len(data) > _MOST_HANDSHAKE:
                transaction.event(direction, "handshake_invalid_length")
                self._give_up(direction)
                return
            messages += data
            self._handshake(direction, messages)
        elif kind == HEARTBEAT:
            transaction.event(direction, "heartbeat_message")
            self._heartbeat(direction, data)

    def _heartbeat(self, direction: int, data: bytes) -> None:
        if self._transaction.sides[direction].encrypted or len(data) < 3:
            return
        if data[0] not in (1, 2):
            self._transaction.event(direction, "invalid_heartbeat_message")
        elif data[0] == 1 and (data[1] << 8 | data[2]) + 3 > len(data):
            self._transaction.event(direction, "overflow_heartbeat_message")

    def _handshake(self, direction: int, messages: bytearray) -> None:
        at = 0
        while len(messages) - at >= 4:
            size = int.from_bytes(messages[at + 1 : at + 4], "big")
            if len(messages) - at - 4 < size:
                if size > _MOST_HANDSHAKE:
                    self._transaction.event(direction, "invalid_handshake_message")
                    self._give_up(direction)
                    return
                break
            self._message(direction, messages[at], bytes(messages[at + 4 : at + 4 + size]))
            if self._given_up[direction]:
                return
            at += 4 + size
        del messages[:at]

    def _message(self, direction: int, kind: int, data: bytes) -> None:
        transaction = self._transaction
        side = transaction.sides[direction]
        if kind in (CLIENT_HELLO, SERVER_HELLO):
            side.states.add("client_hello" if kind == CLIENT_HELLO else "server_hello")
            try:
                side.hello = read_hello(data, client=kind == CLIENT_HELLO)
            except HelloError as error:
                transaction.event(direction, error.event)
                return
            for event in side.hello.events:
                transaction.event(direction, event)
            transaction.reach(direction, HELLO)
            if kind == SERVER_HELLO and side.hello.chosen == TLS13:
                transaction.reach(direction, CERTIFICATES)
        elif kind == CERTIFICATE_MESSAGE:
            self._certificates(direction, side, data)
        elif kind == SERVER_DONE:
            transaction.reach(direction, CERTIFICATES)
        elif kind == CLIENT_KEY:
            side.states.add("client_keyx")
            transaction.reach(direction, CERTIFICATES)

    def _certificates(self, direction: int, side: Side, data: bytes) -> None:
        at, end = 3, len(data)
        while at + 3 <= end and len(side.certificates) < _MOST_CERTIFICATES:
            size = int.from_bytes(data[at : at + 3], "big")
            if size > end - at - 3:
                self._transaction.event(direction, "certificate_invalid_length")
                break
            side.certificates.append(data[at + 3 : at + 3 + size])
            at += 3 + size
        if side.certificates:
            try:
                side.first = read_certificate(side.certificates[0])
            except CertificateError as error:
                self._transaction.event(direction, error.event)
        self._transaction.reach(direction, CERTIFICATES)


def _wrong(kind: int, version: int, size: int) -> str:
    """Why a record's header is none; "" where it is one."""
    if not CHANGE_CIPHER <= kind <= HEARTBEAT:
        return "invalid_record_type"
    if not 0x0300 <= version <= TLS13 and version >> 8 != 0x7F:
        return "invalid_record_version"
    return "invalid_record_length" if size > _LARGEST_RECORD else ""
