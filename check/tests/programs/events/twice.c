/* SPDX-License-Identifier: MIT OR Apache-2.0
 * An event is acknowledged twice.
 */
#include "two.h"

static void acknowledge(struct two *two)
{
	ibv_ack_cq_events(two->cq, 1);
}

int main(int argc, char **argv)
{
	int wrong = argc > 1 && !strcmp(argv[1], "wrong");
	struct two two;

	start(&two);
	MUST(!ibv_req_notify_cq(two.cq, 0));
	MUST(!post(&two, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, data(&two, 64)));
	wait_for_event(&two);
	acknowledge(&two);
	MUST(wait_for_one(&two) == IBV_WC_SUCCESS);
	if (wrong) {
		acknowledge(&two);
		/* Destroying the queue would wait for ever. */
		_exit(0);
	}
	finish(&two);
	return 0;
}
