//! Tests of the settings.
//!
//! Shows: daemon

use clap::{CommandFactory, Parser};
use vrnic_control_api::PortConfig;
use vrnic_control_api::storm::StormLimit;
use vrnic_control_api::vlans::VlanSetting;

use super::*;
use crate::cli::Args;
use vrnic_control::socket::access::{SocketGroup, SocketMode};

fn config(args: &[&str]) -> Result<Config, ConfigError> {
    let args = Args::try_parse_from([&["vrnicd"], args].concat()).expect("arguments");
    Config::new(args.settings, args.config.as_deref())
}

#[test]
fn command_line_overrides_the_file_and_adds_functions() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("c.toml");
    let text = "log = 'debug'\nworkers = 3\nsleep = 20\nallow-any-file = true\nsocket-mode = '0600'\nsocket-group = '7'\npin = [1, 2]\n[limit]\nqp = 9\npd = 8\n[[function]]\nname = 'a'\n\
                mac = '52:54:00:00:00:0a'\nsocket = '/run/a.sock'\n[[port]]\nname = 'p'\nnet = '/run/p.net'\n\
                [[uplink]]\nname = 'u'\nlisten = '/run/u'\n";
    std::fs::write(&path, text).expect("write");
    let path = path.to_str().expect("text");
    let function = "name=b,mac=52:54:00:00:00:0b,socket=/run/b.sock,net=/run/b.net";
    let config = config(&[
        "--config",
        path,
        "--workers",
        "2",
        "--function",
        function,
        "--uplink",
        "name=v,connect=/run/v",
        "--limit",
        "qp=7",
        "--socket-mode",
        "0606",
        "--guest-memory",
        "9",
    ])
    .expect("valid");
    assert_eq!((config.workers, config.log.as_str()), (2, "debug"));
    assert_eq!(config.idle.sleep, Duration::from_micros(20));
    assert_eq!(config.pin, [1, 2]);
    assert_eq!((config.limits.qp, config.limits.pd), (7, 8));
    let access = Access { mode: SocketMode(0o606), group: Some(SocketGroup(7)) };
    assert_eq!(config.access, access);
    assert_eq!(config.limits.cq, Limits::default().cq);
    let rules = MapRules { bytes: 9 << 30, any_file: true, ..MapRules::share(2) };
    assert_eq!(config.map_rules, rules);
    let names: Vec<_> =
        config.ethernet.functions.iter().map(|function| function.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let ports = [PortConfig {
        name: "p".into(),
        net: "/run/p.net".into(),
        storm: StormLimit::default(),
        vlans: VlanSetting::default(),
    }];
    assert_eq!(config.ethernet.ports, ports);
    let uplinks: Vec<_> =
        config.ethernet.uplinks.iter().map(|uplink| uplink.name.as_str()).collect();
    assert_eq!(uplinks, ["u", "v"]);
}

#[test]
fn faults_name_what_and_where() {
    let a = "name=a,mac=52:54:00:00:00:0a,socket=/a";
    let floor = |name, percent| {
        format!("name={name},mac=52:54:00:00:00:0{name},socket=/{name},floor={percent}%")
    };
    for (args, part) in [
        (vec![], "no function"),
        (vec!["-f", a, "-f", "name=a,mac=52:54:00:00:00:0b,socket=/b"], "name"),
        (vec!["-f", a, "-f", "name=b,mac=52:54:00:00:00:0a,socket=/b"], "MAC"),
        (vec!["-f", &floor("a", 60), "-f", &floor("b", 60)], "120 %"),
        (
            vec![
                "-f",
                a,
                "-f",
                "name=b,mac=52:54:00:00:00:0b,socket=/b,addresses=52:54:00:00:00:0a",
            ],
            "MAC",
        ),
        (
            vec!["-f", "name=b,mac=52:54:00:00:00:0b,socket=/b,addresses=53:54:00:00:00:0a"],
            "unicast",
        ),
        (vec!["-f", a, "-f", "name=b,mac=52:54:00:00:00:0b,socket=/b,net=/a"], "Ethernet"),
        (vec!["-f", "name=a b,mac=52:54:00:00:00:0a,socket=/a"], "a b"),
        (vec!["-f", "name=a,mac=ff:ff:ff:ff:ff:ff,socket=/a"], "unicast"),
        (vec!["-f", a, "--port", "name=a,net=/b"], "port a: another object uses the same name"),
        (vec!["-f", a, "--port", "name=p,net=/a"], "Ethernet socket"),
        (vec!["-f", a, "--uplink", "name=a,connect=/b"], "uplink a: another object"),
        (vec!["-f", a, "--uplink", "name=u,listen=/a"], "socket"),
        (vec!["-f", a, "--uplink", "name=,listen=/b"], "uplink name"),
        (vec!["-f", a, "--uplink", "name=u,tap=t", "--uplink", "name=v,packet=t"], "interface"),
        (vec!["-f", a, "--workers", "0"], "workers"),
        (vec!["-f", a, "--vectors", "1"], "vectors"),
        (vec!["-f", a, "--sleep", "10000001"], "sleep"),
        (vec!["-f", a, "--keepalive", "32768"], "keepalive"),
        (vec!["-f", a, "--guest-memory", "65537"], "guest-memory"),
        (vec!["-f", a, "--limit", "qp=0"], "amount of qp is 0"),
        (vec!["-f", a, "--limit", "qp=32769"], "amount of qp is 32769"),
        (vec!["-f", a, "--resource", "qp=8388609"], "amount of qp is 8388609"),
        (vec!["-f", a, "--resource", "qp=9"], "function a: out of resources: 32768 of qp"),
        (vec!["--config", "/nonexistent/c.toml"], "/nonexistent/c.toml"),
    ] {
        let error = config(&args).expect_err("a fault").to_string();
        assert!(error.contains(part), "{args:?}: {error}");
    }
}

