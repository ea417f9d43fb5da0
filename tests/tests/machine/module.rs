//! Loading and unloading the kernel module, idle and in use.
//!
//! Shows: driver

use std::net::Ipv4Addr;

use anyhow::{Context, Result, ensure};
use vrnic_qemu::guest::Guest;
use vrnic_qemu::pair::{Options, Pair, load_module, ready};
use vrnic_qemu::traffic::perftest::Case as Run;
use vrnic_tests::commands::{
    LONG_TIMEOUT, PCI, SHORT_TIMEOUT, counter, hears_fatal, link_is, recovers, registration,
    reload, said, serve, settles, stop, stop_all, transfer, watch, works,
};
use vrnic_tests::conformance::run;
use vrnic_tests::harness::health;
use vrnic_tests::harness::{Case, Suite};
use vrnic_tests::kverbs;
use vrnic_tests::shell::Shell;

/// With these parameters, the kernels of this test do not zero allocated memory, but fill it with a
/// pattern, check the bytes around it, and notice uses of freed memory.
const DEBUGGED: &str = "init_on_alloc=0 slub_debug=FZP";

/// Returns the suite.
pub(crate) fn suite() -> Result<Suite> {
    let cases = vec![
        Case::new("verbs_with_poisoned_memory", poisoned),
        Case::new("20_rounds_of_rmmod_and_insmod", rounds),
        Case::new("kernel_client_on_kernel_rings", kernel_client),
        Case::new("kernel_client_outlives_the_adapter", kernel_client_drains),
        Case::new("kernel_clients_of_two_machines", kernel_clients),
        Case::new("kernel_server_outlives_the_driver", kernel_server),
        Case::new("perftest_posts_inline_data", inline),
        Case::new("reset_before_bus_mastering", reset_first),
        Case::new("rmmod_while_a_program_uses_it", in_use),
        Case::new("rmmod_with_open_device", open_device),
        Case::new("netdev_comes_after_the_module", netdev_later),
        Case::new("a_probe_that_fails", refused),
        Case::new("pci_remove_and_rescan", remove),
        Case::new("function_level_reset_between_drivers", reset_idle),
        Case::new("function_level_reset_under_the_driver", reset_in_use),
        Case::new("unbind_and_bind_under_traffic", unbind),
        Case::new("requests_posted_after_unbinding_are_flushed", late),
        Case::ruinous("sleep_and_resume", sleeps),
    ];
    let daemon = vec!["--log".to_owned(), "debug".to_owned()];
    let kernel = DEBUGGED.to_owned();
    Ok(Suite::new(Options { daemon, kernel, ..Options::default() }, cases))
}

/// Verbs that return structs of the kernel, and verbs with handles of objects. They must neither
/// return nor use former contents of the kernel's memory, nor bytes next to an object.
fn poisoned(pair: &mut Pair) -> Result<()> {
    for guest in pair.guests() {
        let given = guest.check("cat /proc/cmdline", SHORT_TIMEOUT)?;
        ensure!(given.contains(DEBUGGED), "the kernel's parameters are {given}");
    }
    run(pair, "--only attributes/ --only hostile/ranges --only xrc/ --only srq/", "device")
}

/// Loads and unloads the module 20 times. Every fifth time the device is used.
fn rounds(pair: &mut Pair) -> Result<()> {
    for round in 1..=20 {
        reload(&pair.a, "").with_context(|| format!("round {round}"))?;
        if round % 5 == 0 {
            works(pair).with_context(|| format!("after round {round}"))?;
            health::check(pair).with_context(|| format!("after round {round}"))?;
        }
    }
    Ok(())
}

