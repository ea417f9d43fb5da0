// SPDX-License-Identifier: GPL-2.0
/* SEND, WRITE, READ, atomics, errors. */
#include <linux/printk.h>
#include <linux/random.h>

#include "kverbs.h"

#define ROUNDS 200

/* A SEND of @length bytes from a to b, checked. */
static int send(struct test *test, u32 length, int flags, const char *what)
{
	struct ib_send_wr wr = { .opcode = IB_WR_SEND_WITH_IMM, .ex.imm_data = cpu_to_be32(length) };
	struct ib_sge sge = sge_of(test, &test->a, 0, length);
	int ret;

	get_random_bytes(test->a.buffer, length);
	memset(test->b.buffer, 0, BUFFER);
	if (flags & IB_SEND_INLINE)
		sge.addr = (uintptr_t)test->a.buffer;
	ret = post_recv(test, &test->b, HALF, HALF) ?: post_send(&test->a, &wr, &sge, flags) ?:
	      await(&test->a.sent, &test->a.send_wc, IB_WC_SUCCESS, what) ?:
	      await(&test->b.received, &test->b.recv_wc, IB_WC_SUCCESS, what);
	if (ret)
		return ret;
	return expect(test->b.recv_wc.byte_len == length &&
		      test->b.recv_wc.ex.imm_data == cpu_to_be32(length) &&
		      test->b.recv_wc.wc_flags & IB_WC_WITH_IMM &&
		      test->b.recv_wc.qp == test->b.qp &&
		      !memcmp(test->b.buffer + HALF, test->a.buffer, length), what);
}

static int rdma(struct test *test, enum ib_wr_opcode opcode, u32 rkey, enum ib_wc_status status,
		const char *what)
{
	struct ib_rdma_wr wr = { .wr.opcode = opcode, .remote_addr = test->b.dma, .rkey = rkey };
	struct ib_sge sge = sge_of(test, &test->a, 0, HALF);

	get_random_bytes(test->a.buffer, HALF);
	get_random_bytes(test->b.buffer, HALF);
	return post_send(&test->a, &wr.wr, &sge, 0) ?:
	       await(&test->a.sent, &test->a.send_wc, status, what) ?:
	       expect(status || !memcmp(test->a.buffer, test->b.buffer, HALF), what);
}

static int atomic(struct test *test, enum ib_wr_opcode opcode, u32 rkey, u64 old, u64 compare_add, u64 swap,
		  u64 wanted, const char *what)
{
	struct ib_atomic_wr wr = {
		.wr.opcode = opcode,
		.remote_addr = test->b.dma,
		.rkey = rkey,
		.compare_add = compare_add,
		.swap = swap,
	};
	struct ib_sge sge = sge_of(test, &test->a, 0, sizeof(u64));

	*(u64 *)test->b.buffer = old;
	return post_send(&test->a, &wr.wr, &sge, 0) ?:
	       await(&test->a.sent, &test->a.send_wc, IB_WC_SUCCESS, what) ?:
	       expect(*(u64 *)test->a.buffer == old && *(u64 *)test->b.buffer == wanted, what);
}

/* The last test: it ends with both queue pairs in error. */
static int errors(struct test *test)
{
	int ret;

	ret = post_recv(test, &test->a, HALF, HALF) ?:
	      rdma(test, IB_WR_RDMA_WRITE, test->pd->unsafe_global_rkey ^ 0x100,
		   IB_WC_REM_ACCESS_ERR, "WRITE with a wrong rkey") ?:
	      await(&test->a.received, &test->a.recv_wc, IB_WC_WR_FLUSH_ERR, "flush");
	if (ret)
		return ret;
	/* Reset makes them usable again. */
	return reconnect(test) ?:
	       send(test, 100, 0, "SEND after reset");
}

/* The PD's global key does not allow atomics: this takes one from the driver that does. */
static int atomics(struct test *test)
{
	struct ib_mr *mr = test->device->ops.get_dma_mr(test->pd, IB_ACCESS_LOCAL_WRITE |
								  IB_ACCESS_REMOTE_ATOMIC);
	int ret, end;

	if (IS_ERR(mr))
		return PTR_ERR(mr);
	mr->device = test->device;
	mr->pd = test->pd;
	ret = atomic(test, IB_WR_ATOMIC_FETCH_AND_ADD, mr->rkey, 40, 2, 0, 42, "FETCH_ADD") ?:
	      atomic(test, IB_WR_ATOMIC_CMP_AND_SWP, mr->rkey, 5, 5, 9, 9, "CMP_SWP, equal") ?:
	      atomic(test, IB_WR_ATOMIC_CMP_AND_SWP, mr->rkey, 6, 5, 9, 6, "CMP_SWP, different");
	end = test->device->ops.dereg_mr(mr, NULL);
	return ret ?: end;
}

int test_data(struct test *test)
{
	u32 rkey = test->pd->unsafe_global_rkey;
	int ret, i;

	ret = connect_both(test);
	if (ret) {
		pr_err("connecting failed: %d\n", ret);
		return ret;
	}
	for (i = 0; i < ROUNDS && !ret; i++)
		ret = send(test, 1 + i * 20 % HALF, 0, "SEND");
	return ret ?: send(test, INLINE, IB_SEND_INLINE, "inline SEND") ?:
	       rdma(test, IB_WR_RDMA_WRITE, rkey, IB_WC_SUCCESS, "WRITE") ?:
	       rdma(test, IB_WR_RDMA_READ, rkey, IB_WC_SUCCESS, "READ") ?:
	       atomics(test) ?:
	       errors(test);
}
