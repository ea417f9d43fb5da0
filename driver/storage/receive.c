// SPDX-License-Identifier: GPL-2.0
/*
 * PDUs that arrive by the queue pair. Those of commands have been executed by the adapter, and name their command by
 * its Command ID. All others are for libiscsi, which must not end a command by them. See storage.h.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>

#include "../direct.h"
#include "storage.h"

/* Attempts to end a command whose data is under way to the target, and milliseconds between them. */
#define ATTEMPTS 200
#define ATTEMPT_MS 5

/* Returns whether libiscsi has a task with this tag that is not a command, with the back_lock held. */
static bool is_control(struct iscsi_conn *conn, itt_t itt)
{
	struct iscsi_task *task = iscsi_verify_itt(conn, itt) ? NULL : iscsi_itt_to_task(conn, itt);

	return task && !task->sc && task->state == ISCSI_TASK_RUNNING;
}

/* Gives a PDU to libiscsi that does not belong to a command. */
static int complete_control(struct iscsi_conn *conn, struct iscsi_hdr *header, u8 *data, u32 length)
{
	struct iscsi_session *session = conn->session;
	int err = 0;

	spin_lock_bh(&session->back_lock);
	if (header->itt != RESERVED_ITT && !is_control(conn, header->itt))
		err = ISCSI_ERR_BAD_ITT;
	/* A reject names the PDU that it rejects. */
	if ((header->opcode & ISCSI_OPCODE_MASK) == ISCSI_OP_REJECT && length >= sizeof(*header)) {
		itt_t rejected = ((struct iscsi_hdr *)data)->itt;

		if (rejected != RESERVED_ITT && !is_control(conn, rejected))
			err = ISCSI_ERR_PROTO;
	}
	if (!err)
		err = __iscsi_complete_pdu(conn, header, data, length);
	spin_unlock_bh(&session->back_lock);
	return err;
}

/* Returns whether the last request about tasks concerns a command, with the lock of the link held. */
static bool is_concerned(struct storage_link *link, struct storage_slot *slot)
{
	switch (link->tmf.flags & ISCSI_FLAG_TM_FUNC_MASK) {
	case ISCSI_TM_FUNC_ABORT_TASK:
		return slot->task->hdr_itt == link->tmf.rtt;
	case ISCSI_TM_FUNC_LOGICAL_UNIT_RESET:
		return !memcmp(&slot->task->lun, &link->tmf.lun, sizeof(link->tmf.lun));
	case ISCSI_TM_FUNC_TARGET_WARM_RESET:
	case ISCSI_TM_FUNC_TARGET_COLD_RESET:
		return true;
	default:
		return false;
	}
}

/* Ends a command in the adapter, for which it waits until the target has acknowledged the data of the command. */
static int end_command(struct storage_link *link, u32 tag)
{
	int err = -EBUSY;

	for (int attempt = 0; attempt < ATTEMPTS && err == -EBUSY; attempt++) {
		if (attempt)
			msleep(ATTEMPT_MS);
		mutex_lock(&link->qp_lock);
		err = link->is_open ? vrnic_command_end(link->qp, tag) : -ENOTCONN;
		mutex_unlock(&link->qp_lock);
	}
	return err == -ENOENT ? 0 : err;
}

/*
 * Ends the commands in the adapter that the target has ended at libiscsi's request, before libiscsi gives their data
 * back.
 */
static int end_commands(struct storage_link *link)
{
	for (u32 nth = 0; nth < link->slots_len; nth++) {
		struct storage_slot *slot = &link->slots[nth];
		bool has_tag, is_over;
		u32 tag;

		spin_lock_bh(&link->lock);
		is_over = slot->is_live && is_concerned(link, slot);
		has_tag = slot->has_tag;
		tag = slot->tag;
		spin_unlock_bh(&link->lock);
		if (!is_over)
			continue;
		/* The target answers before it has got the command. */
		if (!has_tag)
			return ISCSI_ERR_PROTO;
		if (end_command(link, tag))
			return ISCSI_ERR_CONN_FAILED;
		spin_lock_bh(&link->lock);
		storage_unlive(slot);
		spin_unlock_bh(&link->lock);
	}
	return 0;
}

/*
 * Takes the answer to a request about tasks, before libiscsi gets it. libiscsi takes an answer with any tag for the one
 * that it waits for, also when the request has not been sent yet.
 */
