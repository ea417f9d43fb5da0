/* Remote memory by librpma: a client writes, flushes and reads ordinary memory of a server, which checks it.
 * Usage: rpma server ADDRESS | rpma client ADDRESS, with the address of the server. */
#include <librpma.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT "7204"
/* What the client writes: so many blocks, and after them a word by an atomic write. */
enum { BLOCK = 64 << 10, BLOCKS = 16, LENGTH = BLOCK * BLOCKS, WORD = LENGTH, MEMORY = LENGTH + 4096 };
/* A message of each side to the other one. */
enum { MESSAGE = 64 };
static const uint64_t VALUE = 0x0123456789abcdef;

static void must(int result, const char *what)
{
	if (!result)
		return;
	fprintf(stderr, "rpma: %s: %s\n", what, rpma_err_2str(result));
	exit(1);
}

static void expect(int right, const char *what)
{
	if (right)
		return;
	fprintf(stderr, "rpma: %s\n", what);
	exit(1);
}

static void *memory(size_t length)
{
	void *memory = aligned_alloc(4096, length);

	expect(memory != NULL, "there is no memory");
	memset(memory, 0, length);
	return memory;
}

static uint8_t pattern(size_t place)
{
	return (uint8_t)(place * 5 + (place >> 8) * 3 + (place >> 16));
}

static struct rpma_peer *open_peer(const char *address, enum rpma_util_ibv_context_type type)
{
	struct ibv_context *device;
	struct rpma_peer *peer;

	must(rpma_utils_get_ibv_context(address, type, &device), "finding the device");
	must(rpma_peer_new(device, &peer), "opening the device");
	return peer;
}

static struct rpma_conn_cfg *settings(void)
{
	struct rpma_conn_cfg *settings;

	must(rpma_conn_cfg_new(&settings), "making settings");
	must(rpma_conn_cfg_set_sq_size(settings, 64), "setting the size of the send queue");
	must(rpma_conn_cfg_set_rq_size(settings, 4), "setting the size of the receive queue");
	must(rpma_conn_cfg_set_cq_size(settings, 128), "setting the size of the completion queue");
	must(rpma_conn_cfg_set_timeout(settings, 10000), "setting the time limit");
	return settings;
}

static void event(struct rpma_conn *connection, enum rpma_conn_event wanted)
{
	enum rpma_conn_event seen;

	must(rpma_conn_next_event(connection, &seen), "waiting for an event");
	if (seen != wanted)
		fprintf(stderr, "rpma: the event is %s\n", rpma_utils_conn_event_2str(seen));
	expect(seen == wanted, "the event of the connection is not the expected one");
}

/* Waits for the completion of an operation. */
static void complete(struct rpma_conn *connection, enum ibv_wc_opcode opcode, void *context)
{
	struct rpma_cq *queue;
	struct ibv_wc completion;
	int result;

	must(rpma_conn_get_cq(connection, &queue), "finding the completion queue");
	while ((result = rpma_cq_get_wc(queue, 1, &completion, NULL)) == RPMA_E_NO_COMPLETION)
		must(rpma_cq_wait(queue), "waiting for a completion");
	must(result, "reading a completion");
	if (completion.status != IBV_WC_SUCCESS || completion.opcode != opcode)
		fprintf(stderr, "rpma: the completion has status %d and opcode %d\n", completion.status, completion.opcode);
	expect(completion.status == IBV_WC_SUCCESS, "an operation failed");
	expect(completion.opcode == opcode, "the completion of another operation came");
	expect(completion.wr_id == (uintptr_t)context, "the context of an operation is another one's");
}

static void serve(const char *address)
{
	struct rpma_peer *peer = open_peer(address, RPMA_UTIL_IBV_CONTEXT_LOCAL);
	struct rpma_conn_private_data descriptor = {0};
	struct rpma_mr_local *region, *messages;
	struct rpma_conn_req *request;
	struct rpma_conn *connection;
	struct rpma_ep *endpoint;
	uint8_t *data = memory(MEMORY), *message = memory(4096);
	size_t length;

	must(rpma_mr_reg(peer, data, MEMORY, RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_WRITE_DST |
			 RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY, &region), "registering memory");
	must(rpma_mr_reg(peer, message, 4096, RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV, &messages),
	     "registering messages");
	must(rpma_mr_get_descriptor_size(region, &length), "reading the length of the descriptor");
	descriptor.ptr = memory(4096);
	descriptor.len = (uint8_t)length;
	must(rpma_mr_get_descriptor(region, descriptor.ptr), "reading the descriptor");
	must(rpma_ep_listen(peer, address, PORT, &endpoint), "listening");
	must(rpma_ep_next_conn_req(endpoint, settings(), &request), "waiting for a client");
	must(rpma_conn_req_recv(request, messages, 0, MESSAGE, message), "posting a receive");
	must(rpma_conn_req_connect(&request, &descriptor, &connection), "accepting the client");
	event(connection, RPMA_CONN_ESTABLISHED);

	complete(connection, IBV_WC_RECV, message);
	expect(!strcmp((char *)message, "written"), "the message of the client is another one");
	for (size_t i = 0; i < LENGTH; i++)
		expect(data[i] == pattern(i), "a byte that the client has written is wrong");
	expect(!memcmp(data + WORD, &VALUE, sizeof(VALUE)), "the word that the client has written is wrong");
	strcpy((char *)message, "right");
	must(rpma_send(connection, messages, 0, MESSAGE, RPMA_F_COMPLETION_ALWAYS, data), "sending a message");
	complete(connection, IBV_WC_SEND, data);

	event(connection, RPMA_CONN_CLOSED);
	must(rpma_conn_disconnect(connection), "disconnecting");
	must(rpma_conn_delete(&connection), "deleting the connection");
	must(rpma_ep_shutdown(&endpoint), "closing the port");
	must(rpma_mr_dereg(&region), "deregistering memory");
	must(rpma_mr_dereg(&messages), "deregistering messages");
	must(rpma_peer_delete(&peer), "closing the device");
}

