/* SPDX-License-Identifier: MIT OR Apache-2.0
 * Memory of another PCI device, which VFIO exports as a DMA buffer: registered, used by this process and by a peer,
 * and taken back by VFIO while the peer writes.
 *
 * usage: vfio serve                        answers any number of clients
 *        vfio ADDRESS GROUP DEVICE ENDING  uses BAR 2 of the device in this IOMMU group of VFIO, until the ending:
 *                                          reset, memory, close, hold, which waits to be killed, or leave, which
 *                                          is a reset without a check
 */
#include <fcntl.h>
#include <linux/pci_regs.h>
#include <linux/vfio.h>
#include <rdma/ib_user_verbs.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include "serve.h"

#ifndef VFIO_DEVICE_FEATURE_DMA_BUF
/* Linux 6.19 and later have these. */
#define VFIO_DEVICE_FEATURE_DMA_BUF 11

struct vfio_region_dma_range {
	__u64 offset;
	__u64 length;
};

struct vfio_device_feature_dma_buf {
	__u32 region_index;
	__u32 open_flags;
	__u32 flags;
	__u32 nr_ranges;
	struct vfio_region_dma_range dma_ranges[];
};
#endif

enum { PORT = 7478, BAR = 2 };

/*
 * A request to the server: one work request with data of a seed, or as many as succeed. A READ compares the data.
 */
struct order {
	uint64_t at;
	uint32_t key, opcode, seed, many;
};

struct answer {
	uint32_t status, matches;
};

static bool same(const unsigned char *found, int seed)
{
	for (int at = 0; at < LENGTH; at++)
		if (found[at] != pattern(at, seed))
			return false;
	return true;
}

/* Posts a request for all of a buffer. */
static void post(struct side *side, enum ibv_wr_opcode opcode, uint64_t here, uint32_t lkey, uint64_t there,
		 uint32_t rkey)
{
	struct ibv_sge sge = { .addr = here, .length = LENGTH, .lkey = lkey };
	struct ibv_send_wr wr = {
		.opcode = opcode, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1,
		.wr.rdma = { .remote_addr = there, .rkey = rkey },
	}, *bad;

	expect(ibv_post_send(side->qp, &wr, &bad), 0, "ibv_post_send");
}

static void serve(int socket)
{
	struct side side = begin_side(RIGHTS);
	struct order order;

	meet(&side, socket);
	while (recv(socket, &order, sizeof(order), MSG_WAITALL) == sizeof(order)) {
		struct answer answer;

		if (order.opcode != IBV_WR_RDMA_READ)
			fill(side.memory, LENGTH, order.seed);
		do {
			post(&side, order.opcode, (uintptr_t)side.memory, side.mr->lkey, order.at, order.key);
			answer.status = next(&side).status;
		} while (order.many && answer.status == IBV_WC_SUCCESS);
		answer.matches = same(side.memory, order.seed);
		if (write(socket, &answer, sizeof(answer)) != sizeof(answer))
			break;
	}
	part(&side);
	end_side(&side);
	exit(0);
}

/* The other device. */
struct exported {
	int container, group, device, buffer;
	uint64_t config;
	volatile uint64_t *bar;
	size_t length;
};

static struct vfio_region_info region(int device, uint32_t index)
{
	struct vfio_region_info info = { .argsz = sizeof(info), .index = index };

	need(ioctl(device, VFIO_DEVICE_GET_REGION_INFO, &info) == 0, "VFIO_DEVICE_GET_REGION_INFO");
	return info;
}

static void enable_memory(struct exported *exported, bool on)
{
	uint16_t command;

	need(pread(exported->device, &command, 2, exported->config + PCI_COMMAND) == 2, "the PCI command");
	command = on ? command | PCI_COMMAND_MEMORY : command & ~PCI_COMMAND_MEMORY;
	need(pwrite(exported->device, &command, 2, exported->config + PCI_COMMAND) == 2, "the PCI command");
}

