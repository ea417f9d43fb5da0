//! The guest's views of the device and its objects: `rdma` with driver details, and the driver's
//! files in debugfs.
//!
//! Shows: views

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use vrnic_abi::admin::{CqRecord, KeyRecord, QpRecord, SrqRecord};
use vrnic_qemu::agent::Running;
use vrnic_qemu::guest::Guest;
use vrnic_qemu::pair::{Options, Pair};
use vrnic_tests::commands::{
    LONG_TIMEOUT, SHORT_TIMEOUT, both, settles, stop, stop_all, transfer, works,
};
use vrnic_tests::conformance::run;
use vrnic_tests::harness::{Case, Suite};
use zerocopy::FromBytes;

/// The driver's folder in debugfs, as shell words.
const FILES: &str = "/sys/kernel/debug/vrnic-*";

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let cases = vec![
        Case::new("rdma_dev_and_link", device),
        Case::new("rdma_res_has_driver_details", details),
        Case::new("rdma_res_has_records_of_the_adapter", records),
        Case::new("rdma_res_shows_regions_while_one_waits_for_memory", waiting),
        Case::new("rdma_statistic_counts_for_a_queue_pair", bound),
        Case::new("rdma_statistic_counts_by_type", automatic),
        Case::new("rdma_statistic_switches_optional_counters", optional),
        Case::new("debugfs_shows_rings", rings),
        Case::new("debugfs_shows_the_table_of_keys", keys),
        Case::new("debugfs_lists_come_in_pieces", pieces),
        Case::new("debugfs_has_no_faults_without_permission", no_faults),
        Case::new("debugfs_while_objects_come_and_go", churn),
        Case::new("debugfs_while_the_adapter_goes", removal),
    ];
    Ok(Suite::new(Options::default(), cases))
}

/// A guest may not set rules for faults, unless the operator permits it.
fn no_faults(pair: &mut Pair) -> Result<()> {
    let command = format!("ls {FILES}/qps && ! ls {FILES}/faults");
    pair.a.check(&command, SHORT_TIMEOUT).map(drop)
}

/// A process gives a region other memory, and does not supply it. Others can look at all regions.
fn waiting(pair: &mut Pair) -> Result<()> {
    let show = "rm -f /tmp/shown; (rdma resource show mr >/dev/null && touch /tmp/shown) & \
                for i in $(seq 50); do sleep 0.1; [ ! -e /tmp/shown ] || exit 0; done; exit 1";
    let changed = pair.a.check(&format!("vrnic_rereg '{show}'"), LONG_TIMEOUT)?;
    ensure!(changed == "the region has other memory\n", "{changed}");
    Ok(())
}

/// Returns the words of a line in pairs, from the first on: "qp 2 type RC" is qp → 2, type → RC.
fn fields(line: &str) -> BTreeMap<&str, &str> {
    let words: Vec<_> = line.split_whitespace().collect();
    words.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()
}

/// Returns a number of a line.
fn number(fields: &BTreeMap<&str, &str>, name: &str) -> Result<u64> {
    let text = fields.get(name).with_context(|| format!("no '{name}' in {fields:?}"))?;
    text.parse().with_context(|| format!("{name} is '{text}'"))
}

/// Starts a program in guest a with a pair of connected QPs, and its peer in guest b.
fn start(pair: &Pair) -> Result<[Running; 2]> {
    transfer(pair, "ib_write_bw", 60, 18901).map(|(server, client)| [client, server])
}

fn end(programs: [Running; 2], pair: &Pair) -> Result<()> {
    stop_all(programs)?;
    works(pair)
}

