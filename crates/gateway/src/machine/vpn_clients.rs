//! Letting clients in and out. It counts at once and waits for nobody: it can cut nobody off but them.

use super::Gateway;
use super::carry_out::Endpoints;
use super::error::GatewayError;
use super::process::wall_secs;
use crate::clients::{Client, Clients};
use crate::keys::PrivateKey;
use crate::render;
use crate::setup::VpnSetup;
use crate::steps::Step;

impl Gateway {
    /// Lets a machine in, and makes its profile, which holds its private key. That is nowhere else: it cannot be shown again.
    ///
    /// # Errors
    /// When there is no VPN that has been confirmed, or the name is taken.
    pub fn add_client(&self, name: &str) -> Result<(Client, String), GatewayError> {
        self.with_clients(|clients, vpn| {
            let key = PrivateKey::generate().map_err(|error| self.records.failed("make", "a key for", error))?;
            let client = clients.add(name, key.public(), vpn.address, wall_secs())?.clone();
            let server = self.records.make_server_key()?.public();
            let profile = render::profile(&client, &key, &server, vpn);
            Ok((client, profile))
        })
    }

    /// Lets a machine in no more.
    ///
    /// # Errors
    /// When there is none of this name.
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
        // A VPN that does not run now will know when it does.
        if self.observe()?.vpn.is_some() {
            self.carry_out(&Step::ConfigureVpn { port: vpn.port }, &Endpoints::new())?;
        }
        Ok(outcome)
    }
}
