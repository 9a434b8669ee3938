//! Which addresses may be connected to. A destination is an operator's, but a name may lead anywhere: without this a
//! webhook could reach the machine itself, its neighbours or the cloud's metadata service.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use postrider_core::sabotage::{self, Defect};

use crate::problem::ConfigProblem;

/// Networks that are not the public Internet, by what they are. The first that matches names the reason.
const SPECIAL_V4: [(&str, &str); 16] = [
    ("127.0.0.0/8", "loopback"),
    ("10.0.0.0/8", "private"),
    ("172.16.0.0/12", "private"),
    ("192.168.0.0/16", "private"),
    ("169.254.0.0/16", "link-local"),
    ("100.64.0.0/10", "shared by carriers"),
    ("0.0.0.0/8", "unspecified"),
    ("224.0.0.0/4", "multicast"),
    ("192.0.0.0/24", "reserved for protocols"),
    ("192.0.2.0/24", "for documentation"),
    ("198.51.100.0/24", "for documentation"),
    ("203.0.113.0/24", "for documentation"),
    ("192.88.99.0/24", "a 6to4 relay"),
    ("198.18.0.0/15", "for benchmarks"),
    ("255.255.255.255/32", "broadcast"),
    ("240.0.0.0/4", "reserved"),
];

/// The same for IPv6. Addresses that hold an IPv4 address lead through a translator or tunnel to it; all but NAT64's are
/// long out of use, and refused as a whole.
const SPECIAL_V6: [(&str, &str); 17] = [
    ("::1/128", "loopback"),
    ("::/128", "unspecified"),
    ("::/96", "an IPv4 address in an old disguise"),
    ("fc00::/7", "private"),
    ("fe80::/10", "link-local"),
    ("fec0::/10", "site-local"),
    ("ff00::/8", "multicast"),
    ("2001:db8::/32", "for documentation"),
    ("3fff::/20", "for documentation"),
    ("2001:2::/48", "for benchmarks"),
    ("2001::/32", "a Teredo tunnel"),
    ("2001::/23", "reserved for protocols"),
    ("2002::/16", "a 6to4 tunnel"),
    ("64:ff9b:1::/48", "a local translator to IPv4"),
    ("100::/64", "discarded"),
    ("100:0:0:1::/64", "reserved"),
    ("5f00::/16", "reserved for routing"),
];

/// Global unicast, the only part of IPv6 from which addresses are given out.
const GLOBAL_V6: &str = "2000::/3";
/// NAT64: the last four bytes are the IPv4 address that is meant.
const NAT64: &str = "64:ff9b::/96";

/// Networks that may be connected to although they are not public.
#[derive(Debug, Clone, Default)]
pub(super) struct AllowList(Vec<IpNet>);

impl AllowList {
    pub(super) fn new(texts: &[String]) -> Result<Self, ConfigProblem> {
        texts.iter().enumerate().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// All that is wrong with the networks.
    pub(super) fn problems(texts: &[String]) -> Vec<ConfigProblem> {
        texts.iter().enumerate().filter_map(|text| read(text).err()).collect()
    }

    fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|net| net.contains(&address))
    }
}

fn read((at, text): (usize, &String)) -> Result<IpNet, ConfigProblem> {
    let net = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    net.map_err(|_| {
        let what = "it is no network; write an address with or without a prefix length, such as 10.1.0.0/16";
        ConfigProblem::new(format!("allow_addresses[{at}]"), what)
    })
}

/// What may be connected to.
#[derive(Debug, Clone)]
pub(super) struct AddressPolicy {
    pub allowed: AllowList,
    /// Whether public addresses may be.
    pub public: bool,
}

/// Why an address was refused. The address itself is not named: whoever chose the name must not learn where it leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("its address is not public ({0}); if it is meant, add its network to allow_addresses")]
    Special(&'static str),
    #[error("http:// is refused outside of allow_addresses; use https://, or set allow_plain_http")]
    PlainHttp,
}

