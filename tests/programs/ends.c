/* SPDX-License-Identifier: MIT OR Apache-2.0
 * The ends of TCP connections of queue pairs: states, events, and who may do what when.
 *
 * usage: vrnic_ends PORT
 *        vrnic_ends ADDRESS PORT
 *
 * Both sides go through the same cases, each with a connection of its own.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>
#include "side.h"
#include "vrnicdv.h"
#include "vrnicfault.h"

enum { CASES = 6, ENTRIES = 64, TIMEOUT_MS = 20000, READS = 4,
       FIN = VRNICDV_CONNECTION_GRACEFUL_DISCONNECT, RESET = VRNICDV_CONNECTION_ABORTIVE_DISCONNECT,
       CLOSED = VRNICDV_CONNECTION_CLOSED, BAD = VRNICDV_CONNECTION_BAD_CLOSE,
       RELEASED = VRNICDV_CONNECTION_RELEASED };

static unsigned char memory[4096];
static struct sockaddr_in at;
static int listener, watch;
static const char *now;

static struct ibv_qp *make_toe(struct side *side)
{
	struct ibv_qp_init_attr init = {
		.send_cq = side->cq, .recv_cq = side->cq, .qp_type = IBV_QPT_DRIVER,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct vrnicdv_qp_attr attr = { .flags = VRNICDV_QP_TOE | VRNICDV_QP_PUSH };
	struct ibv_qp *qp = vrnicdv_create_qp(side->pd, &init, &attr);

	need(qp != NULL, "vrnicdv_create_qp");
	return qp;
}

static void receive(struct side *side, struct ibv_qp *qp, uint64_t id)
{
	struct ibv_sge sge = { (uintptr_t)memory, sizeof(memory), side->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;

	expect(ibv_post_recv(qp, &wr, &bad), 0, "ibv_post_recv");
}

static void send_bytes(struct side *side, struct ibv_qp *qp, uint64_t id)
{
	struct ibv_sge sge = { (uintptr_t)memory, 100, side->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	expect(ibv_post_send(qp, &wr, &bad), 0, "ibv_post_send");
}

/* Waits for two successful completions, in any order. */
static void completed(struct side *side, uint64_t one, uint64_t other)
{
	int seen = 0;
	struct ibv_wc wc;

	for (long polls = 0; polls < MAX_POLLS && seen != 3; polls++)
		if (ibv_poll_cq(side->cq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS)
			seen |= (wc.wr_id == one) | (wc.wr_id == other) << 1;
	errno = ETIMEDOUT;
	need(seen == 3, "waiting for two completions");
}

/* Connects the queue pair to the other side, and watches the connection. Each side waits until the other one has the
 * connection and its bytes, and nothing is unacknowledged: the connection may then be reset. */
static void meet(struct side *side)
{
	int error = ECONNREFUSED;

	if (listener)
		expect(vrnicdv_accept_stream(side->qp, listener), 0, "vrnicdv_accept_stream");
	for (int tries = 0; !listener && tries < 300 && error; tries++) {
		error = vrnicdv_connect_stream(side->qp, (struct sockaddr *)&at, sizeof(at));
		need(error == 0 || error == ECONNREFUSED, "vrnicdv_connect_stream");
		usleep(error ? 100000 : 0);
	}
	if (listener) {
		receive(side, side->qp, 8);
		send_bytes(side, side->qp, 9);
		completed(side, 8, 9);
	} else {
		receive(side, side->qp, 9);
		completion(side, 9, IBV_WC_SUCCESS, 0);
		send_bytes(side, side->qp, 8);
		completion(side, 8, IBV_WC_SUCCESS, 0);
	}
	if (watch)
		close(watch);
	watch = eventfd(0, EFD_NONBLOCK);
	need(watch >= 0, "eventfd");
	expect(vrnicdv_watch_connection(side->qp, watch), 0, "vrnicdv_watch_connection");
}

static struct vrnicdv_connection query(struct ibv_qp *qp)
{
	struct vrnicdv_connection found;

	expect(vrnicdv_query_connection(qp, &found), 0, "vrnicdv_query_connection");
	return found;
}

/* Waits for the eventfd until the connection has this state, and all of these events. */
static void reach(struct ibv_qp *qp, uint32_t status, uint32_t events)
{
	struct pollfd waits = { .fd = watch, .events = POLLIN };
	struct vrnicdv_connection found;
	uint64_t count;

	for (;;) {
		found = query(qp);
		if (found.status == status && (found.events & events) == events)
			return;
		if (poll(&waits, 1, TIMEOUT_MS) != 1)
			break;
		need(read(watch, &count, sizeof(count)) == sizeof(count), "reading the eventfd");
	}
	fprintf(stderr, "%s: state %u with events %x, not %u with %x\n", now, found.status, found.events, status,
		events);
	exit(1);
}

/* Makes the queue pair as new: its connection has ended, or is about to end. */
static void renew(struct ibv_qp *qp)
{
	int error = EAGAIN;

	for (int tries = 0; tries < TIMEOUT_MS && error == EAGAIN; tries++) {
		error = vrnicdv_make_idle(qp, false);
		usleep(error ? 1000 : 0);
	}
	expect(error, 0, "vrnicdv_make_idle");
	expect(vrnicdv_make_idle(qp, true), ENOTCONN, "making it idle twice");
}

/* Both directions are closed, one after the other. The queue pair goes on with another connection. */
static void graceful(struct side *side, int first)
{
	struct ibv_qp *qp = side->qp;

	reach(qp, VRNICDV_CONNECTION_RTS, 0);
	receive(side, qp, 1);
	if (first) {
		send_bytes(side, qp, 2);
		completion(side, 2, IBV_WC_SUCCESS, 0);
		expect(vrnicdv_disconnect(qp, false, VRNICDV_MAX_CLOSE_MS + 1), EINVAL, "too long a limit");
		expect(vrnicdv_disconnect(qp, false, 0), 0, "vrnicdv_disconnect");
		/* The answer to the FIN comes when the other side has received it. */
		completion(side, 1, IBV_WC_SUCCESS, 0);
	} else {
		completion(side, 1, IBV_WC_SUCCESS, 0);
		/* The FIN is told without a receive. */
		reach(qp, VRNICDV_CONNECTION_RTS, FIN);
		expect(vrnicdv_make_idle(qp, false), ENOTCONN, "making it idle in RTS");
		expect(vrnicdv_terminate_offload(qp), EINPROGRESS, "terminating the offload too early");
		receive(side, qp, 3);
		completion(side, 3, IBV_WC_SUCCESS, 0);
		expect(vrnicdv_disconnect(qp, false, 0), 0, "vrnicdv_disconnect");
	}
	reach(qp, VRNICDV_CONNECTION_IDLE, FIN | CLOSED);
	/* Only the side that has closed first waits for late segments. */
	int error = vrnicdv_terminate_offload(qp);

	need(error == 0 || error == EINPROGRESS, "vrnicdv_terminate_offload");
	reach(qp, VRNICDV_CONNECTION_IDLE, FIN | CLOSED | RELEASED);
	renew(qp);
}

/* One side resets the connection, with receives outstanding on both sides. */
static void abortive(struct side *side, int first)
{
	struct ibv_qp *qp = side->qp;

	receive(side, qp, 1);
	if (first) {
		expect(vrnicdv_disconnect(qp, true, 0), 0, "vrnicdv_disconnect");
		reach(qp, VRNICDV_CONNECTION_ERROR, 0);
	} else {
		reach(qp, VRNICDV_CONNECTION_ERROR, RESET);
	}
	completion(side, 1, IBV_WC_WR_FLUSH_ERR, 0);
	reach(qp, VRNICDV_CONNECTION_ERROR, RELEASED);
	expect(vrnicdv_disconnect(qp, false, 0), ENOTCONN, "closing a connection that has ended");
	renew(qp);
}

/* Closes the local direction. The connection must end after this time limit, and before another one. */
static void close_for(struct ibv_qp *qp, long limit_ms, long other_ms)
{
	struct timespec before, after;
	long ms;

	clock_gettime(CLOCK_MONOTONIC, &before);
	expect(vrnicdv_disconnect(qp, false, limit_ms), 0, "vrnicdv_disconnect");
	reach(qp, VRNICDV_CONNECTION_CLOSING, 0);
	reach(qp, VRNICDV_CONNECTION_ERROR, RELEASED);
	clock_gettime(CLOCK_MONOTONIC, &after);
	ms = (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000;
	errno = ETIMEDOUT;
	need(ms >= limit_ms - 1 && ms < other_ms, "ending after its time limit");
}

/* One side closes its direction, and the other one does not answer in time. */
static void hanging(struct side *side, int first)
{
	struct ibv_qp *qp = side->qp;

	if (first)
		close_for(qp, 700, 6000);
	else
		reach(qp, VRNICDV_CONNECTION_ERROR, FIN | RESET | RELEASED);
	renew(qp);
}

/* A queue pair is destroyed while it closes. */
static void destroyed(struct side *side, int first)
{
	if (first) {
		expect(vrnicdv_disconnect(side->qp, false, 0), 0, "vrnicdv_disconnect");
		reach(side->qp, VRNICDV_CONNECTION_CLOSING, 0);
		expect(vrnicdv_terminate_offload(side->qp), EINPROGRESS, "terminating the offload too early");
		expect(ibv_destroy_qp(side->qp), 0, "ibv_destroy_qp");
		side->qp = make_toe(side);
	} else {
		reach(side->qp, VRNICDV_CONNECTION_ERROR, FIN | RESET);
		renew(side->qp);
	}
}

static void depths(struct ibv_qp *qp, int mask, int reads, int expected, const char *what)
{
	struct ibv_qp_attr attr = { .max_rd_atomic = reads, .max_dest_rd_atomic = reads };

	expect(ibv_modify_qp(qp, &attr, mask), expected, what);
}

/* Lets the connection go on with messages, and returns their side. A receive is posted. */
static struct side switch_over(struct side *side, int first)
{
	struct vrnicdv_reservation wanted = {
		.stream = side->qp, .pd = side->pd, .cap = { 8, 8, 1, 1, 0 }, .ird = READS, .ord = READS,
	};
	struct vrnicdv_rdma_attr attr = { .flags = first ? 0 : VRNICDV_RDMA_PEER_FIRST, .ird = READS, .ord = READS };
	struct vrnicdv_connection found;
	struct side over = *side;

	expect(vrnicdv_reserve_rdma(&wanted), 0, "vrnicdv_reserve_rdma");
	over.cq = wanted.cq;
	over.qp = wanted.qp;
	expect(vrnicdv_query_connection(over.qp, &found), ENOTCONN, "asking before there is a connection");
	expect(vrnicdv_start_rdma(side->qp, over.qp, &attr), 0, "vrnicdv_start_rdma");
	receive(&over, over.qp, 1);
	reach(over.qp, VRNICDV_CONNECTION_RTS, 0);
	return over;
}

/* Destroys what has carried the messages of a connection that has ended, and makes a new queue pair for bytes. */
static void drop(struct side *side, struct side *over)
{
	renew(over->qp);
	expect(ibv_destroy_qp(over->qp), 0, "ibv_destroy_qp");
	expect(ibv_destroy_cq(over->cq), 0, "ibv_destroy_cq");
	expect(ibv_destroy_qp(side->qp), 0, "ibv_destroy_qp");
	side->qp = make_toe(side);
}

/* The connection goes on with messages, its numbers of READs change, and it ends. */
static void messages(struct side *side, int first)
{
	struct side over = switch_over(side, first);
	struct vrnicdv_connection found = query(over.qp);

	need(found.ird == READS && found.ord == READS, "comparing the numbers of READs");
	depths(over.qp, IBV_QP_MAX_QP_RD_ATOMIC, 1, 0, "a smaller ORD");
	depths(over.qp, IBV_QP_MAX_DEST_RD_ATOMIC, READS + 1, 0, "a larger IRD");
	depths(over.qp, IBV_QP_MAX_DEST_RD_ATOMIC, READS, EBUSY, "a smaller IRD");
	depths(over.qp, IBV_QP_MAX_QP_RD_ATOMIC, 250, EINVAL, "too large an ORD");
	found = query(over.qp);
	need(found.ird == READS + 1 && found.ord == 1, "comparing the numbers of READs that have changed");
	if (first) {
		send_bytes(&over, over.qp, 2);
		completed(&over, 1, 2);
		expect(vrnicdv_disconnect(over.qp, false, 0), 0, "vrnicdv_disconnect");
	} else {
		completion(&over, 1, IBV_WC_SUCCESS, 0);
		send_bytes(&over, over.qp, 2);
		completion(&over, 2, IBV_WC_SUCCESS, 0);
	}
	reach(over.qp, VRNICDV_CONNECTION_IDLE, FIN | CLOSED);
	int error = vrnicdv_terminate_offload(over.qp);

	need(error == 0 || error == EINPROGRESS, "vrnicdv_terminate_offload");
	reach(over.qp, VRNICDV_CONNECTION_IDLE, FIN | CLOSED | RELEASED);
	drop(side, &over);
}

/*
 * The connection goes on with messages, one side closes it, and the FIN of the other side is lost. The time limit is
 * shorter than that of the adapter, which is five seconds.
 */
static void unanswered(struct side *side, int first)
{
	VRNICFAULT_SCOPE struct vrnicfault fault = { 0 };
	const char *device = ibv_get_device_name(side->context->device);
	struct side over = switch_over(side, first);
	char why[VRNICFAULT_REASON];

	if (first) {
		send_bytes(&over, over.qp, 2);
		completed(&over, 1, 2);
		close_for(over.qp, 700, 4500);
	} else {
		completion(&over, 1, IBV_WC_SUCCESS, 0);
		expect(vrnicfault_arm(&fault, device, "drop opcode=tcp-empty", why), 0, why);
		send_bytes(&over, over.qp, 2);
		completion(&over, 2, IBV_WC_SUCCESS, 0);
		/* Both directions were closed before the reset. */
		reach(over.qp, VRNICDV_CONNECTION_IDLE, FIN | RESET | CLOSED | RELEASED);
	}
	drop(side, &over);
}

int main(int argc, char **argv)
{
	static void (*const cases[CASES])(struct side *, int) = {
		graceful, abortive, hanging, destroyed, messages, unanswered,
	};
	static const char *const names[CASES] = {
		"graceful", "abortive", "hanging", "destroyed", "messages", "unanswered",
	};
	struct side side = { .context = open_device() };
	struct vrnicdv_connection found;
	int yes = 1;

	need(argc == 2 || argc == 3, "reading the arguments");
	at.sin_family = AF_INET;
	at.sin_port = htons(atoi(argv[argc - 1]));
	side.pd = ibv_alloc_pd(side.context);
	side.cq = ibv_create_cq(side.context, ENTRIES, NULL, NULL, 0);
	side.mr = ibv_reg_mr(side.pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	need(side.pd && side.cq && side.mr, "creating objects");
	if (argc == 3) {
		need(inet_pton(AF_INET, argv[1], &at.sin_addr) == 1, "reading the address");
	} else {
		listener = socket(AF_INET, SOCK_STREAM, 0);
		setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
		need(bind(listener, (struct sockaddr *)&at, sizeof(at)) == 0 && listen(listener, 16) == 0, "listen");
	}
	side.qp = make_toe(&side);
	expect(vrnicdv_query_connection(side.qp, &found), ENOTCONN, "asking without a connection");
	expect(vrnicdv_watch_connection(side.qp, 0), EINVAL, "watching by another file");
	expect(vrnicdv_watch_connection(side.qp, 999), EBADF, "watching without a descriptor");
	expect(vrnicdv_watch_connection(side.qp, eventfd(0, 0)), ENOTCONN, "watching without a connection");
	expect(vrnicdv_disconnect(side.qp, true, 0), ENOTCONN, "closing without a connection");
	expect(vrnicdv_make_idle(side.qp, true), ENOTCONN, "making a new one idle");
	for (int nth = 0; nth < CASES; nth++) {
		now = names[nth];
		fprintf(stderr, "%s\n", now);
		meet(&side);
		cases[nth](&side, !listener);
	}
	expect(ibv_destroy_qp(side.qp), 0, "ibv_destroy_qp");
	printf("all ended\n");
	return 0;
}
