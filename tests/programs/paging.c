/* SPDX-License-Identifier: MIT OR Apache-2.0
 * Regions that are registered on demand: two queue pairs of a process move data between memories whose pages
 * the kernel takes away.
 *
 * usage: paging [CASE]  runs all cases, or one
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include "side.h"

enum {
	PAGE = 4096, SIZE = 1 << 20, SPOT = 24,
	ON_DEMAND = RIGHTS | IBV_ACCESS_ON_DEMAND,
};

/* The requester A, the responder B, and a region of each. */
struct pair {
	struct side a, b;
	struct ibv_mr *from, *to;
	unsigned char *source, *target;
};

static void open_queues(struct pair *pair)
{
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);

	need(pd != NULL, "ibv_alloc_pd");
	pair->a = open_side(context, pd);
	pair->b = open_side(context, pd);
	connect_to(&pair->a, pair->b.qp);
	connect_to(&pair->b, pair->a.qp);
}

static unsigned char *map(size_t length, int flags)
{
	unsigned char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | flags, -1, 0);

	need(memory != MAP_FAILED, "mmap");
	return memory;
}

static struct ibv_mr *reg(struct pair *pair, void *at, size_t length, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(pair->a.pd, at, length, access);

	need(mr != NULL, "ibv_reg_mr");
	return mr;
}

/* Both memories are mapped with these flags. */
static struct pair open_pair(int flags)
{
	struct pair pair = { .source = map(SIZE, flags), .target = map(SIZE, flags) };

	open_queues(&pair);
	/* The regions begin and end within pages. */
	pair.from = reg(&pair, pair.source + SPOT, SIZE - 2 * SPOT, ON_DEMAND);
	pair.to = reg(&pair, pair.target + SPOT, SIZE - 2 * SPOT, ON_DEMAND);
	return pair;
}

static void close_pair(struct pair *pair)
{
	expect(ibv_destroy_qp(pair->a.qp), 0, "ibv_destroy_qp");
	expect(ibv_destroy_qp(pair->b.qp), 0, "ibv_destroy_qp");
	expect(ibv_destroy_cq(pair->a.cq), 0, "ibv_destroy_cq");
	expect(ibv_destroy_cq(pair->b.cq), 0, "ibv_destroy_cq");
	if (pair->from)
		expect(ibv_dereg_mr(pair->from), 0, "ibv_dereg_mr");
	if (pair->to)
		expect(ibv_dereg_mr(pair->to), 0, "ibv_dereg_mr");
	expect(ibv_dealloc_pd(pair->a.pd), 0, "ibv_dealloc_pd");
	expect(ibv_close_device(pair->a.context), 0, "ibv_close_device");
}

static void post(struct pair *pair, enum ibv_wr_opcode opcode, void *at, uint32_t length, void *remote)
{
	struct ibv_sge sge = { .addr = (uintptr_t)at, .length = length, .lkey = pair->from->lkey };
	struct ibv_send_wr wr = {
		.wr_id = 7, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1,
	}, *bad;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)remote;
		wr.wr.atomic.rkey = pair->to->rkey;
		wr.wr.atomic.compare_add = 5;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)remote;
		wr.wr.rdma.rkey = pair->to->rkey;
	}
	expect(ibv_post_send(pair->a.qp, &wr, &bad), 0, "ibv_post_send");
}

static void post_recv(struct pair *pair, void *at, uint32_t length)
{
	struct ibv_sge sge = { .addr = (uintptr_t)at, .length = length, .lkey = pair->to->lkey };
	struct ibv_recv_wr wr = { .wr_id = 8, .sg_list = &sge, .num_sge = 1 }, *bad;

	expect(ibv_post_recv(pair->b.qp, &wr, &bad), 0, "ibv_post_recv");
}

static void done(struct pair *pair)
{
	completion(&pair->a, 7, IBV_WC_SUCCESS, 0);
}

/* Takes all pages away. */
static void drop(void *memory, size_t length)
{
	need(madvise(memory, length, MADV_DONTNEED) == 0, "madvise");
}

