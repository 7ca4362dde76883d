/* What an object asks of the kernel by name. */
#include <linux/bpf.h>

#include "../bpf_api.h"

#define KCONFIG SEC(".kconfig")
#define KSYM __attribute__((section(".ksyms")))
#define WEAK __attribute__((weak))

extern int LINUX_KERNEL_VERSION __attribute__((section(".kconfig")));
extern unsigned long CONFIG_HZ __attribute__((section(".kconfig")));
extern const char CONFIG_DEFAULT_HOSTNAME[16] __attribute__((section(".kconfig"))) WEAK;
extern _Bool CONFIG_NOT_KNOWN __attribute__((section(".kconfig"))) WEAK;

extern const int bpf_prog_active KSYM;
extern const int no_such_variable KSYM WEAK;
extern void bpf_rcu_read_lock(void) KSYM;
extern void no_such_function(void) KSYM WEAK;

SEC("xdp")
int settings(struct xdp_md *ctx)
{
	return LINUX_KERNEL_VERSION + CONFIG_HZ + CONFIG_DEFAULT_HOSTNAME[1] + CONFIG_NOT_KNOWN;
}

SEC("xdp")
int functions(struct xdp_md *ctx)
{
	bpf_rcu_read_lock();
	if (no_such_function)
		no_such_function();
	return 0;
}

SEC("xdp")
int variables(struct xdp_md *ctx)
{
	return (long)&bpf_prog_active & 7 || (long)&no_such_variable & 7;
}

const char license_text[] SEC("license") = "GPL";