/* Writes, flushes and reads all blocks. */
static void transfer(struct rpma_conn *connection, struct rpma_mr_remote *remote, struct rpma_mr_local *region,
		     uint8_t *data)
{
	for (size_t i = 0; i < LENGTH; i++)
		data[i] = pattern(i);
	for (size_t at = 0; at < LENGTH; at += BLOCK) {
		must(rpma_write(connection, remote, at, region, at, BLOCK, RPMA_F_COMPLETION_ON_ERROR, NULL), "a write");
		must(rpma_flush(connection, remote, at, BLOCK, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS,
				data + at), "a flush");
		/* A flush is a READ unless the device has flushes of its own. */
		complete(connection, IBV_WC_RDMA_READ, data + at);
	}
	printf("rpma: %d writes of %d bytes, each with a flush\n", BLOCKS, BLOCK);
	must(rpma_atomic_write(connection, remote, WORD, (const char *)&VALUE, RPMA_F_COMPLETION_ALWAYS, NULL),
	     "an atomic write");
	complete(connection, IBV_WC_RDMA_WRITE, NULL);
	memset(data, 0, LENGTH);
	for (size_t at = 0; at < LENGTH; at += BLOCK) {
		must(rpma_read(connection, region, at, remote, at, BLOCK, RPMA_F_COMPLETION_ALWAYS, data + at), "a read");
		complete(connection, IBV_WC_RDMA_READ, data + at);
	}
	for (size_t i = 0; i < LENGTH; i++)
		expect(data[i] == pattern(i), "a byte that was read is wrong");
	printf("rpma: %d reads of %d bytes were right\n", BLOCKS, BLOCK);
}

static void use(const char *address)
{
	struct rpma_peer *peer = open_peer(address, RPMA_UTIL_IBV_CONTEXT_REMOTE);
	struct rpma_conn_private_data descriptor;
	struct rpma_mr_local *region, *messages;
	struct rpma_mr_remote *remote;
	struct rpma_conn_req *request;
	struct rpma_conn *connection;
	uint8_t *data = memory(MEMORY), *message = memory(4096);
	size_t length;

	must(rpma_mr_reg(peer, data, MEMORY, RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_WRITE_SRC, &region),
	     "registering memory");
	must(rpma_mr_reg(peer, message, 4096, RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV, &messages),
	     "registering messages");
	must(rpma_conn_req_new(peer, address, PORT, settings(), &request), "resolving the server's address");
	must(rpma_conn_req_connect(&request, NULL, &connection), "connecting");
	event(connection, RPMA_CONN_ESTABLISHED);
	must(rpma_conn_get_private_data(connection, &descriptor), "reading the server's descriptor");
	must(rpma_mr_remote_from_descriptor(descriptor.ptr, descriptor.len, &remote), "reading the server's descriptor");
	must(rpma_mr_remote_get_size(remote, &length), "reading the size of the server's memory");
	expect(length == MEMORY, "the size of the server's memory is wrong");

	transfer(connection, remote, region, data);
	must(rpma_recv(connection, messages, MESSAGE, MESSAGE, data), "posting a receive");
	strcpy((char *)message, "written");
	must(rpma_send(connection, messages, 0, MESSAGE, RPMA_F_COMPLETION_ALWAYS, message), "sending a message");
	complete(connection, IBV_WC_SEND, message);
	complete(connection, IBV_WC_RECV, data);
	expect(!strcmp((char *)message + MESSAGE, "right"), "the answer of the server is another one");
	printf("rpma: the server found all bytes and the word of an atomic write\n");

	must(rpma_conn_disconnect(connection), "disconnecting");
	event(connection, RPMA_CONN_CLOSED);
	must(rpma_mr_remote_delete(&remote), "deleting the server's descriptor");
	must(rpma_conn_delete(&connection), "deleting the connection");
	must(rpma_mr_dereg(&region), "deregistering memory");
	must(rpma_mr_dereg(&messages), "deregistering messages");
	must(rpma_peer_delete(&peer), "closing the device");
}

int main(int argc, char **argv)
{
	expect(argc == 3, "usage: rpma server|client ADDRESS");
	if (!strcmp(argv[1], "server"))
		serve(argv[2]);
	else
		use(argv[2]);
	return 0;
}
