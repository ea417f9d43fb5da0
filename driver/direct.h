/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the adapter has beyond verbs, for other modules of the kernel: holding completion queues, options of
 * queue pairs and registrations, direct transfers (docs/direct.md), which are RDMA operations that are
 * posted before another PCI device has moved their data, and that the adapter executes when it has, and TCP
 * and iSCSI by the adapter (docs/streams.md).
 *
 * The queue pairs are kernel clients' own, of a vrnic adapter: a function returns -EINVAL for any
 * other. They must not be destroyed during a call. All functions sleep but vrnic_range_done() and
 * vrnic_mark(), which return -EIO if the adapter has died: nothing is left then that could end,
 * vrnic_command_post() and vrnic_reserve().
 */
#ifndef VRNIC_DIRECT_H
#define VRNIC_DIRECT_H

#include <linux/mutex.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>

struct socket;

/*
 * A flag in struct ib_cq_init_attr for ib_create_cq(): a holding completion queue. When it is full, its
 * completions and the queue pairs that need room wait until the client has polled (docs/adapter.md,
 * section 7). The client gets IB_EVENT_CQ_ERR, once until rdma_set_cq_moderation() is called, and
 * vrnic_cq_state() says whether the queue is full or has failed.
 */
#define VRNIC_CQ_HOLDING (1U << 31)

/*
 * Flags in struct ib_qp_init_attr.create_flags for ib_create_qp(), of queue pairs of reliable connections
 * (docs/adapter.md, section 6). An adapter that does not have one refuses it with -EOPNOTSUPP.
 */
/* A refused REG_MR or LOCAL_INV stops only the send queue (state SQE), not the connection. */
#define VRNIC_QP_REACTIVE (1U << 26)
/* The send queue registers nothing: REG_MR is refused. */
#define VRNIC_QP_NO_SQ_KEYS (1U << 27)
/* The peer reaches no regions. */
#define VRNIC_QP_WINDOWS_ONLY (1U << 28)
/* With iWARP: no SEND or WRITE completes before the peer has acknowledged all of it. */
#define VRNIC_QP_ACKNOWLEDGED (1U << 29)

/* Bits of struct ib_reg_wr.access, beside those of enum ib_access_flags. */
/* The key is valid for one message of the peer. */
#define VRNIC_ACCESS_ONE_TOUCH (1U << 17)
/* The request is refused unless its key is the present one of the region, with the same instance. */
#define VRNIC_ACCESS_SAME_KEY (1U << 18)
/* Nothing is sent from the region. */
#define VRNIC_ACCESS_NO_LOCAL_READ (1U << 19)

enum vrnic_cq_state {
	/* There is room. */
	VRNIC_CQ_ROOM = 0,
	/* Completions wait for room. */
	VRNIC_CQ_FULL = 2,
	/* The queue has failed, and gets no more completions. */
	VRNIC_CQ_FAILED = 3,
};

/*
 * Returns the state of a kernel client's completion queue of a vrnic adapter, -EINVAL for any other, or
 * -EIO if the adapter has died. Can be called in any context.
 */
int vrnic_cq_state(struct ib_cq *cq);

/*
 * Gives a kernel client's completion queue room for at least this many completions, more or fewer than before.
 * None is lost: completions may come and be taken meanwhile, and those that a full holding queue keeps waiting
 * follow. -EINVAL for more than the adapter has, and for fewer than wait to be taken. Calls for one queue must not
 * overlap. It may sleep.
 */
int vrnic_cq_resize(struct ib_cq *cq, u32 entries);

/* The longest transfer of a range in bytes. */
#define VRNIC_RANGE_LEN 4096

enum {
	/* The opcode of a TRANSFER: a struct ib_send_wr without data, whose ex.invalidate_rkey is the
	 * number of the range. It ends when the controller has moved all bytes of the range. */
	VRNIC_WR_TRANSFER = IB_WR_RESERVED1,
	/* The opcode of an AWAIT: a struct ib_rdma_wr without data, whose rkey is a mark, and whose
	 * remote_addr is from vrnic_await_addr(). It ends when vrnic_mark() has stored the mark. */
	VRNIC_WR_AWAIT = IB_WR_RESERVED2,
	/* The opcode of the completions of both. */
	VRNIC_WC_TRANSFER = 0x70,
	/* The words for marks of a queue pair. */
	VRNIC_MARKS = 14,
};

