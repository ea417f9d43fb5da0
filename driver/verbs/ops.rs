// SPDX-License-Identifier: GPL-2.0
//! The operations: one line each, to the module of the object.

use abi::admin::{CqRecord, KeyRecord, QpRecord, SrqRecord};
use kernel::{fmt, prelude::*};

use super::{
    Hca, Verbs, ah, context, cq, describe, device, mcast, modify, mr, mw, pma, qp, srq, xrc,
};
use crate::pairing::PORT;
use crate::rdma::{
    self, Device, Driver, Operations,
    ah::{AhAttr, AhValues},
    attr::{DeviceAttr, LinkLayer, PortAttr, PortImmutable},
    cq::{CqInit, Moderation, Notify},
    gid::{Gid, GidAttr},
    mad::{Mad, MadResult},
    mr::{NewMr, RegionChange, UserRegion},
    mw::{Mw, MwType, NewMw},
    object::{Pd, Xrcd},
    qp::{NewQp, QpInit},
    qp_attr::{QpAttr, QpAttrMask, QpQuery},
    restrack::{RawResEntry, ResEntry},
    srq::{NewSrq, SrqChange, SrqInit, SrqQuery},
    stats::StatDesc,
    ucontext::{NewUcontext, Ucontext},
    udata::{Udata, User},
    wc::Completions,
    wr::{RecvWrs, SendWrs},
};

impl Driver for Verbs {
    type Data<'a> = Hca<'a>;
    type Ucontext = context::Context;
    type Pd = context::Pd;
    type Cq = cq::Cq;
    type Xrcd = xrc::Xrcd;
    type Srq = srq::Srq;
    type Qp = qp::Qp;
    type Mr = mr::Mr;
    type Ah = ah::Ah;
    type Mw = mw::Mw;
}

#[vtable]
impl Operations for Verbs {
    const DRIVER_ID: u32 = abi::RDMA_DRIVER_ID;
    const UVERBS_ABI_VERSION: u32 = abi::UVERBS_ABI_VERSION;
    const PORTS: u32 = PORT;
    const STATS: &'static [StatDesc] = &device::STAT_DESCS;

    fn query_device(hca: &Hca<'_>) -> Result<DeviceAttr> {
        Ok(device::query(hca))
    }

    fn query_port(hca: &Hca<'_>, device: &Device<Self>, port: u32) -> Result<PortAttr> {
        Ok(device::query_port(hca, device, port))
    }

    fn get_port_immutable(hca: &Hca<'_>, _port: u32) -> Result<PortImmutable> {
        Ok(device::port_immutable(hca))
    }

    fn get_link_layer(_port: u32) -> LinkLayer {
        LinkLayer::Ethernet
    }

    fn query_pkey(_hca: &Hca<'_>, _port: u32, index: u16) -> Result<u16> {
        device::query_pkey(index)
    }

