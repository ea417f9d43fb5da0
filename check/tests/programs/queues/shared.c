/* SPDX-License-Identifier: MIT OR Apache-2.0
 * A queue pair ends that has taken a receive of a shared queue, and whose completion nobody polls. The shared queue has
 * room for another receive then.
 */
#include "two.h"

static int receive_shared(struct two *two, struct ibv_srq *srq)
{
	struct ibv_sge sge = { (uintptr_t)two->buffer + SIZE / 2, 64, two->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 100, .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_srq_recv(srq, &wr, &bad);
}

int main(void)
{
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = 16, .max_sge = 1 } };
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .cap = { 1, 0, 1, 0, 0 } };
	struct ibv_cq *cq;
	struct two two;

	create(&two, 64);
	MUST(!ibv_destroy_qp(two.qp[1]));
	cq = ibv_create_cq(two.context, 64, NULL, NULL, 0);
	attr.send_cq = attr.recv_cq = cq;
	attr.srq = ibv_create_srq(two.pd, &shared);
	MUST(cq && attr.srq);
	two.qp[1] = ibv_create_qp(two.pd, &attr);
	MUST(two.qp[1]);
	connect_both(&two);
	for (unsigned int i = 0; i < shared.attr.max_wr; i++)
		MUST(!receive_shared(&two, attr.srq));
	MUST(!post(&two, IBV_WR_SEND, IBV_SEND_SIGNALED, data(&two, 64)));
	MUST(wait_for_one(&two) == IBV_WC_SUCCESS);
	MUST(!ibv_destroy_qp(two.qp[1]));
	MUST(!receive_shared(&two, attr.srq));
	two.qp[1] = create_pair(&two);
	MUST(!ibv_destroy_srq(attr.srq));
	MUST(!ibv_destroy_cq(cq));
	finish(&two);
	return 0;
}
