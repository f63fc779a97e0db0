//! Which edge a connection belongs to.

use stormdrill_wire::abi::{Addresses, EdgeRule, MAX_NAMED_EDGES, OTHER_DOWNSTREAM, OTHER_INGRESS, role};

use crate::maps::{RULES, SETTINGS};

/// The edge of a connection in this role: that of the first rule that matches, or the role's collective one.
#[inline(always)]
pub fn edge(role: u8, addresses: &Addresses) -> u8 {
    let other = if role == role::INGRESS { OTHER_INGRESS } else { OTHER_DOWNSTREAM };
    let (Some(rules), Some(settings)) = (RULES.get(0), SETTINGS.get(0)) else {
        return other;
    };
    let (address, port) = if role == role::INGRESS {
        (&addresses.local, addresses.local_port)
    } else {
        (&addresses.remote, addresses.remote_port)
    };
    let mut at = 0;
    while at < MAX_NAMED_EDGES {
        if at as u32 >= settings.rules {
            break;
        }
        let rule = &rules.rules[at];
        if rule.role == role && matches(rule, address, port) {
            return if (rule.edge as usize) < MAX_NAMED_EDGES { rule.edge } else { other };
        }
        at += 1;
    }
    other
}

/// Whether a connection could belong to a named edge if its role were known.
#[inline(always)]
pub fn may_be_named(addresses: &Addresses) -> bool {
    (edge(role::INGRESS, addresses) as usize) < MAX_NAMED_EDGES
        || (edge(role::DOWNSTREAM, addresses) as usize) < MAX_NAMED_EDGES
}

#[inline(always)]
fn matches(rule: &EdgeRule, address: &[u32; 4], port: u16) -> bool {
    if port < rule.port_first || port > rule.port_last {
        return false;
    }
    let differs = (address[0] ^ rule.address[0]) & rule.mask[0]
        | (address[1] ^ rule.address[1]) & rule.mask[1]
        | (address[2] ^ rule.address[2]) & rule.mask[2]
        | (address[3] ^ rule.address[3]) & rule.mask[3];
    let mapped = address[0] | address[1] == 0 && address[2] == 0xffff_u32.to_be();
    differs == 0 && !(mapped && rule.flags & EdgeRule::NOT_MAPPED != 0)
}
