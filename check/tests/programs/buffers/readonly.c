/* SPDX-License-Identifier: MIT OR Apache-2.0
 * A receive is posted into a region that may only be read.
 */
#include "two.h"

static struct ibv_mr *add_region(struct two *two, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(two->pd, two->buffer, SIZE, access);

	MUST(mr);
	return mr;
}

static void post_receive(struct two *two, uint32_t key)
{
	struct ibv_sge sge = { (uintptr_t)two->buffer + SIZE / 2, 64, key };
	struct ibv_recv_wr wr = { .wr_id = 100, .sg_list = &sge, .num_sge = 1 }, *bad;

	MUST(!ibv_post_recv(two->qp[1], &wr, &bad));
}

int main(int argc, char **argv)
{
	int wrong = argc > 1 && !strcmp(argv[1], "wrong");
	struct ibv_mr *mr;
	struct two two;

	start(&two);
	mr = add_region(&two, wrong ? 0 : IBV_ACCESS_LOCAL_WRITE);
	post_receive(&two, mr->lkey);
	MUST(!ibv_destroy_qp(two.qp[1]));
	two.qp[1] = create_pair(&two);
	MUST(!ibv_dereg_mr(mr));
	finish(&two);
	return 0;
}