/// Firmware version, GUIDs, state and Ethernet device are the same as in sysfs.
fn device(pair: &mut Pair) -> Result<()> {
    for guest in [&pair.a, &pair.b] {
        let read = |file: &str| {
            let text =
                guest.check(&format!("cat /sys/class/infiniband/vrnic0/{file}"), SHORT_TIMEOUT)?;
            anyhow::Ok(text.trim().to_owned())
        };
        let text = guest.check("rdma dev show vrnic0 -d", SHORT_TIMEOUT)?;
        for (name, file) in
            [("fw", "fw_ver"), ("node_guid", "node_guid"), ("sys_image_guid", "sys_image_guid")]
        {
            let want = format!("{name} {}", read(file)?);
            ensure!(text.contains(&want), "no '{want}' in {text}");
        }
        ensure!(text.contains("node_type ca") && text.contains("adaptive-moderation"), "{text}");
        let text = guest.check("rdma link show vrnic0/1 -d", SHORT_TIMEOUT)?;
        for want in ["state ACTIVE", "physical_state LINK_UP", "netdev eth0"] {
            ensure!(text.contains(want), "no '{want}' in {text}");
        }
        ensure!(read("ports/1/rate")? == "100 Gb/sec (4X EDR)", "rate");
    }
    Ok(())
}

/// The link of `rdma statistic`.
const LINK: &str = "link vrnic0/1";

/// A condition: a set of counters has counted a thousand WRITEs.
const COUNTS: &str =
    "rdma statistic qp show link vrnic0/1 | grep -q 'tx_write_req [1-9][0-9][0-9][0-9]'";

/// Returns the sets of counters of guest a.
fn counter_sets(pair: &Pair) -> Result<String> {
    pair.a.check(&format!("rdma statistic qp show {LINK}"), SHORT_TIMEOUT)
}

/// Returns the number of WRITEs in a set of counters, or in all of them.
fn writes(text: &str) -> Result<u64> {
    number(&fields(text), "tx_write_req")
}

/// Returns the number of WRITEs of the port, with those that sets have counted.
fn all_writes(pair: &Pair) -> Result<u64> {
    writes(&pair.a.check(&format!("rdma statistic show {LINK}"), SHORT_TIMEOUT)?)
}

/// Returns the packets that the port of guest a has sent.
fn sent_packets(pair: &Pair) -> Result<u64> {
    let file = "/sys/class/infiniband/vrnic0/ports/1/counters/port_xmit_packets";
    Ok(pair.a.check(&format!("cat {file}"), SHORT_TIMEOUT)?.trim().parse()?)
}

/// A set of counters that an administrator binds to a queue pair counts its work, and the total of
/// the port contains it as long as the set exists, and afterwards.
fn bound(pair: &mut Pair) -> Result<()> {
    let programs = start(pair)?;
    let shown = pair.a.check("rdma res show qp", SHORT_TIMEOUT)?;
    let line = shown.lines().find(|line| line.contains("comm ib_write_bw"));
    let qpn = number(&fields(line.context("no queue pair")?), "lqpn")?;
    let (before, packets) = (all_writes(pair)?, sent_packets(pair)?);
    pair.a.check(&format!("rdma statistic qp bind {LINK} lqpn {qpn}"), SHORT_TIMEOUT)?;
    // A queue pair cannot have a second set.
    pair.a.check(&format!("! rdma statistic qp bind {LINK} lqpn {qpn}"), SHORT_TIMEOUT)?;
    settles(&pair.a, COUNTS, 30)?;
    let (counted, total) = (writes(&counter_sets(pair)?)?, all_writes(pair)?);
    ensure!(total >= before + counted, "{counted} of {total} WRITEs, {before} before");
    ensure!(sent_packets(pair)? >= packets + counted, "the port has lost {counted} WRITEs");
    let set = number(&fields(&counter_sets(pair)?), "cntn")?;
    let unbind = format!("rdma statistic qp unbind {LINK} cntn {set} lqpn {qpn}");
    pair.a.check(&unbind, SHORT_TIMEOUT)?;
    ensure!(counter_sets(pair)?.trim().is_empty(), "the set is still there");
    ensure!(all_writes(pair)? >= total, "the total has lost what the set has counted");
    end(programs, pair)
}

