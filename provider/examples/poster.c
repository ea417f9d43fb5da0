/* SPDX-License-Identifier: GPL-2.0 OR MIT
 * Work requests that are posted by a process without verbs.
 *
 * The client's first process makes a queue pair with rings in shared memory, and hands send queue and completion
 * queue over. Its second process calls no verbs: it gets two files by a UNIX socket, the shared memory and the
 * command file of the context, and maps the rings and the doorbell. For each message it writes an RDMA WRITE and a
 * SEND, rings the doorbell, and reads the completions. The server compares the data. Meanwhile the first process
 * may neither post nor poll.
 *
 * A device such as a GPU does the same as the second process.
 *
 * usage: vrnicdv_poster PORT [GID index]
 *        vrnicdv_poster ADDRESS PORT [GID index]
 */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "example.h"

enum { LENGTH = 64 << 10, MESSAGES = 100, RECEIVES = 8, ENTRIES = 4, TIMEOUT_S = 20,
       /* The shared memory: data, then rings. */
       SHARED = 1 << 20 };

/* The data that each end sends to the other when they connect. */
struct address {
	union ibv_gid gid;
	uint64_t at;
	uint32_t qpn, key;
};

/* The data of each SEND: the number of the message, whose data was written before. */
struct note {
	uint32_t number;
};

/* The data of a message. */
static uint8_t pattern(uint32_t number, uint32_t at)
{
	return (uint8_t)(at * 31 + number * 101 + at / 253);
}

static void check_time(time_t start, const char *of)
{
	errno = ETIMEDOUT;
	need(time(NULL) - start < TIMEOUT_S, of);
}

/* ---- The second process: no verbs. ---- */

/* The data that the second process gets, beside the two files. */
struct job {
	struct vrnicdv_qp_layout qp;
	struct vrnicdv_cq_layout cq;
	/* The shared memory as the first process has mapped it, and as its region names it. */
	void *shared;
	uint32_t lkey;
	/* The server's memory. */
	uint64_t remote;
	uint32_t rkey;
};

struct poster {
	const struct job *job;
	char *shared;
	char *page, *kick, *ring, *cq_page, *cq_ring;
	/* Posted, and completed, of the send queue. */
	uint32_t posted, freed;
	/* The next completion. */
	uint32_t next;
};

static int receive_files(int from, struct job *job, int files[2])
{
	union { struct cmsghdr header; char room[CMSG_SPACE(2 * sizeof(int))]; } control;
	struct iovec data = { .iov_base = job, .iov_len = sizeof(*job) };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1,
				  .msg_control = &control, .msg_controllen = sizeof(control) };

	if (recvmsg(from, &message, MSG_WAITALL) != (ssize_t)sizeof(*job))
		return 0;
	memcpy(files, CMSG_DATA(&control.header), 2 * sizeof(int));
	return 1;
}

/* Maps memory of the adapter. */
static char *map_area(int command_file, const struct vrnicdv_area *area)
{
	void *at = mmap(NULL, area->length, PROT_READ | PROT_WRITE, MAP_SHARED, command_file, (off_t)area->offset);

	need(at != MAP_FAILED, "mapping a part of the adapter");
	return at;
}

/* The place here of what the first process has in the shared memory. */
static char *here(const struct poster *poster, void *there)
{
	return poster->shared + ((char *)there - (char *)poster->job->shared);
}

static void open_queues(struct poster *poster, int shared_file, int command_file)
{
	const struct vrnicdv_qp_layout *qp = &poster->job->qp;
	const struct vrnicdv_cq_layout *cq = &poster->job->cq;

	poster->shared = mmap(NULL, SHARED, PROT_READ | PROT_WRITE, MAP_SHARED, shared_file, 0);
	need(poster->shared != MAP_FAILED, "mapping the shared memory");
	poster->page = map_area(command_file, &qp->doorbell.page);
	poster->kick = map_area(command_file, &qp->doorbell.kick);
	/* Queues of a context share doorbells, but may have several. */
	poster->cq_page = cq->doorbell.page.offset == qp->doorbell.page.offset
				  ? poster->page : map_area(command_file, &cq->doorbell.page);
	poster->ring = qp->send.place == VRNICDV_PLACE_ADAPTER ? map_area(command_file, &qp->send.memory)
							       : here(poster, qp->send.memory.address);
	poster->cq_ring = here(poster, cq->ring.memory.address);
	poster->posted = qp->send.next;
	poster->freed = qp->send.freed;
	poster->next = cq->ring.next;
}

