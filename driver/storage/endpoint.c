// SPDX-License-Identifier: GPL-2.0
/*
 * Connections and the adapters that take them over: the kernel connects a socket, and the adapter gets it when the
 * login has ended. See storage.h.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/in6.h>
#include <linux/net.h>
#include <linux/slab.h>
#include <linux/tcp.h>
#include <net/sock.h>

#include "../direct.h"
#include "storage.h"

/* Attempts to give a socket away whose last bytes are not acknowledged, and milliseconds between them. */
#define ATTEMPTS 250
#define ATTEMPT_MS 20
/* The longest time that one call of open-iscsi waits for a connection. */
#define POLL_MS 1000

/* An adapter. */
struct storage_adapter {
	struct list_head list;
	struct ib_device *device;
};

DEFINE_MUTEX(storage_mutex);
static LIST_HEAD(adapters);
static LIST_HEAD(endpoints);
struct workqueue_struct *storage_readers;

struct storage_endpoint *storage_endpoint_of(struct iscsi_endpoint *ep)
{
	struct storage_endpoint *endpoint;

	lockdep_assert_held(&storage_mutex);
	list_for_each_entry(endpoint, &endpoints, list)
		if (endpoint->ep == ep)
			return endpoint;
	return NULL;
}

bool storage_is_connected(struct storage_endpoint *endpoint)
{
	return endpoint->sock && READ_ONCE(endpoint->sock->sk->sk_state) == TCP_ESTABLISHED;
}

/* Makes the socket and begins to connect it. */
static int dial(struct storage_endpoint *endpoint, int length, int non_blocking)
{
	int err = sock_create_kern(&init_net, endpoint->address.ss_family, SOCK_STREAM, IPPROTO_TCP, &endpoint->sock);
	struct sock *sk;

	if (err)
		return err;
	sk = endpoint->sock->sk;
	/* Memory may be needed for writing memory to the disk. */
	sk->sk_allocation = GFP_NOIO;
	sk->sk_use_task_frag = false;
	tcp_sock_set_nodelay(sk);
	err = kernel_connect(endpoint->sock, (void *)&endpoint->address, length, non_blocking ? O_NONBLOCK : 0);
	return err == -EINPROGRESS ? 0 : err;
}

static void free_endpoint(struct storage_endpoint *endpoint)
{
	if (endpoint->sock)
		sock_release(endpoint->sock);
	if (endpoint->link)
		storage_link_free(endpoint->link);
	kfree(endpoint);
}

struct iscsi_endpoint *storage_ep_connect(struct Scsi_Host *host, struct sockaddr *address, int non_blocking)
{
	int length = address->sa_family == AF_INET ? sizeof(struct sockaddr_in) :
		     address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : 0;
	struct storage_endpoint *endpoint;
	int err = -ENODEV;

	if (!length)
		return ERR_PTR(-EAFNOSUPPORT);
	endpoint = kzalloc(sizeof(*endpoint), GFP_KERNEL);
	if (!endpoint)
		return ERR_PTR(-ENOMEM);
	memcpy(&endpoint->address, address, length);
	INIT_WORK(&endpoint->reading, storage_read_socket);
	mutex_lock(&storage_mutex);
	if (list_empty(&adapters))
		goto fail;
	err = dial(endpoint, length, non_blocking);
	if (err)
		goto fail;
	err = -ENOMEM;
	endpoint->ep = iscsi_create_endpoint(0);
	if (!endpoint->ep)
		goto fail;
	list_add(&endpoint->list, &endpoints);
	mutex_unlock(&storage_mutex);
	return endpoint->ep;
fail:
	mutex_unlock(&storage_mutex);
	if (err == -ENODEV)
		pr_info("there is no adapter with the iWARP personality\n");
	free_endpoint(endpoint);
	return ERR_PTR(err);
}

/* Returns 1 if it is connected, 0 if it may be later, and else an error. */
static int state_of(struct sock *sk)
{
	switch (READ_ONCE(sk->sk_state)) {
	case TCP_ESTABLISHED:
		return 1;
	case TCP_SYN_SENT:
	case TCP_SYN_RECV:
		return 0;
	default:
		return sock_error(sk) ?: -ENOTCONN;
	}
}

int storage_ep_poll(struct iscsi_endpoint *ep, int timeout_ms)
{
	struct storage_endpoint *endpoint;
	int state = -ENOTCONN;

	mutex_lock(&storage_mutex);
	endpoint = storage_endpoint_of(ep);
	if (endpoint && endpoint->sock) {
		struct sock *sk = endpoint->sock->sk;

		timeout_ms = clamp(timeout_ms, 0, POLL_MS);
		wait_event_interruptible_timeout(*sk_sleep(sk), (state = state_of(sk)), msecs_to_jiffies(timeout_ms));
	}
	mutex_unlock(&storage_mutex);
	return state;
}

/* Gives the socket to this adapter. */
static int hand_over_to(struct storage_endpoint *endpoint, struct ib_device *device)
{
	struct storage_link *link = storage_link_create(device, endpoint->conn);
	int err;

	if (IS_ERR(link))
		return PTR_ERR(link);
	for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
		err = vrnic_stream_attach(link->qp, endpoint->sock);
		if (err != -EAGAIN)
			break;
		msleep(ATTEMPT_MS);
	}
	if (err) {
		storage_link_close(link);
		storage_link_free(link);
		return err;
	}
	link->is_attached = true;
	endpoint->sock = NULL;
	endpoint->link = link;
	return 0;
}

