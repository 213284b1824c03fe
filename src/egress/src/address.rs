//! Addresses that are not public: a name that resolves to one is refused, no matter which DNS server returned it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use avfs_request::is_within;

/// The kind of an address that is not public.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    Unspecified,
    Loopback,
    Private,
    /// Carrier-grade NAT, between a provider and its customers.
    Shared,
    /// Includes the metadata services of clouds.
    LinkLocal,
    Multicast,
    Broadcast,
    Documentation,
    Benchmark,
    Reserved,
    /// An IPv4-mapped or translated IPv6 address.
    Translated,
    /// An IPv6 address that tunnels to an IPv4 address of one of these kinds.
    Tunnelled,
}

impl Special {
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Unspecified => "the unspecified address",
            Self::Loopback => "a loopback address",
            Self::Private => "a private address",
            Self::Shared => "a shared address of a provider",
            Self::LinkLocal => "a link-local address",
            Self::Multicast => "a multicast address",
            Self::Broadcast => "the broadcast address",
            Self::Documentation => "an address for documentation",
            Self::Benchmark => "an address for benchmarks",
            Self::Reserved => "a reserved address",
            Self::Translated => "an IPv4 address in IPv6 form",
            Self::Tunnelled => "a tunnel to a non-public address",
        }
    }
}

const V4: [(Ipv4Addr, u8, Special); 16] = [
    (Ipv4Addr::new(255, 255, 255, 255), 32, Special::Broadcast),
    (Ipv4Addr::new(0, 0, 0, 0), 8, Special::Unspecified),
    (Ipv4Addr::new(10, 0, 0, 0), 8, Special::Private),
    (Ipv4Addr::new(100, 64, 0, 0), 10, Special::Shared),
    (Ipv4Addr::new(127, 0, 0, 0), 8, Special::Loopback),
    (Ipv4Addr::new(169, 254, 0, 0), 16, Special::LinkLocal),
    (Ipv4Addr::new(172, 16, 0, 0), 12, Special::Private),
    (Ipv4Addr::new(192, 0, 0, 0), 24, Special::Reserved),
    (Ipv4Addr::new(192, 0, 2, 0), 24, Special::Documentation),
    (Ipv4Addr::new(192, 88, 99, 0), 24, Special::Reserved),
    (Ipv4Addr::new(192, 168, 0, 0), 16, Special::Private),
    (Ipv4Addr::new(198, 18, 0, 0), 15, Special::Benchmark),
    (Ipv4Addr::new(198, 51, 100, 0), 24, Special::Documentation),
    (Ipv4Addr::new(203, 0, 113, 0), 24, Special::Documentation),
    (Ipv4Addr::new(224, 0, 0, 0), 4, Special::Multicast),
    (Ipv4Addr::new(240, 0, 0, 0), 4, Special::Reserved),
];

/// Checked before the rule that only 2000::/3 is allocated at all.
const V6: [(Ipv6Addr, u8, Special); 15] = [
    (Ipv6Addr::UNSPECIFIED, 128, Special::Unspecified),
    (Ipv6Addr::LOCALHOST, 128, Special::Loopback),
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96, Special::Translated),
    (Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, 0, 0), 96, Special::Translated),
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 0), 96, Special::Translated),
    (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96, Special::Translated),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, Special::Translated),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, Special::Private),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, Special::LinkLocal),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, Special::Private),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, Special::Multicast),
    (Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0), 48, Special::Benchmark),
    (Ipv6Addr::new(0x2001, 0x10, 0, 0, 0, 0, 0, 0), 28, Special::Reserved),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, Special::Documentation),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, Special::Documentation),
];

/// Why an address is not public; `None` if it is public.
#[must_use]
pub fn special(address: IpAddr) -> Option<Special> {
    match address {
        IpAddr::V4(address) => special_v4(address),
        IpAddr::V6(address) => special_v6(address),
    }
}

fn special_v4(address: Ipv4Addr) -> Option<Special> {
    let found = V4.iter().find(|(network, prefix, _)| is_within(address.into(), (*network).into(), *prefix));
    found.map(|(_, _, special)| *special)
}

