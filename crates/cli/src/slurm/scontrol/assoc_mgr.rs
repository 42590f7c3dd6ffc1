//! `scontrol show assoc_mgr`: the user, the association and the QOS that `sacctmgr` lists, without limits.

use super::super::rows::{ACCOUNT, QOS};
use super::super::{CLUSTER, Ended, Outcome, items, own_name};
use super::Session;

/// The lines about limits that associations and QOS have in common.
const LIMITS: &str = "    GrpJobs=N(0) GrpJobsAccrue=N(0)
    GrpSubmitJobs=N(0) GrpWall=N(0.00)
    GrpTRES=cpu=N(0),mem=N(0),energy=N(0),node=N(0),billing=N(0)
    GrpTRESMins=cpu=N(0),mem=N(0),energy=N(0),node=N(0),billing=N(0)
    GrpTRESRunMins=cpu=N(0),mem=N(0),energy=N(0),node=N(0),billing=N(0)
";

impl Session<'_> {
    /// `conditions`: words such as `accounts=default`, `users=ada`, `qos=normal` and `flags=assoc,qos,users`.
    pub(super) fn show_assoc_mgr(&self, conditions: &[String]) -> Outcome {
        self.print(&document(conditions, &own_name()?, nix::unistd::getuid().as_raw())?)
    }
}

fn document(conditions: &[String], user: &str, uid: u32) -> Result<String, Ended> {
    let (mut flags, mut is_wanted) = (Vec::new(), [true; 3]);
    for word in conditions {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let name = name.to_ascii_lowercase();
        let has = |own: &str| value.is_empty() || items(value).iter().any(|one| one == own);
        match name.as_str() {
            "flags" => flags = items(&value.to_ascii_lowercase()),
            _ if !name.is_empty() && "accounts".starts_with(&name) => is_wanted[1] &= has(ACCOUNT),
            _ if !name.is_empty() && "users".starts_with(&name) => {
                is_wanted[0] = has(user);
                is_wanted[1] &= has(user);
            }
            _ if !name.is_empty() && "qos".starts_with(&name) => is_wanted[2] = has(QOS),
            _ => return Err(Ended::plain(format!("invalid entity:{word} for keyword:show assoc_mgr"))),
        }
    }
    let is_shown = |flag: &str| flags.is_empty() || flags.iter().any(|one| flag.starts_with(one.as_str()));
    let mut text = "Current Association Manager state\n".to_owned();
    let mut add = |flag: &str, title: &str, is_wanted: bool, records: &str| {
        if is_shown(flag) {
            text += &format!("\n{title} Records\n\n{}", if is_wanted { records } else { "" });
        }
    };
    let of_user = format!("UserName={user}({uid}) DefAccount={ACCOUNT} DefWckey= AdminLevel=None\n");
    add("users", "User", is_wanted[0], &of_user);
    let of_association = format!(
        "ClusterName={CLUSTER} Account={ACCOUNT} UserName={user}({uid}) Partition= Priority=0 ID=1\n    \
         SharesRaw/Norm/Level/Factor=1/0.00/1/0.00\n    UsageRaw/Norm/Efctv=0.00/0.00/0.00\n    \
         ParentAccount= Lft=1 DefAssoc=Yes\n{LIMITS}    \
         MaxJobs= MaxJobsAccrue= MaxSubmitJobs= MaxWallPJ=\n    MaxTRESPJ=\n    MaxTRESPN=\n    MaxTRESMinsPJ=\n    \
         MinPrioThresh=\n"
    );
    add("association", "Association", is_wanted[1], &of_association);
    let of_qos = format!(
        "QOS={QOS}(1)\n    UsageRaw=0.000000\n{LIMITS}    MaxWallPJ=\n    MaxTRESPJ=\n    MaxTRESPN=\n    \
         MaxTRESMinsPJ=\n    MinPrioThresh=\n    MinTRESPJ=\n    PreemptMode=OFF\n    Priority=0\n"
    );
    add("qos", "QOS", is_wanted[2], &of_qos);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_chosen_by_flags_and_names() {
        let shown = |words: &str| {
            let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
            document(&words, "ada", 1000).map(|text| {
                ["UserName=ada(1000) Def", "Account=default User", "QOS=normal(1)"].map(|part| text.contains(part))
            })
        };
        for (words, expected) in [
            ("", [true; 3]),
            ("accounts=default flags=assoc", [false, true, false]),
            ("account=physics", [true, false, true]),
            ("user=bob", [false, false, true]),
            ("flags=users,qos qos=normal", [true, false, true]),
        ] {
            assert_eq!(shown(words).ok(), Some(expected), "{words}");
        }
        assert!(shown("bogus=1").is_err());
    }
}
