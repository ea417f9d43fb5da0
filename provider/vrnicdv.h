/* SPDX-License-Identifier: GPL-2.0 OR MIT
 * Direct verbs of the vrnic adapter, which libibverbs does not offer.
 *
 * The functions are in the plugin, libvrnic.so.1, which libibverbs loads with the first device. Each
 * function fails with EOPNOTSUPP if its object is not of a vrnic device. Manual: docs/vrnicdv.md.
 */
#ifndef INFINIBAND_VRNICDV_H
#define INFINIBAND_VRNICDV_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <infiniband/verbs.h>
#include "vrnicqueues.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns whether a device is a vrnic adapter. */
bool vrnicdv_is_supported(struct ibv_device *device);

enum vrnicdv_qp_flags {
	/* A refused memory operation stops only the send queue (state SQE), not the connection. */
	VRNICDV_QP_REACTIVE = 1 << 0,
	/*
	 * The queue pair carries the bytes of a TCP connection, which vrnicdv_attach_socket() gives it.
	 * Its type is IBV_QPT_DRIVER.
	 */
	VRNICDV_QP_TOE = 1 << 1,
	/* A receive of such a queue pair also completes at the end of a segment with the flag PSH. */
	VRNICDV_QP_PUSH = 1 << 2,
	/* The send queue makes no keys valid: bindings of windows and commands are refused. */
	VRNICDV_QP_NO_SQ_KEYS = 1 << 3,
	/* The peer reaches memory by windows and commands only, not by regions. */
	VRNICDV_QP_WINDOWS_ONLY = 1 << 4,
	/*
	 * A send of a queue pair with a TCP connection is complete when the number of bytes that the
	 * peer has not acknowledged shows it, and not the number of its last byte. The times are the
	 * same.
	 */
	VRNICDV_QP_QUEUE_LENGTH = 1 << 5,
	/*
	 * With iWARP, no SEND or WRITE of a queue pair of type IBV_QPT_RC completes before the peer has
	 * acknowledged all of it, however late the peer acknowledges.
	 */
	VRNICDV_QP_ACKNOWLEDGED = 1 << 6,
};

/* The place of a command's key in the response, and in the command. */
enum vrnicdv_tag_form {
	/* The queue pair has no commands. */
	VRNICDV_TAG_NONE = 0,
	/*
	 * 4 bytes, big-endian: in a response at vrnicdv_qp_attr.tag_offset, in a command at its own
	 * offset.
	 */
	VRNICDV_TAG_GENERAL = 1,
	/* The initiator task tag of the iSCSI header at vrnicdv_qp_attr.tag_offset. */
	VRNICDV_TAG_ISCSI = 2,
};

/* Attributes that ibv_create_qp() lacks. Zeroed: a plain queue pair. */
struct vrnicdv_qp_attr {
	/* enum vrnicdv_qp_flags */
	uint32_t flags;
	/* enum vrnicdv_tag_form */
	uint32_t tag_form;
	/* Bytes from the start of a message. */
	uint32_t tag_offset;
	/* Data segments of a command; zero without commands. */
	uint32_t max_command_sge;
};

/* Creates a queue pair. Returns NULL with errno set on failure. */
struct ibv_qp *vrnicdv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init_attr,
				 const struct vrnicdv_qp_attr *attr);

/*
 * Gives the connection of a TCP socket to a queue pair with VRNICDV_QP_TOE, with the bytes that were not
 * read. The socket then has no connection, as after its creation. Returns 0 or an errno; on failure the
 * socket keeps its connection. EAGAIN: not all bytes that were sent have been acknowledged, try again.
 */
int vrnicdv_attach_socket(struct ibv_qp *qp, int socket);

/* Connects such a queue pair to a server. Returns 0, or an errno of connect(2) or as above. */
int vrnicdv_connect_stream(struct ibv_qp *qp, const struct sockaddr *server, socklen_t length);

/*
 * Waits for the next connection of a listening socket, and gives it to such a queue pair. Returns 0, or
 * an errno of accept(2) or as above; in the latter case the connection is closed.
 */
int vrnicdv_accept_stream(struct ibv_qp *qp, int listener);

/*
 * Asks for the bytes of the receive in progress of such a queue pair. It completes with those that it has;
 * if it has none, it stays. Does not enter the kernel. Returns 0 or an errno.
 */
int vrnicdv_release_receives(struct ibv_qp *qp);

