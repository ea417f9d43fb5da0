/* SPDX-License-Identifier: MIT OR Apache-2.0
 * What vrnicdv_attach_socket() refuses. A refused socket keeps its connection.
 *
 * usage: vrnic_attach ADDRESS PORT
 *
 * At that address, an echo server answers.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include "side.h"
#include "vrnicdv.h"

static struct ibv_qp *toe(struct side *side, enum ibv_qp_type type, uint32_t flags)
{
	struct ibv_qp_init_attr init = {
		.send_cq = side->cq, .recv_cq = side->cq, .qp_type = type,
		.cap = { .max_send_wr = 8, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct vrnicdv_qp_attr attr = { .flags = flags };

	return vrnicdv_create_qp(side->pd, &init, &attr);
}

static void refuses(struct ibv_qp *qp, int socket, int error, const char *what)
{
	expect(vrnicdv_attach_socket(qp, socket), error, what);
	close(socket);
}

int main(int argc, char **argv)
{
	struct side side = { .context = open_device() };
	struct sockaddr_in to = { .sin_family = AF_INET }, own = { .sin_family = AF_INET };
	struct ibv_qp *qp, *other;
	char answer[8];
	int connection, listener, loop;
	socklen_t length = sizeof(own);

	need(argc == 3, "reading the arguments");
	need(inet_pton(AF_INET, argv[1], &to.sin_addr) == 1, "reading the address");
	to.sin_port = htons(atoi(argv[2]));
	side.pd = ibv_alloc_pd(side.context);
	side.cq = ibv_create_cq(side.context, 64, NULL, NULL, 0);
	need(side.pd && side.cq, "a protection domain and a completion queue");
	need(!toe(&side, IBV_QPT_RC, VRNICDV_QP_TOE) && errno == EINVAL, "refusing another type");
	need(!toe(&side, IBV_QPT_DRIVER, 0) && errno == EINVAL, "refusing a type without its flag");
	need(!toe(&side, IBV_QPT_RC, VRNICDV_QP_PUSH) && errno == EINVAL, "refusing push without a stream");
	qp = toe(&side, IBV_QPT_DRIVER, VRNICDV_QP_TOE);
	other = toe(&side, IBV_QPT_DRIVER, VRNICDV_QP_TOE);
	need(qp && other, "vrnicdv_create_qp");

	expect(vrnicdv_attach_socket(qp, 999), EBADF, "no descriptor");
	refuses(qp, open("/dev/null", O_RDONLY), ENOTSOCK, "no socket");
	refuses(qp, socket(AF_INET, SOCK_DGRAM, 0), EOPNOTSUPP, "UDP");
	refuses(qp, socket(AF_INET, SOCK_STREAM, 0), ECONNRESET, "a socket without a connection");
	listener = socket(AF_INET, SOCK_STREAM, 0);
	own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	need(bind(listener, (struct sockaddr *)&own, sizeof(own)) == 0 && listen(listener, 1) == 0, "listen");
	expect(vrnicdv_attach_socket(qp, listener), ECONNRESET, "a listener");
	/* A connection that the adapter's network card does not carry. */
	need(getsockname(listener, (struct sockaddr *)&own, &length) == 0, "getsockname");
	loop = socket(AF_INET, SOCK_STREAM, 0);
	need(connect(loop, (struct sockaddr *)&own, sizeof(own)) == 0, "connect to this machine");
	need(vrnicdv_attach_socket(qp, loop) != 0, "refusing a connection of this machine");
	need(shutdown(loop, SHUT_WR) == 0, "shutdown");
	expect(vrnicdv_attach_socket(qp, loop), ECONNRESET, "a socket whose own direction is closed");
	close(loop);

	expect(vrnicdv_accept_stream(make_qp(&side), listener), EINVAL, "accepting for another type");
	expect(vrnicdv_accept_stream(qp, 999), EBADF, "accepting without a descriptor");
	expect(vrnicdv_accept_stream(qp, socket(AF_INET, SOCK_STREAM, 0)), EINVAL, "accepting without a listener");
	own.sin_port = htons(1);
	expect(vrnicdv_connect_stream(qp, (struct sockaddr *)&own, sizeof(own)), ECONNREFUSED, "no server");
	expect(vrnicdv_connect_stream(qp, (struct sockaddr *)&own, 1), EINVAL, "no address");
	expect(vrnicdv_release_receives(qp), ENOTCONN, "a release without a connection");
	expect(vrnicdv_release_receives(make_qp(&side)), EINVAL, "a release of another type");
	connection = socket(AF_INET, SOCK_STREAM, 0);
	for (int tries = 0; tries < 300 && connect(connection, (struct sockaddr *)&to, sizeof(to)); tries++)
		usleep(100000);
	/* A queue pair with messages, and one that has a connection. */
	expect(vrnicdv_attach_socket(make_qp(&side), connection), EINVAL, "a queue pair of another type");
	need(write(connection, "still", 5) == 5 && recv(connection, answer, 5, MSG_WAITALL) == 5, "echo");
	need(memcmp(answer, "still", 5) == 0, "the answer");
	for (int error = EAGAIN, tries = 0; error && tries < 5000; tries++) {
		error = vrnicdv_attach_socket(qp, connection);
		need(error == 0 || error == EAGAIN, "vrnicdv_attach_socket");
		usleep(error ? 1000 : 0);
	}
	/* The socket has no connection any more, and neither sends nor receives. */
	need(recv(connection, answer, 1, 0) == -1 && errno == ENOTCONN, "refusing to receive");
	need(send(connection, answer, 1, MSG_NOSIGNAL) == -1, "refusing to send");
	expect(vrnicdv_attach_socket(other, connection), ECONNRESET, "a socket whose connection was taken");
	connection = socket(AF_INET, SOCK_STREAM, 0);
	expect(vrnicdv_attach_socket(qp, connection), EISCONN, "a queue pair with a connection");
	printf("all were refused\n");
	return 0;
}
