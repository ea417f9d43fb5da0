// SPDX-License-Identifier: GPL-2.0
/* The PDUs of a login, which open-iscsi makes and reads, and which pass the socket of the connection. See storage.h. */

#include <linux/net.h>
#include <net/sock.h>

#include "storage.h"

/* Receives all bytes, or returns an error if the connection ends before. */
static int receive_all(struct socket *sock, void *bytes, size_t length)
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

/* Returns whether a tag is that of the login that is under way, with the back_lock of the session held. */
static bool is_login(struct iscsi_conn *conn, itt_t itt)
{
	struct iscsi_task *task = iscsi_verify_itt(conn, itt) ? NULL : iscsi_itt_to_task(conn, itt);

	return task && task == conn->login_task && task->state == ISCSI_TASK_RUNNING;
}

/* Gives a PDU to libiscsi, which looks up the task of an answer, but not whether there is one. */
static int complete_login(struct iscsi_conn *conn, struct iscsi_hdr *header, u8 *data, u32 length)
{
	bool is_answer = (header->opcode & ISCSI_OPCODE_MASK) == ISCSI_OP_LOGIN_RSP;
	int err = ISCSI_ERR_BAD_ITT;

	spin_lock_bh(&conn->session->back_lock);
	if (!is_answer || is_login(conn, header->itt))
		err = __iscsi_complete_pdu(conn, header, data, length);
	spin_unlock_bh(&conn->session->back_lock);
	return err;
}

/* Reads one PDU of the login. Returns 0 or an enum iscsi_err. */
static int read_pdu(struct storage_endpoint *endpoint)
{
	struct iscsi_hdr *header = &endpoint->header;
	int opcode;
	u32 length;

	if (receive_all(endpoint->sock, header, sizeof(*header)))
		return ISCSI_ERR_TCP_CONN_CLOSE;
	length = ntoh24(header->dlength);
	opcode = header->opcode & ISCSI_OPCODE_MASK;
	if (opcode != ISCSI_OP_LOGIN_RSP && opcode != ISCSI_OP_REJECT && opcode != ISCSI_OP_ASYNC_EVENT)
		return ISCSI_ERR_BAD_OPCODE;
	/* A reject names a PDU, and a login has one only. */
	if (opcode != ISCSI_OP_LOGIN_RSP && header->itt != RESERVED_ITT)
		return ISCSI_ERR_BAD_ITT;
	if (header->hlength)
		return ISCSI_ERR_AHSLEN;
	if (length > sizeof(endpoint->data))
		return ISCSI_ERR_DATALEN;
	if (receive_all(endpoint->sock, endpoint->data, iscsi_padded(length)))
		return ISCSI_ERR_TCP_CONN_CLOSE;
	if (opcode == ISCSI_OP_REJECT)
		return ISCSI_ERR_PROTO;
	if (opcode == ISCSI_OP_LOGIN_RSP)
		atomic_dec(&endpoint->expected);
	return complete_login(endpoint->conn, header, endpoint->data, length);
}

/* Reads the answers that are expected, and not a byte more: the rest is for the adapter. */
void storage_read_socket(struct work_struct *work)
{
	struct storage_endpoint *endpoint = container_of(work, struct storage_endpoint, reading);
	int err = 0;

	while (!err && atomic_read(&endpoint->expected) > 0)
		err = read_pdu(endpoint);
	if (err && !READ_ONCE(endpoint->is_over))
		iscsi_conn_failure(endpoint->conn, err);
}

int storage_send_by_socket(struct storage_endpoint *endpoint, struct iscsi_task *task)
{
	static const u8 padding[ISCSI_PAD_LEN];
	size_t pad = iscsi_padding(task->data_count), length = task->hdr_len + task->data_count + pad;
	struct kvec parts[] = {
		{ .iov_base = task->hdr, .iov_len = task->hdr_len },
		{ .iov_base = task->data, .iov_len = task->data_count },
		{ .iov_base = (void *)padding, .iov_len = pad },
	};
	/* A request fits into the buffer of a healthy connection. A target that reads nothing must not stop this. */
	struct msghdr message = { .msg_flags = MSG_NOSIGNAL | MSG_DONTWAIT };
	int sent;

	if ((task->hdr->opcode & ISCSI_OPCODE_MASK) != ISCSI_OP_LOGIN)
		return -EPROTO;
	sent = kernel_sendmsg(endpoint->sock, &message, parts, ARRAY_SIZE(parts), length);
	if (sent != length)
		return sent < 0 ? sent : -EPIPE;
	atomic_inc(&endpoint->expected);
	queue_work(storage_readers, &endpoint->reading);
	return 0;
}
