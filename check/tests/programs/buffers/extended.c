/* SPDX-License-Identifier: MIT OR Apache-2.0
 * The buffer of a write by the extended interface is changed before the completion is seen by that interface.
 */
#include "two.h"

static struct ibv_qp_ex *create_extended(struct two *two, struct ibv_cq_ex **cq)
{
	struct ibv_cq_init_attr_ex queue = { .cqe = 16 };
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RC, .cap = { 16, 16, 1, 1, 0 }, .pd = two->pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE,
	};
	struct ibv_qp *qp;

	*cq = ibv_create_cq_ex(two->context, &queue);
	MUST(*cq);
	attr.send_cq = attr.recv_cq = ibv_cq_ex_to_cq(*cq);
	qp = ibv_create_qp_ex(two->context, &attr);
	MUST(qp);
	return ibv_qp_to_qp_ex(qp);
}

static void write_data(struct two *two, struct ibv_qp_ex *qp)
{
	ibv_wr_start(qp);
	qp->wr_id = 7;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(qp, two->mr->rkey, (uintptr_t)two->buffer + SIZE / 2);
	ibv_wr_set_sge(qp, two->mr->lkey, (uintptr_t)two->buffer, 64);
	MUST(!ibv_wr_complete(qp));
}

static void poll_extended(struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr attr = { 0 };

	while (ibv_start_poll(cq, &attr))
		;
	MUST(cq->status == IBV_WC_SUCCESS && cq->wr_id == 7);
	ibv_end_poll(cq);
}

int main(int argc, char **argv)
{
	int wrong = argc > 1 && !strcmp(argv[1], "wrong");
	struct ibv_cq_ex *cq;
	struct ibv_qp_ex *qp;
	struct two two;

	create(&two, 64);
	qp = create_extended(&two, &cq);
	MUST(!ibv_destroy_qp(two.qp[0]));
	two.qp[0] = &qp->qp_base;
	connect_both(&two);
	write_data(&two, qp);
	if (wrong)
		two.buffer[0] = 2;
	poll_extended(cq);
	MUST(!ibv_destroy_qp(two.qp[0]));
	two.qp[0] = create_pair(&two);
	MUST(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	finish(&two);
	return 0;
}
