/* The types of core.bpf.c as another kernel would have them: moved, widened, renamed, gone. */
#include <linux/bpf.h>

#include "../bpf_api.h"

enum color { BLACK = 0, RED = 10, GREEN = 20, BLUE = 30 };

struct point {
	int x;
	int y;
};

struct thing {
	__u64 added;
	__u64 small;          /* wider than in the object */
	struct thing *next;
	__u64 wide;
	__u16 tag;
	__u32 renamed;
	union {
		struct {
			__u16 half;
			__u16 other;
		};
		__u32 either;
	};
	struct point points[8];
	__u64 filler : 3;
	__u64 low : 5;
	__s64 high : 9;
	__s64 sign;           /* signed, and wider */
};

typedef int (*callback)(struct thing *, __u64);

struct thing a_thing;
enum color a_color;
callback a_callback;

SEC("socket")
int nothing(void *ctx)
{
	return a_thing.added + a_color + (long)a_callback;
}
