/* SPDX-License-Identifier: GPL-2.0 OR MIT
 * A server of files by HTTP/1.0. A file is sent from where it is mapped: neither the program nor TCP copies it,
 * and the server keeps its buffers until the client has acknowledged them. Any client will do, such as curl.
 *
 * usage: vrnicdv_files PORT FOLDER [CLIENTS]
 *
 * Serves the given number of clients, or without end, one after the other.
 */
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "example.h"

enum { REQUEST = 4096, HEAD = 256, PART = 1 << 20, SENDS = 8, IDLE_POLLS = 100 };

/* What all connections use. */
struct server {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	int folder;
	char request[REQUEST + 1];
	char head[HEAD];
};

/* A connection, and what is sent. */
struct client {
	struct server *server;
	struct ibv_qp *qp;
	int sending;
	/* True if the client has closed its direction, or the connection has ended. */
	int ended, broken;
};

static void receive(struct client *client, char *to, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)to, length, client->server->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	done(ibv_post_recv(client->qp, &wr, &bad), "ibv_post_recv");
}

/* Waits for a completion. Returns the length if it is one of a receive, otherwise -1. */
static long wait_for(struct client *client)
{
	struct ibv_wc wc;
	int count = 0;

	for (long polls = 1; count == 0 && !client->broken; polls++) {
		count = ibv_poll_cq(client->server->cq, 1, &wc);
		/* A request is shorter than the buffer. */
		if (count == 0 && polls % IDLE_POLLS == 0)
			done(vrnicdv_release_receives(client->qp), "vrnicdv_release_receives");
		if (count == 0)
			sched_yield();
	}
	if (count == 0)
		return -1;
	need(count == 1, "ibv_poll_cq");
	if (wc.status != IBV_WC_SUCCESS)
		client->broken = 1;
	else if (wc.opcode == IBV_WC_SEND)
		client->sending--;
	else if (wc.byte_len == 0)
		client->ended = 1;
	else
		return wc.byte_len;
	return -1;
}

/* Sends bytes. They must not change until wait_all(). */
static void send_bytes(struct client *client, const char *from, size_t length, uint32_t key)
{
	while (length > 0 && !client->broken) {
		uint32_t part = length < PART ? length : PART;
		struct ibv_sge sge = { (uintptr_t)from, part, key };
		struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
					  .send_flags = IBV_SEND_SIGNALED }, *bad;

		if (client->sending == SENDS) {
			wait_for(client);
			continue;
		}
		done(ibv_post_send(client->qp, &wr, &bad), "ibv_post_send");
		client->sending++;
		from += part;
		length -= part;
	}
}

/* Waits until the client has acknowledged all that was sent. */
static void wait_all(struct client *client)
{
	while (client->sending > 0 && !client->broken)
		wait_for(client);
}

/* Reads a request. Returns the path, without the first slash, or NULL. */
static char *read_request(struct client *client)
{
	char *text = client->server->request, *path, *end;
	long length = 0, got;

	while (length < REQUEST && !client->ended && !client->broken) {
		text[length] = 0;
		if (strstr(text, "\r\n\r\n"))
			break;
		receive(client, text + length, REQUEST - length);
		do {
			got = wait_for(client);
		} while (got < 0 && !client->ended && !client->broken);
		length += got > 0 ? got : 0;
	}
	text[length] = 0;
	if (strncmp(text, "GET /", 5) != 0)
		return NULL;
	path = text + 5;
	end = strpbrk(path, " ?\r\n");
	if (!end)
		return NULL;
	*end = 0;
	return strstr(path, "..") ? NULL : path;
}

static void answer_head(struct client *client, const char *status, long length)
{
	struct server *server = client->server;
	int count = snprintf(server->head, HEAD, "HTTP/1.0 %s\r\nContent-Length: %ld\r\n\r\n", status, length);

	send_bytes(client, server->head, count, server->mr->lkey);
}

