/* SPDX-License-Identifier: MIT OR Apache-2.0
 * More requests are posted than the queue holds, before a completion is polled.
 */
#include "two.h"

static int post_write(struct two *two)
{
	return post(two, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, data(two, 64));
}

int main(int argc, char **argv)
{
	int wrong = argc > 1 && !strcmp(argv[1], "wrong");
	int posted = 0, most = 4096;
	struct two two;

	create(&two, most);
	connect_both(&two);
	/* A device may have rounded the size of the queue up. */
	while (wrong ? posted < most && !post_write(&two) : posted < 16 && !post_write(&two))
		posted++;
	MUST(posted >= 16 && posted < most);
	for (int i = 0; i < posted; i++)
		MUST(wait_for_one(&two) == IBV_WC_SUCCESS);
	finish(&two);
	return 0;
}