/*
 * What an AWAIT waits for: word is below VRNIC_MARKS, the limit from 1 to 60000 milliseconds. Its mark
 * is any number from 1 to 0x7fffffff that the word does not have yet.
 */
static inline u64 vrnic_await_addr(u32 word, u32 time_limit_ms)
{
	return (u64)word << 32 | time_limit_ms;
}

/*
 * Reports that the controller has moved all bytes for the AWAIT of this mark, which then ends, or that
 * it has failed, and then AWAIT fails. The AWAIT need not have begun. Can be called in any context.
 * Returns -EOPNOTSUPP if the adapter does not support AWAIT.
 */
int vrnic_mark(struct ib_qp *qp, u32 word, u32 mark, bool failed);

/* The packet memory of a transfer. */
enum vrnic_packet_memory {
	/* The client's own, at an address. */
	VRNIC_PACKET_ADDRESS = 0,
	/*
	 * A block of the adapter. Work requests name the range, by segments with this lkey, and a TRANSFER
	 * follows them. If no block is free, the range waits for one.
	 */
	VRNIC_PACKET_BLOCK = 1,
	/* The same, but vrnic_range_arm() returns -ENOSPC if no block is free. */
	VRNIC_PACKET_FREE_BLOCK = 2,
};

/* The lkey of ranges; the address of a byte is the number of its range times VRNIC_RANGE_LEN, plus the offset. */
#define VRNIC_WINDOW_KEY 0xd1

/* The parameters that a range is armed with. */
struct vrnic_transfer {
	/* The bus address of the first byte in packet memory: any part of device memory (see
	 * pci_p2pmem_virt_to_bus()) or of RAM. Zero for a block. */
	u64 memory;
	/* Bytes, at least one. At most VRNIC_RANGE_LEN if the adapter counts them, but a READ through a block
	 * may be longer. */
	u32 length;
	/* Milliseconds until the transfer fails if it is not complete, 1 to 60000. */
	u32 time_limit_ms;
	/* True for a WRITE, which sends the data; false for a READ, which fetches it. */
	bool write;
	/* The controller uses the window, and the adapter counts the bytes. Else it has the address of the
	 * packet memory, and vrnic_range_done() tells when it has moved all bytes. */
	bool counted;
	/* A read of the window whose data is not there gets ones at once, and the transfer fails. Else it may
	 * wait for up to 250 ms, and the virtual machine with it. */
	bool at_once;
	/* enum vrnic_packet_memory; one with a block is counted. */
	u8 packet_memory;
};

/* The state of a range. */
struct vrnic_range_state {
	/* Bytes that the controller has moved. */
	u32 count;
	/* The controller may move bytes. */
	bool pci_valid;
	/* Data is awaited from the peer, or all bytes have been moved and TRANSFER has not ended. */
	bool adapter_valid;
	/* The cause of a failure, by the numbers of vendor_err (docs/adapter.md), else zero. */
	u8 failure;
};

/* Returns the number of a free range, which belongs to the queue pair until it is put or the queue pair
 * is destroyed; -ENOSPC if there is none. */
int vrnic_range_get(struct ib_qp *qp);
/* Ends the transfer of a range, which is free afterwards. Its TRANSFER, if there is one, fails. On
 * return no more bytes are moved into its packet memory through the window. */
int vrnic_range_put(struct ib_qp *qp, u32 range);
/* Arms a range for one transfer; -EBUSY or -EINVAL if it takes part in one. */
int vrnic_range_arm(struct ib_qp *qp, u32 range, const struct vrnic_transfer *transfer);
int vrnic_range_query(struct ib_qp *qp, u32 range, struct vrnic_range_state *state);
/* Reports that the controller has moved all bytes of a range that is not counted. Can be called in any
 * context. */
int vrnic_range_done(struct ib_qp *qp, u32 range);

/*
 * Returns the kernel's address of a range in the window. Its page has a page struct of PCI peer-to-peer memory,
 * so that it can be given to the driver of a disk in a bio; the processor does not access it. Returns an error
 * pointer: -EOPNOTSUPP if the kernel has not accepted the window.
 */
