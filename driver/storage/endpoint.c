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

/* The longest time for giving a socket away whose last bytes are not acknowledged, and milliseconds between tries. */
#define HAND_OVER_LIMIT (2 * HZ)
#define ATTEMPT_MS 20
/* The longest time that one call of open-iscsi waits for a connection. */
#define POLL_MS 1000

/* An adapter. */
struct storage_adapter {
	struct list_head list;
	struct ib_device *device;
	/* Connections that are given to it, and the list. */
	refcount_t users;
	struct completion unused;
};

/* Protects the lists. Nobody waits with it held. */
static DEFINE_MUTEX(storage_mutex);
static LIST_HEAD(adapters);
static LIST_HEAD(endpoints);
struct workqueue_struct *storage_readers;

struct storage_endpoint *storage_get(struct iscsi_endpoint *ep)
{
	struct storage_endpoint *endpoint, *found = NULL;

	mutex_lock(&storage_mutex);
	list_for_each_entry(endpoint, &endpoints, list)
		if (endpoint->ep == ep)
			found = endpoint;
	if (found)
		refcount_inc(&found->users);
	mutex_unlock(&storage_mutex);
	return found;
}

/* The same for the endpoint that is bound to a connection, with its lock taken. */
static struct storage_endpoint *lock_bound(struct iscsi_conn *conn)
{
	struct storage_endpoint *endpoint, *found = NULL;

	mutex_lock(&storage_mutex);
	list_for_each_entry(endpoint, &endpoints, list)
		if (endpoint->conn == conn)
			found = endpoint;
	if (found)
		refcount_inc(&found->users);
	mutex_unlock(&storage_mutex);
	if (found)
		mutex_lock(&found->lock);
	return found;
}

void storage_put(struct storage_endpoint *endpoint)
{
	if (!refcount_dec_and_test(&endpoint->users))
		return;
	if (endpoint->sock)
		sock_release(endpoint->sock);
	if (endpoint->link)
		storage_link_free(endpoint->link);
	kfree(endpoint);
}

static void unlock_and_put(struct storage_endpoint *endpoint)
{
	mutex_unlock(&endpoint->lock);
	storage_put(endpoint);
}

static void set_conn(struct storage_endpoint *endpoint, struct iscsi_conn *conn)
{
	lockdep_assert_held(&endpoint->lock);
	mutex_lock(&storage_mutex);
	endpoint->conn = conn;
	mutex_unlock(&storage_mutex);
}

static bool is_connected(struct storage_endpoint *endpoint)
{
	return endpoint->sock && READ_ONCE(endpoint->sock->sk->sk_state) == TCP_ESTABLISHED;
}

