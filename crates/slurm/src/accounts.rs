//! The text that `sacctmgr dump` writes: accounts, their users, and limits.
//!
//! A line is `Kind - 'name':Key=value:Key='value'`. A line `Parent` names the account to which the lines after it belong.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::conf::{Place, Problem, Value};

/// The account above all others.
pub const ROOT: &str = "root";

/// An account, or a user in an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where the entry is.
    pub place: Place,
    /// Name of the account or user. Names of accounts have no capitals, as in Slurm.
    pub name: String,
    /// The account that contains it.
    pub parent: String,
    /// Limits and other values.
    pub values: Vec<Value>,
}

impl Entry {
    /// Returns the last value of the first key that has one.
    #[must_use]
    pub fn get(&self, keys: &[&str]) -> Option<&Value> {
        keys.iter().find_map(|key| self.values.iter().rfind(|value| value.is(key)))
    }
}

/// Everything in a dump.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Accounts {
    /// Values of the cluster, which hold for all accounts.
    pub cluster: Vec<Value>,
    /// The accounts, each after its parent. The account `root` is not among them.
    pub accounts: Vec<Entry>,
    /// Positions in `accounts` by name.
    positions: BTreeMap<String, usize>,
    /// The users. A user of several accounts is there several times.
    pub users: Vec<Entry>,
}

impl Accounts {
    /// Parses a dump.
    ///
    /// # Errors
    /// Returns all wrong lines.
    pub fn parse(file: &Arc<str>, text: &str) -> Result<Self, Vec<Problem>> {
        let mut reader = Reader::default();
        let mut problems = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.trim();
            let place = Place { file: Arc::clone(file), line };
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            if let Err(text) = reader.line(&place, text) {
                problems.push(Problem { place, text });
            }
        }
        if problems.is_empty() && !reader.has_cluster {
            let place = Place { file: Arc::clone(file), line: 1 };
            problems.push(Problem::new(&place, "no line `Cluster - 'name'`; this is not the output of sacctmgr dump"));
        }
        if problems.is_empty() { Ok(reader.all) } else { Err(problems) }
    }

    /// Returns the account of this name.
    #[must_use]
    pub fn account(&self, name: &str) -> Option<&Entry> {
        self.positions.get(name).map(|at| &self.accounts[*at])
    }

    /// Returns an account and the accounts that contain it, without `root`.
    pub fn with_parents<'a>(&'a self, account: &str) -> impl Iterator<Item = &'a Entry> {
        std::iter::successors(self.account(account), |entry| self.account(&entry.parent))
    }
}

#[derive(Debug, Default)]
struct Reader {
    all: Accounts,
    parent: String,
    has_cluster: bool,
}

impl Reader {
    fn line(&mut self, place: &Place, text: &str) -> Result<(), String> {
        let form = "a line has the form Kind - 'name':Key=value";
        let (kind, rest) = text.split_once('-').ok_or(form)?;
        let mut parts = split(rest)?.into_iter();
        let name = parts.next().filter(|name| !name.is_empty()).ok_or(form)?;
        let values = parts.map(|part| value(place, &part)).collect::<Result<Vec<_>, _>>()?;
        let entry =
            |name: String, parent: &str| Entry { place: place.clone(), name, parent: parent.to_owned(), values };
        match kind.trim().to_ascii_lowercase().as_str() {
            "cluster" => {
                if self.has_cluster {
                    return Err("a second cluster".to_owned());
                }
                (self.has_cluster, self.parent) = (true, ROOT.to_owned());
                self.all.cluster = entry(name, ROOT).values;
            }
            _ if !self.has_cluster => return Err(format!("{form}, and the first one is Cluster")),
            "parent" => {
                let name = name.to_ascii_lowercase();
                if name != ROOT && self.all.account(&name).is_none() {
                    return Err(format!("no line before this one defines account {name}"));
                }
                self.parent = name;
            }
            "account" => {
                let account = entry(name.to_ascii_lowercase(), &self.parent);
                if account.name == ROOT {
                    return Ok(());
                }
                if let Some(earlier) = self.all.account(&account.name) {
                    return Err(format!("account {} is already in {}", account.name, earlier.place));
                }
                self.all.positions.insert(account.name.clone(), self.all.accounts.len());
                self.all.accounts.push(account);
            }
            "user" => self.all.users.push(entry(name, &self.parent)),
            other => return Err(format!("`{other}` is not Cluster, Parent, Account or User")),
        }
        Ok(())
    }
}

