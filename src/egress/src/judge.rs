//! Converts a target to the addresses that may be connected to, or the reason why not.
//!
//! A name is looked up once, here, and only the checked addresses are used: a later change of the DNS answer has no
//! effect. If an address cannot be determined, the connection is refused.

use std::net::{IpAddr, SocketAddr};

use avfs_request::net::WEB_PORTS;
use avfs_request::{AllowList, HostRule, is_beneath, is_within};

use crate::address::{Special, special};
use crate::target::{Host, HostError, Target};

/// The maximum number of addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;

/// The external information needed for a connection.
pub trait Outside {
    type Error;

    fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, Self::Error>;

    /// Every address of this machine.
    fn own_addresses(&self) -> Result<Vec<IpAddr>, Self::Error>;
}

/// The addresses to connect to, in the order of the lookup. Created only by [`route`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    addresses: Vec<SocketAddr>,
}

impl Route {
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.addresses.iter().copied()
    }
}

/// Why the list does not allow a connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{0}")]
    Host(#[from] HostError),
    #[error("it is not in the allow list")]
    NotListed,
    #[error("the allow list has it for other ports only")]
    OtherPort,
    #[error("an IP address must be in the allow list as an address")]
    Literal,
    #[error("it leads to {address}, {}", special.words())]
    Special { address: IpAddr, special: Special },
    #[error("it leads to {address}, an address of this machine")]
    Own { address: IpAddr },
}

impl Refusal {
    /// The address that was refused.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Special { address, .. } | Self::Own { address } => Some(*address),
            Self::Host(_) | Self::NotListed | Self::OtherPort | Self::Literal => None,
        }
    }

    /// The entry to add to the list; `None` if no entry would help.
    #[must_use]
    pub fn remedy(&self, target: &Target) -> Option<String> {
        let host = match self {
            Self::Host(_) => return None,
            Self::NotListed | Self::OtherPort | Self::Literal => target.host.clone(),
            Self::Special { address, .. } | Self::Own { address } => Host::Address(address.to_canonical()),
        };
        Some(place(&host, target.port))
    }
}

/// A host and a port as an entry of the list.
#[must_use]
pub fn place(host: &Host, port: u16) -> String {
    if WEB_PORTS.contains(&port) { host.to_string() } else { format!("{host}:{port}") }
}

/// Why no connection is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoRoute<E> {
    Refused(Refusal),
    /// It is allowed, but the lookup failed.
    Failed(E),
    /// It is allowed, but it has no address.
    Nowhere,
}

