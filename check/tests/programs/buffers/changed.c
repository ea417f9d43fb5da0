/* SPDX-License-Identifier: MIT OR Apache-2.0
 * The buffer of a write is changed before its completion.
 */
#include "two.h"

static void send_message(struct two *two)
{
	MUST(!post(two, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, data(two, 1000)));
}

int main(int argc, char **argv)
{
	int wrong = argc > 1 && !strcmp(argv[1], "wrong");
	struct two two;

	start(&two);
	send_message(&two);
	if (wrong)
		two.buffer[500] = 2;
	MUST(wait_for_one(&two) == IBV_WC_SUCCESS);
	two.buffer[500] = 3;
	finish(&two);
	return 0;
}