/// perftest decides by the part number whether an adapter takes inline data. With ERDMA's number,
/// which means that it does, WQEs with 64 bytes of data are in device memory.
fn inline(pair: &mut Pair) -> Result<()> {
    for guest in [&pair.a, &pair.b] {
        reload(guest, "part_id=4223")?;
    }
    for tool in ["ib_write_lat", "ib_send_lat", "ib_write_bw"] {
        let run = Run { tool, options: "-s 64 -I 64 -n 1000".into() };
        let outcome = pair.perftest(&run)?;
        ensure!(outcome.code == 0, "{tool}: rc={}\n{}", outcome.code, outcome.text);
        ensure!(outcome.text.contains(": 64[B]"), "{tool} is not inline:\n{}", outcome.text);
        println!("{tool} -I 64: {:?}", outcome.figure);
    }
    [&pair.a, &pair.b].into_iter().try_for_each(|guest| reload(guest, ""))
}

/// The driver's own kernel client is unloaded before the driver. No objects are left.
///
/// Shows: driver: the largest queues, all vectors and arming of kernel clients
fn kernel_client(pair: &mut Pair) -> Result<()> {
    [&pair.a, &pair.b].into_iter().try_for_each(|guest| kverbs::passes(guest, &["vrnic0".into()]))
}

/// Requests that are outstanding when the adapter is reset are flushed. Draining a QP, which the
/// client does when the device is removed, returns.
///
/// Shows: driver: kernel clients that outlive the adapter
fn kernel_client_drains(pair: &mut Pair) -> Result<()> {
    kverbs::outlives_adapter(&pair.a)?;
    works(pair)
}

/// Rounds of a kernel client over each of its connections.
const ROUNDS: u64 = 50;

/// Loads the kernel client in `guest`, which sends requests to the server in `server`
/// (driver/tests/kping). The client fails if data is wrong.
fn ask(guest: &Guest, server: &Guest) -> Result<()> {
    let peer: Ipv4Addr = server.ip().parse()?;
    let load = format!("insmod /vrnic/vrnic_kping.ko peer={} rounds={ROUNDS}", u32::from(peer));
    guest.check(&format!("dmesg -C; {load}; r=$?; dmesg | grep kping; exit $r"), LONG_TIMEOUT)?;
    let text = guest.check("dmesg", SHORT_TIMEOUT)?;
    for poll in ["Softirq", "Workqueue", "Direct"] {
        let line = format!("the data of {ROUNDS} rounds with completions by {poll} is right");
        ensure!(text.contains(&line), "no '{line}' in\n{text}");
    }
    guest.check("rmmod vrnic_kping", SHORT_TIMEOUT)?;
    Ok(())
}

/// Kernel clients of both guests connect by the connection manager and move data by fast
/// registration, READ, WRITE and SEND with invalidation. They take completions in each of the
/// possible ways, and drain their QPs.
fn kernel_clients(pair: &mut Pair) -> Result<()> {
    for (client, server) in [(&pair.a, &pair.b), (&pair.b, &pair.a)] {
        server.check("insmod /vrnic/vrnic_kping.ko", SHORT_TIMEOUT)?;
        let names = [
            "reg_wqes",
            "local_inv_wqes",
            "remote_invalidations",
            "rx_read_requests",
            "rx_write_requests",
        ];
        let read = || names.iter().map(|name| counter(client, name)).collect::<Result<Vec<_>>>();
        let before = read()?;
        ask(client, server)?;
        server.check("rmmod vrnic_kping", SHORT_TIMEOUT)?;
        // There are three connections. The server invalidates the key of every second round.
        let all = 3 * ROUNDS;
        let moved: Vec<_> = read()?.iter().zip(before).map(|(new, old)| new - old).collect();
        ensure!(moved == [all, all / 2, all / 2, all, all], "{names:?} grew by {moved:?}");
        let left = client.check("rdma res show qp; rdma res show cm_id", SHORT_TIMEOUT)?;
        ensure!(!left.contains("kping"), "left behind: {left}");
    }
    works(pair)
}

