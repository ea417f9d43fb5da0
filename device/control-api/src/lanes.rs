//! The settings of the lanes of a port: classes of service, rates, marks, flow control.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use vrnic_lanes::config::{CERTAIN, LINK_MIN};
use vrnic_lanes::{Class, Config, Mapping, Red, Service, Thresholds, Trust};
use vrnic_packet::Rate;

use crate::error::SettingError;
use crate::fields::Fields;
use crate::per_second::{self, PerSecond};

/// The names of the settings.
const KEYS: [&str; 9] =
    ["port", "rate", "trust", "dscp", "strict", "shares", "limits", "ecn", "pfc"];
/// The time of the rate that may leave at once after a pause: threads wake up late.
const BURST: Duration = Duration::from_micros(250);
/// The bounds of these bytes.
const BURSTS: std::ops::RangeInclusive<u64> = 16 << 10..=1 << 20;
/// The bytes that wait at a port in all classes together.
const BUDGET: u32 = 32 << 20;
/// The bytes of a class between the threshold of its pauses and its limit.
const HEADROOM: u32 = 256 << 10;

const CLASS_FORM: &str = "classes from 0 to 7 with + between them, such as 6+7, or none";
const DSCP_FORM: &str = "DSCP:CLASS with + between them, such as 26:3+48:6";
const SHARES_FORM: &str = "CLASS:PERCENT with + between them, such as 0:50+3:50";
const LIMITS_FORM: &str = "CLASS:BYTES with + between them, such as 0:256k+3:4M";
const ECN_FORM: &str =
    "CLASS:FROM-TO-PERCENT in bytes and percent with + between them, such as 3:5k-200k-1, or none";
const PFC_FORM: &str = "CLASS:XOFF-XON in bytes with + between them, such as 3:256k-192k, or none";

/// The settings of the lanes of a port. They have been checked as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "Given", into = "Given")]
pub struct LanesConfig {
    given: Given,
    /// The classes of the port.
    pub config: Box<Config>,
    /// The class of each frame.
    pub mapping: Box<Mapping>,
}

/// The settings as a user gives them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Given {
    port: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rate: Option<PerSecond>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trust: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dscp: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    strict: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shares: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limits: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ecn: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pfc: Option<String>,
}

impl LanesConfig {
    /// Returns the name of the function, port or uplink.
    #[must_use]
    pub fn port(&self) -> &str {
        &self.given.port
    }
}

impl fmt::Display for LanesConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Given { port, rate, trust, dscp, strict, shares, limits, ecn, pfc } = &self.given;
        write!(f, "port={port}")?;
        if let Some(rate) = rate {
            write!(f, ",rate={rate}")?;
        }
        let texts = [trust, dscp, strict, shares, limits, ecn, pfc];
        for (key, text) in KEYS.iter().skip(2).zip(texts) {
            if let Some(text) = text {
                write!(f, ",{key}={text}")?;
            }
        }
        Ok(())
    }
}

/// Returns the error for a value that does not have its form.
fn wrong(key: &'static str, value: &str, form: &'static str) -> SettingError {
    SettingError::Value { object: "port", key, value: value.to_owned(), form }
}

