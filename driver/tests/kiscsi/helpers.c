// SPDX-License-Identifier: GPL-2.0
/* See helpers.h. */

#include <linux/inet.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/tcp.h>
#include <net/sock.h>
#include <scsi/scsi.h>
#include <scsi/scsi_cmnd.h>
#include <scsi/scsi_device.h>
#include <scsi/scsi_host.h>
#include <scsi/scsi_tcq.h>

#include "helpers.h"

/* 1 MiB, which need not begin at a page. */
#define KISCSI_MAX_SECTORS 2048
#define KISCSI_MAX_SEGMENTS 257

static char *portal = "";
module_param(portal, charp, 0444);
MODULE_PARM_DESC(portal, "Address and port of the target: ADDRESS:PORT");
static char *target = "";
module_param(target, charp, 0444);
MODULE_PARM_DESC(target, "iSCSI name of the target");
static char *initiator = "iqn.2026-11.org.vrnic:initiator";
module_param(initiator, charp, 0444);
MODULE_PARM_DESC(initiator, "iSCSI name of this initiator");

const char *kiscsi_portal(void)
{
	return portal;
}

const char *kiscsi_target(void)
{
	return target;
}

const char *kiscsi_initiator(void)
{
	return initiator;
}

/* Splits "ADDRESS:PORT", where an IPv6 address may be in brackets. */
static int kiscsi_resolve(const char *portal, struct sockaddr_storage *address)
{
	char host[64];
	char *port, *end;

	if (strscpy(host, portal, sizeof(host)) < 0)
		return -EINVAL;
	port = strrchr(host, ':');
	if (!port)
		return -EINVAL;
	*port++ = 0;
	end = port - 2;
	if (host[0] == '[' && end > host && *end == ']') {
		*end = 0;
		return inet_pton_with_scope(&init_net, AF_INET6, host + 1, port, address);
	}
	return inet_pton_with_scope(&init_net, AF_UNSPEC, host, port, address);
}

struct socket *kiscsi_connect(const char *portal, u32 timeout_ms)
{
	long timeout = msecs_to_jiffies(timeout_ms);
	struct sockaddr_storage address;
	struct socket *sock;
	int err = kiscsi_resolve(portal, &address);

	if (err)
		return ERR_PTR(err);
	err = sock_create_kern(&init_net, address.ss_family, SOCK_STREAM, IPPROTO_TCP, &sock);
	if (err)
		return ERR_PTR(err);
	lock_sock(sock->sk);
	sock->sk->sk_sndtimeo = timeout;
	sock->sk->sk_rcvtimeo = timeout;
	release_sock(sock->sk);
	tcp_sock_set_nodelay(sock->sk);
	err = kernel_connect(sock, (void *)&address, sizeof(address), 0);
	if (err) {
		sock_release(sock);
		return ERR_PTR(err == -EINPROGRESS ? -ETIMEDOUT : err);
	}
	return sock;
}

int kiscsi_send(struct socket *sock, const void *bytes, size_t length)
{
	while (length) {
		struct kvec part = { .iov_base = (void *)bytes, .iov_len = length };
		struct msghdr message = { .msg_flags = MSG_NOSIGNAL };
		int sent = kernel_sendmsg(sock, &message, &part, 1, length);

		if (sent <= 0)
			return sent < 0 ? sent : -EPIPE;
		bytes += sent;
		length -= sent;
	}
	return 0;
}

int kiscsi_receive(struct socket *sock, void *bytes, size_t length)
{
	while (length) {
		struct kvec part = { .iov_base = bytes, .iov_len = length };
		struct msghdr message = {};
		int received = kernel_recvmsg(sock, &message, &part, 1, length, MSG_WAITALL);

		if (received <= 0)
			return received < 0 ? received : -ECONNRESET;
		bytes += received;
		length -= received;
	}
	return 0;
}

void kiscsi_close(struct socket *sock)
{
	sock_release(sock);
}

int kiscsi_poll(struct ib_cq *cq, int count, struct ib_wc *wcs)
{
	return ib_poll_cq(cq, count, wcs);
}

int kiscsi_arm(struct ib_cq *cq)
{
	return ib_req_notify_cq(cq, IB_CQ_NEXT_COMP | IB_CQ_REPORT_MISSED_EVENTS);
}

/* The private part of a host. */
struct kiscsi_private {
	void *session;
};

static void *kiscsi_session(struct Scsi_Host *host)
{
	return ((struct kiscsi_private *)shost_priv(host))->session;
}

static u32 kiscsi_tag(struct scsi_cmnd *cmnd)
{
	return scsi_cmd_to_rq(cmnd)->tag;
}

static enum scsi_qc_status kiscsi_queuecommand(struct Scsi_Host *host, struct scsi_cmnd *cmnd)
{
	int err = kiscsi_queue(kiscsi_session(host), (void *)cmnd, kiscsi_tag(cmnd));

	if (err == -ENODEV || err == -EINVAL) {
		cmnd->result = (err == -ENODEV ? DID_NO_CONNECT : DID_ERROR) << 16;
		scsi_done(cmnd);
		return 0;
	}
	return err ? SCSI_MLQUEUE_HOST_BUSY : 0;
}