static void write_and_check(struct pair *pair, int seed)
{
	int length = SIZE - 2 * SPOT;

	fill(pair->source + SPOT, length, seed);
	post(pair, IBV_WR_RDMA_WRITE, pair->source + SPOT, length, pair->target + SPOT);
	done(pair);
	check(pair->target + SPOT, length, seed, "what was written");
}

/* Messages of all kinds, from and to pages that the kernel has taken away. */
static void messages(void)
{
	struct pair pair = open_pair(MAP_PRIVATE);
	uint64_t *word = (void *)(pair.target + 2 * PAGE), *old = (void *)(pair.source + 3 * PAGE);

	for (int round = 0; round < 5; round++) {
		drop(pair.target, SIZE);
		write_and_check(&pair, round);
		/* The pages of the target have data now, and those of the source are absent. */
		drop(pair.source, SIZE);
		post(&pair, IBV_WR_RDMA_READ, pair.source + SPOT, SIZE - 2 * SPOT, pair.target + SPOT);
		done(&pair);
		check(pair.source + SPOT, SIZE - 2 * SPOT, round, "what was read");
		/* Absent pages of both: the data is zero. */
		drop(pair.source, SIZE);
		post(&pair, IBV_WR_RDMA_WRITE, pair.source + SPOT, SIZE - 2 * SPOT, pair.target + SPOT);
		done(&pair);
		for (int at = SPOT; at < SIZE - SPOT; at++)
			need(pair.target[at] == 0, "a page of zeros");
		drop(pair.target, SIZE);
		post_recv(&pair, pair.target + SPOT, 100000);
		fill(pair.source + PAGE, 100000, round);
		post(&pair, IBV_WR_SEND, pair.source + PAGE, 100000, NULL);
		done(&pair);
		completion(&pair.b, 8, IBV_WC_SUCCESS, 0);
		check(pair.target + SPOT, 100000, round, "what was received");
		drop(pair.source, SIZE);
		drop(pair.target, SIZE);
		for (uint64_t before = 0; before < 15; before += 5) {
			post(&pair, IBV_WR_ATOMIC_FETCH_AND_ADD, old, 8, word);
			done(&pair);
			need(*old == before && *word == before + 5, "an atomic");
		}
	}
	close_pair(&pair);
}

static volatile bool ends;

/* Takes pages of both memories away for ever. Their data stays, because they are shared. */
static void *take_away(void *argument)
{
	struct pair *pair = argument;
	unsigned int seed = 1;

	while (!ends) {
		size_t first = rand_r(&seed) % (SIZE / PAGE), count = 1 + rand_r(&seed) % 40;
		unsigned char *memory = rand_r(&seed) % 2 ? pair->source : pair->target;

		if (first + count > SIZE / PAGE)
			count = SIZE / PAGE - first;
		drop(memory + first * PAGE, count * PAGE);
	}
	return NULL;
}

/* Traffic while pages go at any time. */
static void traffic(void)
{
	struct pair pair = open_pair(MAP_SHARED);
	pthread_t thread;

	ends = false;
	expect(pthread_create(&thread, NULL, take_away, &pair), 0, "pthread_create");
	for (int round = 0; round < 150; round++) {
		write_and_check(&pair, round);
		memset(pair.source, 0, SIZE);
		post(&pair, IBV_WR_RDMA_READ, pair.source + SPOT, SIZE - 2 * SPOT, pair.target + SPOT);
		done(&pair);
		check(pair.source + SPOT, SIZE - 2 * SPOT, round, "what was read");
	}
	ends = true;
	expect(pthread_join(thread, NULL), 0, "pthread_join");
	close_pair(&pair);
}

