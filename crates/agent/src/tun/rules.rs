//! What leads to the agent, as `ip` and `nft` read it: [`Rules`]. Pure.
//!
//! Rules of routing look at each TCP connection of a program when it is begun, from top to bottom:
//!
//! ```text
//! the agent's own (its mark) · DNS (port 53)           on as if nothing of this were here
//! where a route leads that is not the default one      there: the LAN, a VPN's network
//! of a user who is served, and from no other address   table 4673: by hoop0; private addresses, and the relay: on
//! ```
//!
//! What would leave by the interface is redirected to a listener of the agent's (`nat`, `redirect`), so that nothing ever does. Of what comes in from a LAN, the first packet of each TCP connection is
//! given to another listener (`tproxy`), unless it is for this machine, a private address or the LAN itself; the others are known by their socket.
//!
//! All of this leads to the interface or to a listener. When the agent is killed, these go, and what is left behind changes nothing: a table without a route is passed over, and so is a rule of `tproxy`
//! without a listener. The next agent finds it by its names and numbers, and replaces it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The interface.
pub(super) const INTERFACE: &str = "hoop0";

/// Its table of nftables.
const NFT_TABLE: &str = "hoop_agent";

/// The mark of the agent's own packets, and the number of its table of routes: the agent's port, by which nobody else goes.
pub(crate) const CARRIER_MARK: u32 = 4_673;
const TABLE: u32 = 4_673;

/// The mark of packets from a LAN that are for the agent, and the table by which they get there.
const LAN_MARK: u32 = 4_674;
const LAN_TABLE: u32 = 4_674;

/// Who made a rule (`rtnetlink(7)`, `protocol`): a number that nobody else has, by which all of them are found again.
const PROTOCOL: u8 = 104;

/// Where the rules begin and end: after those of VPNs (wg-quick's, which come last, are at 32764) and before the system's own.
const FIRST: u32 = 32_000;
const LAST: u32 = 32_009;

/// Never on any network (RFC 2544, RFC 4193), so that a program's connection depends on no address that goes.
const ADDRESS_V4: Ipv4Addr = Ipv4Addr::new(198, 19, 70, 1);
const ADDRESS_V6: Ipv6Addr = Ipv6Addr::new(0xfd68, 0x6f6f, 0x7000, 0, 0, 0, 0, 1);

/// Where no relay goes unless it is told to: private, shared and link-local addresses (RFC 6890), and multicast.
const PRIVATE_V4: [&str; 6] =
    ["10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "224.0.0.0/4"];
const PRIVATE_V6: [&str; 3] = ["fc00::/7", "fe80::/10", "ff00::/8"];

/// Most of a packet: it goes to this machine alone.
const MTU: u32 = 65_535;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Family {
    V4,
    V6,
}

/// The ports of the listeners on loopback.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) family: Family,
    pub(super) programs: u16,
    /// None: there is no LAN.
    pub(super) lan: Option<u16>,
}

/// Who is taken in, and to where.
#[derive(Debug)]
pub(super) struct Rules {
    /// Whose programs.
    pub(super) users: Vec<u32>,
    /// By which interfaces other machines.
    pub(super) lans: Vec<String>,
    /// For each family that this machine has.
    pub(super) ports: Vec<Ports>,
}

