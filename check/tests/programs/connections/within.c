/* SPDX-License-Identifier: MIT OR Apache-2.0
 * An identifier is destroyed while its event is handled. Then the program waits for ever.
 */
#include "managed.h"

static void disconnect(struct ends *ends, int wrong)
{
	struct rdma_cm_event *event;

	MUST(!rdma_disconnect(ends->client));
	for (int i = 0; i < 2; i++) {
		event = take(ends, RDMA_CM_EVENT_DISCONNECTED);
		/* Ends the program with a signal. */
		if (wrong) {
			alarm(20);
			destroy_end(event->id);
		}
		if (event->id == ends->server)
			MUST(!rdma_disconnect(ends->server));
		MUST(!rdma_ack_cm_event(event));
	}
}

int main(int argc, char **argv)
{
	int wrong = argc > 1 && !strcmp(argv[1], "wrong");
	struct ends ends;

	join_both(&ends);
	disconnect(&ends, wrong);
	finish(&ends);
	return 0;
}