enum vrnicdv_queues {
	VRNICDV_SEND_QUEUE = 1 << 0,
	VRNICDV_RECV_QUEUE = 1 << 1,
};

/*
 * Hands queues of a queue pair over to another poster, such as another process or a device, which writes work
 * requests and rings the doorbell by itself: an enum vrnicdv_queues. The library posts nothing to them any more
 * (EPERM). Returns 0 or an errno.
 */
int vrnicdv_hand_over_qp(struct ibv_qp *qp, uint32_t queues, struct vrnicdv_qp_layout *layout);

/*
 * Hands a completion queue over to such a poster. The library polls, arms and resizes it no more (EPERM).
 * Returns 0 or an errno.
 */
int vrnicdv_hand_over_cq(struct ibv_cq *cq, struct vrnicdv_cq_layout *layout);

/* What memory is for that the allocator of a parent domain provides: its argument resource_type. */
enum vrnicdv_res_type {
	/* The send or the receive queue of a queue pair. */
	VRNICDV_RES_TYPE_QP = 1,
	VRNICDV_RES_TYPE_CQ = 2,
	VRNICDV_RES_TYPE_SRQ = 3,
	VRNICDV_RES_TYPE_WQ = 4,
};

enum vrnicdv_rdma_flags {
	/* Messages have CRCs in both directions. */
	VRNICDV_RDMA_CRC = 1 << 0,
	/* The peer sends the first message; this end sends none before it has arrived. */
	VRNICDV_RDMA_PEER_FIRST = 1 << 1,
	/* Messages to the peer have markers. */
	VRNICDV_RDMA_SEND_MARKERS = 1 << 2,
	/* Messages of the peer have markers. */
	VRNICDV_RDMA_RECEIVE_MARKERS = 1 << 3,
};

/* What both ends of a connection have agreed on for RDMA messages. */
struct vrnicdv_rdma_attr {
	/* enum vrnicdv_rdma_flags */
	uint32_t flags;
	/* READs and atomics of the peer that are served at a time, at most. */
	uint32_t ird;
	/* READs and atomics that are outstanding at a time, at most. */
	uint32_t ord;
	/* Bytes that the program has received and that belong to messages already: their number, at most 256 KiB. */
	uint32_t received_len;
	const void *received;
};

/*
 * Begins RDMA on the connection of a queue pair with VRNICDV_QP_TOE. The other queue pair, of type IBV_QPT_RC
 * and in the state INIT, gets the connection when it has a receive and the peer has acknowledged all bytes;
 * until then sends of the first one still leave. Its receives complete at once, most with no bytes. The other
 * one then goes to RTS with the event IBV_EVENT_COMM_EST, or to ERR with IBV_EVENT_QP_FATAL, and the first one
 * to ERR. Returns 0 or an errno.
 */
int vrnicdv_start_rdma(struct ibv_qp *stream, struct ibv_qp *rdma, const struct vrnicdv_rdma_attr *attr);

/* The state of the messages or bytes of a connection. */
enum vrnicdv_connection_status {
	/* There are none, or both directions are closed. */
	VRNICDV_CONNECTION_IDLE = 0,
	VRNICDV_CONNECTION_RTS = 1,
	/* This end has closed its direction. */
	VRNICDV_CONNECTION_CLOSING = 2,
	/* A Terminate was sent or received, and TCP is being closed. */
	VRNICDV_CONNECTION_TERMINATE = 3,
	VRNICDV_CONNECTION_ERROR = 4,
};

enum vrnicdv_connection_events {
	/* The peer has closed its direction (FIN). It is told at once, whatever the state is. */
	VRNICDV_CONNECTION_GRACEFUL_DISCONNECT = 1 << 0,
	/* A reset by either end, or no answer. */
	VRNICDV_CONNECTION_ABORTIVE_DISCONNECT = 1 << 1,
	/* Both directions are closed, without an error. */
	VRNICDV_CONNECTION_CLOSED = 1 << 2,
	/* An error occurred while it was being closed without one. */
	VRNICDV_CONNECTION_BAD_CLOSE = 1 << 3,
	VRNICDV_CONNECTION_TERMINATE_SENT = 1 << 4,
	VRNICDV_CONNECTION_TERMINATE_RECEIVED = 1 << 5,
	/* The connection has left the adapter: vrnicdv_terminate_offload(), or its natural end. */
	VRNICDV_CONNECTION_RELEASED = 1 << 8,
};

