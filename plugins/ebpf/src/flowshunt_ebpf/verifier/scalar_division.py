"""What division does to sets of values, at any width: see `scalar_arithmetic`."""

from flowshunt_ebpf.verifier.scalar_concrete import quotient

View = tuple[int, int, int, int, int, int]


def divide(bits: int, a: View, b: View) -> View:
    """a / b, unsigned; 0 where b is 0."""
    av, am, alo, ahi = a[:4]
    bv, bm, blo, bhi = b[:4]
    ones = (1 << bits) - 1
    half = 1 << (bits - 1)
    value, mask = 0, ones
    if not bm:
        if not bv:
            return 0, 0, 0, 0, 0, 0
        if not bv & (bv - 1):  # a power of two
            amount = bv.bit_length() - 1
            value, mask = av >> amount, am >> amount
    lo = alo // bhi if blo else 0
    hi = ahi // max(blo, 1) if bhi else 0
    return value, mask, lo, hi, -half, half - 1


def remainder(bits: int, a: View, b: View) -> View:
    """a % b, unsigned; a where b is 0."""
    av, am, alo, ahi = a[:4]
    blo, bhi = b[2:4]
    ones = (1 << bits) - 1
    half = 1 << (bits - 1)
    if not bhi or ahi < blo:
        return a
    if not blo:  # some b may be 0, which gives a itself
        return 0, ones, 0, ahi, -half, half - 1
    value, mask = 0, ones
    lo, hi = 0, min(ahi, bhi - 1)
    if blo == bhi:
        if not blo & (blo - 1):
            value, mask = av & (blo - 1), am & (blo - 1)
        if alo // blo == ahi // blo:
            lo, hi = alo % blo, ahi % blo
    return value, mask, lo, hi, -half, half - 1


def divide_signed(bits: int, a: View, b: View) -> View:
    """a / b, signed, rounded towards zero; 0 where b is 0. The least number divided by -1 is itself."""
    alo, ahi = a[4:]
    blo, bhi = b[4:]
    ones = (1 << bits) - 1
    half = 1 << (bits - 1)
    if alo == -half and blo <= -1 <= bhi:
        lo, hi = (-half, half - 1) if alo != ahi or blo != bhi else (-half, -half)
        return 0, ones, 0, ones, lo, hi
    # quotients are extreme at the bounds, and where the divisor is nearest to 0 on either side
    divisors = [d for d in (blo, bhi) if d]
    if blo < 0 < bhi or blo == 0 < bhi:
        divisors.append(1)
    if blo < 0 < bhi or blo < 0 == bhi:
        divisors.append(-1)
    quotients = [quotient(n, d) for n in (alo, ahi) for d in divisors]
    if blo <= 0 <= bhi:
        quotients.append(0)
    return 0, ones, 0, ones, min(quotients), max(quotients)


def remainder_signed(bits: int, a: View, b: View) -> View:
    """The remainder of `divide_signed`: it has the sign of a, and is nearer to 0 than b; a where b is 0."""
    alo, ahi = a[4:]
    blo, bhi = b[4:]
    ones = (1 << bits) - 1
    nearest = blo if blo > 0 else -bhi if bhi < 0 else 0
    furthest = max(-blo, bhi)
    if not furthest or (-nearest < alo and ahi < nearest):
        return a
    lo, hi = min(alo, 0), max(ahi, 0)
    if nearest:
        lo, hi = max(lo, 1 - furthest), min(hi, furthest - 1)
    if blo == bhi and quotient(alo, blo) == quotient(ahi, blo):
        lo, hi = alo - blo * quotient(alo, blo), ahi - blo * quotient(alo, blo)
    return 0, ones, 0, ones, lo, hi
