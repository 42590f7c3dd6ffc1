//! WireGuard configurations of the server and of clients.

use std::fmt::Write as _;

use crate::clients::Client;
use crate::description::{Description, Reach, Vpn};
use crate::keys::{PrivateKey, PublicKey};
use crate::setup::client_routes;

/// Interval of the clients' keep-alive packets in seconds. The packets keep NAT mappings open.
const KEEP_ALIVE_SECS: u8 = 25;

/// Input for `wg syncconf`, including the private key.
pub(crate) fn server<'a>(key: &PrivateKey, port: u16, clients: impl Iterator<Item = &'a Client>) -> String {
    let mut text = format!("[Interface]\nPrivateKey = {}\nListenPort = {port}\n", key.to_text());
    for client in clients {
        write!(text, "\n[Peer]\nPublicKey = {}\nAllowedIPs = {}/32\n", client.public_key, client.address)
            .expect("strings can be written to");
    }
    text
}

/// A client's configuration for `wg-quick` and WireGuard apps, including the client's private key.
pub(crate) fn profile(
    client: &Client,
    key: &PrivateKey,
    server: &PublicKey,
    description: &Description,
    vpn: &Vpn,
) -> String {
    let routes: Vec<String> = client_routes(description).iter().map(ToString::to_string).collect();
    let nodes = &description.nodes;
    // The DNS server listens on the address in the nodes' network, so only clients that reach this network can use it.
    let names = match vpn.reaches(Reach::Nodes) {
        true => format!("DNS = {}, {}\n", nodes.address.address, nodes.domain),
        false => String::new(),
    };
    let endpoint = format!("{}:{}", vpn.endpoint.0, vpn.endpoint.1);
    format!(
        "# client {} of the cluster at {endpoint}\n[Interface]\nPrivateKey = {}\nAddress = {}/32\n{names}\n\
         [Peer]\nPublicKey = {server}\nEndpoint = {endpoint}\nAllowedIPs = {}\nPersistentKeepalive = {KEEP_ALIVE_SECS}\n",
        client.name,
        key.to_text(),
        client.address,
        routes.join(", "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::EXAMPLE;

    #[test]
    fn profile_contains_addresses_and_keys() {
        let description = Description::parse(EXAMPLE).expect("valid");
        let vpn = description.vpn.as_ref().expect("a VPN");
        let (server_key, key) = (PrivateKey::from_bytes([1; 32]), PrivateKey::from_bytes([2; 32]));
        let client = Client {
            name: "laptop".to_owned(),
            public_key: key.public(),
            address: [10, 44, 0, 2].into(),
            added_secs: 0,
        };
        let text = profile(&client, &key, &server_key.public(), &description, vpn);
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
        let told = server(&server_key, 51820, [&client].into_iter());
        assert!(told.contains("AllowedIPs = 10.44.0.2/32\n") && !told.contains(&key.to_text()), "{told}");
    }
}
