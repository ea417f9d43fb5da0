/* SPDX-License-Identifier: MIT OR Apache-2.0
 * A thread takes an event and does not acknowledge it. Then destroying the identifier waits for ever.
 */
#include <pthread.h>
#include "managed.h"

static struct ends ends;
static int wrong;

static void *take_event(void *unused)
{
	struct rdma_cm_event *event = take(&ends, RDMA_CM_EVENT_ADDR_RESOLVED);

	if (!wrong)
		MUST(!rdma_ack_cm_event(event));
	return unused;
}

int main(int argc, char **argv)
{
	struct sockaddr_in peer = address();
	pthread_t thread;

	wrong = argc > 1 && !strcmp(argv[1], "wrong");
	begin_listening(&ends);
	ends.client = create_identifier(&ends);
	MUST(!rdma_resolve_addr(ends.client, NULL, (struct sockaddr *)&peer, PATIENCE));
	MUST(!pthread_create(&thread, NULL, take_event, NULL));
	MUST(!pthread_join(thread, NULL));
	/* Ends the program with a signal. */
	if (wrong)
		alarm(20);
	destroy_end(ends.client);
	destroy_end(ends.listener);
	rdma_destroy_event_channel(ends.channel);
	return 0;
}