impl<E> From<Refusal> for NoRoute<E> {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Determines the addresses that a connection may use.
pub fn route<O: Outside>(list: &AllowList, target: &Target, outside: &O) -> Result<Route, NoRoute<O::Error>> {
    let port = target.port;
    let name = match &target.host {
        Host::Address(address) => {
            return match listed_address(list, *address, port) {
                Listed::Yes => Ok(Route { addresses: vec![SocketAddr::new(*address, port)] }),
                Listed::OtherPort => Err(Refusal::OtherPort.into()),
                Listed::No => Err(Refusal::Literal.into()),
            };
        }
        Host::Name(name) => name,
    };
    match listed_name(list, name, port) {
        Listed::Yes => {}
        Listed::OtherPort => return Err(Refusal::OtherPort.into()),
        Listed::No => return Err(Refusal::NotListed.into()),
    }
    let found = outside.resolve(name).map_err(NoRoute::Failed)?;
    // After the lookup, which may take a while: an address that this machine has just received counts.
    let own = outside.own_addresses().map_err(NoRoute::Failed)?;
    let mut refused = None;
    let mut addresses = Vec::new();
    for address in found {
        match judge(list, address, port, &own) {
            Ok(address) if addresses.len() < ADDRESSES_MAX => addresses.push(SocketAddr::new(address, port)),
            Ok(_) => {}
            Err(refusal) => refused = refused.or(Some(refusal)),
        }
    }
    match (addresses.is_empty(), refused) {
        (false, _) => Ok(Route { addresses }),
        (true, Some(refusal)) => Err(refusal.into()),
        (true, None) => Err(NoRoute::Nowhere),
    }
}

/// Checks an address that a name resolved to; returns its canonical form.
fn judge(list: &AllowList, address: IpAddr, port: u16, own: &[IpAddr]) -> Result<IpAddr, Refusal> {
    let plain = address.to_canonical();
    if listed_address(list, plain, port) == Listed::Yes {
        return Ok(plain);
    }
    if let Some(special) = special(plain).or(special(address)) {
        return Err(Refusal::Special { address, special });
    }
    if own.iter().any(|own| own.to_canonical() == plain) {
        return Err(Refusal::Own { address });
    }
    Ok(plain)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listed {
    Yes,
    OtherPort,
    No,
}

fn listed_name(list: &AllowList, name: &str, port: u16) -> Listed {
    listed(list, port, |host| match host {
        HostRule::Name(own) => own == name,
        HostRule::Beneath(domain) => is_beneath(name, domain),
        HostRule::Address { .. } => false,
    })
}

fn listed_address(list: &AllowList, address: IpAddr, port: u16) -> Listed {
    listed(list, port, |host| match host {
        HostRule::Address { address: network, prefix } => is_within(address, *network, *prefix),
        HostRule::Name(_) | HostRule::Beneath(_) => false,
    })
}

fn listed(list: &AllowList, port: u16, matches: impl Fn(&HostRule) -> bool) -> Listed {
    let mut found = Listed::No;
    for rule in list.rules().iter().filter(|rule| matches(&rule.host)) {
        if rule.has_port(port) {
            return Listed::Yes;
        }
        found = Listed::OtherPort;
    }
    found
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use proptest::prelude::*;

    use super::*;

    /// Returns scripted answers, one line for each lookup.
    struct Scripted {
        answers: RefCell<Vec<Vec<IpAddr>>>,
        asked: Cell<usize>,
        own: Result<Vec<IpAddr>, &'static str>,
    }

    impl Scripted {
        fn new(answers: &[&[&str]]) -> Self {
            let read = |line: &&[&str]| line.iter().map(|text| text.parse().unwrap()).collect();
            let answers = answers.iter().rev().map(read).collect();
            Self { answers: RefCell::new(answers), asked: Cell::new(0), own: Ok(Vec::new()) }
        }
    }

    impl Outside for Scripted {
        type Error = &'static str;

        fn resolve(&self, _: &str) -> Result<Vec<IpAddr>, &'static str> {
            self.asked.set(self.asked.get() + 1);
            self.answers.borrow_mut().pop().ok_or("asked too often")
        }

        fn own_addresses(&self) -> Result<Vec<IpAddr>, &'static str> {
            self.own.clone()
        }
    }

