// SPDX-License-Identifier: GPL-2.0
//! The operations: one line each, to the module of the object.

use abi::admin::{CqRecord, KeyRecord, QpRecord, SrqRecord};
use kernel::{fmt, prelude::*, str::CStr};

use super::{
    Ctx, Verbs, ah, context, cq, describe, device, dm, mcast, modify, mr, mw, pma, qp, rnic, srq,
    xrc,
};
use crate::direct_work;
use crate::pairing::PORT;
use crate::rdma::{
    self, Device, Driver, Operations,
    ah::{AhAttr, AhValues},
    attr::{DeviceAttr, LinkLayer, PortAttr, PortImmutable, Protocol},
    cq::{CqInit, Moderation, Notify},
    device::DeviceChange,
    dm::{DmRegion, DmRequest},
    gid::{Gid, GidAttr},
    mad::{Mad, MadResult},
    mr::{NewMr, RegionChange, UserRegion},
    mw::{Mw, MwType, NewMw},
    object::{Pd, Xrcd},
    own_wr::OwnWr,
    qp::{NewQp, QpInit},
    qp_attr::{QpAttr, QpAttrMask, QpQuery},
    recv_wr::RecvWrs,
    restrack::{RawResEntry, ResEntry},
    srq::{NewSrq, SrqChange, SrqInit, SrqQuery},
    stats::StatDesc,
    ucontext::{NewUcontext, Ucontext},
    udata::{Udata, User},
    wc::Completions,
    wr::SendWrs,
};

impl Driver for Verbs {
    type Data<'a> = Ctx<'a>;
    type Ucontext = context::Context;
    type Pd = context::Pd;
    type Cq = cq::Cq;
    type Xrcd = xrc::Xrcd;
    type Srq = srq::Srq;
    type Qp = qp::Qp;
    type Dm = dm::Dm;
    type Mr = mr::Mr;
    type Ah = ah::Ah;
    type Mw = mw::Mw;

    const OWN_WRS: &'static [OwnWr] = direct_work::REQUESTS;
}

#[vtable]
impl Operations for Verbs {
    const DRIVER_ID: u32 = abi::RDMA_DRIVER_ID;
    const NAMES: &'static CStr = c"vrnic%d";
    const UVERBS_ABI_VERSION: u32 = abi::UVERBS_ABI_VERSION;
    const PORTS: u32 = PORT;
    const STATS: &'static [StatDesc] = &device::STAT_DESCS;

    fn query_device(ctx: &Ctx<'_>) -> Result<DeviceAttr> {
        Ok(device::query(ctx))
    }

    fn modify_device(_ctx: &Ctx<'_>, change: &DeviceChange) -> Result {
        device::modify(change)
    }

    fn query_port(ctx: &Ctx<'_>, device: &Device<Self>, port: u32) -> Result<PortAttr> {
        Ok(device::query_port(ctx, device, port))
    }

    fn get_port_immutable(ctx: &Ctx<'_>, _port: u32) -> Result<PortImmutable> {
        Ok(device::port_immutable(ctx))
    }

    fn get_link_layer(_port: u32) -> LinkLayer {
        LinkLayer::Ethernet
    }

    fn query_pkey(_ctx: &Ctx<'_>, _port: u32, index: u16) -> Result<u16> {
        device::query_pkey(index)
    }

    fn query_gid(ctx: &Ctx<'_>, _port: u32, index: u32) -> Result<Gid> {
        device::query_gid(ctx, index)
    }

