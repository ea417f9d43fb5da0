/* SPDX-License-Identifier: GPL-2.0 */
/*
 * vrnic_iscsi: a transport of the kernel's iSCSI initiator (scsi_transport_iscsi) whose PDUs a vrnic adapter moves
 * (docs/storage.md).
 *
 * transport.c	what scsi_transport_iscsi and libiscsi call: sessions, connections, parameters, tasks
 * endpoint.c	connections: connecting, the handover to the adapter, and the end
 * socket.c	PDUs of the login, which pass the socket of a connection
 * link.c	the queue pair of a connection, and the memory that the adapter uses
 * send.c	PDUs that leave by the queue pair
 * receive.c	PDUs that arrive by it
 */
#ifndef VRNIC_STORAGE_H
#define VRNIC_STORAGE_H

#include <linux/hashtable.h>
#include <linux/mutex.h>
#include <linux/wait.h>
#include <rdma/ib_verbs.h>
#include <scsi/libiscsi.h>
#include <scsi/scsi_transport_iscsi.h>

/* The driver's number in struct ib_device_ops (RDMA_DRIVER_ID of the crate abi). */
#define STORAGE_DRIVER_ID 0x76726e69
/* Tasks of a session, at most: a power of two, as libiscsi has it. */
#define STORAGE_MAX_TASKS 256
/* Requests beyond those, for tasks that have ended before the send queue has completed their requests. */
#define STORAGE_SPARE 16
#define STORAGE_RECEIVES 256
/* Bytes of a receive: headers, and the sense data of a response. */
#define STORAGE_RECEIVE_LEN 512
/* The data of a command: 1 MiB, which need not begin at a page. */
#define STORAGE_MAX_SECTORS 2048
#define STORAGE_MAX_PAGES 257
/* The place of the header in the page of a request. Before it is the list of the pages of the data. */
#define STORAGE_HEADER_AT 3072
/* The longest wait for the target's TCP to acknowledge a request. */
#define STORAGE_PATIENCE (10 * HZ)

struct storage_link;

/* A request of the send queue. A field is protected by the lock of the link, and page and at do not change. */
struct storage_slot {
	struct ib_cqe cqe;
	struct storage_link *link;
	/* In the list of free ones, if it is neither posted nor live. */
	struct list_head free;
	/* In the table of live ones, by id. */
	struct hlist_node node;
	/* The task of a live command. */
	struct iscsi_task *task;
	/* A page for the list of the data's pages and for the header, and its DMA address. */
	void *page;
	dma_addr_t at;
	/* The Command ID, and the task tag on the wire, which is known as soon as has_tag is set. */
	u32 id;
	u32 tag;
	bool has_tag;
	/* The send queue has it. */
	bool is_posted;
	/* It is a command, and the target may use its data. */
	bool is_live;
};

/* A receive. */
struct storage_receive {
	struct ib_cqe cqe;
	struct storage_link *link;
	void *bytes;
	dma_addr_t at;
};

/* What belongs to a session of libiscsi. */
struct storage_session {
	/* libiscsi fails the tasks of the whole session when a connection stops, so there is one only. */
	bool has_conn;
};

/* What belongs to a task of libiscsi. */
struct storage_task {
	struct iscsi_hdr header;
	struct iscsi_task *task;
	/* The live command, under the lock of its link. */
	struct storage_slot *slot;
	/* The link for whose device the data is mapped, or NULL, and the place in its list. */
	struct storage_link *link;
	struct list_head mapped;
};

/* The queue pair of a connection that the adapter has. */
struct storage_link {
	struct iscsi_conn *conn;
	struct ib_device *device;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_qp *qp;
	u32 lkey;
	/* The adapter has the connection. Protected by the lock of the endpoint. */
	bool is_attached;
	/* Held by who uses the queue pair and may sleep, and by who destroys it. */
	struct mutex qp_lock;
	/* Protects what follows, and the slots. Taken after the back_lock of the session. */
	spinlock_t lock;
	/* The queue pair can be used. */
	bool is_open;
	struct list_head free;
	struct list_head mapped;
	DECLARE_HASHTABLE(live, 8);
	/* Something has changed for which a task may wait. */
	wait_queue_head_t wait;
	/* The last request about tasks, as libiscsi has made it, and its tag, or RESERVED_ITT if it has its answer. */
	struct iscsi_tm tmf;
	itt_t tmf_itt;
	struct storage_receive receives[STORAGE_RECEIVES];
	u32 slots_len;
	struct storage_slot slots[] __counted_by(slots_len);
};