/* After a fork both processes have their own pages, and the region is of the parent's. */
static void forks(void)
{
	struct pair pair = open_pair(MAP_PRIVATE);
	int status, tell[2], go[2];
	char byte = 0;

	write_and_check(&pair, 1);
	need(pipe(tell) == 0 && pipe(go) == 0, "pipe");
	pid_t child = fork();

	need(child >= 0, "fork");
	if (child == 0) {
		/* These are the child's own. */
		fill(pair.source, SIZE, 9);
		memset(pair.target + SIZE / 2, 0xee, SIZE / 2);
		need(write(tell[1], &byte, 1) == 1 && read(go[0], &byte, 1) == 1, "a pipe");
		check(pair.target + SPOT, SIZE / 2 - SPOT, 1, "the child's memory");
		for (int at = SIZE / 2; at < SIZE; at++)
			need(pair.target[at] == 0xee, "the child's memory");
		_exit(0);
	}
	need(read(tell[0], &byte, 1) == 1, "a pipe");
	post(&pair, IBV_WR_RDMA_WRITE, pair.source + SPOT, SIZE - 2 * SPOT, pair.target + SPOT);
	done(&pair);
	check(pair.target + SPOT, SIZE - 2 * SPOT, 1, "what the parent has written");
	write_and_check(&pair, 2);
	need(write(go[1], &byte, 1) == 1, "a pipe");
	need(waitpid(child, &status, 0) == child && status == 0, "the child");
	close_pair(&pair);
}

/* A memory that is moved away leaves nothing to read. Others at its place belong to the region. */
static void moved(void)
{
	struct pair pair = open_pair(MAP_PRIVATE);
	unsigned char *place = pair.source;

	write_and_check(&pair, 1);
	unsigned char *away = mremap(place, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, map(SIZE, MAP_PRIVATE));

	need(away != MAP_FAILED && away != place, "mremap");
	need(mmap(place, SIZE, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE | MAP_FIXED, -1, 0) == place, "mmap");
	write_and_check(&pair, 2);
	check(away + SPOT, SIZE - 2 * SPOT, 1, "the memory that was moved");
	need(munmap(place, SIZE) == 0, "munmap");
	post(&pair, IBV_WR_RDMA_WRITE, place + SPOT, SIZE - 2 * SPOT, pair.target + SPOT);
	completion(&pair.a, 7, IBV_WC_LOC_PROT_ERR, 0);
	check(pair.target + SPOT, SIZE - 2 * SPOT, 2, "the target of a message without a source");
	close_pair(&pair);
}

/* Memory of which the program may only read, in regions with the right to write: nothing is moved, and nothing waits. */
static void read_only(void)
{
	for (int target = 0; target < 2; target++) {
		struct pair pair = open_pair(MAP_PRIVATE);

		write_and_check(&pair, 1);
		fill(pair.source, SIZE, 2);
		need(mprotect(target ? pair.target : pair.source, SIZE, PROT_READ) == 0, "mprotect");
		post(&pair, IBV_WR_RDMA_WRITE, pair.source + SPOT, SIZE - 2 * SPOT, pair.target + SPOT);
		completion(&pair.a, 7, target ? IBV_WC_REM_OP_ERR : IBV_WC_LOC_PROT_ERR, 0);
		check(pair.target + SPOT, SIZE - 2 * SPOT, 1, "the target of a message that fails");
		close_pair(&pair);
	}
}

/* Traffic while another program lets the kernel write pages to the swap space. */
static void swapped(void)
{
	struct pair pair = open_pair(MAP_PRIVATE);

	for (int round = 0; round < 300; round++) {
		write_and_check(&pair, round);
		usleep(10000);
		check(pair.target + SPOT, SIZE - 2 * SPOT, round, "what was written some time ago");
	}
	close_pair(&pair);
}

static void *unmap_target(void *argument)
{
	struct pair *pair = argument;

	usleep(20000);
	need(munmap(pair->target, SIZE) == 0, "munmap");
	return NULL;
}

/* The target is unmapped under traffic: the message fails, and its pages belong to others. */
static void unmapped(void)
{
	for (int round = 0; round < 5; round++) {
		struct pair pair = open_pair(MAP_PRIVATE);
		struct ibv_wc wc = {};
		pthread_t thread;

		fill(pair.source, SIZE, round);
		expect(pthread_create(&thread, NULL, unmap_target, &pair), 0, "pthread_create");
		for (int count = 0; wc.status == IBV_WC_SUCCESS; count++) {
			errno = ETIMEDOUT;
			need(count < 1000000, "an error");
			post(&pair, IBV_WR_RDMA_WRITE, pair.source + SPOT, SIZE - 2 * SPOT, pair.target + SPOT);
			while (ibv_poll_cq(pair.a.cq, 1, &wc) == 0)
				;
		}
		expect(wc.status == IBV_WC_REM_OP_ERR ? 0 : EIO, 0, "the error of a target that is unmapped");
		expect(pthread_join(thread, NULL), 0, "pthread_join");
		/* What has the pages now is not written. */
		unsigned char *other = map(4 * SIZE, MAP_PRIVATE);

		memset(other, 0x5a, 4 * SIZE);
		usleep(10000);
		for (int at = 0; at < 4 * SIZE; at++)
			need(other[at] == 0x5a, "another memory");
		need(munmap(other, 4 * SIZE) == 0 && munmap(pair.source, SIZE) == 0, "munmap");
		close_pair(&pair);
	}
}

