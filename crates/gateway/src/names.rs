//! Names of the gateway's own parts, and validation of names that are written to configuration files of other programs.
//! Validation prevents injection of other settings.

/// Name of the gateway's table of packet rules, in the family `inet`.
pub const TABLE: &str = "hostler_gateway";

pub const VPN_INTERFACE: &str = "hostler-vpn";

/// Whether a name is a DNS label in lower case: letters, digits and inner hyphens, at most 63 characters.
pub(crate) fn is_label(name: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len()) && name.bytes().all(is_fine) && !name.starts_with('-') && !name.ends_with('-')
}

/// Whether a name is a domain: one or more labels, separated by dots.
pub(crate) fn is_domain(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_label)
}

/// Whether a name is valid for a network interface and needs no escaping in nft.
pub(crate) fn is_interface(name: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@:".contains(&byte);
    (1..=15).contains(&name.len()) && name.bytes().all(is_fine) && name != "." && name != ".." && name != "lo"
}

/// Whether a name is valid for a boot file: a path without spaces and field separators.
pub(crate) fn is_boot_file(name: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    (1..=127).contains(&name.len()) && name.bytes().all(is_fine)
}

/// Whether a name is valid for a VPN client, and as a file name of the client's profile.
pub(crate) fn is_client(name: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=63).contains(&name.len()) && name.bytes().all(is_fine) && !name.starts_with(['-', '.'])
}

/// Returns host and port of an endpoint such as `lab.example:51820`, `192.0.2.1` or `[2001:db8::1]:51820`. `default` is
/// the port if the text contains none.
pub(crate) fn endpoint(text: &str, default: u16) -> Option<(String, u16)> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((inner, after)) => {
            inner.parse::<std::net::Ipv6Addr>().ok()?;
            (format!("[{inner}]"), if after.is_empty() { None } else { Some(after.strip_prefix(':')?) })
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host.to_owned(), Some(port)),
            None => (text.to_owned(), None),
        },
    };
    let port = port.map_or(Some(default), |port| port.parse().ok()).filter(|port| *port != 0)?;
    let is_host = host.starts_with('[') || is_domain(&host.to_ascii_lowercase());
    is_host.then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_parsed() {
        let some = |host: &str, port| Some((host.to_owned(), port));
        assert_eq!(endpoint("Lab.example", 51820), some("Lab.example", 51820));
        assert_eq!(endpoint("192.0.2.1:7", 51820), some("192.0.2.1", 7));
        assert_eq!(endpoint("[2001:db8::1]:9", 1), some("[2001:db8::1]", 9));
        assert_eq!(endpoint("[2001:db8::1]", 1), some("[2001:db8::1]", 1));
        for wrong in ["", "a b", "a:0", "a:x", "a:70000", "2001:db8::1", "[2001:db8::1]7", "a\nb", "-a"] {
            assert_eq!(endpoint(wrong, 1), None, "{wrong}");
        }
    }

    #[test]
    fn names_cannot_inject_settings() {
        for wrong in ["", "a b", "a\nb", "a,b", "a\"b", "A", "-a", "a-", "ä"] {
            assert!(!is_label(wrong), "{wrong}");
        }
        for wrong in ["", "eth 0", "eth\"0", "eth0;", "a/b", "0123456789abcdef", "..", "lo"] {
            assert!(!is_interface(wrong), "{wrong}");
        }
        assert!(is_label("r1") && is_domain("cluster.home") && is_interface("enp2s0.100") && is_interface("br-nodes"));
        assert!(is_client("Anna.laptop") && !is_client("../x") && !is_client("a b"));
    }
}
