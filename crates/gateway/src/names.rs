//! Names that go into configuration files of other programs. Nothing gets there that is not checked here, so nothing can be smuggled in.

/// Whether a host can have this name in DNS: letters, digits and inner hyphens, at most 63 characters, in lower case.
pub(crate) fn is_label(name: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len()) && name.bytes().all(is_fine) && !name.starts_with('-') && !name.ends_with('-')
}

/// Whether this is a domain: one or more labels with dots between them.
pub(crate) fn is_domain(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_label)
}

/// Whether the kernel would take this as the name of an interface, and nft without quoting trouble.
pub(crate) fn is_interface(name: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@:".contains(&byte);
    (1..=15).contains(&name.len()) && name.bytes().all(is_fine) && name != "." && name != ".." && name != "lo"
}

/// Whether a boot server would be asked for this file: a path without blanks and what separates fields.
pub(crate) fn is_boot_file(name: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    (1..=127).contains(&name.len()) && name.bytes().all(is_fine)
}

/// Whether a client of the VPN may be called so: what can also be the name of its file.
pub(crate) fn is_client(name: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=63).contains(&name.len()) && name.bytes().all(is_fine) && !name.starts_with(['-', '.'])
}

/// The host and the port, `default` unless it names one, of a place such as `lab.example:51820`, `192.0.2.1` or `[2001:db8::1]:51820`.
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
    fn endpoints() {
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
    fn names_cannot_smuggle_anything() {
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
