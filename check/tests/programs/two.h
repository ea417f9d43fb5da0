/* SPDX-License-Identifier: MIT OR Apache-2.0
 * Two queue pairs of one process that are connected with each other, for programs that show a rule.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "must.h"

#define SIZE 65536
#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

struct two {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp[2];
	char *buffer;
	struct ibv_mr *mr;
};

static inline struct ibv_context *open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context;

	MUST(list && list[0]);
	context = ibv_open_device(list[0]);
	MUST(context);
	ibv_free_device_list(list);
	return context;
}

static inline struct ibv_qp *create_pair(struct two *two)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = two->cq, .recv_cq = two->cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 2, .max_recv_sge = 2,
			 .max_inline_data = 64 },
	};
	struct ibv_qp *qp = ibv_create_qp(two->pd, &attr);

	MUST(qp);
	return qp;
}

static inline void to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ACCESS };

	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
}

static inline void to_rts(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1, .sgid_index = 1 } },
	};

	MUST(!ibv_query_gid(qp->context, 1, 1, &attr.ah_attr.grh.dgid));
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	attr.max_rd_atomic = 1;
	MUST(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

/* Opens a device, and creates two queue pairs, a completion queue and a region of SIZE bytes. */
static inline void create(struct two *two, int completions)
{
	two->context = open_device();
	two->pd = ibv_alloc_pd(two->context);
	MUST(two->pd);
	two->channel = ibv_create_comp_channel(two->context);
	MUST(two->channel);
	two->cq = ibv_create_cq(two->context, completions, NULL, two->channel, 0);
	MUST(two->cq);
	two->buffer = aligned_alloc(4096, SIZE);
	MUST(two->buffer);
	memset(two->buffer, 1, SIZE);
	two->mr = ibv_reg_mr(two->pd, two->buffer, SIZE, ACCESS);
	MUST(two->mr);
	two->qp[0] = create_pair(two);
	two->qp[1] = create_pair(two);
}

static inline void connect_both(struct two *two)
{
	to_init(two->qp[0]);
	to_init(two->qp[1]);
	to_rts(two->qp[0], two->qp[1]->qp_num);
	to_rts(two->qp[1], two->qp[0]->qp_num);
}

static inline void start(struct two *two)
{
	create(two, 64);
	connect_both(two);
}

static inline void finish(struct two *two)
{
	MUST(!ibv_destroy_qp(two->qp[0]));
	MUST(!ibv_destroy_qp(two->qp[1]));
	MUST(!ibv_destroy_cq(two->cq));
	MUST(!ibv_destroy_comp_channel(two->channel));
	MUST(!ibv_dereg_mr(two->mr));
	MUST(!ibv_dealloc_pd(two->pd));
	MUST(!ibv_close_device(two->context));
	free(two->buffer);
}

/* Posts a receive into the second half of the buffer to the second queue pair. */
static inline int receive(struct two *two)
{
	struct ibv_sge sge = { (uintptr_t)two->buffer + SIZE / 2, SIZE / 2, two->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 100, .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_recv(two->qp[1], &wr, &bad);
}

/* Posts a request of the first queue pair with this data: a write into the second half of the buffer, or a send. */
static inline int post(struct two *two, enum ibv_wr_opcode opcode, unsigned int flags, struct ibv_sge sge)
{
	struct ibv_send_wr wr = { .wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = flags }, *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)two->buffer + SIZE / 2;
	wr.wr.rdma.rkey = two->mr->rkey;
	return ibv_post_send(two->qp[0], &wr, &bad);
}

/* Returns a segment at the begin of the buffer. */
static inline struct ibv_sge data(struct two *two, uint32_t length)
{
	return (struct ibv_sge){ (uintptr_t)two->buffer, length, two->mr->lkey };
}

/* The most requests of a list. */
#define MOST 4096

/* Posts writes of the first queue pair in one list, so that a device executes none before it has taken the last one.
 * Returns how many the queue has taken.
 */
static inline int post_list(struct two *two, int count, unsigned int flags, struct ibv_sge sge)
{
	struct ibv_send_wr *list = calloc(count, sizeof(*list)), *bad = NULL;
	int taken;

	MUST(list);
	for (int i = 0; i < count; i++) {
		list[i] = (struct ibv_send_wr){ .wr_id = 7, .sg_list = &sge, .num_sge = 1, .send_flags = flags };
		list[i].next = i + 1 < count ? &list[i + 1] : NULL;
		list[i].opcode = IBV_WR_RDMA_WRITE;
		list[i].wr.rdma.remote_addr = (uintptr_t)two->buffer + SIZE / 2;
		list[i].wr.rdma.rkey = two->mr->rkey;
	}
	taken = ibv_post_send(two->qp[0], list, &bad) ? bad - list : count;
	free(list);
	return taken;
}

/* Waits for an event of the completion queue. */
static inline void wait_for_event(struct two *two)
{
	struct ibv_cq *cq;
	void *user;

	MUST(!ibv_get_cq_event(two->channel, &cq, &user));
}

/* Polls until there is a completion. Returns its status. */
static inline enum ibv_wc_status wait_for_one(struct two *two)
{
	struct ibv_wc wc;
	int count;

	while ((count = ibv_poll_cq(two->cq, 1, &wc)) == 0)
		;
	MUST(count == 1);
	return wc.status;
}
