"""Named bits of hosts and of pairs of hosts (`xbits`, `hostbits`), which outlive flows and expire."""

from collections import OrderedDict
from collections.abc import Sequence

from flowshunt_ids.rules.rule import HostBits

MAX_BITS = 1 << 18
"""The most bits that are set at once; the one set longest ago is forgotten."""
_SECOND = 1_000_000_000


class HostBitTable:
    """The bits that are set, each with the time in ns until when it is."""

    def __init__(self) -> None:
        self._until: OrderedDict[tuple[str, bytes], int] = OrderedDict()
        self.forgotten = 0

    def __len__(self) -> int:
        return len(self._until)

    def holds(self, options: Sequence[HostBits], source: bytes, destination: bytes, now: int) -> bool:
        """Whether isset and isnotset hold for a packet's two addresses at a time in ns."""
        return all(
            self._is_set((option.name, _key(option, source, destination)), now) == (option.command == "isset")
            for option in options
            if option.command in ("isset", "isnotset")
        )

    def change(self, options: Sequence[HostBits], source: bytes, destination: bytes, now: int) -> None:
        """Carry out set, unset and toggle. A bit that is set anew stays for its time from now on."""
        for option in options:
            key = (option.name, _key(option, source, destination))
            if option.command == "unset" or (option.command == "toggle" and key in self._until):
                self._until.pop(key, None)
            elif option.command in ("set", "toggle"):
                self._until[key] = (now // _SECOND + option.expire) * _SECOND
                self._until.move_to_end(key)
                if len(self._until) > MAX_BITS:
                    self._until.popitem(last=False)
                    self.forgotten += 1

    def _is_set(self, key: tuple[str, bytes], now: int) -> bool:
        until = self._until.get(key)
        if until is None:
            return False
        if until < now // _SECOND * _SECOND:
            del self._until[key]
            return False
        return True


def _key(option: HostBits, source: bytes, destination: bytes) -> bytes:
    if option.track == "ip_src":
        return source
    return destination if option.track == "ip_dst" else min(source, destination) + max(source, destination)