/// Splits at colons outside of quotes, and removes the quotes.
fn split(text: &str) -> Result<Vec<String>, String> {
    let mut parts = vec![String::new()];
    let mut quote = None;
    for c in text.trim().chars() {
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '\'' || c == '"' => quote = Some(c),
            None if c == ':' => parts.push(String::new()),
            _ => parts.last_mut().expect("there is always a part").push(c),
        }
    }
    if quote.is_some() { Err("a quote is not closed".to_owned()) } else { Ok(parts) }
}

fn value(place: &Place, part: &str) -> Result<Value, String> {
    let (key, text) = part.split_once('=').ok_or_else(|| format!("`{part}` is not of the form Key=value"))?;
    Ok(Value { place: place.clone(), key: key.trim().to_owned(), text: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Result<Accounts, String> {
        let problems = |all: Vec<Problem>| all.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        Accounts::parse(&Arc::from("d"), text).map_err(problems)
    }

    #[test]
    fn accounts_and_users_are_parsed() {
        let text = "# To edit this file\nCluster - 'lab':Fairshare=1:QOS='normal'\nParent - 'root'\n\
                    User - 'root':DefaultAccount='root':AdminLevel='Administrator'\n\
                    Account - 'Physics':Description='a: b':GrpTRES=cpu=64,mem=100G\n\
                    Parent - 'physics'\nAccount - 'optics':MaxJobs=5\nUser - 'ada':MaxJobs=3\n\
                    Parent - 'optics'\nUser - 'ada'\nUser - \"ben\"\n";
        let all = parsed(text).expect("a good dump");
        assert_eq!(all.cluster.iter().map(ToString::to_string).collect::<Vec<_>>(), ["Fairshare=1", "QOS=normal"]);
        let accounts: Vec<_> = all.accounts.iter().map(|it| (it.name.as_str(), it.parent.as_str())).collect();
        assert_eq!(accounts, [("physics", "root"), ("optics", "physics")]);
        let users: Vec<_> = all.users.iter().map(|it| (it.name.as_str(), it.parent.as_str())).collect();
        assert_eq!(users, [("root", "root"), ("ada", "physics"), ("ada", "optics"), ("ben", "optics")]);
        let tres = all.accounts[0].get(&["GrpTRES"]).expect("a limit");
        assert_eq!((tres.text.as_str(), tres.place.to_string().as_str()), ("cpu=64,mem=100G", "d:5"));
        assert_eq!(all.accounts[0].get(&["Description"]).expect("a text").text, "a: b");
        let parents: Vec<_> = all.with_parents("optics").map(|account| account.name.as_str()).collect();
        assert_eq!(parents, ["optics", "physics"]);
        assert_eq!(all.with_parents("root").count(), 0);
    }

    #[test]
    fn wrong_lines_are_reported() {
        let cluster = "Cluster - 'c'\n";
        for (text, expected) in [
            ("", "d:1: no line `Cluster - 'name'`; this is not the output of sacctmgr dump"),
            ("ada,2000\n", "d:1: a line has the form Kind - 'name':Key=value"),
            ("User - 'ada'\n", "d:1: a line has the form Kind - 'name':Key=value, and the first one is Cluster"),
            (&format!("{cluster}Parent - 'x'"), "d:2: no line before this one defines account x"),
            (&format!("{cluster}User - 'ada"), "d:2: a quote is not closed"),
            (&format!("{cluster}User - 'ada':MaxJobs"), "d:2: `MaxJobs` is not of the form Key=value"),
            (&format!("{cluster}Account - 'a'\nAccount - 'A'"), "d:3: account a is already in d:2"),
            (&format!("{cluster}{cluster}"), "d:2: a second cluster"),
            (&format!("{cluster}Node - 'n'"), "d:2: `node` is not Cluster, Parent, Account or User"),
        ] {
            assert_eq!(parsed(text), Err(expected.to_owned()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_without_a_panic(text in "(?s)(Cluster - 'c'\n)?[a-zA-Z' :=\n-]{0,200}") {
            parsed(&text).ok();
        }
    }
}