/// The driver is unloaded while a server listens, first without a client, then with a client that
/// is sending. The client fails, and the server serves the next device.
fn kernel_server(pair: &mut Pair) -> Result<()> {
    pair.b.check("insmod /vrnic/vrnic_kping.ko", SHORT_TIMEOUT)?;
    ask(&pair.a, &pair.b)?;
    reload(&pair.b, "")?;
    let peer: Ipv4Addr = pair.b.ip().parse()?;
    let load =
        format!("exec insmod /vrnic/vrnic_kping.ko rounds=100000000 peer={}", u32::from(peer));
    let client = pair.a.agent().start(&load)?;
    settles(&pair.a, "rdma res show qp | grep -q 'state RTS.*rdma_cm'", 30)?;
    pair.b.check("rmmod vrnic", SHORT_TIMEOUT)?;
    let output = client.wait(SHORT_TIMEOUT).context("the client does not notice")?;
    ensure!(!output.ok(), "the client went on without a server: {}", said(&output));
    load_module(&pair.b)?;
    ask(&pair.a, &pair.b)?;
    pair.b.check("rmmod vrnic_kping", SHORT_TIMEOUT)?;
    works(pair)
}

/// The rings of a former kernel must not overwrite memory of this kernel: the driver resets the
/// adapter before it enables bus mastering.
///
/// Shows: driver: a former kernel's rings cannot touch the memory of the next one
fn reset_first(pair: &mut Pair) -> Result<()> {
    let command = "dd bs=1 seek=4 conv=notrunc";
    // The command register: memory on, bus mastering off, no legacy interrupts.
    pair.a.check(
        &format!("rmmod vrnic; printf '\\002\\004' | {command} of={PCI}/config"),
        SHORT_TIMEOUT,
    )?;
    load_module(&pair.a)?;
    let log = pair.daemon.log(10_000);
    let a = |line: &&str| line.contains("function=\"a\"");
    let all: Vec<_> = log.lines().filter(a).collect();
    let off =
        all.iter().rposition(|line| line.contains("bus mastering") && line.contains("on=false"));
    let since = all.get(off.context("bus mastering was not turned off")?..).unwrap_or_default();
    let reset = since.iter().position(|line| line.contains("was reset"));
    let on = since.iter().position(|line| line.contains("on=true")).context("no bus mastering")?;
    ensure!(reset.is_some_and(|reset| reset < on), "no reset before bus mastering:\n{since:#?}");
    works(pair)
}

/// The module is unloaded during a transfer: programs get the fatal event and can be ended, and the
/// device works after the next insmod. (The queues of programs are in their own memory, which does
/// not change any more. perftest ignores events and polls until it is ended.)
fn in_use(pair: &mut Pair) -> Result<()> {
    let watcher = watch(&pair.a)?;
    let (server, client) = transfer(pair, "ib_write_bw", 120, 18700)?;
    pair.a.check("rmmod vrnic", SHORT_TIMEOUT)?;
    std::thread::sleep(std::time::Duration::from_secs(1));
    hears_fatal(watcher)?;
    stop_all([client, server])?;
    load_module(&pair.a)?;
    works(pair)
}

/// A program that has the device open without using it does not prevent the unloading of the
/// module.
fn open_device(pair: &mut Pair) -> Result<()> {
    let program = pair.a.agent().start("exec ibv_asyncwatch")?;
    std::thread::sleep(std::time::Duration::from_secs(1));
    pair.a.check("rmmod vrnic", SHORT_TIMEOUT)?;
    stop(program)?;
    load_module(&pair.a)?;
    works(pair)
}

