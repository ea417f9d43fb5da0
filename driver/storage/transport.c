// SPDX-License-Identifier: GPL-2.0
/* What scsi_transport_iscsi and libiscsi call. See storage.h. */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/blkdev.h>
#include <linux/module.h>
#include <scsi/scsi_cmnd.h>
#include <scsi/scsi_device.h>
#include <scsi/scsi_host.h>

#include "storage.h"

static char *transport = "ocs";
module_param(transport, charp, 0444);
MODULE_PARM_DESC(transport, "Name of the transport, one of those that open-iscsi knows");

static struct iscsi_transport storage_transport;
static struct scsi_transport_template *storage_template;

/* Data must not change while the adapter makes digests of it. */
static int storage_sdev_configure(struct scsi_device *sdev, struct queue_limits *limits)
{
	struct iscsi_cls_session *cls_session = starget_to_session(scsi_target(sdev));
	struct iscsi_session *session = cls_session->dd_data;

	spin_lock_bh(&session->frwd_lock);
	if (session->leadconn && session->leadconn->datadgst_en)
		limits->features |= BLK_FEAT_STABLE_WRITES;
	spin_unlock_bh(&session->frwd_lock);
	return 0;
}

static struct scsi_host_template storage_host = {
	.module = THIS_MODULE,
	.name = "iSCSI by a vrnic adapter",
	.queuecommand = iscsi_queuecommand,
	.change_queue_depth = scsi_change_queue_depth,
	.sdev_configure = storage_sdev_configure,
	.eh_timed_out = iscsi_eh_cmd_timed_out,
	.eh_abort_handler = iscsi_eh_abort,
	.eh_device_reset_handler = iscsi_eh_device_reset,
	.eh_target_reset_handler = iscsi_eh_recover_target,
	.target_alloc = iscsi_target_alloc,
	.sg_tablesize = STORAGE_MAX_PAGES,
	.max_sectors = STORAGE_MAX_SECTORS,
	/* A buffer is whole pages but for its beginning and its end. */
	.virt_boundary_mask = PAGE_SIZE - 1,
	.dma_boundary = -1UL,
	.cmd_per_lun = ISCSI_DEF_CMD_PER_LUN,
	.this_id = -1,
	.track_queue_depth = 1,
	.cmd_size = sizeof(struct iscsi_cmd),
};

/* This initiator sends no data that the target has not asked for, so that the adapter sends all of it. */
static void storage_forbid_unasked(struct iscsi_session *session)
{
	session->imm_data_en = 0;
	session->initial_r2t_en = 1;
}

/*
 * A session has a SCSI host of its own, which belongs to no adapter: its next connection may use another one. So it
 * outlives an adapter that goes.
 */
static struct iscsi_cls_session *storage_session_create(struct iscsi_endpoint *ep, u16 cmds_max, u16 depth, u32 cmdsn)
{
	struct iscsi_cls_session *cls_session = NULL;
	struct Scsi_Host *host = iscsi_host_alloc(&storage_host, 0, true);
	int commands;

	if (!host)
		return NULL;
	cmds_max = min_t(u16, cmds_max, STORAGE_MAX_TASKS);
	host->transportt = storage_template;
	host->cmd_per_lun = depth;
	host->max_lun = 512;
	host->max_id = 0;
	host->max_channel = 0;
	host->max_cmd_len = ISCSI_CDB_SIZE;
	commands = iscsi_host_get_max_scsi_cmds(host, cmds_max);
	if (commands < 0)
		goto free;
	host->can_queue = commands;
	if (iscsi_host_add(host, NULL))
		goto free;
	cls_session = iscsi_session_setup(&storage_transport, host, cmds_max, sizeof(struct storage_session),
					  sizeof(struct storage_task), cmdsn, 0);
	if (cls_session) {
		storage_forbid_unasked(cls_session->dd_data);
		return cls_session;
	}
	iscsi_host_remove(host, false);
free:
	iscsi_host_free(host);
	return NULL;
}

