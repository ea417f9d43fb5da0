/* SPDX-License-Identifier: MIT OR Apache-2.0
 * The private data of a request for a connection are one byte too long.
 */
#include "managed.h"

static int ask_for_connection(struct ends *ends, int length)
{
	return ask(ends->client, length);
}

int main(int argc, char **argv)
{
	int wrong = argc > 1 && !strcmp(argv[1], "wrong");
	struct ends ends;

	prepare(&ends);
	if (wrong)
		MUST(ask_for_connection(&ends, 57));
	MUST(!ask_for_connection(&ends, 56));
	answer(&ends);
	separate(&ends);
	finish(&ends);
	return 0;
}
