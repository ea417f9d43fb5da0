/* SPDX-License-Identifier: MIT OR Apache-2.0
 * More requests are posted than a completion queue has room for whose overrun does not matter.
 */
#include "two.h"

int main(void)
{
	struct ibv_cq_init_attr_ex queue = { .cqe = 4, .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
					     .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN };
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .cap = { 1, 16, 1, 1, 0 } };
	struct ibv_cq_ex *cq;
	struct two two;

	create(&two, 64);
	MUST(!ibv_destroy_qp(two.qp[1]));
	cq = ibv_create_cq_ex(two.context, &queue);
	if (!cq && errno == EOPNOTSUPP) {
		two.qp[1] = create_pair(&two);
		finish(&two);
		return 0;
	}
	MUST(cq && cq->cqe < 16);
	attr.send_cq = attr.recv_cq = ibv_cq_ex_to_cq(cq);
	two.qp[1] = ibv_create_qp(two.pd, &attr);
	MUST(two.qp[1]);
	connect_both(&two);
	for (int i = 0; i < 16; i++)
		MUST(!receive(&two));
	MUST(!ibv_destroy_qp(two.qp[1]));
	two.qp[1] = create_pair(&two);
	MUST(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	finish(&two);
	return 0;
}
