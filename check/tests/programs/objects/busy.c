/* SPDX-License-Identifier: MIT OR Apache-2.0
 * A completion queue is destroyed before the queue pairs that use it.
 */
#include "two.h"

static struct ibv_cq *add_queue(struct two *two)
{
	return ibv_create_cq(two->context, 16, NULL, NULL, 0);
}

static int destroy(struct ibv_cq *cq)
{
	return ibv_destroy_cq(cq);
}

int main(int argc, char **argv)
{
	int wrong = argc > 1 && !strcmp(argv[1], "wrong");
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 } };
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct two two;

	start(&two);
	cq = add_queue(&two);
	MUST(cq);
	attr.send_cq = attr.recv_cq = cq;
	qp = ibv_create_qp(two.pd, &attr);
	MUST(qp);
	if (wrong)
		MUST(destroy(cq) == EBUSY);
	MUST(!ibv_destroy_qp(qp));
	MUST(!destroy(cq));
	finish(&two);
	return 0;
}
