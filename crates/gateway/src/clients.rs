//! Who may come in by the VPN. Of a client only its name, address and public key are known; its private key never stays here.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::keys::PublicKey;
use crate::names;
use crate::subnet::InterfaceAddress;

/// A machine that may come in by the VPN.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// What a person calls it.
    pub name: String,
    /// By which it is known.
    pub public_key: PublicKey,
    /// Its address in the VPN.
    pub address: Ipv4Addr,
    /// When it was added, in seconds since 1970. Only shown.
    pub added_secs: u64,
}

/// All clients, in the order in which they were added.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Clients(Vec<Client>);

/// Why a client was not added or revoked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientsError {
    /// It would be no name for a file.
    #[error("`{0}` is no name for a client: use letters, digits and inner -_.")]
    Name(String),
    /// One is there.
    #[error("there is a client called {0}, added before: revoke that first, or take another name")]
    Taken(String),
    /// None is there.
    #[error("there is no client called {name}{}", known(.there))]
    Unknown {
        /// Who was asked for.
        name: String,
        /// Who is there.
        there: Vec<String>,
    },
    /// All addresses are in use.
    #[error("all addresses of {0} are in use: let vpn.address have a shorter prefix, or revoke a client")]
    Full(InterfaceAddress),
}

fn known(there: &[String]) -> String {
    if there.is_empty() { String::new() } else { format!("; there are {}", there.join(", ")) }
}

impl Clients {
    /// Lets a machine in. It gets the first address that is free.
    ///
    /// # Errors
    /// When the name is taken or none, or no address is free.
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
        Ok(self.0.last().expect("it has just been added"))
    }

    /// Lets a machine in no more.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn revoke(&mut self, name: &str) -> Result<Client, ClientsError> {
        let there = || self.0.iter().map(|client| client.name.clone()).collect();
        match self.0.iter().position(|client| client.name == name) {
            Some(at) => Ok(self.0.remove(at)),
            None => Err(ClientsError::Unknown { name: name.to_owned(), there: there() }),
        }
    }

    /// The client of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Client> {
        self.0.iter().find(|client| client.name == name)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Client> {
        self.0.iter()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those whose address is not one of the VPN's any more, or is this machine's now.
    #[must_use]
    pub fn misplaced(&self, vpn: InterfaceAddress) -> Vec<&Client> {
        let is_fine = |client: &&Client| vpn.subnet().has_room_for(client.address) && client.address != vpn.address;
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
    fn addresses_are_given_once_and_again_when_they_are_free() {
        let vpn: InterfaceAddress = "10.44.0.2/29".parse().expect("an address");
        let mut clients = Clients::default();
        for (number, last) in [(1, 1), (2, 3), (3, 4), (4, 5), (5, 6)] {
            let client = clients.add(&format!("c{number}"), key(number), vpn, 7).expect("there is room");
            assert_eq!(client.address, Ipv4Addr::new(10, 44, 0, last));
        }
        assert_eq!(clients.add("c6", key(6), vpn, 7).expect_err("full"), ClientsError::Full(vpn));
        assert_eq!(clients.revoke("c3").expect("it is there").public_key, key(3));
        assert_eq!(clients.add("c7", key(7), vpn, 7).expect("room").address, Ipv4Addr::new(10, 44, 0, 4));
    }

    #[test]
    fn names_are_names_and_are_there_once() {
        let vpn = "10.44.0.1/24".parse().expect("an address");
        let mut clients = Clients::default();
        clients.add("laptop", key(1), vpn, 7).expect("fine");
        assert_eq!(clients.add("laptop", key(2), vpn, 7), Err(ClientsError::Taken("laptop".to_owned())));
        assert_eq!(clients.add("../x", key(2), vpn, 7), Err(ClientsError::Name("../x".to_owned())));
        let error = clients.revoke("desktop").expect_err("nobody");
        assert_eq!(error.to_string(), "there is no client called desktop; there are laptop");
        assert_eq!(clients.misplaced("10.44.0.2/24".parse().expect("an address")).len(), 1);
        assert!(clients.misplaced(vpn).is_empty());
    }
}
