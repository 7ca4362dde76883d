/* Idioms among other work, as programs have them. */
#include "bench.h"

LICENSE("GPL");

static INLINE u32 rol32(u32 x, int n) { return x << n | x >> (32 - n); }
static INLINE u64 be64(const u8 *p)
{
	u64 x = 0;
	for (int i = 0; i < 8; i++)
		x = x << 8 | p[i];
	return x;
}

/* The Internet checksum, folded. */
BENCH(checksum)
{
	FRAME(p, c);
	u16 *w = (u16 *)p;
	u64 sum = 0;
	KEEP for (int i = 4; i < 228; i++)
		sum += w[i];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	RESULT(p, (u16)~sum);
}

/* Type, length, value: a walk with dispatch. */
BENCH(options)
{
	FRAME(p, c);
	u64 sum = 0;
	u32 at = 8;
	KEEP for (int i = 0; i < 40; i++) {
		u8 *o = p + (at & 0xff);
		if (o + 6 > (u8 *)STOP(c))
			break;
		u32 kind = o[0] & 7, length = o[1] & 15;
		u32 value = (u32)o[2] << 24 | o[3] << 16 | o[4] << 8 | o[5];
		switch (kind) {
		case 0:
			sum += value;
			break;
		case 1:
			sum ^= value;
			break;
		case 2:
			sum += rol32(value, 11);
			break;
		default:
			sum += length > 8 ? 8 : length;
		}
		at += 2 + length;
	}
	RESULT(p, sum);
}

/* A five-tuple's hash, six times: loads, swaps, rotates. */
BENCH(flow_hash)
{
	FRAME(p, c);
	u64 sum = 0;
	KEEP for (int i = 0; i < 24; i++) {
		u8 *t = p + 8 + 16 * i;
		u32 a = ntohl(*(u32 *)t), b = ntohl(*(u32 *)(t + 4)), ports = ntohl(*(u32 *)(t + 8));
		u32 low = a < b ? a : b, high = a < b ? b : a;
		u32 h = rol32(low * 0xcc9e2d51, 15) ^ rol32(high * 0x1b873593, 13) ^ ports;
		h = rol32(h, 5) * 5 + 0xe6546b64;
		sum += h ^ h >> 16;
	}
	RESULT(p, sum);
}

/* IPv6 addresses from bytes, compared and mixed. */
BENCH(addresses)
{
	FRAME(p, c);
	u64 h = 0;
	KEEP for (int i = 8; i < 392; i += 16) {
		u64 high = be64(p + i), low = be64(p + i + 8);
		h = (h ^ high) * 0x9E3779B97F4A7C15 + low;
	}
	RESULT(p, h);
}

/* Arithmetic without any of the idioms: nothing to gain, nothing to lose. */
BENCH(plain_arithmetic)
{
	FRAME(p, c);
	u64 *w = (u64 *)p, a = 1, b = 2;
	KEEP for (int i = 1; i < 49; i++) {
		a += w[i] ^ b;
		b = b * 7 + (a | 1);
		a -= b & w[i];
	}
	RESULT(p, a ^ b);
}