/// With the automatic mode, all queue pairs of a type have a set in common.
fn automatic(pair: &mut Pair) -> Result<()> {
    pair.a.check(&format!("rdma statistic qp set {LINK} auto type on"), SHORT_TIMEOUT)?;
    let mode = pair.a.check(&format!("rdma statistic qp mode {LINK}"), SHORT_TIMEOUT)?;
    ensure!(mode.contains("auto type on"), "{mode}");
    let before = all_writes(pair)?;
    let programs = start(pair)?;
    settles(&pair.a, COUNTS, 30)?;
    let sets = counter_sets(pair)?;
    ensure!(sets.contains("qp-type RC"), "{sets}");
    stop_all(programs)?;
    settles(&pair.a, &format!("test -z \"$(rdma statistic qp show {LINK})\""), 30)?;
    ensure!(all_writes(pair)? > before + 1000, "the total has lost what the set has counted");
    pair.a.check(&format!("rdma statistic qp set {LINK} auto off"), SHORT_TIMEOUT)?;
    works(pair)
}

/// An administrator switches optional counters on and off. Each counts from zero, and is shown only
/// while it is on.
///
/// Shows: views: rdma statistic switches optional counters
fn optional(pair: &mut Pair) -> Result<()> {
    let rdma = |what: &str| pair.a.check(&format!("rdma statistic {what}"), SHORT_TIMEOUT);
    let set = |names: &str| rdma(&format!("set {LINK} optional-counters {names}"));
    let show = || rdma(&format!("show {LINK}"));
    let write = || both(&pair.b, &pair.a, "ib_write_bw -F -n 1000 -s 4096 -p 18902", 18902);

    // The tool writes each name on a line of its own.
    let mode = |which: &str| {
        let text = rdma(&format!("mode {which} {LINK}"))?;
        anyhow::Ok(text.split_whitespace().collect::<String>())
    };
    let supported = mode("supported")?;
    ensure!(supported.contains("tx_send_bytes,tx_write_bytes,tx_read_bytes"), "{supported}");
    let off = show()?;
    ensure!(!off.contains("tx_write_bytes"), "it is on already: {off}");
    let files = "! ls /sys/class/infiniband/*/ports/1/hw_counters/tx_write_bytes";
    pair.a.check(files, SHORT_TIMEOUT)?;

    set("tx_write_bytes,tx_msgs_4k")?;
    let on = mode("")?;
    ensure!(on.ends_with("optional-counterstx_write_bytes,tx_msgs_4k"), "{on}");
    let read = |name| number(&fields(&show()?), name);
    ensure!(read("tx_write_bytes")? == 0 && read("tx_msgs_4k")? == 0, "it began before");
    write()?;
    let (bytes, messages) = (read("tx_write_bytes")?, read("tx_msgs_4k")?);
    ensure!(bytes == 4096 * messages && messages >= 1000, "{bytes} bytes, {messages} messages");

    // The one that stays on goes on, and the other begins again.
    set("tx_msgs_4k")?;
    ensure!(!show()?.contains("tx_write_bytes"), "it is still on");
    write()?;
    set("tx_write_bytes,tx_msgs_4k")?;
    let after = (read("tx_write_bytes")?, read("tx_msgs_4k")?);
    ensure!(after == (0, 2 * messages), "{messages} messages twice, then: {after:?}");
    pair.a
        .check(&format!("! rdma statistic set {LINK} optional-counters tx_pkts"), SHORT_TIMEOUT)?;

    rdma(&format!("unset {LINK} optional-counters"))?;
    let off = show()?;
    ensure!(!off.contains("tx_write_bytes") && !off.contains("tx_msgs"), "still on: {off}");
    Ok(())
}