static int advise(struct pair *pair, enum ibv_advise_mr_advice advice, uint32_t flags, void *at, uint32_t length,
		  uint32_t key)
{
	struct ibv_sge sge = { .addr = (uintptr_t)at, .length = length, .lkey = key };

	return ibv_advise_mr(pair->a.pd, advice, flags, &sge, 1);
}

static void advice(void)
{
	struct pair pair = open_pair(MAP_PRIVATE);
	const uint32_t flush = IBV_ADVISE_MR_FLAG_FLUSH;
	unsigned char *at = pair.source + SPOT, present[SIZE / PAGE];
	uint32_t length = SIZE - 2 * SPOT, key = pair.from->lkey;

	for (int round = 0; round < 3; round++) {
		drop(pair.source, SIZE);
		expect(advise(&pair, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, flush, at, length, key), 0, "no fault");
		need(mincore(pair.source, SIZE, present) == 0, "mincore");
		for (int page = 0; page < SIZE / PAGE; page++)
			need(!present[page], "a page that nobody has needed");
		expect(advise(&pair, round ? IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE : IBV_ADVISE_MR_ADVICE_PREFETCH,
			      round == 2 ? 0 : flush, at, length, key), 0, "prefetch");
		need(mincore(pair.source, SIZE, present) == 0, "mincore");
		for (int page = 0; page < SIZE / PAGE; page++)
			need(present[page], "a page that was prefetched");
		write_and_check(&pair, round);
	}
	expect(advise(&pair, IBV_ADVISE_MR_ADVICE_PREFETCH, flush, at - 1, 8, key), EFAULT, "before the region");
	expect(advise(&pair, IBV_ADVISE_MR_ADVICE_PREFETCH, flush, at, length + 1, key), EFAULT, "behind the region");
	expect(advise(&pair, IBV_ADVISE_MR_ADVICE_PREFETCH, flush, at, 8, key ^ 1), EINVAL, "a key that is not valid");
	expect(advise(&pair, 99, flush, at, 8, key), EOPNOTSUPP, "an unknown advice");
	struct ibv_mr *pinned = reg(&pair, pair.source, PAGE, RIGHTS);

	expect(advise(&pair, IBV_ADVISE_MR_ADVICE_PREFETCH, flush, pair.source, 8, pinned->lkey), EINVAL, "pinned memory");
	expect(ibv_dereg_mr(pinned), 0, "ibv_dereg_mr");
	struct ibv_mr *read_only = reg(&pair, pair.source, PAGE, IBV_ACCESS_ON_DEMAND);

	expect(advise(&pair, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, flush, pair.source, 8, read_only->lkey), EPERM,
	       "a region without the right");
	expect(ibv_dereg_mr(read_only), 0, "ibv_dereg_mr");
	need(munmap(pair.source, SIZE) == 0, "munmap");
	expect(advise(&pair, IBV_ADVISE_MR_ADVICE_PREFETCH, flush, at, length, key), EFAULT, "memory that is unmapped");
	expect(advise(&pair, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, at, length, key), 0, "advice without an answer");
	close_pair(&pair);
}

