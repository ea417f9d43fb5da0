/* SPDX-License-Identifier: MIT OR Apache-2.0
 * Rules for faults that a guest sets for its own device, by vrnicfault.h: two queue pairs of the
 * process exchange WRITEs, of which one fails.
 *
 * usage: faults
 */
#define _GNU_SOURCE
#include <linux/capability.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "side.h"
#include "vrnicfault.h"

struct pair {
	struct side a, b;
	struct ibv_mr *mr;
	unsigned char memory[4096];
};

static void open_pair(struct pair *pair, struct ibv_context *context)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);

	need(pd != NULL, "ibv_alloc_pd");
	pair->mr = ibv_reg_mr(pd, pair->memory, sizeof(pair->memory), RIGHTS);
	need(pair->mr != NULL, "ibv_reg_mr");
	pair->a = open_side(context, pd);
	pair->b = open_side(context, pd);
	connect_to(&pair->a, pair->b.qp);
	connect_to(&pair->b, pair->a.qp);
}

static void close_pair(struct pair *pair)
{
	struct ibv_pd *pd = pair->a.pd;

	expect(ibv_destroy_qp(pair->a.qp), 0, "ibv_destroy_qp");
	expect(ibv_destroy_qp(pair->b.qp), 0, "ibv_destroy_qp");
	expect(ibv_destroy_cq(pair->a.cq), 0, "ibv_destroy_cq");
	expect(ibv_destroy_cq(pair->b.cq), 0, "ibv_destroy_cq");
	expect(ibv_dereg_mr(pair->mr), 0, "ibv_dereg_mr");
	expect(ibv_dealloc_pd(pd), 0, "ibv_dealloc_pd");
}

/* Makes a WRITE from A to B, which completes with this status. */
static void write_once(struct pair *pair, enum ibv_wc_status status)
{
	struct ibv_sge sge = { .addr = (uintptr_t)pair->memory, .length = 8, .lkey = pair->mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = 5, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1,
		.wr.rdma = { .remote_addr = (uintptr_t)(pair->memory + 64), .rkey = pair->mr->rkey },
	}, *bad;

	expect(ibv_post_send(pair->a.qp, &wr, &bad), 0, "ibv_post_send");
	completion(&pair->a, 5, status, 0);
}

static void hits(const struct vrnicfault *fault, uint64_t expected)
{
	uint64_t found = ~0ull;

	expect(vrnicfault_hits(fault, &found), 0, "vrnicfault_hits");
	errno = ERANGE;
	need(found == expected, "the number of hits");
}

/* The second WRITE fails while the rule is in force, and none does before and after it. */
static void fails_once(struct ibv_context *context, const char *device)
{
	char why[VRNICFAULT_REASON];
	struct pair pair;

	open_pair(&pair, context);
	write_once(&pair, IBV_WC_SUCCESS);
	{
		VRNICFAULT_SCOPE struct vrnicfault fault = { 0 };

		expect(vrnicfault_arm(&fault, device, "fail-request status=rem-op-err opcode=write nth=2", why), 0, why);
		write_once(&pair, IBV_WC_SUCCESS);
		hits(&fault, 0);
		write_once(&pair, IBV_WC_REM_OP_ERR);
		expect(vrnicfault_wait(&fault, 1, 1000), 0, "vrnicfault_wait");
		hits(&fault, 1);
		expect(vrnicfault_wait(&fault, 2, 20), ETIMEDOUT, "a second hit");
	}
	close_pair(&pair);
	open_pair(&pair, context);
	write_once(&pair, IBV_WC_SUCCESS);
	write_once(&pair, IBV_WC_SUCCESS);
	close_pair(&pair);
}

/* A refused rule comes back with the reason, and a rule that has ended has no hits. */
static void refused(const char *device)
{
	struct vrnicfault fault, full[16], ended;
	char why[VRNICFAULT_REASON];
	uint64_t count;

	expect(vrnicfault_arm(&fault, device, "drop-message function=other", why), EINVAL, "a foreign function");
	need(strstr(why, "for its own function") != NULL, why);
	expect(vrnicfault_arm(&fault, device, "drop-message colour=red", why), EINVAL, "an unknown field");
	need(strstr(why, "colour") != NULL, why);
	expect(vrnicfault_arm(&fault, "none", "fail-qp", why), ENOENT, "an unknown device");
	for (int nth = 0; nth < 16; nth++)
		expect(vrnicfault_arm(&full[nth], device, "fail-qp nth=999", why), 0, why);
	expect(vrnicfault_arm(&fault, device, "fail-qp nth=999", why), EINVAL, "too many rules");
	need(strstr(why, "16 rules") != NULL, why);
	ended = full[0];
	for (int nth = 0; nth < 16; nth++)
		expect(vrnicfault_clear(&full[nth]), 0, "vrnicfault_clear");
	expect(vrnicfault_hits(&ended, &count), ENOENT, "a rule that has ended");
	expect(vrnicfault_clear(&ended), EINVAL, "a second end");
}

/* Root without CAP_SYS_ADMIN can open the file, but not use it. */
static void needs_capability(const char *device)
{
	pid_t child = fork();
	int status;

	need(child >= 0, "fork");
	if (child == 0) {
		struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
		struct __user_cap_data_struct data[2];
		struct vrnicfault fault;
		char why[VRNICFAULT_REASON];

		need(syscall(SYS_capget, &header, data) == 0, "capget");
		data[0].effective &= ~(1u << CAP_SYS_ADMIN);
		need(syscall(SYS_capset, &header, data) == 0, "capset");
		expect(vrnicfault_arm(&fault, device, "fail-qp", why), EPERM, "without CAP_SYS_ADMIN");
		exit(0);
	}
	need(waitpid(child, &status, 0) == child && status == 0, "the process without CAP_SYS_ADMIN");
}

int main(void)
{
	struct ibv_context *context = open_device();
	const char *device = ibv_get_device_name(context->device);

	needs_capability(device);
	fails_once(context, device);
	refused(device);
	expect(ibv_close_device(context), 0, "ibv_close_device");
	puts("all faults were as expected");
	return 0;
}
