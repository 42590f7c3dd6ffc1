//! Redfish driver for one node's system behind a controller.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use serde_json::json;

use super::bodies::{self, ActionInfo, Collection, Link, Reset, System, Wanted};
use super::service::{Identity, Service};
use super::trust::Trust;
use super::watts::Meter;
use crate::{Driver, Fault, Off, RedfishConfig, Site, Supply};

/// Maximum number of pages of a list.
const MAX_PAGES: usize = 16;
/// Maximum number of list members to read individually.
const MAX_LOOKS: usize = 64;

/// Redfish driver for one system.
pub(crate) struct RedfishDriver {
    service: Arc<Service>,
    /// The id, name, UUID or path of the system, if the operator has configured one.
    name: Option<String>,
    known: Mutex<Known>,
}

/// Cached data about the system.
#[derive(Debug, Default)]
struct Known {
    path: Option<String>,
    system: Option<System>,
    meter: Option<Meter>,
}

impl RedfishDriver {
    /// Creates the driver.
    ///
    /// # Errors
    /// The password would be sent unencrypted without the operator's permission.
    pub(crate) fn new(config: &RedfishConfig, site: &Site) -> Result<Self, Fault> {
        if !config.address.is_encrypted() && !config.insecure {
            return Err(Fault::unprepared(format!(
                "{} is not encrypted, so other machines in the network could read the password",
                config.address
            ))
            .hint("write `https://`, or `insecure = true` if the network is private"));
        }
        let trust = match (config.fingerprint, config.insecure) {
            (Some(fingerprint), _) => Trust::Pinned(fingerprint),
            (None, true) => Trust::AcceptAny,
            (None, false) => Trust::RejectAll,
        };
        let identity = Identity { address: config.address.clone(), trust, credentials: config.credentials.clone() };
        let service = site.service(identity.clone(), || Service::new(identity));
        Ok(Self { service, name: config.system.clone(), known: Mutex::default() })
    }

    /// Reads the current state of the system.
    async fn system(&self) -> Result<System, Fault> {
        let known = self.known().path.clone();
        let path = match known {
            Some(path) => path,
            None => self.find().await?,
        };
        let found = self.service.find::<System>(&path).await?;
        let mut known = self.known();
        let Some(system) = found else {
            *known = Known::default();
            return Err(Fault::confused(format!(
                "the controller at {} no longer has a system at {path}",
                self.service.address()
            )));
        };
        known.path = Some(path);
        known.system = Some(system.clone());
        Ok(system)
    }

    /// The path of the node's system.
    async fn find(&self) -> Result<String, Fault> {
        let address = self.service.address();
        if let Some(path) = self.name.as_ref().filter(|name| name.starts_with('/')) {
            return self.path(path);
        }
        let root = self.service.root().await?;
        let members = self.members(bodies::required(root.systems.as_ref(), "list of systems", address)?).await?;
        match (&self.name, members.as_slice()) {
            (None, [only]) => self.path(&only.path),
            (None, []) => Err(Fault::confused(format!("the controller at {address} lists no systems"))
                .hint("a chassis without a board has no systems; if the board is present, reset the controller")),
            (None, several) => {
                Err(Fault::unprepared(format!("the controller at {address} has {} systems", several.len()))
                    .hint(format!("select one with `system = \"…\"`: {}", names(several))))
            }
            (Some(name), members) => match bodies::by_path(members, name) {
                Some(member) => self.path(&member.path),
                None => self.find_by_name(name, members).await,
            },
        }
    }

    async fn find_by_name(&self, name: &str, members: &[Link]) -> Result<String, Fault> {
        for member in members.iter().take(MAX_LOOKS) {
            let path = self.path(&member.path)?;
            if self.service.get::<System>(&path).await?.is_called(name) {
                return Ok(path);
            }
        }
        Err(Fault::unprepared(format!("the controller at {} has no system {name}", self.service.address()))
            .hint(format!("available systems: {}", names(members))))
    }

    async fn members(&self, path: &str) -> Result<Vec<Link>, Fault> {
        let mut members = Vec::new();
        let mut next = Some(path.to_owned());
        for _ in 0..MAX_PAGES {
            let Some(path) = next else { break };
            let page: Collection = self.service.get(&self.path(&path)?).await?;
            members.extend(page.members);
            next = page.next;
        }
        Ok(members)
    }

