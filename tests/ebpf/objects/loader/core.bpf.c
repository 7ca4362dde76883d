/* Asks one fact of a type in each program. `core_target.bpf.c` has the types as the target sees them. */
#include <linux/bpf.h>

#include "../bpf_api.h"

#define CORE __attribute__((preserve_access_index))
#define FIELD(expression, fact) __builtin_preserve_field_info(expression, fact)
#define NEW(type) ((type *)0)

enum fact { OFFSET, SIZE, EXISTS, SIGNED, LSHIFT, RSHIFT };

enum color { RED = 1, GREEN = 2, BLUE = 3 };
enum color___old { RED___old = 1, GONE = 9 };

struct point {
	int x;
	int y;
} CORE;

struct thing {
	__u16 tag;
	__u32 small;
	__u64 wide;
	struct thing *next;
	__u32 low : 5;
	__s32 high : 7;
	struct point points[4];
	union {
		__u32 either;
		struct {
			__u16 half;
			__u16 other;
		};
	};
	__u8 lost;
	__s32 sign;
} CORE;

struct thing___v2 {
	__u32 renamed;
	__u32 wide;
} CORE;

struct absent {
	int n;
} CORE;

typedef int (*callback)(struct thing *, __u64);

#define PROGRAM(name) SEC("socket") int name(struct thing *thing)

PROGRAM(load_moved) { return thing->small; }
PROGRAM(load_wide) { return thing->wide; }
PROGRAM(load_element) { return thing->points[2].y; }
PROGRAM(load_anonymous) { return thing->other; }
PROGRAM(load_through_pointer) { return thing->next->tag; }
PROGRAM(load_lost) { return thing->lost; }
PROGRAM(load_sign) { return thing->sign; }
PROGRAM(load_flavor) { return ((struct thing___v2 *)thing)->renamed; }
PROGRAM(load_narrow) { return ((struct thing___v2 *)thing)->wide; }
PROGRAM(store_moved) { thing->small = 5; return 0; }

PROGRAM(offset_of_small) { return FIELD(thing->small, OFFSET); }
PROGRAM(offset_of_element) { return FIELD(thing->points[3].x, OFFSET); }
PROGRAM(size_of_wide) { return FIELD(thing->wide, SIZE); }
PROGRAM(size_of_points) { return FIELD(thing->points, SIZE); }
PROGRAM(exists_small) { return FIELD(thing->small, EXISTS); }
PROGRAM(exists_lost) { return FIELD(thing->lost, EXISTS); }
PROGRAM(exists_absent) { return FIELD(((struct absent *)thing)->n, EXISTS); }
PROGRAM(signed_small) { return FIELD(thing->small, SIGNED); }
PROGRAM(signed_high) { return FIELD(thing->high, SIGNED); }
PROGRAM(offset_of_high) { return FIELD(thing->high, OFFSET); }
PROGRAM(size_of_high) { return FIELD(thing->high, SIZE); }
PROGRAM(lshift_of_high) { return FIELD(thing->high, LSHIFT); }
PROGRAM(rshift_of_high) { return FIELD(thing->high, RSHIFT); }
PROGRAM(size_of_lost) { return FIELD(thing->lost, SIZE); }

PROGRAM(type_exists) { return __builtin_preserve_type_info(*NEW(struct thing), 0); }
PROGRAM(type_absent) { return __builtin_preserve_type_info(*NEW(struct absent), 0); }
PROGRAM(type_size) { return __builtin_preserve_type_info(*NEW(struct thing), 1); }
PROGRAM(size_of_absent) { return __builtin_preserve_type_info(*NEW(struct absent), 1); }
PROGRAM(callback_exists) { return __builtin_preserve_type_info(*NEW(callback), 0); }
PROGRAM(type_local_id) { return __builtin_btf_type_id(*NEW(struct thing), 0); }
PROGRAM(type_target_id) { return __builtin_btf_type_id(*NEW(struct thing), 1); }
#if __clang_major__ >= 15
PROGRAM(point_matches) { return __builtin_preserve_type_info(*NEW(struct point), 2); }
PROGRAM(thing_matches) { return __builtin_preserve_type_info(*NEW(struct thing), 2); }
#endif

PROGRAM(value_of_green) { return __builtin_preserve_enum_value(*(typeof(enum color) *)GREEN, 1); }
PROGRAM(exists_green) { return __builtin_preserve_enum_value(*(typeof(enum color) *)GREEN, 0); }
PROGRAM(exists_gone) { return __builtin_preserve_enum_value(*(typeof(enum color___old) *)GONE, 0); }
PROGRAM(value_of_gone) { return __builtin_preserve_enum_value(*(typeof(enum color___old) *)GONE, 1); }

const char license_text[] SEC("license") = "GPL";
