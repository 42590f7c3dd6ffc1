//! IPMI over the network, through `ipmitool`. The password goes in its environment, which only its own user can read.

mod output;

use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::Mutex;

use crate::credentials::{Credentials, Keyring};
use crate::program::{Finished, Program};
use crate::{Driver, Fault, IpmiConfig, Off, Supply};

#[cfg(feature = "fuzzing")]
pub(crate) use output::{power_state, watts};

/// How long one call of the tool may take; it has its own time-outs, which say more.
const LIMIT: Duration = Duration::from_secs(28);

/// The tool's own: so many seconds for a packet, and how often it is sent.
const PACKET_SECONDS: &str = "2";
const PACKETS: &str = "3";

/// What switching needs, and no more.
const PRIVILEGE: &str = "OPERATOR";

/// The longest password of IPMI 2.0.
const MAX_PASSWORD_BYTES: usize = 20;

/// Lets `ipmitool` speak.
pub(crate) struct IpmiDriver {
    config: IpmiConfig,
    keyring: Keyring,
    meter: Mutex<Meter>,
}

/// Whether the controller says what the machine draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meter {
    NotAsked,
    Present,
    Absent,
}

impl IpmiDriver {
    pub(crate) fn new(config: &IpmiConfig) -> Self {
        let keyring = Keyring::new(config.credentials.clone(), format!("the controller at {}", config.address));
        Self { config: config.clone(), keyring, meter: Mutex::new(Meter::NotAsked) }
    }

    /// Runs one command of the tool; an exit code other than 0 is the caller's to judge.
    async fn ask(&self, command: &[&str]) -> Result<(Finished, Credentials), Fault> {
        let credentials = self.keyring.load().await?;
        if credentials.password.reveal().len() > MAX_PASSWORD_BYTES {
            return Err(Fault::unprepared(format!("the password of {} is longer than IPMI allows", credentials.user))
                .hint(format!("give the controller one of at most {MAX_PASSWORD_BYTES} bytes")));
        }
        let argv = self.argv(&credentials.user, command);
        let program =
            Program::new(&argv, LIMIT).environment([("IPMI_PASSWORD", credentials.password.reveal()), ("LC_ALL", "C")]);
        Ok((program.package("ipmitool").run().await?, credentials))
    }

    fn argv(&self, user: &str, command: &[&str]) -> Vec<String> {
        let port = self.config.port.unwrap_or(623).to_string();
        let cipher = self.config.cipher.map(|cipher| cipher.to_string());
        let mut argv = vec!["ipmitool", "-I", "lanplus", "-H", &self.config.address, "-p", &port, "-U", user, "-E"];
        // Only a talkative tool says that a password is wrong.
        argv.extend(["-N", PACKET_SECONDS, "-R", PACKETS, "-L", PRIVILEGE, "-v"]);
        if let Some(cipher) = &cipher {
            argv.extend(["-C", cipher]);
        }
        argv.iter().chain(command).map(|&argument| argument.to_owned()).collect()
    }

    /// Runs one command of the tool that must succeed; what it has printed.
    async fn said(&self, command: &[&str]) -> Result<String, Fault> {
        let (finished, credentials) = self.ask(command).await?;
        if finished.status.success() {
            self.keyring.accepted();
            return Ok(String::from_utf8_lossy(&finished.stdout).into_owned());
        }
        Err(match output::complaint(&finished.stderr) {
            output::Complaint::Password => {
                let why = format!(
                    "the controller at {} does not accept the user {} with this password",
                    self.config.address, credentials.user
                );
                self.keyring.refused(&credentials, &why)
            }
            output::Complaint::Privilege => Fault::refused(self.why(&finished))
                .hint("give the user the privilege level OPERATOR at least, on the channel of the network"),
            output::Complaint::Busy => Fault::busy(self.why(&finished)),
            output::Complaint::Cipher => Fault::unprepared(self.why(&finished))
                .hint("say `cipher = 17` or `cipher = 3` in its configuration; old controllers know only 3"),
            output::Complaint::Unsupported => Fault::unsupported(self.why(&finished)),
            output::Complaint::Silence => Fault::unreachable(self.why(&finished)).hint(
                "check address, user and password, and that IPMI over LAN is allowed in the controller's settings: \
                 for all of these it says no more than that",
            ),
            output::Complaint::Other => Fault::confused(self.why(&finished)),
        })
    }

    fn why(&self, finished: &Finished) -> String {
        format!("`ipmitool` with {} {}", self.config.address, finished.failure())
    }

    async fn power(&self, verb: &str, reached: Supply) -> Result<(), Fault> {
        match self.said(&["chassis", "power", verb]).await {
            Ok(_) => Ok(()),
            // It is so already, which some call an error.
            Err(fault) if matches!(fault.kind(), crate::FaultKind::Confused | crate::FaultKind::Unsupported) => {
                match self.status().await {
                    Ok(supply) if supply == reached => Ok(()),
                    _ => Err(fault),
                }
            }
            Err(fault) => Err(fault),
        }
    }
}

impl Driver for IpmiDriver {
    fn status(&self) -> BoxFuture<'_, Result<Supply, Fault>> {
        Box::pin(async {
            let said = self.said(&["chassis", "power", "status"]).await?;
            output::power_state(&said).ok_or_else(|| {
                let said = crate::fault::quoted(&said);
                Fault::confused(format!("the controller at {} says \"{said}\" about its power", self.config.address))
                    .hint("if that lasts, reset the controller: ipmitool … mc reset cold")
            })
        })
    }

    fn on(&self) -> BoxFuture<'_, Result<(), Fault>> {
        Box::pin(self.power("on", Supply::On))
    }

    fn off(&self, how: Off) -> BoxFuture<'_, Result<(), Fault>> {
        Box::pin(self.power(
            match how {
                Off::Gracefully => "soft",
                Off::ByForce => "off",
            },
            Supply::Off,
        ))
    }

    fn watts(&self) -> BoxFuture<'_, Result<Option<f64>, Fault>> {
        Box::pin(async {
            let mut meter = self.meter.lock().await;
            if *meter == Meter::Absent {
                return Ok(None);
            }
            match self.said(&["dcmi", "power", "reading"]).await {
                Ok(said) => {
                    *meter = Meter::Present;
                    Ok(output::watts(&said))
                }
                // Controllers without a meter say so in many ways. One that has answered before has one.
                Err(fault) if *meter == Meter::NotAsked && !fault_of_the_way(&fault) => {
                    *meter = Meter::Absent;
                    Ok(None)
                }
                Err(fault) => Err(fault),
            }
        })
    }
}

/// Whether a fault says nothing about what the controller can do.
fn fault_of_the_way(fault: &Fault) -> bool {
    use crate::FaultKind::{Busy, Refused, Unprepared, Unreachable};
    matches!(fault.kind(), Unreachable | Busy | Refused | Unprepared)
}
