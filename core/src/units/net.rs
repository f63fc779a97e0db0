//! Ports, ranges of ports, addresses and networks. Names are refused: what they stand for can change under a drill.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{UnitError, UnitErrorKind};
use crate::edge::{Cidr, PortRange};

/// What is proposed where the text gives no idea.
const PORT: &str = "8080";
const PORTS: &str = "8000-8099";
const NETWORK: &str = "10.2.0.0/16";
/// All of these.
pub(crate) const EXAMPLES: [&str; 3] = [PORT, PORTS, NETWORK];

/// Reads `8080` or `8000-8099`; ports run from 1 to 65535.
///
/// # Errors
/// When the text is an address, zero, above 65535, or a range that ends before it starts.
pub fn parse_ports(text: &str) -> Result<PortRange, UnitError> {
    let text = text.trim();
    let refuse = |kind, write: &str| UnitError::new(text, kind, vec![write.to_owned()]);
    if text.is_empty() {
        return Err(refuse(UnitErrorKind::Empty, PORT));
    }
    if let Some((address, port)) = text.rsplit_once(':')
        && address.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
        && parse_port(port).is_ok()
    {
        return Err(refuse(UnitErrorKind::AddressForPort, port));
    }
    if parse_cidr(text).is_ok() {
        return Err(refuse(UnitErrorKind::AddressForPort, PORT));
    }
    if let Some(positive) = text.strip_prefix('-') {
        let write = if parse_port(positive).is_ok() { positive } else { PORT };
        return Err(refuse(UnitErrorKind::Negative, write));
    }
    let Some((first, last)) = text.split_once('-') else {
        // Other ways in which people write a range.
        let range = text.split_once(':').or_else(|| text.split_once("..")).map(|(first, last)| (first.trim(), last.trim()));
        if let Some((first, last)) = range.filter(|(first, last)| parse_port(first).is_ok() && parse_port(last).is_ok()) {
            return Err(refuse(UnitErrorKind::Malformed, &format!("{first}-{last}")));
        }
        let port = parse_port(text).map_err(|kind| refuse(kind, PORT))?;
        return Ok(PortRange { first: port, last: port });
    };
    let (first, last) = (first.trim(), last.trim());
    let whole = |end: &str| parse_port(end).map_err(|kind| refuse(kind, PORTS));
    let range = PortRange { first: whole(first)?, last: whole(last)? };
    if range.last < range.first {
        return Err(refuse(UnitErrorKind::Backwards, &format!("{last}-{first}")));
    }
    Ok(range)
}

fn parse_port(text: &str) -> Result<u16, UnitErrorKind> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(UnitErrorKind::Malformed);
    }
    match text.parse() {
        Ok(0) => Err(UnitErrorKind::Zero),
        Ok(port) => Ok(port),
        Err(_) => Err(UnitErrorKind::TooLarge),
    }
}

/// Reads an address, `10.2.0.7` or `fd00::7`, or a network, `10.2.0.0/16`. IPv4-mapped IPv6 becomes IPv4.
///
/// # Errors
/// When the text is a port, a name, the unspecified address, has an impossible prefix, or bits set beyond it.
pub fn parse_cidr(text: &str) -> Result<Cidr, UnitError> {
    let text = text.trim();
    let refuse = |kind, write: String| Err(UnitError::new(text, kind, vec![write]));
    if text.is_empty() {
        return refuse(UnitErrorKind::Empty, NETWORK.to_owned());
    }
    let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
    let unbracketed = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(address);
    let Ok(address) = unbracketed.parse::<IpAddr>() else {
        return refuse(not_an_address(address), NETWORK.to_owned());
    };
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let prefix = match prefix.map(str::parse::<u8>) {
        None => bits,
        Some(Ok(prefix)) if prefix <= bits => prefix,
        Some(Ok(_)) => return refuse(UnitErrorKind::TooLarge, format!("{address}/{bits}")),
        Some(Err(_)) => {
            let mask = text.split_once('/').and_then(|(_, mask)| mask.parse::<Ipv4Addr>().ok()).filter(|_| address.is_ipv4());
            let length =
                mask.map(Ipv4Addr::to_bits).filter(|mask| mask.leading_ones() + mask.trailing_zeros() == 32).map(u32::leading_ones);
            let prefix = length.and_then(|length| u8::try_from(length).ok()).unwrap_or(bits);
            let network = Cidr { address, prefix };
            return refuse(UnitErrorKind::Malformed, format!("{}/{prefix}", masked(network)));
        }
    };
    let cidr = unmapped(Cidr { address, prefix });
    let network = Cidr { address: masked(cidr), prefix: cidr.prefix };
    if network != cidr {
        // An IPv4 network within IPv6 has 96 bits more.
        let four = match address {
            IpAddr::V6(six) => six.to_ipv4_mapped().filter(|_| prefix <= 32).map(IpAddr::V4),
            IpAddr::V4(_) => None,
        };
        let network = four.map_or(network, |address| Cidr { address: masked(Cidr { address, prefix }), prefix });
        return refuse(UnitErrorKind::HostBits, network.to_string());
    }
    if cidr.address.is_unspecified() && cidr.prefix == bits {
        return refuse(UnitErrorKind::Unspecified, format!("{address}/0"));
    }
    Ok(cidr)
}

