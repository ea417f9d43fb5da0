/* SPDX-License-Identifier: MIT OR Apache-2.0
 * Ethernet frames by verbs (docs/frames.md): a packet generator, its receiver, and a sniffer that writes a pcap file.
 * The program needs root, or CAP_NET_RAW, and works with any RDMA device that has queue pairs of raw packets.
 *
 * usage: frames send MAC COUNT SIZE      sends frames, and prints their rate
 *        frames receive COUNT            receives COUNT of these frames, and prints their rate
 *        frames sniff COUNT > FILE.pcap  copies the next COUNT frames of the port, in both directions
 *
 * VERBS_DEVICE names the device, if there are several.
 */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { DEPTH = 512, BATCH = 32, LONGEST = 9216, SHORTEST = 60, HEADER = 14 };
/* The EtherType for experiments. */
enum { EXPERIMENT = 0x88b5 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *region;
static unsigned char *memory;

static void need(int condition, const char *what)
{
	if (!condition) {
		perror(what);
		exit(1);
	}
}

static struct ibv_context *open_device(void)
{
	const char *name = getenv("VERBS_DEVICE");
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *found = NULL;

	need(list != NULL, "ibv_get_device_list");
	for (struct ibv_device **device = list; *device && !found; device++)
		if (!name || !strcmp(name, ibv_get_device_name(*device)))
			found = ibv_open_device(*device);
	need(found != NULL, "ibv_open_device");
	ibv_free_device_list(list);
	return found;
}

/* Opens a queue pair of raw packets, which can send at once. */
static void open_queue_pair(void)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	context = open_device();
	pd = ibv_alloc_pd(context);
	need(pd != NULL, "ibv_alloc_pd");
	cq = ibv_create_cq(context, 2 * DEPTH, NULL, NULL, 0);
	need(cq != NULL, "ibv_create_cq");
	init.send_cq = init.recv_cq = cq;
	qp = ibv_create_qp(pd, &init);
	need(qp != NULL, "ibv_create_qp (the right CAP_NET_RAW is needed)");
	need(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT), "INIT");
	attr.qp_state = IBV_QPS_RTR;
	need(!ibv_modify_qp(qp, &attr, IBV_QP_STATE), "RTR");
	attr.qp_state = IBV_QPS_RTS;
	need(!ibv_modify_qp(qp, &attr, IBV_QP_STATE), "RTS");
	memory = calloc(DEPTH, LONGEST);
	need(memory != NULL, "calloc");
	region = ibv_reg_mr(pd, memory, (size_t)DEPTH * LONGEST, IBV_ACCESS_LOCAL_WRITE);
	need(region != NULL, "ibv_reg_mr");
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

static void print_rate(const char *what, unsigned long count, unsigned long bytes, double time)
{
	printf("%s %lu frames, %lu bytes: %.0f frames/s, %.3f MB/s\n", what, count, bytes, count / time,
	       bytes / time / 1e6);
}

/* Writes the port's MAC, which is in its first GID: as a link-local address with RoCE, as it is with iWARP. The network
 * drops frames with the addresses of others. */
static void own_address(unsigned char *to)
{
	union ibv_gid gid;

	need(!ibv_query_gid(context, 1, 0, &gid), "ibv_query_gid");
	if (gid.raw[11] == 0xff && gid.raw[12] == 0xfe) {
		memcpy(to, gid.raw + 8, 3);
		memcpy(to + 3, gid.raw + 13, 3);
		to[0] ^= 2;
	} else {
		memcpy(to, gid.raw, 6);
	}
}

/* Sends the same frame again and again. One request of a batch is signaled. */
static void send_frames(const unsigned char *to, unsigned long count, unsigned int size)
{
	struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = size, .lkey = region->lkey };
	struct ibv_send_wr requests[BATCH], *bad;
	unsigned long sent = 0, outstanding = 0;
	double start = seconds();

	memcpy(memory, to, 6);
	own_address(memory + 6);
	memory[12] = EXPERIMENT >> 8;
	memory[13] = EXPERIMENT & 0xff;
	for (int i = 0; i < BATCH; i++)
		requests[i] = (struct ibv_send_wr){
			.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .next = &requests[i + 1],
		};
	while (sent < count || outstanding) {
		struct ibv_wc wc;
		int done;

		if (sent < count && outstanding + BATCH <= DEPTH) {
			unsigned long now = count - sent < BATCH ? count - sent : BATCH;
			struct ibv_send_wr *last = &requests[now - 1], *next = last->next;

			last->next = NULL;
			last->send_flags = IBV_SEND_SIGNALED;
			last->wr_id = now;
			need(!ibv_post_send(qp, requests, &bad), "ibv_post_send");
			last->next = next;
			last->send_flags = 0;
			sent += now;
			outstanding += now;
		}
		done = ibv_poll_cq(cq, 1, &wc);
		need(done >= 0 && (!done || wc.status == IBV_WC_SUCCESS), "a frame was not sent");
		if (done)
			outstanding -= wc.wr_id;
	}
	print_rate("sent", sent, sent * size, seconds() - start);
}

