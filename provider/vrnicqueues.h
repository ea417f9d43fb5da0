/* SPDX-License-Identifier: GPL-2.0 OR MIT
 * The queues of the vrnic adapter in memory, for programs and devices that post work requests and read
 * completions by themselves. vrnicdv_hand_over_qp() and vrnicdv_hand_over_cq() (vrnicdv.h) tell where a
 * queue is. Manual: docs/vrnicdv.md.
 *
 * This header needs no other one of libibverbs. All values are little-endian.
 */
#ifndef INFINIBAND_VRNICQUEUES_H
#define INFINIBAND_VRNICQUEUES_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Memory of the adapter, or of the process that has opened it. */
struct vrnicdv_area {
	/* In that process. */
	void *address;
	/* Bytes. */
	uint64_t length;
	/*
	 * Memory of the adapter: the offset at which mmap(2) of the context's command file (ibv_context.cmd_fd)
	 * maps all of it, with MAP_SHARED. Otherwise zero, or, below vrnic exec, the same for memory of the process.
	 */
	uint64_t offset;
};

/* The doorbell of queues: a page in memory of the adapter, and a register that wakes the adapter. */
struct vrnicdv_doorbell {
	struct vrnicdv_area page;
	struct vrnicdv_area kick;
	/* The bit of VRNICDV_SUMMARY for which the adapter looks at the queues. */
	uint64_t bit;
	/* The value that is stored at the start of kick. */
	uint32_t number;
	uint32_t reserved;
};

enum vrnicdv_words {
	/* Offset in a doorbell's page: 64 bits, in which bits are set by an atomic OR. */
	VRNICDV_SUMMARY = 0,
	/* Offset in a doorbell's page: 32 bits, which are not zero if the adapter must be woken. */
	VRNICDV_ARMED = 64,
};

enum vrnicdv_place {
	/* Memory of the process. The word of the ring posts its entries. */
	VRNICDV_PLACE_PROGRAM = 0,
	/* Memory of the adapter, only of send queues. The stamp of an entry posts it. */
	VRNICDV_PLACE_ADAPTER = 1,
};

/* A ring. Indices have 32 bits and wrap around; an index, modulo the number of entries, is the place of an entry. */
struct vrnicdv_ring {
	/* Begins with the first entry. */
	struct vrnicdv_area memory;
	/* enum vrnicdv_place */
	uint32_t place;
	/* A power of two. */
	uint32_t entries;
	/* Bytes of an entry. */
	uint32_t stride;
	/* Offset in the doorbell's page of the 32 bits with the index after the last entry posted, or read. */
	uint32_t word;
	/* The index of the next entry to post, or to read. */
	uint32_t next;
	/* Work requests before this index have completed. */
	uint32_t freed;
};

/* The kind of data after the header of each entry of a send queue. */
enum vrnicdv_header {
	/* Nothing: RC and UC. */
	VRNICDV_HEADER_CONNECTED = 0,
	/* 48 bytes with the destination: UD (docs/adapter.md, section 6). */
	VRNICDV_HEADER_DATAGRAM = 1,
	/* 16 bytes with the shared receive queue: XRC initiators. */
	VRNICDV_HEADER_XRC = 2,
	/* Nothing: raw packets. */
	VRNICDV_HEADER_RAW = 3,
};

/* The queues of a queue pair that were handed over. Zeroed: a queue that was not. */
struct vrnicdv_qp_layout {
	struct vrnicdv_doorbell doorbell;
	struct vrnicdv_ring send;
	struct vrnicdv_ring recv;
	uint32_t qpn;
	/* enum vrnicdv_header */
	uint32_t header;
};

/* A completion queue that was handed over. */
struct vrnicdv_cq_layout {
	struct vrnicdv_doorbell doorbell;
	struct vrnicdv_ring ring;
	/* The 32 bits after the word of the ring: the last request for an event. */
	uint32_t arm;
	/* 1 for a queue with VRNICDV_CQ_HOLDING: who stores the word must also look at the state, see the manual. */
	uint32_t holding;
};

