/* SPDX-License-Identifier: MIT OR Apache-2.0
 * More requests are posted than the queue holds, in one list, so that the device executes none before the last one.
 */
#include "two.h"

#define MOST 4096

/* Posts this many requests. Returns how many of them the queue has taken. */
static int post_writes(struct two *two, int count)
{
	static struct ibv_send_wr requests[MOST];
	struct ibv_send_wr *bad = NULL;
	struct ibv_sge sge = data(two, 64);

	for (int i = 0; i < count; i++) {
		struct ibv_send_wr *wr = &requests[i];

		*wr = (struct ibv_send_wr){ .wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE };
		wr->next = i + 1 < count ? &requests[i + 1] : NULL;
		wr->send_flags = IBV_SEND_SIGNALED;
		wr->wr.rdma.remote_addr = (uintptr_t)two->buffer + SIZE / 2;
		wr->wr.rdma.rkey = two->mr->rkey;
	}
	return ibv_post_send(two->qp[0], requests, &bad) ? bad - requests : count;
}

int main(int argc, char **argv)
{
	int wrong = argc > 1 && !strcmp(argv[1], "wrong");
	struct two two;
	int posted;

	create(&two, MOST);
	connect_both(&two);
	/* A device may have rounded the size of the queue up. */
	posted = post_writes(&two, wrong ? MOST : 16);
	MUST(posted >= 16 && posted < MOST);
	for (int i = 0; i < posted; i++)
		MUST(wait_for_one(&two) == IBV_WC_SUCCESS);
	finish(&two);
	return 0;
}