    /// Does nothing: the pairing reports such events, those of a port that opens when the adapter
    /// knows.
    fn report_port_event(_hca: &Hca<'_>, _event: usize) {}

    fn get_dev_fw_str(hca: &Hca<'_>, out: &mut dyn fmt::Write) -> fmt::Result {
        device::fw_version(hca, out)
    }

    fn get_hw_stats(hca: &Hca<'_>, _port: u32, values: &mut [u64]) -> Result {
        device::read_stats(hca, values)
    }

    fn process_mad(hca: &Hca<'_>, port: u32, mad: &Mad<'_>, answer: &mut [u8]) -> MadResult {
        pma::process(hca, port, mad, answer)
    }

    fn add_gid(hca: &Hca<'_>, gid: &GidAttr) -> Result {
        device::add_gid(hca, gid)
    }

    fn del_gid(hca: &Hca<'_>, gid: &GidAttr) -> Result {
        device::del_gid(hca, gid)
    }

    fn alloc_ucontext(
        hca: &Hca<'_>,
        context: &NewUcontext<'_, Self>,
        udata: &Udata<'_>,
    ) -> Result<context::Context> {
        context::alloc(hca, context, udata)
    }

    fn dealloc_ucontext(hca: &Hca<'_>, context: &Ucontext<Self>) {
        context::dealloc(hca, context);
    }

    fn alloc_pd(hca: &Hca<'_>, user: Option<&User<'_, Self>>) -> Result<context::Pd> {
        context::alloc_pd(hca, user)
    }

    fn dealloc_pd(hca: &Hca<'_>, pd: &Pd<Self>) -> Result {
        context::dealloc_pd(hca, pd)
    }

    fn get_dma_mr(hca: &Hca<'_>, pd: &Pd<Self>, access: u32) -> Result<NewMr<mr::Mr>> {
        mr::reg_all(hca, pd, access)
    }

    fn reg_user_mr(
        hca: &Hca<'_>,
        device: &Device<Self>,
        pd: &Pd<Self>,
        region: &UserRegion,
        udata: Option<&Udata<'_>>,
    ) -> Result<NewMr<mr::Mr>> {
        mr::reg_user(hca, device, pd, region, udata)
    }

    fn reg_user_mr_dmabuf(
        hca: &Hca<'_>,
        device: &Device<Self>,
        pd: &Pd<Self>,
        region: &UserRegion,
        fd: i32,
    ) -> Result<NewMr<mr::Mr>> {
        mr::reg_dmabuf(hca, device, pd, region, fd)
    }

    fn rereg_user_mr(
        hca: &Hca<'_>,
        device: &Device<Self>,
        mr: &mr::Mr,
        change: &RegionChange<'_, Self>,
    ) -> Result<u32> {
        mr::rereg(hca, device, mr, change)
    }

    fn alloc_mr(hca: &Hca<'_>, pd: &Pd<Self>, max_pages: u32) -> Result<NewMr<mr::Mr>> {
        mr::alloc(hca, pd, max_pages)
    }

    fn dereg_mr(hca: &Hca<'_>, mr: &mr::Mr) -> Result {
        mr::dereg(hca, mr)
    }

    fn create_ah(_hca: &Hca<'_>, attr: &AhAttr, user: Option<&User<'_, Self>>) -> Result<ah::Ah> {
        ah::create(attr, user)
    }

    fn query_ah(ah: &ah::Ah) -> AhValues {
        ah.query()
    }

    fn attach_mcast(hca: &Hca<'_>, qp: &rdma::qp::Qp<Self>, group: Gid) -> Result {
        mcast::attach(hca, qp, group)
    }

    fn detach_mcast(hca: &Hca<'_>, qp: &rdma::qp::Qp<Self>, group: Gid) -> Result {
        mcast::detach(hca, qp, group)
    }

    fn alloc_mw(hca: &Hca<'_>, pd: &Pd<Self>, kind: MwType) -> Result<NewMw<mw::Mw>> {
        mw::alloc(hca, pd, kind)
    }

    fn dealloc_mw(hca: &Hca<'_>, mw: &Mw<Self>) -> Result {
        mw::dealloc(hca, mw)
    }

    fn create_cq(
        hca: &Hca<'_>,
        device: &Device<Self>,
        init: &mut CqInit<'_>,
        user: Option<&User<'_, Self>>,
    ) -> Result<cq::Cq> {
        cq::create(hca, device, init, user)
    }

    fn modify_cq(hca: &Hca<'_>, cq: &rdma::cq::Cq<Self>, moderation: Moderation) -> Result {
        cq::modify(hca, cq, moderation)
    }

    fn resize_user_cq(
        hca: &Hca<'_>,
        device: &Device<Self>,
        cq: &rdma::cq::Cq<Self>,
        entries: u32,
        user: &User<'_, Self>,
    ) -> Result<u32> {
        cq::resize(hca, device, cq, entries, user)
    }

    fn fill_res_mr_entry(hca: &Hca<'_>, mr: &mr::Mr, entry: &mut ResEntry<'_>) -> Result {
        describe::mr(hca, mr, entry)
    }

    fn fill_res_cq_entry(
        hca: &Hca<'_>,
        cq: &rdma::cq::Cq<Self>,
        entry: &mut ResEntry<'_>,
    ) -> Result {
        describe::cq(hca, cq, entry)
    }

    fn fill_res_srq_entry(
        hca: &Hca<'_>,
        srq: &rdma::srq::Srq<Self>,
        entry: &mut ResEntry<'_>,
    ) -> Result {
        describe::srq(hca, srq.srqn, entry)
    }

    fn fill_res_qp_entry(
        hca: &Hca<'_>,
        qp: &rdma::qp::Qp<Self>,
        entry: &mut ResEntry<'_>,
    ) -> Result {
        describe::qp(hca, qp.qpn, entry)
    }

    fn fill_res_mr_entry_raw(hca: &Hca<'_>, mr: &mr::Mr, entry: RawResEntry<'_>) -> Result {
        describe::raw::<KeyRecord>(hca, mr.key() >> 8, entry)
    }

    fn fill_res_cq_entry_raw(
        hca: &Hca<'_>,
        cq: &rdma::cq::Cq<Self>,
        entry: RawResEntry<'_>,
    ) -> Result {
        describe::raw::<CqRecord>(hca, cq.cqn, entry)
    }

    fn fill_res_srq_entry_raw(
        hca: &Hca<'_>,
        srq: &rdma::srq::Srq<Self>,
        entry: RawResEntry<'_>,
    ) -> Result {
        describe::raw::<SrqRecord>(hca, srq.srqn, entry)
    }

    fn fill_res_qp_entry_raw(
        hca: &Hca<'_>,
        qp: &rdma::qp::Qp<Self>,
        entry: RawResEntry<'_>,
    ) -> Result {
        describe::raw::<QpRecord>(hca, qp.qpn, entry)
    }

    fn destroy_cq(hca: &Hca<'_>, cq: &rdma::cq::Cq<Self>) -> Result {
        cq::destroy(hca, cq)
    }

    fn poll_cq(hca: &Hca<'_>, cq: &rdma::cq::Cq<Self>, out: &mut Completions<'_>) -> Result {
        cq.kernel()?.poll(hca, out)
    }

    fn req_notify_cq(hca: &Hca<'_>, cq: &rdma::cq::Cq<Self>, notify: Notify) -> Result<bool> {
        cq.kernel()?.arm(hca, notify)
    }

    fn alloc_xrcd(hca: &Hca<'_>) -> Result<xrc::Xrcd> {
        xrc::alloc(hca)
    }

    fn dealloc_xrcd(hca: &Hca<'_>, xrcd: &Xrcd<Self>) -> Result {
        xrc::dealloc(hca, xrcd)
    }

    fn create_srq(
        hca: &Hca<'_>,
        device: &Device<Self>,
        pd: &Pd<Self>,
        init: &mut SrqInit<'_, Self>,
        user: Option<&User<'_, Self>>,
    ) -> Result<NewSrq<srq::Srq>> {
        srq::create(hca, device, pd, init, user)
    }

    fn modify_srq(hca: &Hca<'_>, srq: &rdma::srq::Srq<Self>, change: SrqChange) -> Result {
        srq::modify(hca, srq, change)
    }

    fn query_srq(hca: &Hca<'_>, srq: &rdma::srq::Srq<Self>) -> Result<SrqQuery> {
        srq::query(hca, srq)
    }

    fn destroy_srq(hca: &Hca<'_>, srq: &rdma::srq::Srq<Self>) -> Result {
        srq::destroy(hca, srq)
    }

    fn post_srq_recv(hca: &Hca<'_>, srq: &rdma::srq::Srq<Self>, wrs: &mut RecvWrs<'_>) -> Result {
        srq.kernel()?.post_recv(hca, wrs)
    }

    fn create_qp(
        hca: &Hca<'_>,
        device: &Device<Self>,
        pd: Option<&Pd<Self>>,
        init: &mut QpInit<'_, Self>,
        user: Option<&User<'_, Self>>,
    ) -> Result<NewQp<qp::Qp>> {
        qp::create(hca, device, pd.map(|pd| &**pd), init, user)
    }

    fn modify_qp(
        hca: &Hca<'_>,
        qp: &rdma::qp::Qp<Self>,
        attr: &QpAttr,
        mask: QpAttrMask,
    ) -> Result {
        modify::modify(hca, qp, attr, mask)
    }

    fn query_qp(hca: &Hca<'_>, qp: &rdma::qp::Qp<Self>) -> Result<QpQuery> {
        modify::query(hca, qp)
    }

    fn destroy_qp(hca: &Hca<'_>, qp: &rdma::qp::Qp<Self>, user: Option<&User<'_, Self>>) -> Result {
        qp::destroy(hca, qp, user)
    }

    fn post_send(hca: &Hca<'_>, qp: &rdma::qp::Qp<Self>, wrs: &mut SendWrs<'_, Self>) -> Result {
        qp.kernel()?.post_send(hca, wrs)
    }

    fn post_recv(hca: &Hca<'_>, qp: &rdma::qp::Qp<Self>, wrs: &mut RecvWrs<'_>) -> Result {
        qp.kernel()?.post_recv(hca, wrs)
    }
}
