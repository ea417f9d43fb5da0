/* SPDX-License-Identifier: MIT OR Apache-2.0
 * A program forks while a request is outstanding. The child has its own copy of the buffer, and may change it.
 */
#include <sys/wait.h>
#include "two.h"

int main(void)
{
	struct two two;
	int status;
	pid_t child;

	start(&two);
	MUST(!post(&two, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, data(&two, 64)));
	child = fork();
	MUST(child >= 0);
	if (child == 0) {
		two.buffer[0] = 2;
		exit(3);
	}
	MUST(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 3);
	MUST(wait_for_one(&two) == IBV_WC_SUCCESS);
	finish(&two);
	return 0;
}
