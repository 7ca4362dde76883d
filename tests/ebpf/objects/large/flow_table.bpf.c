/* A flow table's data path: what a NIC does with each frame before the host sees it.
 *
 * Frames of Ethernet with up to two VLAN tags, IPv4 with options, IPv6 with extension headers, TCP, UDP and SCTP. Both
 * directions of a flow have one key: the lower end first. A record is 128 bytes, four to a bucket: the key, frames and
 * bytes of each direction, TCP's state, the time of the last frame, the action. A frame of an unknown flow takes a free
 * record, or the one that has been idle longest if that is long enough, or goes to the host. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>

#include "../bpf_api.h"

#define VLANS 2
#define EXTENSIONS 4
#define BUCKETS 4096
#define SLOTS 4
#define IDLE_NS 30000000000ull

enum counter { FRAMES, BYTES, SHORT, NOT_IP, FRAGMENTS, KNOWN, LEARNED, DISPLACED, FULL, DROPPED, CLOSED, COUNTERS };
enum action { TO_HOST, DROP, COUNT };
enum tcp_state { OPENING = 1, OPEN = 2, CLOSING = 4, OVER = 8 };

struct end {
	__u64 address[2]; /* network order; IPv4: in the second */
	__u16 port;
};

struct key {
	__u64 low[2];
	__u64 high[2];
	__u16 low_port;
	__u16 high_port;
	__u16 vlan;
	__u8 protocol;
	__u8 version;
};

struct record {
	struct key key;
	__u32 hash;
	__u8 action;
	__u8 tcp[2];
	__u8 used;
	__u64 frames[2];
	__u64 bytes[2];
	__u64 last;
	__u64 first;
	__u64 colour;
};

struct bucket {
	struct record slot[SLOTS];
};

struct {
	UINT(type, BPF_MAP_TYPE_ARRAY);
	TYPE(key, __u32);
	TYPE(value, struct bucket);
	UINT(max_entries, BUCKETS);
} buckets SEC(".maps");

struct {
	UINT(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	TYPE(key, __u32);
	TYPE(value, __u64[COUNTERS]);
	UINT(max_entries, 1);
} counters SEC(".maps");

struct frame {
	__u8 *at;
	__u8 *end;
	__u32 bytes;
	__u16 type;
	__u16 vlan;
	__u8 protocol;
	__u8 flags; /* of TCP */
	__u8 fragment;
	__u8 version;
	struct end from;
	struct end to;
};

static INLINE __u32 rotated(__u32 x, int n) { return x << n | x >> (32 - n); }

static INLINE __u32 mixed(__u32 h, __u64 word)
{
	h = rotated(h ^ (rotated((__u32)word * 0xcc9e2d51, 15) * 0x1b873593), 13) * 5 + 0xe6546b64;
	return rotated(h ^ (rotated((__u32)(word >> 32) * 0xcc9e2d51, 15) * 0x1b873593), 13) * 5 + 0xe6546b64;
}

static INLINE __u32 hash_of(const struct key *k)
{
	const __u64 *w = (const __u64 *)k;
	__u32 h = mixed(mixed(mixed(mixed(mixed(0x9747b28c, w[0]), w[1]), w[2]), w[3]), w[4]);

	h ^= h >> 16;
	h *= 0x85ebca6b;
	h ^= h >> 13;
	h *= 0xc2b2ae35;
	return h ^ h >> 16;
}

static INLINE int parse_ethernet(struct frame *f)
{
	__u8 *p = f->at;

	if (p + 14 > f->end)
		return SHORT;
	f->type = p[12] << 8 | p[13];
	f->at = p + 14;
#pragma unroll
	for (int i = 0; i < VLANS; i++) {
		if (f->type != 0x8100 && f->type != 0x88a8)
			break;
		p = f->at;
		if (p + 4 > f->end)
			return SHORT;
		if (!i)
			f->vlan = (p[0] << 8 | p[1]) & 0xfff;
		f->type = p[2] << 8 | p[3];
		f->at = p + 4;
	}
	return 0;
}

static INLINE int parse_ipv4(struct frame *f)
{
	struct iphdr *ip = (struct iphdr *)f->at;
	__u32 length;

	if ((__u8 *)(ip + 1) > f->end)
		return SHORT;
	length = ip->ihl * 4;
	if (length < 20)
		return SHORT;
	f->version = 4;
	f->protocol = ip->protocol;
	f->fragment = (ip->frag_off & htons(0x3fff)) != 0;
	f->from.address[0] = f->to.address[0] = 0;
	f->from.address[1] = ip->saddr;
	f->to.address[1] = ip->daddr;
	f->at += length;
	return 0;
}

static INLINE int parse_ipv6(struct frame *f)
{
	__u8 *p = f->at;

	if (p + 40 > f->end)
		return SHORT;
	f->version = 6;
	f->protocol = p[6];
	__builtin_memcpy(f->from.address, p + 8, 16);
	__builtin_memcpy(f->to.address, p + 24, 16);
	p += 40;
#pragma unroll
	for (int i = 0; i < EXTENSIONS; i++) {
		if (f->protocol != IPPROTO_HOPOPTS && f->protocol != IPPROTO_ROUTING && f->protocol != IPPROTO_DSTOPTS &&
		    f->protocol != IPPROTO_FRAGMENT)
			break;
		if (p + 8 > f->end)
			return SHORT;
		if (f->protocol == IPPROTO_FRAGMENT) {
			f->fragment = 1;
			f->protocol = p[0];
			p += 8;
		} else {
			f->protocol = p[0];
			p += 8 + p[1] * 8;
		}
	}
	f->at = p;
	return 0;
}

static INLINE int parse_ports(struct frame *f)
{
	__u8 *p = f->at;

	if (f->protocol != IPPROTO_TCP && f->protocol != IPPROTO_UDP && f->protocol != IPPROTO_SCTP)
		return 0;
	if (p + 8 > f->end)
		return SHORT;
	f->from.port = p[0] << 8 | p[1];
	f->to.port = p[2] << 8 | p[3];
	if (f->protocol == IPPROTO_TCP) {
		if (p + 20 > f->end)
			return SHORT;
		f->flags = p[13];
	}
	return 0;
}

/* The key of both directions; whether the frame comes from the higher end. */
static INLINE int key_of(const struct frame *f, struct key *k)
{
	int swapped = f->from.address[1] > f->to.address[1];

	if (f->from.address[1] == f->to.address[1])
		swapped = f->from.address[0] > f->to.address[0] ||
			  (f->from.address[0] == f->to.address[0] && f->from.port > f->to.port);
	k->low[0] = swapped ? f->to.address[0] : f->from.address[0];
	k->low[1] = swapped ? f->to.address[1] : f->from.address[1];
	k->high[0] = swapped ? f->from.address[0] : f->to.address[0];
	k->high[1] = swapped ? f->from.address[1] : f->to.address[1];
	k->low_port = swapped ? f->to.port : f->from.port;
	k->high_port = swapped ? f->from.port : f->to.port;
	k->vlan = f->vlan;
	k->protocol = f->protocol;
	k->version = f->version;
	return swapped;
}

static INLINE int same(const struct record *r, __u32 hash, const struct key *k)
{
	const __u64 *a = (const __u64 *)&r->key, *b = (const __u64 *)k;

	if (r->hash != hash || !r->used)
		return 0;
	return ((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]) | (a[4] ^ b[4])) == 0;
}

