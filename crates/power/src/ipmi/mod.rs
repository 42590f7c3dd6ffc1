//! IPMI over the network, through `ipmitool`. The password is passed in an environment variable, which only the
//! program's user can read.

mod output;

use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::Mutex;

use crate::credentials::{Credentials, Keyring};
use crate::program::{Finished, Program};
use crate::{Driver, Fault, IpmiConfig, Off, Supply};

#[cfg(feature = "fuzzing")]
pub(crate) use output::{power_state, watts};

/// Timeout of one `ipmitool` call. The tool's own timeouts are shorter and give better messages.
const LIMIT: Duration = Duration::from_secs(28);

/// The timeout of `ipmitool` for each packet, in seconds.
const PACKET_SECONDS: &str = "2";
/// Maximum number of times that `ipmitool` sends a packet again.
const PACKETS: &str = "3";

/// The lowest privilege level that allows a user to switch a machine on and off.
const PRIVILEGE: &str = "OPERATOR";

/// Maximum password length of IPMI 2.0.
const MAX_PASSWORD_BYTES: usize = 20;

/// Driver that uses `ipmitool`.
pub(crate) struct IpmiDriver {
    config: IpmiConfig,
    keyring: Keyring,
    meter: Mutex<Meter>,
}

/// Whether the controller can measure the power draw.
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

    /// Runs an `ipmitool` command. The caller checks the exit code.
    async fn ask(&self, command: &[&str]) -> Result<(Finished, Credentials), Fault> {
        let credentials = self.keyring.load().await?;
        if credentials.password.reveal().len() > MAX_PASSWORD_BYTES {
            return Err(Fault::unprepared(format!("the password of {} is too long for IPMI", credentials.user))
                .hint(format!("set a password of at most {MAX_PASSWORD_BYTES} bytes on the controller")));
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
        // Without `-v`, the tool does not report wrong passwords.
        argv.extend(["-N", PACKET_SECONDS, "-R", PACKETS, "-L", PRIVILEGE, "-v"]);
        if let Some(cipher) = &cipher {
            argv.extend(["-C", cipher]);
        }
        argv.iter().chain(command).map(|&argument| argument.to_owned()).collect()
    }

    /// Runs an `ipmitool` command. Returns its output, or a fault if it fails.
    async fn checked_output(&self, command: &[&str]) -> Result<String, Fault> {
        let (finished, credentials) = self.ask(command).await?;
        if finished.status.success() {
            self.keyring.accepted();
            return Ok(String::from_utf8_lossy(&finished.stdout).into_owned());
        }
        Err(match output::complaint(&finished.stderr) {
            output::Complaint::Password => {
                let why = format!(
                    "the controller at {} rejects the user {} with the configured password",
                    self.config.address, credentials.user
                );
                self.keyring.refused(&credentials, &why)
            }
            output::Complaint::Privilege => Fault::refused(self.why(&finished))
                .hint("give the user at least the privilege level OPERATOR on the LAN channel"),
            output::Complaint::Busy => Fault::busy(self.why(&finished)),
            output::Complaint::Cipher => Fault::unprepared(self.why(&finished)).hint(
                "set `cipher = 17` or `cipher = 3` in the controller's configuration; old controllers support only 3",
            ),
            output::Complaint::Unsupported => Fault::unsupported(self.why(&finished)),
            output::Complaint::Silence => Fault::unreachable(self.why(&finished)).hint(
                "check address, user and password, and that IPMI over LAN is enabled in the controller's settings; \
                 `ipmitool` gives the same message for all of these",
            ),
            output::Complaint::Other => Fault::confused(self.why(&finished)),
        })
    }

    fn why(&self, finished: &Finished) -> String {
        format!("`ipmitool` with {} {}", self.config.address, finished.failure())
    }

    async fn power(&self, verb: &str, reached: Supply) -> Result<(), Fault> {
        match self.checked_output(&["chassis", "power", verb]).await {
            Ok(_) => Ok(()),
            // Some controllers report an error if the machine is already in this state.
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
            let said = self.checked_output(&["chassis", "power", "status"]).await?;
            output::power_state(&said).ok_or_else(|| {
                let said = crate::fault::quoted(&said);
                Fault::confused(format!("the controller at {} reports the power state \"{said}\"", self.config.address))
                    .hint("if the problem persists, reset the controller: ipmitool … mc reset cold")
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
            match self.checked_output(&["dcmi", "power", "reading"]).await {
                Ok(said) => {
                    *meter = Meter::Present;
                    Ok(output::watts(&said))
                }
                // Controllers without a meter fail in many ways. A controller that has returned a reading before has a
                // meter.
                Err(fault) if *meter == Meter::NotAsked && !leaves_features_unknown(&fault) => {
                    *meter = Meter::Absent;
                    Ok(None)
                }
                Err(fault) => Err(fault),
            }
        })
    }
}

/// Whether a fault says nothing about the controller's features.
fn leaves_features_unknown(fault: &Fault) -> bool {
    use crate::FaultKind::{Busy, Refused, Unprepared, Unreachable};
    matches!(fault.kind(), Unreachable | Busy | Refused | Unprepared)
}
