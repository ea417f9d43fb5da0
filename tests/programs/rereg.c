/* SPDX-License-Identifier: MIT OR Apache-2.0
 * A region gets other memory, which its process does not supply yet. Meanwhile others can look at all regions.
 *
 * usage: vrnic_rereg COMMAND
 *
 * The command is one that looks at all regions.
 */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include "side.h"

enum { PAGE = 4096, WAIT_MS = 20000 };

static char *lazy;
static struct ibv_mr *region;

static void *change(void *unused)
{
	(void)unused;
	return (void *)(long)ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, lazy, PAGE, 0);
}

int main(int argc, char **argv)
{
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	static char memory[PAGE];
	int faults = syscall(SYS_userfaultfd, O_CLOEXEC), status;
	struct uffdio_api api = { .api = UFFD_API };
	struct pollfd touched = { faults, POLLIN, 0 };
	pthread_t thread;
	void *changed;

	need(argc == 2, "reading the arguments");
	lazy = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct uffdio_register missing = { .range = { (uintptr_t)lazy, PAGE }, .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_zeropage supply = { .range = missing.range };
	need(faults >= 0 && lazy != MAP_FAILED, "userfaultfd");
	need(ioctl(faults, UFFDIO_API, &api) == 0 && ioctl(faults, UFFDIO_REGISTER, &missing) == 0, "registering memory");
	region = ibv_reg_mr(pd, memory, PAGE, IBV_ACCESS_LOCAL_WRITE);
	need(region != NULL, "ibv_reg_mr");
	need(pthread_create(&thread, NULL, change, NULL) == 0, "pthread_create");
	need(poll(&touched, 1, WAIT_MS) == 1, "waiting for the access to the memory");
	status = system(argv[1]);
	need(ioctl(faults, UFFDIO_ZEROPAGE, &supply) == 0, "supplying memory");
	need(pthread_join(thread, &changed) == 0, "pthread_join");
	expect((long)changed, 0, "ibv_rereg_mr");
	errno = ETIMEDOUT;
	need(status == 0, argv[1]);
	expect(ibv_dereg_mr(region), 0, "ibv_dereg_mr");
	printf("the region has other memory\n");
	return 0;
}
