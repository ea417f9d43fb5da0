/* SPDX-License-Identifier: MIT OR Apache-2.0
 * A request has more segments than the queue takes.
 */
#include "two.h"

static int post_segments(struct two *two, int count)
{
	struct ibv_sge sge[64];
	struct ibv_send_wr wr = { .wr_id = 7, .sg_list = sge, .num_sge = count, .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	for (int i = 0; i < count; i++)
		sge[i] = data(two, 8);
	wr.wr.rdma.remote_addr = (uintptr_t)two->buffer + SIZE / 2;
	wr.wr.rdma.rkey = two->mr->rkey;
	return ibv_post_send(two->qp[0], &wr, &bad);
}

int main(int argc, char **argv)
{
	int wrong = argc > 1 && !strcmp(argv[1], "wrong");
	struct two two;

	start(&two);
	if (wrong) {
		MUST(post_segments(&two, 64));
	} else {
		MUST(!post_segments(&two, 2));
		MUST(wait_for_one(&two) == IBV_WC_SUCCESS);
	}
	finish(&two);
	return 0;
}
