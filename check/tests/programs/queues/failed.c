/* SPDX-License-Identifier: MIT OR Apache-2.0
 * A request is posted to a queue pair after one has failed.
 */
#include "two.h"

static int post_write(struct two *two, uint32_t key)
{
	struct ibv_sge sge = data(two, 64);
	struct ibv_send_wr wr = { .wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)two->buffer + SIZE / 2;
	wr.wr.rdma.rkey = key;
	return ibv_post_send(two->qp[0], &wr, &bad);
}

static void wait_for_failure(struct two *two)
{
	MUST(wait_for_one(two) == IBV_WC_REM_ACCESS_ERR);
}

int main(int argc, char **argv)
{
	int wrong = argc > 1 && !strcmp(argv[1], "wrong");
	struct two two;

	start(&two);
	MUST(!post_write(&two, two.mr->rkey ^ 0x100));
	wait_for_failure(&two);
	if (wrong) {
		MUST(!post_write(&two, two.mr->rkey));
		MUST(wait_for_one(&two) == IBV_WC_WR_FLUSH_ERR);
	}
	finish(&two);
	return 0;
}
