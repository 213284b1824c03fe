//! The network of a command: none, the host's, or an allow list of places.
//!
//! Handles only the text of the list; nothing here resolves a name or opens a socket.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use avfs_types::diagnose::Diagnose;

/// The prefix of a list.
const ALLOW: &str = "allow=";
/// The maximum length of a domain name.
const NAME_BYTES_MAX: usize = 253;
/// The ports of a place without a port.
pub const WEB_PORTS: [u16; 2] = [80, 443];

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetMode {
    /// Loopback only.
    None,
    /// The places of a list, through a proxy, in addition to loopback.
    Allow(AllowList),
    Host,
}

impl NetMode {
    /// One word for each mode.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Allow(_) => "allow",
            Self::Host => "host",
        }
    }

    /// True if the command has its own network namespace.
    #[must_use]
    pub const fn is_apart(&self) -> bool {
        match self {
            Self::None | Self::Allow(_) => true,
            Self::Host => false,
        }
    }

    /// True if everything reachable with `other` is also reachable with this mode.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Host, _) | (_, Self::None) => true,
            (Self::Allow(own), Self::Allow(other)) => own.covers(other),
            (Self::None | Self::Allow(_), Self::Host) | (Self::None, Self::Allow(_)) => false,
        }
    }
}

impl fmt::Display for NetMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None | Self::Host => f.write_str(self.kind()),
            Self::Allow(list) => write!(f, "{ALLOW}{list}"),
        }
    }
}

/// A text that is not a network.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NetError {
    #[error("invalid network {0:?}: expected none, host or allow=DOMAIN,…")]
    Mode(String),
    #[error("the allow list is empty")]
    Empty,
    #[error("{0:?} is not ASCII: write the name in Punycode (xn--)")]
    NotAscii(String),
    #[error(
        "invalid place {0:?}: expected DOMAIN, *.DOMAIN or ADDRESS[/PREFIX], optionally followed by :PORT"
    )]
    Place(String),
}

impl Diagnose for NetError {
    fn code(&self) -> &'static str {
        "value.invalid"
    }
}

impl FromStr for NetMode {
    type Err = NetError;

    fn from_str(text: &str) -> Result<Self, NetError> {
        match text {
            "none" => Ok(Self::None),
            "host" => Ok(Self::Host),
            other => match other.strip_prefix(ALLOW) {
                Some(list) => AllowList::parse(list).map(Self::Allow),
                None => Err(NetError::Mode(short(other))),
            },
        }
    }
}

/// Places that may be reached; sorted, without duplicates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowList {
    rules: Vec<AllowRule>,
}

impl AllowList {
    /// Parses places separated by commas.
    pub fn parse(text: &str) -> Result<Self, NetError> {
        let places = text.split(',').map(str::trim).filter(|place| !place.is_empty());
        let mut rules = places.map(AllowRule::parse).collect::<Result<Vec<_>, _>>()?;
        rules.sort();
        rules.dedup();
        if rules.is_empty() { Err(NetError::Empty) } else { Ok(Self { rules }) }
    }

    #[must_use]
    pub fn rules(&self) -> &[AllowRule] {
        &self.rules
    }

    /// True if this list contains every place of the other list.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.first_beyond(other).is_none()
    }

    /// The first place of the other list that this list does not contain.
    #[must_use]
    pub fn first_beyond<'a>(&self, other: &'a Self) -> Option<&'a AllowRule> {
        // The ports of one of their places may be covered by several of ours.
        let meant = |host: &HostRule, port| {
            self.rules.iter().any(|rule| rule.has_port(port) && rule.host.covers(host))
        };
        other.rules.iter().find(|wanted| !wanted.ports().iter().all(|port| meant(&wanted.host, *port)))
    }
}

impl fmt::Display for AllowList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, rule) in self.rules.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(f, "{comma}{rule}")?;
        }
        Ok(())
    }
}

/// One place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AllowRule {
    pub host: HostRule,
    /// `None` for ports 80 and 443.
    pub port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostRule {
    /// This name, in lower case.
    Name(String),
    /// Every subdomain of this name, but not the name itself.
    Beneath(String),
    /// Addresses that share this many leading bits.
    Address { address: IpAddr, prefix: u8 },
}

impl AllowRule {
    fn parse(text: &str) -> Result<Self, NetError> {
        let bad = || NetError::Place(short(text));
        if !text.is_ascii() {
            return Err(NetError::NotAscii(short(text)));
        }
        // An IPv6 address contains colons: with a port it is written in brackets.
        let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, rest)) => (host, rest.strip_prefix(':').or(rest.is_empty().then_some(""))),
            None if text.matches(':').count() > 1 => (text, Some("")),
            None => text.split_once(':').map_or((text, Some("")), |(host, port)| (host, Some(port))),
        };
        let port = match port.ok_or_else(bad)? {
            "" if text.ends_with(':') && !text.starts_with("::") => return Err(bad()),
            "" => None,
            number => Some(number.parse().ok().filter(|port| *port > 0).ok_or_else(bad)?),
        };
        Ok(Self { host: HostRule::parse(host).ok_or_else(bad)?, port })
    }

    /// The ports of the place.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        self.port.map_or(WEB_PORTS.to_vec(), |port| vec![port])
    }

    #[must_use]
    pub fn has_port(&self, port: u16) -> bool {
        self.port.map_or(WEB_PORTS.contains(&port), |own| own == port)
    }
}

