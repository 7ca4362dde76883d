/* A firewall with address translation, as one classifier and the one that it hands new connections to.
 *
 * Prefix lists for sources and targets, rules by protocol and ports, a connection table with TCP states, limits by
 * source, source and destination translation with ports of its own, translation inside ICMP errors, and clamping of the
 * TCP maximum segment size. IPv4 and IPv6 are filtered, IPv4 is translated. What it refuses goes to a ring buffer. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include "../bpf_api.h"

#define VLANS 2
#define EXTENSIONS 3
#define RULES 64
#define RULES_PER_CHAIN 16
#define TCP_OPTIONS 24
#define PORT_TRIES 8
#define FIRST_PORT 20000
#define PORTS 40000
#define MAX_SEGMENT 1400

enum stage { OPEN4, OPEN6, STAGES };
enum verdict { PASS, DENIED_SOURCE, DENIED_TARGET, DENIED_RULE, TOO_MANY, BAD_STATE, BROKEN, NO_PORT, VERDICTS };
enum counter { FRAMES, NOT_IP, FRAGMENTS, NEW, KNOWN, TRANSLATED, CLAMPED, QUOTED, REFUSED, COUNTERS = REFUSED + VERDICTS };
enum action { ALLOW = 1, DENY = 2, HIDE = 4, FORWARD = 8, LIMIT_RATE = 16 };
enum tcp_state { CLOSED, SYN_SENT, SYN_RECEIVED, ESTABLISHED, CLOSING };

struct key4 {
	__be32 source;
	__be32 target;
	__be16 source_port;
	__be16 target_port;
	__u32 protocol;
};

struct key6 {
	__be32 source[4];
	__be32 target[4];
	__be16 source_port;
	__be16 target_port;
	__u32 protocol;
};

/* What becomes of a connection's packets in one direction. */
struct entry {
	__u64 seen;
	__u64 frames;
	__u64 bytes;
	__be32 address; /* the source's (HIDE) or the target's (FORWARD), 0: none */
	__be16 port;
	__u8 state;
	__u8 reply;
	__u32 flags;
	__u32 rule;
};

struct rule {
	__u32 flags;
	__u8 protocol;
	__u8 list; /* of sources that it is for, 0: all */
	__be16 new_port;
	__u16 first_port;
	__u16 last_port;
	__be32 new_address;
};

struct bucket {
	__u64 filled;
	__u64 tokens;
};

struct prefix4 {
	__u32 bits;
	__be32 address;
};

struct prefix6 {
	__u32 bits;
	__be32 address[4];
};

struct refusal {
	__u64 time;
	__u32 verdict;
	__u32 rule;
	__u32 length;
	__u32 protocol;
	__be32 source[4];
	__be32 target[4];
	__be16 source_port;
	__be16 target_port;
	__u32 version;
};

struct work {
	struct key4 key;
	struct key6 key6;
	__u32 l3;
	__u32 l4;
	__u32 length;
	__u32 flags; /* of TCP */
	__u32 list;
	__u32 rule;
};

struct {
	UINT(type, BPF_MAP_TYPE_LPM_TRIE);
	UINT(max_entries, 16384);
	UINT(map_flags, BPF_F_NO_PREALLOC);
	TYPE(key, struct prefix4);
	TYPE(value, __u32);
} sources4 SEC(".maps");

struct {
	UINT(type, BPF_MAP_TYPE_LPM_TRIE);
	UINT(max_entries, 16384);
	UINT(map_flags, BPF_F_NO_PREALLOC);
	TYPE(key, struct prefix4);
	TYPE(value, __u32);
} targets4 SEC(".maps");

struct {
	UINT(type, BPF_MAP_TYPE_LPM_TRIE);
	UINT(max_entries, 16384);
	UINT(map_flags, BPF_F_NO_PREALLOC);
	TYPE(key, struct prefix6);
	TYPE(value, __u32);
} sources6 SEC(".maps");

struct {
	UINT(type, BPF_MAP_TYPE_ARRAY);
	UINT(max_entries, RULES);
	TYPE(key, __u32);
	TYPE(value, struct rule);
} rules SEC(".maps");

