/* SPDX-License-Identifier: MIT OR Apache-2.0
 * A buffer with pages of its own is changed before the completion of its write, somewhere else in the program.
 */
#include "two.h"

static void send_message(struct two *two)
{
	MUST(!post(two, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, data(two, 8192)));
}

static void prepare_next(struct two *two)
{
	two->buffer[500]++;
}

int main(int argc, char **argv)
{
	int wrong = argc > 1 && !strcmp(argv[1], "wrong");
	struct two two;

	start(&two);
	send_message(&two);
	if (wrong)
		prepare_next(&two);
	MUST(wait_for_one(&two) == IBV_WC_SUCCESS);
	prepare_next(&two);
	finish(&two);
	return 0;
}
