// SPDX-License-Identifier: GPL-2.0
/* PDUs that leave by the queue pair, and the data of commands. See storage.h. */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <scsi/scsi_cmnd.h>

#include "../direct.h"
#include "storage.h"

/* Attempts to map data without memory for it, and milliseconds between them. */
#define ATTEMPTS 100
#define ATTEMPT_MS 10

static struct storage_slot *pop(struct storage_link *link)
{
	struct storage_slot *slot = NULL;

	spin_lock_bh(&link->lock);
	if (link->is_open)
		slot = list_first_entry_or_null(&link->free, struct storage_slot, free);
	if (slot)
		list_del(&slot->free);
	spin_unlock_bh(&link->lock);
	return slot;
}

/* Returns a free slot, for which it waits, or NULL if the connection has ended or the target acknowledges nothing. */
static struct storage_slot *take_slot(struct storage_link *link)
{
	struct storage_slot *slot = NULL;

	wait_event_timeout(link->wait, (slot = pop(link)) || !READ_ONCE(link->is_open), STORAGE_PATIENCE);
	return slot;
}

static void put_slot(struct storage_slot *slot)
{
	spin_lock_bh(&slot->link->lock);
	storage_release(slot);
	spin_unlock_bh(&slot->link->lock);
}

/* Lists the pages of mapped data. Returns the offset of the first byte. */
static int list_pages(struct scsi_cmnd *sc, int count, __le64 *list)
{
	u32 listed = 0, offset = 0;
	struct scatterlist *sg;
	int nth;

	for_each_sg(scsi_sglist(sc), sg, count, nth) {
		u64 at = sg_dma_address(sg), end = at + sg_dma_len(sg);

		if (!nth)
			offset = offset_in_page(at);
		else if (offset_in_page(at))
			return -EINVAL;
		if (nth < count - 1 && offset_in_page(end))
			return -EINVAL;
		for (at &= PAGE_MASK; at < end; at += PAGE_SIZE) {
			if (listed == STORAGE_MAX_PAGES)
				return -EINVAL;
			list[listed++] = cpu_to_le64(at);
		}
	}
	return offset;
}

/* Maps the data of a task, and lists its pages in the slot. Returns the offset of the first byte. */
static int map(struct storage_slot *slot, struct iscsi_task *task)
{
	struct storage_link *link = slot->link;
	struct storage_task *own = task->dd_data;
	struct scsi_cmnd *sc = task->sc;
	int count = 0;

	if (!scsi_bufflen(sc))
		return 0;
	for (int attempt = 0; attempt < ATTEMPTS && READ_ONCE(link->is_open); attempt++) {
		count = ib_dma_map_sg(link->device, scsi_sglist(sc), scsi_sg_count(sc), sc->sc_data_direction);
		if (count > 0)
			break;
		msleep(ATTEMPT_MS);
	}
	if (count <= 0)
		return -ENOMEM;
	spin_lock_bh(&link->lock);
	own->link = link;
	list_add(&own->mapped, &link->mapped);
	spin_unlock_bh(&link->lock);
	return list_pages(sc, count, slot->page);
}

void storage_unmap(struct iscsi_task *task)
{
	struct storage_task *own = task->dd_data;
	struct storage_link *link = own->link;

	if (!link)
		return;
	spin_lock(&link->lock);
	WARN_ONCE(own->slot && link->is_open, "a command ends that the adapter still has\n");
	list_del(&own->mapped);
	own->link = NULL;
	spin_unlock(&link->lock);
	ib_dma_unmap_sg(link->device, scsi_sglist(task->sc), scsi_sg_count(task->sc), task->sc->sc_data_direction);
}

/* Posts a command. The response may arrive before it returns, but is not handled before. */
static int post_command(struct storage_slot *slot, struct iscsi_task *task, const struct vrnic_command *command)
{
	struct storage_link *link = slot->link;
	struct storage_task *own = task->dd_data;
	int err = -ENOTCONN;

	spin_lock_bh(&link->lock);
	if (link->is_open)
		err = vrnic_command_post(link->qp, command, &slot->id);
	if (!err) {
		slot->task = task;
		slot->has_tag = false;
		slot->is_posted = true;
		slot->is_live = true;
		own->slot = slot;
		hash_add(link->live, &slot->node, slot->id);
	}
	spin_unlock_bh(&link->lock);
	return err;
}

