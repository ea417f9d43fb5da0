//! From a request to what does it.

use std::io;

use serde::Serialize;
use serde_json::Value;

use super::objects::Objects;
use super::process;
use crate::rpc::calls::{Failure, Request};

/// Does what is asked.
pub(super) fn handle(objects: &mut Objects, request: Request) -> Result<Value, Failure> {
    use Request as R;
    match request {
        R::Open(c) => answer(objects.open(c.device.as_deref())),
        R::Query(_) => answer(objects.query()),
        R::QueryPort(c) => answer(objects.context().and_then(|x| x.has_port(c.port))),
        R::QueryGid(c) => answer(objects.context().and_then(|x| x.gid(c.index))),
        R::QueryPkey(c) => answer(objects.context().and_then(|x| x.pkey(c.index))),
        R::Reset(_) => answer(objects.reset()),
        R::UseExtended(_) => answer(objects.use_extended()),
        R::Counters(_) => answer(objects.counters()),
        R::Clocks(_) => answer(objects.clocks()),
        R::LimitMemory(c) => answer(process::limit_memory(c.bytes)),
        R::Crash(_) => std::process::abort(),
        R::AllocPd(_) => answer(objects.alloc_pd()),
        R::AllocTd(_) => answer(objects.alloc_td()),
        R::DeallocTd(c) => answer(objects.dealloc_td(c.td)),
        R::AllocParent(c) => answer(objects.alloc_parent(&c)),
        R::DeallocPd(c) => answer(objects.dealloc_pd(c.pd)),
        R::AllocBuffer(c) => answer(objects.alloc_buffer(&c)),
        R::AllocDmabuf(c) => answer(objects.alloc_dmabuf(&c)),
        R::ProtectBuffer(c) => answer(objects.protect_buffer(c.buffer)),
        R::FreeBuffer(c) => answer(objects.free_buffer(c.buffer)),
        R::Fill(c) => answer(objects.fill(&c)),
        R::Compare(c) => answer(objects.compare(&c)),
        R::CheckCanaries(_) => answer(objects.check_canaries()),
        R::Write(c) => answer(objects.write(&c)),
        R::Read(c) => answer(objects.read(&c)),
        R::CpuFetchAdd(c) => answer(objects.cpu_fetch_add(&c)),
        R::SpinCompare(c) => answer(objects.spin_compare(&c)),
        R::RegDmabuf(c) => answer(objects.reg_dmabuf(&c)),
        R::RegOneTouch(c) => answer(objects.reg_one_touch(&c)),
        R::RegMr(c) => answer(objects.reg_mr(&c)),
        R::ReregMr(c) => answer(objects.rereg_mr(&c)),
        R::DeregMr(c) => answer(objects.dereg_mr(c.mr)),
        R::AllocMw(c) => answer(objects.alloc_mw(&c)),
        R::DeallocMw(c) => answer(objects.dealloc_mw(c.mw)),
        R::BindMw(c) => answer(objects.bind_mw(&c)),
        R::PostBind(c) => answer(objects.post_bind(&c)),
        R::CreateChannel(_) => answer(objects.create_channel()),
        R::DestroyChannel(c) => answer(objects.destroy_channel(c.channel)),
        R::CreateCq(c) => answer(objects.create_cq(&c)),
        R::CreateCqDirect(c) => answer(objects.create_cq_direct(&c)),
        R::ResizeCq(c) => answer(objects.resize_cq(&c)),
        R::DestroyCq(c) => answer(objects.destroy_cq(c.cq)),
        R::Arm(c) => answer(objects.arm(&c)),
        R::Moderate(c) => answer(objects.moderate(&c)),
        R::WaitChannel(c) => answer(objects.wait_channel(&c)),
        R::Poll(c) => answer(objects.poll(&c)),
        R::CreateSrq(c) => answer(objects.create_srq(&c)),
        R::ModifySrq(c) => answer(objects.modify_srq(&c)),
        R::QuerySrq(c) => answer(objects.query_srq(c.srq)),
        R::DestroySrq(c) => answer(objects.destroy_srq(c.srq)),
        R::PostSrqRecv(c) => answer(objects.post_srq_recv(&c)),
        R::OpenXrcd(c) => answer(objects.open_xrcd(&c)),
        R::CloseXrcd(c) => answer(objects.close_xrcd(c.xrcd)),
        R::CreateXrcSrq(c) => answer(objects.create_xrc_srq(&c)),
        R::CreateTarget(c) => answer(objects.create_target(c.xrcd)),
        R::OpenTarget(c) => answer(objects.open_target(&c)),
        R::CreateQp(c) => answer(objects.create_qp(&c)),
        R::ModifyQp(c) => answer(objects.modify_qp(&c)),
        R::QueryQp(c) => answer(objects.query_qp(c.qp)),
        R::CreateAh(c) => answer(objects.create_ah(&c)),
        R::DestroyAh(c) => answer(objects.destroy_ah(c.ah)),
        R::AttachMcast(c) => answer(objects.attach_mcast(&c)),
        R::DetachMcast(c) => answer(objects.detach_mcast(&c)),
        R::DestroyQp(c) => answer(objects.destroy_qp(c.qp)),
        R::PostSend(c) => answer(objects.post_send(&c)),
        R::PostTogether(c) => answer(objects.post_together(&c)),
        R::PostRecv(c) => answer(objects.post_recv(&c)),
        R::PostCommand(c) => answer(objects.post_command(&c)),
        R::WaitAsync(c) => answer(objects.wait_async(&c)),
        R::Stream(c) => answer(objects.stream(&c)),
        R::StreamResizing(c) => answer(objects.stream_resizing(&c)),
        R::ReceiveResizing(c) => answer(objects.receive_resizing(&c)),
        R::FetchAddMany(c) => answer(objects.fetch_add_many(&c)),
        R::CasIncrement(c) => answer(objects.cas_increment(&c)),
        R::RegMrFaulting(c) => answer(objects.reg_mr_faulting(&c)),
        R::ResizeCqFaulting(c) => answer(objects.resize_cq_faulting(&c)),
        R::Scribble(c) => answer(objects.scribble(&c)),
    }
}

fn answer<T: Serialize>(result: io::Result<T>) -> Result<Value, Failure> {
    let value = result.map_err(|e| failure(&e))?;
    serde_json::to_value(value).map_err(|e| Failure { errno: None, text: e.to_string() })
}

/// An error as it travels.
pub(super) fn failure(error: &io::Error) -> Failure {
    Failure { errno: error.raw_os_error(), text: error.to_string() }
}
