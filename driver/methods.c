// SPDX-License-Identifier: GPL-2.0
/* See methods.h. */

#define UVERBS_MODULE_NAME vrnic
#include <rdma/uverbs_named_ioctl.h>
#include <rdma/uverbs_std_types.h>

#include "methods.h"

static int UVERBS_HANDLER(VRNIC_METHOD_RANGE)(struct uverbs_attr_bundle *attrs)
{
	struct ib_qp *qp = uverbs_attr_get_obj(attrs, VRNIC_ATTR_RANGE_QP);
	struct ib_dm *dm = NULL;

	if (uverbs_attr_is_valid(attrs, VRNIC_ATTR_RANGE_DM))
		dm = uverbs_attr_get_obj(attrs, VRNIC_ATTR_RANGE_DM);
	return vrnic_method_range(qp, dm, &attrs->driver_udata);
}

static int UVERBS_HANDLER(VRNIC_METHOD_ATTACH)(struct uverbs_attr_bundle *attrs)
{
	struct ib_qp *qp = uverbs_attr_get_obj(attrs, VRNIC_ATTR_ATTACH_QP);

	return vrnic_method_attach(qp, &attrs->driver_udata);
}

static int UVERBS_HANDLER(VRNIC_METHOD_START)(struct uverbs_attr_bundle *attrs)
{
	struct ib_qp *from = uverbs_attr_get_obj(attrs, VRNIC_ATTR_START_FROM);
	struct ib_qp *to = uverbs_attr_get_obj(attrs, VRNIC_ATTR_START_TO);

	return vrnic_method_start(from, to, &attrs->driver_udata);
}

static int UVERBS_HANDLER(VRNIC_METHOD_CONNECTION)(struct uverbs_attr_bundle *attrs)
{
	struct ib_qp *qp = uverbs_attr_get_obj(attrs, VRNIC_ATTR_CONNECTION_QP);

	return vrnic_method_connection(qp, &attrs->driver_udata);
}

static int UVERBS_HANDLER(VRNIC_METHOD_QUERY_DM)(struct uverbs_attr_bundle *attrs)
{
	struct ib_dm *dm = uverbs_attr_get_obj(attrs, VRNIC_ATTR_QUERY_DM);

	return vrnic_method_query_dm(dm, &attrs->driver_udata);
}

/* The queue pair is not destroyed meanwhile, nor is device memory freed. */
DECLARE_UVERBS_NAMED_METHOD(
	VRNIC_METHOD_RANGE,
	UVERBS_ATTR_IDR(VRNIC_ATTR_RANGE_QP, UVERBS_OBJECT_QP, UVERBS_ACCESS_READ, UA_MANDATORY),
	UVERBS_ATTR_IDR(VRNIC_ATTR_RANGE_DM, UVERBS_OBJECT_DM, UVERBS_ACCESS_READ, UA_OPTIONAL),
	UVERBS_ATTR_UHW());

DECLARE_UVERBS_NAMED_METHOD(
	VRNIC_METHOD_ATTACH,
	UVERBS_ATTR_IDR(VRNIC_ATTR_ATTACH_QP, UVERBS_OBJECT_QP, UVERBS_ACCESS_READ, UA_MANDATORY),
	UVERBS_ATTR_UHW());

DECLARE_UVERBS_NAMED_METHOD(
	VRNIC_METHOD_START,
	UVERBS_ATTR_IDR(VRNIC_ATTR_START_FROM, UVERBS_OBJECT_QP, UVERBS_ACCESS_READ, UA_MANDATORY),
	UVERBS_ATTR_IDR(VRNIC_ATTR_START_TO, UVERBS_OBJECT_QP, UVERBS_ACCESS_READ, UA_MANDATORY),
	UVERBS_ATTR_UHW());

DECLARE_UVERBS_NAMED_METHOD(
	VRNIC_METHOD_CONNECTION,
	UVERBS_ATTR_IDR(VRNIC_ATTR_CONNECTION_QP, UVERBS_OBJECT_QP, UVERBS_ACCESS_READ, UA_MANDATORY),
	UVERBS_ATTR_UHW());

DECLARE_UVERBS_NAMED_METHOD(
	VRNIC_METHOD_QUERY_DM,
	UVERBS_ATTR_IDR(VRNIC_ATTR_QUERY_DM, UVERBS_OBJECT_DM, UVERBS_ACCESS_READ, UA_MANDATORY),
	UVERBS_ATTR_UHW());

ADD_UVERBS_METHODS(vrnic_qp_methods, UVERBS_OBJECT_QP, &UVERBS_METHOD(VRNIC_METHOD_RANGE),
		   &UVERBS_METHOD(VRNIC_METHOD_ATTACH), &UVERBS_METHOD(VRNIC_METHOD_START),
		   &UVERBS_METHOD(VRNIC_METHOD_CONNECTION));
ADD_UVERBS_METHODS(vrnic_dm_methods, UVERBS_OBJECT_DM, &UVERBS_METHOD(VRNIC_METHOD_QUERY_DM));
ADD_UVERBS_ATTRIBUTES_SIMPLE(vrnic_query_context, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT,
			     UVERBS_ATTR_UHW());

const struct uapi_definition vrnic_methods[] = {
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_QP, &vrnic_qp_methods),
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_DM, &vrnic_dm_methods),
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_DEVICE, &vrnic_query_context),
	{}
};
