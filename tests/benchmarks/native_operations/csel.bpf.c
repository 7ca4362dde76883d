/* Conditional selects: what data decides, where a branch would be mispredicted. */
#include "bench.h"

LICENSE("GPL");

/* Least, greatest and their spread of 64 words. */
BENCH(min_max)
{
	FRAME(p, c);
	u32 *w = (u32 *)p, low = ~0u, high = 0;
	KEEP for (int i = 2; i < 66; i++) {
		u32 x = w[i];
		if (x < low)
			low = x;
		if (x > high)
			high = x;
	}
	RESULT(p, (u64)high << 32 | low);
}

/* Signed clamp into a window that moves. */
BENCH(clamp)
{
	FRAME(p, c);
	s32 *w = (s32 *)p;
	s64 sum = 0, floor = -1000000000, roof = 1000000000;
	KEEP for (int i = 2; i < 66; i++) {
		s64 x = w[i];
		if (x < floor)
			x = floor;
		if (x > roof)
			x = roof;
		sum += x;
		floor += 1000003;
	}
	RESULT(p, sum);
}

/* Saturating sums: three counters. */
BENCH(saturate)
{
	FRAME(p, c);
	u32 *w = (u32 *)p, a = 0, b = 0, d = 0;
	KEEP for (int i = 2; i < 62; i += 3) {
		u32 s = a + (w[i] >> 4);
		a = s < a ? ~0u : s;
		s = b + (w[i + 1] >> 3);
		b = s < b ? ~0u : s;
		s = d + (w[i + 2] >> 2);
		d = s < d ? ~0u : s;
	}
	RESULT(p, (u64)a + b + d);
}

/* A class for each length: nested thresholds. */
BENCH(classify)
{
	FRAME(p, c);
	u16 *w = (u16 *)p;
	u64 classes = 0;
	KEEP for (int i = 4; i < 132; i++) {
		u32 x = w[i], k = 0;
		if (x > 64)
			k = 8;
		if (x > 2048)
			k = 16;
		if (x > 16384)
			k = 24;
		if (x > 40000)
			k = 32;
		classes += 1ull << k;
	}
	RESULT(p, classes);
}

/* Binary search over 64 sorted limits, without a branch that a compiler could see through. */
BENCH(search)
{
	FRAME(p, c);
	u64 found = 0;
	u32 *w = (u32 *)p;
	KEEP for (int i = 2; i < 34; i++) {
		u32 at = 0, key = w[i] >> 16;
		KEEP for (u32 step = 32; step; step >>= 1) {
			u32 next = at + step;
			at = next * 1040 <= key ? next : at;
		}
		found += at;
	}
	RESULT(p, found);
}
