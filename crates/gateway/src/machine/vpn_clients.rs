//! Adding and revoking VPN clients. Changes take effect immediately without confirmation, because they cannot cut off
//! other access.

use super::carry_out::Endpoints;
use super::error::GatewayError;
use super::gateway::Gateway;
use super::process::wall_secs;
use crate::clients::{Client, Clients};
use crate::keys::PrivateKey;
use crate::render;
use crate::setup::VpnSetup;
use crate::steps::Step;

impl Gateway {
    /// Adds a client and returns its profile. The profile contains the private key, which is not stored anywhere else.
    ///
    /// # Errors
    /// No VPN was confirmed, or the name is in use.
    pub fn add_client(&self, name: &str) -> Result<(Client, String), GatewayError> {
        self.with_clients(|clients, vpn| {
            let key = PrivateKey::generate();
            let client = clients.add(name, key.public(), vpn.address, wall_secs())?.clone();
            let server = self.records.make_server_key()?.public();
            let profile = render::profile(&client, &key, &server, vpn);
            Ok((client, profile))
        })
    }

    /// Revokes a client's access.
    ///
    /// # Errors
    /// No client has this name.
    pub fn revoke_client(&self, name: &str) -> Result<Client, GatewayError> {
        self.with_clients(|clients, _| Ok(clients.revoke(name)?))
    }

    fn with_clients<T>(
        &self,
        change: impl FnOnce(&mut Clients, &VpnSetup) -> Result<T, GatewayError>,
    ) -> Result<T, GatewayError> {
        let (_lock, confirmed) = self.lock_confirmed()?;
        let vpn = confirmed.setup.vpn.ok_or(GatewayError::NoVpn)?;
        let mut clients = self.records.clients()?;
        let outcome = change(&mut clients, &vpn)?;
        self.records.write(&clients)?;
        // A stopped VPN reads the clients when it starts.
        if self.observe()?.vpn.is_some() {
            self.carry_out(&Step::ConfigureVpn { port: vpn.port }, &Endpoints::new())?;
        }
        Ok(outcome)
    }
}