void *vrnic_range_page(struct ib_qp *qp, u32 range);

/*
 * The connection of a queue pair of an iWARP adapter, whoever has made it (docs/streams.md, "How a connection
 * ends"). The functions return -ENOTCONN without a connection, and -EOPNOTSUPP with RoCE.
 */
enum vrnic_connection_status {
	VRNIC_CONNECTION_IDLE = 0,
	VRNIC_CONNECTION_RTS = 1,
	VRNIC_CONNECTION_CLOSING = 2,
	VRNIC_CONNECTION_TERMINATE = 3,
	VRNIC_CONNECTION_ERROR = 4,
};

enum vrnic_connection_events {
	/* The peer has closed its direction (FIN). */
	VRNIC_CONNECTION_GRACEFUL_DISCONNECT = 1,
	/* A reset by either end, or no answer. */
	VRNIC_CONNECTION_ABORTIVE_DISCONNECT = 2,
	/* Both directions are closed, without an error. */
	VRNIC_CONNECTION_CLOSED = 4,
	/* An error occurred while it was being closed without one. */
	VRNIC_CONNECTION_BAD_CLOSE = 8,
	VRNIC_CONNECTION_TERMINATE_SENT = 16,
	VRNIC_CONNECTION_TERMINATE_RECEIVED = 32,
	/* The connection has left the adapter. */
	VRNIC_CONNECTION_RELEASED = 256,
};

struct vrnic_connection {
	/* enum vrnic_connection_status */
	u32 status;
	/* enum vrnic_connection_events: what has happened so far. */
	u32 events;
	/* READs and atomics of the peer that are served at a time, and that are outstanding at a time. */
	u32 ird;
	u32 ord;
};

enum vrnic_connection_end {
	/* Closes the local direction; -EBUSY with a work request outstanding. */
	VRNIC_CONNECTION_CLOSE = 1,
	/* Resets it. */
	VRNIC_CONNECTION_ABORT = 2,
	/* Takes it off the adapter as soon as it is closed on both sides, or has ended. */
	VRNIC_CONNECTION_RELEASE = 3,
	/* Makes the queue pair, which is in the state ERR, as new (INIT). */
	VRNIC_CONNECTION_MAKE_IDLE = 4,
	/* The same, for a client that destroys the queue pair if this is not possible now. */
	VRNIC_CONNECTION_MAKE_IDLE_NOW = 5,
};

int vrnic_connection_query(struct ib_qp *qp, struct vrnic_connection *connection);
/*
 * Calls changed(context) at once, and whenever the status or the events have changed; NULL: not any more, and
 * it does not run when this returns. It may sleep, and may use the other functions, but not destroy the queue
 * pair. It ends with the queue pair: it does not run when ib_destroy_qp() has returned.
 * vrnic_rdma_start() takes it along to the queue pair that gets the connection, with which it ends then.
 */
int vrnic_connection_watch(struct ib_qp *qp, void (*changed)(void *context), void *context);
/*
 * limit_ms: milliseconds after which a connection that is being closed is reset, at most 60000; zero for the
 * driver's limit, and of the others. Returns 0, 1 if it is not possible yet (an event follows a RELEASE; ask
 * again for MAKE_IDLE), or 2 if MAKE_IDLE_NOW has given up.
 */
int vrnic_connection_end(struct ib_qp *qp, u32 how, u32 limit_ms);

/*
 * Streams (docs/streams.md, "Kernel clients"). ib_create_qp() with IB_QPT_DRIVER makes a queue pair of an
 * iWARP adapter that carries the bytes of a TCP connection. It has no shared receive queue. Its work requests
 * are IB_WR_SEND and receives; max_send_sge is at most 14.
 */

/*
 * Gives the connection of a connected TCP socket to the queue pair, with the bytes that were received and
 * not read. On success the socket belongs to the driver, which releases it when the connection has left the
 * adapter. Otherwise nothing has changed; the errors are listed in docs/streams.md. -EAGAIN: bytes are under
 * way, try again.
 */
int vrnic_stream_attach(struct ib_qp *qp, struct socket *sock);

