//! How many requests one client may keep up: a bucket of tokens for each address, filled at a steady rate. Time is an argument.

use std::collections::HashMap;
use std::net::IpAddr;

/// Addresses that are remembered. One that is forgotten begins anew, with a full bucket.
const MAX_CLIENTS: usize = 4_096;

/// The buckets.
#[derive(Debug, Default)]
pub(super) struct Buckets(HashMap<IpAddr, Bucket>);

#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: f64,
    filled_ns: u64,
}

impl Buckets {
    /// Takes a token of a client's, who may keep up `rate` requests a second and send twice as many at once. False if there is none.
    pub(super) fn take(&mut self, client: IpAddr, rate: usize, now_ns: u64) -> bool {
        let rate = u32::try_from(rate).map_or(f64::INFINITY, f64::from);
        let most = 2.0 * rate;
        let filled = |bucket: &Bucket| (bucket.tokens + rate * seconds(now_ns.saturating_sub(bucket.filled_ns))).min(most);
        let client = neighbourhood(client);
        if self.0.len() >= MAX_CLIENTS && !self.0.contains_key(&client) {
            self.0.retain(|_, bucket| filled(bucket) < most);
            if self.0.len() >= MAX_CLIENTS {
                self.0.clear();
            }
        }
        let bucket = self.0.entry(client).or_insert(Bucket { tokens: most, filled_ns: now_ns });
        bucket.tokens = filled(bucket);
        bucket.filled_ns = now_ns;
        let has_token = bucket.tokens >= 1.0;
        if has_token {
            bucket.tokens -= 1.0;
        }
        has_token
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share of a token more or less")]
const fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Whoever has an IPv6 address has the 2^64 beside it.
fn neighbourhood(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() >> 64 << 64).into()),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn taken(buckets: &mut Buckets, client: IpAddr, now_ns: u64) -> usize {
        (0..100).filter(|_| buckets.take(client, 5, now_ns)).count()
    }

    #[test]
    fn twice_the_rate_at_once_then_the_rate_and_each_client_for_itself() {
        let mut buckets = Buckets::default();
        let (one, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        assert_eq!(taken(&mut buckets, one, SECOND), 10);
        assert_eq!(taken(&mut buckets, one, 2 * SECOND), 5);
        assert_eq!(taken(&mut buckets, other, 2 * SECOND), 10);
        assert_eq!(taken(&mut buckets, one, 100 * SECOND), 10);
        assert_eq!(taken(&mut buckets, one, 50 * SECOND), 0, "a clock that goes back gives nothing");
    }

    #[test]
    fn a_neighbourhood_of_ipv6_addresses_is_one_client() {
        let mut buckets = Buckets::default();
        let address = |last: u16| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last]);
        assert_eq!(taken(&mut buckets, address(1), 0), 10);
        assert_eq!(taken(&mut buckets, address(2), 0), 0);
        let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
        assert_eq!(taken(&mut buckets, IpAddr::V6(mapped), 0), 10);
        assert_eq!(taken(&mut buckets, IpAddr::V4(Ipv4Addr::LOCALHOST), 0), 0);
        assert_eq!(neighbourhood(IpAddr::V6(Ipv6Addr::LOCALHOST)), IpAddr::V6(Ipv6Addr::UNSPECIFIED));
    }

    #[test]
    fn memory_is_bounded_whatever_addresses_come() {
        let mut buckets = Buckets::default();
        for number in 0..20_000_u32 {
            assert!(buckets.take(IpAddr::V4(number.into()), 5, u64::from(number)));
            assert!(buckets.0.len() <= MAX_CLIENTS);
        }
    }
}