/* One region for all memory of the process: its stack, its heap and its mappings. */
static void implicit(void)
{
	struct pair pair = { .source = map(SIZE, MAP_PRIVATE), .target = map(SIZE, MAP_PRIVATE) };
	unsigned char stack[3 * PAGE], *heap = malloc(3 * PAGE);
	struct ibv_device_attr_ex attr;

	need(heap != NULL, "malloc");
	open_queues(&pair);
	expect(ibv_query_device_ex(pair.a.context, NULL, &attr), 0, "ibv_query_device_ex");
	need(attr.odp_caps.general_caps == (IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT), "the device's abilities");
	pair.from = reg(&pair, NULL, SIZE_MAX, ON_DEMAND);
	pair.to = reg(&pair, NULL, SIZE_MAX, ON_DEMAND);
	for (int round = 0; round < 3; round++) {
		drop(pair.target, SIZE);
		write_and_check(&pair, round);
		fill(heap, 3 * PAGE, round);
		post(&pair, IBV_WR_RDMA_WRITE, heap, 3 * PAGE, stack);
		done(&pair);
		check(stack, 3 * PAGE, round, "the stack");
		/* A mapping that did not exist at the time of the registration. */
		unsigned char *late = map(32 << 20, MAP_PRIVATE), *at = late + (16 << 20) - 5000;

		expect(advise(&pair, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, at, 10000,
			      pair.to->lkey), 0, "prefetch");
		post(&pair, IBV_WR_RDMA_READ, at + PAGE, 10000, pair.source + SPOT);
		done(&pair);
		check(at + PAGE, 10000, round, "a late mapping");
		need(munmap(late, 32 << 20) == 0, "munmap");
	}
	post(&pair, IBV_WR_RDMA_WRITE, NULL, 8, pair.target);
	completion(&pair.a, 7, IBV_WC_LOC_PROT_ERR, 0);
	free(heap);
	close_pair(&pair);
}

/* Transparent huge pages, which the kernel splits and takes away. */
static void huge(void)
{
	enum { HUGE_SIZE = 2 << 20 };
	struct pair pair = { .source = map(3 * HUGE_SIZE, MAP_PRIVATE), .target = map(3 * HUGE_SIZE, MAP_PRIVATE) };

	pair.source += HUGE_SIZE - (uintptr_t)pair.source % HUGE_SIZE;
	pair.target += HUGE_SIZE - (uintptr_t)pair.target % HUGE_SIZE;
	madvise(pair.source, HUGE_SIZE, MADV_HUGEPAGE);
	madvise(pair.target, HUGE_SIZE, MADV_HUGEPAGE);
	open_queues(&pair);
	pair.from = reg(&pair, pair.source, HUGE_SIZE, ON_DEMAND | IBV_ACCESS_HUGETLB);
	pair.to = reg(&pair, pair.target, HUGE_SIZE, ON_DEMAND);
	for (int round = 0; round < 5; round++) {
		write_and_check(&pair, round);
		drop(pair.target + round * PAGE, 3 * PAGE);
		write_and_check(&pair, round + 1);
		drop(pair.source, HUGE_SIZE);
		drop(pair.target, HUGE_SIZE);
	}
	close_pair(&pair);
}

/* What a region that is registered on demand cannot have. */
static void refused(void)
{
	struct pair pair = open_pair(MAP_PRIVATE);

	errno = 0;
	need(ibv_reg_mr(pair.a.pd, pair.source, 0, ON_DEMAND) == NULL && errno == EINVAL, "a region without bytes");
	expect(ibv_rereg_mr(pair.from, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, RIGHTS) != 0 ? 0 : EIO, 0,
	       "a change of a region");
	write_and_check(&pair, 1);
	close_pair(&pair);
}

/* Returns the locked memory of the process, in bytes. */
static size_t locked(void)
{
	FILE *file = fopen("/proc/self/status", "r");
	char line[256];
	size_t kilobytes;

	need(file != NULL, "/proc/self/status");
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "VmPin: %zu kB", &kilobytes) == 1) {
			fclose(file);
			return kilobytes << 10;
		}
	need(false, "VmPin");
	return 0;
}

static void limit_locked(size_t bytes)
{
	struct rlimit limit = { .rlim_cur = bytes, .rlim_max = RLIM_INFINITY };

	need(setrlimit(RLIMIT_MEMLOCK, &limit) == 0, "setrlimit");
}

