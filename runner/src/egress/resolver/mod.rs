//! Looks up the addresses of a host name without the C library: `/etc/hosts` first, then the name servers of
//! `/etc/resolv.conf`.
//!
//! A statically linked glibc loads the modules of its name service at run time, which fails on a machine with another
//! glibc or with no glibc at all. Static executables use this module instead; dynamic ones use getaddrinfo(3). It
//! never reads `/etc/nsswitch.conf`: names that only mDNS, LDAP or another module knows are not found.

mod config;
mod message;
mod query;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use self::config::{Config, hosts_addresses};

const HOSTS_FILE: &str = "/etc/hosts";
const CONFIG_FILE: &str = "/etc/resolv.conf";
const DNS_PORT: u16 = 53;

/// The addresses of `name`, those that this machine has a route to first.
pub fn lookup(name: &str) -> io::Result<Vec<IpAddr>> {
    let hosts = std::fs::read_to_string(HOSTS_FILE).unwrap_or_default();
    let config = Config::parse(&std::fs::read_to_string(CONFIG_FILE).unwrap_or_default());
    lookup_with(name, &hosts, &config, DNS_PORT)
}

fn lookup_with(name: &str, hosts: &str, config: &Config, port: u16) -> io::Result<Vec<IpAddr>> {
    if let Ok(address) = name.parse() {
        return Ok(vec![address]);
    }
    let mut found = hosts_addresses(hosts, name);
    if found.is_empty() && is_localhost(name) {
        found = vec![Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()];
    }
    if found.is_empty() {
        found = query::ask_servers(name, config, port)?;
    }
    found.sort_by_key(|address| !has_route(*address));
    Ok(found)
}

/// RFC 6761: these names are the loopback address, and no name server is asked.
fn is_localhost(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

/// Whether the kernel has a route to an address. Connecting a datagram socket sends nothing.
fn has_route(address: IpAddr) -> bool {
    let unspecified: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((unspecified, 0));
    socket.is_ok_and(|socket| socket.connect(SocketAddr::new(address, DNS_PORT)).is_ok())
}

#[cfg(test)]
mod tests;