/*
 * From bytes to RDMA (docs/streams.md, "From bytes to RDMA"): the four calls of programs, for kernel clients. Call 1
 * is vrnic_reserve(), call 2 vrnic_rdma_start(), and calls 3 and 4 are the last sends of the stream and the first
 * receive of the new queue pair.
 */

/* A completion queue that the queue pairs of reservations share. */
struct vrnic_shared_cq {
	struct ib_cq *cq;
	/* Queue pairs that may use it at a time. */
	u32 max_qps;
	/* The driver's: queue pairs and the entries that they may need. */
	u32 qps;
	u32 entries;
	struct mutex lock;
};

/* Lets up to max_qps reservations share a completion queue, which nothing else uses. */
static inline void vrnic_share_cq(struct vrnic_shared_cq *shared, struct ib_cq *cq, u32 max_qps)
{
	shared->cq = cq;
	shared->max_qps = max_qps;
	shared->qps = 0;
	shared->entries = 0;
	mutex_init(&shared->lock);
}

enum vrnic_reservation_reason {
	VRNIC_RESERVED = 0,
	/* The client may ask again, with would_do. */
	VRNIC_RESERVE_IRD_TOO_LARGE = 1,
	VRNIC_RESERVE_ORD_TOO_LARGE = 2,
	VRNIC_RESERVE_CQ_TOO_LARGE = 3,
	/* There will be no RDMA on the connection. */
	VRNIC_RESERVE_NO_RNIC = 4,
	VRNIC_RESERVE_NO_PD = 5,
	VRNIC_RESERVE_NO_QP = 6,
	VRNIC_RESERVE_NO_CONNECTION = 7,
};

/* What a connection needs for RDMA. */
struct vrnic_reservation {
	/* The queue pair that has the connection. */
	struct ib_qp *stream;
	/* NULL: one of its own, which is here then. */
	struct ib_pd *pd;
	/* NULL, or if it may have no more queue pairs or cannot grow: a completion queue of its own. */
	struct vrnic_shared_cq *shared;
	/* How completions of a queue of its own are taken, as for ib_alloc_cq(). */
	enum ib_poll_context poll;
	/* READs and atomics of the peer that are served at a time, and that are outstanding at a time. */
	u32 ird;
	u32 ord;
	/* The rights of the peer: enum ib_access_flags. */
	int access;
	/* As for ib_create_qp(). */
	u32 create_flags;
	void (*event_handler)(struct ib_event *event, void *context);
	void *qp_context;
	/* The sizes of the queues; then the actual ones. */
	struct ib_qp_cap cap;
	/*
	 * Called in a work item when it is decided, with 0 or a negative errno; the reservation may be freed then.
	 * Until then it and the stream's queue pair must stay, and vrnic_reserve() must not be called for it again. A
	 * module that ends waits for the work item (flush_work()), not only for this call.
	 */
	void (*done)(struct vrnic_reservation *reservation, int err);

	/* enum vrnic_reservation_reason, and the value that would do, if there is one. */
	u32 reason;
	u32 would_do;
	/* What was made: the domain, the completion queue, and the queue pair, in INIT, which completes to cq. */
	bool new_pd;
	bool new_cq;
	struct ib_qp *qp;
	struct ib_cq *cq;
	/* The driver's: the work item, and the entries of a shared completion queue that it may need. */
	struct work_struct work;
	u32 entries;
};

/* Reserves what a connection needs, without waiting. If it fails, nothing has been made. Can be called in any context. */
void vrnic_reserve(struct vrnic_reservation *reservation);

/*
 * Destroys the queue pair of a reservation, and what was made for it. Returns 0 or a negative errno, after which it is
 * all there still. The queue pair has no requests outstanding (ib_drain_qp()), and those of a shared completion queue
 * have been taken.
 */
int vrnic_release(struct vrnic_reservation *reservation);

/* What both ends have agreed on by bytes (RFC 5044, 7.1). */
struct vrnic_rdma_terms {
	u32 ird;
	u32 ord;
	/* FPDUs of both directions have CRCs. */
	bool crc;
	/* The peer sends the first message. */
	bool peer_first;
	/* This end sends, and receives, markers. */
	bool send_markers;
	bool receive_markers;
	/* Bytes that the client has received and that belong to messages, at most 256 KiB. */
	const void *received;
	u32 received_len;
};

