/* SPDX-License-Identifier: MIT OR Apache-2.0
 * The buffer of a write is unmapped before its completion.
 */
#include "two.h"

#include <sys/mman.h>

static void post_write(struct two *two, char *buffer, struct ibv_mr *mr)
{
	MUST(!post(two, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, (struct ibv_sge){ (uintptr_t)buffer, 64, mr->lkey }));
}

int main(int argc, char **argv)
{
	int wrong = argc > 1 && !strcmp(argv[1], "wrong");
	struct ibv_mr *mr;
	struct two two;
	char *buffer;

	start(&two);
	buffer = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(buffer != MAP_FAILED);
	mr = ibv_reg_mr(two.pd, buffer, 4096, ACCESS);
	MUST(mr);
	post_write(&two, buffer, mr);
	/* The device has read it, so that only the checker sees the mistake. */
	while (((volatile char *)two.buffer)[SIZE / 2 + 63])
		;
	if (wrong)
		MUST(!munmap(buffer, 4096));
	MUST(wait_for_one(&two) == IBV_WC_SUCCESS);
	MUST(!ibv_dereg_mr(mr));
	finish(&two);
	return 0;
}
