"""Overlapping IP fragments: whose bytes a receiver keeps, by its operating system (`host-os-policy`)."""

import bisect
from collections.abc import Callable, Sequence

import attrs

BSD, BSD_RIGHT, LINUX, FIRST, SOLARIS, WINDOWS, LAST = (
    "bsd",
    "bsd-right",
    "linux",
    "first",
    "solaris",
    "windows",
    "last",
)

OF_SYSTEM = {
    "bsd": BSD,
    "hpux10": BSD,
    "irix": BSD,
    "bsd-right": BSD_RIGHT,
    "old-linux": LINUX,
    "linux": LINUX,
    "old-solaris": FIRST,
    "hpux11": FIRST,
    "macos": FIRST,
    "first": FIRST,
    "solaris": SOLARIS,
    "windows": WINDOWS,
    "vista": WINDOWS,
    "windows2k3": WINDOWS,
    "last": LAST,
}
"""The policy for fragments of each name that `host-os-policy` may have."""


@attrs.define(eq=False)
class Fragment:
    """A part of a datagram: where it begins, its bytes, whether more follow; `cut`: its first bytes that are replaced.

    header: what stood before it, for the first part.
    """

    start: int
    data: bytes
    more: bool
    header: bytes = b""
    cut: int = 0
    gone: bool = False

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.start + len(self.data)

    @property
    def begin(self) -> int:
        """Where the bytes begin that are still its own."""
        return self.start + self.cut


class _DroppedError(Exception):
    """The new fragment is of no use."""


def _bsd(old: Fragment, following: Fragment | None, new: Fragment, cut: int) -> int | None:
    if new.start >= old.end:
        return None
    if old.start <= new.start:
        if old.end > new.end:
            raise _DroppedError
        cut = old.end - new.start
    else:
        old.cut = max(old.cut, new.end - old.start) if new.end > old.begin else old.cut
    if following is not None and new.end > following.start:
        following.cut = new.end - following.start
    return cut


def _solaris(old: Fragment, _following: Fragment | None, new: Fragment, cut: int) -> int | None:
    if new.start >= old.end:
        return None
    if new.start >= old.start:
        return old.end - new.start
    old.gone = old.gone or new.end >= old.end
    return cut


def _first(old: Fragment, _following: Fragment | None, new: Fragment, cut: int) -> int | None:
    if new.start >= old.start and new.end <= old.end:
        raise _DroppedError
    if new.start < old.start:
        return cut
    return old.end - new.start if new.start < old.end else None


def _last(old: Fragment, _following: Fragment | None, new: Fragment, cut: int) -> int | None:
    if new.start > old.start:
        return None
    if new.end > old.start:
        old.cut = new.end - old.start
    return cut


def _windows(old: Fragment, _following: Fragment | None, new: Fragment, cut: int) -> int | None:
    if new.start >= old.start and new.end <= old.end:
        raise _DroppedError
    if new.start < old.start and new.end > old.end:
        old.gone = True
        return cut
    begin = new.start + cut
    if old.begin < begin < old.end or (new.start == old.start and new.end > old.end):
        return cut + old.end - new.start
    return None


def _bsd_right(_old: Fragment, _following: Fragment | None, _new: Fragment, _cut: int) -> int | None:
    return None


_RULES: dict[str, Callable[[Fragment, Fragment | None, Fragment, int], int | None]] = {
    BSD: _bsd,
    BSD_RIGHT: _bsd_right,
    SOLARIS: _solaris,
    FIRST: _first,
    LAST: _last,
    WINDOWS: _windows,
}
"""What a policy does with a new fragment and one old one: how many of the new one's first bytes are cut off, and that
the search is over; None: it goes on."""


def _linux(old: Fragment, new: Fragment, cut: int) -> tuple[int, bool]:
    begin = new.start + cut
    if old.begin < begin < old.end:
        cut += old.end - new.start
        begin = new.start + cut
    if begin < old.begin < new.end:
        old.cut = new.end - old.start
        return cut, True
    if begin <= old.begin and new.end >= old.end:
        old.gone = True
        return cut, True
    return cut, False


def insert(parts: list[Fragment], starts: list[int], new: Fragment, policy: str) -> tuple[bool, bool]:
    """Put a fragment among the parts of a datagram, which are sorted by `starts`.

    Returns whether it was taken (at least a part of it), and whether it overlaps another.
    """
    at = bisect.bisect_left(starts, new.start - 1) - 1
    at = max(at, 0)
    cut, overlaps, done = 0, False, False
    while at < len(parts) and not done:
        old = parts[at]
        if old.start >= new.end:
            break
        if not old.gone:
            overlaps = overlaps or (new.start < old.end and old.start < new.end)
            following = parts[at + 1] if at + 1 < len(parts) else None
            try:
                if policy == LINUX:
                    cut, done = _linux(old, new, cut)
                else:
                    found = _RULES[policy](old, following, new, cut)
                    done, cut = found is not None, cut if found is None else found
            except _DroppedError:
                return False, overlaps
            if done and (old.gone or old.cut >= len(old.data)):
                del parts[at], starts[at]
        at += 1
    if cut >= len(new.data):
        return False, overlaps
    new.data = new.data[cut:] if cut > 0 else new.data
    new.start += cut
    place = bisect.bisect_right(starts, new.start)
    parts.insert(place, new)
    starts.insert(place, new.start)
    return True, overlaps


def first_hole(parts: Sequence[Fragment], at: int, end: int) -> int:
    """The first byte that no part has, where all before `end` are there and parts before parts[at] end by then."""
    for place in range(at, len(parts)):
        if parts[place].start > end:
            break
        end = max(end, parts[place].end)
    return end


def join(parts: Sequence[Fragment]) -> bytes:
    """The datagram's payload: later parts replace what earlier ones had, but for what policies cut off."""
    whole = bytearray()
    place, more = 0, True
    for part in parts:
        if not more and part.start > place:
            break
        if part.gone or part.cut >= len(part.data):
            continue
        cut = 0 if part.start == 0 else part.cut
        if part.end > len(whole):
            whole.extend(bytes(part.end - len(whole)))
        whole[part.start + cut : part.end] = part.data[cut:]
        place, more = part.start, part.more
    return bytes(whole)