/*
 * Begins RDMA on the connection of stream: rdma, of type RC and in INIT, gets the connection when it has a receive and
 * all bytes that were sent are acknowledged. The receives of stream complete at once. -EINVAL if a number is out of
 * range or a queue pair of the wrong kind or state, -ENOTCONN if stream has no connection, -EISCONN if rdma has one,
 * -EMSGSIZE for too many received bytes; nothing has changed then. Otherwise the connection never carries bytes again.
 */
int vrnic_rdma_start(struct ib_qp *stream, struct ib_qp *rdma, const struct vrnic_rdma_terms *terms);

/* What an iSCSI initiator and its target have negotiated (RFC 7143); lengths are 512 to 16777215. */
struct vrnic_iscsi {
	/* MaxRecvDataSegmentLength of this end, and of the target. */
	u32 max_receive;
	u32 max_send;
	/* MaxBurstLength */
	u32 max_burst;
	/* HeaderDigest and DataDigest are CRC32C. */
	bool header_digest;
	bool data_digest;
	/* The target is a disk: commands whose operation is not one of a disk are refused. */
	bool disk;
};

/*
 * Lets the stream that the queue pair gets next consist of iSCSI PDUs after login, of which this end is the
 * initiator. An IB_WR_SEND is then one PDU without padding and digests, and each PDU that arrives completes
 * one receive.
 */
int vrnic_stream_iscsi(struct ib_qp *qp, const struct vrnic_iscsi *iscsi);

/* What the adapter has counted for such a stream, in PDUs. */
struct vrnic_iscsi_counters {
	/* All that have arrived, and those that went to a receive with all of their bytes. */
	u64 received;
	u64 whole;
	/* Data-In PDUs whose data was placed in the buffer of their command. */
	u64 placed;
	/* R2Ts that were answered, and the Data-Out PDUs for them. */
	u64 served;
	u64 data_out;
	/* Data-In PDUs and R2Ts that have failed a check, and responses without a command, which were dropped. */
	u64 refused;
	u64 dropped;
};

/* Stores the counters; -ENOTCONN without a connection. */
int vrnic_stream_count(struct ib_qp *qp, struct vrnic_iscsi_counters *counters);

/* A SCSI command of an iSCSI initiator. */
struct vrnic_command {
	/* In the completion, whose opcode is VRNIC_WC_COMMAND and whose ex.invalidate_rkey is the initiator
	 * task tag. It comes when the target has acknowledged the PDU, or when the command was refused. */
	struct ib_cqe *wr_cqe;
	/* The header of the PDU, additional headers, and immediate data; the adapter sets the task tag. */
	struct ib_sge message;
	/*
	 * The buffer: length bytes, from the byte at offset of the first page on, in pages of 4 KiB. pages
	 * is the DMA address of a list of their DMA addresses, little-endian, 8 bytes each, at most 512. The
	 * list must not change before the completion.
	 */
	u64 pages;
	u32 offset;
	u32 length;
	/* IB_ACCESS_REMOTE_WRITE if the target sends data, IB_ACCESS_REMOTE_READ if it asks for data, or 0. */
	u32 access;
};

/*
 * Posts a command and stores its Command ID, which the receives name that belong to it. The target can use
 * the buffer until a response has arrived, or vrnic_command_end() has returned. Can be called in any context.
 */
int vrnic_command_post(struct ib_qp *qp, const struct vrnic_command *command, u32 *id);

/* Ends a command that has got no response, by its task tag; -ENOENT if there is no such command. */
int vrnic_command_end(struct ib_qp *qp, u32 tag);

enum {
	/* The opcode of completions of commands. */
	VRNIC_WC_COMMAND = 0x71,
	/* A flag of receives (wc_flags): the adapter has executed the PDU for a command, whose Command ID is
	 * in ex.invalidate_rkey. Without it, vendor_err says which check of the PDU has failed, if any. */
	VRNIC_WC_EXECUTED = 1 << 28,
	/* With it: the PDU is the response, and the command has ended. */
	VRNIC_WC_ENDED = 1 << 29,
};

#endif
