/* Rotates: hashes and ciphers. */
#include "bench.h"

LICENSE("GPL");

static INLINE u64 rol64(u64 x, int n) { return x << n | x >> (64 - n); }
static INLINE u32 rol32(u32 x, int n) { return x << n | x >> (32 - n); }

#define SIPROUND                                              \
	do {                                                  \
		a += b, b = rol64(b, 13) ^ a, a = rol64(a, 32); \
		c2 += d, d = rol64(d, 16) ^ c2;               \
		a += d, d = rol64(d, 21) ^ a;                 \
		c2 += b, b = rol64(b, 17) ^ c2, c2 = rol64(c2, 32); \
	} while (0)

/* SipHash-2-4 over 128 bytes: dense, one dependent chain. */
BENCH(siphash)
{
	FRAME(p, c);
	u64 a = 0x736f6d6570736575, b = 0x646f72616e646f6d, c2 = 0x6c7967656e657261, d = 0x7465646279746573;
	KEEP for (int i = 0; i < 16; i++) {
		u64 m = ((u64 *)p)[i];
		d ^= m;
		SIPROUND;
		SIPROUND;
		a ^= m;
	}
	c2 ^= 0xff;
	SIPROUND;
	SIPROUND;
	SIPROUND;
	SIPROUND;
	RESULT(p, a ^ b ^ c2 ^ d);
}

#define QUARTER(a, b, c, d)                 \
	a += b, d = rol32(d ^ a, 16);       \
	c += d, b = rol32(b ^ c, 12);       \
	a += b, d = rol32(d ^ a, 8);        \
	c += d, b = rol32(b ^ c, 7)

/* ChaCha quarter rounds: dense, four at a time. */
BENCH(chacha)
{
	FRAME(p, c);
	u32 *w = (u32 *)p, a = w[2], b = w[3], x = w[4], d = w[5];
	KEEP for (int i = 0; i < 32; i++) {
		QUARTER(a, b, x, d);
		QUARTER(b, x, d, a);
	}
	RESULT(p, (u64)(a + x) << 32 | (b + d));
}

/* Jenkins' hash of triples (lookup3), as connection trackers use it. */
BENCH(jhash)
{
	FRAME(p, c);
	u32 *w = (u32 *)p, x = 0xdeadbeef, y = x, z = x;
	KEEP for (int i = 0; i < 30; i += 3) {
		x += w[i], y += w[i + 1], z += w[i + 2];
		x -= z, x ^= rol32(z, 4), z += y;
		y -= x, y ^= rol32(x, 6), x += z;
		z -= y, z ^= rol32(y, 8), y += x;
		x -= z, x ^= rol32(z, 16), z += y;
		y -= x, y ^= rol32(x, 19), x += z;
		z -= y, z ^= rol32(y, 4), y += x;
	}
	RESULT(p, (u64)y << 32 | z);
}

/* xxHash64's lanes: multiplications beside rotates. */
BENCH(xxhash)
{
	FRAME(p, c);
	u64 *w = (u64 *)p, h = 0x27D4EB2F165667C5;
	KEEP for (int i = 0; i < 32; i++) {
		u64 k = rol64(w[i] * 0xC2B2AE3D27D4EB4F, 31) * 0x9E3779B185EBCA87;
		h = rol64(h ^ k, 27) * 0x9E3779B185EBCA87 + 0x85EBCA77C2B2AE63;
	}
	RESULT(p, h);
}

/* Rotates by what the data says: no constant to fold. */
BENCH(rotate_by_data)
{
	FRAME(p, c);
	u32 *w = (u32 *)p, h = 1;
	KEEP for (int i = 0; i < 64; i++) {
		u32 n = w[i] & 31;
		h = (h << n | h >> (-n & 31)) + w[i];
	}
	RESULT(p, h);
}