/// The RDMA device waits for its network device, and is paired with it whenever it appears.
fn netdev_later(pair: &mut Pair) -> Result<()> {
    pair.a.check("rmmod vrnic; rmmod virtio_net", SHORT_TIMEOUT)?;
    pair.a.check("insmod /vrnic/vrnic.ko; sleep 1; modprobe virtio_net", SHORT_TIMEOUT)?;
    let address = &pair.a.setup().adapter.address;
    pair.a.check(
        &format!(
            "for n in $(seq 50); do [ -e /sys/class/net/eth0 ] && break; sleep 0.1; done; \
             ip link set eth0 up && ip addr add {address} dev eth0 && \
             for n in $(seq 100); do rdma link show | grep -q 'ACTIVE.*netdev eth0' && exit 0; \
             sleep 0.1; done; rdma link show; exit 1"
        ),
        SHORT_TIMEOUT,
    )?;
    works(pair)
}

/// Hot removal, and a new scan.
fn remove(pair: &mut Pair) -> Result<()> {
    for _ in 0..3 {
        pair.a.check(
            &format!("echo 1 > {PCI}/remove; ! ls /sys/class/infiniband/* 2>/dev/null"),
            SHORT_TIMEOUT,
        )?;
        pair.a.check("echo 1 > /sys/bus/pci/rescan", SHORT_TIMEOUT)?;
        link_is(&pair.a, "ACTIVE")?;
        works(pair)?;
    }
    Ok(())
}

fn reset_idle(pair: &mut Pair) -> Result<()> {
    pair.a.check(&format!("rmmod vrnic; echo 1 > {PCI}/reset"), SHORT_TIMEOUT)?;
    load_module(&pair.a)?;
    works(pair)?;
    memory_has_its_address(pair)
}

/// Device memory is found by its bus address, which the kernel restores after a reset.
fn memory_has_its_address(pair: &Pair) -> Result<()> {
    pair.a.check("vrnic-verify run --only direct/transfer", LONG_TIMEOUT).map(drop)
}

/// The function is reset through sysfs while the driver uses it and a program moves data: the
/// driver notices this and brings the adapter up again by itself. Programs get the fatal event, and
/// new programs work.
fn reset_in_use(pair: &mut Pair) -> Result<()> {
    for _ in 0..3 {
        let watcher = watch(&pair.a)?;
        let (server, client) = transfer(pair, "ib_write_bw", 120, 18700)?;
        let before = registration(&pair.a)?;
        pair.a.check(&format!("echo 1 > {PCI}/reset"), SHORT_TIMEOUT)?;
        recovers(&pair.a, before)?;
        hears_fatal(watcher)?;
        stop_all([client, server])?;
        works(pair)?;
    }
    memory_has_its_address(pair)
}

/// Moves data to guest b, whose agent runs the server, by a shell in guest a.
fn works_in(shell: &mut Shell, pair: &Pair) -> Result<()> {
    let ready = "until rdma link show | grep -q ACTIVE && \
                 grep -qs 0000:0000:0000:0000:0000:ffff /sys/class/infiniband/*/ports/1/gids/*; do sleep 0.1; done";
    shell.check(ready, SHORT_TIMEOUT)?;
    let server = serve(&pair.b, "ibv_rc_pingpong -g 1 -c -n 200", 18515)?;
    shell.check(&format!("ibv_rc_pingpong -g 1 -c -n 200 {}", pair.b.ip()), SHORT_TIMEOUT)?;
    ensure!(server.wait(SHORT_TIMEOUT)?.ok(), "the server failed");
    Ok(())
}