impl AddressPolicy {
    /// Whether an address may be connected to.
    pub(super) fn check(&self, address: IpAddr) -> Result<(), Refused> {
        // An IPv4 address in IPv6 clothes leads to the IPv4 address.
        let address = address.to_canonical();
        if self.allowed.contains(address) || sabotage::has(Defect::AnyAddress) {
            return Ok(());
        }
        match special(address) {
            Some(what) => Err(Refused::Special(what)),
            None if !self.public => Err(Refused::PlainHttp),
            None => Ok(()),
        }
    }
}

/// What is special about an address, if it is not a public one.
fn special(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => special_v4(address),
        IpAddr::V6(address) => special_v6(address),
    }
}

fn special_v4(address: Ipv4Addr) -> Option<&'static str> {
    let within = |net: &str| net.parse::<Ipv4Net>().is_ok_and(|net| net.contains(&address));
    SPECIAL_V4.iter().find(|(net, _)| within(net)).map(|(_, what)| *what)
}

fn special_v6(address: Ipv6Addr) -> Option<&'static str> {
    let within = |net: &str| net.parse::<Ipv6Net>().is_ok_and(|net| net.contains(&address));
    if within(NAT64) {
        let [.., a, b, c, d] = address.octets();
        return special_v4(Ipv4Addr::new(a, b, c, d));
    }
    let known = SPECIAL_V6.iter().find(|(net, _)| within(net)).map(|(_, what)| *what);
    known.or_else(|| (!within(GLOBAL_V6)).then_some("reserved"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(allowed: &[&str]) -> AddressPolicy {
        let allowed: Vec<String> = allowed.iter().map(|text| (*text).to_owned()).collect();
        AddressPolicy { allowed: AllowList::new(&allowed).expect("networks"), public: true }
    }

    fn refused(address: &str) -> bool {
        policy(&[]).check(address.parse().expect(address)).is_err()
    }

    #[test]
    fn s06_the_tables_are_networks() {
        assert!(SPECIAL_V4.iter().all(|(net, _)| net.parse::<Ipv4Net>().is_ok()));
        let v6 = SPECIAL_V6.iter().map(|(net, _)| *net).chain([NAT64, GLOBAL_V6]);
        assert_eq!(v6.filter(|net| net.parse::<Ipv6Net>().is_err()).collect::<Vec<_>>(), [""; 0]);
    }

    #[test]
    fn s06_special_addresses_are_refused_and_their_public_neighbours_are_not() {
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.0",
            "10.255.255.255",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "192.168.255.255",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::8.8.8.8",
            "::ffff:127.0.0.1",
            "::ffff:10.1.2.3",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::808:808",
            "100::1",
            "2001::1",
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
            "2001:2::1",
            "2001:10::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:808:808::1",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
            "4000::1",
            "1::1",
        ] {
            assert!(refused(address), "{address} is let through");
        }
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2606:4700:4700::1111",
            "2001:4860:4860::8888",
            "2a00::1",
        ] {
            assert!(!refused(address), "{address} is refused");
        }
    }

    #[test]
    fn s06_what_is_allowed_is_allowed_and_no_more() {
        let policy = policy(&["127.0.0.1", "10.1.0.0/16", "fd00:1::/32"]);
        for (address, expected) in [
            ("127.0.0.1", true),
            ("127.0.0.2", false),
            ("::ffff:127.0.0.1", true),
            ("10.1.255.255", true),
            ("10.2.0.0", false),
            ("fd00:1::5", true),
            ("fd00:2::5", false),
            ("64:ff9b::7f00:1", false),
        ] {
            assert_eq!(policy.check(address.parse().expect(address)).is_ok(), expected, "{address}");
        }
    }

    #[test]
    fn s06_plain_http_stays_within_what_is_allowed() {
        let policy = AddressPolicy { public: false, ..policy(&["10.0.0.0/8"]) };
        assert_eq!(policy.check([10, 0, 0, 1].into()), Ok(()));
        assert_eq!(policy.check([8, 8, 8, 8].into()), Err(Refused::PlainHttp));
        assert_eq!(policy.check([127, 0, 0, 1].into()), Err(Refused::Special("loopback")));
    }
}