fn special_v6(address: Ipv6Addr) -> Option<Special> {
    let listed = V6.iter().find(|(network, prefix, _)| is_within(address.into(), (*network).into(), *prefix));
    if let Some((_, _, special)) = listed {
        return Some(*special);
    }
    if address.segments()[0] & 0xe000 != 0x2000 {
        return Some(Special::Reserved);
    }
    let hidden = tunnelled(address).into_iter().flatten().any(|inner| special_v4(inner).is_some());
    hidden.then_some(Special::Tunnelled)
}

/// The IPv4 addresses at which packets to an IPv6 address may arrive.
fn tunnelled(address: Ipv6Addr) -> [Option<Ipv4Addr>; 2] {
    let part = address.segments();
    let at = |index: usize| {
        let ([a, b], [c, d]) = (part[index].to_be_bytes(), part[index + 1].to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match part {
        // 6to4.
        [0x2002, ..] => [Some(at(1)), None],
        // Teredo: the server, and the client with all bits inverted.
        [0x2001, 0, ..] => [Some(at(2)), Some(Ipv4Addr::from_bits(!at(6).to_bits()))],
        // ISATAP.
        [_, _, _, _, 0 | 0x200, 0x5efe, ..] => [Some(at(6)), None],
        _ => [None, None],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<Special> {
        special(text.parse().unwrap())
    }

    #[test]
    fn public_addresses_are_not_special() {
        for public in ["1.1.1.1", "8.8.8.8", "93.184.216.34", "100.63.255.255", "100.128.0.0", "172.15.0.1"]
            .into_iter()
            .chain(["172.32.0.1", "192.167.1.1", "198.17.0.1", "198.20.0.1", "223.255.255.255", "11.0.0.1"])
            .chain(["2606:4700::1111", "2a00:1450::1", "2002:0808:0808::1", "2400:cb00::5efe"])
            .chain(["2001:0:0808:0808:0:0:f7f7:f7f7", "2a00::200:5efe:808:808"])
        {
            assert_eq!(of(public), None, "{public}");
        }
    }

    #[test]
    fn non_public_addresses_are_classified() {
        use Special::*;
        for (address, expected) in [
            ("0.0.0.0", Unspecified),
            ("0.1.2.3", Unspecified),
            ("10.255.255.255", Private),
            ("100.64.0.1", Shared),
            ("100.127.255.255", Shared),
            ("127.0.0.1", Loopback),
            ("127.255.255.254", Loopback),
            ("169.254.169.254", LinkLocal),
            ("172.16.0.1", Private),
            ("172.31.255.255", Private),
            ("192.168.0.1", Private),
            ("192.0.0.8", Reserved),
            ("192.0.2.1", Documentation),
            ("192.88.99.1", Reserved),
            ("198.18.0.1", Benchmark),
            ("198.19.255.255", Benchmark),
            ("224.0.0.1", Multicast),
            ("239.255.255.250", Multicast),
            ("240.0.0.1", Reserved),
            ("255.255.255.255", Broadcast),
            ("::", Unspecified),
            ("::1", Loopback),
            ("::2", Translated),
            ("::ffff:127.0.0.1", Translated),
            ("::ffff:8.8.8.8", Translated),
            ("::ffff:0:8.8.8.8", Translated),
            ("64:ff9b::7f00:1", Translated),
            ("64:ff9b:1::a00:1", Translated),
            ("64:ff9b:2::1", Reserved),
            ("100::1", Reserved),
            ("fc00::1", Private),
            ("fd00:ec2::254", Private),
            ("fe80::1", LinkLocal),
            ("febf::1", LinkLocal),
            ("fec0::1", Private),
            ("ff02::1", Multicast),
            ("2001:db8::1", Documentation),
            ("3fff::1", Documentation),
            ("2001:2::1", Benchmark),
            ("2002:7f00:1::", Tunnelled),
            ("2002:a9fe:a9fe::1", Tunnelled),
            ("2001:0:7f00:1::", Tunnelled),
            ("2001:0:808:808:0:0:5601:5601", Tunnelled),
            ("2a00::5efe:a00:1", Tunnelled),
            ("2a00::200:5efe:7f00:1", Tunnelled),
            ("4000::1", Reserved),
        ] {
            assert_eq!(of(address), Some(expected), "{address}");
        }
    }
}