static INLINE void follow_tcp(struct record *r, int direction, __u8 flags)
{
	__u8 state = r->tcp[direction & 1];

	if (flags & 0x02)
		state = OPENING;
	else if (state == OPENING)
		state = OPEN;
	if (flags & 0x01)
		state |= CLOSING;
	if (flags & 0x04)
		state = OVER;
	r->tcp[direction & 1] = state;
}

SEC("xdp")
int flow_table(struct xdp_md *ctx)
{
	struct frame f = {.at = (__u8 *)(long)ctx->data, .end = (__u8 *)(long)ctx->data_end};
	struct key k = {};
	struct record *r, *oldest;
	struct bucket *b;
	__u32 zero = 0, index, hash;
	__u64 *count = map_lookup(&counters, &zero), now, idle;
	int direction, found, why;

	if (!count)
		return XDP_PASS;
	f.bytes = f.end - f.at;
	count[FRAMES]++;
	count[BYTES] += f.bytes;
	why = parse_ethernet(&f);
	if (!why) {
		if (f.type == 0x0800)
			why = parse_ipv4(&f);
		else if (f.type == 0x86dd)
			why = parse_ipv6(&f);
		else
			why = NOT_IP;
	}
	if (!why && f.fragment)
		why = FRAGMENTS;
	if (!why)
		why = parse_ports(&f);
	if (why) {
		if (why < COUNTERS)
			count[why]++;
		return XDP_PASS;
	}
	direction = key_of(&f, &k);
	hash = hash_of(&k);
	index = hash & (BUCKETS - 1);
	b = map_lookup(&buckets, &index);
	if (!b)
		return XDP_PASS;
	now = ktime_ns();
	found = -1;
#pragma unroll
	for (int i = 0; i < SLOTS; i++)
		if (same(&b->slot[i], hash, &k))
			found = i;
	if (found < 0) {
		idle = 0;
#pragma unroll
		for (int i = 0; i < SLOTS; i++) {
			__u64 since = b->slot[i].used ? now - b->slot[i].last : ~0ull;

			if (since > idle) {
				idle = since;
				found = i;
			}
		}
		if (idle < IDLE_NS || found < 0) {
			count[FULL]++;
			return XDP_PASS;
		}
		r = &b->slot[found & (SLOTS - 1)];
		count[idle == ~0ull ? LEARNED : DISPLACED]++;
		__builtin_memset(r, 0, sizeof(*r));
		r->key = k;
		r->hash = hash;
		r->used = 1;
		r->first = now;
		r->action = hash >> 28 > 4 ? DROP : COUNT;
	} else {
		r = &b->slot[found & (SLOTS - 1)];
		count[KNOWN]++;
	}
	if (direction) {
		r->frames[1]++;
		r->bytes[1] += f.bytes;
	} else {
		r->frames[0]++;
		r->bytes[0] += f.bytes;
	}
	r->last = now;
	if (f.protocol == IPPROTO_TCP) {
		follow_tcp(r, direction, f.flags);
		if ((r->tcp[0] & CLOSING && r->tcp[1] & CLOSING) || (r->tcp[0] | r->tcp[1]) & OVER) {
			r->used = 0;
			count[CLOSED]++;
		}
	}
	if (r->action == DROP) {
		count[DROPPED]++;
		return XDP_DROP;
	}
	return XDP_PASS;
}

LICENSE("GPL");
