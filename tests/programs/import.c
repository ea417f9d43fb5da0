/* SPDX-License-Identifier: MIT OR Apache-2.0
 * Objects of one process that another one imports (ibv_import_device(3), ibv_import_pd(3), ibv_import_mr(3),
 * ibv_import_dm(3)): the parent allocates, the child gets the command file by a socket, and moves data by queue
 * pairs of its own.
 */

#include <sys/wait.h>
#include "side.h"

enum { OFFSET = 1000 };

/* The data that the parent sends with the file. */
struct handles {
	uint32_t pd, mr, dm;
	uint64_t at;
};

static void send_file(int to, int file, const struct handles *handles)
{
	union { struct cmsghdr header; char room[CMSG_SPACE(sizeof(int))]; } control = { 0 };
	struct iovec data = { .iov_base = (void *)handles, .iov_len = sizeof(*handles) };
	struct msghdr message = {
		.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control),
	};

	control.header = (struct cmsghdr){
		.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int)),
	};
	memcpy(CMSG_DATA(&control.header), &file, sizeof(file));
	need(sendmsg(to, &message, 0) == sizeof(*handles), "sendmsg");
}

static int receive_file(int from, struct handles *handles)
{
	union { struct cmsghdr header; char room[CMSG_SPACE(sizeof(int))]; } control;
	struct iovec data = { .iov_base = handles, .iov_len = sizeof(*handles) };
	struct msghdr message = {
		.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control),
	};
	int file;

	need(recvmsg(from, &message, 0) == sizeof(*handles), "recvmsg");
	memcpy(&file, CMSG_DATA(&control.header), sizeof(file));
	return file;
}

/* Two queue pairs that are connected to each other; the one in side posts. */
static struct ibv_qp *make_pair(struct side *side)
{
	struct ibv_qp *other;
	struct address peer;

	side->cq = ibv_create_cq(side->context, 16, NULL, NULL, 0);
	need(side->cq != NULL, "ibv_create_cq");
	side->qp = make_qp(side);
	other = make_qp(side);
	need(ibv_query_gid(side->context, 1, GID_INDEX, &peer.gid) == 0, "ibv_query_gid");
	peer.qpn = other->qp_num;
	connect_qp(side->qp, &peer);
	peer.qpn = side->qp->qp_num;
	connect_qp(other, &peer);
	return other;
}

static void move(struct side *side, enum ibv_wr_opcode opcode, uint64_t here, uint32_t lkey, uint64_t there,
		 uint32_t rkey)
{
	struct ibv_sge sge = { .addr = here, .length = LENGTH, .lkey = lkey };
	struct ibv_send_wr wr = {
		.wr_id = opcode, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1,
		.wr.rdma = { .remote_addr = there, .rkey = rkey },
	}, *bad;

	expect(ibv_post_send(side->qp, &wr, &bad), 0, "ibv_post_send");
	completion(side, opcode, IBV_WC_SUCCESS, 0);
}

/* What must not be there. */
static void misses(struct ibv_context *context, struct ibv_pd *pd)
{
	struct ibv_pd *none;

	need(ibv_import_mr(pd, 9999) == NULL, "no region with that number");
	need(ibv_import_dm(context, 9999) == NULL, "no device memory with that number");
	none = ibv_import_pd(context, 9999);
	need(none == NULL || ibv_reg_mr(none, misses, 1, 0) == NULL, "no domain with that number");
	if (none)
		ibv_unimport_pd(none);
}

/* Device memory that was freed while it was imported keeps its mapping. Other memory with its handle is not seen
 * there, and can be had.
 */
static void stays(struct ibv_context *context)
{
	struct ibv_alloc_dm_attr attr = { .length = LENGTH };
	unsigned char *data = malloc(LENGTH), *none = calloc(1, LENGTH);
	struct ibv_dm *first = ibv_alloc_dm(context, &attr);
	need(first != NULL, "ibv_alloc_dm");
	uint32_t handle = first->handle;
	struct ibv_dm *old = ibv_import_dm(context, handle);
	need(old != NULL, "ibv_import_dm");
	fill(data, LENGTH, 5);
	expect(ibv_memcpy_to_dm(first, 0, data, LENGTH), 0, "ibv_memcpy_to_dm");
	expect(ibv_free_dm(first), 0, "ibv_free_dm");

	struct ibv_dm *second = ibv_alloc_dm(context, &attr);
	need(second != NULL, "ibv_alloc_dm while memory that was freed is mapped");
	need(second->handle == handle, "the same handle");
	expect(ibv_memcpy_from_dm(data, second, 0, LENGTH), 0, "ibv_memcpy_from_dm");
	need(memcmp(data, none, LENGTH) == 0, "memory without bytes of the other one");
	fill(data, LENGTH, 6);
	expect(ibv_memcpy_to_dm(second, 0, data, LENGTH), 0, "ibv_memcpy_to_dm");
	expect(ibv_memcpy_from_dm(data, old, 0, LENGTH), 0, "ibv_memcpy_from_dm");
	check(data, LENGTH, 5, "memory that was freed");
	struct ibv_dm *again = ibv_import_dm(context, handle);
	need(again != NULL, "ibv_import_dm");
	expect(ibv_memcpy_from_dm(data, again, 0, LENGTH), 0, "ibv_memcpy_from_dm");
	check(data, LENGTH, 6, "memory at another offset");
	ibv_unimport_dm(again);
	ibv_unimport_dm(old);
	expect(ibv_free_dm(second), 0, "ibv_free_dm");
	free(none);
	free(data);
}

