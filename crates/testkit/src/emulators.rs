//! Configurations for emulators of power controllers.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// `admin` and `password` in the htpasswd format of `sushy-emulator`.
const HTPASSWD: &str = "admin:$2b$04$SkoQ9dRGzW.9TNxKjnxsGuCCEUvkY.wP8uO1zyF6ystqYqMiDg/.6";

/// Python that runs first in an emulator: its machines change state after up to three seconds instead of eleven.
const FASTER: &str =
    "import random\nrandint = random.randint\nrandom.randint = lambda least, most: randint(least, min(most, 3))\n";

/// Writes the configuration of a `sushy-emulator` for these machines into `directory`. Returns its arguments. All
/// machines are off, and their ids are `uuid-NAME`. The user is `admin`, the password `password`. With `directory` as
/// PYTHONPATH, the machines change state within three seconds, else within eleven.
///
/// # Panics
/// If writing fails.
#[must_use]
pub fn sushy_emulator(directory: &Path, machines: &[String], port: u16) -> Vec<String> {
    let path = |name: &str| directory.join(name).display().to_string();
    let system =
        |name: &String| format!("{{'uuid': 'uuid-{name}', 'name': '{name}', 'power_state': 'Off', 'nics': []}}");
    let systems: Vec<String> = machines.iter().map(system).collect();
    fs::create_dir(path("state")).expect("the test owns it");
    fs::write(path("users"), HTPASSWD).expect("the test owns it");
    fs::write(path("sitecustomize.py"), FASTER).expect("the test owns it");
    let config = format!(
        "SUSHY_EMULATOR_FAKE_SYSTEMS = [{}]\nSUSHY_EMULATOR_STATE_DIR = '{}'\nSUSHY_EMULATOR_AUTH_FILE = '{}'\n",
        systems.join(", "),
        path("state"),
        path("users")
    );
    fs::write(path("emulator.conf"), config).expect("the file is writable");
    let words = ["--fake", "--interface", "127.0.0.1", "--port", &port.to_string(), "--config", &path("emulator.conf")];
    words.map(str::to_owned).into()
}

/// Writes the configuration of an `ipmi_sim` at this address into `directory`, which must be its working directory.
/// Returns its arguments. The script `chassis` reads and switches the power. The file `power` in the script's
/// directory records that the machine is off. The user is `admin`, the password `password`.
///
/// # Panics
/// If writing fails.
#[must_use]
pub fn ipmi_sim(directory: &Path, (address, port): (&str, u16), chassis: &str) -> Vec<String> {
    let script = directory.join("chassis");
    fs::write(&script, chassis).expect("the file is writable");
    fs::set_permissions(&script, Permissions::from_mode(0o700)).expect("the test owns the file");
    fs::write(directory.join("power"), "0").expect("the file is writable");
    fs::create_dir(directory.join("state")).expect("the directory can be created");
    let lan = format!(
        "name \"sim\"\nset_working_mc 0x20\nstartlan 1\naddr {address} {port}\npriv_limit admin\n\
         allowed_auths_operator none md2 md5 straight\nallowed_auths_admin none md2 md5 straight\n\
         guid a123456789abcdefa123456789abcdef\nendlan\nchassis_control \"{}\"\n\
         user 2 true \"admin\" \"password\" admin 10 none md2 md5 straight\n",
        script.display()
    );
    fs::write(directory.join("lan.conf"), lan).expect("the file is writable");
    let commands = "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02\nmc_enable 0x20\n";
    fs::write(directory.join("commands"), commands).expect("the file is writable");
    ["-c", "lan.conf", "-f", "commands", "-s", "state", "-n"].map(str::to_owned).into()
}