struct vrnicdv_connection {
	/* enum vrnicdv_connection_status */
	uint32_t status;
	/* enum vrnicdv_connection_events: what has happened since the connection was made. */
	uint32_t events;
	/* READs and atomics of the peer that are served at a time, and that are outstanding at a time. */
	uint32_t ird;
	uint32_t ord;
};

/*
 * The following functions are for queue pairs with VRNICDV_QP_TOE, and those of type IBV_QPT_RC of a device with
 * iWARP, however they are connected. They return 0 or an errno: ENOTCONN without a connection.
 */
int vrnicdv_query_connection(struct ibv_qp *qp, struct vrnicdv_connection *connection);

/*
 * Has an eventfd(2) signaled at once, and whenever the status or the events of the connection have changed; -1: not
 * any more. It can be closed at any time, and stays with the connection when another queue pair gets that.
 */
int vrnicdv_watch_connection(struct ibv_qp *qp, int eventfd);

/* The longest time limit of vrnicdv_disconnect(). */
#define VRNICDV_MAX_CLOSE_MS 60000

/*
 * Closes the local direction (FIN). EBUSY if any work request is outstanding. If the connection is not closed in
 * both directions after time_limit_ms milliseconds, it is reset; 0: after ten seconds. With abort, it is reset at
 * once, whatever is outstanding.
 */
int vrnicdv_disconnect(struct ibv_qp *qp, bool abort, uint32_t time_limit_ms);

/*
 * Takes the connection off the adapter, so that its addresses are free, as soon as it is closed in both directions
 * or has ended. Returns 0 if that is done, or EINPROGRESS: VRNICDV_CONNECTION_RELEASED follows.
 */
int vrnicdv_terminate_offload(struct ibv_qp *qp);

/*
 * Makes a queue pair in the state ERR as new (INIT), when all work requests are flushed and the connection has
 * left the adapter. Returns 0; EAGAIN before; ECANCELED, if give_up is true, for a caller that then destroys it.
 */
int vrnicdv_make_idle(struct ibv_qp *qp, bool give_up);

enum vrnicdv_reservation_reason {
	VRNICDV_RESERVED = 0,
	/* The caller may ask again, with at most vrnicdv_reservation.would_do READs or entries. */
	VRNICDV_IRD_TOO_LARGE = 1,
	VRNICDV_ORD_TOO_LARGE = 2,
	VRNICDV_CQ_TOO_LARGE = 3,
	/* No other values would do: no vrnic device with iWARP, no protection domain, no queue pair. */
	VRNICDV_NO_RNIC = 16,
	VRNICDV_NO_PD = 17,
	VRNICDV_NO_QP = 18,
	/* The connection has ended. */
	VRNICDV_NO_CONNECTION = 19,
};

/*
 * What a connection needs for RDMA. Zeroed: a protection domain and a completion queue of its own, without
 * READs. The fields up to access are the caller's, except that pd, cq and cap tell what the connection got.
 */
struct vrnicdv_reservation {
	/* The queue pair that has the connection, or gets it. */
	struct ibv_qp *stream;
	/* NULL: a new one. */
	struct ibv_pd *pd;
	/* NULL: a new one. One that is shared grows by the entries of both queues, or a new one is made. */
	struct ibv_cq *cq;
	/*
	 * For a shared cq: the number of entries that the queues on it need, which cq follows. The entries
	 * of the reservation's queues are added, and vrnicdv_release_rdma() subtracts them. NULL: cq only
	 * grows, each time by the entries of both queues.
	 */
	uint32_t *entries;
	/* For events of a new completion queue, which is armed at once; or NULL. */
	struct ibv_comp_channel *channel;
	struct ibv_qp_cap cap;
	uint32_t ird;
	uint32_t ord;
	/* enum ibv_access_flags, for the peer. */
	uint32_t access;
	/* enum vrnicdv_reservation_reason */
	uint32_t reason;
	uint32_t would_do;
	/* Whether pd and cq are new, so that the caller frees them when it has destroyed qp. */
	bool new_pd;
	bool new_cq;
	/* In the state INIT, so receives may be posted. */
	struct ibv_qp *qp;
};

/*
 * Reserves what a connection needs for RDMA, before anything changes for the connection. Waits for the
 * driver, but never for the peer. Returns 0, or sets r->reason and returns an errno; then nothing is left.
 */
int vrnicdv_reserve_rdma(struct vrnicdv_reservation *r);

/*
 * Destroys the queue pair of a reservation. With r->entries a shared completion queue gets the size that its other
 * queues need, unless more completions wait in it; the next reservation or release then tries again. Returns 0 or
 * an errno; then nothing has changed.
 */