static int take_tmf(struct storage_link *link, struct iscsi_hdr *header)
{
	bool is_known;

	spin_lock_bh(&link->lock);
	is_known = header->itt != RESERVED_ITT && header->itt == link->tmf_itt;
	if (is_known)
		link->tmf_itt = RESERVED_ITT;
	spin_unlock_bh(&link->lock);
	if (!is_known)
		return ISCSI_ERR_BAD_ITT;
	return ((struct iscsi_tm_rsp *)header)->response == ISCSI_TMF_RSP_COMPLETE ? end_commands(link) : 0;
}

/* Returns the slot of a command, with the lock held. */
static struct storage_slot *slot_of(struct storage_link *link, u32 id)
{
	struct storage_slot *slot;

	hash_for_each_possible(link->live, slot, node, id)
		if (slot->id == id)
			return slot;
	return NULL;
}

/* Takes a PDU that moves data of a command, or ends the command. */
static int take_own(struct storage_link *link, struct iscsi_hdr *header, u8 *data, u32 length, struct ib_wc *wc)
{
	bool is_over = wc->wc_flags & VRNIC_WC_ENDED;
	struct iscsi_conn *conn = link->conn;
	struct storage_slot *slot;
	struct iscsi_task *task;
	int err = 0;

	if (!(wc->wc_flags & VRNIC_WC_EXECUTED) || wc->vendor_err) {
		iscsi_conn_printk(KERN_INFO, conn, "the adapter has refused a PDU of the target: check %u\n",
				  wc->vendor_err);
		return ISCSI_ERR_PROTO;
	}
	spin_lock_bh(&link->lock);
	slot = slot_of(link, wc->ex.invalidate_rkey);
	task = slot ? slot->task : NULL;
	if (task) {
		task->last_xfer = jiffies;
		header->itt = task->hdr_itt;
	}
	if (slot && is_over)
		storage_unlive(slot);
	spin_unlock_bh(&link->lock);
	/* It was ended by a request about tasks. */
	if (!task)
		return 0;
	spin_lock_bh(&conn->session->back_lock);
	if (is_over) {
		err = __iscsi_complete_pdu(conn, header, data, length);
	} else {
		conn->last_recv = jiffies;
		iscsi_update_cmdsn(conn->session, (struct iscsi_nopin *)header);
		if ((header->opcode & ISCSI_OPCODE_MASK) == ISCSI_OP_R2T)
			conn->r2t_pdus_cnt++;
		else
			conn->datain_pdus_cnt++;
	}
	spin_unlock_bh(&conn->session->back_lock);
	return err;
}

/* Takes a PDU. Returns 0 or an enum iscsi_err. */
static int take(struct storage_receive *receive, struct ib_wc *wc)
{
	struct storage_link *link = receive->link;
	struct iscsi_hdr header;
	u32 start, length, present;
	int err = 0;
	u8 *data;

	memcpy(&header, receive->bytes, sizeof(header));
	start = sizeof(header) + header.hlength * ISCSI_PAD_LEN;
	if (start > wc->byte_len || wc->byte_len > STORAGE_RECEIVE_LEN)
		return ISCSI_ERR_AHSLEN;
	data = receive->bytes + start;
	present = wc->byte_len - start;
	length = ntoh24(header.dlength);
	switch (header.opcode & ISCSI_OPCODE_MASK) {
	case ISCSI_OP_SCSI_CMD_RSP:
	case ISCSI_OP_SCSI_DATA_IN:
	case ISCSI_OP_R2T:
		return take_own(link, &header, data, min(length, present), wc);
	case ISCSI_OP_SCSI_TMFUNC_RSP:
		err = take_tmf(link, &header);
		break;
	}
	/* What has no room in a receive is cut off. */
	if (!err && length > present)
		err = ISCSI_ERR_DATALEN;
	return err ?: complete_control(link->conn, &header, data, length);
}

void storage_received(struct ib_cq *cq, struct ib_wc *wc)
{
	struct storage_receive *receive = container_of(wc->wr_cqe, struct storage_receive, cqe);
	struct storage_link *link = receive->link;
	/* Without bytes it is the end of the stream, which the target may close after a logout. */
	int err = READ_ONCE(link->conn->session->state) == ISCSI_STATE_LOGGING_OUT ? 0 : ISCSI_ERR_TCP_CONN_CLOSE;

	if (wc->status == IB_WC_SUCCESS && wc->byte_len >= sizeof(struct iscsi_hdr)) {
		err = take(receive, wc);
		if (!err && storage_post_receive(receive))
			err = ISCSI_ERR_CONN_FAILED;
	}
	if (err)
		storage_link_fail(link, err);
}
