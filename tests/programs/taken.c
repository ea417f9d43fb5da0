/* SPDX-License-Identifier: MIT OR Apache-2.0
 * The socket of a program whose connection the adapter has taken over: it is closed, gives no rights, and the
 * port stays with the connection.
 *
 * usage: vrnic_taken PORT
 *        vrnic_taken ADDRESS PORT
 *        vrnic_taken ADDRESS PORT FILE
 *
 * The first form answers clients with their bytes. The second one is their client, without privileges. The
 * third one begins the takeover when the file exists, and looks at the socket meanwhile.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include "side.h"
#include "vrnicdv.h"

enum { BYTES = 5, RACES = 20, TRIES = 300, CLOSED = 7 };

static struct sockaddr_storage peer;
static unsigned char memory[2][BYTES] = { "hello" };

/* Answers clients with their bytes, each in a process of its own. */
static void answer_clients(int port)
{
	struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	int listener = socket(AF_INET6, SOCK_STREAM, 0), yes = 1;
	char bytes[256];
	ssize_t count;

	signal(SIGCHLD, SIG_IGN);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	need(bind(listener, (struct sockaddr *)&any, sizeof(any)) == 0 && listen(listener, 64) == 0, "listen");
	for (;;) {
		int client = accept(listener, NULL, NULL);

		need(client >= 0, "accept");
		if (fork() == 0) {
			while ((count = read(client, bytes, sizeof(bytes))) > 0)
				need(write(client, bytes, count) == count, "write");
			exit(0);
		}
		close(client);
	}
}