    /// Does nothing: the pairing reports such events, those of a port that opens when the adapter
    /// knows.
    fn report_port_event(_ctx: &Ctx<'_>, _event: usize) {}

    fn get_dev_fw_str(ctx: &Ctx<'_>, out: &mut dyn fmt::Write) -> fmt::Result {
        device::fw_version(ctx, out)
    }

    fn get_hw_stats(ctx: &Ctx<'_>, _port: u32, values: &mut [u64]) -> Result {
        device::read_stats(ctx, values)
    }

    fn process_mad(ctx: &Ctx<'_>, port: u32, mad: &Mad<'_>, answer: &mut [u8]) -> MadResult {
        pma::process(ctx, port, mad, answer)
    }

    fn add_gid(ctx: &Ctx<'_>, gid: &GidAttr) -> Result {
        device::add_gid(ctx, gid)
    }

    fn del_gid(ctx: &Ctx<'_>, gid: &GidAttr) -> Result {
        device::del_gid(ctx, gid)
    }

    fn alloc_ucontext(
        ctx: &Ctx<'_>,
        context: &NewUcontext<'_, Self>,
        udata: &Udata<'_>,
    ) -> Result<context::Context> {
        context::alloc(ctx, context, udata)
    }

    fn dealloc_ucontext(ctx: &Ctx<'_>, context: &Ucontext<Self>) {
        context::dealloc(ctx, context);
    }

    fn query_ucontext(_: &Ctx<'_>, context: &Ucontext<Self>, udata: &Udata<'_>) -> Result {
        context::query(context, udata)
    }

    fn alloc_pd(ctx: &Ctx<'_>, user: Option<&User<'_, Self>>) -> Result<context::Pd> {
        context::alloc_pd(ctx, user)
    }

    fn dealloc_pd(ctx: &Ctx<'_>, pd: &Pd<Self>) -> Result {
        context::dealloc_pd(ctx, pd)
    }

    fn alloc_dm(ctx: &Ctx<'_>, context: &Ucontext<Self>, request: &DmRequest) -> Result<dm::Dm> {
        dm::alloc(ctx, context, request)
    }

    fn dealloc_dm(_ctx: &Ctx<'_>, context: &Ucontext<Self>, dm: &dm::Dm) {
        dm::dealloc(context, dm);
    }

    fn reg_dm_mr(
        ctx: &Ctx<'_>,
        pd: &Pd<Self>,
        dm: &dm::Dm,
        region: &DmRegion,
    ) -> Result<NewMr<mr::Mr>> {
        dm::register(ctx, pd, dm, region)
    }

    fn get_dma_mr(ctx: &Ctx<'_>, pd: &Pd<Self>, access: u32) -> Result<NewMr<mr::Mr>> {
        mr::reg_all(ctx, pd, access)
    }

    fn reg_user_mr(
        ctx: &Ctx<'_>,
        device: &Device<Self>,
        pd: &Pd<Self>,
        region: &UserRegion,
        udata: Option<&Udata<'_>>,
    ) -> Result<NewMr<mr::Mr>> {
        mr::reg_user(ctx, device, pd, region, udata)
    }

    fn reg_user_mr_dmabuf(
        ctx: &Ctx<'_>,
        device: &Device<Self>,
        pd: &Pd<Self>,
        region: &UserRegion,
        fd: i32,
    ) -> Result<NewMr<mr::Mr>> {
        mr::reg_dmabuf(ctx, device, pd, region, fd)
    }

    fn rereg_user_mr(
        ctx: &Ctx<'_>,
        device: &Device<Self>,
        mr: &mr::Mr,
        change: &RegionChange<'_, Self>,
    ) -> Result<u32> {
        mr::rereg(ctx, device, mr, change)
    }

    fn alloc_mr(ctx: &Ctx<'_>, pd: &Pd<Self>, max_pages: u32) -> Result<NewMr<mr::Mr>> {
        mr::alloc(ctx, pd, max_pages)
    }

    fn dereg_mr(ctx: &Ctx<'_>, mr: &mr::Mr) -> Result {
        mr::dereg(ctx, mr)
    }

    fn create_ah(_ctx: &Ctx<'_>, attr: &AhAttr, user: Option<&User<'_, Self>>) -> Result<ah::Ah> {
        ah::create(attr, user)
    }

    fn query_ah(ah: &ah::Ah) -> AhValues {
        ah.query()
    }

    fn attach_mcast(ctx: &Ctx<'_>, qp: &rdma::qp::Qp<Self>, group: Gid) -> Result {
        mcast::attach(ctx, qp, group)
    }

    fn detach_mcast(ctx: &Ctx<'_>, qp: &rdma::qp::Qp<Self>, group: Gid) -> Result {
        mcast::detach(ctx, qp, group)
    }

    fn alloc_mw(ctx: &Ctx<'_>, pd: &Pd<Self>, kind: MwType) -> Result<NewMw<mw::Mw>> {
        mw::alloc(ctx, pd, kind)
    }

    fn dealloc_mw(ctx: &Ctx<'_>, mw: &Mw<Self>) -> Result {
        mw::dealloc(ctx, mw)
    }

    fn create_cq(
        ctx: &Ctx<'_>,
        device: &Device<Self>,
        init: &mut CqInit<'_>,
        user: Option<&User<'_, Self>>,
    ) -> Result<cq::Cq> {
        cq::create(ctx, device, init, user)
    }

    fn modify_cq(ctx: &Ctx<'_>, cq: &rdma::cq::Cq<Self>, moderation: Moderation) -> Result {
        cq::modify(ctx, cq, moderation)
    }

    fn resize_user_cq(
        ctx: &Ctx<'_>,
        device: &Device<Self>,
        cq: &rdma::cq::Cq<Self>,
        entries: u32,
        user: &User<'_, Self>,
    ) -> Result<u32> {
        cq::resize(ctx, device, cq, entries, user)
    }

    fn fill_res_mr_entry(ctx: &Ctx<'_>, mr: &mr::Mr, entry: &mut ResEntry<'_>) -> Result {
        describe::show::<KeyRecord>(ctx, mr.key().index(), entry)
    }

    fn fill_res_cq_entry(
        ctx: &Ctx<'_>,
        cq: &rdma::cq::Cq<Self>,
        entry: &mut ResEntry<'_>,
    ) -> Result {
        describe::cq(ctx, cq, entry)
    }

    fn fill_res_srq_entry(
        ctx: &Ctx<'_>,
        srq: &rdma::srq::Srq<Self>,
        entry: &mut ResEntry<'_>,
    ) -> Result {
        describe::show::<SrqRecord>(ctx, srq.srqn, entry)
    }

    fn fill_res_qp_entry(
        ctx: &Ctx<'_>,
        qp: &rdma::qp::Qp<Self>,
        entry: &mut ResEntry<'_>,
    ) -> Result {
        describe::show::<QpRecord>(ctx, qp.qpn, entry)
    }

    fn fill_res_mr_entry_raw(ctx: &Ctx<'_>, mr: &mr::Mr, entry: RawResEntry<'_>) -> Result {
        describe::raw::<KeyRecord>(ctx, mr.key().index(), entry)
    }

    fn fill_res_cq_entry_raw(
        ctx: &Ctx<'_>,
        cq: &rdma::cq::Cq<Self>,
        entry: RawResEntry<'_>,
    ) -> Result {
        describe::raw::<CqRecord>(ctx, cq.cqn, entry)
    }

    fn fill_res_srq_entry_raw(
        ctx: &Ctx<'_>,
        srq: &rdma::srq::Srq<Self>,
        entry: RawResEntry<'_>,
    ) -> Result {
        describe::raw::<SrqRecord>(ctx, srq.srqn, entry)
    }

    fn fill_res_qp_entry_raw(
        ctx: &Ctx<'_>,
        qp: &rdma::qp::Qp<Self>,
        entry: RawResEntry<'_>,
    ) -> Result {
        describe::raw::<QpRecord>(ctx, qp.qpn, entry)
    }

    fn destroy_cq(ctx: &Ctx<'_>, cq: &rdma::cq::Cq<Self>) -> Result {
        cq::destroy(ctx, cq)
    }

    fn poll_cq(ctx: &Ctx<'_>, cq: &rdma::cq::Cq<Self>, out: &mut Completions<'_>) -> Result {
        cq.kernel()?.poll(ctx, out)
    }

    fn req_notify_cq(ctx: &Ctx<'_>, cq: &rdma::cq::Cq<Self>, notify: Notify) -> Result<bool> {
        cq.kernel()?.arm(ctx, notify)
    }

    fn alloc_xrcd(ctx: &Ctx<'_>) -> Result<xrc::Xrcd> {
        xrc::alloc(ctx)
    }

    fn dealloc_xrcd(ctx: &Ctx<'_>, xrcd: &Xrcd<Self>) -> Result {
        xrc::dealloc(ctx, xrcd)
    }

    fn create_srq(
        ctx: &Ctx<'_>,
        device: &Device<Self>,
        pd: &Pd<Self>,
        init: &mut SrqInit<'_, Self>,
        user: Option<&User<'_, Self>>,
    ) -> Result<NewSrq<srq::Srq>> {
        srq::create(ctx, device, pd, init, user)
    }

    fn modify_srq(ctx: &Ctx<'_>, srq: &rdma::srq::Srq<Self>, change: SrqChange) -> Result {
        srq::modify(ctx, srq, change)
    }

    fn query_srq(ctx: &Ctx<'_>, srq: &rdma::srq::Srq<Self>) -> Result<SrqQuery> {
        srq::query(ctx, srq)
    }

    fn destroy_srq(ctx: &Ctx<'_>, srq: &rdma::srq::Srq<Self>) -> Result {
        srq::destroy(ctx, srq)
    }

    fn post_srq_recv(ctx: &Ctx<'_>, srq: &rdma::srq::Srq<Self>, wrs: &mut RecvWrs<'_>) -> Result {
        srq.kernel()?.post_recv(ctx, wrs)
    }

    fn create_qp(
        ctx: &Ctx<'_>,
        device: &Device<Self>,
        pd: Option<&Pd<Self>>,
        init: &mut QpInit<'_, Self>,
        user: Option<&User<'_, Self>>,
    ) -> Result<NewQp<qp::Qp>> {
        qp::create(ctx, device, pd.map(|pd| &**pd), init, user)
    }

    fn modify_qp(
        ctx: &Ctx<'_>,
        qp: &rdma::qp::Qp<Self>,
        attr: &QpAttr<'_>,
        mask: QpAttrMask,
    ) -> Result {
        match ctx.adapter.protocol() {
            Protocol::Roce => modify::modify(ctx, qp, attr, mask),
            Protocol::Iwarp => rnic::modify(ctx, qp, attr, mask),
        }
    }

    fn query_qp(ctx: &Ctx<'_>, qp: &rdma::qp::Qp<Self>) -> Result<QpQuery> {
        modify::query(ctx, qp)
    }

    fn destroy_qp(ctx: &Ctx<'_>, qp: &rdma::qp::Qp<Self>, user: Option<&User<'_, Self>>) -> Result {
        qp::destroy(ctx, qp, user)
    }

    fn post_send(ctx: &Ctx<'_>, qp: &rdma::qp::Qp<Self>, wrs: &mut SendWrs<'_, Self>) -> Result {
        qp.kernel()?.post_send(ctx, wrs)
    }

    fn post_recv(ctx: &Ctx<'_>, qp: &rdma::qp::Qp<Self>, wrs: &mut RecvWrs<'_>) -> Result {
        qp.kernel()?.post_recv(ctx, wrs)
    }
}
