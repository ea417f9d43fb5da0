/* SPDX-License-Identifier: MIT OR Apache-2.0
 * One end disconnects twice.
 */
#include "managed.h"

static void disconnect(struct ends *ends)
{
	/* The connection may have gone already. */
	(void)rdma_disconnect(ends->client);
}

int main(int argc, char **argv)
{
	int wrong = argc > 1 && !strcmp(argv[1], "wrong");
	struct ends ends;

	join_both(&ends);
	separate(&ends);
	if (wrong)
		disconnect(&ends);
	finish(&ends);
	return 0;
}
