/* SPDX-License-Identifier: MIT OR Apache-2.0
 * An identifier that was disconnected is connected once more.
 */
#include "managed.h"

static int connect_again(struct ends *ends, int wrong)
{
	if (wrong)
		return ask(ends->client, 4);
	destroy_end(ends->client);
	ends->client = create_identifier(ends);
	resolve(ends, ends->client);
	create_pair(ends->client);
	return ask(ends->client, 4);
}

int main(int argc, char **argv)
{
	int wrong = argc > 1 && !strcmp(argv[1], "wrong");
	struct ends ends;

	join_both(&ends);
	separate(&ends);
	if (wrong) {
		MUST(connect_again(&ends, wrong));
	} else {
		destroy_end(ends.server);
		MUST(!connect_again(&ends, wrong));
		answer(&ends);
		separate(&ends);
	}
	finish(&ends);
	return 0;
}
