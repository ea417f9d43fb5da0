/* SPDX-License-Identifier: MIT OR Apache-2.0
 * A program waits for an event without a poll after it has armed the queue.
 */
#include "two.h"

static void arm(struct two *two)
{
	MUST(!ibv_req_notify_cq(two->cq, 0));
}

int main(int argc, char **argv)
{
	int wrong = argc > 1 && !strcmp(argv[1], "wrong");
	struct two two;
	struct ibv_wc wc;

	start(&two);
	MUST(!receive(&two));
	while (ibv_poll_cq(two.cq, 1, &wc))
		;
	arm(&two);
	if (!wrong)
		MUST(ibv_poll_cq(two.cq, 1, &wc) == 0);
	/* Another process might have sent this before the queue was armed. */
	MUST(!post(&two, IBV_WR_SEND, 0, data(&two, 64)));
	wait_for_event(&two);
	ibv_ack_cq_events(two.cq, 1);
	MUST(wait_for_one(&two) == IBV_WC_SUCCESS);
	finish(&two);
	return 0;
}