/* Returns the file of a DMA buffer that is all of the BAR. */
static int export(int device, uint64_t length)
{
	struct vfio_device_feature *feature;
	struct vfio_device_feature_dma_buf *buffer;
	size_t size = sizeof(*feature) + sizeof(*buffer) + sizeof(buffer->dma_ranges[0]);

	feature = calloc(1, size);
	feature->argsz = size;
	feature->flags = VFIO_DEVICE_FEATURE_GET | VFIO_DEVICE_FEATURE_DMA_BUF;
	buffer = (struct vfio_device_feature_dma_buf *)feature->data;
	buffer->region_index = BAR;
	buffer->open_flags = O_RDWR | O_CLOEXEC;
	buffer->nr_ranges = 1;
	buffer->dma_ranges[0].length = length;
	int file = ioctl(device, VFIO_DEVICE_FEATURE, feature);
	need(file >= 0, "VFIO_DEVICE_FEATURE_DMA_BUF");
	free(feature);
	return file;
}

static struct exported open_exported(const char *group, const char *device)
{
	struct exported exported = { .container = open("/dev/vfio/vfio", O_RDWR) };
	char path[64];

	snprintf(path, sizeof(path), "/dev/vfio/%s", group);
	exported.group = open(path, O_RDWR);
	need(exported.container >= 0 && exported.group >= 0, "opening VFIO");
	need(ioctl(exported.group, VFIO_GROUP_SET_CONTAINER, &exported.container) == 0, "VFIO_GROUP_SET_CONTAINER");
	need(ioctl(exported.container, VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU) == 0, "VFIO_SET_IOMMU");
	exported.device = ioctl(exported.group, VFIO_GROUP_GET_DEVICE_FD, device);
	need(exported.device >= 0, "VFIO_GROUP_GET_DEVICE_FD");
	struct vfio_region_info bar = region(exported.device, BAR);
	exported.config = region(exported.device, VFIO_PCI_CONFIG_REGION_INDEX).offset;
	exported.length = bar.size;
	enable_memory(&exported, true);
	exported.bar = mmap(NULL, bar.size, PROT_READ | PROT_WRITE, MAP_SHARED, exported.device, bar.offset);
	need(exported.bar != MAP_FAILED, "mapping the BAR");
	exported.buffer = export(exported.device, bar.size);
	return exported;
}

static void close_device(struct exported *exported)
{
	if (exported->device < 0)
		return;
	munmap((void *)exported->bar, exported->length);
	close(exported->device);
	exported->device = -1;
}

static void close_exported(struct exported *exported)
{
	close_device(exported);
	close(exported->buffer);
	close(exported->group);
	close(exported->container);
}

/* Compares the BAR, which the processor reads in words. */
static void bar_has(struct exported *exported, int seed, const char *what)
{
	static uint64_t found[LENGTH / 8];

	for (int word = 0; word < LENGTH / 8; word++)
		found[word] = exported->bar[word];
	check((unsigned char *)found, LENGTH, seed, what);
}

static void fill_bar(struct exported *exported, int seed)
{
	static uint64_t data[LENGTH / 8];

	fill((unsigned char *)data, LENGTH, seed);
	for (int word = 0; word < LENGTH / 8; word++)
		exported->bar[word] = data[word];
}

static const char *server;

/* Connects another queue pair of the same process. */
static struct side dial(const struct side *process)
{
	struct side side = *process;

	meet(&side, reach(server, PORT));
	return side;
}

static void order(struct side *side, struct order order)
{
	need(write(side->socket, &order, sizeof(order)) == sizeof(order), "asking the server");
}

static void answered(struct side *side, enum ibv_wc_status status, bool matches, const char *what)
{
	struct answer answer;

	need(recv(side->socket, &answer, sizeof(answer), MSG_WAITALL) == sizeof(answer), "the server's answer");
	if (answer.status != status || (matches && !answer.matches)) {
		fprintf(stderr, "%s: %s, not %s; the data is %s\n", what, ibv_wc_status_str(answer.status),
			ibv_wc_status_str(status), answer.matches ? "right" : "wrong");
		exit(1);
	}
}

