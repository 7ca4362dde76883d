/* Maps in iproute2's layout: with an id, pinning, and an inner map by its id. */
#include <linux/bpf.h>

#include "../bpf_api.h"

struct map_struct {
	__u32 type, key_size, value_size, max_entries, flags, id, pinning, inner_id, inner_index;
};

struct map_struct SEC("maps") inside = {BPF_MAP_TYPE_ARRAY, 4, 8, 1, 0, 5, 0, 0, 0};
struct map_struct SEC("maps") outside = {BPF_MAP_TYPE_HASH_OF_MAPS, 4, 4, 8, 0, 6, 2, 5, 0};

SEC("classifier")
int sort_out(struct __sk_buff *skb)
{
	__u32 key = 1;

	return !map_lookup(&outside, &key) + !map_lookup(&inside, &key);
}
