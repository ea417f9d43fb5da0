/* SPDX-License-Identifier: MIT OR Apache-2.0
 * More requests are posted than the queue holds, before a completion is polled.
 */
#include "two.h"

static int post_writes(struct two *two, int count)
{
	return post_list(two, count, IBV_SEND_SIGNALED, data(two, 64));
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
