/* SPDX-License-Identifier: MIT OR Apache-2.0
 * A send queue is filled with requests that do not complete visibly.
 */
#include "two.h"

static int post_writes(struct two *two, int count, unsigned int flags)
{
	return post_list(two, count, flags, data(two, 64));
}

int main(int argc, char **argv)
{
	int wrong = argc > 1 && !strcmp(argv[1], "wrong");
	struct two two;

	start(&two);
	if (wrong) {
		MUST(post_writes(&two, MOST, 0) < MOST);
	} else {
		MUST(post_writes(&two, 15, 0) == 15);
		MUST(post_writes(&two, 1, IBV_SEND_SIGNALED) == 1);
		MUST(wait_for_one(&two) == IBV_WC_SUCCESS);
	}
	finish(&two);
	return 0;
}
