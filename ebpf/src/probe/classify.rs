//! Which edge a connection belongs to.

use stormdrill_wire::abi::{Addresses, EdgeRule, MAX_NAMED_EDGES, OTHER_DOWNSTREAM, OTHER_INGRESS, protocol, role};

use crate::maps::RULES;

/// Which edge a connection belongs to, and what it is bound to speak.
#[derive(Clone, Copy)]
pub struct Class {
    pub edge: u8,
    /// See `abi::protocol`.
    pub protocol: u8,
}

/// The class of a connection in this role: that of the first rule that matches, or the role's collective edge.
#[inline(always)]
pub fn class(role: u8, addresses: &Addresses) -> Class {
    let other = Class { edge: if role == role::INGRESS { OTHER_INGRESS } else { OTHER_DOWNSTREAM }, protocol: protocol::ANY };
    let Some(rules) = RULES.get(0) else {
        return other;
    };
    let (address, port) =
        if role == role::INGRESS { (&addresses.local, addresses.local_port) } else { (&addresses.remote, addresses.remote_port) };
    let mapped = address[0] | address[1] == 0 && address[2] == 0xffff_u32.to_be();
    let mapped = if mapped { EdgeRule::NOT_MAPPED } else { 0 };
    let mut at = 0;
    while at < MAX_NAMED_EDGES {
        let rule = &rules.rules[at];
        at += 1;
        // Rules that are not in use have role 0, and so differ.
        if mismatch(rule, role, address, port, mapped) == 0 {
            return if (rule.edge as usize) < MAX_NAMED_EDGES { Class { edge: rule.edge, protocol: rule.protocol & 7 } } else { other };
        }
    }
    other
}

/// Whether a connection could belong to a named edge if its role were known.
#[inline(always)]
pub fn may_be_named(addresses: &Addresses) -> bool {
    (class(role::INGRESS, addresses).edge as usize) < MAX_NAMED_EDGES
        || (class(role::DOWNSTREAM, addresses).edge as usize) < MAX_NAMED_EDGES
}

/// 0 if the rule matches. By arithmetic and with one comparison at the end, for the sake of the verifier: it would follow
/// both ways of each comparison, for each rule.
#[inline(always)]
fn mismatch(rule: &EdgeRule, role: u8, address: &[u32; 4], port: u16, mapped: u8) -> u64 {
    let below = (port as i64 - rule.port_first as i64) >> 63;
    let above = (rule.port_last as i64 - port as i64) >> 63;
    let differs = (address[0] ^ rule.address[0]) & rule.mask[0]
        | (address[1] ^ rule.address[1]) & rule.mask[1]
        | (address[2] ^ rule.address[2]) & rule.mask[2]
        | (address[3] ^ rule.address[3]) & rule.mask[3];
    (below | above) as u64 | differs as u64 | (rule.role ^ role) as u64 | (mapped & rule.flags) as u64
}
