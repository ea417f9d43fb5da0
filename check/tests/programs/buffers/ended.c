/* SPDX-License-Identifier: MIT OR Apache-2.0
 * A request uses the key of a region that was deregistered before.
 */
#include "two.h"

static void end(struct ibv_mr *mr)
{
	MUST(!ibv_dereg_mr(mr));
}

static void post_write(struct two *two, uint32_t key)
{
	MUST(!post(two, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, (struct ibv_sge){ (uintptr_t)two->buffer, 64, key }));
}

int main(int argc, char **argv)
{
	int wrong = argc > 1 && !strcmp(argv[1], "wrong");
	struct ibv_mr *mr;
	struct two two;
	uint32_t key;

	start(&two);
	mr = ibv_reg_mr(two.pd, two.buffer, SIZE, ACCESS);
	MUST(mr);
	key = mr->lkey;
	if (wrong)
		end(mr);
	post_write(&two, key);
	/* Devices differ in the error. */
	MUST((wait_for_one(&two) == IBV_WC_SUCCESS) == !wrong);
	if (!wrong)
		end(mr);
	finish(&two);
	return 0;
}
