/* Maps as structs in the section `maps`, the way before BTF. */
#include <linux/bpf.h>

#include "../bpf_api.h"

struct map_struct {
	__u32 type, key_size, value_size, max_entries, flags;
};

struct map_struct SEC("maps") table = {BPF_MAP_TYPE_HASH, 4, 8, 32, BPF_F_NO_PREALLOC};
struct map_struct SEC("maps") slots = {BPF_MAP_TYPE_ARRAY, 4, 4, 2, 0};

SEC("classifier")
int sort_out(struct __sk_buff *skb)
{
	__u32 key = 1;

	return map_lookup(&slots, &key) ? !map_lookup(&table, &key) : 0;
}
