/* SPDX-License-Identifier: MIT OR Apache-2.0
 * A write with a fence sends what a read before it brings. So its buffer changes while it is outstanding.
 */
#include "two.h"

int main(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr write = { .wr_id = 8, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
				     .send_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE };
	struct ibv_send_wr read = { .wr_id = 7, .next = &write, .sg_list = &sge, .num_sge = 1,
				    .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;
	struct two two;

	start(&two);
	sge = data(&two, 64);
	memset(two.buffer + SIZE / 2, 2, 64);
	read.wr.rdma.remote_addr = (uintptr_t)two.buffer + SIZE / 2;
	write.wr.rdma.remote_addr = (uintptr_t)two.buffer + SIZE / 2 + 1024;
	read.wr.rdma.rkey = write.wr.rdma.rkey = two.mr->rkey;
	MUST(!ibv_post_send(two.qp[0], &read, &bad));
	MUST(wait_for_one(&two) == IBV_WC_SUCCESS);
	MUST(wait_for_one(&two) == IBV_WC_SUCCESS);
	MUST(two.buffer[SIZE / 2 + 1024] == 2);
	finish(&two);
	return 0;
}