/* The lists of a region's pages are locked memory of a process, which has a limit. */
static void charged(void)
{
	enum { LARGE = 256 << 20 };
	struct pair pair = { .target = map(SIZE, MAP_PRIVATE) };
	unsigned char *source = map(LARGE, MAP_PRIVATE | MAP_NORESERVE);
	size_t before, each;
	struct ibv_mr *large, *all;

	open_queues(&pair);
	pair.to = reg(&pair, pair.target, SIZE, ON_DEMAND);
	before = locked();
	large = reg(&pair, source, LARGE, ON_DEMAND);
	each = locked() - before;
	need(each >= LARGE / PAGE * 8, "what a region counts as");
	expect(ibv_dereg_mr(large), 0, "ibv_dereg_mr");
	need(locked() == before, "a region that is gone still counts");
	all = reg(&pair, NULL, SIZE_MAX, ON_DEMAND);
	/* A region of all addresses counts as a page before it has parts. */
	need(locked() == before + PAGE, "what a region of all addresses counts as");
	before += PAGE;

	/* Without capabilities, the limit holds. */
	limit_locked(before + each);
	need(setresuid(65534, 65534, 65534) == 0, "setresuid");
	large = reg(&pair, source, LARGE, ON_DEMAND);
	errno = 0;
	need(ibv_reg_mr(pair.a.pd, source, LARGE, ON_DEMAND) == NULL && errno == ENOMEM, "two regions");
	need(locked() == before + each, "a region that was refused counts");
	pair.from = large;
	post(&pair, IBV_WR_RDMA_WRITE, source + PAGE, 8, pair.target);
	done(&pair);

	/* A region of all addresses has the limit that there was at its registration. */
	pair.from = all;
	post(&pair, IBV_WR_RDMA_WRITE, source + PAGE, 8, pair.target);
	done(&pair);
	need(locked() > before + each, "what a part of all addresses counts as");
	expect(ibv_dereg_mr(all), 0, "ibv_dereg_mr");
	pair.from = reg(&pair, NULL, SIZE_MAX, ON_DEMAND);
	post(&pair, IBV_WR_RDMA_WRITE, source + PAGE, 8, pair.target);
	completion(&pair.a, 7, IBV_WC_LOC_PROT_ERR, 0);
	expect(ibv_dereg_mr(large), 0, "ibv_dereg_mr");
	close_pair(&pair);
}

/* Returns a number of bytes of the control group `group`. */
static size_t of_group(const char *name)
{
	FILE *file;
	char line[256], found[64];
	size_t bytes;

	/* The kernel shows changes after two seconds. */
	sleep(3);
	file = fopen("/sys/fs/cgroup/group/memory.stat", "r");
	need(file != NULL, "memory.stat");
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "%63s %zu", found, &bytes) == 2 && strcmp(found, name) == 0) {
			fclose(file);
			return bytes;
		}
	need(false, name);
	return 0;
}

/* Messages that touch a page of each page table: the tables count for the control group of the process. */
static void tabled(void)
{
	enum { TABLES = 64, APART = 2 << 20 };
	struct pair pair = {
		.source = map(SIZE, MAP_PRIVATE), .target = map((size_t)TABLES * APART, MAP_PRIVATE | MAP_NORESERVE),
	};
	size_t before;

	need(madvise(pair.target, (size_t)TABLES * APART, MADV_NOHUGEPAGE) == 0, "MADV_NOHUGEPAGE");
	open_queues(&pair);
	pair.from = reg(&pair, pair.source, SIZE, ON_DEMAND);
	pair.to = reg(&pair, pair.target, (size_t)TABLES * APART, ON_DEMAND);
	before = of_group("pagetables");
	for (int table = 0; table < TABLES; table++) {
		post(&pair, IBV_WR_RDMA_WRITE, pair.source, 8, pair.target + (size_t)table * APART);
		done(&pair);
	}
	need(of_group("pagetables") - before >= TABLES / 2 * PAGE, "tables of the group");
	close_pair(&pair);
}

/*
 * Messages that touch a page of each part of a region of all addresses, each of which has a list of its pages: the lists
 * count for the control group of the process.
 */
