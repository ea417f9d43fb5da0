/* SPDX-License-Identifier: MIT OR Apache-2.0
 * A segment ends after its region.
 */
#include "two.h"

static void post_write(struct two *two, uint32_t length)
{
	MUST(!post(two, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED,
		   (struct ibv_sge){ (uintptr_t)two->buffer + SIZE - 64, length, two->mr->lkey }));
}

int main(int argc, char **argv)
{
	int wrong = argc > 1 && !strcmp(argv[1], "wrong");
	struct two two;

	start(&two);
	post_write(&two, wrong ? 65 : 64);
	/* Devices differ in the error. */
	MUST((wait_for_one(&two) == IBV_WC_SUCCESS) == !wrong);
	finish(&two);
	return 0;
}