/* The peer executes one request for the memory with this key, which begins at address zero. */
static void peer(struct side *side, enum ibv_wr_opcode opcode, uint32_t key, int seed, enum ibv_wc_status status,
		 const char *what)
{
	order(side, (struct order){ .key = key, .opcode = opcode, .seed = seed });
	answered(side, status, true, what);
}

/* A request of this process completes so. */
static void own(struct side *side, enum ibv_wr_opcode opcode, uint32_t lkey, enum ibv_wc_status status,
		const char *what)
{
	post(side, opcode, 0, lkey, side->peer.at, side->peer.key);
	enum ibv_wc_status found = next(side).status;
	if (found != status) {
		fprintf(stderr, "%s: %s, not %s\n", what, ibv_wc_status_str(found), ibv_wc_status_str(status));
		exit(1);
	}
}

static void post_receive(struct side *side, uint32_t lkey)
{
	struct ibv_sge sge = { .length = LENGTH, .lkey = lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	expect(ibv_post_recv(side->qp, &wr, &bad), 0, "ibv_post_recv");
}

static struct ibv_mr *register_buffer(struct side *side, struct exported *exported)
{
	struct ibv_mr *mr = ibv_reg_dmabuf_mr(side->pd, 0, LENGTH, 0, exported->buffer, RIGHTS);

	need(mr != NULL, "ibv_reg_dmabuf_mr");
	return mr;
}

/* Every kind of request reaches the BAR, from both sides. */
static void works(struct side *side, struct exported *exported, struct ibv_mr *mr)
{
	fill_bar(exported, 1);
	peer(side, IBV_WR_RDMA_READ, mr->rkey, 1, IBV_WC_SUCCESS, "READ of the peer");
	peer(side, IBV_WR_RDMA_WRITE, mr->rkey, 2, IBV_WC_SUCCESS, "WRITE of the peer");
	bar_has(exported, 2, "what the peer wrote");
	post_receive(side, mr->lkey);
	order(side, (struct order){ .opcode = IBV_WR_SEND, .seed = 3 });
	need(next(side).status == IBV_WC_SUCCESS, "the receive");
	answered(side, IBV_WC_SUCCESS, true, "SEND of the peer");
	bar_has(exported, 3, "what the peer sent");
	own(side, IBV_WR_RDMA_READ, mr->lkey, IBV_WC_SUCCESS, "READ into the BAR");
	bar_has(exported, 3, "what was read of the peer");
	fill_bar(exported, 4);
	own(side, IBV_WR_RDMA_WRITE, mr->lkey, IBV_WC_SUCCESS, "WRITE from the BAR");
	fill(side->memory, LENGTH, 0);
	post(side, IBV_WR_RDMA_READ, (uintptr_t)side->memory, side->mr->lkey, side->peer.at, side->peer.key);
	need(next(side).status == IBV_WC_SUCCESS, "READ of the peer's memory");
	check(side->memory, LENGTH, 4, "what the peer got");
}

/* No request reaches the BAR. Each needs a queue pair, which it ruins. */
static void is_revoked(const struct side *process, struct ibv_mr *mr)
{
	enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ };
	struct side side;

	for (size_t nth = 0; nth < sizeof(opcodes) / sizeof(opcodes[0]); nth++) {
		side = dial(process);
		order(&side, (struct order){ .key = mr->rkey, .opcode = opcodes[nth] });
		answered(&side, IBV_WC_REM_ACCESS_ERR, false, "access of the peer after the end");
		part(&side);
		side = dial(process);
		own(&side, opcodes[nth], mr->lkey, IBV_WC_LOC_PROT_ERR, "access of this process after the end");
		part(&side);
	}
	side = dial(process);
	post_receive(&side, mr->lkey);
	order(&side, (struct order){ .opcode = IBV_WR_SEND });
	need(next(&side).status == IBV_WC_LOC_PROT_ERR, "the receive after the end");
	answered(&side, IBV_WC_REM_OP_ERR, false, "SEND of the peer after the end");
	part(&side);
}