/// The guest is suspended for a few seconds. First to idle, with the kernel's own test of it, since
/// no clock wakes a guest: devices are suspended and resumed, and the adapter goes on unchanged.
/// Then to memory, until its clock wakes the guest: QEMU resets the adapter, and the driver brings
/// it up again.
///
/// Shows: driver: an adapter that is reset, sleeps, or comes back
fn sleeps(pair: &mut Pair) -> Result<()> {
    let before = registration(&pair.a)?;
    let mut shell = Shell::of(&pair.a)?;
    let idle = "echo devices > /sys/power/pm_test && echo freeze > /sys/power/state";
    shell.check(&format!("dmesg -C; {idle}; dmesg | grep 'PM: suspend exit'"), SHORT_TIMEOUT)?;
    works_in(&mut shell, pair).context("after sleeping idle")?;
    let deep = "echo none > /sys/power/pm_test && rtcwake -m mem -s 20";
    shell.check(
        &format!("{deep}; dmesg | grep 'Waking up from system sleep state S3'"),
        SHORT_TIMEOUT,
    )?;
    let number = "$(rdma dev show | cut -d : -f 1)";
    let anew = format!("until [ \"{number}\" -gt {before} ] 2>/dev/null; do sleep 0.1; done");
    shell.check(&anew, SHORT_TIMEOUT)?;
    works_in(&mut shell, pair).context("after sleeping to memory")?;
    shell.check("! dmesg | grep -e WARNING: -e BUG: -e 'Call Trace'", SHORT_TIMEOUT)?;
    Ok(())
}

/// The driver is unbound from the device during a transfer, and bound again.
///
/// Shows: driver: unbinding and binding under traffic
fn unbind(pair: &mut Pair) -> Result<()> {
    let watcher = watch(&pair.a)?;
    let (server, client) = transfer(pair, "ib_write_bw", 120, 18700)?;
    let bind = format!(
        "name=$(basename {PCI}); cd /sys/bus/pci/drivers/vrnic && echo $name > unbind && \
         ! ls /sys/class/infiniband/* 2>/dev/null && \
         [ $(cat /sys/bus/pci/devices/$name/enable) = 0 ] && echo $name > bind"
    );
    pair.a.check(&bind, SHORT_TIMEOUT)?;
    ready(&pair.a)?;
    hears_fatal(watcher)?;
    stop_all([client, server])?;
    works(pair)
}

/// Programs that do not poll while the driver is unbound post requests afterwards. The kernel has
/// replaced all their mappings by one page, to which these requests and their doorbells are stored.
fn late(pair: &mut Pair) -> Result<()> {
    let programs = ["", "--inline --count 2"].map(|options| {
        let program = format!("exec vrnic-stress late {options} >/tmp/late{} 2>&1", options.len());
        let running = pair.a.agent().start(&program)?;
        settles(&pair.a, &format!("grep -q '^in use' /tmp/late{}", options.len()), 30)?;
        Ok::<_, anyhow::Error>(running)
    });
    let unbind = format!("basename {PCI} >/sys/bus/pci/drivers/vrnic/unbind");
    pair.a.check(&unbind, SHORT_TIMEOUT)?;
    let outputs = programs.into_iter().map(|program| program?.wait(LONG_TIMEOUT));
    let outputs = outputs.collect::<Result<Vec<_>>>();
    pair.a.check(&format!("basename {PCI} >/sys/bus/pci/drivers/vrnic/bind"), SHORT_TIMEOUT)?;
    ready(&pair.a)?;
    for output in outputs? {
        ensure!(output.ok(), "{}", pair.a.check("cat /tmp/late*", SHORT_TIMEOUT)?);
    }
    works(pair)
}

/// The last step of bringing the adapter up is made to fail once: the registration for processors
/// that go online. The earlier steps are undone, and the next try succeeds.
///
/// Shows: driver: a probe that fails in its last step
fn refused(pair: &mut Pair) -> Result<()> {
    let script = format!(
        "set -e; device=$(basename {PCI}); driver=$(readlink -f {PCI}/driver); \
         cpus=/sys/devices/system/cpu; \
         state=$(sed -n 's|^ *\\([0-9]*\\): rdma/vrnic:online$|\\1|p' $cpus/hotplug/states); [ \"$state\" ]; \
         echo $device > $driver/unbind; echo $state > $cpus/cpu0/hotplug/fail; \
         ! echo $device > $driver/bind; echo $device > $driver/bind"
    );
    pair.a.check(&script, SHORT_TIMEOUT)?;
    link_is(&pair.a, "ACTIVE")?;
    works(pair)
}
