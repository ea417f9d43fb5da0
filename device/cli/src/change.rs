//! Functions, ports and uplinks of a running daemon.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Subcommand;
use vrnic_control_api::per_second::{NoAmount, PerSecond};
use vrnic_control_api::request::{REQUEST_MAX, Reply, Request};
use vrnic_control_api::share::{Claim, NoShare, Part, Weight};
use vrnic_control_api::uplink::Way;
use vrnic_control_api::{FunctionCeilings, FunctionConfig, LanesConfig, PortConfig, UplinkConfig};

use crate::show::table;

/// Longest time to wait for the daemon.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The changes of functions.
#[derive(Debug, Subcommand)]
pub(crate) enum Function {
    /// Add a function:
    /// name=NAME,mac=MAC,socket=PATH,net=PATH,personality=PERSONALITY,source=SOURCE,addresses=MACS,
    /// storm=N,vlan=VLAN,rate=RATE,ops=OPS,interrupts=INTERRUPTS,dcqcn=RATE,weight=WEIGHT,
    /// floor=FLOOR,guest-faults=yes,resources=RESOURCES, as for vrnicd --function
    Add {
        /// Settings of the function
        settings: FunctionConfig,
    },
    /// Remove a function to which no VMM is connected
    Remove {
        /// Name of the function
        name: String,
        /// Remove it even if a VMM is connected, whose guest then loses its adapter
        #[arg(long)]
        force: bool,
    },
    /// Limit the messages that a function begins, and its interrupts. A limit that is not given
    /// ends
    Limit {
        /// Name of the function
        name: String,
        /// Bits of messages per second, such as 10G
        #[arg(long, value_parser = amount)]
        rate: Option<PerSecond>,
        /// Messages per second, such as 500k
        #[arg(long, value_parser = amount)]
        ops: Option<PerSecond>,
        /// Interrupts of its event queues per second, such as 20k
        #[arg(long, value_parser = amount)]
        interrupts: Option<PerSecond>,
    },
    /// Change a function's share of the workers' time. What is not given returns to its default
    Share {
        /// Name of the function
        name: String,
        /// The function's weight among the weights of all functions: 1 to 1000 [default: 100]
        #[arg(long, value_parser = weight)]
        weight: Option<Weight>,
        /// The part of the time that it has at least whenever it has work, such as 20%
        #[arg(long, value_parser = part)]
        floor: Option<Part>,
    },
    /// List the functions
    List,
}

/// Reads a weight.
fn weight(text: &str) -> Result<Weight, String> {
    text.parse().map_err(|NoShare| "use a number from 1 to 1000".to_owned())
}

/// Reads a part of the workers' time.
fn part(text: &str) -> Result<Part, String> {
    text.parse().map_err(|NoShare| "use a number of percent from 1 to 100, such as 20%".to_owned())
}

/// Reads an amount per second.
fn amount(text: &str) -> Result<PerSecond, String> {
    text.parse()
        .map_err(|NoAmount| "use a number above 0, such as 8000, 500k, 20M or 10G".to_owned())
}

/// The changes of ports.
#[derive(Debug, Subcommand)]
pub(crate) enum Port {
    /// Add a port: name=NAME,net=PATH,storm=N,vlan=VLAN, as for vrnicd --port
    Add {
        /// Settings of the port
        settings: PortConfig,
    },
    /// Remove a port
    Remove {
        /// Name of the port
        name: String,
    },
    /// List the ports
    List,
}

/// The changes of uplinks.
#[derive(Debug, Subcommand)]
pub(crate) enum Uplink {
    /// Add an uplink: name=NAME and listen=PATH, connect=PATH, tls-listen=ADDRESS:PORT and
    /// key=FILE, tls-connect=ADDRESS:PORT and key=FILE, tap=INTERFACE or packet=INTERFACE, as for
    /// vrnicd --uplink
    Add {
        /// Settings of the uplink
        settings: UplinkConfig,
    },
    /// Remove an uplink
    Remove {
        /// Name of the uplink
        name: String,
    },
    /// List the uplinks
    List,
}

/// The changes of lanes.
#[derive(Debug, Subcommand)]
pub(crate) enum Lanes {
    /// Give a function, a port or an uplink lanes, in place of those that it has: port=NAME and
    /// rate=RATE, strict=CLASSES, shares=SHARES, limits=LIMITS, ecn=MARKS, pfc=PAUSES, dscp=DSCPS
    /// and trust=FIELD, as for vrnicd --lanes
    Set {
        /// Settings of the lanes
        settings: LanesConfig,
    },
    /// Remove the lanes of a function, a port or an uplink
    Clear {
        /// Name of the function, the port or the uplink
        name: String,
    },
    /// List the settings of all lanes
    List,
}

impl From<Lanes> for Request {
    fn from(change: Lanes) -> Self {
        match change {
            Lanes::Set { settings } => Self::SetLanes(settings),
            Lanes::Clear { name } => Self::ClearLanes(name),
            Lanes::List => Self::ListLanes,
        }
    }
}

