// SPDX-License-Identifier: GPL-2.0
/* The queue pair of a connection, and the memory that the adapter uses for it. See storage.h. */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/dma-mapping.h>
#include <linux/slab.h>

#include "../direct.h"
#include "storage.h"

#define RECEIVES_IN_PAGE (PAGE_SIZE / STORAGE_RECEIVE_LEN)

/* Allocates a page for each slot, and pages for the receives. */
static int allocate(struct storage_link *link)
{
	for (u32 nth = 0; nth < link->slots_len; nth++)
		link->slots[nth].link = link;
	for (u32 nth = 0; nth < link->slots_len; nth++) {
		struct storage_slot *slot = &link->slots[nth];

		slot->page = dma_alloc_coherent(link->device->dma_device, PAGE_SIZE, &slot->at, GFP_KERNEL);
		if (!slot->page)
			return -ENOMEM;
		slot->cqe.done = storage_sent;
		list_add_tail(&slot->free, &link->free);
	}
	for (u32 nth = 0; nth < STORAGE_RECEIVES; nth++) {
		struct storage_receive *receive = &link->receives[nth];

		if (nth % RECEIVES_IN_PAGE) {
			receive->bytes = receive[-1].bytes + STORAGE_RECEIVE_LEN;
			receive->at = receive[-1].at + STORAGE_RECEIVE_LEN;
		} else {
			receive->bytes = dma_alloc_coherent(link->device->dma_device, PAGE_SIZE, &receive->at,
							    GFP_KERNEL);
			if (!receive->bytes)
				return -ENOMEM;
		}
		receive->link = link;
		receive->cqe.done = storage_received;
	}
	return 0;
}

static void free_pages_of(struct storage_link *link)
{
	struct device *device = link->device->dma_device;

	for (u32 nth = 0; nth < link->slots_len; nth++)
		if (link->slots[nth].page)
			dma_free_coherent(device, PAGE_SIZE, link->slots[nth].page, link->slots[nth].at);
	for (u32 nth = 0; nth < STORAGE_RECEIVES; nth += RECEIVES_IN_PAGE)
		if (link->receives[nth].bytes)
			dma_free_coherent(device, PAGE_SIZE, link->receives[nth].bytes, link->receives[nth].at);
}

/* Creates the queue pair. Whatever it leaves is for storage_link_close(). */
static int create_qp(struct storage_link *link)
{
	struct ib_qp_init_attr init = {
		.qp_type = IB_QPT_DRIVER, .sq_sig_type = IB_SIGNAL_REQ_WR,
		.cap = {
			.max_send_wr = link->slots_len, .max_recv_wr = STORAGE_RECEIVES,
			.max_send_sge = 1, .max_recv_sge = 1,
		},
	};

	link->pd = ib_alloc_pd(link->device, 0);
	if (IS_ERR(link->pd))
		return PTR_ERR(link->pd);
	link->lkey = link->pd->local_dma_lkey;
	link->cq = ib_alloc_cq_any(link->device, link, link->slots_len + STORAGE_RECEIVES, IB_POLL_WORKQUEUE);
	if (IS_ERR(link->cq))
		return PTR_ERR(link->cq);
	init.send_cq = link->cq;
	init.recv_cq = link->cq;
	link->qp = ib_create_qp(link->pd, &init);
	if (IS_ERR(link->qp))
		return PTR_ERR(link->qp);
	link->is_open = true;
	return 0;
}

/* Tells the adapter what the login has agreed on, and posts the receives. */
static int prepare(struct storage_link *link)
{
	struct iscsi_conn *conn = link->conn;
	struct vrnic_iscsi terms = {
		.max_receive = conn->max_recv_dlength,
		.max_send = conn->max_xmit_dlength,
		.max_burst = conn->session->max_burst,
		.header_digest = conn->hdrdgst_en,
		.data_digest = conn->datadgst_en,
	};
	int err = vrnic_stream_iscsi(link->qp, &terms);

	for (u32 nth = 0; !err && nth < STORAGE_RECEIVES; nth++)
		err = storage_post_receive(&link->receives[nth]);
	return err;
}

