//! Generates bindings of the public headers of libibverbs and librdmacm. Their structs have the
//! same layout in all releases: new fields are only added where older programs do not look.

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result};
use vrnic_bind::ToolRoot;

/// Types of the headers.
const TYPES: &str = "ibv_(context|pd|mr|cq|cq_ex|qp|qp_ex|srq|comp_channel|async_event|wc|sge|\
                     send_wr|recv_wr|qp_attr|qp_init_attr|qp_init_attr_ex|qp_open_attr|\
                     cq_init_attr_ex|srq_init_attr|srq_init_attr_ex|parent_domain_init_attr|\
                     poll_cq_attr|data_buf|mw_bind_info|dm|ah|ah_attr|wr_opcode|wc_opcode|\
                     wc_status|create_cq_wc_flags|create_cq_attr_flags|cq_init_attr_mask|\
                     send_flags|access_flags|qp_state|qp_type|qp_attr_mask|event_type|\
                     rereg_mr_flags|transport_type|qp_init_attr_mask|srq_init_attr_mask)|\
                     verbs_context|\
                     rdma_(cm_id|cm_event|cm_event_type|conn_param|event_channel|port_space)";

fn main() -> Result<()> {
    println!("cargo::rerun-if-changed=wrapper.h");
    let options = ["--allowlist-type", TYPES, "--no-layout-tests"];
    let root = ToolRoot::find()?;
    let bindings = root.bind("wrapper.h", &options, &[])?;
    // The programs in C of the tests are built with the same header.
    println!("cargo::rustc-env=VRNIC_CHECK_INCLUDE={}", root.join("usr/include").display());
    let out = PathBuf::from(env::var("OUT_DIR").context("cargo names the folder")?);
    std::fs::write(out.join("verbs.rs"), bindings)?;
    Ok(())
}