fn details(pair: &mut Pair) -> Result<()> {
    let programs = start(pair)?;
    let shown = |what: &str| {
        let text = pair.a.check(&format!("rdma res show {what} -dd"), SHORT_TIMEOUT)?;
        // One line for each object.
        anyhow::Ok(text.replace("\n    ", " "))
    };
    for (what, own, names) in [
        (
            "qp",
            "comm ib_write_bw",
            &[
                "send_cqn",
                "recv_cqn",
                "uar",
                "slot",
                "worker",
                "path_mtu",
                "sq_memory",
                "sq_size",
                "sq_pi",
                "sq_ci",
                "rq_size",
            ][..],
        ),
        (
            "cq",
            "comm ib_write_bw",
            &["cqn", "handler", "events", "size", "pi", "ci", "armed", "failed"],
        ),
        (
            "mr",
            "comm ib_write_bw",
            &["kind region", "state valid", "access", "page_size", "windows"],
        ),
    ] {
        let text = shown(what)?;
        let line = text.lines().find(|line| line.contains(own));
        let line = line.with_context(|| format!("no {what} of the program in\n{text}"))?;
        for name in names {
            ensure!(line.contains(&format!("drv_{name}")), "no driver detail '{name}' in {line}");
        }
    }
    // The details agree with what the core knows from other sources.
    let text = shown("qp")?;
    let line = text.lines().find(|line| line.contains("comm ib_write_bw")).context("gone")?;
    let of =
        |name: &str| line.split_once(name).and_then(|(_, rest)| rest.split_whitespace().next());
    ensure!(of("path-mig-state ") == Some("MIGRATED"), "{line}");
    ensure!(of("drv_sq_size ") == Some("128"), "the queue of perftest has 128 entries: {line}");
    for what in ["pd", "ctx"] {
        ensure!(shown(what)?.contains("comm ib_write_bw"), "no {what} of the program");
    }
    end(programs, pair)?;
    srq_details(pair)
}

/// Calls `look` while a program has a shared receive queue.
fn with_srq<T>(pair: &Pair, look: impl FnOnce(&Guest) -> Result<T>) -> Result<T> {
    let program = pair.a.agent().start("exec ibv_srq_pingpong -g 1")?;
    settles(&pair.a, "rdma res show srq | grep -q ibv_srq", 10)?;
    let found = look(&pair.a);
    stop(program)?;
    found
}

/// Details of a shared receive queue.
fn srq_details(pair: &Pair) -> Result<()> {
    let text = with_srq(pair, |guest| guest.check("rdma res show srq -dd", SHORT_TIMEOUT))?;
    for name in ["drv_uar", "drv_rq_size", "drv_rq_pi", "drv_users", "drv_limit", "drv_failed 0"] {
        ensure!(text.contains(name), "no '{name}' in {text}");
    }
    Ok(())
}

/// Returns the objects of a kind by number, as `rdma` prints them in JSON with all details.
fn shown(guest: &Guest, kind: &str, number: &str) -> Result<BTreeMap<u64, Value>> {
    let text = guest.check(&format!("rdma -j res show {kind} -dd"), SHORT_TIMEOUT)?;
    let objects: Vec<Value> = serde_json::from_str(&text)?;
    let number = |object: &Value| object.get(number).and_then(Value::as_u64);
    Ok(objects.into_iter().filter_map(|object| Some((number(&object)?, object))).collect())
}

/// Returns the objects as records of the adapter.
fn raw<R: FromBytes>(
    guest: &Guest,
    kind: &str,
    number: impl Fn(&R) -> u32,
) -> Result<BTreeMap<u64, R>> {
    let text = guest.check(&format!("rdma -j res show {kind} -r"), SHORT_TIMEOUT)?;
    let objects: Vec<Value> = serde_json::from_str(&text).with_context(|| text.clone())?;
    let records = objects.into_iter().map(|mut object| {
        let bytes: Vec<u8> = serde_json::from_value(object["data"].take())?;
        let record = R::read_from_bytes(&bytes);
        let record = record.ok().with_context(|| format!("{kind}: {} bytes", bytes.len()))?;
        Ok((number(&record).into(), record))
    });
    records.collect()
}

