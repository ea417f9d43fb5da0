/* SPDX-License-Identifier: MIT OR Apache-2.0
 * A completion queue overruns, and the program is told so by an event.
 */
#include "two.h"

static void create_queue(struct two *two)
{
	create(two, 4);
}

static void take_event(struct two *two)
{
	struct ibv_async_event event;

	MUST(!ibv_get_async_event(two->context, &event));
	MUST(event.event_type == IBV_EVENT_CQ_ERR);
	ibv_ack_async_event(&event);
}

int main(int argc, char **argv)
{
	int wrong = argc > 1 && !strcmp(argv[1], "wrong");
	struct two two;

	create_queue(&two);
	connect_both(&two);
	for (int i = 0; i < two.cq->cqe + wrong; i++)
		MUST(!post(&two, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, data(&two, 64)));
	if (wrong)
		take_event(&two);
	else
		for (int i = 0; i < two.cq->cqe; i++)
			MUST(wait_for_one(&two) == IBV_WC_SUCCESS);
	finish(&two);
	return 0;
}