int storage_bind(struct storage_endpoint *endpoint, struct iscsi_cls_conn *cls_conn, bool is_leading)
{
	struct iscsi_conn *conn = cls_conn->dd_data;
	int err;

	mutex_lock(&endpoint->lock);
	err = endpoint->conn || conn->dd_data ? -EBUSY : !is_connected(endpoint) ? -ENOTCONN : 0;
	if (!err)
		err = iscsi_conn_bind(conn->session->cls_session, cls_conn, is_leading);
	if (!err) {
		set_conn(endpoint, conn);
		WRITE_ONCE(conn->dd_data, endpoint);
	}
	mutex_unlock(&endpoint->lock);
	return err;
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

static bool has_adapter(void)
{
	bool has_one;

	mutex_lock(&storage_mutex);
	has_one = !list_empty(&adapters);
	mutex_unlock(&storage_mutex);
	if (!has_one)
		pr_info("there is no adapter with the iWARP personality\n");
	return has_one;
}

struct iscsi_endpoint *storage_ep_connect(struct Scsi_Host *host, struct sockaddr *address, int non_blocking)
{
	int length = address->sa_family == AF_INET ? sizeof(struct sockaddr_in) :
		     address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : 0;
	struct storage_endpoint *endpoint;
	int err;

	if (!length)
		return ERR_PTR(-EAFNOSUPPORT);
	if (!has_adapter())
		return ERR_PTR(-ENODEV);
	endpoint = kzalloc(sizeof(*endpoint), GFP_KERNEL);
	if (!endpoint)
		return ERR_PTR(-ENOMEM);
	refcount_set(&endpoint->users, 1);
	mutex_init(&endpoint->lock);
	INIT_WORK(&endpoint->reading, storage_read_socket);
	memcpy(&endpoint->address, address, length);
	err = dial(endpoint, length, non_blocking);
	if (err)
		goto fail;
	err = -ENOMEM;
	endpoint->ep = iscsi_create_endpoint(0);
	if (!endpoint->ep)
		goto fail;
	mutex_lock(&storage_mutex);
	list_add(&endpoint->list, &endpoints);
	mutex_unlock(&storage_mutex);
	return endpoint->ep;
fail:
	storage_put(endpoint);
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
	struct storage_endpoint *endpoint = storage_get(ep);
	int state = -ENOTCONN;

	if (!endpoint)
		return state;
	mutex_lock(&endpoint->lock);
	if (endpoint->sock) {
		struct sock *sk = endpoint->sock->sk;

		timeout_ms = clamp(timeout_ms, 0, POLL_MS);
		wait_event_interruptible_timeout(*sk_sleep(sk), (state = state_of(sk)), msecs_to_jiffies(timeout_ms));
	}
	unlock_and_put(endpoint);
	return state;
}

/* Returns an adapter until put_adapter(), or NULL if there are not so many. */
static struct storage_adapter *get_adapter(u32 nth)
{
	struct storage_adapter *adapter, *found = NULL;

	mutex_lock(&storage_mutex);
	list_for_each_entry(adapter, &adapters, list) {
		if (nth--)
			continue;
		refcount_inc(&adapter->users);
		found = adapter;
		break;
	}
	mutex_unlock(&storage_mutex);
	return found;
}

static void put_adapter(struct storage_adapter *adapter)
{
	if (refcount_dec_and_test(&adapter->users))
		complete(&adapter->unused);
}

/* Gives the socket to this adapter, until this time at the latest. */
static int hand_over_to(struct storage_endpoint *endpoint, struct storage_adapter *adapter, unsigned long end)
{
	struct storage_link *link = storage_link_create(adapter->device, endpoint->conn);
	int err;

	if (IS_ERR(link))
		return PTR_ERR(link);
	for (;;) {
		err = vrnic_stream_attach(link->qp, endpoint->sock);
		if (err != -EAGAIN || time_after(jiffies, end))
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
	mutex_lock(&storage_mutex);
	endpoint->adapter = adapter;
	mutex_unlock(&storage_mutex);
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

static int hand_over(struct storage_endpoint *endpoint)
{
	unsigned long end = jiffies + HAND_OVER_LIMIT;
	struct storage_adapter *adapter;
	int err = -ENODEV;

	if (!endpoint->conn)
		return -ENOTCONN;
	if (!endpoint->sock)
		return -EISCONN;
	if (endpoint->conn->session->discovery_sess)
		return -EOPNOTSUPP;
	if (!has_logged_in(endpoint))
		return -EBUSY;
	for (u32 nth = 0; err && (adapter = get_adapter(nth)); nth++) {
		err = hand_over_to(endpoint, adapter, end);
		if (err)
			iscsi_conn_printk(KERN_INFO, endpoint->conn, "%s does not take the connection: %d\n",
					  dev_name(&adapter->device->dev), err);
		put_adapter(adapter);
	}
	return err;
}

int storage_hand_over(struct iscsi_conn *conn)
{
	struct storage_endpoint *endpoint = lock_bound(conn);
	int err;

	if (!endpoint)
		return -ENOTCONN;
	err = hand_over(endpoint);
	unlock_and_put(endpoint);
	return err;
}

static void stop(struct storage_endpoint *endpoint)
{
	lockdep_assert_held(&endpoint->lock);
	WRITE_ONCE(endpoint->is_over, true);
	if (endpoint->sock)
		kernel_sock_shutdown(endpoint->sock, SHUT_RDWR);
	if (endpoint->link)
		storage_link_stop(endpoint->link);
}

void storage_stop(struct iscsi_conn *conn)
{
	struct storage_endpoint *endpoint = lock_bound(conn);

	if (!endpoint)
		return;
	stop(endpoint);
	unlock_and_put(endpoint);
}

static void end(struct storage_endpoint *endpoint)
{
	stop(endpoint);
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
	set_conn(endpoint, NULL);
}

void storage_end(struct iscsi_conn *conn)
{
	struct storage_endpoint *endpoint = lock_bound(conn);

	if (!endpoint)
		return;
	end(endpoint);
	unlock_and_put(endpoint);
}

void storage_ep_disconnect(struct iscsi_endpoint *ep)
{
	struct storage_endpoint *endpoint = storage_get(ep);
	bool is_listed;

	if (!endpoint)
		return;
	mutex_lock(&endpoint->lock);
	end(endpoint);
	/* An adapter that goes waits for the endpoints of the list. */
	mutex_lock(&storage_mutex);
	is_listed = !list_empty(&endpoint->list);
	list_del_init(&endpoint->list);
	mutex_unlock(&storage_mutex);
	unlock_and_put(endpoint);
	if (!is_listed)
		return;
	storage_put(endpoint);
	iscsi_destroy_endpoint(ep);
}

int storage_get_ep_param(struct iscsi_endpoint *ep, enum iscsi_param param, char *buf)
{
	struct storage_endpoint *endpoint;
	int length;

	if (param != ISCSI_PARAM_CONN_PORT && param != ISCSI_PARAM_CONN_ADDRESS)
		return -ENOSYS;
	endpoint = storage_get(ep);
	if (!endpoint)
		return -ENOTCONN;
	length = iscsi_conn_get_addr_param(&endpoint->address, param, buf);
	storage_put(endpoint);
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
	refcount_set(&adapter->users, 1);
	init_completion(&adapter->unused);
	mutex_lock(&storage_mutex);
	list_add_tail(&adapter->list, &adapters);
	mutex_unlock(&storage_mutex);
	return 0;
}

/* Takes an adapter from the list, and waits until no more connections are given to it. */
static struct storage_adapter *take_adapter(struct ib_device *device)
{
	struct storage_adapter *adapter, *found = NULL;

	mutex_lock(&storage_mutex);
	list_for_each_entry(adapter, &adapters, list)
		if (adapter->device == device)
			found = adapter;
	if (found)
		list_del(&found->list);
	mutex_unlock(&storage_mutex);
	if (!found)
		return NULL;
	put_adapter(found);
	wait_for_completion(&found->unused);
	return found;
}

/* Returns an endpoint whose connection the adapter has, or has had, and which is not returned again. */
static struct storage_endpoint *take_user(struct storage_adapter *adapter)
{
	struct storage_endpoint *endpoint, *found = NULL;

	mutex_lock(&storage_mutex);
	list_for_each_entry(endpoint, &endpoints, list)
		if (endpoint->adapter == adapter)
			found = endpoint;
	if (found) {
		found->adapter = NULL;
		refcount_inc(&found->users);
	}
	mutex_unlock(&storage_mutex);
	return found;
}

/* Connections by this adapter have failed. open-iscsi makes new ones. */
static void go(struct ib_device *device, void *data)
{
	struct storage_adapter *adapter = take_adapter(device);
	struct storage_endpoint *endpoint;

	while (adapter && (endpoint = take_user(adapter))) {
		mutex_lock(&endpoint->lock);
		storage_link_fail(endpoint->link, ISCSI_ERR_CONN_FAILED);
		storage_link_close(endpoint->link);
		unlock_and_put(endpoint);
	}
	kfree(adapter);
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