struct storage_link *storage_link_create(struct ib_device *device, struct iscsi_conn *conn)
{
	u32 slots = conn->session->cmds_max + STORAGE_SPARE;
	struct storage_link *link = kvzalloc(struct_size(link, slots, slots), GFP_KERNEL);
	int err;

	if (!link)
		return ERR_PTR(-ENOMEM);
	link->slots_len = slots;
	link->conn = conn;
	link->device = device;
	link->tmf_itt = RESERVED_ITT;
	mutex_init(&link->qp_lock);
	spin_lock_init(&link->lock);
	INIT_LIST_HEAD(&link->free);
	INIT_LIST_HEAD(&link->mapped);
	hash_init(link->live);
	init_waitqueue_head(&link->wait);
	err = allocate(link) ?: create_qp(link) ?: prepare(link);
	if (!err)
		return link;
	storage_link_close(link);
	storage_link_free(link);
	return ERR_PTR(err);
}

/* Unmaps the data of all tasks, which the adapter does not use any more, and takes their commands from them. */
static void forget_tasks(struct storage_link *link)
{
	struct iscsi_session *session = link->conn->session;
	struct storage_task *own, *next;

	spin_lock_bh(&session->back_lock);
	list_for_each_entry_safe(own, next, &link->mapped, mapped)
		storage_unmap(own->task);
	spin_lock(&link->lock);
	for (u32 nth = 0; nth < link->slots_len; nth++)
		storage_unlive(&link->slots[nth]);
	spin_unlock(&link->lock);
	spin_unlock_bh(&session->back_lock);
}

void storage_link_stop(struct storage_link *link)
{
	spin_lock_bh(&link->lock);
	link->is_open = false;
	spin_unlock_bh(&link->lock);
	wake_up_all(&link->wait);
}

void storage_link_close(struct storage_link *link)
{
	if (!link->device)
		return;
	mutex_lock(&link->qp_lock);
	storage_link_stop(link);
	/* A task that is being sent may use the memory below. */
	if (link->is_attached)
		iscsi_suspend_tx(link->conn);
	if (!IS_ERR_OR_NULL(link->qp))
		ib_destroy_qp(link->qp);
	link->qp = NULL;
	mutex_unlock(&link->qp_lock);
	/* On return no handler of completions runs. */
	if (!IS_ERR_OR_NULL(link->cq))
		ib_free_cq(link->cq);
	link->cq = NULL;
	forget_tasks(link);
	if (!IS_ERR_OR_NULL(link->pd))
		ib_dealloc_pd(link->pd);
	free_pages_of(link);
	link->pd = NULL;
	link->device = NULL;
	/* It may end before the link is freed. */
	link->conn = NULL;
}

void storage_link_free(struct storage_link *link)
{
	kvfree(link);
}

void storage_link_fail(struct storage_link *link, enum iscsi_err err)
{
	if (READ_ONCE(link->is_open))
		iscsi_conn_failure(link->conn, err);
}

int storage_post_receive(struct storage_receive *receive)
{
	struct storage_link *link = receive->link;
	struct ib_sge sge = { .addr = receive->at, .length = STORAGE_RECEIVE_LEN, .lkey = link->lkey };
	struct ib_recv_wr wr = { .wr_cqe = &receive->cqe, .sg_list = &sge, .num_sge = 1 };
	int err = -ENOTCONN;

	spin_lock_bh(&link->lock);
	if (link->is_open)
		err = ib_post_recv(link->qp, &wr, NULL);
	spin_unlock_bh(&link->lock);
	return err;
}

void storage_release(struct storage_slot *slot)
{
	lockdep_assert_held(&slot->link->lock);
	if (slot->is_posted || slot->is_live)
		return;
	list_add_tail(&slot->free, &slot->link->free);
	wake_up_all(&slot->link->wait);
}

void storage_unlive(struct storage_slot *slot)
{
	lockdep_assert_held(&slot->link->lock);
	if (!slot->is_live)
		return;
	((struct storage_task *)slot->task->dd_data)->slot = NULL;
	slot->task = NULL;
	slot->is_live = false;
	hash_del(&slot->node);
	storage_release(slot);
}
