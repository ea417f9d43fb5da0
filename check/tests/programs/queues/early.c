/* SPDX-License-Identifier: MIT OR Apache-2.0
 * A receive is posted before the queue pair is in the state INIT.
 */
#include "two.h"

static int post_receive(struct two *two)
{
	return receive(two);
}

int main(int argc, char **argv)
{
	int wrong = argc > 1 && !strcmp(argv[1], "wrong");
	struct two two;

	create(&two, 64);
	if (!wrong)
		to_init(two.qp[1]);
	post_receive(&two);
	finish(&two);
	return 0;
}