impl fmt::Display for AllowRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.host, self.port) {
            (HostRule::Address { address: IpAddr::V6(_), .. }, Some(port)) => {
                write!(f, "[{}]:{port}", self.host)
            }
            (host, Some(port)) => write!(f, "{host}:{port}"),
            (host, None) => write!(f, "{host}"),
        }
    }
}

impl HostRule {
    fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
        if let Ok(address) = address.parse::<IpAddr>() {
            // Reject an IPv4-mapped IPv6 address: connections are checked by the IPv4 address, so it would never match.
            let plain = address.to_canonical() == address;
            return Self::network(address, prefix).filter(|_| plain);
        }
        let name = text.to_ascii_lowercase();
        let name = name.strip_suffix('.').unwrap_or(&name);
        match name.strip_prefix("*.") {
            Some(domain) => is_name(domain).then(|| Self::Beneath(domain.to_owned())),
            None => is_name(name).then(|| Self::Name(name.to_owned())),
        }
    }

    fn network(address: IpAddr, prefix: Option<&str>) -> Option<Self> {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Some(bits), |prefix| prefix.parse().ok().filter(|it| *it <= bits))?;
        Some(Self::Address { address, prefix })
    }

    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Name(own), Self::Name(other)) => own == other,
            (Self::Beneath(domain), Self::Name(name)) => is_beneath(name, domain),
            (Self::Beneath(domain), Self::Beneath(other)) => domain == other || is_beneath(other, domain),
            (Self::Address { address, prefix }, Self::Address { address: other, prefix: longer }) => {
                prefix <= longer && is_within(*other, *address, *prefix)
            }
            (Self::Name(_), Self::Beneath(_) | Self::Address { .. })
            | (Self::Beneath(_), Self::Address { .. })
            | (Self::Address { .. }, Self::Name(_) | Self::Beneath(_)) => false,
        }
    }
}

impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Beneath(domain) => write!(f, "*.{domain}"),
            Self::Address { address, prefix } => {
                let whole = if address.is_ipv4() { 32 } else { 128 };
                if *prefix == whole { write!(f, "{address}") } else { write!(f, "{address}/{prefix}") }
            }
        }
    }
}

/// True for a name that ends in `.domain`.
#[must_use]
pub fn is_beneath(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
}

/// True for an address in the network `network/prefix`.
#[must_use]
pub fn is_within(address: IpAddr, network: IpAddr, prefix: u8) -> bool {
    let (address, network, bits) = match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            (u128::from(address.to_bits()), u128::from(network.to_bits()), 32)
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => (address.to_bits(), network.to_bits(), 128),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
    };
    let rest = bits - u32::from(prefix).min(bits);
    address.checked_shr(rest).unwrap_or(0) == network.checked_shr(rest).unwrap_or(0)
}

/// Labels of letters, digits and dashes; the last one not numeric, which would be an unusual form of an address.
fn is_name(text: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    let last = text.rsplit('.').next().unwrap_or_default();
    text.len() <= NAME_BYTES_MAX
        && text.split('.').all(label)
        && last.bytes().any(|byte| byte.is_ascii_alphabetic())
        && !last.starts_with("0x")
}

fn short(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> AllowList {
        AllowList::parse(text).unwrap()
    }

    #[test]
    fn places_round_trip_through_text() {
        for text in
            ["none", "host", "allow=github.com", "allow=*.crates.io:443,github.com", "allow=10.0.0.0/8:5432"]
                .into_iter()
                .chain(["allow=[::1]:80,::1", "allow=fc00::/7", "allow=127.0.0.1"])
        {
            let mode: NetMode = text.parse().unwrap();
            assert_eq!(mode.to_string().parse(), Ok(mode.clone()), "{text}");
        }
        assert_eq!(list("GitHub.com, b.org.,github.com").to_string(), "b.org,github.com");
    }

    #[test]
    fn invalid_places_are_rejected() {
        for bad in
            ["", "all", "allow=", "allow=,", "allow=a..b", "allow=*", "allow=*.*.a", "allow=a:0", "allow=a:x"]
                .into_iter()
                .chain(["allow=a:", "allow=2130706433", "allow=0x7f.1", "allow=1.2.3", "allow=10.0.0.0/33"])
                .chain([
                    "allow=[::1",
                    "allow=[::1]x",
                    "allow=b\u{fc}cher.de",
                    "allow=a b",
                    "allow=http://a",
                    "allow=::ffff:1.2.3.4",
                ])
        {
            assert!(bad.parse::<NetMode>().is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn a_list_covers_narrower_lists() {
        for (wide, narrow) in [("*.a.org", "x.a.org"), ("*.a.org", "*.x.a.org"), ("a.org:1", "a.org:1")]
            .into_iter()
            .chain([("10.0.0.0/8", "10.1.0.0/16"), ("a.org,b.org", "b.org"), ("fc00::/7", "fd00::1")])
        {
            assert!(list(wide).covers(&list(narrow)), "{wide} {narrow}");
            let both = list(wide).covers(&list(narrow)) && list(narrow).covers(&list(wide));
            assert_eq!(both, wide == narrow, "{wide} {narrow}");
        }
        for (one, other) in
            [("*.a.org", "a.org"), ("*.a.org", "xa.org"), ("a.org", "a.org:1"), ("a.org", "1.2.3.4")]
        {
            assert!(!list(one).covers(&list(other)), "{one} {other}");
        }
        let (none, allow) = (NetMode::None, NetMode::Allow(list("a.org")));
        assert!(NetMode::Host.covers(&allow) && allow.covers(&none) && !none.covers(&allow));
        assert!(!allow.covers(&NetMode::Host));
    }
}