static int kiscsi_eh_abort(struct scsi_cmnd *cmnd)
{
	struct Scsi_Host *host = cmnd->device->host;

	return kiscsi_abort(kiscsi_session(host), (void *)cmnd, kiscsi_tag(cmnd)) ? FAILED : SUCCESS;
}

static int kiscsi_eh_reset(struct scsi_cmnd *cmnd)
{
	return kiscsi_reset(kiscsi_session(cmnd->device->host)) ? FAILED : SUCCESS;
}

static const struct scsi_host_template kiscsi_template = {
	.module = THIS_MODULE,
	.name = "vrnic iSCSI initiator",
	.proc_name = "vrnic_kiscsi",
	.queuecommand = kiscsi_queuecommand,
	.eh_abort_handler = kiscsi_eh_abort,
	.eh_host_reset_handler = kiscsi_eh_reset,
	.change_queue_depth = scsi_change_queue_depth,
	.this_id = -1,
	.sg_tablesize = KISCSI_MAX_SEGMENTS,
	.max_sectors = KISCSI_MAX_SECTORS,
	/* A buffer is whole pages but for its beginning and its end. */
	.virt_boundary_mask = 4095,
	.dma_boundary = -1UL,
	.track_queue_depth = 1,
};

struct kiscsi_host *kiscsi_host_new(struct ib_device *device, void *session, u32 commands)
{
	struct Scsi_Host *host = scsi_host_alloc(&kiscsi_template, sizeof(struct kiscsi_private));

	if (!host)
		return NULL;
	((struct kiscsi_private *)shost_priv(host))->session = session;
	host->can_queue = commands;
	host->cmd_per_lun = commands;
	host->max_id = 1;
	host->max_channel = 0;
	host->max_lun = 256;
	host->max_cmd_len = 16;
	return (void *)host;
}

int kiscsi_host_add(struct kiscsi_host *raw, struct ib_device *device)
{
	struct Scsi_Host *host = (void *)raw;
	int err = scsi_add_host_with_dma(host, device->dev.parent, device->dma_device);

	if (err)
		return err;
	scsi_scan_host(host);
	return 0;
}

void kiscsi_host_remove(struct kiscsi_host *host)
{
	scsi_remove_host((void *)host);
}

void kiscsi_host_put(struct kiscsi_host *host)
{
	scsi_host_put((void *)host);
}

/* Lists the pages of mapped data. Returns the offset of the first byte. */
static int kiscsi_list(struct scsi_cmnd *cmnd, int count, __le64 *list, u32 max)
{
	u32 listed = 0, offset = 0;
	struct scatterlist *sg;
	int nth;

	scsi_for_each_sg(cmnd, sg, count, nth) {
		u64 at = sg_dma_address(sg), end = at + sg_dma_len(sg);

		if (!nth)
			offset = offset_in_page(at);
		else if (offset_in_page(at))
			return -EINVAL;
		if (nth < count - 1 && offset_in_page(end))
			return -EINVAL;
		for (at &= PAGE_MASK; at < end; at += PAGE_SIZE) {
			if (listed == max)
				return -EINVAL;
			list[listed++] = cpu_to_le64(at);
		}
	}
	return offset;
}

int kiscsi_map(struct kiscsi_cmnd *raw, u64 *list, u32 max, struct kiscsi_io *io)
{
	struct scsi_cmnd *cmnd = (void *)raw;
	int offset, count;

	if (cmnd->cmd_len > sizeof(io->cdb))
		return -EINVAL;
	memset(io, 0, sizeof(*io));
	memcpy(io->cdb, cmnd->cmnd, cmnd->cmd_len);
	int_to_scsilun(cmnd->device->lun, (struct scsi_lun *)io->lun);
	io->length = scsi_bufflen(cmnd);
	if (!io->length)
		return 0;
	io->reads = cmnd->sc_data_direction == DMA_FROM_DEVICE;
	io->writes = cmnd->sc_data_direction == DMA_TO_DEVICE;
	if (!io->reads && !io->writes)
		return -EINVAL;
	count = scsi_dma_map(cmnd);
	if (count <= 0)
		return -ENOMEM;
	offset = kiscsi_list(cmnd, count, (__le64 *)list, max);
	if (offset < 0) {
		scsi_dma_unmap(cmnd);
		return offset;
	}
	io->offset = offset;
	return 0;
}

void kiscsi_unmap(struct kiscsi_cmnd *raw)
{
	struct scsi_cmnd *cmnd = (void *)raw;

	if (scsi_bufflen(cmnd))
		scsi_dma_unmap(cmnd);
}

void kiscsi_done(struct kiscsi_cmnd *raw, u8 host, u8 status, u32 residual, const void *sense, u32 length)
{
	static const u8 bytes[] = {
		[KISCSI_OK] = DID_OK,
		[KISCSI_NO_CONNECT] = DID_NO_CONNECT,
		[KISCSI_REQUEUE] = DID_REQUEUE,
		[KISCSI_ERROR] = DID_ERROR,
	};
	struct scsi_cmnd *cmnd = (void *)raw;

	cmnd->result = bytes[host] << 16 | status;
	scsi_set_resid(cmnd, min(residual, scsi_bufflen(cmnd)));
	if (length)
		memcpy(cmnd->sense_buffer, sense, min_t(u32, length, SCSI_SENSE_BUFFERSIZE));
	scsi_done(cmnd);
}