impl Rules {
    /// For `ip -batch`, in one family. The interface is there, and still without anything.
    pub(super) fn routing(&self, family: Family) -> String {
        let (address, source) = match family {
            Family::V4 => (format!("{ADDRESS_V4}/32 dev {INTERFACE} scope link"), ADDRESS_V4.to_string()),
            // Nobody else is to choose it.
            Family::V6 => (format!("{ADDRESS_V6}/128 dev {INTERFACE} nodad preferred_lft 0"), ADDRESS_V6.to_string()),
        };
        let mut batch = format!("address add {address}\nlink set dev {INTERFACE} mtu {MTU} up\n");
        let mut line = |words: &str| batch.extend([words, "\n"]);
        line(&format!("route add default dev {INTERFACE} src {source} table {TABLE}"));
        private(family).iter().for_each(|network| line(&format!("route add throw {network} table {TABLE}")));
        let mut rule =
            |priority: u32, words: &str| line(&format!("rule add priority {priority} {words} protocol {PROTOCOL}"));
        rule(LAST, "nop");
        rule(FIRST, &format!("fwmark {CARRIER_MARK} goto {LAST}"));
        rule(FIRST + 1, &format!("iif lo ipproto tcp dport 53 goto {LAST}"));
        rule(FIRST + 2, "iif lo ipproto tcp lookup main suppress_prefixlength 0");
        let users = self.users.iter().map(|user| format!("iif lo ipproto tcp uidrange {user}-{user} lookup {TABLE}"));
        let users: Vec<_> = users.collect();
        users.iter().for_each(|user| rule(FIRST + 3, &format!("from {source} {user}")));
        match family {
            Family::V4 => users.iter().for_each(|user| rule(FIRST + 5, &format!("from 0.0.0.0/32 {user}"))),
            // No address at all is in neither half.
            Family::V6 => {
                for half in ["::/1", "8000::/1"] {
                    rule(FIRST + 4, &format!("from {half} iif lo ipproto tcp goto {LAST}"));
                }
                users.iter().for_each(|user| rule(FIRST + 5, user));
            }
        }
        if !self.lans.is_empty() {
            rule(FIRST, &format!("fwmark {LAN_MARK} lookup {LAN_TABLE}"));
            line(&format!("route add local default dev lo table {LAN_TABLE}"));
        }
        batch
    }

    /// For `nft -f`: replaces all that there is. `relay`: where the relay is.
    pub(super) fn redirection(&self, relay: &BTreeSet<IpAddr>) -> String {
        let mut script = format!("{}table inet {NFT_TABLE} {{\n", without_redirection());
        script += "chain programs {\ntype nat hook output priority -100;\n";
        for Ports { family, programs, .. } in &self.ports {
            let _ = writeln!(
                script,
                "oifname \"{INTERFACE}\" meta nfproto {} meta l4proto tcp redirect to :{programs}",
                family.nft().0
            );
        }
        script += "}\n";
        if !self.lans.is_empty() {
            script += "chain lan {\ntype filter hook prerouting priority -150;\n";
            let lans: Vec<_> = self.lans.iter().map(|lan| format!("\"{lan}\"")).collect();
            let _ = writeln!(script, "iifname != {{ {} }} return", lans.join(", "));
            let _ = writeln!(script, "meta l4proto tcp socket transparent 1 meta mark set {LAN_MARK} accept");
            script += "tcp flags & (syn | ack) != syn return\ntcp dport 53 return\nfib daddr type local return\n";
            let _ = writeln!(script, "fib daddr oifname {{ {} }} return", lans.join(", "));
            for Ports { family, lan, .. } in &self.ports {
                let (Some(port), (nfproto, ip, loopback)) = (lan, family.nft()) else { continue };
                let relay: Vec<_> = relay.iter().filter(|address| family.has(address)).map(IpAddr::to_string).collect();
                for addresses in [private(*family).join(", "), relay.join(", ")].iter().filter(|list| !list.is_empty())
                {
                    let _ = writeln!(script, "{ip} daddr {{ {addresses} }} return");
                }
                let _ = writeln!(
                    script,
                    "meta nfproto {nfproto} meta l4proto tcp tproxy {ip} to {loopback}:{port} meta mark set {LAN_MARK} accept"
                );
            }
            script += "}\n";
        }
        script + "}\n"
    }
}

/// For `ip -batch`: programs go to the relay's machine themselves, which the relay does not go to.
pub(super) fn relay_routes(family: Family, relay: &BTreeSet<IpAddr>) -> String {
    let of_family = relay.iter().filter(|address| family.has(address));
    of_family.map(|address| format!("route replace throw {address} table {TABLE}\n")).collect()
}

/// For `ip -force -batch`, in one family: takes out what there is.
pub(super) fn without_routing() -> String {
    format!("rule flush protocol {PROTOCOL}\nroute flush table {TABLE}\nroute flush table {LAN_TABLE}\n")
}

/// For `nft -f`: takes out what there is.
pub(super) fn without_redirection() -> String {
    format!("add table inet {NFT_TABLE}\ndelete table inet {NFT_TABLE}\n")
}

/// Whether a packet is of TCP.
pub(super) fn is_tcp(packet: &[u8]) -> bool {
    const TCP: u8 = 6;
    match packet.first().map(|first| first >> 4) {
        Some(4) => packet.get(9) == Some(&TCP),
        Some(6) => packet.get(6) == Some(&TCP),
        _ => false,
    }
}

