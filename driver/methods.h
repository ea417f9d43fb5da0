/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The driver's own methods of the core's objects, for its provider. Numbers and payloads are in
 * abi/src/uverbs.rs; the functions are in methods.rs.
 */
#ifndef VRNIC_METHODS_H
#define VRNIC_METHODS_H

#include <rdma/uverbs_ioctl.h>

enum {
	VRNIC_METHOD_RANGE = UVERBS_ID_DRIVER_NS,
	VRNIC_METHOD_ATTACH,
	VRNIC_METHOD_START = VRNIC_METHOD_RANGE + 4,
	VRNIC_METHOD_CONNECTION = VRNIC_METHOD_RANGE + 5,
	VRNIC_METHOD_QUERY_DM = UVERBS_ID_DRIVER_NS,
	VRNIC_ATTR_RANGE_QP = UVERBS_ID_DRIVER_NS_WITH_UHW,
	VRNIC_ATTR_RANGE_DM,
	VRNIC_ATTR_ATTACH_QP = UVERBS_ID_DRIVER_NS_WITH_UHW,
	VRNIC_ATTR_START_FROM = UVERBS_ID_DRIVER_NS_WITH_UHW,
	VRNIC_ATTR_START_TO,
	VRNIC_ATTR_CONNECTION_QP = UVERBS_ID_DRIVER_NS_WITH_UHW,
	VRNIC_ATTR_QUERY_DM = UVERBS_ID_DRIVER_NS_WITH_UHW,
};

/* A list that ends with an empty element. */
extern const struct uapi_definition vrnic_methods[];

/* Device memory is null if the process names none. */
int vrnic_method_range(struct ib_qp *qp, struct ib_dm *dm, struct ib_udata *udata);
int vrnic_method_attach(struct ib_qp *qp, struct ib_udata *udata);
int vrnic_method_start(struct ib_qp *from, struct ib_qp *to, struct ib_udata *udata);
int vrnic_method_connection(struct ib_qp *qp, struct ib_udata *udata);
int vrnic_method_query_dm(struct ib_dm *dm, struct ib_udata *udata);

#endif