/* Writes one work request with one segment. It is posted by publish(). */
static void write_request(struct poster *poster, struct vrnicdv_wqe wqe, struct vrnicdv_sge sge)
{
	const struct vrnicdv_ring *ring = &poster->job->qp.send;
	uint32_t index = poster->posted++;
	char *entry = poster->ring + (size_t)(index & (ring->entries - 1)) * ring->stride;

	wqe.count = 1;
	memcpy(entry + sizeof(wqe), &sge, sizeof(sge));
	memcpy(entry, &wqe, offsetof(struct vrnicdv_wqe, stamp));
	/* In memory of the adapter this posts the entry. */
	__atomic_store_n((uint32_t *)(entry + offsetof(struct vrnicdv_wqe, stamp)), index + 1, __ATOMIC_RELEASE);
}

/* Posts what was written. */
static void publish(struct poster *poster)
{
	const struct vrnicdv_qp_layout *qp = &poster->job->qp;

	if (qp->send.place == VRNICDV_PLACE_PROGRAM)
		__atomic_store_n((uint32_t *)(poster->page + qp->send.word), poster->posted, __ATOMIC_RELEASE);
	vrnicdv_ring_doorbell(poster->page, poster->kick, qp->doorbell.bit, qp->doorbell.number);
}

/* Waits for the next completion, and frees its entry. */
static struct vrnicdv_cqe next_completion(struct poster *poster)
{
	const struct vrnicdv_ring *ring = &poster->job->cq.ring;
	struct vrnicdv_cqe *cqe = (struct vrnicdv_cqe *)poster->cq_ring + (poster->next & (ring->entries - 1));
	struct vrnicdv_cqe found;
	time_t start = time(NULL);

	while (!vrnicdv_is_complete(cqe, poster->next))
		check_time(start, "waiting for a completion");
	found = *cqe;
	poster->next++;
	poster->freed = found.wqe_index + 1;
	__atomic_store_n((uint32_t *)(poster->cq_page + ring->word), poster->next, __ATOMIC_RELEASE);
	return found;
}

/* Writes the data of a message into the server's memory, and sends the message. */
static void send_message(struct poster *poster, uint32_t number)
{
	const struct job *job = poster->job;
	struct note *note = (struct note *)(poster->shared + LENGTH);
	struct vrnicdv_sge data = { .addr = (uintptr_t)job->shared, .length = LENGTH, .lkey = job->lkey };
	struct vrnicdv_sge text = { .addr = (uintptr_t)job->shared + LENGTH, .length = sizeof(*note),
				    .lkey = job->lkey };
	struct vrnicdv_wqe write = { .wr_id = number, .opcode = VRNICDV_OP_WRITE,
				     .remote_addr = job->remote, .rkey = job->rkey };
	struct vrnicdv_wqe send = { .wr_id = number, .opcode = VRNICDV_OP_SEND, .flags = VRNICDV_WQE_SIGNALED };
	struct vrnicdv_cqe cqe;

	for (uint32_t at = 0; at < LENGTH; at++)
		poster->shared[at] = (char)pattern(number, at);
	note->number = number;
	/* One completion for two entries of the queue. */
	need(poster->posted - poster->freed + 2 <= job->qp.send.entries, "room in the send queue");
	write_request(poster, write, data);
	write_request(poster, send, text);
	publish(poster);
	cqe = next_completion(poster);
	if (cqe.status || cqe.wr_id != number || cqe.qpn != job->qp.qpn || cqe.opcode != VRNICDV_OP_SEND) {
		fprintf(stderr, "message %u: status %u (%u)\n", number, cqe.status, cqe.vendor_err);
		exit(1);
	}
}

static int post_by_myself(int from)
{
	struct job job;
	struct poster poster = { .job = &job };
	int files[2];
	char word;

	need(receive_files(from, &job, files), "receiving the files");
	open_queues(&poster, files[0], files[1]);
	for (uint32_t number = 0; number < MESSAGES; number++) {
		send_message(&poster, number);
		/* The server has compared the data. */
		need(write(from, "", 1) == 1 && read(from, &word, 1) == 1, "waiting for the server");
	}
	printf("%u messages posted without verbs, send queue in memory of the %s\n", MESSAGES,
	       job.qp.send.place == VRNICDV_PLACE_ADAPTER ? "adapter" : "program");
	return 0;
}