static void storage_session_destroy(struct iscsi_cls_session *cls_session)
{
	struct Scsi_Host *host = iscsi_session_to_shost(cls_session);

	iscsi_session_remove(cls_session);
	iscsi_host_remove(host, false);
	iscsi_session_free(cls_session);
	iscsi_host_free(host);
}

static struct iscsi_cls_conn *storage_conn_create(struct iscsi_cls_session *cls_session, u32 id)
{
	struct storage_session *own = ((struct iscsi_session *)cls_session->dd_data)->dd_data;
	struct iscsi_cls_conn *cls_conn = own->has_conn ? NULL : iscsi_conn_setup(cls_session, 0, id);

	if (!cls_conn)
		return NULL;
	/* Its endpoint. */
	((struct iscsi_conn *)cls_conn->dd_data)->dd_data = NULL;
	own->has_conn = true;
	return cls_conn;
}

static int storage_conn_bind(struct iscsi_cls_session *cls_session, struct iscsi_cls_conn *cls_conn, u64 handle,
			     int is_leading)
{
	struct iscsi_endpoint *ep = iscsi_lookup_endpoint(handle);
	struct storage_endpoint *endpoint = ep ? storage_get(ep) : NULL;
	int err = -EINVAL;

	if (endpoint) {
		err = storage_bind(endpoint, cls_conn, is_leading);
		storage_put(endpoint);
	}
	if (ep)
		iscsi_put_endpoint(ep);
	return err;
}

/*
 * libiscsi waits for the thread that sends, and open-iscsi for libiscsi. So what this thread waits for ends before,
 * which the target may never let happen.
 */
static void storage_conn_unbind(struct iscsi_cls_conn *cls_conn, bool is_active)
{
	storage_stop(cls_conn->dd_data);
	iscsi_conn_unbind(cls_conn, is_active);
}

/* The login has ended. */
static int storage_conn_start(struct iscsi_cls_conn *cls_conn)
{
	return storage_hand_over(cls_conn->dd_data) ?: iscsi_conn_start(cls_conn);
}

/* The adapter must not use the data of tasks that end here. The endpoint has gone before, unless somebody erred. */
static void storage_conn_stop(struct iscsi_cls_conn *cls_conn, int flag)
{
	storage_end(cls_conn->dd_data);
	iscsi_conn_stop(cls_conn, flag);
}

static void storage_conn_destroy(struct iscsi_cls_conn *cls_conn)
{
	struct iscsi_conn *conn = cls_conn->dd_data;
	struct storage_session *own = conn->session->dd_data;

	storage_end(conn);
	iscsi_conn_teardown(cls_conn);
	own->has_conn = false;
}

/*
 * What login has agreed on. The target must allow that it gets only the data that it asks for, whatever was agreed on
 * (RFC 7143, 13.10 and 13.11).
 */
static int storage_set_param(struct iscsi_cls_conn *cls_conn, enum iscsi_param param, char *buf, int len)
{
	switch (param) {
	case ISCSI_PARAM_IMM_DATA_EN:
	case ISCSI_PARAM_INITIAL_R2T_EN:
		return 0;
	default:
		return iscsi_set_param(cls_conn, param, buf, len);
	}
}

static void storage_get_stats(struct iscsi_cls_conn *cls_conn, struct iscsi_stats *stats)
{
	struct iscsi_conn *conn = cls_conn->dd_data;

	stats->txdata_octets = conn->txdata_octets;
	stats->rxdata_octets = conn->rxdata_octets;
	stats->scsicmd_pdus = conn->scsicmd_pdus_cnt;
	stats->dataout_pdus = conn->dataout_pdus_cnt;
	stats->scsirsp_pdus = conn->scsirsp_pdus_cnt;
	stats->datain_pdus = conn->datain_pdus_cnt;
	stats->r2t_pdus = conn->r2t_pdus_cnt;
	stats->tmfcmd_pdus = conn->tmfcmd_pdus_cnt;
	stats->tmfrsp_pdus = conn->tmfrsp_pdus_cnt;
	stats->custom_length = 0;
}

static int storage_alloc_pdu(struct iscsi_task *task, u8 opcode)
{
	struct storage_task *own = task->dd_data;

	own->task = task;
	task->hdr = &own->header;
	task->hdr_max = sizeof(own->header);
	return 0;
}

