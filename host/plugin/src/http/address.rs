//! Which addresses a guest may be connected to. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Networks of the registry of special-purpose addresses (RFC 6890 and what came after it) that are not for everybody, and one
/// that only looks as if it were.
const IPV4: [([u8; 4], u8, &str); 17] = [
    ([0, 0, 0, 0], 8, "an address of this network"),
    ([10, 0, 0, 0], 8, "a private address"),
    ([100, 64, 0, 0], 10, "a carrier's address"),
    ([127, 0, 0, 0], 8, "a loopback address"),
    // Behind it are each virtual machine's own services, its certificates among them.
    ([168, 63, 129, 16], 32, "an address of Azure's own"),
    ([169, 254, 0, 0], 16, "a link-local address"),
    ([172, 16, 0, 0], 12, "a private address"),
    ([192, 0, 0, 0], 24, "a reserved address"),
    ([192, 0, 2, 0], 24, "an address for examples"),
    ([192, 88, 99, 0], 24, "a reserved address"),
    ([192, 168, 0, 0], 16, "a private address"),
    ([198, 18, 0, 0], 15, "an address for measurements"),
    ([198, 51, 100, 0], 24, "an address for examples"),
    ([203, 0, 113, 0], 24, "an address for examples"),
    ([224, 0, 0, 0], 4, "a multicast address"),
    ([255, 255, 255, 255], 32, "a broadcast address"),
    ([240, 0, 0, 0], 4, "a reserved address"),
];

/// The same of IPv6, for which this is the order: the first that has an address tells what it is.
const IPV6: [([u16; 8], u8, &str); 11] = [
    ([0, 0, 0, 0, 0, 0, 0, 0], 128, "an address of this network"),
    ([0, 0, 0, 0, 0, 0, 0, 1], 128, "a loopback address"),
    ([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, "a unique local address"),
    ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, "a link-local address"),
    ([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, "a site-local address"),
    ([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, "a multicast address"),
    // Teredo and others that carry an IPv4 address somewhere.
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 23, "a reserved address"),
    ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, "an address for examples"),
    ([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, "an address of 6to4"),
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, "an address for examples"),
    // Whatever has been given out to anybody. What is outside of it has been given out to nobody.
    ([0x2000, 0, 0, 0, 0, 0, 0, 0], 3, PUBLIC),
];
const PUBLIC: &str = "a public address";
/// How NAT64 writes an IPv4 address: networks that have IPv6 alone reach the rest of the world by it.
const NAT64: [u16; 6] = [0x64, 0xff9b, 0, 0, 0, 0];

/// The address that is connected to, or what it is if it is not for everybody and none of these networks has it. An IPv4
/// address in one of IPv6 counts as what it is.
pub(crate) fn judge(address: IpAddr, allowed: &[IpNet]) -> Result<IpAddr, &'static str> {
    let address = address.to_canonical();
    let meant = match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => behind_nat64(address).map_or(IpAddr::V6(address), IpAddr::V4),
    };
    let is_listed = allowed.iter().any(|network| network.contains(&address) || network.contains(&meant));
    match what(meant) {
        PUBLIC => Ok(address),
        _ if is_listed => Ok(address),
        special => Err(special),
    }
}

fn what(address: IpAddr) -> &'static str {
    match address {
        IpAddr::V4(address) => {
            let has = |(network, length, _): &&([u8; 4], u8, _)| {
                let differs = address.to_bits() ^ Ipv4Addr::from(*network).to_bits();
                differs.leading_zeros() >= u32::from(*length)
            };
            IPV4.iter().find(has).map_or(PUBLIC, |(_, _, what)| what)
        }
        IpAddr::V6(address) => {
            let has = |(network, length, _): &&([u16; 8], u8, _)| {
                let differs = address.to_bits() ^ Ipv6Addr::from(*network).to_bits();
                differs.leading_zeros() >= u32::from(*length)
            };
            IPV6.iter().find(has).map_or("a reserved address", |(_, _, what)| what)
        }
    }
}

