//! The folders of other users: root starts this command once as each user who owns one.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

use nix::unistd::{Uid, User};
use tokio::process::{Child, Command};

use super::{AGAIN, INTERVAL, folders};
use crate::context::Context;
use crate::failure::{During, Failure, Outcome};

/// The command of one user: it runs, or starts again at this time.
enum Turn {
    Runs(Child),
    Waits(Instant),
}

/// Keeps one command running for each other user who owns a folder.
pub(super) async fn serve(context: &Context, directory: &Path) -> Outcome {
    let mut turns: BTreeMap<u32, Turn> = BTreeMap::new();
    loop {
        let found = folders(directory)?;
        for uid in found.iter().map(|(_, metadata)| metadata.uid()).filter(|uid| *uid != 0) {
            let next = match turns.get_mut(&uid) {
                Some(Turn::Runs(child)) => match child.try_wait() {
                    Ok(None) => continue,
                    _ => Turn::Waits(Instant::now() + AGAIN),
                },
                Some(Turn::Waits(until)) if *until > Instant::now() => continue,
                _ => match start(context, directory, uid) {
                    Ok(child) => Turn::Runs(child),
                    Err(failure) => {
                        context.output.fail(&failure);
                        Turn::Waits(Instant::now() + AGAIN)
                    }
                },
            };
            turns.insert(uid, next);
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Starts the command as a user. It ends with this process.
fn start(context: &Context, directory: &Path, uid: u32) -> Result<Child, Failure> {
    let failed = || format!("cannot serve the folders of the user with the id {uid}");
    let user = User::from_uid(Uid::from_raw(uid)).during(failed)?;
    let user = user.ok_or_else(|| Failure::new(failed()).hint("no account of this machine has this id"))?;
    let mut command = Command::new("setpriv");
    command.args([
        "--reuid",
        &user.name,
        "--regid",
        &user.gid.to_string(),
        "--init-groups",
        "--reset-env",
        "--pdeathsig",
        "KILL",
        "--",
    ]);
    command.arg(std::env::current_exe().during(failed)?);
    command.args(context.head.iter().flat_map(|head| ["--head", head]));
    command.arg("jobs-folder").arg(directory).kill_on_drop(true);
    command.spawn().during(failed)
}
