/* SPDX-License-Identifier: GPL-2.0 OR MIT
 * Direct verbs of the vrnic adapter, which libibverbs does not offer.
 *
 * The functions are in the plugin, libvrnic.so.1, which libibverbs loads with the first device. Each
 * function fails with EOPNOTSUPP if its object is not of a vrnic device. Manual: docs/vrnicdv.md.
 */
#ifndef INFINIBAND_VRNICDV_H
#define INFINIBAND_VRNICDV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns whether a device is a vrnic adapter. */
bool vrnicdv_is_supported(struct ibv_device *device);

enum vrnicdv_qp_flags {
	/* A refused memory operation stops only the send queue (state SQE), not the connection. */
	VRNICDV_QP_REACTIVE = 1 << 0,
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

enum vrnicdv_cq_flags {
	/*
	 * The driver chooses a completion vector with few recent events. The verbs' attributes must
	 * name vector 0.
	 */
	VRNICDV_CQ_ANY_VECTOR = 1 << 0,
};

/* Attributes that ibv_create_cq_ex() lacks. Zeroed: a plain completion queue. */
struct vrnicdv_cq_attr {
	/* enum vrnicdv_cq_flags */
	uint32_t flags;
	/* On return: the completion vector that the queue is bound to. */
	uint32_t comp_vector;
};

/* Creates a completion queue. Returns NULL with errno set on failure. */
struct ibv_cq_ex *vrnicdv_create_cq(struct ibv_context *context, struct ibv_cq_init_attr_ex *init_attr,
				    struct vrnicdv_cq_attr *attr);

enum vrnicdv_mem_flags {
	/* The key is valid for one message of the peer. */
	VRNICDV_MEM_ONE_TOUCH = 1 << 0,
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

#ifdef __cplusplus
}
#endif

#endif