static void parts(void)
{
	enum { PARTS = 64, APART = 16 << 20, LIST = APART / PAGE * 8 };
	struct pair pair = {
		.source = map(SIZE, MAP_PRIVATE), .target = map((size_t)PARTS * APART, MAP_PRIVATE | MAP_NORESERVE),
	};
	size_t before;

	need(madvise(pair.target, (size_t)PARTS * APART, MADV_NOHUGEPAGE) == 0, "MADV_NOHUGEPAGE");
	open_queues(&pair);
	pair.from = reg(&pair, pair.source, SIZE, ON_DEMAND);
	pair.to = reg(&pair, NULL, SIZE_MAX, ON_DEMAND);
	before = of_group("kernel");
	for (int part = 0; part < PARTS; part++) {
		post(&pair, IBV_WR_RDMA_WRITE, pair.source, 8, pair.target + (size_t)part * APART);
		done(&pair);
	}
	need(of_group("kernel") - before >= (size_t)PARTS * LIST, "lists of the group");
	close_pair(&pair);
}

/* A region of all addresses counts as a page, without any message. */
static void counted(void)
{
	enum { LIMIT = 20 };
	struct pair pair = {};
	struct ibv_mr *all[LIMIT + 1];
	size_t before;

	open_queues(&pair);
	before = locked();
	limit_locked(before + LIMIT * PAGE);
	need(setresuid(65534, 65534, 65534) == 0, "setresuid");
	for (int count = 0; count < LIMIT; count++)
		all[count] = reg(&pair, NULL, SIZE_MAX, ON_DEMAND);
	errno = 0;
	need(ibv_reg_mr(pair.a.pd, NULL, SIZE_MAX, ON_DEMAND) == NULL && errno == ENOMEM, "more than the limit");
	for (int count = 0; count < LIMIT; count++)
		expect(ibv_dereg_mr(all[count]), 0, "ibv_dereg_mr");
	need(locked() == before, "regions that are gone still count");
	close_pair(&pair);
}

/*
 * The adapter refuses to make a page absent that the kernel takes away. The kernel may use the page for anything, so
 * the adapter may not go on.
 */
static void kept(void)
{
	enum { LARGE = 64 << 20 };
	struct pair pair = open_pair(MAP_PRIVATE);
	struct ibv_wc wc;

	write_and_check(&pair, 1);
	drop(pair.target, SIZE);
	unsigned char *other = map(LARGE, MAP_PRIVATE);

	memset(other, 0x5a, LARGE);
	fill(pair.source, SIZE, 2);
	post(&pair, IBV_WR_RDMA_WRITE, pair.source + SPOT, SIZE - 2 * SPOT, pair.target + SPOT);
	sleep(1);
	errno = EIO;
	while (ibv_poll_cq(pair.a.cq, 1, &wc) == 1)
		need(wc.status != IBV_WC_SUCCESS, "a device that is in error");
	for (int at = 0; at < LARGE; at++)
		need(other[at] == 0x5a, "another memory");
}

/* The adapter has many pages that the kernel may want back; runs until it is killed. */
static void idle(void)
{
	enum { LARGE = 48 << 20 };
	struct pair pair = {};
	unsigned char *memory = map(LARGE, MAP_PRIVATE);

	open_queues(&pair);
	memset(memory, 0x5a, LARGE);
	pair.from = reg(&pair, memory, LARGE, ON_DEMAND);
	expect(advise(&pair, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, memory, LARGE,
		      pair.from->lkey), 0, "prefetch");
	/* The kernel takes these pages first. */
	need(madvise(memory, LARGE, MADV_COLD) == 0, "MADV_COLD");
	puts("idle");
	fflush(stdout);
	pause();
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{ "messages", messages }, { "traffic", traffic }, { "forks", forks }, { "moved", moved },
	{ "unmapped", unmapped }, { "advice", advice }, { "implicit", implicit }, { "huge", huge },
	{ "refused", refused }, { "read_only", read_only }, { "swapped", swapped },
	{ "charged", charged }, { "counted", counted }, { "kept", kept }, { "tabled", tabled },
	{ "parts", parts }, { "idle", idle },
};

int main(int argc, char **argv)
{
	setbuf(stdout, NULL);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		if (argc < 2 || strcmp(argv[1], cases[i].name) == 0) {
			cases[i].run();
			printf("%s: good\n", cases[i].name);
		}
	return 0;
}
