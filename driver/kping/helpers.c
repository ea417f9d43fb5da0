// SPDX-License-Identifier: GPL-2.0
/* See helpers.h. */

#include <linux/in.h>
#include <linux/scatterlist.h>
#include <net/net_namespace.h>

#include "helpers.h"

struct rdma_cm_id *kping_create_id(rdma_cm_event_handler handler, void *context)
{
	return rdma_create_id(&init_net, handler, context, RDMA_PS_TCP, IB_QPT_RC);
}

int kping_bind(struct rdma_cm_id *id, u16 port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };

	return rdma_bind_addr(id, (struct sockaddr *)&address);
}

int kping_resolve(struct rdma_cm_id *id, u32 address, u16 port, unsigned long timeout_ms)
{
	struct sockaddr_in to = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(address),
	};

	return rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, timeout_ms);
}

int kping_connect(struct rdma_cm_id *id, bool accept)
{
	struct rdma_conn_param param = {
		.responder_resources = 4,
		.initiator_depth = 4,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};

	return accept ? rdma_accept(id, &param) : rdma_connect(id, &param);
}

struct ib_pd *kping_alloc_pd(struct ib_device *device)
{
	return ib_alloc_pd(device, 0);
}

void kping_dealloc_pd(struct ib_pd *pd)
{
	ib_dealloc_pd(pd);
}

int kping_create_qp(struct rdma_cm_id *id, struct ib_pd *pd, struct ib_cq *cq, u32 depth, u32 sges)
{
	struct ib_qp_init_attr attr = {
		.qp_type = IB_QPT_RC,
		.send_cq = cq,
		.recv_cq = cq,
		.sq_sig_type = IB_SIGNAL_ALL_WR,
		.cap = {
			/* Draining posts one more to each queue. */
			.max_send_wr = depth + 1,
			.max_recv_wr = depth + 1,
			.max_send_sge = sges,
			.max_recv_sge = 1,
		},
	};

	return rdma_create_qp(id, pd, &attr);
}

u64 kping_map(struct ib_device *device, void *memory, u32 length)
{
	u64 address = ib_dma_map_single(device, memory, length, DMA_BIDIRECTIONAL);

	return ib_dma_mapping_error(device, address) ? 0 : address;
}

void kping_unmap(struct ib_device *device, u64 address, u32 length)
{
	ib_dma_unmap_single(device, address, length, DMA_BIDIRECTIONAL);
}

void kping_set_sg(struct scatterlist *list, u32 count, u32 nth, void *memory, u32 length)
{
	if (!nth)
		sg_init_table(list, count);
	sg_set_buf(&list[nth], memory, length);
}

int kping_map_sg(struct ib_device *device, struct scatterlist *list, u32 count)
{
	return ib_dma_map_sg(device, list, count, DMA_BIDIRECTIONAL);
}

void kping_unmap_sg(struct ib_device *device, struct scatterlist *list, u32 count)
{
	ib_dma_unmap_sg(device, list, count, DMA_BIDIRECTIONAL);
}

int kping_dereg_mr(struct ib_mr *mr)
{
	return ib_dereg_mr(mr);
}

int kping_post_recv(struct ib_qp *qp, struct ib_cqe *cqe, struct ib_sge *sges, u32 count)
{
	struct ib_recv_wr wr = { .wr_cqe = cqe, .sg_list = sges, .num_sge = count };

	return ib_post_recv(qp, &wr, NULL);
}

int kping_post_send(struct ib_qp *qp, struct ib_cqe *cqe, struct ib_sge *sges, u32 count, u32 invalidate)
{
	struct ib_send_wr wr = {
		.wr_cqe = cqe,
		.opcode = invalidate ? IB_WR_SEND_WITH_INV : IB_WR_SEND,
		.sg_list = sges,
		.num_sge = count,
		.ex.invalidate_rkey = invalidate,
	};

	return ib_post_send(qp, &wr, NULL);
}

int kping_post_rdma(struct ib_qp *qp, struct ib_cqe *cqe, struct ib_sge *sges, u32 count, bool write,
		    u64 address, u32 key)
{
	struct ib_rdma_wr wr = {
		.wr.wr_cqe = cqe,
		.wr.opcode = write ? IB_WR_RDMA_WRITE : IB_WR_RDMA_READ,
		.wr.sg_list = sges,
		.wr.num_sge = count,
		.remote_addr = address,
		.rkey = key,
	};

	return ib_post_send(qp, &wr.wr, NULL);
}

int kping_post_reg(struct ib_qp *qp, struct ib_cqe *cqe, struct ib_mr *mr)
{
	struct ib_reg_wr wr = {
		.wr.wr_cqe = cqe,
		.wr.opcode = IB_WR_REG_MR,
		.mr = mr,
		.access = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_WRITE,
	};

	ib_update_fast_reg_key(mr, ib_inc_rkey(mr->rkey));
	wr.key = mr->rkey;
	return ib_post_send(qp, &wr.wr, NULL);
}

int kping_post_inv(struct ib_qp *qp, struct ib_cqe *cqe, u32 key)
{
	struct ib_send_wr wr = {
		.wr_cqe = cqe,
		.opcode = IB_WR_LOCAL_INV,
		.ex.invalidate_rkey = key,
	};

	return ib_post_send(qp, &wr, NULL);
}

struct ib_cqe *kping_wc_cqe(const struct ib_wc *wc)
{
	return wc->wr_cqe;
}

u32 kping_wc_invalidated(const struct ib_wc *wc)
{
	return wc->wc_flags & IB_WC_WITH_INVALIDATE ? wc->ex.invalidate_rkey : 0;
}
