// SPDX-License-Identifier: GPL-2.0
/* Two queue pairs of a device, connected to each other. */
#include <linux/slab.h>
#include <rdma/ib_cache.h>

#include "kverbs.h"

#define PORT 1

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

int connect_both(struct test *test)
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

int reconnect(struct test *test)
{
	int ret = to_reset(&test->a) ?: to_reset(&test->b);

	reinit_completion(&test->a.sent);
	reinit_completion(&test->a.received);
	reinit_completion(&test->b.sent);
	reinit_completion(&test->b.received);
	return ret ?: connect_both(test);
}

void close_side(struct test *test, struct side *side)
{
	if (!IS_ERR_OR_NULL(side->qp))
		ib_destroy_qp(side->qp);
	if (side->dma)
		ib_dma_unmap_single(test->device, side->dma, BUFFER, DMA_BIDIRECTIONAL);
	kfree(side->buffer);
}

int open_side(struct test *test, struct side *side)
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