fn behind_nat64(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let segments = address.segments();
    let [.., high, low] = segments;
    segments.starts_with(&NAT64).then(|| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn judged(address: &str, allowed: &[&str]) -> Result<IpAddr, &'static str> {
        let allowed: Vec<IpNet> = allowed.iter().map(|network| network.parse().unwrap()).collect();
        judge(address.parse().unwrap(), &allowed)
    }

    #[test]
    fn what_is_not_for_everybody_is_refused_by_name() {
        for (address, what) in [
            ("0.0.0.0", "this network"),
            ("10.255.255.255", "private"),
            ("100.64.0.1", "carrier"),
            ("100.127.255.255", "carrier"),
            ("127.0.0.1", "loopback"),
            ("127.255.0.3", "loopback"),
            ("168.63.129.16", "Azure"),
            ("::ffff:168.63.129.16", "Azure"),
            ("169.254.169.254", "link-local"),
            ("169.254.170.2", "link-local"),
            ("172.16.0.1", "private"),
            ("172.31.255.255", "private"),
            ("192.168.1.1", "private"),
            ("192.0.0.192", "reserved"),
            ("198.19.0.1", "measurements"),
            ("224.0.0.1", "multicast"),
            ("239.255.255.255", "multicast"),
            ("240.0.0.1", "reserved"),
            ("255.255.255.255", "broadcast"),
            ("::", "this network"),
            ("::1", "loopback"),
            ("::7f00:1", "reserved"),
            ("fd00:ec2::254", "unique local"),
            ("fe80::1", "link-local"),
            ("fec0::1", "site-local"),
            ("ff02::1", "multicast"),
            ("2001:db8::1", "examples"),
            ("2001::1", "reserved"),
            ("2002:7f00:1::", "6to4"),
            ("4000::1", "reserved"),
            ("64:ff9b:1::1", "reserved"),
            // An IPv4 address in one of IPv6.
            ("::ffff:127.0.0.1", "loopback"),
            ("::ffff:169.254.169.254", "link-local"),
            ("64:ff9b::10.0.0.1", "private"),
            ("64:ff9b::a9fe:a9fe", "link-local"),
        ] {
            let refused = judged(address, &[]).expect_err(address);
            assert!(refused.contains(what), "{address} is {refused}");
        }
    }

    #[test]
    fn what_is_public_is_connected_to_as_it_is() {
        for address in [
            "1.1.1.1",
            "100.63.255.255",
            "168.63.129.15",
            "168.63.129.17",
            "100.128.0.0",
            "172.15.0.1",
            "172.32.0.1",
            "192.167.0.1",
            "8.8.8.8",
        ] {
            assert_eq!(judged(address, &[]), Ok(address.parse().unwrap()));
        }
        for address in ["2606:4700:4700::1111", "2a00:1450::1", "2001:200::1", "64:ff9b::8.8.8.8"] {
            assert_eq!(judged(address, &[]), Ok(address.parse().unwrap()));
        }
        assert_eq!(judged("::ffff:8.8.8.8", &[]), Ok("8.8.8.8".parse().unwrap()));
    }

    #[test]
    fn networks_that_are_listed_are_reached_and_no_others() {
        assert!(judged("10.1.2.3", &["10.1.0.0/16"]).is_ok());
        assert!(judged("10.2.0.1", &["10.1.0.0/16"]).is_err());
        assert!(judged("::ffff:10.1.2.3", &["10.1.0.0/16"]).is_ok());
        assert!(judged("64:ff9b::10.1.2.3", &["10.1.0.0/16"]).is_ok());
        assert!(judged("127.0.0.1", &["127.0.0.1/32"]).is_ok());
        assert!(judged("127.0.0.2", &["127.0.0.1/32"]).is_err());
        assert!(judged("::1", &["127.0.0.1/32"]).is_err());
        assert!(judged("fd12::1", &["fd12::/16"]).is_ok());
    }

    proptest! {
        #[test]
        fn the_standard_library_agrees(bits: u32, first in prop::sample::select(vec![0u8, 10, 100, 127, 169, 172, 192, 198, 203, 224, 240, 255])) {
            for address in [Ipv4Addr::from_bits(bits), Ipv4Addr::from_bits(bits >> 8 | u32::from(first) << 24)] {
                let is_special = address.is_private()
                    || address.is_loopback()
                    || address.is_link_local()
                    || address.is_multicast()
                    || address.is_broadcast()
                    || address.is_documentation()
                    || address.is_unspecified();
                let judged = judge(address.into(), &[]);
                prop_assert!(!is_special || judged.is_err(), "{}", address);
                // In every form it is the same address.
                for form in [address.to_ipv6_mapped(), nat64(address)] {
                    prop_assert_eq!(judge(form.into(), &[]).is_ok(), judged.is_ok());
                }
                // The old forms carry it as well, and nobody has them any more.
                let [a, b, c, d] = address.octets().map(u16::from);
                let old = Ipv6Addr::new(0x2002, a << 8 | b, c << 8 | d, 0, 0, 0, 0, 1);
                prop_assert!(judge(old.into(), &[]).is_err());
                prop_assert!(judge(address.to_ipv6_compatible().into(), &[]).is_err());
            }
        }

        #[test]
        fn of_ipv6_only_what_was_given_out_is_reached(bits: u128) {
            let address = Ipv6Addr::from_bits(bits);
            let is_reached = judge(address.into(), &[]).is_ok();
            let is_given_out = bits >> 125 == 1;
            let is_nat64 = address.segments().starts_with(&NAT64);
            let is_mapped = address.to_ipv4_mapped().is_some();
            prop_assert!(!is_reached || is_given_out || is_nat64 || is_mapped, "{}", address);
        }

        #[test]
        fn a_listed_network_allows_what_it_has(bits: u32, length in 0u8..=32, asked: u32) {
            let network = IpNet::new(Ipv4Addr::from_bits(bits).into(), length).unwrap();
            let asked = IpAddr::from(Ipv4Addr::from_bits(asked));
            let expected = network.contains(&asked) || judge(asked, &[]).is_ok();
            prop_assert_eq!(judge(asked, &[network]).is_ok(), expected);
        }
    }

    fn nat64(address: Ipv4Addr) -> Ipv6Addr {
        let [a, b, c, d] = address.octets().map(u16::from);
        Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, a << 8 | b, c << 8 | d)
    }
}