#[test]
fn unknown_settings_in_the_file_are_refused() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("c.toml");
    std::fs::write(&path, "wokers = 3\n").expect("write");
    let error = config(&["-c", path.to_str().expect("text")]).expect_err("a fault");
    assert!(error.to_string().contains("wokers"), "{error}");
}

#[test]
fn crcs_are_set_on_the_command_line_or_in_the_file() {
    let a = "name=a,mac=52:54:00:00:00:0a,socket=/run/a.sock,net=/run/a.net";
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("c.toml");
    std::fs::write(&path, "mpa-crc = \"asked\"\n").expect("write");
    let file = path.to_str().expect("text");
    for (args, crc) in [
        (vec![], MpaCrc::Always),
        (vec!["-c", file], MpaCrc::Asked),
        (vec!["--mpa-crc", "asked"], MpaCrc::Asked),
        (vec!["-c", file, "--mpa-crc", "always"], MpaCrc::Always),
    ] {
        let args = [&["-f", a], &args[..]].concat();
        assert_eq!(config(&args).expect("valid").mpa_crc, crc, "{args:?}");
    }
}

#[test]
fn keepalive_is_set_on_the_command_line_or_in_the_file() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("c.toml");
    std::fs::write(&path, "keepalive = 60\n").expect("write");
    let file = path.to_str().expect("text");
    for (args, seconds) in [
        (vec![], Some(7200)),
        (vec!["-c", file], Some(60)),
        (vec!["--keepalive", "30"], Some(30)),
        (vec!["-c", file, "--keepalive", "0"], None),
    ] {
        let args = [&["-f", "name=a,mac=52:54:00:00:00:0a,socket=/run/a.sock"], &args[..]].concat();
        let idle = config(&args).expect("valid").keepalive;
        assert_eq!(idle, seconds.map(Duration::from_secs), "{args:?}");
    }
}

#[test]
fn help_names_the_defaults() {
    let a = ["-f", "name=a,mac=52:54:00:00:00:0a,socket=/run/a.sock"];
    let without = config(&a).expect("valid");
    let (command, mut tried) = (Args::command(), Vec::new());
    for option in command.get_arguments() {
        let help =
            option.get_help().map(ToString::to_string).unwrap_or_default().replace('\n', " ");
        let default =
            help.split_once("[default: ").and_then(|(_, rest)| rest.split([']', ';']).next());
        let (Some(default), Some(name)) = (default, option.get_long()) else { continue };
        if default.contains(' ') {
            continue; // in words
        }
        tried.push(name);
        if option.get_env().is_some_and(|name| std::env::var_os(name).is_some()) {
            continue; // the environment has another value
        }
        let with = config(&[&a[..], &[&format!("--{name}"), default]].concat()).expect(name);
        assert_eq!(with, without, "--{name} {default}");
    }
    let wanted = [
        "fabric",
        "mpa-crc",
        "keepalive",
        "log",
        "vectors",
        "spin",
        "sleep",
        "look",
        "drain",
        "device-memory",
        "guest-memory",
        "socket-mode",
    ];
    assert_eq!(tried, wanted);
}

#[test]
fn changes_that_need_a_restart_are_named() {
    let a = ["-f", "name=a,mac=52:54:00:00:00:0a,socket=/run/a.sock"];
    let start = config(&a).expect("valid");
    let b = ["-f", "name=b,mac=52:54:00:00:00:0b,socket=/run/b.sock"];
    for (args, changed) in [
        (vec![], vec![]),
        (vec!["--log", "debug", "--port", "name=p,net=/run/p.net"], vec![]),
        (vec!["--spin", "9", "--sleep", "9"], vec!["spin", "sleep"]),
        (vec!["--limit", "qp=9"], vec!["limits"]),
        (vec!["--device-memory", "2"], vec!["device-memory"]),
        (vec!["--guest-memory", "9", "--socket-mode", "0600"], vec!["guest-memory", "socket-mode"]),
        (b.to_vec(), vec![]),
    ] {
        let new = config(&[&a[..], &args].concat()).expect("valid");
        assert_eq!(changed_at_restart(&start, &new), changed, "{args:?}");
    }
}
