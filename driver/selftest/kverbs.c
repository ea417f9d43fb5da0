// SPDX-License-Identifier: GPL-2.0
/*
 * A kernel client of the vrnic driver, which tests what user space cannot reach: rings that
 * the driver itself posts to and polls, the region of all memory, completion handlers.
 *
 * Loading runs the tests on every vrnic device, each against itself; loading fails if a test
 * fails or there is no device. The kernel log says which.
 */
#include <linux/completion.h>
#include <linux/dma-mapping.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_verbs.h>

#define DRIVER_ID 0x76726e69 /* abi::RDMA_DRIVER_ID */
#define PORT 1
#define DEPTH 16
#define INLINE 64
#define BUFFER 8192
#define HALF (BUFFER / 2)
#define ROUNDS 200
#define TIMEOUT (5 * HZ)

/* One side of a connection. */
struct side {
	struct ib_qp *qp;
	u8 *buffer;
	u64 dma;
	struct ib_cqe send_cqe, recv_cqe;
	struct completion sent, received;
	struct ib_wc send_wc, recv_wc;
};

struct test {
	struct ib_device *device;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct side a, b;
};

static int devices, failures;

static void send_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct side *side = container_of(wc->wr_cqe, struct side, send_cqe);

	side->send_wc = *wc;
	complete(&side->sent);
}

static void recv_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct side *side = container_of(wc->wr_cqe, struct side, recv_cqe);

	side->recv_wc = *wc;
	complete(&side->received);
}

static int await(struct completion *done, const struct ib_wc *wc, enum ib_wc_status status,
		 const char *what)
{
	if (!wait_for_completion_timeout(done, TIMEOUT)) {
		pr_err("%s: no completion\n", what);
		return -ETIMEDOUT;
	}
	if (wc->status != status) {
		pr_err("%s: status %d (vendor %#x), wanted %d\n", what, wc->status,
		       wc->vendor_err, status);
		return -EIO;
	}
	return 0;
}

static int expect(bool ok, const char *what)
{
	if (ok)
		return 0;
	pr_err("%s: wrong result\n", what);
	return -EIO;
}

static struct ib_sge sge_of(struct test *test, struct side *side, u32 offset, u32 length)
{
	return (struct ib_sge) {
		.addr = side->dma + offset,
		.length = length,
		.lkey = test->pd->local_dma_lkey,
	};
}

static int post_recv(struct test *test, struct side *side, u32 offset, u32 length)
{
	struct ib_sge sge = sge_of(test, side, offset, length);
	struct ib_recv_wr wr = { .wr_cqe = &side->recv_cqe, .sg_list = &sge, .num_sge = 1 };

	return ib_post_recv(side->qp, &wr, NULL);
}

static int post_send(struct side *side, struct ib_send_wr *wr, struct ib_sge *sge, int flags)
{
	wr->wr_cqe = &side->send_cqe;
	wr->sg_list = sge;
	wr->num_sge = 1;
	wr->send_flags = flags | IB_SEND_SIGNALED;
	return ib_post_send(side->qp, wr, NULL);
}

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

static int to_reset(struct side *side)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_RESET };

	return ib_modify_qp(side->qp, &attr, IB_QP_STATE);
}

static int connect(struct test *test, struct side *side, u32 peer, const struct ib_gid_attr *gid)
{
	struct ib_qp_attr attr = {
		.qp_state = IB_QPS_INIT,
		.port_num = PORT,
		.qp_access_flags = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_READ |
				   IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_ATOMIC,
	};
	int ret;

	ret = ib_modify_qp(side->qp, &attr,
			   IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS);
	if (ret)
		return ret;
	attr.qp_state = IB_QPS_RTR;
	attr.path_mtu = IB_MTU_1024;
	attr.dest_qp_num = peer;
	attr.max_dest_rd_atomic = 4;
	attr.min_rnr_timer = 12;
	attr.ah_attr.type = RDMA_AH_ATTR_TYPE_ROCE;
	rdma_ah_set_port_num(&attr.ah_attr, PORT);
	rdma_ah_set_grh(&attr.ah_attr, NULL, 0, gid->index, 64, 0);
	rdma_ah_set_dgid_raw(&attr.ah_attr, (void *)gid->gid.raw);
	/* The core resolves addresses for user space only; ours is the port's own. */
	ret = rdma_read_gid_l2_fields(gid, NULL, attr.ah_attr.roce.dmac);
	if (ret)
		return ret;
	ret = ib_modify_qp(side->qp, &attr,
			   IB_QP_STATE | IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN |
			   IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER);
	if (ret)
		return ret;
	attr.qp_state = IB_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	attr.max_rd_atomic = 4;
	return ib_modify_qp(side->qp, &attr,
			    IB_QP_STATE | IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY |
			    IB_QP_SQ_PSN | IB_QP_MAX_QP_RD_ATOMIC);
}

