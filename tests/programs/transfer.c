/* SPDX-License-Identifier: MIT OR Apache-2.0
 * Direct transfers of a process (docs/direct.md): WRITEs that leave when the processor has stored their last
 * byte, READs whose data it loads from the adapter, and what goes wrong.
 *
 * usage: transfer serve           answers any number of clients
 *        transfer ADDRESS [CASE]  runs all cases against the server, or one
 */
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include "client.h"

enum {
	/* vendor_err of a work request that failed (docs/adapter.md). */
	INVALID = 1, FOREIGN = 3, BOUNDS = 5, DIRECTION = 6, OVERRUN = 12, SHORT = 13, EARLY = 14, ENDED = 15,
};

static int try_arm(struct client *client, uint64_t offset, uint32_t length, uint32_t limit_ms, uint32_t flags)
{
	struct vrnicdv_transfer transfer = {
		.dm = client->dm, .offset = offset, .length = length, .time_limit_ms = limit_ms, .flags = flags,
	};

	return vrnicdv_arm_range(client->range, &transfer);
}

static void arm(struct client *client, uint32_t length, uint32_t limit_ms, uint32_t flags)
{
	expect(try_arm(client, 0, length, limit_ms, flags), 0, "vrnicdv_arm_range");
}

/* TRANSFER is request 1. */
static void post_transfer(struct client *client)
{
	expect(vrnicdv_post_transfer(client->range, 1, IBV_SEND_SIGNALED), 0, "vrnicdv_post_transfer");
}

/* The WRITE or READ of packet memory is request 2. */
static void post_message(struct client *client, enum ibv_wr_opcode opcode, uint32_t length)
{
	struct ibv_sge sge = { .length = length, .lkey = client->key->lkey };
	struct ibv_send_wr wr = {
		.wr_id = 2, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1,
		.wr.rdma = { .remote_addr = client->side.peer.at, .rkey = client->side.peer.key },
	}, *bad;

	expect(ibv_post_send(client->side.qp, &wr, &bad), 0, "ibv_post_send");
}

static int try_block(struct client *client, uint32_t length, uint32_t flags)
{
	struct vrnicdv_transfer transfer = {
		.length = length, .time_limit_ms = 10000, .flags = flags | VRNICDV_TRANSFER_BLOCK,
	};

	return vrnicdv_arm_range(client->range, &transfer);
}

/* Arms the range with a block of the adapter as its packet memory. */
static void arm_block(struct client *client, uint32_t length, uint32_t flags)
{
	expect(try_block(client, length, flags), 0, "vrnicdv_arm_range with a block");
}

/* A message out of, or into, the first bytes of the range; the server's bytes begin at an offset. */
static void post_through(struct client *client, enum ibv_wr_opcode opcode, uint32_t length, uint32_t offset)
{
	struct ibv_sge sge = vrnicdv_range_sge(client->range, 0, length);
	struct ibv_send_wr wr = {
		.wr_id = 2, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1,
		.wr.rdma = { .remote_addr = client->side.peer.at + offset, .rkey = client->side.peer.key },
	}, *bad;

	expect(ibv_post_send(client->side.qp, &wr, &bad), 0, "ibv_post_send");
}

/* A processor's loads. */
static void load(struct client *client, unsigned char *to, int length)
{
	for (int at = 0; at < length; at += 8)
		*(uint64_t *)(to + at) = *(volatile uint64_t *)(client->range->window + at);
}

/* A processor's stores: one after the other, each a burst of its own. */
static void store(struct client *client, int length, int seed)
{
	volatile unsigned char *window = client->range->window;

	for (int at = 0; at < length; at++)
		window[at] = pattern(at, seed);
}

static void state(struct client *client, uint32_t count, int pci, int adapter)
{
	struct vrnicdv_range_state found;

	expect(vrnicdv_query_range(client->range, &found), 0, "vrnicdv_query_range");
	if (found.count != count || found.pci_valid != pci || found.adapter_valid != adapter) {
		fprintf(stderr, "%u bytes, valid %u %u; expected %u, %d %d\n", found.count, found.pci_valid,
			found.adapter_valid, count, pci, adapter);
		exit(1);
	}
}

