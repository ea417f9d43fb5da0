/* SPDX-License-Identifier: MIT OR Apache-2.0
 * A send queue is filled with requests that do not complete visibly.
 */
#include "two.h"

static int post_write(struct two *two, int is_last)
{
	return post(two, IBV_WR_RDMA_WRITE, is_last ? IBV_SEND_SIGNALED : 0, data(two, 64));
}

int main(int argc, char **argv)
{
	int wrong = argc > 1 && !strcmp(argv[1], "wrong");
	struct two two;

	start(&two);
	for (int i = 0; i < 16; i++)
		MUST(!post_write(&two, !wrong && i == 15));
	if (wrong) {
		for (int i = 0; i < 4096 && !post_write(&two, 0); i++)
			;
	} else {
		MUST(wait_for_one(&two) == IBV_WC_SUCCESS);
	}
	finish(&two);
	return 0;
}