impl From<Function> for Request {
    fn from(change: Function) -> Self {
        match change {
            Function::Add { mut settings } => {
                // The daemon may have another working folder.
                settings.socket = absolute(settings.socket);
                settings.net = settings.net.map(absolute);
                Self::AddFunction(settings)
            }
            Function::Remove { name, force } => Self::RemoveFunction { name, force },
            Function::Limit { name, rate, ops, interrupts } => {
                let ceilings = FunctionCeilings { rate, ops, interrupts };
                Self::LimitFunction { name, ceilings }
            }
            Function::Share { name, weight, floor } => {
                let claim = Claim { weight: weight.unwrap_or_default(), floor };
                Self::ShareFunction { name, claim }
            }
            Function::List => Self::ListFunctions,
        }
    }
}

impl From<Port> for Request {
    fn from(change: Port) -> Self {
        match change {
            Port::Add { mut settings } => {
                settings.net = absolute(settings.net);
                Self::AddPort(settings)
            }
            Port::Remove { name } => Self::RemovePort(name),
            Port::List => Self::ListPorts,
        }
    }
}

impl From<Uplink> for Request {
    fn from(change: Uplink) -> Self {
        match change {
            Uplink::Add { mut settings } => {
                settings.way = match settings.way {
                    Way::Listen(path) => Way::Listen(absolute(path)),
                    Way::Connect(path) => Way::Connect(absolute(path)),
                    other => other,
                };
                Self::AddUplink(settings)
            }
            Uplink::Remove { name } => Self::RemoveUplink(name),
            Uplink::List => Self::ListUplinks,
        }
    }
}

/// Returns a path that does not depend on the working folder, if there is one.
fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

/// Returns how a flag is written in settings.
fn word(flag: bool) -> String {
    if flag { "yes" } else { "no" }.to_owned()
}

/// Returns the settings of a function as a row of a table.
fn row(function: FunctionConfig) -> [String; 16] {
    let FunctionConfig {
        name,
        mac,
        socket,
        net,
        personality,
        source,
        addresses,
        storm,
        vlans,
        rate,
        ops,
        interrupts,
        dcqcn,
        weight,
        floor,
        guest_faults,
        resources: _,
    } = function;
    let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    let ceiling =
        |amount: Option<PerSecond>| or_dash(amount.map(|it| it.to_string()).unwrap_or_default());
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    [
        name,
        mac.to_string(),
        socket.display().to_string(),
        or_dash(net.map(|net| net.display().to_string()).unwrap_or_default()),
        personality.name().to_owned(),
        source.to_string(),
        or_dash(addresses.join("+")),
        storm.0.to_string(),
        vlans.text(),
        ceiling(rate),
        ceiling(ops),
        ceiling(interrupts),
        ceiling(dcqcn),
        u16::from(weight).to_string(),
        or_dash(floor.map(|floor| floor.to_string()).unwrap_or_default()),
        if guest_faults { "yes" } else { "no" }.to_owned(),
    ]
}

/// Sends a request and prints the reply.
pub(crate) fn run(control: &Path, request: Request) -> anyhow::Result<()> {
    match ask(control, &request)? {
        Reply::Done => {}
        Reply::Refused(why) => bail!("the daemon refused this: {why}"),
        Reply::Functions(functions) => {
            // `vrnic resources` shows the last one.
            let [_, settings @ .., _] = FunctionConfig::KEYS;
            let mut table = table(&[&["function"], &settings[..]].concat());
            for function in functions {
                table.add_row(row(function));
            }
            println!("{table}");
        }
        Reply::Ports(ports) => {
            let mut table = table(&["port", "net", "storm", "vlan"]);
            for PortConfig { name, net, storm, vlans } in ports {
                let (net, storm) = (net.display().to_string(), storm.0.to_string());
                table.add_row([name, net, storm, vlans.text()]);
            }
            println!("{table}");
        }
        Reply::Lanes(lanes) => lanes.iter().for_each(|lanes| println!("{lanes}")),
        Reply::Uplinks(uplinks) => {
            let mut table = table(&["uplink", "leads to", "transit", "follow"]);
            for UplinkConfig { name, way, transit, follow } in uplinks {
                table.add_row([name, way.to_string(), word(transit), word(follow)]);
            }
            println!("{table}");
        }
        other => bail!("unexpected reply from the daemon: {other:?}"),
    }
    Ok(())
}

/// Sends a request and returns the reply.
pub(crate) fn ask(control: &Path, request: &Request) -> anyhow::Result<Reply> {
    Ok(send(control, request)?.0)
}

/// Sends a request. Returns the reply, and the connection for data that follows it.
pub(crate) fn send(
    control: &Path,
    request: &Request,
) -> anyhow::Result<(Reply, BufReader<UnixStream>)> {
    let text = serde_json::to_string(request)?;
    if text.len() >= REQUEST_MAX {
        bail!("the request is longer than the {REQUEST_MAX} bytes that the daemon reads");
    }
    let mut stream = UnixStream::connect(control).with_context(|| {
        format!("cannot connect to {}; is vrnicd running with --control?", control.display())
    })?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    writeln!(stream, "{text}").context("the daemon does not take the request")?;
    let mut reply = String::new();
    let mut stream = BufReader::new(stream);
    stream.read_line(&mut reply).context("the daemon did not answer")?;
    let reply = serde_json::from_str(&reply).context(
        "the daemon's reply has an unexpected form; vrnic and vrnicd may be of different versions",
    )?;
    Ok((reply, stream))
}