/// Reads the parts of a list, each with `parse`.
fn list<T>(
    key: &'static str,
    text: Option<&String>,
    form: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<Vec<T>>, SettingError> {
    let Some(text) = text else { return Ok(None) };
    if text == "none" && form.ends_with("none") {
        return Ok(Some(Vec::new()));
    }
    let parts = text.split('+').map(|part| parse(part).ok_or_else(|| wrong(key, text, form)));
    parts.collect::<Result<_, _>>().map(Some)
}

fn class(text: &str) -> Option<Class> {
    text.parse().ok().and_then(Class::new)
}

/// Reads `CLASS:REST`.
fn of_class<T>(text: &str, rest: impl Fn(&str) -> Option<T>) -> Option<(Class, T)> {
    let (number, text) = text.split_once(':')?;
    Some((class(number)?, rest(text)?))
}

fn bytes(text: &str) -> Option<u32> {
    let amount: PerSecond = text.parse().ok()?;
    u32::try_from(amount.0.get()).ok()
}

fn red(text: &str) -> Option<Red> {
    let mut parts = text.split('-');
    let (min, max) = (bytes(parts.next()?)?, bytes(parts.next()?)?);
    let percent: u32 = parts.next()?.parse().ok()?;
    let probability = percent.checked_mul(CERTAIN / 100)?;
    parts.next().is_none().then_some(Red { min, max, probability })
}

fn thresholds(text: &str) -> Option<Thresholds> {
    let (xoff, xon) = text.split_once('-')?;
    Some(Thresholds { xoff: bytes(xoff)?, xon: bytes(xon)?, headroom: HEADROOM })
}

impl Given {
    fn mapping(&self) -> Result<Mapping, SettingError> {
        let mut mapping = Mapping::default();
        match self.trust.as_deref() {
            None | Some("dscp") => {}
            Some("priority") => mapping.set_trust(Trust::Priority),
            Some(other) => return Err(wrong("trust", other, "dscp or priority")),
        }
        let point = |text: &str| {
            let (dscp, number) = text.split_once(':')?;
            Some((dscp.parse::<u8>().ok()?, class(number)?))
        };
        for (dscp, class) in list("dscp", self.dscp.as_ref(), DSCP_FORM, point)?.unwrap_or_default()
        {
            if !mapping.set_dscp(dscp, class) {
                return Err(wrong("dscp", &dscp.to_string(), "a DSCP from 0 to 63"));
            }
        }
        Ok(mapping)
    }

    fn config(&self) -> Result<Config, SettingError> {
        let mut config = Config { budget: BUDGET, ..Config::default() };
        if let Some(rate) = self.rate {
            let rate = Rate::new(rate.0.get())
                .ok_or_else(|| wrong("rate", &rate.to_string(), "at most 1000G"))?;
            let burst = rate.bits_per_second() / 8 * BURST.as_micros() as u64 / 1_000_000;
            // CAST: at most 1 MiB.
            config.burst = burst.clamp(*BURSTS.start(), *BURSTS.end()) as u32;
            (config.rate, config.link) = (Some(rate), rate.max(Rate::nearest(LINK_MIN)));
        }
        self.serve(&mut config)?;
        let limits = |text: &str| of_class(text, bytes);
        for (class, limit) in
            list("limits", self.limits.as_ref(), LIMITS_FORM, limits)?.unwrap_or_default()
        {
            config.classes[class].limit = limit;
        }
        if let Some(marks) = list("ecn", self.ecn.as_ref(), ECN_FORM, |text| of_class(text, red))? {
            Class::ALL.into_iter().for_each(|class| config.classes[class].ecn = None);
            marks.into_iter().for_each(|(class, red)| config.classes[class].ecn = Some(red));
        }
        if let Some(pauses) =
            list("pfc", self.pfc.as_ref(), PFC_FORM, |text| of_class(text, thresholds))?
        {
            Class::ALL.into_iter().for_each(|class| config.classes[class].pfc = None);
            pauses.into_iter().for_each(|(class, it)| config.classes[class].pfc = Some(it));
        }
        config.check().map_err(|conflict| SettingError::Lanes(self.port.clone(), conflict))?;
        Ok(config)
    }

    /// Sets the turns of classes. If shares are given, other classes have a share of 1 %.
    fn serve(&self, config: &mut Config) -> Result<(), SettingError> {
        let shares = |text: &str| of_class(text, |percent| percent.parse::<u8>().ok());
        if let Some(shares) = list("shares", self.shares.as_ref(), SHARES_FORM, shares)? {
            for class in Class::ALL {
                if config.classes[class].service != Service::Strict {
                    config.classes[class].service = Service::Share(1);
                }
            }
            for (class, share) in shares {
                config.classes[class].service = Service::Share(share);
            }
        }
        if let Some(strict) = list("strict", self.strict.as_ref(), CLASS_FORM, class)? {
            for class in Class::ALL {
                if config.classes[class].service == Service::Strict {
                    config.classes[class].service = Service::Share(1);
                }
            }
            strict.into_iter().for_each(|class| config.classes[class].service = Service::Strict);
        }
        Ok(())
    }
}

impl TryFrom<Given> for LanesConfig {
    type Error = SettingError;

    fn try_from(given: Given) -> Result<Self, SettingError> {
        let (config, mapping) = (Box::new(given.config()?), Box::new(given.mapping()?));
        Ok(Self { given, config, mapping })
    }
}

impl From<LanesConfig> for Given {
    fn from(lanes: LanesConfig) -> Self {
        lanes.given
    }
}

impl FromStr for LanesConfig {
    type Err = SettingError;

    /// Parses
    /// `port=a,rate=1G,trust=…,dscp=…,strict=…,shares=…,limits=…,ecn=…,pfc=…`.
    fn from_str(text: &str) -> Result<Self, SettingError> {
        let fields = Fields::parse("port", &KEYS, text)?;
        let text = |key| fields.get(key).map(str::to_owned);
        Self::try_from(Given {
            port: fields.need("port")?.to_owned(),
            rate: fields.read("rate", per_second::FORM, str::parse)?,
            trust: text("trust"),
            dscp: text("dscp"),
            strict: text("strict"),
            shares: text("shares"),
            limits: text("limits"),
            ecn: text("ecn"),
            pfc: text("pfc"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_and_the_file_say_the_same() {
        for text in [
            "port=a",
            "port=a,rate=1G",
            "port=u,rate=10G,trust=priority,dscp=26:4+0:1,strict=7,shares=0:40+3:50,\
             limits=0:256k+3:2M,ecn=3:5k-200k-1,pfc=3:100k-50k",
            "port=a,strict=none,ecn=none,pfc=none",
        ] {
            let given: LanesConfig = text.parse().expect(text);
            assert_eq!(given.to_string(), text);
            let file = toml::to_string(&given).expect("text");
            assert_eq!(toml::from_str::<LanesConfig>(&file).expect("the same"), given);
        }
        let lanes: LanesConfig = "port=a,rate=1G,shares=0:40+3:50,strict=7,dscp=26:4,pfc=none"
            .parse()
            .expect("settings");
        assert_eq!(lanes.config.burst, 31_250, "250 µs");
        let service = |number| lanes.config.classes[Class::of_bits(number)].service;
        let expected = [40, 1, 1, 50, 1, 1, 1].map(Service::Share);
        assert_eq!([0, 1, 2, 3, 4, 5, 6].map(service), expected);
        assert_eq!(service(7), Service::Strict);
        assert_eq!(lanes.mapping.of_dscp(26).number(), 4);
        assert!(lanes.config.classes[Class::ROCE].pfc.is_none());
        assert!(lanes.config.classes[Class::ROCE].ecn.is_some(), "the default");
    }

    #[test]
    fn faults_are_named() {
        for (text, part) in [
            ("rate=1G", "'port' is missing"),
            ("port=a,rate=fast", "a number above 0"),
            ("port=a,rate=2000G", "at most 1000G"),
            ("port=a,trust=nobody", "dscp or priority"),
            ("port=a,dscp=26", "DSCP:CLASS"),
            ("port=a,dscp=64:1", "from 0 to 63"),
            ("port=a,dscp=26:8", "DSCP:CLASS"),
            ("port=a,strict=8", "classes from 0 to 7"),
            ("port=a,shares=0:60+3:60", "port a: the shares of the classes are 124 %"),
            ("port=a,shares=3:0", "class 3 has a share of 0 %"),
            ("port=a,limits=3:1k", "class 3 has a limit of 1000 bytes"),
            ("port=a,ecn=3:5k-200k", "FROM-TO-PERCENT"),
            ("port=a,ecn=3:200k-5k-1", "class 3 marks frames from 200000 to 5000 bytes"),
            ("port=a,ecn=3:5k-200k-101", "from 1 to 1000000"),
            ("port=a,pfc=3:50k-100k", "xon must be below xoff"),
            ("port=a,pfc=1:900k-1k", "class 1 pauses above 900000 bytes"),
            ("port=a,colour=red", "colour"),
        ] {
            let error = text.parse::<LanesConfig>().expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        let file = "port = 'a'\nshares = '0:60+3:60'\n";
        let error = toml::from_str::<LanesConfig>(file).expect_err("too much").to_string();
        assert!(error.contains("124 %"), "{error}");
    }
}
