//! WireGuard configurations of the server and of clients.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::clients::Client;
use crate::keys::{PrivateKey, PublicKey};
use crate::setup::VpnSetup;

/// Interval of the clients' keep-alive packets in seconds. The packets keep NAT mappings open.
const KEEP_ALIVE_SECS: u8 = 25;

/// Input for `wg syncconf`, including the private key. `endpoints` are the last known endpoints of clients, for a new
/// interface.
pub(crate) fn server<'a>(
    key: &PrivateKey,
    port: u16,
    clients: impl Iterator<Item = &'a Client>,
    endpoints: &BTreeMap<PublicKey, String>,
) -> String {
    let mut text = format!("[Interface]\nPrivateKey = {}\nListenPort = {port}\n", key.to_text());
    for client in clients {
        write!(text, "\n[Peer]\nPublicKey = {}\nAllowedIPs = {}/32\n", client.public_key, client.address)
            .expect("strings can be written to");
        if let Some(endpoint) = endpoints.get(&client.public_key) {
            writeln!(text, "Endpoint = {endpoint}").expect("strings can be written to");
        }
    }
    text
}

/// A client's configuration for `wg-quick` and WireGuard apps, including the client's private key.
#[must_use]
pub fn profile(client: &Client, key: &PrivateKey, server: &PublicKey, vpn: &VpnSetup) -> String {
    let routes: Vec<String> = vpn.routes.iter().map(ToString::to_string).collect();
    let names = vpn.names.map(|names| format!("DNS = {names}, {}\n", vpn.domain)).unwrap_or_default();
    format!(
        "# client {} of the cluster at {}\n[Interface]\nPrivateKey = {}\nAddress = {}/32\n{names}\n\
         [Peer]\nPublicKey = {server}\nEndpoint = {}\nAllowedIPs = {}\nPersistentKeepalive = {KEEP_ALIVE_SECS}\n",
        client.name,
        vpn.endpoint,
        key.to_text(),
        client.address,
        vpn.endpoint,
        routes.join(", "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::{Description, EXAMPLE};
    use crate::setup::Setup;

    #[test]
    fn profile_contains_addresses_and_keys() {
        let vpn = Setup::of(&Description::parse(EXAMPLE).expect("valid")).vpn.expect("a VPN");
        let (server_key, key) = (PrivateKey::from_bytes([1; 32]), PrivateKey::from_bytes([2; 32]));
        let client = Client {
            name: "laptop".to_owned(),
            public_key: key.public(),
            address: [10, 44, 0, 2].into(),
            added_secs: 0,
        };
        let text = profile(&client, &key, &server_key.public(), &vpn);
        for line in [
            "Address = 10.44.0.2/32",
            "DNS = 10.42.0.1, cluster",
            "Endpoint = lab.example.org:51820",
            "AllowedIPs = 10.44.0.0/24, 10.42.0.0/24",
            &format!("PublicKey = {}", server_key.public()),
            &format!("PrivateKey = {}", key.to_text()),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing from\n{text}");
        }
        let told = server(&server_key, 51820, [&client].into_iter(), &BTreeMap::new());
        assert!(told.contains("AllowedIPs = 10.44.0.2/32\n") && !told.contains(&key.to_text()), "{told}");
    }
}