static int storage_xmit_task(struct iscsi_task *task)
{
	struct iscsi_conn *conn = task->conn;
	struct storage_endpoint *endpoint = READ_ONCE(conn->dd_data);
	int err = -ENOTCONN;

	if (endpoint && endpoint->link)
		err = task->sc ? storage_send_command(endpoint->link, task) : storage_send_control(endpoint->link, task);
	else if (endpoint && !task->sc)
		err = storage_send_by_socket(endpoint, task);
	if (!err)
		return 0;
	iscsi_conn_printk(KERN_INFO, conn, "a PDU could not be sent: %d\n", err);
	iscsi_conn_failure(conn, ISCSI_ERR_XMIT_FAILED);
	return -EIO;
}

static umode_t storage_is_visible(int type, int param)
{
	if (type == ISCSI_HOST_PARAM)
		return param == ISCSI_HOST_PARAM_NETDEV_NAME || param == ISCSI_HOST_PARAM_HWADDRESS ||
		       param == ISCSI_HOST_PARAM_INITIATOR_NAME ? 0444 : 0;
	if (type != ISCSI_PARAM)
		return 0;
	switch (param) {
	case ISCSI_PARAM_MAX_RECV_DLENGTH ... ISCSI_PARAM_ERL:
	case ISCSI_PARAM_EXP_STATSN ... ISCSI_PARAM_PASSWORD_IN:
	case ISCSI_PARAM_FAST_ABORT ... ISCSI_PARAM_IFACE_NAME:
	case ISCSI_PARAM_INITIATOR_NAME:
	case ISCSI_PARAM_TGT_RESET_TMO:
		return 0444;
	default:
		return 0;
	}
}

static struct iscsi_transport storage_transport = {
	.owner = THIS_MODULE,
	.caps = CAP_RECOVERY_L0 | CAP_MULTI_R2T | CAP_HDRDGST | CAP_DATADGST | CAP_DIGEST_OFFLOAD |
		CAP_PADDING_OFFLOAD,
	.create_session = storage_session_create,
	.destroy_session = storage_session_destroy,
	.create_conn = storage_conn_create,
	.bind_conn = storage_conn_bind,
	.unbind_conn = storage_conn_unbind,
	.start_conn = storage_conn_start,
	.stop_conn = storage_conn_stop,
	.destroy_conn = storage_conn_destroy,
	.attr_is_visible = storage_is_visible,
	.set_param = storage_set_param,
	.get_conn_param = iscsi_conn_get_param,
	.get_ep_param = storage_get_ep_param,
	.get_session_param = iscsi_session_get_param,
	.get_host_param = iscsi_host_get_param,
	.set_host_param = iscsi_host_set_param,
	.send_pdu = iscsi_conn_send_pdu,
	.get_stats = storage_get_stats,
	.alloc_pdu = storage_alloc_pdu,
	.xmit_task = storage_xmit_task,
	.cleanup_task = storage_unmap,
	.session_recovery_timedout = iscsi_session_recovery_timedout,
	.ep_connect = storage_ep_connect,
	.ep_poll = storage_ep_poll,
	.ep_disconnect = storage_ep_disconnect,
};

static int __init storage_init(void)
{
	int err;

	BUILD_BUG_ON(STORAGE_MAX_PAGES * sizeof(__le64) > STORAGE_HEADER_AT);
	/* open-iscsi finds the transport of a SCSI host by this name. */
	storage_host.proc_name = transport;
	storage_transport.name = transport;
	err = storage_endpoints_init();
	if (err)
		return err;
	storage_template = iscsi_register_transport(&storage_transport);
	if (storage_template)
		return 0;
	storage_endpoints_exit();
	return -EBUSY;
}

static void __exit storage_exit(void)
{
	iscsi_unregister_transport(&storage_transport);
	storage_endpoints_exit();
}

module_init(storage_init);
module_exit(storage_exit);
MODULE_DESCRIPTION("iSCSI initiator whose PDUs a vrnic adapter moves");
MODULE_AUTHOR("vrnic");
MODULE_LICENSE("GPL");