/* ---- The first process, and the server: verbs. ---- */

struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *memory;
	/* The shared memory that rings may take, and how much of it they have. */
	int file;
	size_t used;
	uint8_t gid_index;
	int socket;
};

/* Takes memory for a ring from the shared memory. */
static void *take(struct ibv_pd *pd, void *context, size_t size, size_t alignment, uint64_t type)
{
	struct side *side = context;
	size_t at = (side->used + alignment - 1) & ~(alignment - 1);

	(void)pd, (void)type;
	if (at + size > SHARED)
		return NULL;
	side->used = at + size;
	return side->memory + at;
}

static void give_back(struct ibv_pd *pd, void *context, void *memory, uint64_t type)
{
	(void)pd, (void)context, (void)memory, (void)type;
}

static void create(struct side *side)
{
	enum { RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE };
	struct ibv_parent_domain_init_attr parent = {
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
		.alloc = take, .free = give_back, .pd_context = side,
	};
	struct ibv_cq_init_attr_ex cq = { .cqe = 2 * RECEIVES, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD };
	struct ibv_qp_init_attr qp = {
		.qp_type = IBV_QPT_RC, .cap = { .max_send_wr = ENTRIES, .max_recv_wr = RECEIVES,
						.max_send_sge = 1, .max_recv_sge = 1 },
	};

	side->file = memfd_create("queues", MFD_CLOEXEC);
	need(side->file >= 0 && ftruncate(side->file, SHARED) == 0, "memfd_create");
	side->memory = mmap(NULL, SHARED, PROT_READ | PROT_WRITE, MAP_SHARED, side->file, 0);
	need(side->memory != MAP_FAILED, "mmap");
	/* Data and note come first. */
	side->used = LENGTH + 4096;
	side->context = open_device();
	parent.pd = ibv_alloc_pd(side->context);
	need(parent.pd != NULL, "ibv_alloc_pd");
	side->pd = cq.parent_domain = ibv_alloc_parent_domain(side->context, &parent);
	need(side->pd != NULL, "ibv_alloc_parent_domain");
	side->cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(side->context, &cq));
	need(side->cq != NULL, "ibv_create_cq_ex");
	qp.send_cq = qp.recv_cq = side->cq;
	side->qp = ibv_create_qp(side->pd, &qp);
	need(side->qp != NULL, "ibv_create_qp");
	side->mr = ibv_reg_mr(side->pd, side->memory, LENGTH + 4096, RIGHTS);
	need(side->mr != NULL, "ibv_reg_mr");
}

static void connect_to(struct side *side, const struct address *peer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1,
				    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };

	done(ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			   IBV_QP_ACCESS_FLAGS), "INIT");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qpn, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = peer->gid, .sgid_index = side->gid_index, .hop_limit = 64 } },
	};
	done(ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7 };
	done(ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			   IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

/* Sends the address of this end to the other one, and connects. Returns the other end's address. */
static struct address meet(struct side *side)
{
	struct address own = { .at = (uintptr_t)side->memory, .qpn = side->qp->qp_num, .key = side->mr->rkey };
	struct address peer;

	need(ibv_query_gid(side->context, 1, side->gid_index, &own.gid) == 0, "ibv_query_gid");
	need(write(side->socket, &own, sizeof(own)) == sizeof(own), "write");
	need(recv(side->socket, &peer, sizeof(peer), MSG_WAITALL) == sizeof(peer), "read");
	connect_to(side, &peer);
	return peer;
}

/* Every call to post or to poll is refused. */
static void posts_nothing(struct side *side)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad;
	struct ibv_wc wc;

	need(ibv_post_send(side->qp, &wr, &bad) == EPERM && bad == &wr, "refusing to post");
	need(ibv_poll_cq(side->cq, 1, &wc) == -EPERM, "refusing to poll");
	need(ibv_req_notify_cq(side->cq, 0) == EPERM, "refusing to arm");
	need(ibv_resize_cq(side->cq, 64) != 0, "refusing to resize");
}

static void send_files(int to, const struct job *job, int shared_file, int command_file)
{
	union { struct cmsghdr header; char room[CMSG_SPACE(2 * sizeof(int))]; } control = { 0 };
	struct iovec data = { .iov_base = (void *)job, .iov_len = sizeof(*job) };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1,
				  .msg_control = &control, .msg_controllen = sizeof(control) };
	int files[2] = { shared_file, command_file };

	control.header = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
					   .cmsg_len = CMSG_LEN(sizeof(files)) };
	memcpy(CMSG_DATA(&control.header), files, sizeof(files));
	need(sendmsg(to, &message, 0) == (ssize_t)sizeof(*job), "sendmsg");
}