static void post_receive(unsigned int slot)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)memory + (size_t)slot * LONGEST, .length = LONGEST, .lkey = region->lkey,
	};
	struct ibv_recv_wr request = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 }, *bad;

	need(!ibv_post_recv(qp, &request, &bad), "ibv_post_recv");
}

/* Calls take() with each frame, until it has got COUNT. */
static unsigned long take_frames(unsigned long count, void (*take)(const unsigned char *frame, unsigned int length))
{
	unsigned long bytes = 0;

	for (unsigned long taken = 0; taken < count;) {
		struct ibv_wc wcs[BATCH];
		int done = ibv_poll_cq(cq, BATCH, wcs);

		need(done >= 0, "ibv_poll_cq");
		for (int i = 0; i < done; i++) {
			need(wcs[i].status == IBV_WC_SUCCESS, "a receive has failed");
			if (taken++ < count)
				take(memory + wcs[i].wr_id * LONGEST, wcs[i].byte_len);
			bytes += wcs[i].byte_len;
			post_receive(wcs[i].wr_id);
		}
	}
	return bytes;
}

static double first;

static void count_frame(const unsigned char *frame, unsigned int length)
{
	(void)frame;
	(void)length;
	if (!first)
		first = seconds();
}

/* Writes a frame as a record of a pcap file. */
static void write_frame(const unsigned char *frame, unsigned int length)
{
	struct timespec now;
	uint32_t record[4] = { 0, 0, length, length };

	clock_gettime(CLOCK_REALTIME, &now);
	record[0] = now.tv_sec;
	record[1] = now.tv_nsec / 1000;
	fwrite(record, sizeof(record), 1, stdout);
	fwrite(frame, length, 1, stdout);
}

/* Frames of this EtherType, whoever they are for. */
static struct ibv_flow *take_experiments(void)
{
	struct {
		struct ibv_flow_attr attr;
		struct ibv_flow_spec_eth ethernet;
	} flow = {
		.attr = { .type = IBV_FLOW_ATTR_NORMAL, .size = sizeof(flow), .num_of_specs = 1, .port = 1 },
		.ethernet = {
			.type = IBV_FLOW_SPEC_ETH, .size = sizeof(flow.ethernet),
			.val.ether_type = htons(EXPERIMENT), .mask.ether_type = 0xffff,
		},
	};

	return ibv_create_flow(qp, &flow.attr);
}

static struct ibv_flow *sniff(void)
{
	struct ibv_flow_attr attr = { .type = IBV_FLOW_ATTR_SNIFFER, .size = sizeof(attr), .port = 1 };

	return ibv_create_flow(qp, &attr);
}

/* Begins to receive the frames of a flow. */
static struct ibv_flow *begin(struct ibv_flow *(*create)(void))
{
	struct ibv_flow *flow;

	for (unsigned int slot = 0; slot < DEPTH; slot++)
		post_receive(slot);
	flow = create();
	need(flow != NULL, "ibv_create_flow");
	fprintf(stderr, "ready\n");
	return flow;
}

int main(int argc, char **argv)
{
	const char *command = argc > 1 ? argv[1] : "";
	unsigned char to[6];

	if (!strcmp(command, "send") && argc == 5 &&
	    sscanf(argv[2], "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", to, to + 1, to + 2, to + 3, to + 4, to + 5) == 6) {
		unsigned long size = strtoul(argv[4], NULL, 0);

		need(size >= SHORTEST && size <= LONGEST, "the size");
		open_queue_pair();
		send_frames(to, strtoul(argv[3], NULL, 0), size);
	} else if (!strcmp(command, "receive") && argc == 3) {
		unsigned long bytes, frames = strtoul(argv[2], NULL, 0);
		struct ibv_flow *flow;

		open_queue_pair();
		flow = begin(take_experiments);
		bytes = take_frames(frames, count_frame);
		print_rate("received", frames, bytes, seconds() - first);
		need(!ibv_destroy_flow(flow), "ibv_destroy_flow");
	} else if (!strcmp(command, "sniff") && argc == 3) {
		/* The header of a file: magic number, version, and Ethernet. */
		static const struct { uint32_t magic; uint16_t version[2]; uint32_t rest[4]; } header = {
			0xa1b2c3d4, { 2, 4 }, { 0, 0, LONGEST, 1 },
		};
		struct ibv_flow *flow;

		open_queue_pair();
		flow = begin(sniff);
		fwrite(&header, sizeof(header), 1, stdout);
		take_frames(strtoul(argv[2], NULL, 0), write_frame);
		need(!ibv_destroy_flow(flow), "ibv_destroy_flow");
	} else {
		fprintf(stderr, "usage: %s send MAC COUNT SIZE | receive COUNT | sniff COUNT\n", argv[0]);
		return 2;
	}
	return 0;
}