/* Operations of a send queue; docs/adapter.md, section 6, has the others. */
enum vrnicdv_opcode {
	VRNICDV_OP_SEND = 1,
	VRNICDV_OP_SEND_IMM = 2,
	VRNICDV_OP_WRITE = 3,
	VRNICDV_OP_WRITE_IMM = 4,
	VRNICDV_OP_READ = 5,
	VRNICDV_OP_CMP_SWP = 6,
	VRNICDV_OP_FETCH_ADD = 7,
	/* Only in completions. */
	VRNICDV_OP_RECV = 0x80,
	VRNICDV_OP_RECV_WRITE_IMM = 0x81,
};

enum vrnicdv_wqe_flags {
	/* The request gets a completion. One with an error always does. */
	VRNICDV_WQE_SIGNALED = 1 << 0,
	VRNICDV_WQE_SOLICITED = 1 << 1,
	VRNICDV_WQE_FENCE = 1 << 2,
	/* The data follows the header; count is its number of bytes. */
	VRNICDV_WQE_INLINE = 1 << 3,
};

/* The header of an entry of a send queue. Segments follow, or inline data. */
struct vrnicdv_wqe {
	uint64_t wr_id;
	/* enum vrnicdv_opcode */
	uint8_t opcode;
	/* enum vrnicdv_wqe_flags */
	uint8_t flags;
	/* Segments, or bytes of inline data. */
	uint16_t count;
	uint32_t imm_data;
	uint64_t remote_addr;
	uint32_t rkey;
	/* The index of the entry plus one, if it is in memory of the adapter. Stored last. */
	uint32_t stamp;
};

/* A segment, as struct ibv_sge. */
struct vrnicdv_sge {
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
};

/* The header of an entry of a receive queue. Segments follow. */
struct vrnicdv_recv_wqe {
	uint64_t wr_id;
	uint16_t count;
	uint16_t reserved[3];
};

/* An entry of a completion queue. */
struct vrnicdv_cqe {
	uint64_t wr_id;
	uint32_t qpn;
	uint32_t byte_len;
	uint32_t imm_data;
	uint32_t src_qpn;
	/* Nanoseconds of the adapter's clock. */
	uint64_t timestamp;
	/* All entries up to this index of the queue of this request are free again. */
	uint32_t wqe_index;
	/* The cause of an error (docs/adapter.md, section 5). */
	uint32_t vendor_err;
	uint8_t smac[6];
	uint16_t vlan;
	uint32_t srqn;
	uint32_t key;
	/* enum vrnicdv_opcode */
	uint8_t opcode;
	/* By the numbers of enum ibv_wc_status. Zero: success. */
	uint8_t status;
	uint16_t flags;
	/* The index of the entry plus one, if the adapter has written it. Loaded first. */
	uint32_t stamp;
};

/*
 * Tells the adapter that entries were posted, after they, and the word of the ring, were stored. The first two
 * arguments are where this process has mapped the doorbell.
 */
static inline void vrnicdv_ring_doorbell(void *page, void *kick, uint64_t bit, uint32_t number)
{
	uint64_t *summary = (uint64_t *)((char *)page + VRNICDV_SUMMARY);
	uint32_t *armed = (uint32_t *)((char *)page + VRNICDV_ARMED);

	/* The load must not pass the OR: the adapter stores the second word and then loads the first. */
	__atomic_fetch_or(summary, bit, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(armed, __ATOMIC_SEQ_CST))
		*(volatile uint32_t *)kick = number;
}

/* Returns whether the adapter has written the completion at this index. If so, all of it may be read. */
static inline int vrnicdv_is_complete(const struct vrnicdv_cqe *cqe, uint32_t index)
{
	return __atomic_load_n(&cqe->stamp, __ATOMIC_ACQUIRE) == index + 1;
}

#ifdef __cplusplus
}
#endif

#endif