/* Starts this program again, as a process that has inherited nothing but one end of a socket. */
static pid_t start_poster(int sockets[2])
{
	char number[16];
	pid_t child;

	need(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0, "socketpair");
	child = fork();
	need(child >= 0, "fork");
	if (child == 0) {
		close(sockets[0]);
		snprintf(number, sizeof(number), "%d", sockets[1]);
		execl("/proc/self/exe", "vrnicdv_poster", "--poster", number, NULL);
		_exit(1);
	}
	close(sockets[1]);
	return child;
}

static void client(struct side *side)
{
	struct address peer = meet(side);
	struct job job = { .shared = side->memory, .lkey = side->mr->lkey, .remote = peer.at, .rkey = peer.key };
	int sockets[2], status;
	pid_t child = start_poster(sockets);
	char word;

	done(vrnicdv_hand_over_qp(side->qp, VRNICDV_SEND_QUEUE, &job.qp), "vrnicdv_hand_over_qp");
	done(vrnicdv_hand_over_cq(side->cq, &job.cq), "vrnicdv_hand_over_cq");
	send_files(sockets[0], &job, side->file, side->context->cmd_fd);
	for (uint32_t number = 0; number < MESSAGES; number++) {
		need(read(sockets[0], &word, 1) == 1, "the second process");
		posts_nothing(side);
		need(recv(side->socket, &word, 1, MSG_WAITALL) == 1, "the server");
		need(write(sockets[0], &word, 1) == 1, "the second process");
	}
	need(waitpid(child, &status, 0) == child && status == 0, "the second process");
	done(ibv_destroy_qp(side->qp), "ibv_destroy_qp");
	done(ibv_destroy_cq(side->cq), "ibv_destroy_cq");
}

static void receive(struct side *side)
{
	struct ibv_sge sge = { .addr = (uintptr_t)side->memory + LENGTH, .length = sizeof(struct note),
			       .lkey = side->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	done(ibv_post_recv(side->qp, &wr, &bad), "ibv_post_recv");
}

/* Compares the data of each message. */
static void server(struct side *side)
{
	struct note *note = (struct note *)(side->memory + LENGTH);
	struct ibv_wc wc;

	meet(side);
	for (uint32_t number = 0; number < MESSAGES; number++) {
		time_t start = time(NULL);

		receive(side);
		while (ibv_poll_cq(side->cq, 1, &wc) == 0)
			check_time(start, "waiting for a message");
		need(wc.status == IBV_WC_SUCCESS && note->number == number, "receiving a message");
		for (uint32_t at = 0; at < LENGTH; at++)
			need((uint8_t)side->memory[at] == pattern(number, at), "comparing the data");
		need(write(side->socket, "", 1) == 1, "write");
	}
	printf("%u messages of %u bytes are right\n", MESSAGES, LENGTH);
}

static int connect_socket(const char *address, int port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };
	int listener, connected;

	if (!address) {
		listener = listen_at(port);
		connected = accept(listener, NULL, NULL);
		need(connected >= 0, "accept");
		close(listener);
		return connected;
	}
	connected = socket(AF_INET, SOCK_STREAM, 0);
	need(inet_pton(AF_INET, address, &at.sin_addr) == 1, "parsing the address");
	need(connect(connected, (struct sockaddr *)&at, sizeof(at)) == 0, "connect");
	return connected;
}

int main(int argc, char **argv)
{
	struct side side = { .gid_index = 1 };
	const char *address = NULL;
	int next = 1;

	if (argc == 3 && strcmp(argv[1], "--poster") == 0)
		return post_by_myself(atoi(argv[2]));
	if (argc > 2 && strchr(argv[1], '.'))
		address = argv[next++];
	if (argc <= next) {
		fprintf(stderr, "usage: %s [ADDRESS] PORT [GID index]\n", argv[0]);
		return 2;
	}
	if (argc > next + 1)
		side.gid_index = (uint8_t)atoi(argv[next + 1]);
	create(&side);
	side.socket = connect_socket(address, atoi(argv[next]));
	if (address)
		client(&side);
	else
		server(&side);
	return 0;
}
