//! Reads hosts(5) and resolv.conf(5).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

/// Limits of glibc, which resolv.conf(5) documents.
const SERVERS_MAX: usize = 3;
const NDOTS_MAX: usize = 15;
const TIMEOUT_S_MAX: u64 = 30;
const ATTEMPTS_MAX: usize = 5;

#[derive(Debug, PartialEq, Eq)]
pub struct Config {
    servers: Vec<Server>,
    search: Vec<String>,
    ndots: usize,
    pub timeout: Duration,
    pub attempts: usize,
    /// Ask over TCP only (`options use-vc`).
    pub tcp: bool,
}

/// The address of a name server. Link-local IPv6 addresses have the index of an interface.
#[derive(Debug, PartialEq, Eq)]
struct Server {
    address: IpAddr,
    scope: u32,
}

impl Config {
    pub fn parse(text: &str) -> Self {
        let mut config = Self {
            servers: Vec::new(),
            search: Vec::new(),
            ndots: 1,
            timeout: Duration::from_secs(5),
            attempts: 2,
            tcp: false,
        };
        for line in text.lines() {
            if line.starts_with([';', '#']) {
                continue;
            }
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("nameserver") if config.servers.len() < SERVERS_MAX => {
                    config.servers.extend(words.next().and_then(Server::parse));
                }
                // The last of these lines counts.
                Some("search" | "domain") => config.search = words.map(str::to_owned).collect(),
                Some("options") => words.for_each(|option| config.set(option)),
                _ => {}
            }
        }
        if config.servers.is_empty() {
            config.servers.push(Server { address: Ipv4Addr::LOCALHOST.into(), scope: 0 });
        }
        config
    }

    fn set(&mut self, option: &str) {
        let (name, value) = option.split_once(':').unwrap_or((option, ""));
        match (name, value.parse::<usize>()) {
            ("ndots", Ok(dots)) => self.ndots = dots.min(NDOTS_MAX),
            ("timeout", Ok(seconds)) => {
                self.timeout = Duration::from_secs((seconds as u64).clamp(1, TIMEOUT_S_MAX));
            }
            ("attempts", Ok(attempts)) => self.attempts = attempts.clamp(1, ATTEMPTS_MAX),
            ("use-vc", _) => self.tcp = true,
            _ => {}
        }
    }

    pub fn servers(&self, port: u16) -> impl Iterator<Item = SocketAddr> {
        self.servers.iter().map(move |server| match server.address {
            IpAddr::V4(address) => SocketAddr::new(address.into(), port),
            IpAddr::V6(address) => SocketAddrV6::new(address, port, 0, server.scope).into(),
        })
    }

    /// The full names that `name` may stand for, in the order in which they are asked for.
    pub fn candidates(&self, name: &str) -> Vec<String> {
        if let Some(absolute) = name.strip_suffix('.') {
            return vec![absolute.to_owned()];
        }
        let mut names: Vec<_> = self
            .search
            .iter()
            .map(|domain| domain.trim_end_matches('.'))
            .filter(|domain| !domain.is_empty())
            .map(|domain| format!("{name}.{domain}"))
            .collect();
        let position = if name.matches('.').count() >= self.ndots { 0 } else { names.len() };
        names.insert(position, name.to_owned());
        names
    }
}

impl Server {
    fn parse(text: &str) -> Option<Self> {
        let (address, scope) = text.split_once('%').unwrap_or((text, ""));
        let address = address.parse().ok()?;
        Some(Self { address, scope: interface_index(scope) })
    }
}

/// The index of an interface that is given by number or name; 0 if it does not exist.
fn interface_index(scope: &str) -> u32 {
    if scope.is_empty() || scope.contains('/') {
        return 0;
    }
    let named = || std::fs::read_to_string(format!("/sys/class/net/{scope}/ifindex")).ok();
    scope.parse().ok().or_else(|| named()?.trim().parse().ok()).unwrap_or(0)
}

/// The addresses that the text of a hosts file has for a name.
pub fn hosts_addresses(text: &str, name: &str) -> Vec<IpAddr> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let mut found: Vec<IpAddr> = Vec::new();
    for line in text.lines() {
        let line = line.split_once('#').map_or(line, |(before, _)| before);
        let mut words = line.split_ascii_whitespace();
        let Some(address) = words.next().and_then(|word| word.parse().ok()) else { continue };
        if words.any(|word| word.eq_ignore_ascii_case(name)) && !found.contains(&address) {
            found.push(address);
        }
    }
    // As getaddrinfo(3) orders the loopback addresses.
    found.sort_by_key(|address| *address != IpAddr::from(Ipv6Addr::LOCALHOST));
    found
}