/*
 * Waits until nothing uses the socket: neither the thread of libiscsi that sends, to which nobody gives PDUs as long as
 * start_conn runs, nor the reader. Returns whether the login has ended.
 */
static bool has_logged_in(struct storage_endpoint *endpoint)
{
	struct iscsi_conn *conn = endpoint->conn;
	bool is_free;

	flush_work(&conn->xmitwork);
	if (atomic_read(&endpoint->expected))
		return false;
	flush_work(&endpoint->reading);
	spin_lock_bh(&conn->session->back_lock);
	is_free = conn->login_task->state == ISCSI_TASK_FREE;
	spin_unlock_bh(&conn->session->back_lock);
	return is_free;
}

int storage_hand_over(struct storage_endpoint *endpoint)
{
	struct storage_adapter *adapter;
	int err = -ENODEV;

	lockdep_assert_held(&storage_mutex);
	if (!endpoint->sock)
		return -EISCONN;
	if (endpoint->conn->session->discovery_sess)
		return -EOPNOTSUPP;
	if (!has_logged_in(endpoint))
		return -EBUSY;
	list_for_each_entry(adapter, &adapters, list) {
		err = hand_over_to(endpoint, adapter->device);
		if (!err)
			return 0;
		iscsi_conn_printk(KERN_INFO, endpoint->conn, "%s does not take the connection: %d\n",
				  dev_name(&adapter->device->dev), err);
	}
	return err;
}

void storage_stop(struct storage_endpoint *endpoint)
{
	lockdep_assert_held(&storage_mutex);
	WRITE_ONCE(endpoint->is_over, true);
	if (endpoint->sock)
		kernel_sock_shutdown(endpoint->sock, SHUT_RDWR);
	if (endpoint->link)
		storage_link_stop(endpoint->link);
}

void storage_end(struct storage_endpoint *endpoint)
{
	storage_stop(endpoint);
	if (endpoint->link)
		storage_link_close(endpoint->link);
	if (!endpoint->conn)
		return;
	/*
	 * A task that is sent from now on fails. libiscsi may resume sending at once, so this waits for those who have
	 * seen the endpoint, and nobody sees it afterwards.
	 */
	WRITE_ONCE(endpoint->conn->dd_data, NULL);
	iscsi_suspend_tx(endpoint->conn);
	cancel_work_sync(&endpoint->reading);
	endpoint->conn = NULL;
}

void storage_ep_disconnect(struct iscsi_endpoint *ep)
{
	struct storage_endpoint *endpoint;

	mutex_lock(&storage_mutex);
	endpoint = storage_endpoint_of(ep);
	if (endpoint) {
		storage_end(endpoint);
		list_del(&endpoint->list);
	}
	mutex_unlock(&storage_mutex);
	if (!endpoint)
		return;
	free_endpoint(endpoint);
	iscsi_destroy_endpoint(ep);
}

int storage_get_ep_param(struct iscsi_endpoint *ep, enum iscsi_param param, char *buf)
{
	struct storage_endpoint *endpoint;
	int length = -ENOTCONN;

	if (param != ISCSI_PARAM_CONN_PORT && param != ISCSI_PARAM_CONN_ADDRESS)
		return -ENOSYS;
	mutex_lock(&storage_mutex);
	endpoint = storage_endpoint_of(ep);
	if (endpoint)
		length = iscsi_conn_get_addr_param(&endpoint->address, param, buf);
	mutex_unlock(&storage_mutex);
	return length;
}

static int come(struct ib_device *device)
{
	struct storage_adapter *adapter;

	if ((u32)device->ops.driver_id != STORAGE_DRIVER_ID || !rdma_protocol_iwarp(device, rdma_start_port(device)))
		return -EOPNOTSUPP;
	adapter = kzalloc(sizeof(*adapter), GFP_KERNEL);
	if (!adapter)
		return -ENOMEM;
	adapter->device = device;
	mutex_lock(&storage_mutex);
	list_add_tail(&adapter->list, &adapters);
	mutex_unlock(&storage_mutex);
	return 0;
}

/* Connections by this adapter have failed. open-iscsi makes new ones. */
static void go(struct ib_device *device, void *data)
{
	struct storage_adapter *adapter, *next;
	struct storage_endpoint *endpoint;

	mutex_lock(&storage_mutex);
	list_for_each_entry_safe(adapter, next, &adapters, list) {
		if (adapter->device != device)
			continue;
		list_del(&adapter->list);
		kfree(adapter);
	}
	list_for_each_entry(endpoint, &endpoints, list) {
		if (!endpoint->link || endpoint->link->device != device)
			continue;
		storage_link_fail(endpoint->link, ISCSI_ERR_CONN_FAILED);
		storage_link_close(endpoint->link);
	}
	mutex_unlock(&storage_mutex);
}

static struct ib_client client = { .name = "vrnic_iscsi", .add = come, .remove = go };

int storage_endpoints_init(void)
{
	int err;

	storage_readers = alloc_workqueue("vrnic_iscsi", WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	if (!storage_readers)
		return -ENOMEM;
	err = ib_register_client(&client);
	if (err)
		destroy_workqueue(storage_readers);
	return err;
}

/*
 * The transport has gone, and with it all sessions. Endpoints may be left that were never bound, or whose connection
 * has been destroyed before them.
 */
void storage_endpoints_exit(void)
{
	struct storage_endpoint *endpoint, *next;

	ib_unregister_client(&client);
	list_for_each_entry_safe(endpoint, next, &endpoints, list)
		storage_ep_disconnect(endpoint->ep);
	destroy_workqueue(storage_readers);
}
