//! Clients of the VPN. Only a client's name, address and public key are stored, never its private key.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::keys::PublicKey;
use crate::names;
use crate::subnet::InterfaceAddress;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    pub name: String,
    pub public_key: PublicKey,
    pub address: Ipv4Addr,
    /// When the client was added, in seconds since 1970, for display only.
    pub added_secs: u64,
}

/// All clients, in the order in which they were added.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Clients(Vec<Client>);

/// Why a client was not added or revoked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientsError {
    /// The name contains characters that a file name may not have.
    #[error("`{0}` is not a valid client name: use letters, digits and inner -_.")]
    Name(String),
    #[error("a client called {0} exists already: revoke it first, or use another name")]
    Taken(String),
    /// No client of this name exists.
    #[error("no client is called {name}{}", known(.there))]
    Unknown {
        name: String,
        /// Names of the existing clients.
        there: Vec<String>,
    },
    /// All addresses are in use.
    #[error("all addresses of {0} are in use: use a shorter prefix in vpn.address, or revoke a client")]
    Full(InterfaceAddress),
}

fn known(there: &[String]) -> String {
    if there.is_empty() { String::new() } else { format!("; existing clients: {}", there.join(", ")) }
}

impl Clients {
    /// Adds a client with the first free address.
    ///
    /// # Errors
    /// The name is invalid or in use, or no address is free.
    pub fn add(
        &mut self,
        name: &str,
        key: PublicKey,
        vpn: InterfaceAddress,
        now_secs: u64,
    ) -> Result<&Client, ClientsError> {
        if !names::is_client(name) {
            return Err(ClientsError::Name(name.to_owned()));
        }
        if self.get(name).is_some() {
            return Err(ClientsError::Taken(name.to_owned()));
        }
        let is_free =
            |address: &Ipv4Addr| *address != vpn.address && !self.0.iter().any(|client| client.address == *address);
        let address = vpn.subnet().hosts().find(is_free).ok_or(ClientsError::Full(vpn))?;
        self.0.push(Client { name: name.to_owned(), public_key: key, address, added_secs: now_secs });
        Ok(self.0.last().expect("the client was added above"))
    }

    /// Removes a client.
    ///
    /// # Errors
    /// No client has this name.
    pub fn revoke(&mut self, name: &str) -> Result<Client, ClientsError> {
        let there = || self.0.iter().map(|client| client.name.clone()).collect();
        match self.0.iter().position(|client| client.name == name) {
            Some(at) => Ok(self.0.remove(at)),
            None => Err(ClientsError::Unknown { name: name.to_owned(), there: there() }),
        }
    }

    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Client> {
        self.0.iter().find(|client| client.name == name)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Client> {
        self.0.iter()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Clients whose address is outside the VPN's subnet, or equal to this machine's address.
    #[must_use]
    pub fn outside_subnet(&self, vpn: InterfaceAddress) -> Vec<&Client> {
        let is_fine = |client: &&Client| vpn.subnet().is_host_address(client.address) && client.address != vpn.address;
        self.0.iter().filter(|client| !is_fine(client)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::PrivateKey;

    fn key(number: u8) -> PublicKey {
        PrivateKey::from_bytes([number; 32]).public()
    }

    #[test]
    fn addresses_are_unique_and_reused_after_revocation() {
        let vpn: InterfaceAddress = "10.44.0.2/29".parse().expect("an address");
        let mut clients = Clients::default();
        for (number, last) in [(1, 1), (2, 3), (3, 4), (4, 5), (5, 6)] {
            let client = clients.add(&format!("c{number}"), key(number), vpn, 7).expect("enough space");
            assert_eq!(client.address, Ipv4Addr::new(10, 44, 0, last));
        }
        assert_eq!(clients.add("c6", key(6), vpn, 7).expect_err("full"), ClientsError::Full(vpn));
        assert_eq!(clients.revoke("c3").expect("the client exists").public_key, key(3));
        assert_eq!(clients.add("c7", key(7), vpn, 7).expect("enough space").address, Ipv4Addr::new(10, 44, 0, 4));
    }

    #[test]
    fn names_are_validated_and_unique() {
        let vpn = "10.44.0.1/24".parse().expect("an address");
        let mut clients = Clients::default();
        clients.add("laptop", key(1), vpn, 7).expect("fine");
        assert_eq!(clients.add("laptop", key(2), vpn, 7), Err(ClientsError::Taken("laptop".to_owned())));
        assert_eq!(clients.add("../x", key(2), vpn, 7), Err(ClientsError::Name("../x".to_owned())));
        let error = clients.revoke("desktop").expect_err("no client");
        assert_eq!(error.to_string(), "no client is called desktop; existing clients: laptop");
        assert_eq!(clients.outside_subnet("10.44.0.2/24".parse().expect("an address")).len(), 1);
        assert!(clients.outside_subnet(vpn).is_empty());
    }
}