static void import(int socket)
{
	struct side side = { 0 };
	struct handles handles;
	unsigned char *own = aligned_alloc(RANGE, LENGTH), end;
	int file = receive_file(socket, &handles);

	side.context = ibv_import_device(file);
	need(side.context != NULL, "ibv_import_device");
	side.pd = ibv_import_pd(side.context, handles.pd);
	need(side.pd != NULL, "ibv_import_pd");
	struct ibv_mr *mr = ibv_import_mr(side.pd, handles.mr);
	need(mr != NULL && mr->length == LENGTH, "ibv_import_mr");
	struct ibv_dm *dm = ibv_import_dm(side.context, handles.dm);
	need(dm != NULL, "ibv_import_dm");
	misses(side.context, side.pd);
	side.mr = ibv_reg_mr(side.pd, own, LENGTH,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	need(side.mr != NULL, "ibv_reg_mr");
	struct ibv_mr *key = ibv_reg_dm_mr(side.pd, dm, 0, LENGTH, IBV_ACCESS_LOCAL_WRITE |
					   IBV_ACCESS_ZERO_BASED);
	need(key != NULL, "ibv_reg_dm_mr");
	struct ibv_qp *other = make_pair(&side);

	/* By the remote key of the parent's region. */
	move(&side, IBV_WR_RDMA_READ, (uintptr_t)own, side.mr->lkey, handles.at, mr->rkey);
	check(own, LENGTH, 1, "what was read of the parent's memory");
	/* By its local key. */
	memset(own, 0, LENGTH);
	move(&side, IBV_WR_RDMA_WRITE, handles.at, mr->lkey, (uintptr_t)own, side.mr->rkey);
	check(own, LENGTH, 1, "what was sent of the parent's memory");
	/* Device memory: what the parent stored, and what comes by a key of it. */
	expect(ibv_memcpy_from_dm(own, dm, 0, LENGTH), 0, "ibv_memcpy_from_dm");
	check(own, LENGTH, 2, "the parent's device memory");
	fill(own, LENGTH, 3);
	move(&side, IBV_WR_RDMA_READ, 0, key->lkey, (uintptr_t)own, side.mr->rkey);
	/* Into the parent's memory. */
	fill(own, LENGTH, 4);
	move(&side, IBV_WR_RDMA_WRITE, (uintptr_t)own, side.mr->lkey, handles.at, mr->rkey);

	expect(ibv_destroy_qp(side.qp), 0, "ibv_destroy_qp");
	expect(ibv_destroy_qp(other), 0, "ibv_destroy_qp");
	expect(ibv_destroy_cq(side.cq), 0, "ibv_destroy_cq");
	expect(ibv_dereg_mr(key), 0, "ibv_dereg_mr");
	expect(ibv_dereg_mr(side.mr), 0, "ibv_dereg_mr");
	ibv_unimport_dm(dm);
	ibv_unimport_mr(mr);
	ibv_unimport_pd(side.pd);
	expect(ibv_close_device(side.context), 0, "ibv_close_device");
	need(write(socket, "", 1) == 1 && read(socket, &end, 1) == 1, "the parent");
	free(own);
}

int main(int count, char **arguments)
{
	struct ibv_alloc_dm_attr attr = { .length = LENGTH };
	struct side side = { 0 };
	int sockets[2], status;
	char end, text[16];

	if (count > 1) {
		import(atoi(arguments[1]));
		return 0;
	}
	side.context = open_device();
	stays(side.context);
	side.pd = ibv_alloc_pd(side.context);
	need(side.pd != NULL, "ibv_alloc_pd");
	side.memory = aligned_alloc(RANGE, LENGTH);
	fill(side.memory, LENGTH, 1);
	side.mr = ibv_reg_mr(side.pd, side.memory, LENGTH,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	need(side.mr != NULL, "ibv_reg_mr");
	struct ibv_dm *dm = ibv_alloc_dm(side.context, &attr);
	need(dm != NULL, "ibv_alloc_dm");
	unsigned char *data = malloc(LENGTH);
	fill(data, LENGTH, 2);
	expect(ibv_memcpy_to_dm(dm, 0, data, LENGTH), 0, "ibv_memcpy_to_dm");
	need(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0, "socketpair");
	if (fork() == 0) {
		close(sockets[0]);
		snprintf(text, sizeof(text), "%d", sockets[1]);
		execl("/proc/self/exe", arguments[0], text, NULL);
		_exit(1);
	}
	close(sockets[1]);
	struct handles handles = {
		.pd = side.pd->handle, .mr = side.mr->handle, .dm = dm->handle, .at = (uintptr_t)side.memory,
	};
	send_file(sockets[0], side.context->cmd_fd, &handles);
	need(read(sockets[0], &end, 1) == 1, "the child");
	check(side.memory, LENGTH, 4, "what the child sent");
	expect(ibv_memcpy_from_dm(data, dm, 0, LENGTH), 0, "ibv_memcpy_from_dm");
	check(data, LENGTH, 3, "what the child moved into device memory");
	need(write(sockets[0], "", 1) == 1 && wait(&status) > 0 && status == 0, "the child's end");
	/* All objects are still there. */
	expect(ibv_dereg_mr(side.mr), 0, "ibv_dereg_mr");
	expect(ibv_free_dm(dm), 0, "ibv_free_dm");
	expect(ibv_dealloc_pd(side.pd), 0, "ibv_dealloc_pd");
	expect(ibv_close_device(side.context), 0, "ibv_close_device");
	puts("imported");
	return 0;
}