int vrnicdv_release_rdma(struct vrnicdv_reservation *r);

enum vrnicdv_cq_flags {
	/*
	 * The driver chooses a completion vector with few recent events. The verbs' attributes must
	 * name vector 0.
	 */
	VRNICDV_CQ_ANY_VECTOR = 1 << 0,
	/*
	 * When the queue is full, its completions and the queue pairs that need room wait, and nothing
	 * fails. Without this flag a full queue fails.
	 */
	VRNICDV_CQ_HOLDING = 1 << 1,
};

/* Attributes that ibv_create_cq_ex() lacks. Zeroed: a plain completion queue. */
struct vrnicdv_cq_attr {
	/* enum vrnicdv_cq_flags */
	uint32_t flags;
	/* On return: the completion vector that the queue is bound to. */
	uint32_t comp_vector;
	/*
	 * With VRNICDV_CQ_HOLDING: the number of free entries, fewer than the queue has, at which the
	 * program gets an event that few are left; zero for no event.
	 */
	uint32_t few;
};

/* Creates a completion queue. Returns NULL with errno set on failure. */
struct ibv_cq_ex *vrnicdv_create_cq(struct ibv_context *context, struct ibv_cq_init_attr_ex *init_attr,
				    struct vrnicdv_cq_attr *attr);

enum vrnicdv_cq_state {
	/* There is room. */
	VRNICDV_CQ_ROOM = 0,
	/* Few entries were free when the adapter last looked. */
	VRNICDV_CQ_FEW = 1,
	/* Completions wait for room. */
	VRNICDV_CQ_FULL = 2,
	/* The queue has failed, and gets no more completions. */
	VRNICDV_CQ_FAILED = 3,
};

/*
 * Stores the enum vrnicdv_cq_state of a completion queue. IBV_EVENT_CQ_ERR of a holding queue comes for
 * each of the last three states. Returns 0 or an errno.
 */
int vrnicdv_query_cq(struct ibv_cq *cq, uint32_t *state);

enum vrnicdv_mem_flags {
	/* The key is valid for one message of the peer. */
	VRNICDV_MEM_ONE_TOUCH = 1 << 0,
	/*
	 * vrnicdv_bind_mw(): the binding keeps the key of the window, and is refused if the window has
	 * another one by then.
	 */
	VRNICDV_MEM_SAME_KEY = 1 << 1,
	/* vrnicdv_reg_mr(): nothing is sent from the region. */
	VRNICDV_MEM_NO_LOCAL_READ = 1 << 2,
};

/* Registers memory. Returns NULL with errno set on failure. */
struct ibv_mr *vrnicdv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access, uint32_t mem_flags);

/*
 * Posts the binding of a window of either type under a new key, and sets mw->rkey to it. Returns 0 or
 * an errno.
 */
int vrnicdv_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind, uint32_t mem_flags);

/* A command: a SEND that lets the peer reach data until it responds. */
struct vrnicdv_command {
	uint64_t wr_id;
	/* enum ibv_send_flags; IBV_SEND_INLINE concerns the message and takes one segment. */
	uint32_t send_flags;
	/* IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, or both. */
	uint32_t access;
	/* enum vrnicdv_mem_flags */
	uint32_t mem_flags;
	/* General form: the offset in the message at which the key is stored. Otherwise zero. */
	uint32_t tag_offset;
	/* The memory that the peer may reach, from address zero on. */
	struct ibv_sge *data;
	/* The message. */
	struct ibv_sge *message;
	uint32_t num_data;
	uint32_t num_message;
};

/* Posts a command to a queue pair that was created for commands. Returns 0 or an errno. */
int vrnicdv_post_command(struct ibv_qp *qp, const struct vrnicdv_command *command);

/* A range of the adapter's window, for direct transfers (docs/direct.md). */
struct vrnicdv_range {
	struct ibv_qp *qp;
	/* 4096 bytes. The adapter sees each access to them. */
	void *window;
	uint32_t number;
};

/* Takes a range for a queue pair of type RC or UC. Returns NULL with errno set on failure. */
struct vrnicdv_range *vrnicdv_alloc_range(struct ibv_qp *qp);

/*
 * Ends the transfer of a range and gives it back. Returns 0 or an errno. To be called before the queue
 * pair is destroyed.
 */
int vrnicdv_free_range(struct vrnicdv_range *range);