/// `rdma resource show -r` gives the adapter's records of all objects, and no other records.
fn records(pair: &mut Pair) -> Result<()> {
    let programs = start(pair)?;
    let guest = &pair.a;
    let qps = raw(guest, "qp", |qp: &QpRecord| qp.qpn.get())?;
    let known = shown(guest, "qp", "lqpn")?;
    ensure!(qps.keys().eq(known.keys()), "{qps:?} for {known:?}");
    let (own, other) = known.iter().find(|(_, qp)| qp["comm"] == "ib_write_bw").context("no QP")?;
    let peer = other["rqpn"].as_u64().context("not connected")?;
    ensure!(u64::from(qps[own].dest_qpn.get()) == peer, "{:?} is not {other}", qps[own]);
    let cqs = raw(guest, "cq", |cq: &CqRecord| cq.cqn.get())?;
    let known = shown(guest, "cq", "drv_cqn")?;
    ensure!(cqs.keys().eq(known.keys()), "{cqs:?} for {known:?}");
    ensure!(cqs.contains_key(&qps[own].send_cqn.get().into()), "no CQ of {:?}", qps[own]);
    let keys = raw(guest, "mr", |key: &KeyRecord| key.key.get())?;
    let known = shown(guest, "mr", "mrn")?;
    ensure!(!known.is_empty() && keys.len() == known.len(), "{keys:?} for {known:?}");
    end(programs, pair)?;
    let (srqs, known) = with_srq(pair, |guest| {
        let srqs = raw(guest, "srq", |srq: &SrqRecord| srq.slot.get())?;
        Ok((srqs, shown(guest, "srq", "drv_slot")?))
    })?;
    ensure!(known.len() == 1 && srqs.keys().eq(known.keys()), "{srqs:?} for {known:?}");
    Ok(())
}

/// Each file has the program's objects, and its numbers agree with the other files and with the
/// kernel's own.
fn rings(pair: &mut Pair) -> Result<()> {
    let programs = start(pair)?;
    let read = |file: &str| pair.a.check(&format!("cat {FILES}/{file}"), SHORT_TIMEOUT);
    let qps = read("qps")?;
    let rc: Vec<_> = qps.lines().filter(|line| line.contains("type RC")).collect();
    let [line] = rc[..] else { anyhow::bail!("not one connection in\n{qps}") };
    let qp = fields(line);
    ensure!(qp["state"] == "RTS" && qp["at"] == mac(&pair.b)?, "{line}");
    for name in ["context", "pd", "uar", "slot", "worker", "path_mtu", "peer", "sq_producer"] {
        number(&qp, name)?;
    }
    let get = |name| number(&qp, name);
    ensure!(get("sq_producer")? - get("sq_consumer")? == get("sq_waiting")?, "{qp:?}");
    ensure!(get("sq_size")? - get("sq_waiting")? == get("sq_credits")?, "{qp:?}");
    ensure!(qps.lines().any(|line| line.starts_with("qp 1 type GSI state RTS")), "{qps}");
    let cqs = read("cqs")?;
    let lines: Vec<_> = cqs.lines().map(fields).collect();
    let cq = lines.iter().find(|cq| cq["cq"] == qp["send_cq"]).context("no CQ of the sends")?;
    let get = |name| number(cq, name);
    ensure!(get("producer")? - get("consumer")? == get("waiting")?, "{cq:?}");
    ensure!(get("size")? - get("waiting")? == get("credits")?, "{cq:?}");
    ensure!(get("producer")? > 0 && cq["uar"] == qp["uar"], "{cq:?} {qp:?}");
    let eqs = read("eqs")?;
    let lines: Vec<_> = eqs.lines().map(fields).collect();
    ensure!(lines[0]["eq"] == "0" && lines[0]["vector"] == "0", "{eqs}");
    ensure!(lines.iter().any(|eq| eq["eq"] == cq["eq"]), "no event queue of the CQ in\n{eqs}");
    let admin = read("admin")?;
    let admin = fields(admin.trim());
    ensure!(number(&admin, "size")? == 64 && admin["dead"] == "0", "{admin:?}");
    ensure!(number(&admin, "producer")? > 0 && number(&admin, "outstanding")? <= 1, "{admin:?}");
    end(programs, pair)
}