/* Waits until data of a READ can be loaded, of which so much has been loaded. */
static void opens_at(struct client *client, uint32_t loaded)
{
	struct vrnicdv_range_state found;

	do
		expect(vrnicdv_query_range(client->range, &found), 0, "vrnicdv_query_range");
	while (!found.pci_valid && found.adapter_valid);
	state(client, loaded, 1, 0);
}

static void opens(struct client *client)
{
	opens_at(client, 0);
}

/* A load before the data has come is answered without delay, and fails the transfer. */
static void early(void)
{
	struct client client = make_client();
	struct timespec begin, end;

	for (int round = 0; round < 20; round++) {
		arm(&client, RANGE, 10000, 0);
		clock_gettime(CLOCK_MONOTONIC, &begin);
		uint64_t found = *(volatile uint64_t *)client.range->window;
		clock_gettime(CLOCK_MONOTONIC, &end);
		need(found == UINT64_MAX, "a load of data that has not come");
		long ms = (end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000;
		errno = ETIME;
		need(ms < 200, "a load that does not wait");
		expect(vrnicdv_free_range(client.range), 0, "vrnicdv_free_range");
		client.range = vrnicdv_alloc_range(client.side.qp);
		need(client.range != NULL, "vrnicdv_alloc_range");
	}
	arm(&client, RANGE, 10000, 0);
	(void)*(volatile uint64_t *)client.range->window;
	post_transfer(&client);
	completion(&client.side, 1, IBV_WC_MW_BIND_ERR, EARLY);
	close_client(&client);
}

static void counted(void)
{
	struct client client = make_client();

	for (int round = 1; round <= 3; round++) {
		arm(&client, 1000, 10000, VRNICDV_TRANSFER_WRITE);
		post_transfer(&client);
		post_message(&client, IBV_WR_RDMA_WRITE, 1000);
		store(&client, 999, round);
		state(&client, 999, 1, 0);
		store(&client, 1000, round);
		enum ibv_wc_opcode opcode = completion(&client.side, 1, IBV_WC_SUCCESS, 0);
		expect(opcode == IBV_WC_DRIVER1 ? 0 : EINVAL, 0, "the operation of TRANSFER");
		completion(&client.side, 2, IBV_WC_SUCCESS, 0);
		check(exchange(&client.side, 100 + round), 1000, round, "what the server got");
		/* The server has other data now, which comes the other way. */
		arm(&client, RANGE, 10000, 0);
		state(&client, 0, 0, 1);
		post_message(&client, IBV_WR_RDMA_READ, RANGE);
		post_transfer(&client);
		completion(&client.side, 2, IBV_WC_SUCCESS, 0);
		opens(&client);
		unsigned char found[RANGE];
		load(&client, found, RANGE);
		completion(&client.side, 1, IBV_WC_SUCCESS, 0);
		check(found, RANGE, 100 + round, "what was loaded");
	}
	close_client(&client);
}

static void mapped(void)
{
	struct client client = make_client();
	static unsigned char data[LENGTH];

	for (int round = 1; round <= 3; round++) {
		arm(&client, LENGTH, 10000, VRNICDV_TRANSFER_WRITE | VRNICDV_TRANSFER_MAPPED);
		post_transfer(&client);
		post_message(&client, IBV_WR_RDMA_WRITE, LENGTH);
		fill(data, LENGTH, round);
		expect(ibv_memcpy_to_dm(client.dm, 0, data, LENGTH), 0, "ibv_memcpy_to_dm");
		state(&client, 0, 1, 0);
		expect(vrnicdv_range_done(client.range), 0, "vrnicdv_range_done");
		completion(&client.side, 1, IBV_WC_SUCCESS, 0);
		completion(&client.side, 2, IBV_WC_SUCCESS, 0);
		check(exchange(&client.side, 100), LENGTH, round, "what the server got");
	}
	close_client(&client);
}

/* A READ whose data is loaded from the device memory itself. */
static void mapped_read(void)
{
	struct client client = make_client();
	static unsigned char data[LENGTH];

	for (int round = 1; round <= 3; round++) {
		exchange(&client.side, 60 + round);
		arm(&client, LENGTH, 10000, VRNICDV_TRANSFER_MAPPED);
		post_message(&client, IBV_WR_RDMA_READ, LENGTH);
		post_transfer(&client);
		completion(&client.side, 2, IBV_WC_SUCCESS, 0);
		/* TRANSFER begins after the READ. */
		opens(&client);
		expect(ibv_memcpy_from_dm(data, client.dm, 0, LENGTH), 0, "ibv_memcpy_from_dm");
		check(data, LENGTH, 60 + round, "what was loaded");
		expect(vrnicdv_range_done(client.range), 0, "vrnicdv_range_done");
		completion(&client.side, 1, IBV_WC_SUCCESS, 0);
	}
	/* Done before its data has come. */
	arm(&client, LENGTH, 10000, VRNICDV_TRANSFER_MAPPED);
	expect(vrnicdv_range_done(client.range), 0, "vrnicdv_range_done");
	post_transfer(&client);
	completion(&client.side, 1, IBV_WC_MW_BIND_ERR, EARLY);
	close_client(&client);
}

/* AWAIT is request 3. */
static void post_await(struct client *client, uint32_t word, uint32_t mark, uint32_t limit_ms, int expected)
{
	struct vrnicdv_await await = {
		.wr_id = 3, .send_flags = IBV_SEND_SIGNALED, .word = word, .mark = mark, .time_limit_ms = limit_ms,
	};

	expect(vrnicdv_post_await(client->side.qp, &await), expected, "vrnicdv_post_await");
}

static void mark(struct client *client, uint32_t word, uint32_t mark, bool failed, int expected)
{
	expect(vrnicdv_mark(client->side.qp, word, mark, failed), expected, "vrnicdv_mark");
}

/* Marks in the place of a range: both directions, all words, and what goes wrong. */
static void marked(void)
{
	struct client client = make_client();
	static unsigned char data[LENGTH];

	for (int word = 0; word < VRNICDV_MARKS; word++) {
		post_await(&client, word, 7, 10000, 0);
		post_message(&client, IBV_WR_RDMA_WRITE, LENGTH);
		fill(data, LENGTH, word);
		expect(ibv_memcpy_to_dm(client.dm, 0, data, LENGTH), 0, "ibv_memcpy_to_dm");
		mark(&client, word, 7, false, 0);
		enum ibv_wc_opcode opcode = completion(&client.side, 3, IBV_WC_SUCCESS, 0);
		expect(opcode == IBV_WC_DRIVER1 ? 0 : EINVAL, 0, "the operation of AWAIT");
		completion(&client.side, 2, IBV_WC_SUCCESS, 0);
		check(exchange(&client.side, 100 + word), LENGTH, word, "what the server got");
		post_message(&client, IBV_WR_RDMA_READ, LENGTH);
		post_await(&client, word, 8, 10000, 0);
		completion(&client.side, 2, IBV_WC_SUCCESS, 0);
		expect(ibv_memcpy_from_dm(data, client.dm, 0, LENGTH), 0, "ibv_memcpy_from_dm");
		check(data, LENGTH, 100 + word, "what was loaded");
		mark(&client, word, 8, false, 0);
		completion(&client.side, 3, IBV_WC_SUCCESS, 0);
	}
	post_await(&client, VRNICDV_MARKS, 1, 100, EINVAL);
	post_await(&client, 0, 0, 100, EINVAL);
	post_await(&client, 0, 1U << 31, 100, EINVAL);
	post_await(&client, 0, 1, 0, EINVAL);
	post_await(&client, 0, 1, 60001, EINVAL);
	mark(&client, VRNICDV_MARKS, 1, false, EINVAL);
	mark(&client, 0, 0, false, EINVAL);
	mark(&client, 0, 1U << 31, false, EINVAL);
	close_client(&client);
}

/* Blocks of the adapter: WRITEs that name the range, before their bytes are there, and READs. */
static void blocks(void)
{
	struct client client = make_client();
	unsigned char found[RANGE];
	struct ibv_wc wc;

	for (int round = 1; round <= 3; round++) {
		arm_block(&client, 1000, VRNICDV_TRANSFER_WRITE);
		post_through(&client, IBV_WR_RDMA_WRITE, 1000, 0);
		post_transfer(&client);
		store(&client, 999, round);
		state(&client, 999, 1, 0);
		need(ibv_poll_cq(client.side.cq, 1, &wc) == 0, "waiting for the last byte");
		((volatile unsigned char *)client.range->window)[999] = pattern(999, round);
		completion(&client.side, 2, IBV_WC_SUCCESS, 0);
		completion(&client.side, 1, IBV_WC_SUCCESS, 0);
		check(exchange(&client.side, 100 + round), 1000, round, "what the server got");
		arm_block(&client, RANGE, 0);
		post_through(&client, IBV_WR_RDMA_READ, RANGE, 0);
		post_transfer(&client);
		completion(&client.side, 2, IBV_WC_SUCCESS, 0);
		opens(&client);
		load(&client, found, RANGE);
		completion(&client.side, 1, IBV_WC_SUCCESS, 0);
		check(found, RANGE, 100 + round, "what was loaded");
	}
	close_client(&client);
}

/* READs hand their data over in pieces, at one place: each comes when the one before has been loaded. */
static void pieces(void)
{
	enum { PIECE = 1024, COUNT = 5 };
	struct client client = make_client();
	unsigned char found[COUNT * PIECE];

	exchange(&client.side, 70);
	arm_block(&client, COUNT * PIECE, 0);
	for (int nth = 0; nth < COUNT; nth++)
		post_through(&client, IBV_WR_RDMA_READ, PIECE, nth * PIECE);
	post_transfer(&client);
	for (int nth = 0; nth < COUNT; nth++) {
		opens_at(&client, nth * PIECE);
		load(&client, found + nth * PIECE, PIECE);
		completion(&client.side, 2, IBV_WC_SUCCESS, 0);
	}
	completion(&client.side, 1, IBV_WC_SUCCESS, 0);
	check(found, COUNT * PIECE, 70, "what was loaded");
	close_client(&client);
}

/* A work request through a range that fails. The server's memory is as it was. */
static void fails_through(struct client *client, uint32_t length, uint32_t cause)
{
	exchange(&client->side, 50);
	post_through(client, IBV_WR_RDMA_WRITE, length, 0);
	completion(&client->side, 2, IBV_WC_LOC_PROT_ERR, cause);
	check(exchange(&client->side, 100), LENGTH, 50, "the server's unchanged memory");
	close_client(client);
}

/* A work request names bytes of its own queue pair's ranges alone, and only through a block. */
static void blocks_failed(void)
{
	struct client client = make_client(), other = make_client();

	arm_block(&client, 100, VRNICDV_TRANSFER_WRITE);
	store(&client, 100, 1);
	struct vrnicdv_range *own = other.range;
	other.range = client.range;
	exchange(&other.side, 50);
	post_through(&other, IBV_WR_RDMA_WRITE, 100, 0);
	completion(&other.side, 2, IBV_WC_LOC_PROT_ERR, FOREIGN);
	check(exchange(&other.side, 100), LENGTH, 50, "the server's unchanged memory");
	other.range = own;
	close_client(&other);
	post_through(&client, IBV_WR_RDMA_WRITE, 100, 0);
	post_transfer(&client);
	completion(&client.side, 2, IBV_WC_SUCCESS, 0);
	completion(&client.side, 1, IBV_WC_SUCCESS, 0);
	check(exchange(&client.side, 1), 100, 1, "what the server got");
	/* The transfer has ended. */
	fails_through(&client, 100, INVALID);
	client = make_client();
	arm(&client, 100, 10000, VRNICDV_TRANSFER_WRITE);
	fails_through(&client, 100, INVALID);
	client = make_client();
	arm_block(&client, 100, VRNICDV_TRANSFER_WRITE);
	fails_through(&client, 101, BOUNDS);
	client = make_client();
	arm_block(&client, 100, 0);
	fails_through(&client, 100, DIRECTION);
	/* What a block had before is not seen. */
	client = make_client();
	arm_block(&client, RANGE, 0);
	need(*(volatile uint64_t *)client.range->window == UINT64_MAX, "a load of data that has not come");
	post_transfer(&client);
	completion(&client.side, 1, IBV_WC_MW_BIND_ERR, EARLY);
	close_client(&client);
}

/* Arms the ranges of a context, which are four, with blocks. */
static void fill_blocks(struct client *client, struct vrnicdv_range **held)
{
	for (int each = 0; each < 4; each++) {
		if (each > 0)
			client->range = vrnicdv_alloc_range(client->side.qp);
		need(client->range != NULL, "vrnicdv_alloc_range");
		arm_block(client, 100, VRNICDV_TRANSFER_WRITE);
		held[each] = client->range;
	}
	client->range = NULL;
}

/* Another user gets what is left of the blocks of processes. */
static void last_blocks(int from, int to)
{
	struct client client, other;
	struct vrnicdv_range *held[4];
	char byte;

	need(read(from, &byte, 1) == 1 && setgid(65534) == 0 && setuid(65534) == 0, "setuid");
	client = make_client();
	fill_blocks(&client, held);
	other = make_client();
	expect(try_block(&other, 100, VRNICDV_TRANSFER_WRITE), ENOSPC, "more blocks than processes may have");
	arm(&other, 100, 10000, VRNICDV_TRANSFER_WRITE);
	expect(vrnicdv_free_range(other.range), 0, "vrnicdv_free_range");
	other.range = vrnicdv_alloc_range(other.side.qp);
	need(other.range != NULL, "vrnicdv_alloc_range");
	need(write(to, "", 1) == 1 && read(from, &byte, 1) == 1, "waiting for a block");
	arm_block(&other, 100, VRNICDV_TRANSFER_WRITE);
	close_client(&other);
	for (int each = 0; each < 4; each++)
		expect(vrnicdv_free_range(held[each]), 0, "vrnicdv_free_range");
	close_client(&client);
	_exit(0);
}

/* Processes have half of the blocks, whatever their contexts and users, and a user has fewer. */
static void quota(void)
{
	enum { EACH = 4, CLIENTS = 3 };
	struct client clients[CLIENTS];
	struct vrnicdv_range *held[EACH * CLIENTS];
	struct side more;
	int there[2], back[2], status;
	char byte;

	need(pipe(there) == 0 && pipe(back) == 0, "pipe");
	if (fork() == 0)
		last_blocks(there[0], back[1]);
	close(back[1]);
	for (int nth = 0; nth < CLIENTS; nth++) {
		clients[nth] = make_client();
		fill_blocks(&clients[nth], held + EACH * nth);
	}
	more.context = open_device();
	more = open_side(more.context, ibv_alloc_pd(more.context));
	need(!vrnicdv_alloc_range(more.qp) && errno == ENOSPC, "refusing more ranges than a user may have");
	need(write(there[1], "", 1) == 1 && read(back[0], &byte, 1) == 1, "another user");
	expect(vrnicdv_free_range(held[0]), 0, "vrnicdv_free_range");
	need(write(there[1], "", 1) == 1 && wait(&status) > 0 && status == 0, "another user, with a block");
	for (int nth = 1; nth < EACH * CLIENTS; nth++)
		expect(vrnicdv_free_range(held[nth]), 0, "vrnicdv_free_range");
	for (int nth = 0; nth < CLIENTS; nth++)
		close_client(&clients[nth]);
	expect(ibv_destroy_qp(more.qp), 0, "ibv_destroy_qp");
	expect(ibv_destroy_cq(more.cq), 0, "ibv_destroy_cq");
	expect(ibv_dealloc_pd(more.pd), 0, "ibv_dealloc_pd");
	expect(ibv_close_device(more.context), 0, "ibv_close_device");
}

/* Tests that the kernel refuses invalid calls. */
static void refused(void)
{
	struct client client = make_client();
	struct vrnicdv_range *more[64], forged = *client.range;
	struct vrnicdv_range_state found;
	int count = 0;

	expect(try_arm(&client, 0, 0, 100, 0), EINVAL, "no bytes");
	expect(try_arm(&client, 0, RANGE + 1, 100, 0), EINVAL, "more than a range");
	expect(try_arm(&client, LENGTH - 10, 11, 100, 0), EINVAL, "more than the device memory");
	expect(try_arm(&client, UINT64_MAX - 10, 11, 100, 0), EINVAL, "an offset that wraps");
	expect(try_arm(&client, 0, 1, 0, 0), EINVAL, "no time");
	expect(try_arm(&client, 0, 1, 60001, 0), EINVAL, "too much time");
	expect(try_arm(&client, 0, 1, 100, 1 << 3), EINVAL, "an unknown flag");
	expect(try_arm(&client, 0, 1, 100, VRNICDV_TRANSFER_BLOCK), EINVAL, "a block and device memory");
	expect(try_block(&client, 1, VRNICDV_TRANSFER_MAPPED), EINVAL, "a block that is mapped");
	expect(try_block(&client, 0, 0), EINVAL, "no bytes of a block");
	expect(try_block(&client, RANGE + 1, VRNICDV_TRANSFER_WRITE), EINVAL, "more than a block");
	expect(try_block(&client, (16 << 20) + 1, 0), EINVAL, "more than a READ through a block may have");
	struct vrnicdv_transfer bad = { .length = 1, .time_limit_ms = 100, .offset = 1, .flags = VRNICDV_TRANSFER_BLOCK };
	expect(vrnicdv_arm_range(client.range, &bad), EINVAL, "an offset in a block");
	bad = (struct vrnicdv_transfer){ .length = 1, .time_limit_ms = 100 };
	expect(vrnicdv_arm_range(client.range, &bad), EINVAL, "no packet memory");
	forged.number = client.range->number + 1;
	expect(vrnicdv_query_range(&forged, &found), EINVAL, "a range without an owner");
	forged.number = 1000;
	expect(vrnicdv_range_done(&forged), EINVAL, "a range that does not exist");
	forged.number = client.range->number;
	forged.qp = make_qp(&client.side);
	expect(vrnicdv_query_range(&forged, &found), EINVAL, "a range of another queue pair");
	expect(ibv_destroy_qp(forged.qp), 0, "ibv_destroy_qp");
	while (count < 64 && (more[count] = vrnicdv_alloc_range(client.side.qp)))
		count++;
	expect(errno, ENOSPC, "more ranges than a context may have");
	expect(count, 3, "the number of ranges but one");
	/* Another context still gets one. */
	struct client other = make_client();
	close_client(&other);
	while (count--)
		expect(vrnicdv_free_range(more[count]), 0, "vrnicdv_free_range");
	arm(&client, 1, 60000, VRNICDV_TRANSFER_WRITE);
	expect(try_arm(&client, 0, 1, 100, 0), EBUSY, "a second transfer");
	close_client(&client);
}

/* A transfer that fails, and what is after it. */
static void fails(struct client *client, uint32_t cause)
{
	completion(&client->side, 1, IBV_WC_MW_BIND_ERR, cause);
	completion(&client->side, 2, IBV_WC_WR_FLUSH_ERR, 0);
	check(exchange(&client->side, 100), LENGTH, 50, "the server's unchanged memory");
	close_client(client);
}

static struct client begin(uint32_t length, uint32_t limit_ms)
{
	struct client client = make_client();

	exchange(&client.side, 50);
	arm(&client, length, limit_ms, VRNICDV_TRANSFER_WRITE);
	post_transfer(&client);
	post_message(&client, IBV_WR_RDMA_WRITE, length);
	return client;
}

static void failed(void)
{
	struct client client = begin(100, 200);

	store(&client, 99, 1);
	fails(&client, SHORT);
	client = begin(100, 200);
	fails(&client, SHORT);
	client = begin(100, 60000);
	store(&client, 101, 1);
	/* The last byte made it complete before the one too many came. */
	completion(&client.side, 1, IBV_WC_SUCCESS, 0);
	completion(&client.side, 2, IBV_WC_SUCCESS, 0);
	close_client(&client);
	client = begin(100, 60000);
	((volatile unsigned char *)client.range->window)[100] = 1;
	fails(&client, OVERRUN);
	client = begin(100, 60000);
	expect(vrnicdv_free_range(client.range), 0, "vrnicdv_free_range");
	client.range = NULL;
	fails(&client, ENDED);
	client = make_client();
	exchange(&client.side, 50);
	arm(&client, 100, 60000, VRNICDV_TRANSFER_WRITE);
	/* A request that names the range of another queue pair. */
	struct vrnicdv_range *own = client.range, forged = *client.range;
	struct client other = make_client();
	forged.qp = other.side.qp;
	expect(vrnicdv_post_transfer(&forged, 1, IBV_SEND_SIGNALED), 0, "vrnicdv_post_transfer");
	completion(&other.side, 1, IBV_WC_MW_BIND_ERR, FOREIGN);
	close_client(&other);
	client.range = own;
	post_transfer(&client);
	store(&client, 100, 1);
	completion(&client.side, 1, IBV_WC_SUCCESS, 0);
	close_client(&client);
	for (int ends = 0; ends < 2; ends++) {
		client = make_client();
		exchange(&client.side, 50);
		post_await(&client, 0, 1, ends ? 60000 : 200, 0);
		post_message(&client, IBV_WR_RDMA_WRITE, 100);
		if (ends)
			mark(&client, 0, 1, true, 0);
		completion(&client.side, 3, IBV_WC_MW_BIND_ERR, ends ? ENDED : SHORT);
		completion(&client.side, 2, IBV_WC_WR_FLUSH_ERR, 0);
		check(exchange(&client.side, 100), LENGTH, 50, "the server's unchanged memory");
		close_client(&client);
	}
}

/* Device memory that is freed while a range has its packet memory there stays until the range goes. */
static void freed(void)
{
	struct client client = make_client();

	arm(&client, 100, 60000, VRNICDV_TRANSFER_WRITE);
	expect(ibv_dereg_mr(client.key), 0, "ibv_dereg_mr");
	expect(ibv_free_dm(client.dm), 0, "ibv_free_dm");
	client.dm = NULL;
	struct ibv_alloc_dm_attr attr = { .length = LENGTH };
	client.dm = ibv_alloc_dm(client.side.context, &attr);
	need(client.dm != NULL, "ibv_alloc_dm");
	client.key = ibv_reg_dm_mr(client.side.pd, client.dm, 0, LENGTH, IBV_ACCESS_LOCAL_WRITE |
				   IBV_ACCESS_ZERO_BASED);
	need(client.key != NULL, "ibv_reg_dm_mr");
	store(&client, 100, 1);
	unsigned char found[100], none[100] = { 0 };
	expect(ibv_memcpy_from_dm(found, client.dm, 0, 100), 0, "ibv_memcpy_from_dm");
	expect(memcmp(found, none, 100), 0, "device memory that somebody else had before");
	close_client(&client);
}

/* Another process can neither use nor map the range, and a child has no mapping of it. */
static void foreign(void)
{
	struct client client = make_client();
	uint32_t number = client.range->number;
	int status;

	arm(&client, 1, 60000, VRNICDV_TRANSFER_WRITE);
	if (fork() == 0) {
		need(msync(client.range->window, RANGE, MS_ASYNC) != 0, "a child without the mapping");
		struct client other = make_client();
		struct vrnicdv_range forged = *other.range;
		struct vrnicdv_range_state found;
		off_t offset = (1L << 42) + (off_t)number * RANGE;

		forged.number = number;
		expect(vrnicdv_query_range(&forged, &found), EINVAL, "the range of another process");
		expect(vrnicdv_free_range(&forged), EINVAL, "the range of another process");
		need(mmap(NULL, RANGE, PROT_WRITE, MAP_SHARED, other.side.context->cmd_fd, offset) == MAP_FAILED,
		     "not mapping the range of another process");
		close_client(&other);
		_exit(0);
	}
	need(wait(&status) > 0 && status == 0, "the other process");
	state(&client, 0, 1, 0);
	close_client(&client);
}

/* Ends when it is killed, with ranges that are armed and mapped. */
static void hold(void)
{
	struct client client = make_client();

	for (int nth = 0; nth < 3; nth++) {
		if (nth == 0)
			arm_block(&client, 100, VRNICDV_TRANSFER_WRITE);
		else
			arm(&client, 100, 60000, VRNICDV_TRANSFER_WRITE);
		post_transfer(&client);
		client.range = vrnicdv_alloc_range(client.side.qp);
		need(client.range != NULL, "vrnicdv_alloc_range");
	}
	puts("held");
	fflush(stdout);
	pause();
}

static const struct {
	const char *name;
	void (*run)(void);
	bool only_by_name;
} CASES[] = {
	{ "early", early, false }, { "counted", counted, false }, { "mapped", mapped, false },
	{ "mapped_read", mapped_read, false }, { "marked", marked, false }, { "refused", refused, false },
	{ "blocks", blocks, false }, { "pieces", pieces, false }, { "blocks_failed", blocks_failed, false },
	{ "quota", quota, false }, { "failed", failed, false }, { "freed", freed, false }, { "foreign", foreign, false },
	{ "hold", hold, true },
};

int main(int count, char **arguments)
{
	if (count < 2)
		return 2;
	if (strcmp(arguments[1], "serve") == 0)
		listen_for_clients(PORT, serve);
	server = arguments[1];
	for (size_t nth = 0; nth < sizeof(CASES) / sizeof(CASES[0]); nth++)
		if (count > 2 ? strcmp(arguments[2], CASES[nth].name) == 0 : !CASES[nth].only_by_name) {
			CASES[nth].run();
			printf("%s: good\n", CASES[nth].name);
		}
	return 0;
}