    fn ask(list: &str, target: &str, outside: &Scripted) -> Result<Vec<String>, NoRoute<&'static str>> {
        let list = AllowList::parse(list).unwrap();
        let target = Target::parse(target.as_bytes(), None).unwrap();
        route(&list, &target, outside).map(|route| route.addresses().map(|it| it.to_string()).collect())
    }

    fn refused(list: &str, target: &str, outside: &Scripted) -> Refusal {
        match ask(list, target, outside) {
            Err(NoRoute::Refused(refusal)) => refusal,
            other => panic!("{target} with {list}: {other:?}"),
        }
    }

    #[test]
    fn a_name_needs_a_rule_and_web_ports_are_implied() {
        let public = || Scripted::new(&[&["93.184.216.34"]]);
        for (list, target) in [
            ("example.com", "example.com:443"),
            ("example.com", "EXAMPLE.com.:80"),
            ("*.example.com", "a.b.example.com:443"),
            ("example.com:8080", "example.com:8080"),
        ] {
            let port = target.rsplit(':').next().unwrap();
            assert_eq!(
                ask(list, target, &public()),
                Ok(vec![format!("93.184.216.34:{port}")]),
                "{list} {target}"
            );
        }
        for (list, target, why) in [
            ("example.com", "example.com:8080", Refusal::OtherPort),
            ("example.com:8080", "example.com:443", Refusal::OtherPort),
            ("*.example.com", "example.com:443", Refusal::NotListed),
            ("example.com", "www.example.com:443", Refusal::NotListed),
            ("example.com", "notexample.com:443", Refusal::NotListed),
            ("*.example.com", "notexample.com:443", Refusal::NotListed),
            ("example.com", "example.com.evil.org:443", Refusal::NotListed),
            ("example.com", "93.184.216.34:443", Refusal::Literal),
            ("93.184.216.0/24:22", "93.184.216.34:443", Refusal::OtherPort),
            ("93.184.216.34", "example.com:443", Refusal::NotListed),
        ] {
            let outside = public();
            assert_eq!(refused(list, target, &outside), why, "{list} {target}");
            assert_eq!(outside.asked.get(), 0, "a refused name was looked up");
        }
    }

    #[test]
    fn a_name_that_resolves_to_a_local_address_is_refused_unless_listed() {
        for inside in
            ["127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "fd00::1", "::ffff:127.0.0.1", "0.0.0.0"]
        {
            let outside = Scripted::new(&[&[inside]]);
            let refusal = refused("a.org", "a.org:443", &outside);
            assert_eq!(refusal.address(), Some(inside.parse().unwrap()));
            let target = Target::parse(b"a.org:443", None).unwrap();
            let place = refusal.remedy(&target).unwrap();
            let outside = Scripted::new(&[&[inside]]);
            assert!(ask(&format!("a.org,{place}"), "a.org:443", &outside).is_ok(), "{place}");
            let outside = Scripted::new(&[&[inside]]);
            // Only on the listed port.
            assert!(ask(&format!("a.org:99,{place}"), "a.org:99", &outside).is_err(), "{place}");
        }
    }

    #[test]
    fn only_checked_addresses_are_returned() {
        let outside = Scripted::new(&[&["10.0.0.1", "93.184.216.34", "::1"]]);
        assert_eq!(ask("a.org", "a.org:80", &outside), Ok(vec!["93.184.216.34:80".to_owned()]));
        assert_eq!(outside.asked.get(), 1);
    }

    #[test]
    fn each_connection_checks_one_lookup() {
        let outside = Scripted::new(&[&["93.184.216.34"], &["127.0.0.1"], &["93.184.216.35"]]);
        assert_eq!(ask("a.org", "a.org:80", &outside), Ok(vec!["93.184.216.34:80".to_owned()]));
        assert_eq!(outside.asked.get(), 1);
        assert_eq!(refused("a.org", "a.org:80", &outside).address(), Some("127.0.0.1".parse().unwrap()));
        assert_eq!(outside.asked.get(), 2);
        assert_eq!(ask("a.org", "a.org:80", &outside), Ok(vec!["93.184.216.35:80".to_owned()]));
    }

    #[test]
    fn every_address_of_this_machine_is_refused() {
        let mut outside = Scripted::new(&[&["93.184.216.34"], &["93.184.216.34"], &["93.184.216.34"]]);
        outside.own = Ok(vec!["::ffff:93.184.216.34".parse().unwrap()]);
        let address = "93.184.216.34".parse().unwrap();
        assert_eq!(refused("a.org", "a.org:80", &outside), Refusal::Own { address });
        assert!(ask("a.org,93.184.216.34", "a.org:80", &outside).is_ok());
        // Unknown addresses are not treated as public.
        outside.own = Err("no list");
        assert_eq!(ask("a.org", "a.org:80", &outside), Err(NoRoute::Failed("no list")));
    }

    #[test]
    fn a_mapped_address_is_treated_as_ipv4() {
        let outside = Scripted::new(&[]);
        assert_eq!(refused("::/0", "[::ffff:127.0.0.1]:80", &outside), Refusal::Literal);
        assert_eq!(ask("127.0.0.1", "[::ffff:127.0.0.1]:80", &outside), Ok(vec!["127.0.0.1:80".to_owned()]));
        assert_eq!(outside.asked.get(), 0);
    }

    #[test]
    fn the_number_of_addresses_is_bounded() {
        let many: Vec<String> = (1..100).map(|number| format!("93.184.216.{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let outside = Scripted::new(&[&many, &[]]);
        assert_eq!(ask("a.org", "a.org:80", &outside).map(|found| found.len()), Ok(ADDRESSES_MAX));
        assert_eq!(ask("a.org", "a.org:80", &outside), Err(NoRoute::Nowhere));
    }

    proptest! {
        /// For any DNS answer, a listed name alone never leads to a non-public address.
        #[test]
        fn a_listed_name_leads_only_to_public_addresses(
            four in proptest::collection::vec(any::<u32>(), 0..6),
            six in proptest::collection::vec(any::<u128>(), 0..6),
        ) {
            let found: Vec<IpAddr> = four.iter().map(|bits| IpAddr::V4((*bits).into()))
                .chain(six.iter().map(|bits| IpAddr::V6((*bits).into())))
                .chain(four.iter().map(|bits| IpAddr::V6((u128::from(*bits) | 0xffff_0000_0000).into())))
                .collect();
            let outside = Scripted { answers: RefCell::new(vec![found]), asked: Cell::new(0), own: Ok(vec![]) };
            let list = AllowList::parse("a.org").unwrap();
            let target = Target { host: Host::Name("a.org".to_owned()), port: 443 };
            if let Ok(route) = route(&list, &target, &outside) {
                for address in route.addresses() {
                    prop_assert_eq!(special(address.ip()), None);
                }
            }
        }
    }
}
