/* Byte order: packed structures, byte streams. */
#include "bench.h"

LICENSE("GPL");

static INLINE u32 be32(const u8 *p) { return (u32)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3]; }
static INLINE u64 le64(const u8 *p)
{
	u64 x = 0;
	for (int i = 7; i >= 0; i--)
		x = x << 8 | p[i];
	return x;
}

/* Big-endian words of a byte stream: a hash's message. */
BENCH(message_words)
{
	FRAME(p, c);
	u64 sum = 0;
	KEEP for (int i = 8; i < 392; i += 4)
		sum = sum * 31 + be32(p + i);
	RESULT(p, sum);
}

/* Little-endian words at any address. */
BENCH(unaligned_words)
{
	FRAME(p, c);
	u64 h = 7;
	KEEP for (int i = 9; i < 393; i += 8)
		h = (h ^ le64(p + i)) * 0x9E3779B97F4A7C15;
	RESULT(p, h);
}

struct __attribute__((packed)) record {
	u8 kind;
	u16 length;
	u32 sequence;
	u64 stamp;
};

/* Packed records, as of a trace format. */
BENCH(packed_records)
{
	FRAME(p, c);
	struct record *r = (struct record *)(p + 8);
	u64 sum = 0;
	KEEP for (int i = 0; i < 32; i++)
		sum += __builtin_bswap16(r[i].length) + __builtin_bswap32(r[i].sequence) + __builtin_bswap64(r[i].stamp);
	RESULT(p, sum);
}

/* Loads that are swapped: ports and addresses of a table of flows. */
BENCH(network_order)
{
	FRAME(p, c);
	u32 *w = (u32 *)p;
	u16 *h = (u16 *)p;
	u64 sum = 0;
	KEEP for (int i = 4; i < 100; i++)
		sum = sum * 17 + (ntohl(w[i]) ^ ntohs(h[i]));
	RESULT(p, sum);
}

/* Values written byte by byte, big-endian. */
BENCH(serialise)
{
	FRAME(p, c);
	u64 x = *(u64 *)p;
	KEEP for (int i = 8; i < 264; i += 4) {
		u32 v = x >> 16;
		p[i] = v >> 24;
		p[i + 1] = v >> 16;
		p[i + 2] = v >> 8;
		p[i + 3] = v;
		x = x * 6364136223846793005ull + 1442695040888963407ull;
	}
	RESULT(p, x);
}
