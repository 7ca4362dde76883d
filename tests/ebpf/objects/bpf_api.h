/* What our programs need of the kernel: sections, map declarations, byte order, helpers by number.
 *
 * Helper numbers and signatures: Linux, include/uapi/linux/bpf.h. */
#pragma once

#include <linux/types.h>

#define SEC(name) __attribute__((section(name), used))
#define INLINE inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))
#define BARRIER(x) __asm__ volatile("" : "+r"(x))

#define UINT(name, value) int(*name)[value]
#define TYPE(name, type) typeof(type) *name
#define VALUES(name, type) typeof(type) *name[]

#define htons(x) ((__be16)__builtin_bswap16((__u16)(x)))
#define ntohs(x) __builtin_bswap16((__u16)(x))
#define htonl(x) ((__be32)__builtin_bswap32((__u32)(x)))
#define ntohl(x) __builtin_bswap32((__u32)(x))

#define LICENSE(text) const char license_text[] SEC("license") = text

static void *(*map_lookup)(void *map, const void *key) = (void *)1;
static long (*map_update)(void *map, const void *key, const void *value, __u64 flags) = (void *)2;
static long (*map_delete)(void *map, const void *key) = (void *)3;
static __u64 (*ktime_ns)(void) = (void *)5;
static __u32 (*random_u32)(void) = (void *)7;
static __u32 (*processor_id)(void) = (void *)8;
static long (*skb_store_bytes)(void *skb, __u32 offset, const void *from, __u32 len, __u64 flags) = (void *)9;
static long (*l3_csum_replace)(void *skb, __u32 offset, __u64 from, __u64 to, __u64 size) = (void *)10;
static long (*l4_csum_replace)(void *skb, __u32 offset, __u64 from, __u64 to, __u64 flags) = (void *)11;
static long (*tail_call)(void *ctx, void *programs, __u32 index) = (void *)12;
static long (*skb_load_bytes)(const void *skb, __u32 offset, void *to, __u32 len) = (void *)26;
static __s64 (*csum_diff)(const void *from, __u32 from_size, const void *to, __u32 to_size, __u32 seed) = (void *)28;
static long (*skb_pull_data)(void *skb, __u32 len) = (void *)39;
static long (*xdp_adjust_head)(void *ctx, int delta) = (void *)44;
static long (*xdp_adjust_tail)(void *ctx, int delta) = (void *)65;
static long (*redirect_map)(void *map, __u64 key, __u64 flags) = (void *)51;
static long (*spin_lock)(void *lock) = (void *)93;
static long (*spin_unlock)(void *lock) = (void *)94;
static void *(*ringbuf_reserve)(void *ring, __u64 size, __u64 flags) = (void *)131;
static void (*ringbuf_submit)(void *data, __u64 flags) = (void *)132;
static long (*loop)(__u32 rounds, void *body, void *ctx, __u64 flags) = (void *)181;
static long (*xdp_load_bytes)(void *ctx, __u32 offset, void *to, __u32 len) = (void *)189;
static long (*xdp_store_bytes)(void *ctx, __u32 offset, const void *from, __u32 len) = (void *)190;
