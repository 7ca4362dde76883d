/* What the micro-benchmarks share. Each is an XDP program over a frame of at least BYTES bytes, and leaves its result in
 * the frame's first 8 bytes, so that nothing is optimised away. With FLOWSHUNT_NATIVE defined the same source compiles
 * to code of the processor: what an optimising compiler makes of it, without eBPF in between. */
#pragma once

#include "../../ebpf/objects/bpf_api.h"

typedef __u64 u64;
typedef __u32 u32;
typedef __u16 u16;
typedef __u8 u8;
typedef __s64 s64;
typedef __s32 s32;

#define BYTES 512
#define KEEP _Pragma("clang loop unroll(disable)") _Pragma("clang loop vectorize(disable)")

#ifdef FLOWSHUNT_NATIVE
struct context {
	u8 *data, *end;
};
#define START(c) ((c)->data)
#define STOP(c) ((c)->end)
#define BENCH(name) int name(struct context *c)
#else
struct context {
	u32 data, end;
};
#define START(c) ((u8 *)(long)(c)->data)
#define STOP(c) ((u8 *)(long)(c)->end)
#define BENCH(name) SEC("xdp") int name(struct context *c)
#endif

#define FRAME(p, c)                        \
	u8 *p = START(c);                  \
	if (p + BYTES > (u8 *)STOP(c))     \
		return 1

#define RESULT(p, value)                   \
	do {                               \
		*(u64 *)(p) = (value);     \
		return 2;                  \
	} while (0)
