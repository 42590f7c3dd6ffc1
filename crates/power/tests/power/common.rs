//! Shared helpers of the tests.

use std::fs::{self, Permissions};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hostler_power::{Answer, Controller, ControllerConfig, Fault, NoNodes, Site, Supply, Verb};
use hostler_testkit::wait_until;
pub(crate) use hostler_testkit::{Running, free_port, program};
use tempfile::TempDir;

/// Waits until a server listens on the port.
pub(crate) fn wait_for_port(port: u16) {
    wait_until("an emulator to listen", 60, || TcpStream::connect(("127.0.0.1", port)).ok().map(drop));
}

/// A directory with a credentials file.
pub(crate) struct Secrets(TempDir);

impl Secrets {
    pub(crate) fn new(line: &str) -> Self {
        let secrets = Self(tempfile::tempdir().expect("a directory"));
        secrets.write(line);
        secrets
    }

    pub(crate) fn write(&self, line: &str) {
        fs::write(self.path(), format!("{line}\n")).expect("permitted");
        fs::set_permissions(self.path(), Permissions::from_mode(0o600)).expect("permitted");
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().join("controller.secret")
    }

    pub(crate) fn directory(&self) -> &Path {
        self.0.path()
    }
}

pub(crate) fn site() -> Site {
    Site::new(Arc::new(NoNodes))
}

/// Creates a controller from an operator's configuration.
pub(crate) fn controller(site: &Site, text: &str) -> Controller {
    try_controller(site, text).unwrap_or_else(|fault| panic!("{fault:?}"))
}

pub(crate) fn try_controller(site: &Site, text: &str) -> Result<Controller, Fault> {
    let config: ControllerConfig = toml::from_str(text).unwrap_or_else(|error| panic!("{text}\n{error}"));
    Controller::new(&"r1".parse().expect("a name"), &config, site)
}

/// Polls the status until the controller confirms the wanted state.
pub(crate) async fn wait_for(controller: &Controller, wanted: Supply) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(40);
    while controller.act(Verb::Status).await.expect("a response") != Answer::Confirmed(wanted) {
        assert!(tokio::time::Instant::now() < deadline, "not {wanted:?} after 40 s");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