struct {
	UINT(type, BPF_MAP_TYPE_LRU_HASH);
	UINT(max_entries, 65536);
	TYPE(key, struct key4);
	TYPE(value, struct entry);
} connections4 SEC(".maps");

struct {
	UINT(type, BPF_MAP_TYPE_LRU_HASH);
	UINT(max_entries, 65536);
	TYPE(key, struct key6);
	TYPE(value, struct entry);
} connections6 SEC(".maps");

struct {
	UINT(type, BPF_MAP_TYPE_LRU_HASH);
	UINT(max_entries, 4096);
	TYPE(key, __be32);
	TYPE(value, struct bucket);
} buckets SEC(".maps");

struct {
	UINT(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	UINT(max_entries, 1);
	TYPE(key, __u32);
	TYPE(value, struct work);
} scratch SEC(".maps");

struct {
	UINT(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	UINT(max_entries, COUNTERS);
	TYPE(key, __u32);
	TYPE(value, __u64);
} counters SEC(".maps");

struct {
	UINT(type, BPF_MAP_TYPE_RINGBUF);
	UINT(max_entries, 1 << 18);
} refusals SEC(".maps");

int open4(struct __sk_buff *skb);
int open6(struct __sk_buff *skb);

struct {
	UINT(type, BPF_MAP_TYPE_PROG_ARRAY);
	UINT(max_entries, STAGES);
	UINT(key_size, sizeof(__u32));
	VALUES(values, int(struct __sk_buff *));
} stages SEC(".maps") = {
	.values = {
		[OPEN4] = (void *)&open4,
		[OPEN6] = (void *)&open6,
	},
};

const volatile __be32 outside = htonl(0xcb007101);
const volatile __u64 bucket_size = 32;
const volatile __u64 ns_per_token = 1000000;
const volatile __u32 strict = 1;

static INLINE void count(__u32 counter)
{
	__u64 *value = map_lookup(&counters, &counter);

	if (value)
		*value += 1;
}

static INLINE int refuse(struct work *work, __u32 verdict, int version)
{
	struct refusal *refusal;

	count(REFUSED + verdict);
	refusal = ringbuf_reserve(&refusals, sizeof(*refusal), 0);
	if (!refusal)
		return TC_ACT_SHOT;
	refusal->time = ktime_ns();
	refusal->verdict = verdict;
	refusal->rule = work->rule;
	refusal->length = work->length;
	refusal->version = version;
	if (version == 4) {
		refusal->protocol = work->key.protocol;
		refusal->source_port = work->key.source_port;
		refusal->target_port = work->key.target_port;
		refusal->source[0] = work->key.source;
		refusal->target[0] = work->key.target;
#pragma unroll
		for (int n = 1; n < 4; n++)
			refusal->source[n] = refusal->target[n] = 0;
	} else {
		refusal->protocol = work->key6.protocol;
		refusal->source_port = work->key6.source_port;
		refusal->target_port = work->key6.target_port;
#pragma unroll
		for (int n = 0; n < 4; n++) {
			refusal->source[n] = work->key6.source[n];
			refusal->target[n] = work->key6.target[n];
		}
	}
	ringbuf_submit(refusal, 0);
	return TC_ACT_SHOT;
}

/* Whether a source may open one more connection now. */
static INLINE int within_limit(__be32 source)
{
	struct bucket *bucket = map_lookup(&buckets, &source), fresh = {};
	__u64 now = ktime_ns(), earned;

	if (!bucket) {
		fresh.filled = now;
		fresh.tokens = bucket_size;
		map_update(&buckets, &source, &fresh, BPF_ANY);
		return 1;
	}
	earned = (now - bucket->filled) / (ns_per_token | 1);
	if (earned) {
		bucket->filled = now;
		bucket->tokens += earned;
		if (bucket->tokens > bucket_size)
			bucket->tokens = bucket_size;
	}
	if (!bucket->tokens)
		return 0;
	bucket->tokens--;
	return 1;
}

/* The state that a TCP packet leads to; CLOSED: it does not belong there. */
static INLINE __u32 next_state(__u32 state, __u32 flags, int reply)
{
	int syn = flags & 2, ack = flags & 16, end = flags & 5;

	if (end)
		return CLOSING;
	switch (state) {
	case SYN_SENT:
		return reply ? (syn && ack ? SYN_RECEIVED : CLOSED) : (syn ? SYN_SENT : CLOSED);
	case SYN_RECEIVED:
		return reply ? SYN_RECEIVED : (ack && !syn ? ESTABLISHED : CLOSED);
	case ESTABLISHED:
		return syn ? CLOSED : ESTABLISHED;
	case CLOSING:
		return syn ? CLOSED : CLOSING;
	default:
		return CLOSED;
	}
}

/* Looks a new connection's rule up in the chain of its source's list. */
static INLINE struct rule *find_rule(struct work *work, __u32 protocol, __u16 port)
{
	for (__u32 n = 0; n < RULES_PER_CHAIN; n++) {
		__u32 number = (work->list * RULES_PER_CHAIN + n) % RULES;
		struct rule *rule = map_lookup(&rules, &number);

		if (!rule || !rule->flags)
			return 0;
		if (rule->protocol && rule->protocol != protocol)
			continue;
		if (port < rule->first_port || port > rule->last_port)
			continue;
		work->rule = number;
		return rule;
	}
	return 0;
}

/* Puts another address and port into the headers, at offsets from the frame's start. */
static INLINE int translate(struct __sk_buff *skb, struct work *work, __u32 address_at, __u32 port_at, __be32 from,
			    __be32 to, __be16 from_port, __be16 to_port)
{
	__u32 l4 = work->l4, check = 0, flags = BPF_F_PSEUDO_HDR | sizeof(to);

	if (work->key.protocol == IPPROTO_TCP)
		check = l4 + __builtin_offsetof(struct tcphdr, check);
	else if (work->key.protocol == IPPROTO_UDP) {
		check = l4 + __builtin_offsetof(struct udphdr, check);
		flags |= BPF_F_MARK_MANGLED_0;
	}
	if (check) {
		if (l4_csum_replace(skb, check, from, to, flags))
			return -1;
		if (from_port != to_port) {
			flags = sizeof(to_port) | (flags & BPF_F_MARK_MANGLED_0);
			if (l4_csum_replace(skb, check, from_port, to_port, flags) ||
			    skb_store_bytes(skb, l4 + port_at, &to_port, sizeof(to_port), 0))
				return -1;
		}
	}
	if (l3_csum_replace(skb, work->l3 + __builtin_offsetof(struct iphdr, check), from, to, sizeof(to)) ||
	    skb_store_bytes(skb, work->l3 + address_at, &to, sizeof(to), 0))
		return -1;
	count(TRANSLATED);
	return 0;
}

/* Lowers the maximum segment size that a SYN announces. */
static INLINE int clamp_segments(struct __sk_buff *skb, struct work *work)
{
	__u32 at = work->l4 + sizeof(struct tcphdr), stop;
	struct tcphdr tcp;
	__u8 head[4];

	if (skb_load_bytes(skb, work->l4, &tcp, sizeof(tcp)))
		return -1;
	stop = work->l4 + tcp.doff * 4;
#pragma unroll
	for (int n = 0; n < TCP_OPTIONS; n++) {
		__be16 old, new = htons(MAX_SEGMENT);

		if (at + 1 > stop || skb_load_bytes(skb, at, head, 1) || head[0] == 0)
			break;
		if (head[0] == 1) {
			at++;
			continue;
		}
		if (at + 2 > stop || skb_load_bytes(skb, at, head, 2) || head[1] < 2)
			return -1;
		if (head[0] != 2 || head[1] != 4) {
			at += head[1];
			continue;
		}
		if (at + 4 > stop || skb_load_bytes(skb, at, head, 4))
			return -1;
		old = htons(head[2] << 8 | head[3]);
		if (ntohs(old) <= MAX_SEGMENT)
			break;
		if (l4_csum_replace(skb, work->l4 + __builtin_offsetof(struct tcphdr, check), old, new, sizeof(new)) ||
		    skb_store_bytes(skb, at + 2, &new, sizeof(new), 0))
			return -1;
		count(CLAMPED);
		break;
	}
	return 0;
}

static INLINE void turn_round4(struct key4 *to, const struct key4 *from)
{
	to->source = from->target;
	to->target = from->source;
	to->source_port = from->target_port;
	to->target_port = from->source_port;
	to->protocol = from->protocol;
}

static INLINE void turn_round6(struct key6 *to, const struct key6 *from)
{
#pragma unroll
	for (int n = 0; n < 4; n++) {
		to->source[n] = from->target[n];
		to->target[n] = from->source[n];
	}
	to->source_port = from->target_port;
	to->target_port = from->source_port;
	to->protocol = from->protocol;
}

static INLINE __u32 mix(__u32 a, __u32 b, __u32 c)
{
	a = (a ^ 0x9e3779b9) * 0x85ebca6b;
	b = ((b + a) << 13 | (b + a) >> 19) * 0xc2b2ae35;
	c = ((c ^ b) << 7 | (c ^ b) >> 25) + a;
	c ^= c >> 16;
	c *= 0x7feb352d;
	return c ^ c >> 15;
}

/* Ports, TCP flags and ICMP identifiers; what is left is BROKEN. */
static INLINE int parse_transport(void *data, void *end, struct work *work, __u32 protocol, __be16 *ports)
{
	void *at = data + work->l4;

	if (protocol == IPPROTO_TCP) {
		struct tcphdr *tcp = at;

		if ((void *)(tcp + 1) > end || tcp->doff < 5)
			return BROKEN;
		ports[0] = tcp->source;
		ports[1] = tcp->dest;
		work->flags = ((__u8 *)tcp)[13];
		if (strict && ((work->flags & 3) == 3 || (work->flags & 6) == 6 || !(work->flags & 0x3f)))
			return BROKEN;
	} else if (protocol == IPPROTO_UDP) {
		struct udphdr *udp = at;

		if ((void *)(udp + 1) > end || ntohs(udp->len) < sizeof(*udp))
			return BROKEN;
		ports[0] = udp->source;
		ports[1] = udp->dest;
	} else if (protocol == IPPROTO_ICMP || protocol == IPPROTO_ICMPV6) {
		__be16 *icmp = at;

		if ((void *)(icmp + 4) > end)
			return BROKEN;
		ports[0] = ports[1] = icmp[2];
	} else
		ports[0] = ports[1] = 0;
	return PASS;
}

/* Keeps a known connection's state and lets its packet through, translated where the connection is. */
static INLINE int pass4(struct __sk_buff *skb, struct work *work, struct entry *entry)
{
	__be32 address = entry->address;
	__be16 port = entry->port;

	count(KNOWN);
	if (work->key.protocol == IPPROTO_TCP) {
		__u32 state = next_state(entry->state, work->flags, entry->reply);

		if (state == CLOSED)
			return refuse(work, BAD_STATE, 4);
		entry->state = state;
		if (work->flags & 2 && clamp_segments(skb, work))
			return refuse(work, BROKEN, 4);
	}
	entry->seen = ktime_ns();
	__sync_fetch_and_add(&entry->frames, 1);
	__sync_fetch_and_add(&entry->bytes, work->length);
	if (entry->flags & HIDE && translate(skb, work, __builtin_offsetof(struct iphdr, saddr), 0, work->key.source,
					     address, work->key.source_port, port))
		return TC_ACT_SHOT;
	if (entry->flags & FORWARD && translate(skb, work, __builtin_offsetof(struct iphdr, daddr), 2, work->key.target,
						address, work->key.target_port, port))
		return TC_ACT_SHOT;
	return TC_ACT_OK;
}

/* An ICMP error passes if the packet that it quotes is of a connection; inside, too, addresses are put back. */
static INLINE int pass_quoted(struct __sk_buff *skb, struct work *work)
{
	struct entry *entry;
	struct key4 key = {};
	struct iphdr ip;
	__be16 ports[2];
	__u32 inner = work->l4 + 8;

	if (skb_load_bytes(skb, inner, &ip, sizeof(ip)) || ip.version != 4 || ip.ihl < 5 ||
	    skb_load_bytes(skb, inner + ip.ihl * 4, ports, sizeof(ports)))
		return refuse(work, BROKEN, 4);
	key.source = ip.daddr;
	key.target = ip.saddr;
	key.source_port = ports[1];
	key.target_port = ports[0];
	key.protocol = ip.protocol;
	entry = map_lookup(&connections4, &key);
	if (!entry)
		return refuse(work, BAD_STATE, 4);
	count(QUOTED);
	if (entry->flags & FORWARD) {
		__be32 address = entry->address;

		if (l3_csum_replace(skb, inner + __builtin_offsetof(struct iphdr, check), ip.saddr, address, 4) ||
		    skb_store_bytes(skb, inner + __builtin_offsetof(struct iphdr, saddr), &address, 4, 0) ||
		    l3_csum_replace(skb, work->l3 + __builtin_offsetof(struct iphdr, check), work->key.target, address, 4) ||
		    skb_store_bytes(skb, work->l3 + __builtin_offsetof(struct iphdr, daddr), &address, 4, 0))
			return TC_ACT_SHOT;
	}
	return TC_ACT_OK;
}

static INLINE int filter4(struct __sk_buff *skb, void *data, void *end, struct work *work)
{
	struct iphdr *ip = data + work->l3;
	struct prefix4 prefix = {.bits = 32};
	struct entry *entry;
	__u32 header, *list;
	__be16 ports[2];
	int verdict;

	if ((void *)(ip + 1) > end)
		return refuse(work, BROKEN, 4);
	header = ip->ihl * 4;
	if (ip->version != 4 || header < sizeof(*ip) || ntohs(ip->tot_len) < header)
		return refuse(work, BROKEN, 4);
	work->key.source = ip->saddr;
	work->key.target = ip->daddr;
	work->key.protocol = ip->protocol;
	work->length = ntohs(ip->tot_len);
	work->l4 = work->l3 + header;
	if (ip->frag_off & htons(0x1fff)) {
		count(FRAGMENTS);
		return strict ? TC_ACT_SHOT : TC_ACT_OK;
	}
	verdict = parse_transport(data, end, work, ip->protocol, ports);
	if (verdict)
		return refuse(work, verdict, 4);
	work->key.source_port = ports[0];
	work->key.target_port = ports[1];
	if (ip->protocol == IPPROTO_ICMP) {
		__u8 *type = data + work->l4;

		if ((void *)(type + 1) > end)
			return refuse(work, BROKEN, 4);
		if (*type == 3 || *type == 11 || *type == 12)
			return pass_quoted(skb, work);
	}
	entry = map_lookup(&connections4, &work->key);
	if (entry)
		return pass4(skb, work, entry);
	prefix.address = work->key.source;
	list = map_lookup(&sources4, &prefix);
	if (list && *list & DENY)
		return refuse(work, DENIED_SOURCE, 4);
	work->list = list ? *list >> 8 & 3 : 0;
	prefix.address = work->key.target;
	list = map_lookup(&targets4, &prefix);
	if (list && *list & DENY)
		return refuse(work, DENIED_TARGET, 4);
	if (work->key.protocol == IPPROTO_TCP && (work->flags & 18) != 2)
		return refuse(work, BAD_STATE, 4);
	tail_call(skb, &stages, OPEN4);
	return TC_ACT_SHOT;
}

struct extension {
	__u8 next;
	__u8 words;
	__u8 rest[6];
};

static INLINE int filter6(struct __sk_buff *skb, void *data, void *end, struct work *work)
{
	struct ipv6hdr *ip = data + work->l3;
	struct prefix6 prefix = {.bits = 128};
	__u32 offset = work->l3 + sizeof(*ip), *list, state;
	struct entry *entry;
	__be16 ports[2];
	__be32 *word;
	int verdict;
	__u8 next;

	if ((void *)(ip + 1) > end || ip->version != 6)
		return refuse(work, BROKEN, 6);
	word = (void *)&ip->saddr;
#pragma unroll
	for (int n = 0; n < 4; n++)
		work->key6.source[n] = prefix.address[n] = word[n];
	word = (void *)&ip->daddr;
#pragma unroll
	for (int n = 0; n < 4; n++)
		work->key6.target[n] = word[n];
	work->length = ntohs(ip->payload_len) + sizeof(*ip);
	next = ip->nexthdr;
#pragma unroll
	for (int n = 0; n < EXTENSIONS; n++) {
		struct extension *extension = data + offset;

		if (next == IPPROTO_FRAGMENT) {
			count(FRAGMENTS);
			return strict ? TC_ACT_SHOT : TC_ACT_OK;
		}
		if (next != IPPROTO_HOPOPTS && next != IPPROTO_ROUTING && next != IPPROTO_DSTOPTS)
			break;
		if ((void *)(extension + 1) > end)
			return refuse(work, BROKEN, 6);
		next = extension->next;
		offset += (extension->words + 1) * 8;
		if (offset > 512)
			return refuse(work, BROKEN, 6);
	}
	work->key6.protocol = next;
	work->l4 = offset;
	if (offset > 512)
		return refuse(work, BROKEN, 6);
	verdict = parse_transport(data, end, work, next, ports);
	if (verdict)
		return refuse(work, verdict, 6);
	work->key6.source_port = ports[0];
	work->key6.target_port = ports[1];
	entry = map_lookup(&connections6, &work->key6);
	if (!entry) {
		list = map_lookup(&sources6, &prefix);
		if (list && *list & DENY)
			return refuse(work, DENIED_SOURCE, 6);
		work->list = list ? *list >> 8 & 3 : 0;
		if (next == IPPROTO_TCP && (work->flags & 18) != 2)
			return refuse(work, BAD_STATE, 6);
		tail_call(skb, &stages, OPEN6);
		return TC_ACT_SHOT;
	}
	count(KNOWN);
	if (next == IPPROTO_TCP) {
		state = next_state(entry->state, work->flags, entry->reply);
		if (state == CLOSED)
			return refuse(work, BAD_STATE, 6);
		entry->state = state;
		if (work->flags & 2 && clamp_segments(skb, work))
			return refuse(work, BROKEN, 6);
	}
	entry->seen = ktime_ns();
	__sync_fetch_and_add(&entry->frames, 1);
	__sync_fetch_and_add(&entry->bytes, work->length);
	return TC_ACT_OK;
}

SEC("tc")
int filter(struct __sk_buff *skb)
{
	void *data, *end;
	struct ethhdr *ethernet;
	struct work *work;
	__u32 first = 0;
	__be16 protocol;

	count(FRAMES);
	work = map_lookup(&scratch, &first);
	if (!work)
		return TC_ACT_SHOT;
	__builtin_memset(work, 0, sizeof(*work));
	skb_pull_data(skb, 128);
	data = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	ethernet = data;
	if ((void *)(ethernet + 1) > end)
		return TC_ACT_SHOT;
	protocol = ethernet->h_proto;
	work->l3 = sizeof(*ethernet);
#pragma unroll
	for (int n = 0; n < VLANS; n++) {
		__be16 *tag = data + sizeof(*ethernet) + 4 * n;

		if (protocol != htons(ETH_P_8021Q) && protocol != htons(ETH_P_8021AD))
			break;
		if ((void *)(tag + 2) > end)
			return TC_ACT_SHOT;
		protocol = tag[1];
		work->l3 += 4;
	}
	if (work->l3 > 22)
		return TC_ACT_SHOT;
	if (protocol == htons(ETH_P_IP))
		return filter4(skb, data, end, work);
	if (protocol == htons(ETH_P_IPV6))
		return filter6(skb, data, end, work);
	count(NOT_IP);
	return TC_ACT_OK;
}

/* Opens a connection: its rule, both directions in the table, and the first packet's translation. */
SEC("tc")
int open4(struct __sk_buff *skb)
{
	struct entry entry = {}, reply = {};
	struct key4 back = {};
	struct rule *rule;
	struct work *work;
	__u32 first = 0, port;
	__u64 now = ktime_ns();

	work = map_lookup(&scratch, &first);
	if (!work)
		return TC_ACT_SHOT;
	rule = find_rule(work, work->key.protocol, ntohs(work->key.target_port));
	if (!rule || rule->flags & DENY)
		return refuse(work, DENIED_RULE, 4);
	if (rule->flags & LIMIT_RATE && !within_limit(work->key.source))
		return refuse(work, TOO_MANY, 4);
	entry.seen = reply.seen = now;
	entry.frames = 1;
	entry.bytes = work->length;
	entry.rule = reply.rule = work->rule;
	entry.state = reply.state = SYN_SENT;
	reply.reply = 1;
	turn_round4(&back, &work->key);
	if (rule->flags & HIDE) {
		port = mix(work->key.source, work->key.target, work->key.source_port) % PORTS;
		back.target = outside;
		entry.flags = HIDE;
		entry.address = outside;
		reply.flags = FORWARD;
		reply.address = work->key.source;
		reply.port = work->key.source_port;
		for (int n = 0; n < PORT_TRIES; n++) {
			back.target_port = htons(FIRST_PORT + (port + n) % PORTS);
			if (!map_update(&connections4, &back, &reply, BPF_NOEXIST)) {
				entry.port = back.target_port;
				break;
			}
		}
		if (!entry.port)
			return refuse(work, NO_PORT, 4);
	} else if (rule->flags & FORWARD) {
		back.source = rule->new_address;
		back.source_port = rule->new_port ? rule->new_port : work->key.target_port;
		entry.flags = FORWARD;
		entry.address = back.source;
		entry.port = back.source_port;
		reply.flags = HIDE;
		reply.address = work->key.target;
		reply.port = work->key.target_port;
		map_update(&connections4, &back, &reply, BPF_ANY);
	} else
		map_update(&connections4, &back, &reply, BPF_ANY);
	map_update(&connections4, &work->key, &entry, BPF_ANY);
	count(NEW);
	if (work->key.protocol == IPPROTO_TCP && clamp_segments(skb, work))
		return refuse(work, BROKEN, 4);
	if (entry.flags & HIDE && translate(skb, work, __builtin_offsetof(struct iphdr, saddr), 0, work->key.source,
					    entry.address, work->key.source_port, entry.port))
		return TC_ACT_SHOT;
	if (entry.flags & FORWARD && translate(skb, work, __builtin_offsetof(struct iphdr, daddr), 2, work->key.target,
					       entry.address, work->key.target_port, entry.port))
		return TC_ACT_SHOT;
	return TC_ACT_OK;
}

SEC("tc")
int open6(struct __sk_buff *skb)
{
	struct entry entry = {}, reply = {};
	struct key6 back = {};
	struct rule *rule;
	struct work *work;
	__u32 first = 0;

	work = map_lookup(&scratch, &first);
	if (!work)
		return TC_ACT_SHOT;
	rule = find_rule(work, work->key6.protocol, ntohs(work->key6.target_port));
	if (!rule || rule->flags & DENY)
		return refuse(work, DENIED_RULE, 6);
	entry.seen = reply.seen = ktime_ns();
	entry.frames = 1;
	entry.bytes = work->length;
	entry.rule = reply.rule = work->rule;
	entry.state = reply.state = SYN_SENT;
	reply.reply = 1;
	turn_round6(&back, &work->key6);
	map_update(&connections6, &back, &reply, BPF_ANY);
	map_update(&connections6, &work->key6, &entry, BPF_ANY);
	count(NEW);
	if (work->key6.protocol == IPPROTO_TCP && clamp_segments(skb, work))
		return refuse(work, BROKEN, 6);
	return TC_ACT_OK;
}

LICENSE("GPL");
