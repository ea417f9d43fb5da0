/* SPDX-License-Identifier: MIT OR Apache-2.0
 * What a read brings is sent on at once, without a fence.
 */
#include "two.h"

/* Reads into the begin of the buffer, and writes the same bytes to another place. */
static void pass_on(struct two *two, unsigned int flags)
{
	struct ibv_sge sge = data(two, 1000);
	struct ibv_send_wr write = { .wr_id = 2, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				     .send_flags = IBV_SEND_SIGNALED | flags };
	struct ibv_send_wr read = { .wr_id = 1, .next = &write, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ };
	struct ibv_send_wr *bad;

	read.wr.rdma.remote_addr = (uintptr_t)two->buffer + SIZE / 2;
	read.wr.rdma.rkey = two->mr->rkey;
	write.wr.rdma.remote_addr = (uintptr_t)two->buffer + SIZE / 4;
	write.wr.rdma.rkey = two->mr->rkey;
	MUST(!ibv_post_send(two->qp[0], &read, &bad));
}

int main(int argc, char **argv)
{
	int wrong = argc > 1 && !strcmp(argv[1], "wrong");
	struct two two;

	start(&two);
	pass_on(&two, wrong ? 0 : IBV_SEND_FENCE);
	MUST(wait_for_one(&two) == IBV_WC_SUCCESS);
	finish(&two);
	return 0;
}
