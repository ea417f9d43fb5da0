/* SPDX-License-Identifier: MIT OR Apache-2.0
 * A request uses a region of another protection domain.
 */
#include "two.h"

static void post_write(struct two *two, uint32_t key)
{
	MUST(!post(two, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, (struct ibv_sge){ (uintptr_t)two->buffer, 64, key }));
}

int main(int argc, char **argv)
{
	int wrong = argc > 1 && !strcmp(argv[1], "wrong");
	struct ibv_pd *other;
	struct ibv_mr *mr;
	struct two two;

	start(&two);
	other = ibv_alloc_pd(two.context);
	MUST(other);
	mr = ibv_reg_mr(other, two.buffer, SIZE, ACCESS);
	MUST(mr);
	post_write(&two, wrong ? mr->lkey : two.mr->lkey);
	/* Devices differ in the error. */
	MUST((wait_for_one(&two) == IBV_WC_SUCCESS) == !wrong);
	MUST(!ibv_dereg_mr(mr));
	MUST(!ibv_dealloc_pd(other));
	finish(&two);
	return 0;
}