/* VFIO takes the BAR back. */
static void take_back(struct exported *exported, const char *ending)
{
	if (strcmp(ending, "reset") == 0 || strcmp(ending, "leave") == 0)
		need(ioctl(exported->device, VFIO_DEVICE_RESET) == 0, "VFIO_DEVICE_RESET");
	else if (strcmp(ending, "memory") == 0)
		enable_memory(exported, false);
	else
		close_device(exported);
}

/* After the end, another region of the BAR can be registered, unless the device is closed. */
static void comes_back(struct side *side, struct exported *exported)
{
	if (exported->device < 0) {
		need(!ibv_reg_dmabuf_mr(side->pd, 0, LENGTH, 0, exported->buffer, RIGHTS) && errno == ENODEV,
		     "the refusal of a buffer whose device is closed");
		return;
	}
	enable_memory(exported, true);
	fill_bar(exported, 5);
	usleep(100000);
	bar_has(exported, 5, "the BAR after its end");
	struct ibv_mr *mr = register_buffer(side, exported);
	works(side, exported, mr);
	expect(ibv_dereg_mr(mr), 0, "ibv_dereg_mr");
}

/* A region of a DMA buffer does not change. By the kernel's command, because libibverbs has the same check. */
static void does_not_change(struct side *side, struct ibv_mr *mr, uint32_t flags)
{
	struct ib_uverbs_rereg_mr_resp resp;
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_rereg_mr body;
	} command = {
		.header = { .command = IB_USER_VERBS_CMD_REREG_MR,
			    .in_words = sizeof(command) / 4,
			    .out_words = sizeof(resp) / 4 },
		.body = { .response = (uintptr_t)&resp,
			  .mr_handle = mr->handle,
			  .flags = flags,
			  .start = (uintptr_t)side->memory,
			  .length = LENGTH,
			  .hca_va = (uintptr_t)side->memory,
			  .access_flags = IBV_ACCESS_LOCAL_WRITE },
	};

	need(write(side->context->cmd_fd, &command, sizeof(command)) < 0 && errno == EOPNOTSUPP,
	     "the refusal of a change of a region");
}

static void run(const char *group, const char *device, const char *ending)
{
	struct exported exported = open_exported(group, device);
	struct side process = begin_side(RIGHTS);
	struct side steady = dial(&process), busy = dial(&process);
	struct ibv_mr *mr = register_buffer(&process, &exported);

	does_not_change(&process, mr, IBV_REREG_MR_CHANGE_ACCESS);
	does_not_change(&process, mr, IBV_REREG_MR_CHANGE_TRANSLATION);
	works(&steady, &exported, mr);
	order(&busy, (struct order){ .key = mr->rkey, .opcode = IBV_WR_RDMA_WRITE, .seed = 7, .many = 1 });
	usleep(200000);
	if (strcmp(ending, "hold") == 0) {
		puts("held");
		fflush(stdout);
		pause();
	}
	take_back(&exported, ending);
	if (strcmp(ending, "leave") == 0) {
		puts("leave: good");
		exit(0);
	}
	answered(&busy, IBV_WC_REM_ACCESS_ERR, false, "WRITEs during the end");
	part(&busy);
	is_revoked(&process, mr);
	/* A queue pair that did not use it works on, and the key is not given to another region. */
	struct ibv_mr *other = ibv_reg_mr(process.pd, process.memory, LENGTH, RIGHTS);
	need(other != NULL && other->rkey >> 8 != mr->rkey >> 8, "another region");
	expect(ibv_dereg_mr(other), 0, "ibv_dereg_mr");
	comes_back(&steady, &exported);
	expect(ibv_dereg_mr(mr), 0, "ibv_dereg_mr");
	part(&steady);
	end_side(&process);
	close_exported(&exported);
	printf("%s: good\n", ending);
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "serve") == 0)
		listen_for_clients(PORT, serve);
	if (argc != 5) {
		fprintf(stderr, "usage: %s serve | ADDRESS GROUP DEVICE ENDING\n", argv[0]);
		return 2;
	}
	server = argv[1];
	run(argv[2], argv[3], argv[4]);
	return 0;
}