struct storage_adapter;

/* An endpoint of scsi_transport_iscsi: a connection. */
struct storage_endpoint {
	/* One user is the list. */
	refcount_t users;
	/* Protected by storage_mutex. */
	struct list_head list;
	struct iscsi_endpoint *ep;
	struct sockaddr_storage address;
	/* The adapter that has, or has had, the connection. Protected by storage_mutex. */
	struct storage_adapter *adapter;
	/* Held as long as the connection begins, goes to the adapter, or ends. Taken before storage_mutex. */
	struct mutex lock;
	/* Its connection of libiscsi, if it is bound. Changed with both locks held. */
	struct iscsi_conn *conn;
	/*
	 * Changed with the lock held. Threads that send and read use them without it, and the changes wait for these.
	 * sock is NULL when the adapter has the connection.
	 */
	struct socket *sock;
	struct storage_link *link;
	/* Reads PDUs from the socket as long as answers are expected. */
	struct work_struct reading;
	atomic_t expected;
	/* It is being ended, so that an error of the socket is none. */
	bool is_over;
	struct iscsi_hdr header;
	u8 data[ISCSI_DEF_MAX_RECV_SEG_LEN];
};

/* Where readers run. */
extern struct workqueue_struct *storage_readers;

int storage_endpoints_init(void);
void storage_endpoints_exit(void);
struct iscsi_endpoint *storage_ep_connect(struct Scsi_Host *host, struct sockaddr *address, int non_blocking);
int storage_ep_poll(struct iscsi_endpoint *ep, int timeout_ms);
void storage_ep_disconnect(struct iscsi_endpoint *ep);
int storage_get_ep_param(struct iscsi_endpoint *ep, enum iscsi_param param, char *buf);
/* Returns what belongs to an endpoint until storage_put(), or NULL if it is one of another transport. */
struct storage_endpoint *storage_get(struct iscsi_endpoint *ep);
void storage_put(struct storage_endpoint *endpoint);
/* Binds an endpoint to a connection of libiscsi. */
int storage_bind(struct storage_endpoint *endpoint, struct iscsi_cls_conn *cls_conn, bool is_leading);
/* Gives the socket of a connection to the adapter by which the target is reached. */
int storage_hand_over(struct iscsi_conn *conn);
/* Lets nothing wait for the connection any more. Nothing is sent from now on. */
void storage_stop(struct iscsi_conn *conn);
/* Ends the connection. Its data is not used on return. */
void storage_end(struct iscsi_conn *conn);

/* Reads PDUs from the socket of an endpoint. */
void storage_read_socket(struct work_struct *work);
/* Sends a PDU by the socket. */
int storage_send_by_socket(struct storage_endpoint *endpoint, struct iscsi_task *task);

struct storage_link *storage_link_create(struct ib_device *device, struct iscsi_conn *conn);
/* Lets nothing wait for the link any more, and nothing be posted. */
void storage_link_stop(struct storage_link *link);
/* Destroys the queue pair, if it was not destroyed. On return the adapter uses none of the memory of commands. */
void storage_link_close(struct storage_link *link);
/* Frees a link that was closed. */
void storage_link_free(struct storage_link *link);
/* Tells libiscsi that the connection has failed, as long as the link is open. */
void storage_link_fail(struct storage_link *link, enum iscsi_err err);
int storage_post_receive(struct storage_receive *receive);
/* Makes a command not live, with the lock held. */
void storage_unlive(struct storage_slot *slot);
/* Frees a slot, with the lock held, if nothing uses it. */
void storage_release(struct storage_slot *slot);

int storage_send_command(struct storage_link *link, struct iscsi_task *task);
int storage_send_control(struct storage_link *link, struct iscsi_task *task);
/* Unmaps the data of a task, if it is mapped, with the back_lock of the session held. */
void storage_unmap(struct iscsi_task *task);
/* Handlers of completions. */
void storage_sent(struct ib_cq *cq, struct ib_wc *wc);
void storage_received(struct ib_cq *cq, struct ib_wc *wc);

#endif