/* Sends a file from where it is mapped. */
static void answer_file(struct client *client, int file, long length)
{
	char *bytes = mmap(NULL, length, PROT_READ, MAP_PRIVATE, file, 0);
	struct ibv_mr *mr;

	need(bytes != MAP_FAILED, "mmap");
	mr = ibv_reg_mr(client->server->pd, bytes, length, 0);
	need(mr != NULL, "ibv_reg_mr");
	answer_head(client, "200 OK", length);
	send_bytes(client, bytes, length, mr->lkey);
	wait_all(client);
	done(ibv_dereg_mr(mr), "ibv_dereg_mr");
	munmap(bytes, length);
}

static void answer(struct client *client)
{
	const char *path = read_request(client);
	int file = path && *path ? openat(client->server->folder, path, O_RDONLY) : -1;
	struct stat facts;

	if (file < 0 || fstat(file, &facts) != 0 || !S_ISREG(facts.st_mode))
		answer_head(client, path ? "404 Not Found" : "400 Bad Request", 0);
	else if (facts.st_size == 0)
		answer_head(client, "200 OK", 0);
	else
		answer_file(client, file, facts.st_size);
	wait_all(client);
	if (file >= 0)
		close(file);
}

/* Serves the next client. */
static void serve(struct server *server, int listener)
{
	struct client client = { .server = server };
	struct vrnicdv_qp_attr attr = { .flags = VRNICDV_QP_TOE };
	struct ibv_qp_init_attr init = {
		.send_cq = server->cq, .recv_cq = server->cq, .qp_type = IBV_QPT_DRIVER,
		.cap = { .max_send_wr = SENDS, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_attr last = { .qp_state = IBV_QPS_SQD };
	int error;

	client.qp = vrnicdv_create_qp(server->pd, &init, &attr);
	need(client.qp != NULL, "vrnicdv_create_qp");
	error = vrnicdv_accept_stream(client.qp, listener);
	if (error == 0) {
		answer(&client);
		/* The end follows the answer. The client closes its own direction then. */
		if (!client.broken)
			done(ibv_modify_qp(client.qp, &last, IBV_QP_STATE), "ibv_modify_qp");
		if (!client.broken && !client.ended)
			receive(&client, server->request, REQUEST);
		while (!client.broken && !client.ended)
			if (wait_for(&client) > 0)
				receive(&client, server->request, REQUEST);
		/* What is left is flushed at the end. The destruction would reset a connection before it. */
		receive(&client, server->request, REQUEST);
		while (!client.broken)
			wait_for(&client);
	} else {
		fprintf(stderr, "a client is lost: %s\n", strerror(error));
	}
	done(ibv_destroy_qp(client.qp), "ibv_destroy_qp");
}

int main(int argc, char **argv)
{
	static struct server server;
	long clients;
	int listener;

	need(argc > 2, "reading the port and the folder");
	listener = listen_at(atoi(argv[1]));
	server.folder = open(argv[2], O_RDONLY | O_DIRECTORY);
	need(server.folder >= 0, "opening the folder");
	clients = argc > 3 ? atol(argv[3]) : -1;
	server.context = open_device();
	server.pd = ibv_alloc_pd(server.context);
	server.cq = ibv_create_cq(server.context, 2 * SENDS, NULL, NULL, 0);
	need(server.pd && server.cq, "a protection domain and a completion queue");
	server.mr = ibv_reg_mr(server.pd, &server, sizeof(server), IBV_ACCESS_LOCAL_WRITE);
	need(server.mr != NULL, "ibv_reg_mr");
	for (; clients != 0; clients -= clients > 0)
		serve(&server, listener);
	done(ibv_dereg_mr(server.mr), "ibv_dereg_mr");
	done(ibv_destroy_cq(server.cq), "ibv_destroy_cq");
	done(ibv_dealloc_pd(server.pd), "ibv_dealloc_pd");
	done(ibv_close_device(server.context), "ibv_close_device");
	return 0;
}