/// Returns the MAC of a guest's port.
fn mac(guest: &Guest) -> Result<String> {
    Ok(guest.check("cat /sys/class/net/eth0/address", SHORT_TIMEOUT)?.trim().to_owned())
}

fn keys(pair: &mut Pair) -> Result<()> {
    let before = pair.a.check(&format!("cat {FILES}/tpt"), SHORT_TIMEOUT)?;
    let programs = start(pair)?;
    let text = pair.a.check(&format!("cat {FILES}/tpt"), SHORT_TIMEOUT)?;
    let new: Vec<_> = text.lines().filter(|line| !before.contains(line)).collect();
    let [line] = new[..] else { anyhow::bail!("not one new key in\n{text}") };
    let key = fields(line);
    ensure!(key["type"] == "region" && key["state"] == "valid" && key["qp"] == "-", "{line}");
    ensure!(key["access"].starts_with("local_read,local_write"), "{line}");
    ensure!(number(&key, "length")? >= 65536 && number(&key, "page_size")? >= 4096, "{line}");
    let lkey = pair.a.check("rdma res show mr -dd | grep -o 'rkey [0-9a-fx]*'", SHORT_TIMEOUT)?;
    let hex = key["key"].trim_start_matches("0x").trim_start_matches('0');
    ensure!(lkey.contains(hex), "key {hex} is none of {lkey}");
    end(programs, pair)?;
    let after = pair.a.check(&format!("cat {FILES}/tpt"), SHORT_TIMEOUT)?;
    ensure!(!after.contains(line), "a key is left: {line}");
    Ok(())
}

/// A list is the same, whatever the size of the pieces in which it is read.
fn pieces(pair: &mut Pair) -> Result<()> {
    let script = format!(
        "cd {FILES}; for file in qps cqs eqs tpt; do cat $file > /tmp/whole; \
         dd if=$file bs=512 of=/tmp/parts 2>/dev/null; cmp /tmp/whole /tmp/parts || exit 1; \
         [ -s /tmp/whole ] || exit 2; done; dd if=qps bs=8 count=1 2>&1 | grep -q 'Invalid argument' || exit 3; \
         stat -c %a qps tpt admin | sort -u"
    );
    let modes = pair.a.check(&script, SHORT_TIMEOUT)?;
    let root_only = modes.lines().all(|mode| mode.ends_with("00") || mode == "444");
    ensure!(root_only, "modes {modes}");
    let mode = pair.a.check("stat -c %a /sys/kernel/debug", SHORT_TIMEOUT)?;
    ensure!(mode.trim() == "700", "debugfs itself has mode {mode}");
    Ok(())
}

/// Files are read all the time while a thousand objects are created and destroyed.
fn churn(pair: &mut Pair) -> Result<()> {
    let reader = pair.a.agent().start(&format!(
        "cd {FILES}; while true; do cat qps cqs srqs eqs tpt admin > /tmp/all || exit 1; \
         rdma res show qp -dd >/dev/null; rdma res show cq -dd > /dev/null; \
         rdma res show mr -dd >/dev/null; done"
    ))?;
    run(pair, "--only lifecycle/ --only srq/ --only windows/", "guest")?;
    let output = stop(reader)?;
    ensure!(!output.stderr.contains("rror"), "a reader failed: {}", output.stderr);
    works(pair)
}

/// The module is unloaded while its files are read.
fn removal(pair: &mut Pair) -> Result<()> {
    let script = format!(
        "(while cat {FILES}/qps {FILES}/tpt > /dev/null 2>&1; do :; done) & sleep 1; \
         rmmod vrnic_kverbs 2>/dev/null; rmmod vrnic && ! ls {FILES} 2>/dev/null && wait"
    );
    pair.a.check(&script, LONG_TIMEOUT)?;
    vrnic_qemu::pair::load_module(&pair.a)?;
    works(pair)
}
