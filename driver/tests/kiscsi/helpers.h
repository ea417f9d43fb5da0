/* SPDX-License-Identifier: GPL-2.0 */
/* Sockets, parameters, and the SCSI layer, for vrnic_kiscsi. */
#ifndef VRNIC_KISCSI_HELPERS_H
#define VRNIC_KISCSI_HELPERS_H

#include <linux/types.h>
#include <rdma/ib_verbs.h>

struct socket;
/* The kernel's struct Scsi_Host and struct scsi_cmnd. */
struct kiscsi_host;
struct kiscsi_cmnd;

/* The parameters that are strings: "ADDRESS:PORT", and two iSCSI names. */
const char *kiscsi_portal(void);
const char *kiscsi_target(void);
const char *kiscsi_initiator(void);

/* Connects to a portal. Sending and receiving then take at most timeout_ms each. */
struct socket *kiscsi_connect(const char *portal, u32 timeout_ms);
/* Sends or receives all bytes; -ECONNRESET if the peer has closed the connection before. */
int kiscsi_send(struct socket *sock, const void *bytes, size_t length);
int kiscsi_receive(struct socket *sock, void *bytes, size_t length);
void kiscsi_close(struct socket *sock);

/* Takes at most count completions, and asks for an event. The latter returns 1 if some may have come before. */
int kiscsi_poll(struct ib_cq *cq, int count, struct ib_wc *wcs);
int kiscsi_arm(struct ib_cq *cq);

/* What a SCSI command consists of, besides the list of its pages. */
struct kiscsi_io {
	u8 cdb[16];
	u8 lun[8];
	/* Bytes of data, and the offset of the first one in its page. */
	u32 length;
	u32 offset;
	/* True if the target sends data, or asks for data. */
	bool reads;
	bool writes;
};

/* A host whose target takes this many commands at a time. session is what the functions below get. */
struct kiscsi_host *kiscsi_host_new(struct ib_device *device, void *session, u32 commands);
/* Shows its disks. */
int kiscsi_host_add(struct kiscsi_host *host, struct ib_device *device);
/* Ends it. On return there are no commands, and no function below is called. */
void kiscsi_host_remove(struct kiscsi_host *host);
/* Frees a host that was not added, or was removed. */
void kiscsi_host_put(struct kiscsi_host *host);

/*
 * Maps the data of a command for the device of its host, and lists the addresses of its pages in `list`, which has
 * room for `max`. Can be called in any context.
 */
int kiscsi_map(struct kiscsi_cmnd *cmnd, u64 *list, u32 max, struct kiscsi_io *io);
void kiscsi_unmap(struct kiscsi_cmnd *cmnd);
/* Ends a command that was unmapped. host is a host byte (DID_OK and so on). */
void kiscsi_done(struct kiscsi_cmnd *cmnd, u8 host, u8 status, u32 residual, const void *sense, u32 length);

enum {
	KISCSI_OK,
	/* The target cannot be reached. */
	KISCSI_NO_CONNECT,
	/* To be tried again. */
	KISCSI_REQUEUE,
	KISCSI_ERROR,
};

/* These are in Rust. Queues a command in any context; 0, or an error to try it again later. */
int kiscsi_queue(void *session, struct kiscsi_cmnd *cmnd, u32 tag);
/* Ends a command that takes too long; 0 if it is not in use any more. */
int kiscsi_abort(void *session, struct kiscsi_cmnd *cmnd, u32 tag);
/* Ends all commands, and makes a new connection; 0 if there is one. */
int kiscsi_reset(void *session);

#endif