static int connect_both(struct test *test)
{
	const struct ib_gid_attr *gid = rdma_get_gid_attr(test->device, PORT, 0);
	int ret;

	if (IS_ERR(gid))
		return PTR_ERR(gid);
	ret = connect(test, &test->a, test->b.qp->qp_num, gid) ?:
	      connect(test, &test->b, test->a.qp->qp_num, gid);
	rdma_put_gid_attr(gid);
	return ret;
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
	return to_reset(&test->a) ?: to_reset(&test->b) ?: connect_both(test) ?:
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

static int run(struct test *test)
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

static void close_side(struct test *test, struct side *side)
{
	if (!IS_ERR_OR_NULL(side->qp))
		ib_destroy_qp(side->qp);
	if (side->dma)
		ib_dma_unmap_single(test->device, side->dma, BUFFER, DMA_BIDIRECTIONAL);
	kfree(side->buffer);
}

static int open_side(struct test *test, struct side *side)
{
	struct ib_qp_init_attr attr = {
		.qp_type = IB_QPT_RC,
		.send_cq = test->cq,
		.recv_cq = test->cq,
		.sq_sig_type = IB_SIGNAL_REQ_WR,
		.cap = {
			.max_send_wr = DEPTH,
			.max_recv_wr = DEPTH,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = INLINE,
		},
	};

	side->send_cqe.done = send_done;
	side->recv_cqe.done = recv_done;
	init_completion(&side->sent);
	init_completion(&side->received);
	side->buffer = kzalloc(BUFFER, GFP_KERNEL);
	if (!side->buffer)
		return -ENOMEM;
	side->dma = ib_dma_map_single(test->device, side->buffer, BUFFER, DMA_BIDIRECTIONAL);
	if (ib_dma_mapping_error(test->device, side->dma)) {
		side->dma = 0;
		return -ENOMEM;
	}
	side->qp = ib_create_qp(test->pd, &attr);
	return PTR_ERR_OR_ZERO(side->qp);
}

static int test_device(struct ib_device *device)
{
	struct test *test = kzalloc(sizeof(*test), GFP_KERNEL);
	int ret;

	if (!test)
		return -ENOMEM;
	test->device = device;
	test->pd = ib_alloc_pd(device, IB_PD_UNSAFE_GLOBAL_RKEY);
	if (IS_ERR(test->pd)) {
		ret = PTR_ERR(test->pd);
		goto free;
	}
	test->cq = ib_alloc_cq(device, test, 4 * DEPTH, 0, IB_POLL_WORKQUEUE);
	if (IS_ERR(test->cq)) {
		ret = PTR_ERR(test->cq);
		goto dealloc;
	}
	ret = open_side(test, &test->a) ?: open_side(test, &test->b) ?: run(test);
	close_side(test, &test->a);
	close_side(test, &test->b);
	ib_free_cq(test->cq);
dealloc:
	ib_dealloc_pd(test->pd);
free:
	kfree(test);
	return ret;
}

static int add(struct ib_device *device)
{
	int ret;

	if (device->ops.driver_id != DRIVER_ID)
		return -EOPNOTSUPP;
	ret = test_device(device);
	devices++;
	failures += !!ret;
	dev_info(&device->dev, "kernel verbs test: %d\n", ret);
	return ret;
}

static void remove(struct ib_device *device, void *data)
{
}

static struct ib_client client = { .name = "vrnic_kverbs", .add = add, .remove = remove };

static int __init kverbs_init(void)
{
	int ret = ib_register_client(&client);

	if (ret)
		return ret;
	if (devices && !failures)
		return 0;
	ib_unregister_client(&client);
	return devices ? -EIO : -ENODEV;
}
module_init(kverbs_init);

static void __exit kverbs_exit(void)
{
	ib_unregister_client(&client);
}
module_exit(kverbs_exit);

MODULE_DESCRIPTION("Kernel client that tests the vrnic driver");
MODULE_LICENSE("GPL");