/// Whether `nft` reads a name of an interface as that name.
pub(super) fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\*".contains(&byte))
}

impl Family {
    /// Of a packet, of an address, and loopback.
    const fn nft(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::V4 => ("ipv4", "ip", "127.0.0.1"),
            Self::V6 => ("ipv6", "ip6", "[::1]"),
        }
    }

    const fn has(self, address: &IpAddr) -> bool {
        matches!((self, address), (Self::V4, IpAddr::V4(_)) | (Self::V6, IpAddr::V6(_)))
    }
}

const fn private(family: Family) -> &'static [&'static str] {
    match family {
        Family::V4 => &PRIVATE_V4,
        Family::V6 => &PRIVATE_V6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(lans: &[&str]) -> Rules {
        let ports = |family| Ports { family, programs: 7, lan: (!lans.is_empty()).then_some(8) };
        let lans = lans.iter().map(|lan| (*lan).to_owned()).collect();
        Rules { users: vec![0, 1_000], lans, ports: vec![ports(Family::V4), ports(Family::V6)] }
    }

    #[test]
    fn each_rule_is_for_tcp_of_this_machine_or_a_mark_and_can_be_found_again() {
        for family in [Family::V4, Family::V6] {
            let batch = rules(&["lan0"]).routing(family);
            let rules: Vec<_> = batch.lines().filter(|line| line.starts_with("rule add ")).collect();
            assert!(rules.len() >= 9, "{batch}");
            for rule in rules {
                let is_narrow =
                    rule.contains(" iif lo ipproto tcp ") || rule.contains(" fwmark ") || rule.contains(" nop ");
                assert!(is_narrow && rule.ends_with(" protocol 104"), "{rule}");
            }
            for user in [0, 1_000] {
                assert_eq!(batch.matches(&format!("uidrange {user}-{user} lookup 4673")).count(), 2, "{batch}");
            }
        }
    }

    #[test]
    fn the_relay_is_reached_past_the_interface_in_its_own_family() {
        let relay = ["203.0.113.7", "2001:db8::7", "10.1.1.1"].map(|address| address.parse().unwrap()).into();
        let routes = relay_routes(Family::V4, &relay);
        assert_eq!(routes, "route replace throw 10.1.1.1 table 4673\nroute replace throw 203.0.113.7 table 4673\n");
        assert_eq!(relay_routes(Family::V6, &relay), "route replace throw 2001:db8::7 table 4673\n");
        let script = rules(&["lan0", "lan1"]).redirection(&relay);
        for line in [
            "iifname != { \"lan0\", \"lan1\" } return",
            "ip daddr { 10.1.1.1, 203.0.113.7 } return",
            "ip6 daddr { 2001:db8::7 } return",
        ] {
            assert!(script.lines().any(|one| one == line), "{line}: {script}");
        }
    }

    #[test]
    fn without_a_lan_nothing_that_comes_in_is_looked_at() {
        let script = rules(&[]).redirection(&BTreeSet::new());
        assert!(!script.contains("prerouting"), "{script}");
        assert!(!rules(&[]).routing(Family::V4).contains("4674"));
    }

    #[test]
    fn packets_of_tcp_are_known_in_both_families() {
        let mut packet = [0; 40];
        for (first, at, tcp) in
            [(0x45, 9, 6), (0x60, 6, 6), (0x45, 6, 6), (0x60, 9, 6), (0x45, 9, 17), (0x60, 6, 58), (0, 9, 6)]
        {
            packet.fill(0);
            (packet[0], packet[at]) = (first, tcp);
            assert_eq!(
                is_tcp(&packet),
                matches!((first, at, tcp), (0x45, 9, 6) | (0x60, 6, 6)),
                "{first:x} {at} {tcp}"
            );
        }
        assert!(!is_tcp(&[]) && !is_tcp(&[0x45]));
    }

    #[test]
    fn a_name_that_nft_would_read_as_something_else_is_none() {
        assert!(is_plain("br-lan.7@x"));
        for name in ["", "lan*", "lan\"", "la\\n", "la n", "l\u{e4}n"] {
            assert!(!is_plain(name), "{name}");
        }
    }
}
