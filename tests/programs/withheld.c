/* SPDX-License-Identifier: MIT OR Apache-2.0
 * A message, or an advice, needs a page of a region that is registered on demand. The page never comes. Nobody answers
 * the userfaultfd that the memory belongs to, and a child, `holder`, keeps it open until it is killed. With `fuse` or
 * `fuse-sync`, the child is a FUSE server that does not answer reads; with `fuse-sync`, no signal ends the kernel's
 * wait for it.
 *
 * usage: withheld dereg|close|advise|stay [fuse|fuse-sync]
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/fuse.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include "side.h"

enum { PAGE = 4096 };

static unsigned char *map(void)
{
	unsigned char *memory = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	need(memory != MAP_FAILED, "mmap");
	return memory;
}

/* Becomes the child that is killed in the end. Nobody waits for its output. */
static void become_holder(void)
{
	prctl(PR_SET_NAME, "holder");
	close(1);
	close(2);
}

/* Returns a page that nobody can touch without waiting for ever. */
static unsigned char *of_userfaultfd(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	unsigned char *page = map();
	struct uffdio_register range = { .range = { (uintptr_t)page, PAGE }, .mode = UFFDIO_REGISTER_MODE_MISSING };
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC);

	need(fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0, "userfaultfd");
	need(ioctl(fd, UFFDIO_REGISTER, &range) == 0, "UFFDIO_REGISTER");
	if (fork() == 0) {
		become_holder();
		pause();
		_exit(0);
	}
	return page;
}

static void answer(int fuse, uint64_t unique, int error, const void *data, size_t length)
{
	struct fuse_out_header head = { .len = sizeof(head) + length, .error = error, .unique = unique };
	struct iovec parts[] = { { &head, sizeof(head) }, { (void *)data, length } };

	if (writev(fuse, parts, 2) < 0)
		_exit(1);
}

/* A file system of one file, `page`, that cannot be read. */
static void serve(int fuse, uint32_t flags)
{
	static char buffer[1 << 17];
	const struct fuse_in_header *request = (void *)buffer;
	struct fuse_attr attr = { .ino = 2, .mode = S_IFREG | 0644, .nlink = 1, .size = PAGE, .blksize = PAGE };
	struct fuse_init_out init = { .major = 7, .minor = 31, .max_write = PAGE, .max_readahead = PAGE, .flags = flags };
	struct fuse_entry_out entry = { .nodeid = 2, .entry_valid = 99, .attr_valid = 99, .attr = attr };
	struct fuse_attr_out attributes = { .attr_valid = 99, .attr = attr };
	struct fuse_open_out opened = { .fh = 1 };

	while (read(fuse, buffer, sizeof(buffer)) > 0) {
		uint64_t unique = request->unique;

		if (request->opcode == FUSE_INIT)
			answer(fuse, unique, 0, &init, sizeof(init));
		else if (request->opcode == FUSE_LOOKUP)
			answer(fuse, unique, 0, &entry, sizeof(entry));
		else if (request->opcode == FUSE_GETATTR)
			answer(fuse, unique, 0, &attributes, sizeof(attributes));
		else if (request->opcode == FUSE_OPEN)
			answer(fuse, unique, 0, &opened, sizeof(opened));
		else if (request->opcode != FUSE_READ && request->opcode != FUSE_FORGET &&
			 request->opcode != FUSE_BATCH_FORGET && request->opcode != FUSE_INTERRUPT)
			answer(fuse, unique, -ENOSYS, NULL, 0);
	}
	_exit(1);
}

/* The same. */
static unsigned char *of_fuse(uint32_t flags)
{
	const char *folder = "/tmp/withheld.fuse";
	int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC), file;
	char options[64];

	need(fuse >= 0, "/dev/fuse");
	need(unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0, "unshare");
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", fuse);
	mkdir(folder, 0755);
	need(mount("fuse", folder, "fuse", MS_NOSUID | MS_NODEV, options) == 0, "mount");
	if (fork() == 0) {
		become_holder();
		serve(fuse, flags);
	}
	close(fuse);
	file = open("/tmp/withheld.fuse/page", O_RDONLY | O_CLOEXEC);
	need(file >= 0, "a file of the server");
	void *page = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, file, 0);

	need(page != MAP_FAILED, "mmap");
	return page;
}

static void say(const char *what)
{
	puts(what);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	const char *end = argc > 1 ? argv[1] : "stay";
	const char *who = argc > 2 ? argv[2] : "userfaultfd";
	unsigned char *page = strcmp(who, "userfaultfd") == 0 ? of_userfaultfd() :
			      of_fuse(strcmp(who, "fuse") == 0 ? FUSE_ASYNC_READ : 0), *target = map();
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct side a = open_side(context, pd), b = open_side(context, pd);
	struct ibv_mr *from = ibv_reg_mr(pd, page, PAGE, IBV_ACCESS_ON_DEMAND);
	struct ibv_mr *to = ibv_reg_mr(pd, target, PAGE, RIGHTS);

	need(from && to, "ibv_reg_mr");
	connect_to(&a, b.qp);
	connect_to(&b, a.qp);
	struct ibv_sge sge = { .addr = (uintptr_t)page, .length = 64, .lkey = from->lkey };

	if (strcmp(end, "advise") == 0) {
		say("waiting");
		ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1);
		return 0;
	}
	struct ibv_send_wr wr = {
		.wr_id = 7, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1,
		.wr.rdma = { .remote_addr = (uintptr_t)target, .rkey = to->rkey },
	}, *bad;

	expect(ibv_post_send(a.qp, &wr, &bad), 0, "ibv_post_send");
	sleep(1);
	say("waiting");
	if (strcmp(end, "dereg") == 0) {
		expect(ibv_dereg_mr(from), 0, "ibv_dereg_mr");
		completion(&a, 7, IBV_WC_LOC_PROT_ERR, 0);
	} else if (strcmp(end, "stay") == 0) {
		pause();
	}
	/* The rest is closed by the end of the process. */
	say("good");
	return 0;
}
