/* SPDX-License-Identifier: MIT OR Apache-2.0
 * A client of an echo server, by sockets of the kernel: sends bytes, and compares what comes back.
 *
 * usage: vrnic_tcp ADDRESS PORT BYTES [reset | last]
 *
 * The program closes its direction after the last byte, or with last when all bytes have come back. With reset, it
 * resets the connection when half of the bytes have come back.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include "side.h"

enum { PIECE = 30000, SECONDS = 100 };

static unsigned char byte_at(long at)
{
	return at * 31 ^ at >> 8 ^ at >> 16;
}

static int connected(const char *address, int port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
	int connection = -1;

	need(inet_pton(AF_INET, address, &to.sin_addr) == 1, "reading the address");
	/* The server may not listen yet. */
	for (int tries = 0; tries < 300; tries++) {
		connection = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(connection, (struct sockaddr *)&to, sizeof(to)) == 0)
			break;
		close(connection);
		connection = -1;
		usleep(100000);
	}
	need(connection >= 0, "connect");
	need(fcntl(connection, F_SETFL, O_NONBLOCK) == 0, "fcntl");
	return connection;
}

/* Sends some of the bytes from `from` on. Returns how many. */
static long send_some(int connection, long from, long bytes)
{
	unsigned char piece[PIECE];
	long length = bytes - from < PIECE ? bytes - from : PIECE;

	for (long at = 0; at < length; at++)
		piece[at] = byte_at(from + at);
	length = send(connection, piece, length, MSG_NOSIGNAL);
	need(length > 0 || errno == EAGAIN, "send");
	return length > 0 ? length : 0;
}

/* Reads and compares some of the bytes from `from` on. Returns how many, or -1 at the end. */
static long compare_some(int connection, long from)
{
	unsigned char piece[PIECE];
	long length = recv(connection, piece, sizeof(piece), 0);

	need(length >= 0 || errno == EAGAIN, "recv");
	for (long at = 0; at < length; at++)
		if (piece[at] != byte_at(from + at)) {
			fprintf(stderr, "byte %ld is wrong\n", from + at);
			exit(1);
		}
	return length == 0 ? -1 : length > 0 ? length : 0;
}

int main(int argc, char **argv)
{
	int reset = argc > 4 && strcmp(argv[4], "reset") == 0, last = argc > 4 && strcmp(argv[4], "last") == 0;
	int all_sent = 0, closed = 0;
	long bytes, sent = 0, compared = 0, got = 0;
	int connection;

	need(argc > 3, "reading the arguments");
	bytes = atol(argv[3]);
	connection = connected(argv[1], atoi(argv[2]));
	while (got >= 0) {
		struct pollfd waits = { connection, POLLIN | (all_sent ? 0 : POLLOUT), 0 };

		errno = ETIMEDOUT;
		need(poll(&waits, 1, SECONDS * 1000) == 1, "waiting for the server");
		if (waits.revents & POLLOUT) {
			if (sent < bytes)
				sent += send_some(connection, sent, bytes);
			all_sent = sent == bytes;
		}
		if (waits.revents & (POLLIN | POLLHUP | POLLERR)) {
			got = compare_some(connection, compared);
			compared += got > 0 ? got : 0;
		}
		if (all_sent && !closed && !reset && (!last || compared == bytes)) {
			need(shutdown(connection, SHUT_WR) == 0, "shutdown");
			closed = 1;
		}
		if (reset && compared >= bytes / 2) {
			struct linger now = { 1, 0 };

			setsockopt(connection, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
			close(connection);
			return 0;
		}
	}
	errno = EPIPE;
	need(sent == bytes && compared == bytes, "comparing all bytes");
	printf("compared %ld bytes\n", compared);
	return 0;
}