fn not_an_address(text: &str) -> UnitErrorKind {
    if parse_port(text).is_ok() || text.split_once('-').is_some_and(|(a, b)| parse_port(a).is_ok() && parse_port(b).is_ok()) {
        return UnitErrorKind::PortForAddress;
    }
    match text.rsplit_once(':') {
        Some((address, port)) if parse_port(port).is_ok() && address.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() => {
            UnitErrorKind::PortForAddress
        }
        _ => UnitErrorKind::NameForAddress,
    }
}

fn unmapped(cidr: Cidr) -> Cidr {
    match cidr.address {
        IpAddr::V6(six) if cidr.prefix >= 96 => match six.to_ipv4_mapped() {
            Some(four) => Cidr { address: IpAddr::V4(four), prefix: cidr.prefix - 96 },
            None => cidr,
        },
        _ => cidr,
    }
}

fn masked(cidr: Cidr) -> IpAddr {
    let prefix = u32::from(cidr.prefix);
    match cidr.address {
        IpAddr::V4(four) => {
            let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(four.to_bits() & mask))
        }
        IpAddr::V6(six) => {
            let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(six.to_bits() & mask))
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ports_reach_to_65535_and_no_further() {
        assert_eq!(parse_ports("1024-65535"), Ok(PortRange { first: 1024, last: 65535 }));
        assert_eq!(parse_ports("65535"), Ok(PortRange { first: 65535, last: 65535 }));
        use UnitErrorKind::*;
        for (text, kind) in [
            ("65536", TooLarge),
            ("0", Zero),
            ("80-65536", TooLarge),
            ("90-80", Backwards),
            ("-80", Negative),
            ("http", Malformed),
            ("80,81", Malformed),
            ("80-", Malformed),
            ("10.2.0.0/16", AddressForPort),
            ("10.2.0.1:80", AddressForPort),
            ("::1", AddressForPort),
            ("", Empty),
        ] {
            assert_eq!(parse_ports(text).unwrap_err().kind, kind, "{text}");
        }
    }

    #[test]
    fn addresses_are_networks() {
        for (text, printed) in [
            ("10.2.0.0/16", "10.2.0.0/16"),
            ("10.2.0.1", "10.2.0.1"),
            ("10.2.0.1/32", "10.2.0.1"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("::/0", "::/0"),
            ("[::1]", "::1"),
            ("fd00::/8", "fd00::/8"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ] {
            assert_eq!(parse_cidr(text).unwrap().to_string(), printed, "{text}");
        }
        use UnitErrorKind::*;
        for (text, kind, write) in [
            ("3306", PortForAddress, "10.2.0.0/16"),
            ("3306-3310", PortForAddress, "10.2.0.0/16"),
            ("10.0.0.1:3306", PortForAddress, "10.2.0.0/16"),
            ("10.2.3.4/16", HostBits, "10.2.0.0/16"),
            ("0.0.0.0", Unspecified, "0.0.0.0/0"),
            ("[::]", Unspecified, "::/0"),
            ("10.2.0.0/33", TooLarge, "10.2.0.0/32"),
            ("10.2.0.0/x", Malformed, "10.2.0.0/32"),
            ("db.example.org", NameForAddress, "10.2.0.0/16"),
            ("", Empty, "10.2.0.0/16"),
        ] {
            let error = parse_cidr(text).unwrap_err();
            assert_eq!((error.kind, error.write[0].as_str()), (kind, write), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(bits in any::<u128>(), prefix in 0_u8..=128, four in any::<bool>()) {
            let address = if four {
                IpAddr::V4(Ipv4Addr::from_bits(bits.to_be_bytes()[3].into()))
            } else {
                IpAddr::V6(Ipv6Addr::from_bits(bits))
            };
            let prefix = if four { prefix.min(32) } else { prefix };
            let cidr = unmapped(Cidr { address, prefix });
            let cidr = Cidr { address: masked(cidr), ..cidr };
            prop_assume!(!(cidr.address.is_unspecified() && cidr.prefix == if cidr.address.is_ipv4() { 32 } else { 128 }));
            prop_assert_eq!(parse_cidr(&cidr.to_string()), Ok(cidr));
        }

        #[test]
        fn no_text_makes_them_panic(text in "\\PC*") {
            let _ = (parse_ports(&text), parse_cidr(&text));
        }
    }
}
