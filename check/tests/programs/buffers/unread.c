/* SPDX-License-Identifier: MIT OR Apache-2.0
 * A program closes descriptors that it has not opened, and nobody reads its standard error. It changes the buffer of a
 * write before its completion.
 */
#include <signal.h>
#include "two.h"

static void leave(void)
{
	int ends[2];

	for (int descriptor = 3; descriptor < 64; descriptor++)
		close(descriptor);
	signal(SIGPIPE, SIG_DFL);
	MUST(!pipe(ends));
	MUST(dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
	close(ends[0]);
	close(ends[1]);
}

static void send_message(struct two *two)
{
	MUST(!post(two, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, data(two, 1000)));
}

int main(int argc, char **argv)
{
	int wrong = argc > 1 && !strcmp(argv[1], "wrong");
	struct two two;

	if (wrong)
		leave();
	start(&two);
	send_message(&two);
	if (wrong)
		two.buffer[500] = 2;
	MUST(wait_for_one(&two) == IBV_WC_SUCCESS);
	finish(&two);
	return 0;
}