    /// Returns the path of a link, or a fault if the link does not stay on this controller.
    fn path(&self, link: &str) -> Result<String, Fault> {
        let address = self.service.address();
        address.path_of(link).ok_or_else(|| {
            Fault::confused(format!(
                "the controller at {address} has an invalid link: \"{}\"",
                crate::fault::quoted(link)
            ))
        })
    }

    async fn reset(&self, wanted: Wanted) -> Result<(), Fault> {
        // The caller has just read the status, so the system is usually cached.
        let known = self.known().system.take();
        let system = match known {
            Some(system) => system,
            None => self.system().await?,
        };
        let address = self.service.address();
        let reset = system.actions.reset.filter(|reset| !reset.target.is_empty());
        let reset = reset.ok_or_else(|| {
            Fault::unsupported(format!("the controller at {address} offers no action for switching the machine"))
                .hint("check the user's permissions and the controller's licence")
        })?;
        let allowable = self.allowable(&reset).await?;
        let chosen = bodies::choose(wanted, allowable.as_deref()).map_err(|would_do| {
            let offered = allowable.as_deref().unwrap_or_default().join(", ");
            let why = format!("the controller at {address} supports none of {}, only {offered}", would_do.join(", "));
            Fault::unsupported(crate::fault::quoted(&why)).hint(match wanted {
                Wanted::Off(Off::Gracefully) => "shut the machine down through its agent, or switch it off by force",
                _ => "update the controller's firmware, or switch the machine in another way",
            })
        })?;
        let reply = self.service.post(&self.path(&reset.target)?, &json!({ "ResetType": chosen })).await?;
        if reply.status.is_success() {
            return Ok(());
        }
        // iLO 4 returns an error if the machine is already off, and other controllers do if it is already on.
        let refusal = self.service.refusal(&reply);
        if reply.status.is_client_error() && self.status().await.is_ok_and(|supply| supply == wanted.supply()) {
            return Ok(());
        }
        Err(refusal)
    }

    /// The supported reset types, if the controller lists them.
    async fn allowable(&self, reset: &Reset) -> Result<Option<Vec<String>>, Fault> {
        match (&reset.allowable, &reset.info) {
            (Some(allowable), _) => Ok(Some(allowable.clone())),
            (None, Some(info)) => {
                Ok(self.service.find::<ActionInfo>(&self.path(info)?).await?.and_then(ActionInfo::reset_types))
            }
            (None, None) => Ok(None),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Driver for RedfishDriver {
    fn status(&self) -> BoxFuture<'_, Result<Supply, Fault>> {
        Box::pin(async {
            let system = self.system().await?;
            system.supply().map_err(|says| {
                Fault::confused(format!("the controller at {} reports the power state {says}", self.service.address()))
                    .hint("wait until the controller has started; if the state persists, reset the controller")
            })
        })
    }

    fn on(&self) -> BoxFuture<'_, Result<(), Fault>> {
        Box::pin(self.reset(Wanted::On))
    }

    fn off(&self, how: Off) -> BoxFuture<'_, Result<(), Fault>> {
        Box::pin(self.reset(Wanted::Off(how)))
    }

    fn watts(&self) -> BoxFuture<'_, Result<Option<f64>, Fault>> {
        Box::pin(async {
            let known = self.known().meter.clone();
            let meter = match known {
                Some(meter) => meter,
                None => {
                    let found = Meter::find(&self.service, &self.system().await?).await?;
                    self.known().meter.clone_from(&found);
                    found.unwrap_or(Meter::Absent)
                }
            };
            meter.read(&self.service).await
        })
    }

    fn leave(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.service.leave())
    }
}

/// The last components of the members' paths, which are usually their ids.
fn names(members: &[Link]) -> String {
    const SHOWN: usize = 12;
    let mut names: Vec<_> = members
        .iter()
        .take(SHOWN)
        .filter_map(|member| member.path.trim_end_matches('/').rsplit('/').next())
        .map(crate::fault::quoted)
        .collect();
    if members.len() > SHOWN {
        names.push("…".to_owned());
    }
    names.join(", ")
}