int storage_send_command(struct storage_link *link, struct iscsi_task *task)
{
	struct storage_slot *slot = take_slot(link);
	u32 length = scsi_bufflen(task->sc);
	struct iscsi_hdr *header;
	int err, offset;

	if (!slot)
		return -ENOTCONN;
	offset = map(slot, task);
	err = min(offset, 0);
	if (!err) {
		struct vrnic_command command = {
			.wr_cqe = &slot->cqe,
			.message = { .addr = slot->at + STORAGE_HEADER_AT, .length = sizeof(*header), .lkey = link->lkey },
			.pages = slot->at,
			.offset = offset,
			.length = length,
		};

		header = slot->page + STORAGE_HEADER_AT;
		*header = *task->hdr;
		/* A command without data has no direction. */
		if (!length)
			header->flags &= ~(ISCSI_FLAG_CMD_READ | ISCSI_FLAG_CMD_WRITE);
		if (header->flags & ISCSI_FLAG_CMD_READ)
			command.access |= IB_ACCESS_REMOTE_WRITE;
		if (header->flags & ISCSI_FLAG_CMD_WRITE)
			command.access |= IB_ACCESS_REMOTE_READ;
		err = post_command(slot, task, &command);
	}
	if (!err)
		return 0;
	spin_lock_bh(&link->conn->session->back_lock);
	storage_unmap(task);
	spin_unlock_bh(&link->conn->session->back_lock);
	put_slot(slot);
	return err;
}

/* Finds the tag on the wire of the command that libiscsi knows by this one. Returns -EAGAIN if it is not known yet. */
static int tag_on_wire(struct storage_link *link, itt_t itt, itt_t *tag)
{
	struct storage_slot *slot;
	int bucket, err = 0;

	/* The target has no such task. */
	*tag = RESERVED_ITT;
	spin_lock_bh(&link->lock);
	hash_for_each(link->live, bucket, slot, node) {
		if (slot->task->hdr_itt != itt)
			continue;
		if (slot->has_tag)
			*tag = (__force itt_t)cpu_to_be32(slot->tag);
		else
			err = -EAGAIN;
	}
	spin_unlock_bh(&link->lock);
	return err;
}

/*
 * Remembers a request about tasks. One for a single task gets the tag that the target knows. There is one at a time,
 * unless somebody has interrupted the one who waits for it: its answer would count as that to the next one.
 */
static int prepare_tmf(struct storage_link *link, struct iscsi_tm *tmf)
{
	int err = -EBUSY;
	itt_t tag;

	spin_lock_bh(&link->lock);
	if (link->tmf_itt == RESERVED_ITT) {
		link->tmf = *tmf;
		link->tmf_itt = tmf->itt;
		err = 0;
	}
	spin_unlock_bh(&link->lock);
	if (err)
		return err;
	if ((tmf->flags & ISCSI_FLAG_TM_FUNC_MASK) != ISCSI_TM_FUNC_ABORT_TASK)
		return 0;
	wait_event_timeout(link->wait, !(err = tag_on_wire(link, link->tmf.rtt, &tag)) || !READ_ONCE(link->is_open),
			   STORAGE_PATIENCE);
	tmf->rtt = tag;
	return err;
}

int storage_send_control(struct storage_link *link, struct iscsi_task *task)
{
	struct storage_slot *slot = take_slot(link);
	struct ib_sge sge = { .length = sizeof(struct iscsi_hdr), .lkey = link->lkey };
	struct ib_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IB_WR_SEND, .send_flags = IB_SEND_SIGNALED,
	};
	bool has_answer = task->hdr->itt != RESERVED_ITT;
	int err = 0;

	if (!slot)
		return -ENOTCONN;
	memcpy(slot->page + STORAGE_HEADER_AT, task->hdr, sizeof(struct iscsi_hdr));
	sge.addr = slot->at + STORAGE_HEADER_AT;
	wr.wr_cqe = &slot->cqe;
	/* No PDU of libiscsi after the login has data. */
	if (task->data_count)
		err = -EMSGSIZE;
	else if ((task->hdr->opcode & ISCSI_OPCODE_MASK) == ISCSI_OP_SCSI_TMFUNC)
		err = prepare_tmf(link, slot->page + STORAGE_HEADER_AT);
	if (!err) {
		spin_lock_bh(&link->lock);
		slot->is_posted = true;
		err = link->is_open ? ib_post_send(link->qp, &wr, NULL) : -ENOTCONN;
		if (err)
			slot->is_posted = false;
		spin_unlock_bh(&link->lock);
	}
	if (err)
		put_slot(slot);
	else if (!has_answer)
		iscsi_put_task(task);
	return err;
}

void storage_sent(struct ib_cq *cq, struct ib_wc *wc)
{
	struct storage_slot *slot = container_of(wc->wr_cqe, struct storage_slot, cqe);
	struct storage_link *link = slot->link;

	spin_lock_bh(&link->lock);
	slot->is_posted = false;
	if (wc->status == IB_WC_SUCCESS && slot->is_live) {
		slot->tag = wc->ex.invalidate_rkey;
		slot->has_tag = true;
	}
	storage_release(slot);
	spin_unlock_bh(&link->lock);
	wake_up_all(&link->wait);
	if (wc->status == IB_WC_SUCCESS)
		return;
	if (wc->status != IB_WC_WR_FLUSH_ERR && READ_ONCE(link->is_open))
		iscsi_conn_printk(KERN_INFO, link->conn, "the adapter has refused a PDU: status %d, check %u\n",
				  wc->status, wc->vendor_err);
	storage_link_fail(link, ISCSI_ERR_CONN_FAILED);
}