static struct ibv_qp *toe(struct side *side)
{
	struct ibv_qp_init_attr init = {
		.send_cq = side->cq, .recv_cq = side->cq, .qp_type = IBV_QPT_DRIVER,
		.cap = { .max_send_wr = 8, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct vrnicdv_qp_attr attr = { .flags = VRNICDV_QP_TOE };
	struct ibv_qp *qp = vrnicdv_create_qp(side->pd, &init, &attr);

	need(qp != NULL, "vrnicdv_create_qp");
	return qp;
}

static int join(int s)
{
	return connect(s, (struct sockaddr *)&peer, sizeof(peer));
}

static int reach_peer(void)
{
	int s = socket(peer.ss_family, SOCK_STREAM, 0);

	for (int tries = 0; join(s) != 0; tries++) {
		need(tries < TRIES, "connecting");
		usleep(100000);
	}
	return s;
}

static int disconnect(int s)
{
	struct sockaddr none = { .sa_family = AF_UNSPEC };

	return connect(s, &none, sizeof(none));
}

static int attach(struct ibv_qp *qp, int s)
{
	int error = EAGAIN;

	for (int tries = 0; tries < TRIES && error == EAGAIN; tries++) {
		error = vrnicdv_attach_socket(qp, s);
		usleep(error ? 1000 : 0);
	}
	return error;
}

/* Returns the error of a bind to this address. */
static int bind_error(const struct sockaddr_storage *own)
{
	int s = socket(own->ss_family, SOCK_STREAM, 0);
	int error = bind(s, (struct sockaddr *)own, sizeof(*own)) == 0 ? 0 : errno;

	close(s);
	return error;
}

/* A program without CAP_NET_ADMIN can only do with it what it can do with any closed socket. */
static void is_plain(int s)
{
	static const int options[] = {
		TCP_REPAIR, TCP_REPAIR_QUEUE, TCP_QUEUE_SEQ, TCP_REPAIR_OPTIONS, TCP_REPAIR_WINDOW,
	};
	int one[8] = { 1 }, repairs = -1, error;
	struct tcp_info info = { 0 };
	socklen_t length = sizeof(repairs);
	char byte = 0;

	for (int turn = 0; turn < 2; turn++) {
		need(getsockopt(s, IPPROTO_TCP, TCP_REPAIR, &repairs, &length) == 0, "TCP_REPAIR");
		errno = EPERM;
		need(repairs == 0, "a socket that is not in repair mode");
		length = sizeof(info);
		need(getsockopt(s, IPPROTO_TCP, TCP_INFO, &info, &length) == 0, "TCP_INFO");
		need(info.tcpi_state == CLOSED, "a closed socket");
		for (unsigned i = 0; i < sizeof(options) / sizeof(*options); i++)
			for (length = 4; length <= 20; length += 4)
				need(setsockopt(s, IPPROTO_TCP, options[i], one, length) != 0, "refusing repairs");
		/* A thread may have disconnected it before the takeover. */
		length = sizeof(error);
		need(getsockopt(s, SOL_SOCKET, SO_ERROR, &error, &length) == 0, "SO_ERROR");
		need(send(s, &byte, 1, MSG_NOSIGNAL) == -1 && errno == EPIPE, "refusing to send");
		need(recv(s, &byte, 1, 0) == -1 && errno == ENOTCONN, "refusing to receive");
		need(shutdown(s, SHUT_RDWR) == -1 && errno == ENOTCONN, "refusing to shut down");
		disconnect(s);
		length = sizeof(repairs);
	}
}

/* The connection goes on. */
static void exchange(struct side *side, struct ibv_qp *qp)
{
	struct ibv_sge from = { (uintptr_t)memory[0], BYTES, side->mr->lkey };
	struct ibv_sge to = { (uintptr_t)memory[1], BYTES, side->mr->lkey };
	struct ibv_recv_wr receive = { .wr_id = 1, .sg_list = &to, .num_sge = 1 }, *bad_receive;
	struct ibv_send_wr send = { .wr_id = 2, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND,
				    .send_flags = IBV_SEND_SIGNALED }, *bad;
	unsigned ids = 0;

	memset(memory[1], 0, BYTES);
	expect(ibv_post_recv(qp, &receive, &bad_receive), 0, "ibv_post_recv");
	expect(ibv_post_send(qp, &send, &bad), 0, "ibv_post_send");
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc = next(side);

		need(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
		ids += wc.wr_id;
	}
	need(ids == 3 && memcmp(memory[0], memory[1], BYTES) == 0, "the answer");
}

/* A process that has the socket, too. */
static pid_t share(int s, int *taken)
{
	int ends[2];
	pid_t child;
	char byte;

	need(pipe(ends) == 0, "pipe");
	child = fork();
	if (child == 0) {
		close(ends[1]);
		need(read(ends[0], &byte, 1) == 0, "waiting");
		is_plain(s);
		_exit(0);
	}
	close(ends[0]);
	fcntl(ends[1], F_SETFD, FD_CLOEXEC);
	*taken = ends[1];
	return child;
}

/* The program's socket, its copies and other sockets, while the adapter has the connection and after it. */
static void take(struct side *side)
{
	struct sockaddr_storage own = { 0 };
	int s = reach_peer(), other = dup(s), one = 1, taken, status;
	socklen_t length = sizeof(own);
	pid_t child = share(s, &taken);
	struct ibv_qp *qp = toe(side);

	need(setsockopt(s, IPPROTO_TCP, TCP_REPAIR, &one, sizeof(one)) == -1 && errno == EPERM, "no privileges");
	need(getsockname(s, (struct sockaddr *)&own, &length) == 0, "getsockname");
	expect(attach(qp, s), 0, "vrnicdv_attach_socket");
	close(taken);
	need(waitpid(child, &status, 0) == child && status == 0, "the other process");
	is_plain(s);
	is_plain(other);
	expect(bind_error(&own), EADDRINUSE, "a port that is taken");
	need(bind(s, (struct sockaddr *)&own, sizeof(own)) == -1 && errno == EADDRINUSE, "a bind of the socket");
	exchange(side, qp);
	/* The socket can have another connection, and that another queue pair. */
	need(join(s) == 0 && write(s, memory, BYTES) == BYTES, "another connection");
	need(recv(s, memory[1], BYTES, MSG_WAITALL) == BYTES, "another answer");
	exchange(side, qp);
	close(s);
	close(other);
	expect(bind_error(&own), EADDRINUSE, "a port that is taken, without the socket");
	exchange(side, qp);
	expect(ibv_destroy_qp(qp), 0, "ibv_destroy_qp");
	for (int tries = 0; bind_error(&own) != 0; tries++) {
		need(tries < TRIES, "a port that is free");
		usleep(10000);
	}
}

static void *disconnect_meanwhile(void *s)
{
	disconnect(*(int *)s);
	return NULL;
}

/* A thread disconnects the socket during the takeover. Returns whether the connection was taken. */
static int race(struct side *side, int pause)
{
	struct sockaddr_storage own = { 0 };
	socklen_t length = sizeof(own);
	struct ibv_qp *qp = toe(side);
	int s = reach_peer(), error;
	pthread_t thread;

	need(getsockname(s, (struct sockaddr *)&own, &length) == 0, "getsockname");
	need(pthread_create(&thread, NULL, disconnect_meanwhile, &s) == 0, "pthread_create");
	usleep(pause);
	error = attach(qp, s);
	need(pthread_join(thread, NULL) == 0, "pthread_join");
	is_plain(s);
	if (error) {
		expect(error, ECONNRESET, "a socket that was disconnected");
	} else {
		expect(bind_error(&own), EADDRINUSE, "a port that is taken, after a race");
		exchange(side, qp);
	}
	close(s);
	expect(ibv_destroy_qp(qp), 0, "ibv_destroy_qp");
	return !error;
}

struct takeover {
	struct ibv_qp *qp;
	int socket;
};

static void *attach_meanwhile(void *takeover)
{
	struct takeover *it = takeover;

	return (void *)(long)attach(it->qp, it->socket);
}

/* While the adapter does not run, nobody waits for the socket. */
static void look(struct side *side, const char *file)
{
	struct takeover it = { toe(side), reach_peer() };
	struct tcp_info info;
	socklen_t length = sizeof(info);
	pthread_t thread;
	void *error;

	printf("connected\n");
	fflush(stdout);
	while (access(file, F_OK) != 0)
		usleep(10000);
	need(pthread_create(&thread, NULL, attach_meanwhile, &it) == 0, "pthread_create");
	usleep(300000);
	need(getsockopt(it.socket, IPPROTO_TCP, TCP_INFO, &info, &length) == 0, "TCP_INFO");
	printf("looked\n");
	fflush(stdout);
	need(pthread_join(thread, &error) == 0, "pthread_join");
	expect((long)error, 0, "vrnicdv_attach_socket");
	exchange(side, it.qp);
	expect(ibv_destroy_qp(it.qp), 0, "ibv_destroy_qp");
}

int main(int argc, char **argv)
{
	struct side side = { 0 };
	struct sockaddr_in *to = (struct sockaddr_in *)&peer;
	struct sockaddr_in6 *to6 = (struct sockaddr_in6 *)&peer;
	int won = 0;

	need(argc >= 2 && argc <= 4, "reading the arguments");
	if (argc == 2)
		answer_clients(atoi(argv[1]));
	peer.ss_family = strchr(argv[1], ':') ? AF_INET6 : AF_INET;
	need(inet_pton(peer.ss_family, argv[1], peer.ss_family == AF_INET6 ? (void *)&to6->sin6_addr :
			(void *)&to->sin_addr) == 1, "reading the address");
	to->sin_port = htons(atoi(argv[2]));
	side.context = open_device();
	side.pd = ibv_alloc_pd(side.context);
	side.cq = ibv_create_cq(side.context, 64, NULL, NULL, 0);
	need(side.pd && side.cq, "a protection domain and a completion queue");
	side.mr = ibv_reg_mr(side.pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	need(side.mr != NULL, "ibv_reg_mr");
	if (argc == 4) {
		look(&side, argv[3]);
		return 0;
	}
	take(&side);
	for (int i = 0; i < RACES; i++)
		won += race(&side, i % 4 * 50);
	fprintf(stderr, "%d of %d connections were taken\n", won, RACES);
	printf("sockets are closed and ports are taken\n");
	return 0;
}