enum vrnicdv_transfer_flags {
	/* An RDMA WRITE sends the data. Without this flag, a READ fetches it. */
	VRNICDV_TRANSFER_WRITE = 1 << 0,
	/*
	 * The data is moved in the device memory itself, and vrnicdv_range_done() tells that all of it has
	 * been. Else it is moved in the window, and the adapter counts the bytes.
	 */
	VRNICDV_TRANSFER_MAPPED = 1 << 1,
	/*
	 * The packet memory is a block of the adapter. Work requests name the range by vrnicdv_range_sge(), and
	 * vrnicdv_post_transfer() follows them. Not with VRNICDV_TRANSFER_MAPPED.
	 */
	VRNICDV_TRANSFER_BLOCK = 1 << 2,
};

enum vrnicdv_keys {
	/* The local key of all ranges. */
	VRNICDV_RANGE_LKEY = 0xd1,
};

/* Returns a segment of a range that is armed for a transfer through a block. */
static inline struct ibv_sge vrnicdv_range_sge(const struct vrnicdv_range *range, uint32_t offset, uint32_t length)
{
	struct ibv_sge sge;

	sge.addr = (uint64_t)range->number * 4096 + offset;
	sge.length = length;
	sge.lkey = VRNICDV_RANGE_LKEY;
	return sge;
}

/* The parameters that a range is armed with. */
struct vrnicdv_transfer {
	/*
	 * The packet memory: device memory of the queue pair's context, and the first byte in it. NULL and zero
	 * with VRNICDV_TRANSFER_BLOCK.
	 */
	struct ibv_dm *dm;
	uint64_t offset;
	/* Bytes: from 1 to 4096, or to 16 MiB if it is mapped, or a READ through a block. */
	uint32_t length;
	/* Milliseconds until it fails, 1 to 60000. */
	uint32_t time_limit_ms;
	/* enum vrnicdv_transfer_flags */
	uint32_t flags;
};

/* Arms a range for one transfer. Returns 0 or an errno. */
int vrnicdv_arm_range(struct vrnicdv_range *range, const struct vrnicdv_transfer *transfer);

struct vrnicdv_range_state {
	/* Bytes that have been moved. */
	uint32_t count;
	/* 1 if bytes may be moved. */
	uint8_t pci_valid;
	/* 1 if data is awaited, or all bytes have been moved and the work request has not ended. */
	uint8_t adapter_valid;
	/* The cause of a failure by the numbers of ibv_wc.vendor_err, or 0. */
	uint8_t failure;
	uint8_t reserved;
};

/* Returns 0 or an errno. */
int vrnicdv_query_range(struct vrnicdv_range *range, struct vrnicdv_range_state *state);

/* All bytes of a mapped transfer have been moved. Returns 0 or an errno. */
int vrnicdv_range_done(struct vrnicdv_range *range);

/*
 * Posts the work request that ends when all bytes of the range's transfer have been moved; what is
 * after it in the queue waits. Its completion has the opcode IBV_WC_DRIVER1. Flags:
 * IBV_SEND_SIGNALED, IBV_SEND_FENCE. Returns 0 or an errno.
 */
int vrnicdv_post_transfer(struct vrnicdv_range *range, uint64_t wr_id, uint32_t send_flags);

/* The words for marks of a queue pair. */
#define VRNICDV_MARKS 14

/* A work request that ends when a word of its queue pair has a mark. */
struct vrnicdv_await {
	uint64_t wr_id;
	/* IBV_SEND_SIGNALED, IBV_SEND_FENCE */
	uint32_t send_flags;
	/* The number of the word, below VRNICDV_MARKS. */
	uint32_t word;
	/* The mark: from 1 to 0x7fffffff. The words of a new queue pair, or one that was reset, are zero. */
	uint32_t mark;
	/* Milliseconds from its start until it fails, 1 to 60000. */
	uint32_t time_limit_ms;
};

/*
 * Posts this work request. Those after it in the queue wait for it. Its completion has the opcode
 * IBV_WC_DRIVER1. Returns 0 or an errno.
 */
int vrnicdv_post_await(struct ibv_qp *qp, const struct vrnicdv_await *await);

/*
 * Stores a mark in a word. The work request that awaits it then ends, or ends as soon as it begins. It
 * fails if failed is true. Does not enter the kernel. Returns 0 or an errno.
 */
int vrnicdv_mark(struct ibv_qp *qp, uint32_t word, uint32_t mark, bool failed);

#ifdef __cplusplus
}
#endif

#endif
