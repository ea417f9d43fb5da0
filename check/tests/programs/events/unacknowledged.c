/* SPDX-License-Identifier: MIT OR Apache-2.0
 * A completion queue is destroyed whose event was not acknowledged. Then the program waits for ever.
 */
#include "two.h"

int main(int argc, char **argv)
{
	int wrong = argc > 1 && !strcmp(argv[1], "wrong");
	struct two two;

	start(&two);
	MUST(!ibv_req_notify_cq(two.cq, 0));
	MUST(!post(&two, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, data(&two, 64)));
	wait_for_event(&two);
	if (!wrong)
		ibv_ack_cq_events(two.cq, 1);
	MUST(wait_for_one(&two) == IBV_WC_SUCCESS);
	/* Ends the program with a signal. */
	if (wrong)
		alarm(20);
	finish(&two);
	return 0;
}
