/* SPDX-License-Identifier: MIT OR Apache-2.0
 * The address ranges and the device memory that users may have, each with as many contexts as it likes.
 *
 * usage: vrnic_quota UID...
 *
 * Each of these users takes what it gets, one after the other, and all keep it until the end.
 */
#include <sys/wait.h>
#include "side.h"
#include "vrnicdv.h"

enum { CONTEXTS = 8, PIECE = 1 << 20 };

/* Takes what this user gets. Returns the process that has it, which ends when `hold` is closed. */
static pid_t take(int uid, int hold[2])
{
	struct ibv_alloc_dm_attr attr = { .length = PIECE };
	int told[2], ranges = 0, pieces = 0;
	pid_t child;
	char end;

	need(pipe(told) == 0, "pipe");
	child = fork();
	if (child > 0) {
		close(told[1]);
		need(read(told[0], &end, 1) == 1, "waiting for the process");
		close(told[0]);
		return child;
	}
	close(hold[1]);
	need(setgid(uid) == 0 && setuid(uid) == 0, "setuid");
	for (int i = 0; i < CONTEXTS; i++) {
		struct ibv_context *context = open_device();
		struct side side = open_side(context, ibv_alloc_pd(context));

		while (vrnicdv_alloc_range(side.qp))
			ranges++;
		expect(errno, ENOSPC, "another range");
		while (ibv_alloc_dm(context, &attr))
			pieces++;
		expect(errno, ENOMEM, "more device memory");
	}
	printf("user %d: %d ranges, %d MiB\n", uid, ranges, pieces);
	fflush(stdout);
	need(write(told[1], "", 1) == 1 && read(hold[0], &end, 1) == 0, "waiting for the end");
	_exit(0);
}

int main(int argc, char **argv)
{
	int hold[2], status, good = 1;

	need(pipe(hold) == 0, "pipe");
	for (int i = 1; i < argc; i++)
		take(atoi(argv[i]), hold);
	close(hold[1]);
	for (int i = 1; i < argc; i++)
		good &= wait(&status) > 0 && status == 0;
	need(good, "a process");
	return 0;
}
