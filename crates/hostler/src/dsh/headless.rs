//! `dshd` without a head: which line of the cluster file is this machine, and what the machine offers.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use hostler_agent::headless::{Config, GOSSIP_PORT};
use hostler_agent::{Machine, Machines, StatusPorts};
use hostler_cli::failure::{During, Failure};
use hostler_model::{NodeName, Resources};

use crate::commands::agent::{capped, machine};
use crate::settings::AgentSettings;

/// The settings of a daemon without a head. The user that runs the daemon may have no home.
pub(super) const SETTINGS: &str = "/etc/hostler/agent.toml";

/// The name of this machine among the `machines`: the given one, or the host name.
pub(super) fn own_name(given: Option<&NodeName>, machines: Option<&Machines>) -> Result<NodeName, Failure> {
    let host = match given {
        Some(name) => name.to_string(),
        None => {
            let host = nix::unistd::gethostname().map_err(std::io::Error::from);
            host.during(|| "cannot get the host name".to_owned())?.to_string_lossy().into_owned()
        }
    };
    Ok(pick(&host.to_lowercase(), machines)?.parse()?)
}

/// The machine called `host`: by its whole name, or by its first label if one of both has no domain.
fn pick(host: &str, machines: Option<&Machines>) -> Result<String, Failure> {
    let label = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    let Some(machines) = machines else { return Ok(label(host)) };
    let names: Vec<String> = machines.all().iter().map(|machine| machine.name.to_lowercase()).collect();
    let fits = |name: &&String| **name == label(host) || label(name) == host;
    let mut fitting =
        names.iter().filter(|name| *name == host).chain(names.iter().filter(|name| *name != host).filter(fits));
    match (fitting.next(), fitting.next()) {
        (Some(name), None) => Ok(name.clone()),
        (Some(name), Some(_)) if name == host => Ok(name.clone()),
        (Some(name), Some(other)) => {
            Err(Failure::new(format!("{name} and {other} of the cluster file both fit this machine, {host}"))
                .hint("name the line of this machine, e.g. `--name NAME`"))
        }
        (None, _) => Err(Failure::new(format!("the cluster file does not list this machine, {host}"))
            .hint("add a line for this machine, or give its name in the file with `--name NAME`")),
    }
}

pub(super) fn config(
    name: NodeName,
    key: [u8; 32],
    machines: Option<Machines>,
    status: StatusPorts,
    settings: &AgentSettings,
) -> Result<Config, Failure> {
    let there_is = machine(None)?;
    let cpus = capped(there_is.usable, settings.cpus.as_ref());
    let memory_bytes = there_is.memory.usable_bytes.min(settings.memory.map_or(u64::MAX, |cap| cap.0));
    let own = machines.as_ref().and_then(|machines| machines.find(&name));
    let ipv4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, GOSSIP_PORT));
    let gossip = match (own, &machines) {
        (Some(Machine { address: Some(address), .. }), _) => vec![*address],
        (_, Some(_)) => vec![(Ipv6Addr::UNSPECIFIED, GOSSIP_PORT).into(), ipv4],
        // Broadcasts are of IPv4 only.
        (_, None) => vec![ipv4],
    };
    let resources = Resources::new(cpus, memory_bytes);
    Ok(Config {
        name,
        key,
        machines,
        gossip,
        resources,
        weights: settings.weights,
        status,
        policy: settings.policy.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_line_is_found_by_the_host_name() {
        let machine =
            |name: &str| Machine { name: name.to_owned(), address: None, load_weight: None, memory_weight: None };
        let machines = Machines::new(["Newton.a", "kepler", "n1.a", "n1.b", "n1"].map(machine).to_vec());
        for (host, expected) in [
            ("newton", Some("newton.a")),
            ("newton.a", Some("newton.a")),
            ("kepler.a", Some("kepler")),
            ("n1.b", Some("n1.b")),
            ("n1", Some("n1")),
            ("newton.b", None),
            ("galileo", None),
        ] {
            assert_eq!(pick(host, Some(&machines)).ok().as_deref(), expected, "{host}");
        }
        assert_eq!(pick("newton.a", None).ok().as_deref(), Some("newton"));
        let twice = Machines::new(["n1.a", "n1.b"].map(machine).to_vec());
        assert!(pick("n1", Some(&twice)).expect_err("ambiguous").render().contains("n1.a and n1.b"));
    }
}
